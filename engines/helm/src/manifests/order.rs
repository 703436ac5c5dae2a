//! The order in which Helm creates and deletes kinds.
//!
//! Elsewhere: the order in which a Kustomization applies (`apply`).

use std::cmp::Ordering;

/// Which way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestOrder {
    /// What others need comes first.
    Install,
    /// What others need goes last.
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
    /// Which of two kinds comes first; kinds that Helm does not know come last, by name.
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
            // The reverse, but traffic stops before the workloads are gone.
            Self::Uninstall if kind == "Service" => place("IngressClass").map(behind),
            Self::Uninstall => place(kind).map(|place| behind(place) - 1),
        }
    }
}

/// The place after the reverse of this one, where every second place is free.
fn behind(place: usize) -> usize {
    2 * (INSTALL.len() - place)
}
