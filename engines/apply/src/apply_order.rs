//! The order in which objects are applied, and the reverse one in which they are deleted.
//!
//! Here: comparing ids. Elsewhere: which objects have to exist before others are applied ([`mod@crate::stages`]).

use std::cmp::Ordering;

use objects::ObjectId;

/// Kinds that others refer to, in the order of fluxcd/pkg/ssa's `ReconcileOrder`; the group does not count.
const FIRST: [&str; 23] = [
    "CustomResourceDefinition",
    "Namespace",
    "ClusterRole",
    "ClusterClass",
    "RuntimeClass",
    "PriorityClass",
    "StorageClass",
    "VolumeSnapshotClass",
    "IngressClass",
    "GatewayClass",
    "ClusterRoleBinding",
    "ResourceQuota",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ConfigMap",
    "Secret",
    "Service",
    "LimitRange",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];

/// Kinds that can refuse everything else, so they come when everything else is there.
const LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

fn rank(kind: &str) -> usize {
    let at = |list: &[&str]| list.iter().position(|k| *k == kind);
    at(&FIRST).or_else(|| at(&LAST).map(|i| FIRST.len() + 1 + i)).unwrap_or(FIRST.len())
}

/// Compares two ids by when they are applied; ties go by group, kind, namespace, name, byte by byte.
pub fn compare(a: &ObjectId, b: &ObjectId) -> Ordering {
    rank(&a.kind).cmp(&rank(&b.kind)).then_with(|| {
        (&a.group, &a.kind, &a.namespace, &a.name).cmp(&(&b.group, &b.kind, &b.namespace, &b.name))
    })
}

/// Sorts ids for deletion: the reverse of the order in which they would be applied.
pub(crate) fn prune_order(ids: impl IntoIterator<Item = ObjectId>) -> Vec<ObjectId> {
    let mut ids: Vec<_> = ids.into_iter().collect();
    ids.sort_by(|a, b| compare(b, a));
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_go_first_and_namespaces_last_when_everything_is_deleted() {
        let id = |kind: &str, name: &str| ObjectId::new("", name, "", kind);
        let ids = [
            id("Namespace", "n"),
            id("ValidatingWebhookConfiguration", "w"),
            id("Widget", "x"),
            id("Secret", "s"),
            id("CustomResourceDefinition", "c"),
        ];
        let subjects: Vec<_> = prune_order(ids).iter().map(ObjectId::subject).collect();
        assert_eq!(
            subjects.join(" "),
            "ValidatingWebhookConfiguration/w Widget/x Secret/s Namespace/n CustomResourceDefinition/c"
        );
    }
}
