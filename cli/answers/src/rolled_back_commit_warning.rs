//! Warns that a revision that was rolled back is still part of its source, so that a later revision applies it again.
//!
//! A Quarantine is about a result, so a revision that changes nothing of that result does not end the rollback. Any other one
//! does. Elsewhere: what to do at which source (`source_correction.rs`), rolling back (`windlass_changes`,
//! `kustomize_controller`).

use cause::{FactAnswers, object_references};
use crds::helm::HelmRelease;
use crds::helmfile::Helmfile;
use crds::kustomize::Kustomization;
use crds::windlass_release::{ChangeSet, Quarantine, QuarantineAction};
use kube_core::{Resource as _, ResourceExt as _};
use objects::{Object, ObjectId};

use super::applier_quarantines::{in_effect, is_quarantined};
use super::change_sets::newer;
use super::command_scope::{CommandScope, is_absent_kind};
use super::source_correction::{self, SourceCorrection, read_source};
use windlass_cli_runtime::quarantine_lift;

/// The warning about a change that was rolled back by a user, or of which a member went back by itself. `None` if a newer
/// change of the same source followed. `known` are the changes of its source. The source is read for it.
pub async fn of_change(
    site: &CommandScope,
    change: &ChangeSet,
    known: &[ChangeSet],
) -> Option<String> {
    if !is_back_and_newest(change, known) {
        return None;
    }
    let source = match source_of_change(change) {
        Some(id) => read_source(&site.cluster, &id).await,
        None => Err(format!("no source has the kind {}", change.spec.source.kind)),
    };
    let source = source.as_ref().map_err(String::as_str);
    Some(source_correction::of_revision(source, None, &change.spec.revision).warning())
}

/// Whether a change was rolled back, at least in part, and no newer change of the same source followed.
fn is_back_and_newest(change: &ChangeSet, known: &[ChangeSet]) -> bool {
    let status = change.status.iter();
    let mut counts = status.flat_map(|it| std::iter::once(&it.counts).chain(&it.other_namespaces));
    counts.any(|it| it.rolled_back > 0) && newer(known, change).is_none()
}

/// The source of a change. `None` for a kind that windlass does not know.
fn source_of_change(change: &ChangeSet) -> Option<ObjectId> {
    let source = &change.spec.source;
    let is_its = |it: &&crds::KindNames| it.kind == source.kind && it.category == "fluxcd-sources";
    let names = crds::names().find(is_its)?;
    let namespace = change.namespace().unwrap_or_default();
    Some(ObjectId::new(&namespace, &source.name, names.group, names.kind))
}

/// What to do about a Quarantine, with the warning about a revision that went back. `source` is the correction of its revision.
pub(crate) fn correction_of_quarantine(
    quarantine: &Quarantine,
    source: &SourceCorrection,
) -> String {
    // The revision is a release of the helmfile with the version of its chart, and not one of the source.
    if quarantine.spec.subject.kind == Helmfile::kind(&()) {
        return "correct the release in its helmfile or its values".to_owned();
    }
    of_quarantine(quarantine, source).unwrap_or_else(|| source.correction.clone())
}

/// The warning about a Quarantine that rolled its applier back. `None` for a release of a Helmfile, because its Quarantine lasts
/// until its own chart or values change, and for a Quarantine that rolled nothing back.
fn of_quarantine(quarantine: &Quarantine, source: &SourceCorrection) -> Option<String> {
    let spec = &quarantine.spec;
    let is_back = spec.action == QuarantineAction::RollBack && spec.last_good.is_some();
    let kinds = [Kustomization::kind(&()), HelmRelease::kind(&())];
    let has_source = kinds.iter().any(|kind| *kind == spec.subject.kind);
    (is_back && has_source).then(|| source.warning())
}

