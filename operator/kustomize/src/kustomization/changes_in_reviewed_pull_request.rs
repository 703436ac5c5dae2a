//! Whether a reviewed pull request showed everything that a run of a Kustomization would change.
//!
//! Here: which builds of the commits have to be equal. Elsewhere: the builds (`removals_in_reviewed_pull_request`),
//! comparing the objects of two builds (`apply::pull_request_review_coverage`), and the run that has to make this result
//! (`executor/change_judgement.rs`).

use std::collections::BTreeMap;

use apply::planned_changes::PlannedChangeKind;
use apply::pull_request_review_coverage::{PullRequestCommitObjects, unshown_change};
use crds::windlass_release::PlanAction;
use objects::ObjectId;
use tree::{MemoryTree, RelPath};

use super::removals_in_reviewed_pull_request::{CommitBuild, built, built_plain};
use windlass_runtime::pull_request_approval_cache::{
    RemovalReviewCheckFailure, RemovalReviewCheckInput, ReviewedResult,
};

/// Checks that the reviewers of a pull request saw all changes of a run. `applied` is the digest of the build that was applied
/// with the present spec.
///
/// * The merged commit makes the result that the last reviewed commit makes.
/// * Each commit before the merged one makes what is applied. So the difference that the reviewers saw is the difference that
///   the run makes. An earlier commit, variables and another version of windlass add nothing to it.
/// * The run changes no other object, and recreates none. So neither drift nor another target adds something.
/// * What changes in these objects comes from the files. `plain` builds without the values of variables, and without the
///   patches and images of the spec. It returns `None` if the spec has none of them. A user without the right to approve may
///   change them before the merge, and reviewers do not see their values.
///
/// # Errors
/// The text names the difference, or the reason why the check failed. It contains no value of a Secret.
pub(super) fn compare_changes(
    removal: &RemovalReviewCheckInput,
    changes: &BTreeMap<ObjectId, PlanAction>,
    applied: Option<&str>,
    build: impl Fn(&MemoryTree) -> Result<CommitBuild, String>,
    plain: impl Fn(&MemoryTree) -> Result<Option<CommitBuild>, String>,
) -> Result<ReviewedResult, RemovalReviewCheckFailure> {
    let Some(applied) = applied else {
        return Err(RemovalReviewCheckFailure::NotShown(
            "nothing was applied with the present spec of the Kustomization, so no difference of commits is that of the cluster"
                .to_owned(),
        ));
    };
    let merged = built("the merged commit", &removal.merged, &build)?;
    check_reviewed(removal, &merged, &build)?;
    let plain = built_plain(removal, plain)?;
    let plain = plain.as_ref().unwrap_or(&merged).objects();
    for files in &removal.before {
        let before = built("a commit before the pull request", files, &build)?;
        if before.digest != applied {
            return Err(RemovalReviewCheckFailure::NotShown(
                "what is applied is not what a commit before the pull request makes, so an earlier commit, a variable or \
                 another version of windlass changes something, too"
                    .to_owned(),
            ));
        }
        if before.stages.is_empty() {
            // What the spec adds to each object, such as a target namespace, was not applied to any yet.
            return Err(RemovalReviewCheckFailure::NotShown(
                "a commit before the pull request has no objects, so nothing shows what the spec adds to them"
                    .to_owned(),
            ));
        }
        let kinds = changes.iter().map(|(id, action)| (id, kind_of(*action)));
        let commits = PullRequestCommitObjects {
            before: &before.objects(),
            merged: &merged.objects(),
            plain: &plain,
        };
        if let Some(unshown) = unshown_change(kinds, &commits) {
            return Err(RemovalReviewCheckFailure::NotShown(
                merged.secrets.mask(&unshown.to_string()),
            ));
        }
    }
    Ok(ReviewedResult { merged: merged.digest.clone(), applied: applied.to_owned() })
}

