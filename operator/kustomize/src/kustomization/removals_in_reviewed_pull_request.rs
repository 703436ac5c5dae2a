//! Whether a reviewed pull request showed that objects leave the manifests of a Kustomization, or all changes of a run.
//! Windlass builds the Kustomization at the commits of the pull request to find that out.
//!
//! All builds use the present spec, variables and keys, so that each difference between them comes from the commits.
//! Here: the builds, and comparing those of a removal. Elsewhere: comparing those of all changes
//! (`changes_in_reviewed_pull_request`), finding the pull request, its reviews and commits (crate `source-controller`).

use std::sync::Arc;

use apply::ApplyStage;
use apply::pull_request_review_coverage::ObjectsBuiltAtCommit;
use crds::kustomize::{Kustomization, KustomizationSpec};
use kube_core::ResourceExt as _;
use objects::{ObjectId, SecretMasking};
use reconcile::RunOutcome;
use tokio_util::sync::CancellationToken;
use tree::{MemoryTree, RelPath, TreeAccessTrace};

use super::build::on_large_stack;
use super::build_inputs::KustomizationInputs;
use super::changes_in_reviewed_pull_request::compare_changes;
use super::report;
use super::validated_spec::{
    self, BuildRequest, DesiredKustomization, KustomizationTimeouts, RemoteServerAccess,
};
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::pull_request_approval_cache::{
    RemovalReviewCheckFailure, RemovalReviewCheckInput, ReviewedResult,
};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::shared_build_parts::key_services::KeyServiceAccess;
use windlass_runtime::shared_build_parts::remote_base_access::{
    BuildPermits, RemoteBaseAccess, SharedBuildPermits,
};

/// The reason why bases on other servers are not fetched.
const REMOTE_BASES: &str = "reviews of a pull request do not show what other servers have";

/// Checks that the reviewers of a pull request saw the removal of these objects, or all of these changes. Returns the result
/// that they saw, if it is about all changes: see `changes_in_reviewed_pull_request`. Of a removal:
///
/// * The merged commit does not have the objects.
/// * Every file that the build of the merged commit reads is the same in the last reviewed commit. So the result is the same,
///   too.
/// * Each commit before the merged one has the objects. So the pull request removed them, and not an earlier commit or a
///   change in the cluster.
///
/// # Errors
/// The text names the difference, or the reason why the check failed. It contains no value of a Secret.
pub async fn check_removal(
    context: Arc<RunContext>,
    removal: RemovalReviewCheckInput,
) -> Result<Option<ReviewedResult>, RemovalReviewCheckFailure> {
    let node = &removal.subject;
    let object = context.seen::<Kustomization>(&node.namespace, &node.name);
    let object = object.filter(|it| it.uid().as_deref() == Some(removal.uid.as_str()));
    let Some(object) = object else {
        return Err(RemovalReviewCheckFailure::Unknown(
            "the Kustomization does not exist any more".to_owned(),
        ));
    };
    if removal.changes.is_some() && object.spec.kube_config.is_some() {
        return Err(RemovalReviewCheckFailure::NotShown(
            "it is for the cluster of a kubeconfig, which may become another one without a pull request".to_owned(),
        ));
    }
    let unknown =
        |outcome: RunOutcome| RemovalReviewCheckFailure::Unknown(outcome.text().to_owned());
    let timeouts = validated_spec::check(&object.spec).map_err(unknown)?;
    // These objects are watched by the runs of the Kustomization.
    let mut references = RunReferenceReads::new(&context.watcher);
    let inputs = KustomizationInputs::read(&context.settings, &object, &mut references).await;
    let inputs = inputs.map_err(unknown)?;
    let plain = match adds_values(&object.spec, &inputs) {
        true => {
            let read = KustomizationInputs::read(&context.settings, &object, &mut references).await;
            Some(read.map_err(unknown)?.without_values())
        }
        false => None,
    };
    let permit = context.building.acquire(&node.namespace).await;
    let cancel = CancellationToken::new();
    let _asked_for = cancel.clone().drop_guard();
    let permits = BuildPermits::new(&context, &node.namespace, permit, cancel.clone());
    let builds = CommitBuilds {
        object,
        timeouts,
        inputs,
        permits: SharedBuildPermits::new(permits),
        cancel: cancel.clone(),
        context: context.clone(),
    };
    let plain = plain.map(|inputs| builds.plain(inputs));
    let applied = report::last_applied_build(&builds.object);
    let applied = applied.filter(|_| report::is_spec_applied(&builds.object)).map(str::to_owned);
    let runtime = tokio::runtime::Handle::current();
    let compared = tokio::task::spawn_blocking(move || {
        // Threads that are made here do not know the runtime.
        on_large_stack(|| {
            let _within = runtime.enter();
            let build = |files: &MemoryTree| builds.build(files);
            let plain =
                |files: &MemoryTree| plain.as_ref().map(|builds| builds.build(files)).transpose();
            match &removal.changes {
                None => compare(&removal, build, plain).map(|()| None),
                Some(changes) => {
                    let applied = applied.as_deref();
                    compare_changes(&removal, changes, applied, build, plain).map(Some)
                }
            }
        })
    });
    match compared.await {
        Ok(Some(result)) => result,
        Ok(None) | Err(_) => Err(RemovalReviewCheckFailure::Unknown(
            "the build panicked; this is a bug in windlass, please report it".to_owned(),
        )),
    }
}

