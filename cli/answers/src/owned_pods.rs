//! Finds the Pods that belong to a workload. A selector is not enough, because several workloads may have the same selector.
//!
//! Elsewhere: the selector, and reading `ownerReferences` (`cause::pod`).

use std::collections::{BTreeMap, BTreeSet};

use cause::pod::{is_owned, replica_set};
use futures::stream::{self, StreamExt as _};
use objects::{Object, ObjectId};
use windlass_cluster::ClusterConnection;

use super::cause_facts::{self, AT_ONCE};

/// Selects the Pods that belong to a workload, and keeps their order. A Pod also counts if its owner cannot be read.
pub async fn owned(
    cluster: &ClusterConnection,
    workload: &Object,
    pods: Vec<Object>,
) -> Vec<Object> {
    let sets: BTreeSet<ObjectId> = match workload.kind() {
        "Deployment" => pods.iter().filter_map(replica_set).collect(),
        _ => BTreeSet::new(),
    };
    let reads = sets.into_iter().map(|id| async move {
        let read = cause_facts::read(cluster, &id).await.ok().flatten();
        read.map(|set| (id, set))
    });
    let sets: Vec<Option<(ObjectId, Object)>> =
        stream::iter(reads).buffered(AT_ONCE).collect().await;
    let sets: BTreeMap<ObjectId, Object> = sets.into_iter().flatten().collect();
    let is_of_workload = |pod: &Object| {
        let set = replica_set(pod).and_then(|id| sets.get(&id));
        is_owned(pod, workload, set)
    };
    pods.into_iter().filter(is_of_workload).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn controlled(version: &str, kind: &str, name: &str, by: [&str; 2]) -> Value {
        let owner =
            json!({"apiVersion": "apps/v1", "kind": by[0], "name": by[1], "controller": true});
        json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": name, "namespace": "apps", "ownerReferences": [owner]}})
    }

    fn workload(kind: &str, name: &str) -> Object {
        let object = json!({"apiVersion": "apps/v1", "kind": kind,
            "metadata": {"name": name, "namespace": "apps"}});
        Object::new(object).unwrap()
    }

    #[tokio::test]
    async fn of_workloads_with_one_selector_each_has_its_own_pods() {
        let sets = vec![
            controlled("apps/v1", "ReplicaSet", "web-1", ["Deployment", "web"]),
            controlled("apps/v1", "ReplicaSet", "other-1", ["Deployment", "other"]),
        ];
        let (cluster, _) = fake_cluster::with_objects(sets).await;
        let pods = [
            controlled("v1", "Pod", "web-1-a", ["ReplicaSet", "web-1"]),
            controlled("v1", "Pod", "other-1-a", ["ReplicaSet", "other-1"]),
            controlled("v1", "Pod", "gone-1-a", ["ReplicaSet", "gone-1"]),
            controlled("v1", "Pod", "db-0", ["StatefulSet", "db"]),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "namespace": "apps"}}),
        ];
        let pods: Vec<Object> = pods.map(|pod| Object::new(pod).unwrap()).to_vec();
        let names = async |workload: Object| {
            let owned = owned(&cluster, &workload, pods.clone()).await;
            owned.iter().map(|pod| pod.name().to_owned()).collect::<Vec<_>>()
        };
        // The owner of an unreadable ReplicaSet is unknown, so its Pod counts. The workload will adopt a Pod without an owner.
        assert_eq!(names(workload("Deployment", "web")).await, ["web-1-a", "gone-1-a", "bare"]);
        assert_eq!(names(workload("StatefulSet", "db")).await, ["db-0", "bare"]);
    }
}
