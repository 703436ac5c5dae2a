//! Warns that a commit that was rolled back is still part of its source, so that a later commit applies it again.
//!
//! A Quarantine is about a result, so a commit that changes nothing of that result does not end the rollback. Any other commit
//! does. Elsewhere: rolling back (`windlass_changes`, `kustomize_controller`).

use cause::FactAnswers;
use crds::kustomize::Kustomization;
use crds::windlass_release::{ChangeSet, Quarantine, QuarantineAction};
use kube_core::Resource as _;
use objects::Object;

use super::applier_quarantines::{in_effect, is_quarantined};
use super::audited_revisions::commit;
use super::change_sets::newer;
use super::command_scope::CommandScope;
use windlass_cli_runtime::quarantine_lift;

/// The warning about a revision that was rolled back.
fn warning(revision: &str) -> String {
    match commit_of_git(revision) {
        Some(commit) => format!(
            "commit {commit} is still part of the source, so the next commit that changes the same manifests applies it again, \
             even if that commit is about something else; run `git revert {commit}` and push, or correct it in the next commit"
        ),
        None => format!(
            "the next revision of the source that changes the same manifests applies again what it still has of revision \
             {revision}, even if it is about something else; correct that before you push it"
        ),
    }
}

/// The commit of a revision of a Git repository. The digest of another artifact is no commit.
fn commit_of_git(revision: &str) -> Option<&str> {
    let (before, _) = revision.rsplit_once(':')?;
    commit(revision).filter(|_| before == "sha1" || before.ends_with("@sha1"))
}

/// The warning about a change that was rolled back by a user, or of which a member went back by itself. `None` if a newer
/// change of the same source followed. `known` are the changes of its source.
#[must_use]
pub fn of_change(change: &ChangeSet, known: &[ChangeSet]) -> Option<String> {
    let status = change.status.as_ref()?;
    let mut counts = std::iter::once(&status.counts).chain(&status.other_namespaces);
    let is_back = counts.any(|it| it.rolled_back > 0);
    (is_back && newer(known, change).is_none()).then(|| warning(&change.spec.revision))
}

/// The warning about a Quarantine that rolled its applier back. `None` for a release, because its Quarantine lasts until its
/// own chart or values change, and for a Quarantine that rolled nothing back.
pub(crate) fn of_quarantine(quarantine: &Quarantine) -> Option<String> {
    let spec = &quarantine.spec;
    let is_back = spec.action == QuarantineAction::RollBack && spec.last_good.is_some();
    let has_source = spec.subject.kind == Kustomization::kind(&());
    (is_back && has_source).then(|| warning(&spec.result.revision))
}

/// The warning about an applier that reports a Quarantine. `None` also if the user may not list Quarantines. The message of the
/// applier still names the revision then.
pub(crate) async fn of_applier(
    site: &CommandScope,
    applier: &Object,
    known: &FactAnswers,
) -> Option<String> {
    if !is_quarantined(applier) {
        return None;
    }
    let own = quarantine_lift::in_force(&site.cluster, applier).await.ok()?;
    of_quarantine(in_effect(&own, applier, known)?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const COMMIT_DIGITS: &str = "5f0c9d0c2f6a3f1f8a110d9f6f4e3f434f0c9d0c";

    fn change(sequence: i64, status: &Value) -> ChangeSet {
        serde_json::from_value(json!({
            "metadata": {"name": format!("fleet-{sequence}"), "namespace": "shop"},
            "spec": {"source": {"kind": "GitRepository", "name": "fleet", "uid": "u"},
                "revision": format!("main@sha1:{COMMIT_DIGITS}"), "digest": "d", "sequence": sequence},
            "status": status}))
        .unwrap()
    }

    fn quarantine(kind: &str, action: &str) -> Value {
        let good = json!({"digest": "a", "revision": "main@sha1:0"});
        json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Quarantine",
            "metadata": {"name": "q", "namespace": "shop", "uid": "q"},
            "spec": {"subject": {"kind": kind, "name": "shop", "uid": "u"},
                "result": {"digest": "b", "revision": format!("main@sha1:{COMMIT_DIGITS}")},
                "lastGood": if action == "RollBack" { good } else { Value::Null },
                "reason": "R", "message": "m", "action": action}})
    }

    #[test]
    fn a_commit_is_reverted_and_another_revision_is_corrected() {
        let revert = format!("run `git revert {COMMIT_DIGITS}` and push");
        for revision in ["main@sha1:", "refs/tags/v1@sha1:", "sha1:"] {
            let text = warning(&format!("{revision}{COMMIT_DIGITS}"));
            assert!(text.contains(&revert), "{text}");
        }
        for revision in
            ["latest@sha256:0123456789abcdef", "sha256:0123456789abcdef", "main@sha1:x", ""]
        {
            let text = warning(revision);
            assert!(!text.contains("git") && text.contains("correct that"), "{revision}: {text}");
        }
    }

    #[test]
    fn only_the_newest_change_of_a_source_that_went_back_is_warned_about() {
        let own = json!({"verdict": "RolledBack", "counts": {"members": 2, "failed": 1, "rolledBack": 1}});
        let others = json!({"verdict": "RolledBack", "counts": {"members": 0},
            "otherNamespaces": {"members": 1, "rolledBack": 1}});
        for status in [own, others] {
            let change = change(2, &status);
            assert!(
                of_change(&change, &[]).is_some_and(|it| it.contains("git revert")),
                "{status}"
            );
        }
        let failed = json!({"verdict": "Failed", "counts": {"members": 1, "failed": 1}});
        assert_eq!(of_change(&change(2, &failed), &[]), None, "it is applied");
        let back =
            change(2, &json!({"verdict": "RolledBack", "counts": {"members": 1, "rolledBack": 1}}));
        assert_eq!(of_change(&back, &[change(3, &failed)]), None, "the source moved on");
    }

    #[test]
    fn only_a_kustomization_that_went_back_is_warned_about() {
        let of = |kind: &str, action: &str| {
            let quarantine = serde_json::from_value(quarantine(kind, action)).unwrap();
            of_quarantine(&quarantine).is_some()
        };
        assert!(of("Kustomization", "RollBack"));
        assert!(!of("Kustomization", "Hold") && !of("HelmRelease", "RollBack"));
    }

    #[tokio::test]
    async fn an_applier_that_reports_a_quarantine_is_warned_about() {
        let all = vec![quarantine("Kustomization", "RollBack")];
        let (cluster, _) = fake_cluster::with_objects(all).await;
        let site = CommandScope { cluster, namespace: "shop".to_owned() };
        let applier = |reason: &str| {
            let ready = json!({"type": "Ready", "status": "False", "reason": reason});
            Object::new(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1",
                "kind": "Kustomization", "metadata": {"name": "shop", "namespace": "shop", "uid": "u"},
                "status": {"conditions": [ready]}}))
            .unwrap()
        };
        let known = FactAnswers::default();
        let said = of_applier(&site, &applier("Quarantined"), &known).await;
        assert!(said.is_some_and(|it| it.contains(COMMIT_DIGITS)));
        assert_eq!(of_applier(&site, &applier("BuildFailed"), &known).await, None);
        let (cluster, _) = fake_cluster::with_objects(Vec::new()).await;
        let site = CommandScope { cluster, namespace: "shop".to_owned() };
        assert_eq!(
            of_applier(&site, &applier("Quarantined"), &known).await,
            None,
            "none is served"
        );
    }
}
