//! The objects that a rollback does not delete or change, because data would be lost that no revision restores. Also the kinds
//! of objects that no applier may apply.

use objects::{Object, ObjectId};

/// Whether deleting an object deletes data. A rollback to the last good result never deletes such an object.
#[must_use]
pub fn is_kept(id: &ObjectId) -> bool {
    matches!((id.group.as_str(), id.kind.as_str()), ("", "PersistentVolumeClaim" | "Namespace"))
        || is_definition(id)
}

/// Whether deleting an object also deletes PersistentVolumeClaims. A StatefulSet can be configured so.
#[must_use]
pub fn deletes_claims(object: &Object) -> bool {
    let policy =
        object.get("spec").and_then(|spec| spec.get("persistentVolumeClaimRetentionPolicy"));
    object.kind() == "StatefulSet" && policy.is_some_and(|it| it["whenDeleted"] == "Delete")
}

/// Whether an object is a CustomResourceDefinition. A rollback does not change an existing one, because objects may be stored
/// in a version that an older definition lacks.
#[must_use]
pub fn is_definition(id: &ObjectId) -> bool {
    id.group == "apiextensions.k8s.io" && id.kind == "CustomResourceDefinition"
}

/// Why an applier may not apply an object. `None` unless the object is of a kind that only windlass itself writes.
///
/// Without this check, a commit or a chart could fake a recorded failure, change or audit, or prune an active Quarantine or
/// Plan. Kustomizations, releases and hooks of Helmfiles check it before they write and before they delete.
#[must_use]
pub fn record_refusal(id: &ObjectId) -> Option<String> {
    let is_record = matches!(
        (id.group.as_str(), id.kind.as_str()),
        ("release.windlass.dev", "Quarantine" | "ChangeSet" | "Plan" | "ReleaseAudit")
            | ("lifecycle.windlass.dev", "LifecycleEvent")
            | ("notification.windlass.dev", "Incident")
    );
    is_record.then(|| {
        let subject = id.subject();
        format!(
            "{subject}: only windlass writes objects of this kind; remove it from the manifests"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_holds_data_is_kept_and_namesakes_of_other_groups_are_not() {
        let id = |group: &str, kind: &str| ObjectId::new("apps", "a", group, kind);
        assert!(is_kept(&id("", "PersistentVolumeClaim")));
        assert!(is_kept(&id("", "Namespace")));
        assert!(is_kept(&id("apiextensions.k8s.io", "CustomResourceDefinition")));
        for (group, kind) in
            [("", "ConfigMap"), ("example.com", "Namespace"), ("apps", "StatefulSet")]
        {
            assert!(!is_kept(&id(group, kind)), "{kind}");
        }
        assert!(is_definition(&id("apiextensions.k8s.io", "CustomResourceDefinition")));
        assert!(!is_definition(&id("", "Namespace")));
    }

    #[test]
    fn what_only_windlass_writes_is_refused_and_what_users_write_is_not() {
        let refusal =
            |group: &str, kind: &str| record_refusal(&ObjectId::new("apps", "a", group, kind));
        for kind in ["Quarantine", "ChangeSet", "Plan", "ReleaseAudit"] {
            let text = refusal("release.windlass.dev", kind).unwrap_or_default();
            assert!(text.starts_with(&format!("{kind}/apps/a: only windlass writes")), "{text}");
        }
        assert!(refusal("lifecycle.windlass.dev", "LifecycleEvent").is_some());
        assert!(refusal("notification.windlass.dev", "Incident").is_some());
        for kind in ["Freeze", "PlanPolicy"] {
            assert_eq!(refusal("release.windlass.dev", kind), None, "{kind}");
        }
        assert_eq!(refusal("example.com", "Plan"), None, "a namesake of another group");
    }

    #[test]
    fn a_stateful_set_may_take_its_claims_along() {
        let set = |policy: &str| {
            let policy = json!({"whenDeleted": policy, "whenScaled": "Retain"});
            Object::new(json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": {"name": "a", "namespace": "apps"},
                "spec": {"persistentVolumeClaimRetentionPolicy": policy}}))
            .unwrap()
        };
        assert!(deletes_claims(&set("Delete")) && !deletes_claims(&set("Retain")));
    }
}
