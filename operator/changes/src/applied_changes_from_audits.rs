//! Finds out from audits what an attempt at a revision applied: whether it changed anything, and which of the changed objects
//! are appliers.
//!
//! An audit is written before the status reports the end of the attempt. If it is missing, windlass looks for it again for a
//! while, because the API server may store it later. Elsewhere: writing audits (`windlass_runtime::audit`).

use changes::change_set_member_lines::MemberKind;
use crds::kustomize::Kustomization;
use crds::windlass_release::{AuditChangeKind, AuditOperation, ReleaseAudit, ReleaseAuditSpec};
use kube_core::ResourceExt as _;
use reconcile::{ObjectKey, Time};

use windlass_cluster::ClusterError;
use windlass_cluster::object_pages::ObjectQuery;
use windlass_runtime::audit::{SUBJECT_UID, resource};
use windlass_runtime::run_context::RunContext;

/// The objects that an attempt applied, as far as they matter for a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AppliedChanges {
    /// Whether an audit of the attempt was found.
    pub(crate) is_audited: bool,
    /// Whether the audit omits some objects.
    pub(crate) is_incomplete: bool,
    /// The appliers that the attempt added or changed.
    pub(crate) children: Vec<ObjectKey>,
}

impl AppliedChanges {
    /// Adds the content of an audit, if it is about this revision and not older than `since`, the time when the source got the
    /// revision.
    fn add(&mut self, audit: &ReleaseAuditSpec, revision: &str, since: Time) {
        let is_of_revision =
            audit.to.as_ref().and_then(|it| it.revision.as_deref()) == Some(revision);
        // If a revision comes back, there are also audits of its first time.
        let is_of_change = audit.ended.as_ref().is_some_and(|it| it.0 >= since);
        if audit.operation != AuditOperation::Apply || !is_of_revision || !is_of_change {
            return;
        }
        self.is_audited = true;
        self.is_incomplete |= audit.changes.omitted > 0;
        for change in &audit.changes.objects {
            let is_applier = MemberKind::of(&change.group, &change.kind).is_some();
            if is_applier && change.change != AuditChangeKind::Removed {
                let key =
                    ObjectKey::new(&change.group, &change.kind, &change.namespace, &change.name);
                self.children.push(key);
            }
        }
    }
}

/// The objects that the attempts of a Kustomization at a revision applied, since the source got the revision.
///
/// # Errors
/// The API server refuses the request or does not respond.
pub(crate) async fn applied_changes(
    context: &RunContext,
    object: &Kustomization,
    revision: &str,
    since: Time,
) -> Result<AppliedChanges, ClusterError> {
    let resource = resource();
    let namespace = object.namespace().unwrap_or_default();
    let selector = format!("{SUBJECT_UID}={}", object.uid().unwrap_or_default());
    let query = ObjectQuery {
        namespace: &namespace,
        label_selector: &selector,
        ..ObjectQuery::all(&resource)
    };
    let mut found = AppliedChanges::default();
    let mut pages = context.cluster.object_pages(query);
    while let Some(page) = pages.next().await? {
        for audit in page.objects {
            // An audit that cannot be read was not written by this version of windlass.
            if let Ok(audit) = serde_json::from_value::<ReleaseAudit>(audit.into_value()) {
                found.add(&audit.spec, revision, since);
            }
        }
    }
    found.children.sort();
    found.children.dedup();
    Ok(found)
}

/// Whether the inventory of a Kustomization has appliers that it applied to this cluster.
pub(crate) fn has_appliers(object: &Kustomization) -> bool {
    if object.spec.kube_config.is_some() {
        return false;
    }
    let inventory = object.status.as_ref().and_then(|it| it.inventory.as_ref());
    let mut ids = inventory.into_iter().flat_map(|it| &it.entries).map(|it| it.id.as_str());
    ids.any(|id| {
        let mut parts = id.rsplitn(3, '_');
        let kind = parts.next().unwrap_or_default();
        let group = parts.next().unwrap_or_default();
        MemberKind::of(group, kind).is_some()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn audit(revision: &str, ended: &str) -> ReleaseAuditSpec {
        let child = |change: &str, kind: &str, name: &str| {
            json!({"change": change, "group": "helm.toolkit.fluxcd.io", "kind": kind,
                "namespace": "shop", "name": name})
        };
        let objects = json!([
            child("Added", "HelmRelease", "web"),
            child("Changed", "HelmRelease", "db"),
            child("Removed", "HelmRelease", "old"),
            child("Changed", "Other", "x"),
        ]);
        serde_json::from_value(json!({"operation": "Apply", "to": {"revision": revision},
            "ended": ended, "changes": {"added": 1, "changed": 2, "removed": 1, "objects": objects}}))
        .unwrap()
    }

    #[test]
    fn the_appliers_that_a_revision_added_or_changed_are_its_children() {
        let since = "2026-11-30T09:00:00Z".parse().unwrap();
        let mut found = AppliedChanges::default();
        found.add(&audit("main@sha1:1", "2026-11-30T09:00:05Z"), "main@sha1:2", since);
        assert_eq!(found, AppliedChanges::default(), "it is about another revision");
        found.add(&audit("main@sha1:2", "2026-11-30T08:00:00Z"), "main@sha1:2", since);
        assert_eq!(found, AppliedChanges::default(), "it is about the first time of this one");
        found.add(&audit("main@sha1:2", "2026-11-30T09:00:05Z"), "main@sha1:2", since);
        let names: Vec<&str> = found.children.iter().map(|it| it.name.as_str()).collect();
        assert_eq!((names, found.is_audited), (vec!["web", "db"], true));
    }

    #[test]
    fn an_inventory_says_whether_there_may_be_children() {
        let object = |id: &str, elsewhere: bool| -> Kustomization {
            let mut object = json!({"metadata": {"name": "a"},
                "spec": {"interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "g"}},
                "status": {"inventory": {"entries": [{"id": id, "v": "v2"}]}}});
            if elsewhere {
                object["spec"]["kubeConfig"] = json!({"secretRef": {"name": "s"}});
            }
            serde_json::from_value(object).unwrap()
        };
        assert!(has_appliers(&object("shop_web_helm.toolkit.fluxcd.io_HelmRelease", false)));
        assert!(!has_appliers(&object("shop_web_helm.toolkit.fluxcd.io_HelmRelease", true)));
        assert!(!has_appliers(&object("shop_web_apps_Deployment", false)));
    }
}
