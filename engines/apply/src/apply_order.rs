//! The order in which objects are applied.
//!
//! Here: comparing ids. Elsewhere: which objects have to exist before others are applied ([`mod@crate::stages`]), the order in which
//! objects are deleted ([`crate::deletion_order`]).

use std::cmp::Ordering;

use objects::ObjectId;

/// Kinds that other objects refer to, in the order of fluxcd/pkg/ssa's `ReconcileOrder`. The API group does not matter.
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

/// Kinds that can refuse every other object. They are applied last, when all other objects exist.
const LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

fn rank(kind: &str) -> usize {
    let at = |list: &[&str]| list.iter().position(|k| *k == kind);
    at(&FIRST).or_else(|| at(&LAST).map(|i| FIRST.len() + 1 + i)).unwrap_or(FIRST.len())
}

/// Orders two object ids by when their objects are applied. Objects of the same rank are ordered by group, kind,
/// namespace and name, byte by byte.
pub fn compare(a: &ObjectId, b: &ObjectId) -> Ordering {
    rank(&a.kind).cmp(&rank(&b.kind)).then_with(|| {
        (&a.group, &a.kind, &a.namespace, &a.name).cmp(&(&b.group, &b.kind, &b.namespace, &b.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_refer_to_is_applied_first_and_webhooks_last() {
        let id = |kind: &str, name: &str| ObjectId::new("", name, "", kind);
        let mut ids = [
            id("Widget", "x"),
            id("ValidatingWebhookConfiguration", "w"),
            id("Namespace", "n"),
            id("Secret", "s"),
            id("CustomResourceDefinition", "c"),
        ];
        ids.sort_by(compare);
        let subjects: Vec<_> = ids.iter().map(ObjectId::subject).collect();
        assert_eq!(
            subjects.join(" "),
            "CustomResourceDefinition/c Namespace/n Secret/s Widget/x ValidatingWebhookConfiguration/w"
        );
    }
}