/// The parts of a build that are compared.
pub(super) struct CommitBuild {
    /// Names the content of all objects, as the history of the Kustomization does.
    pub(super) digest: String,
    pub(super) stages: Vec<ApplyStage>,
    /// The files that the build read.
    pub(super) trace: TreeAccessTrace,
    /// The values that no message may contain.
    pub(super) secrets: SecretMasking,
}

impl CommitBuild {
    pub(super) fn objects(&self) -> ObjectsBuiltAtCommit<'_> {
        ObjectsBuiltAtCommit::of(&self.stages)
    }
}

/// Builds of one Kustomization at several commits, one after the other.
struct CommitBuilds {
    object: Arc<Kustomization>,
    timeouts: KustomizationTimeouts,
    inputs: KustomizationInputs,
    permits: SharedBuildPermits,
    cancel: CancellationToken,
    context: Arc<RunContext>,
}

/// Whether a build has values that its files do not have: those of variables, and those of patches and images in the spec. A
/// component that may be missing is such a value, too, since the spec may name it before a pull request adds its folder.
fn adds_values(spec: &KustomizationSpec, inputs: &KustomizationInputs) -> bool {
    inputs.substitution.is_some()
        || !spec.patches.is_empty()
        || !spec.images.is_empty()
        || spec.ignore_missing_components && !spec.components.is_empty()
}

impl CommitBuilds {
    /// Builds without the values that the files do not have. `inputs` have no values of variables.
    fn plain(&self, inputs: KustomizationInputs) -> Self {
        let mut object = Kustomization::clone(&self.object);
        object.spec.patches.clear();
        object.spec.images.clear();
        if object.spec.ignore_missing_components {
            object.spec.components.clear();
        }
        Self {
            object: Arc::new(object),
            timeouts: self.timeouts,
            inputs,
            permits: self.permits.clone(),
            cancel: self.cancel.clone(),
            context: self.context.clone(),
        }
    }

    fn build(&self, files: &MemoryTree) -> Result<CommitBuild, String> {
        let Self { object, timeouts, inputs, permits, cancel, context } = self;
        let servers = RemoteServerAccess {
            bases: RemoteBaseAccess::Refused(REMOTE_BASES),
            keys: KeyServiceAccess::of(context, timeouts.timeout, permits.clone(), cancel.clone()),
        };
        let request = BuildRequest { object, timeouts: *timeouts, files, revision: "", inputs };
        let built = validated_spec::desired(&request, servers, &context.settings);
        let built = built.map_err(|outcome| outcome.text().to_owned())?;
        let DesiredKustomization { desired, digest, trace, secrets, .. } = built;
        let stages = Arc::unwrap_or_clone(desired).stages;
        Ok(CommitBuild { digest, stages, trace, secrets })
    }
}

/// Builds a commit of a pull request.
pub(super) fn built(
    what: &str,
    files: &MemoryTree,
    build: &impl Fn(&MemoryTree) -> Result<CommitBuild, String>,
) -> Result<CommitBuild, RemovalReviewCheckFailure> {
    build(files)
        .map_err(|why| RemovalReviewCheckFailure::Unknown(format!("{what} cannot be built: {why}")))
}

/// Builds the merged commit without the values that its files do not have. `None` if it has only values of its files.
pub(super) fn built_plain(
    removal: &RemovalReviewCheckInput,
    plain: impl Fn(&MemoryTree) -> Result<Option<CommitBuild>, String>,
) -> Result<Option<CommitBuild>, RemovalReviewCheckFailure> {
    plain(&removal.merged).map_err(|why| {
        RemovalReviewCheckFailure::Unknown(format!(
            "the merged commit cannot be built without variables, and patches and images of the spec: {why}"
        ))
    })
}

