//! The Pods of a workload that may be why it is not healthy: not those that a Deployment replaces.
//!
//! Elsewhere: what a Pod says, and which ReplicaSets are replaced (engine `cause`).

use std::collections::BTreeSet;

use objects::{Gvk, Object, ObjectId};

use windlass_cluster::Cluster;
use windlass_cluster::discovery::Resource;
use windlass_cluster::object_pages::ObjectQuery;

/// How many Pods of a workload are read.
const MOST_PODS: usize = 6_400;

/// How many ReplicaSets of a Deployment are passed over.
const MOST_REPLACED: usize = 8;

/// A namespaced kind of Kubernetes itself.
pub(crate) fn resource(version: &str, kind: &str, plural: &str) -> Resource {
    let gvk = Gvk::new(version, kind);
    let plural = plural.to_owned();
    Resource { gvk, plural, namespaced: true, watchable: true }
}

/// What `check` returns for the first Pod for which it returns anything, of those that a workload selects; none where the
/// cluster does not tell. A Pod may be checked several times.
pub(crate) async fn find_pod<T>(
    cluster: &Cluster,
    workload: &Object,
    mut check: impl FnMut(&Object) -> Option<T>,
) -> Option<T> {
    let selector = cause::pod::selector(workload)?;
    let pods = resource("v1", "Pod", "pods");
    let mut replaced: BTreeSet<ObjectId> = BTreeSet::new();
    for _ in 0..=MOST_REPLACED {
        let query = ObjectQuery {
            resource: &pods,
            namespace: workload.namespace(),
            label_selector: &selector,
            field_selector: "",
        };
        let in_newest = |pod: &Object| {
            let set = cause::pod::replica_set(pod).filter(|_| is_deployment(workload));
            match set.as_ref().is_some_and(|set| replaced.contains(set)) {
                true => None,
                false => Some((check(pod)?, set)),
            }
        };
        let (found, set) = cluster.find_object(query, MOST_PODS, in_newest).await.ok()??;
        let Some(set) = set else { return Some(found) };
        if !is_replaced(cluster, workload, &set).await {
            return Some(found);
        }
        replaced.insert(set);
    }
    None
}

fn is_deployment(workload: &Object) -> bool {
    (workload.api_version(), workload.kind()) == ("apps/v1", "Deployment")
}

/// Whether a ReplicaSet belongs to an older revision of a Deployment; `false` where the cluster does not tell.
async fn is_replaced(cluster: &Cluster, deployment: &Object, set: &ObjectId) -> bool {
    let namespace = deployment.namespace();
    let deployments = resource("apps/v1", "Deployment", "deployments");
    let sets = resource("apps/v1", "ReplicaSet", "replicasets");
    // The manifest of a release has no revision.
    let live = cluster.get(&deployments, namespace, deployment.name()).await;
    let set = cluster.get(&sets, namespace, &set.name).await;
    match (live, set) {
        (Ok(Some(live)), Ok(Some(set))) => cause::pod::is_replaced(&set, &live),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde_json::{Value, json};

    use super::*;
    use fake_cluster::answering;

    fn controlled(kind: &str, name: &str, by: &str, revision: &str) -> Value {
        let (owner, version) = match kind {
            "Pod" => ("ReplicaSet", "v1"),
            _ => ("Deployment", "apps/v1"),
        };
        let owners =
            json!([{"apiVersion": "apps/v1", "kind": owner, "name": by, "controller": true}]);
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "shop",
            "ownerReferences": owners,
            "annotations": {"deployment.kubernetes.io/revision": revision}}})
    }

    fn deployment(revision: &str) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop",
            "annotations": {"deployment.kubernetes.io/revision": revision}},
            "spec": {"selector": {"matchLabels": {"app": "web"}}}})
    }

    async fn first_pod_where(newest: &'static str) -> Option<String> {
        let cluster = answering(move |(request, _)| {
            let answer = match () {
                () if request.contains("/replicasets/web-1") => {
                    controlled("ReplicaSet", "web-1", "web", "1")
                }
                () if request.contains("/replicasets/web-2") => {
                    controlled("ReplicaSet", "web-2", "web", "2")
                }
                () if request.contains("/deployments/web") => deployment(newest),
                () => json!({"metadata": {}, "items": [
                    controlled("Pod", "web-1-a", "web-1", ""),
                    controlled("Pod", "web-1-b", "web-1", ""),
                    controlled("Pod", "web-2-a", "web-2", "")]}),
            };
            (200, Body::from(answer.to_string()))
        })
        .await;
        let workload = Object::new(deployment("")).unwrap();
        find_pod(&cluster, &workload, |pod| Some(pod.name().to_owned())).await
    }

    #[tokio::test]
    async fn pods_of_a_replica_set_that_a_deployment_replaces_are_passed_over() {
        assert_eq!(first_pod_where("2").await.as_deref(), Some("web-2-a"));
        // It was rolled back.
        assert_eq!(first_pod_where("1").await.as_deref(), Some("web-1-a"));
        assert_eq!(first_pod_where("").await.as_deref(), Some("web-1-a"), "it is not known");
        assert_eq!(first_pod_where("3").await, None);
    }
}
