//! Finds operators that run outside of the cluster. Such a process holds a Lease of windlass, but is none of windlass's Pods.
//!
//! Elsewhere: whether a process holds the Lease at all (`operator_presence.rs`).

use std::collections::BTreeSet;

use jiff::Timestamp;
use objects::{Gvk, Object};

use super::{LeaseHolder, OURS, own_leases};
use crate::install::manifests::CONTROLLER;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The processes that hold Leases of windlass in a namespace, but are none of windlass's Pods there.
///
/// # Errors
/// The API server refuses to list Leases or Pods. Then it is unknown where a process runs.
pub async fn outside(
    cluster: &ClusterConnection,
    namespace: &str,
    now: Timestamp,
) -> Result<Vec<LeaseHolder>, ClusterError> {
    let leases = own_leases(cluster, namespace).await?;
    let held = leases.iter().filter_map(|lease| LeaseHolder::of(lease, now)).collect();
    none_of_pods(cluster, namespace, held).await
}

/// Selects the processes that are no Pods of windlass in a namespace. A Pod uses its own name as its identity. The name of a
/// deleted Pod that did not release its Lease counts as a Pod, too.
///
/// # Errors
/// The API server refuses to list Pods.
pub(crate) async fn none_of_pods(
    cluster: &ClusterConnection,
    namespace: &str,
    mut held: Vec<LeaseHolder>,
) -> Result<Vec<LeaseHolder>, ClusterError> {
    if held.is_empty() {
        return Ok(held);
    }
    let pods = pods(cluster, namespace).await?;
    let pods: BTreeSet<&str> = pods.iter().map(Object::name).collect();
    held.retain(|LeaseHolder { identity, .. }| {
        !pods.contains(identity.as_str()) && !identity.starts_with(CONTROLLER)
    });
    Ok(held)
}

/// The Pods of windlass in a namespace.
///
/// # Errors
/// The API server refuses to list the objects.
pub(crate) async fn pods(
    cluster: &ClusterConnection,
    namespace: &str,
) -> Result<Vec<Object>, ClusterError> {
    cluster.list_of_kind(&Gvk::new("v1", "Pod"), namespace, OURS).await
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use fake_cluster::operator_objects::{lease, pod};
    use fake_cluster::with_objects;

    #[tokio::test]
    async fn a_holder_that_is_none_of_the_pods_runs_outside_of_the_cluster() {
        let now = Timestamp::now();
        let name = "windlass-leader-election";
        let found = async |objects: Vec<Value>| {
            let (cluster, _) = with_objects(objects).await;
            let found = outside(&cluster, "flux-system", now).await.unwrap();
            found.into_iter().map(|it| it.to_string()).collect::<Vec<_>>()
        };
        let held = || lease(name, "laptop", &now.to_string());
        let expected = format!("'laptop' holds Lease flux-system/{name}");
        let expected = [expected];
        assert_eq!(found(vec![held()]).await, expected);
        assert_eq!(found(vec![held(), pod("windlass-controller-1")]).await, expected);
        // A Pod that is terminating still holds the Lease.
        assert_eq!(found(vec![held(), pod("laptop")]).await, [""; 0]);
        let gone = lease(name, "windlass-controller-2", &now.to_string());
        assert_eq!(found(vec![gone]).await, [""; 0], "it was deleted with its node");
        let old = lease(name, "laptop", "2026-01-01T00:00:00Z");
        assert_eq!(found(vec![old]).await, [""; 0]);
        // The Lease of a Flux controller is not a Lease of windlass.
        let flux = lease("kustomize-controller-leader-election", "laptop", &now.to_string());
        assert_eq!(found(vec![flux]).await, [""; 0]);
    }
}
