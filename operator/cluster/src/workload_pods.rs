//! Finds the Pods of a workload that may be the reason why it is not healthy. Pods that a Deployment replaces do not count,
//! nor those of another workload with the same selector.
//!
//! Elsewhere: the state of a Pod, and which ReplicaSets are replaced (engine `cause`).

use std::collections::BTreeMap;

use objects::{Gvk, Object};

use crate::ClusterConnection;
use crate::discovery::ApiResourceLocation;
use crate::object_pages::ObjectQuery;

/// The most Pods of a workload that are read.
const MOST_PODS: usize = 6_400;

/// How many replaced ReplicaSets of a Deployment are skipped. One more is read.
const MOST_REPLACED: usize = 8;

/// The location of a namespaced kind that Kubernetes itself serves.
pub fn resource(version: &str, kind: &str, plural: &str) -> ApiResourceLocation {
    let gvk = Gvk::new(version, kind);
    let plural = plural.to_owned();
    ApiResourceLocation { gvk, plural, namespaced: true, watchable: true }
}

/// The Pods of a workload. Its ReplicaSets show which Pods are being replaced, and are read once.
pub struct WorkloadPods<'c> {
    cluster: &'c ClusterConnection,
    workload: &'c Object,
    /// The live Deployment, because the manifest of a release has no revision. `None` for another kind, or if it cannot be
    /// read.
    deployment: Option<Object>,
    /// Whether the Deployment replaces each ReplicaSet, by the names that were read.
    replica_sets: BTreeMap<String, bool>,
}

impl<'c> WorkloadPods<'c> {
    /// The Pods of a workload of any kind.
    pub async fn of(cluster: &'c ClusterConnection, workload: &'c Object) -> Self {
        let mut deployment = None;
        if (workload.api_version(), workload.kind()) == ("apps/v1", "Deployment") {
            let kind = resource("apps/v1", "Deployment", "deployments");
            let live = cluster.get(&kind, workload.namespace(), workload.name()).await;
            deployment = live.ok().flatten();
        }
        Self { cluster, workload, deployment, replica_sets: BTreeMap::new() }
    }

    /// Calls `check` for the Pods that the workload selects and does not replace, and returns its first value. `None` if there
    /// is none, or the Pods cannot be read.
    pub async fn find<T>(&mut self, mut check: impl FnMut(&Object) -> Option<T>) -> Option<T> {
        let cluster = self.cluster;
        let workload = self.workload;
        let selector = cause::pod::selector(workload)?;
        let pods = resource("v1", "Pod", "pods");
        let mut pages = cluster.object_pages(ObjectQuery {
            resource: &pods,
            namespace: workload.namespace(),
            label_selector: &selector,
            field_selector: "",
        });
        let mut read = 0;
        while let Some(page) = pages.next().await.ok()? {
            read += page.objects.len();
            for pod in page.objects {
                if !cause::pod::is_owned(&pod, workload, None) {
                    continue;
                }
                if let Some(set) = cause::pod::replica_set(&pod)
                    && self.replaces(&set.name).await
                {
                    continue;
                }
                if let Some(found) = check(&pod) {
                    return Some(found);
                }
            }
            if read >= MOST_PODS {
                break;
            }
        }
        None
    }

    /// Whether the workload is a Deployment that replaces this ReplicaSet or does not own it. `false` if that cannot be read,
    /// and `true` beyond the limit of ReplicaSets.
    pub async fn replaces(&mut self, replica_set: &str) -> bool {
        let Some(deployment) = &self.deployment else { return false };
        if let Some(is_replaced) = self.replica_sets.get(replica_set) {
            return *is_replaced;
        }
        if self.replica_sets.len() > MOST_REPLACED {
            return true;
        }
        let kind = resource("apps/v1", "ReplicaSet", "replicasets");
        let found = self.cluster.get(&kind, deployment.namespace(), replica_set).await;
        let is_replaced =
            matches!(&found, Ok(Some(set)) if cause::pod::is_replaced(set, deployment));
        self.replica_sets.insert(replica_set.to_owned(), is_replaced);
        is_replaced
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake_cluster::answering;

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

    /// The first Pod that is checked, and the number of requests. `newest` is the revision of the Deployment.
    async fn first_pod_where(newest: &'static str) -> (Option<String>, usize) {
        let requests = Arc::new(Mutex::new(0_usize));
        let counted = requests.clone();
        let cluster = answering(move |(request, _)| {
            *counted.lock() += 1;
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
        *requests.lock() = 0;
        let mut pods = WorkloadPods::of(&cluster, &workload).await;
        let found = pods.find(|pod| Some(pod.name().to_owned())).await;
        let requests = *requests.lock();
        (found, requests)
    }

    #[tokio::test]
    async fn pods_of_another_workload_with_the_same_selector_are_passed_over() {
        let cluster = answering(|(request, _)| {
            let mut of_set = controlled("Pod", "db-0", "db", "");
            of_set["metadata"]["ownerReferences"][0]["kind"] = json!("StatefulSet");
            let answer = match () {
                () if request.contains("/replicasets/other") => {
                    controlled("ReplicaSet", "other-1", "other", "1")
                }
                () if request.contains("/replicasets/web") => {
                    controlled("ReplicaSet", "web-1", "web", "1")
                }
                () if request.contains("/deployments/web") => deployment("1"),
                () => json!({"metadata": {}, "items": [of_set,
                    controlled("Pod", "other-1-a", "other-1", ""),
                    controlled("Pod", "web-1-a", "web-1", "")]}),
            };
            (200, Body::from(answer.to_string()))
        })
        .await;
        let workload = Object::new(deployment("")).unwrap();
        let mut pods = WorkloadPods::of(&cluster, &workload).await;
        let found = pods.find(|pod| Some(pod.name().to_owned())).await;
        assert_eq!(found.as_deref(), Some("web-1-a"));
    }

    #[tokio::test]
    async fn pods_of_a_replica_set_that_a_deployment_replaces_are_passed_over() {
        // The requests are for the Deployment, the list of Pods, and each ReplicaSet once.
        assert_eq!(first_pod_where("2").await, (Some("web-2-a".to_owned()), 4));
        // The Deployment was rolled back.
        assert_eq!(first_pod_where("1").await, (Some("web-1-a".to_owned()), 3));
        assert_eq!(first_pod_where("").await.0.as_deref(), Some("web-1-a"), "it is not known");
        assert_eq!(first_pod_where("3").await, (None, 4));
    }
}
