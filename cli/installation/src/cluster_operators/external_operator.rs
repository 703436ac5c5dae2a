//! An operator that runs outside of the cluster: it holds a Lease of windlass, and is none of the Pods of windlass.
//!
//! Elsewhere: whether a Lease is held at all (`operator_presence.rs`).

use std::collections::BTreeSet;

use jiff::Timestamp;
use objects::{Gvk, Object};

use super::{LeaseHolder, OURS, own_leases};
use crate::install::manifests::CONTROLLER;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The processes that hold Leases of windlass in a namespace and have the name of none of its Pods there.
///
/// # Errors
/// The API server refuses to list Leases or Pods: where a process runs is not known then.
pub async fn outside(
    cluster: &ClusterConnection,
    namespace: &str,
    now: Timestamp,
) -> Result<Vec<LeaseHolder>, ClusterError> {
    let leases = own_leases(cluster, namespace).await?;
    let held = leases.iter().filter_map(|lease| LeaseHolder::of(lease, now)).collect();
    none_of_pods(cluster, namespace, held).await
}

/// Those of some processes that have the name of no Pod of windlass in a namespace: a Pod that holds a Lease does so by its own
/// name, also one that is gone and did not release it.
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
/// The API server refuses to list them.
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
        // A Pod that is about to end still holds it.
        assert_eq!(found(vec![held(), pod("laptop")]).await, [""; 0]);
        let gone = lease(name, "windlass-controller-2", &now.to_string());
        assert_eq!(found(vec![gone]).await, [""; 0], "it was deleted with its node");
        let old = lease(name, "laptop", "2026-01-01T00:00:00Z");
        assert_eq!(found(vec![old]).await, [""; 0]);
        // The Lease of a controller of Flux is not a Lease of windlass.
        let flux = lease("kustomize-controller-leader-election", "laptop", &now.to_string());
        assert_eq!(found(vec![flux]).await, [""; 0]);
    }
}
