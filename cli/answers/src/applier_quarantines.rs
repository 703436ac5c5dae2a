//! The Quarantine because of which an applier does not have its newest result.
//!
//! Elsewhere: listing and lifting the Quarantines of an applier (`windlass_cli_runtime::quarantine_lift`), Quarantines of several
//! appliers that are one cause (`why/shared_quarantines.rs`).

use cause::condition;
use crds::windlass_release::Quarantine;
use objects::Object;
use reconcile::condition_reason;

/// Whether an applier reports that its newest result is quarantined.
pub(crate) fn is_quarantined(applier: &Object) -> bool {
    let ready = condition(applier, reconcile::READY);
    ready.is_some_and(|it| {
        it.status == "False" && it.reason == condition_reason::QUARANTINED.as_str()
    })
}

/// The Quarantine in effect, of all Quarantines of an applier that are in force. It is that of the present revision of the
/// source. Otherwise it is the newest one, because a later revision may build the same result. `source` is `None` if the source
/// is not known.
pub(crate) fn in_effect<'q>(
    own: &'q [Quarantine],
    source: Option<&Object>,
) -> Option<&'q Quarantine> {
    let artifact = source.and_then(|it| it.get("status")?.get("artifact"));
    let revision = artifact.and_then(|it| it.get("revision")?.as_str());
    own.iter().max_by_key(|it| {
        let is_present = revision == Some(it.spec.result.revision.as_str());
        (is_present, it.metadata.creation_timestamp.as_ref().map(|at| at.0))
    })
}

#[cfg(test)]
mod tests {
    use kube_core::ResourceExt;
    use serde_json::{Value, json};

    use super::*;

    fn applier(reason: &str) -> Object {
        Object::new(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "shop", "namespace": "apps", "uid": "u"},
            "spec": {"sourceRef": {"kind": "GitRepository", "name": "fleet"}},
            "status": {"conditions": [{"type": "Ready", "status": "False", "reason": reason}]}}))
        .unwrap()
    }

    fn quarantine(revision: &str, created: &str) -> Quarantine {
        serde_json::from_value(json!({
            "metadata": {"name": revision, "creationTimestamp": created},
            "spec": {"result": {"revision": revision}}}))
        .unwrap()
    }

    fn source(revision: &str) -> Object {
        let source: Value = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "fleet", "namespace": "apps"},
            "status": {"artifact": {"revision": revision}}});
        Object::new(source).unwrap()
    }

    #[test]
    fn an_applier_says_by_its_reason_that_it_is_quarantined() {
        assert!(is_quarantined(&applier("Quarantined")));
        assert!(!is_quarantined(&applier("HealthCheckFailed")));
    }

    #[test]
    fn the_quarantine_of_the_present_revision_counts_and_otherwise_the_newest_one() {
        let own = [
            quarantine("1", "2026-11-30T09:00:00Z"),
            quarantine("3", "2026-11-30T09:20:00Z"),
            quarantine("2", "2026-11-30T09:10:00Z"),
        ];
        let named = |source: Option<&Object>| in_effect(&own, source).map(ResourceExt::name_any);
        let of = |revision: &str| named(Some(&source(revision)));
        assert_eq!(of("1").as_deref(), Some("1"), "the branch was reset to it");
        assert_eq!(of("4").as_deref(), Some("3"), "it builds the same");
        assert_eq!(named(None).as_deref(), Some("3"));
        assert!(in_effect(&[], Some(&source("1"))).is_none());
    }
}