/// Compares the builds of the commits. See `changes_in_reviewed_pull_request` for `plain`.
fn compare(
    removal: &RemovalReviewCheckInput,
    build: impl Fn(&MemoryTree) -> Result<CommitBuild, String>,
    plain: impl Fn(&MemoryTree) -> Result<Option<CommitBuild>, String>,
) -> Result<(), RemovalReviewCheckFailure> {
    let merged = built("the merged commit", &removal.merged, &build)?;
    let plain = built_plain(removal, plain)?;
    // A patch of the spec may take an object away that the files have.
    let objects = [Some(merged.objects()), plain.as_ref().map(CommitBuild::objects)];
    let is_back =
        |id: &ObjectId| objects.iter().flatten().any(|objects| objects.manifest(id).is_some());
    let back = removal.ids.iter().filter(|id| is_back(id));
    let back: Vec<&ObjectId> = back.collect();
    if let [first, ..] = back[..] {
        let text = format!("the merged commit has {}", first.subject());
        return Err(RemovalReviewCheckFailure::NotShown(text));
    }
    let changed = merged.trace.changed_in(&*removal.head);
    if !changed.is_empty() {
        let paths = changed.into_iter().map(RelPath::to_string).collect();
        return Err(RemovalReviewCheckFailure::Different(paths));
    }
    for files in &removal.before {
        let before = built("a commit before the pull request", files, &build)?;
        let objects = before.objects();
        let missing = removal.ids.iter().filter(|id| objects.manifest(id).is_none());
        let missing: Vec<&ObjectId> = missing.collect();
        if let [first, rest @ ..] = &missing[..] {
            let more = match rest.len() {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            let text = format!(
                "{}{more} left the manifests for another reason: a commit before the pull request lacks it, too",
                first.subject()
            );
            return Err(RemovalReviewCheckFailure::NotShown(text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use objects::Object;
    use reconcile::ObjectKey;
    use serde_json::json;
    use tree::{FileTree as _, TreeRecorder};

    use super::*;

    fn files(of: &[(&str, &str)]) -> Arc<MemoryTree> {
        Arc::new(MemoryTree::from_files(of.iter().copied()).unwrap())
    }

    fn id(name: &str) -> ObjectId {
        ObjectId::new("shop", name, "", "ConfigMap")
    }

    /// A build that makes a ConfigMap of each line of a file.
    fn build(files: &MemoryTree) -> Result<CommitBuild, String> {
        let recorder = TreeRecorder::new(files);
        let text = recorder.read(&RelPath::parse("app/maps").unwrap());
        let text = text.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let map = |name: &str| {
            let metadata = json!({"name": name, "namespace": "shop"});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            Object::new(map).unwrap()
        };
        let stages = apply::stages(text.lines().map(map).collect(), &[]).unwrap();
        let secrets = SecretMasking::default();
        Ok(CommitBuild { digest: text, stages, trace: recorder.seen(), secrets })
    }

    fn removal(merged: &str, head: &str, before: &[&str]) -> RemovalReviewCheckInput {
        let commit = |maps: &str| files(&[("app/maps", maps), ("README.md", maps)]);
        RemovalReviewCheckInput {
            subject: ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", "app"),
            uid: "uid".to_owned(),
            ids: [id("a"), id("b")].into(),
            changes: None,
            merged: commit(merged),
            head: commit(head),
            before: before.iter().map(|maps| commit(maps)).collect(),
        }
    }

    #[test]
    fn what_the_pull_request_removed_and_nothing_else_was_shown() {
        assert_eq!(compare(&removal("c", "c", &["a\nb\nc", "a\nb"]), build, |_| Ok(None)), Ok(()));
    }

    #[test]
    fn another_merge_between_is_named_with_its_files() {
        let between = compare(&removal("c\nd", "c", &["a\nb\nc"]), build, |_| Ok(None));
        assert_eq!(between, Err(RemovalReviewCheckFailure::Different(vec!["app/maps".to_owned()])));
        // A file that the build does not read may differ.
        let mut other = removal("c", "c", &["a\nb\nc"]);
        other.head = files(&[("app/maps", "c"), ("README.md", "another"), ("new", "")]);
        assert_eq!(compare(&other, build, |_| Ok(None)), Ok(()));
    }

    #[test]
    fn objects_that_left_earlier_or_are_still_there_were_not_shown() {
        for (merged, before) in [("c", vec!["a\nb", "a"]), ("c", vec!["c"]), ("a\nc", vec!["a\nb"])]
        {
            let refused = compare(&removal(merged, merged, &before), build, |_| Ok(None));
            assert!(matches!(refused, Err(RemovalReviewCheckFailure::NotShown(_))), "{refused:?}");
        }
    }

    #[test]
    fn objects_that_only_a_patch_of_the_spec_takes_away_were_not_shown() {
        let removal = removal("c", "c", &["a\nb\nc"]);
        let plain = |maps: &'static str| {
            move |_: &MemoryTree| build(&files(&[("app/maps", maps)])).map(Some)
        };
        assert_eq!(compare(&removal, build, plain("c")), Ok(()));
        let refused = compare(&removal, build, plain("b\nc"));
        assert!(matches!(refused, Err(RemovalReviewCheckFailure::NotShown(_))), "{refused:?}");
    }

    #[test]
    fn a_commit_that_cannot_be_built_is_not_taken_for_one_without_objects() {
        let mut removal = removal("c", "c", &["a\nb"]);
        removal.before.push(files(&[("README.md", "")]));
        let refused = compare(&removal, build, |_| Ok(None));
        assert!(matches!(refused, Err(RemovalReviewCheckFailure::Unknown(_))), "{refused:?}");
        removal.merged = files(&[]);
        assert!(matches!(
            compare(&removal, build, |_| Ok(None)),
            Err(RemovalReviewCheckFailure::Unknown(_))
        ));
    }
}
