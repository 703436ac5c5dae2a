//! The order in which Helm creates and deletes objects, by their kinds.
//!
//! Elsewhere: the order in which a Kustomization applies objects (`apply`).

use std::cmp::Ordering;

/// The direction of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestOrder {
    /// For creation: objects that other objects need come first.
    Install,
    /// For deletion: objects that other objects need come last.
    Uninstall,
}

const INSTALL: [&str; 38] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

impl ManifestOrder {
    /// Compares two kinds by their order. Kinds that Helm does not know come last, sorted by name.
    pub fn compare(self, a: &str, b: &str) -> Ordering {
        match (self.place(a), self.place(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a.cmp(b),
        }
    }

    fn place(self, kind: &str) -> Option<usize> {
        let place = |kind| INSTALL.iter().position(|known| *known == kind);
        match self {
            Self::Install => place(kind),
            // The order is reversed, except that a Service is deleted before the workloads, which stops the
            // traffic.
            Self::Uninstall if kind == "Service" => place("IngressClass").map(behind),
            Self::Uninstall => place(kind).map(|place| behind(place) - 1),
        }
    }
}

/// The place of a kind in the reversed order, where every second place is free.
fn behind(place: usize) -> usize {
    2 * (INSTALL.len() - place)
}