/// Checks that the last reviewed commit makes the same result as the merged commit. If all files that the build reads are the
/// same, it does, and is not built.
fn check_reviewed(
    removal: &RemovalReviewCheckInput,
    merged: &CommitBuild,
    build: &impl Fn(&MemoryTree) -> Result<CommitBuild, String>,
) -> Result<(), RemovalReviewCheckFailure> {
    let changed = merged.trace.changed_in(&*removal.head);
    if changed.is_empty() {
        return Ok(());
    }
    let head = built("the last commit of the pull request", &removal.head, build)?;
    if head.digest == merged.digest {
        return Ok(());
    }
    let differences = merged.objects().differences_from(&head.objects());
    let secrets = [&head.secrets, &merged.secrets];
    let masked = |text: &String| secrets.iter().fold(text.clone(), |text, it| it.mask(&text));
    Err(RemovalReviewCheckFailure::Different(match differences.is_empty() {
        true => changed.into_iter().map(RelPath::to_string).collect(),
        false => differences.iter().map(masked).collect(),
    }))
}

const fn kind_of(action: PlanAction) -> PlannedChangeKind {
    match action {
        PlanAction::Added => PlannedChangeKind::Added,
        PlanAction::Changed => PlannedChangeKind::Changed,
        PlanAction::Removed => PlannedChangeKind::Removed,
        PlanAction::Recreated => PlannedChangeKind::Recreated,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use objects::{Object, SecretMasking};
    use reconcile::ObjectKey;
    use serde_json::json;
    use tree::{FileTree as _, TreeRecorder};

    use super::*;

    fn files(maps: &str, readme: &str) -> Arc<MemoryTree> {
        Arc::new(MemoryTree::from_files([("app/maps", maps), ("README.md", readme)]).unwrap())
    }

    fn id(name: &str) -> ObjectId {
        ObjectId::new("shop", name, "", "ConfigMap")
    }

    /// A build that makes a ConfigMap of each line `name=value` of a file. What follows `#` is a comment.
    fn build(files: &MemoryTree) -> Result<CommitBuild, String> {
        let recorder = TreeRecorder::new(files);
        let text = recorder.read(&RelPath::parse("app/maps").unwrap());
        let text = String::from_utf8_lossy(&text.map_err(|error| error.to_string())?).into_owned();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        let map = |line: &&str| {
            let (name, value) = line.split_once('=').ok_or("no value")?;
            let metadata = json!({"name": name, "namespace": "shop"});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": value}});
            Object::new(map).map_err(|error| error.to_string())
        };
        let maps = lines.iter().map(map).collect::<Result<Vec<Object>, String>>()?;
        let stages = apply::stages(maps, &[]).unwrap();
        let secrets = SecretMasking::default();
        Ok(CommitBuild { digest: lines.join("\n"), stages, trace: recorder.seen(), secrets })
    }

    /// A pull request that changes `a` and removes `b`.
    fn pull_request(merged: &str, head: &str, before: &[&str]) -> RemovalReviewCheckInput {
        RemovalReviewCheckInput {
            subject: ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", "app"),
            uid: "uid".to_owned(),
            ids: [id("b")].into(),
            changes: None,
            merged: files(merged, "merged"),
            head: files(head, "head"),
            before: before.iter().map(|maps| files(maps, "before")).collect(),
        }
    }

    fn changes() -> BTreeMap<ObjectId, PlanAction> {
        BTreeMap::from([(id("a"), PlanAction::Changed), (id("b"), PlanAction::Removed)])
    }

    const BEFORE: &str = "a=1\nb=1\nc=1";
    const AFTER: &str = "a=2\nc=1";

    fn compared(
        removal: &RemovalReviewCheckInput,
        changes: &BTreeMap<ObjectId, PlanAction>,
    ) -> Result<ReviewedResult, RemovalReviewCheckFailure> {
        compare_changes(removal, changes, Some(BEFORE), build, |_| Ok(None))
    }

    #[test]
    fn a_merged_commit_that_makes_what_was_reviewed_from_what_is_applied_was_shown() {
        let shown = ReviewedResult { merged: AFTER.to_owned(), applied: BEFORE.to_owned() };
        let removal = pull_request(AFTER, AFTER, &[BEFORE, BEFORE]);
        assert_eq!(compared(&removal, &changes()), Ok(shown.clone()));
        // Files may differ if they make the same.
        let removal = pull_request("a=2#another merge\nc=1", AFTER, &[BEFORE]);
        assert_eq!(compared(&removal, &changes()), Ok(shown));
    }

    #[test]
    fn another_merge_between_is_named_by_its_objects() {
        let removal = pull_request("a=2\nc=2\nd=1", AFTER, &[BEFORE]);
        let differ = ["ConfigMap/shop/c (/data/key)", "ConfigMap/shop/d (added)"];
        assert_eq!(
            compared(&removal, &changes()),
            Err(RemovalReviewCheckFailure::Different(differ.map(str::to_owned).to_vec()))
        );
    }

    #[test]
    fn what_is_applied_has_to_be_what_was_before_the_pull_request() {
        for before in
            [&["a=1\nb=1\nc=0"][..], &[BEFORE, "a=0\nb=1\nc=1"], &["a=0\nb=1\nc=1", BEFORE]]
        {
            let refused = compared(&pull_request(AFTER, AFTER, before), &changes());
            let Err(RemovalReviewCheckFailure::NotShown(text)) = &refused else {
                panic!("{refused:?}")
            };
            assert!(text.starts_with("what is applied is not"), "{text}");
        }
        let removal = pull_request(AFTER, AFTER, &[BEFORE]);
        let refused = compare_changes(&removal, &changes(), None, build, |_| Ok(None));
        assert!(matches!(refused, Err(RemovalReviewCheckFailure::NotShown(_))), "{refused:?}");
    }

    #[test]
    fn a_run_that_changes_more_than_the_pull_request_was_not_shown() {
        for (name, action) in [
            ("c", PlanAction::Changed),
            ("c", PlanAction::Removed),
            ("a", PlanAction::Recreated),
            ("elsewhere", PlanAction::Removed),
        ] {
            let mut more = changes();
            more.insert(id(name), action);
            let refused = compared(&pull_request(AFTER, AFTER, &[BEFORE]), &more);
            assert!(
                matches!(refused, Err(RemovalReviewCheckFailure::NotShown(_))),
                "{name}: {refused:?}"
            );
        }
    }

    #[test]
    fn the_first_objects_of_a_kustomization_are_not_shown_by_a_pull_request() {
        let removal = pull_request("a=1", "a=1", &[""]);
        let added = BTreeMap::from([(id("a"), PlanAction::Added)]);
        let refused = compare_changes(&removal, &added, Some(""), build, |_| Ok(None));
        assert!(matches!(refused, Err(RemovalReviewCheckFailure::NotShown(_))), "{refused:?}");
    }

    #[test]
    fn a_change_with_a_value_that_the_files_do_not_have_was_not_shown() {
        let removal = pull_request(AFTER, AFTER, &[BEFORE]);
        let without = |maps: &'static str| {
            let plain = move |_: &MemoryTree| build(&files(maps, "plain")).map(Some);
            compare_changes(&removal, &changes(), Some(BEFORE), build, plain)
        };
        assert!(without("a=2\nc=placeholder").is_ok(), "the pull request does not change c");
        let refused = without("a=placeholder\nc=1");
        assert!(matches!(refused, Err(RemovalReviewCheckFailure::NotShown(_))), "{refused:?}");
        let refused = without("a");
        assert!(matches!(refused, Err(RemovalReviewCheckFailure::Unknown(_))), "{refused:?}");
    }

    #[test]
    fn a_commit_that_cannot_be_built_shows_nothing() {
        for removal in [
            pull_request("a", AFTER, &[BEFORE]),
            pull_request(AFTER, "a", &[BEFORE]),
            pull_request(AFTER, AFTER, &["a"]),
        ] {
            let refused = compared(&removal, &changes());
            assert!(matches!(refused, Err(RemovalReviewCheckFailure::Unknown(_))), "{refused:?}");
        }
    }
}