/// The warning that a later revision can bring back what an applier has quarantined. If the Quarantine cannot be read, the
/// warning says so. `None` if the applier reports no Quarantine, or if there is no reason to warn.
pub(crate) async fn of_applier(
    site: &CommandScope,
    applier: &Object,
    known: &FactAnswers,
) -> Option<String> {
    if !is_quarantined(applier) {
        return None;
    }
    let own = match quarantine_lift::in_force(&site.cluster, applier).await {
        Ok(own) => own,
        Err(error) if is_absent_kind(&error) => return None,
        Err(error) => {
            return Some(format!(
                "its Quarantine is not known, nor whether a later revision applies the quarantined one again: {error:#}"
            ));
        }
    };
    let source = match object_references::sources(applier).into_iter().next() {
        Some(id) => match known.object(&id) {
            Some(source) => Ok(source.clone()),
            None => read_source(&site.cluster, &id).await,
        },
        None => Err("the spec names no source".to_owned()),
    };
    let quarantine = in_effect(&own, source.as_ref().ok())?;
    let revision = &quarantine.spec.result.revision;
    let source = source.as_ref().map_err(String::as_str);
    of_quarantine(quarantine, &source_correction::of_revision(source, Some(applier), revision))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
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

    #[tokio::test]
    async fn only_the_newest_change_of_a_source_that_went_back_is_warned_about() {
        let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "fleet", "namespace": "shop"},
            "spec": {"ref": {"semver": "1.x"}}});
        let (cluster, _) = fake_cluster::with_objects(vec![source]).await;
        let site = CommandScope { cluster, namespace: String::new() };
        let own = json!({"verdict": "RolledBack", "counts": {"members": 2, "failed": 1, "rolledBack": 1}});
        let others = json!({"verdict": "RolledBack", "counts": {"members": 0},
            "otherNamespaces": {"members": 1, "rolledBack": 1}});
        for status in [own, others] {
            let text = of_change(&site, &change(2, &status), &[]).await.unwrap_or_default();
            assert!(text.contains("git revert") && text.contains("`spec.ref.semver`"), "{text}");
        }
        let failed = json!({"verdict": "Failed", "counts": {"members": 1, "failed": 1}});
        assert_eq!(of_change(&site, &change(2, &failed), &[]).await, None, "it is applied");
        let back =
            change(2, &json!({"verdict": "RolledBack", "counts": {"members": 1, "rolledBack": 1}}));
        let newer = change(3, &failed);
        assert_eq!(of_change(&site, &back, &[newer]).await, None, "the source moved on");
        let mut elsewhere = back;
        elsewhere.metadata.namespace = Some("absent".to_owned());
        let text = of_change(&site, &elsewhere, &[]).await.unwrap_or_default();
        assert!(
            text.contains("is not known (GitRepository/absent/fleet does not exist)"),
            "{text}"
        );
    }

    #[test]
    fn a_revision_comes_back_only_to_an_applier_that_went_back() {
        let source = SourceCorrection {
            returns: "it returns".to_owned(),
            correction: "correct it".to_owned(),
        };
        let of = |kind: &str, action: &str| {
            let quarantine = serde_json::from_value(quarantine(kind, action)).unwrap();
            correction_of_quarantine(&quarantine, &source)
        };
        for kind in ["Kustomization", "HelmRelease"] {
            assert_eq!(of(kind, "RollBack"), "it returns; correct it");
            assert_eq!(of(kind, "Hold"), "correct it");
        }
        assert!(of("Helmfile", "RollBack").contains("its helmfile or its values"));
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
        let cluster =
            fake_cluster::answering(|(request, _)| match request.contains("/quarantines") {
                true => {
                    let refused = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": 403, "reason": "Forbidden", "message": "it is forbidden"});
                    (403, Body::from(refused.to_string()))
                }
                false => {
                    let resources = json!([{"name": "quarantines", "singularName": "",
                    "kind": "Quarantine", "namespaced": true, "verbs": ["list"]}]);
                    let list = json!({"kind": "APIResourceList",
                    "groupVersion": "release.windlass.dev/v1alpha1", "resources": resources});
                    (200, Body::from(list.to_string()))
                }
            });
        let site = CommandScope { cluster: cluster.await, namespace: "shop".to_owned() };
        let said = of_applier(&site, &applier("Quarantined"), &known).await.unwrap_or_default();
        assert!(said.contains("not known") && said.contains("it is forbidden"), "{said}");
    }
}
