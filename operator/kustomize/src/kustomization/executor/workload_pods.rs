//! Lists the Pods that decide whether a workload in progress has failed.
//!
//! Elsewhere: for which workloads Pods are listed, and the conclusions from them (engine `apply`, `health`).

use apply::{HealthStatus, health};
use objects::Object;
use reconcile::Time;

use windlass_cluster::ClusterConnection;
use windlass_cluster::object_pages::ObjectQuery;

/// The most Pods of a workload that are read at each change of a workload in progress. A failed Pod beyond them only fails the
/// wait at its timeout.
const MOST_PODS: usize = 1_024;

/// The failed objects that a workload generated. It is empty if the cluster does not answer, so that the workload is judged by
/// its own status.
pub(super) async fn failed(cluster: &ClusterConnection, live: &Object, now: Time) -> Vec<Object> {
    let kind = health::related_kinds(&live.gvk());
    let Some((kind, selector)) = kind.zip(health::related_selector(live)) else {
        return Vec::new();
    };
    let mut related = Vec::new();
    let reading = async {
        let resource = cluster.resource(&kind).await?;
        let query = ObjectQuery {
            resource: &resource,
            namespace: live.namespace(),
            label_selector: &selector,
            field_selector: "",
        };
        let keep_failed = |pod: &Object| {
            if health::read(pod, &[], now).status == HealthStatus::Failed {
                related.push(pod.clone());
            }
            None::<()>
        };
        cluster.find_object(query, MOST_PODS, keep_failed).await
    };
    if let Err(error) = reading.await {
        tracing::debug!(object = live.id().subject(), %error, "its Pods cannot be listed");
    }
    related
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use axum::body::Body;
    use serde_json::{Value, json};

    use super::*;
    use fake_cluster::answering;

    fn workload() -> Object {
        Object::new(json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "db", "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "db"}}}}))
        .unwrap()
    }

    fn pod(name: usize, reason: &str) -> Value {
        json!({"metadata": {"name": format!("db-{name}"), "namespace": "shop", "labels": {"app": "db"}},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "c", "state": {"waiting": {"reason": reason}}}]}})
    }

    const POD_KIND: &str = r#"{"resources": [{"name": "pods", "singularName": "pod", "kind": "Pod",
        "namespaced": true, "verbs": ["list", "watch"]}], "groupVersion": "v1"}"#;

    #[tokio::test]
    async fn pods_are_listed_by_selector_in_pages_and_no_more_than_are_looked_at() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let recorded = asked.clone();
        let cluster = answering(move |(request, _)| {
            let Some((_, query)) = request.split_once("/pods?") else {
                return (200, Body::from(POD_KIND));
            };
            recorded.lock().push(query.to_owned());
            let pods: Vec<Value> =
                (0..64).map(|at| pod(at, if at == 0 { "CrashLoopBackOff" } else { "" })).collect();
            let page = json!({"metadata": {"continue": "more"}, "items": pods});
            (200, Body::from(page.to_string()))
        })
        .await;
        let found = failed(&cluster, &workload(), Time::UNIX_EPOCH).await;
        assert_eq!(found.len(), 16, "one of each page, up to the bound");
        let asked = asked.lock();
        assert_eq!(asked.len(), 16);
        let own = "limit=64&labelSelector=app%20in%20%28db%29&fieldSelector=";
        assert_eq!(asked[0], own);
        assert_eq!(asked[1], format!("{own}&continue=more"));
    }

    #[tokio::test]
    async fn a_pod_that_failed_is_seen_behind_hundreds_that_have_not() {
        let cluster = answering(|(request, _)| {
            let Some((_, query)) = request.split_once("/pods?") else {
                return (200, Body::from(POD_KIND));
            };
            let page: usize = query.rsplit_once("continue=").map_or(0, |it| it.1.parse().unwrap());
            let pods: Vec<Value> = match page {
                ..8 => (0..64).map(|at| pod(at, "")).collect(),
                _ => vec![pod(999, "CrashLoopBackOff")],
            };
            let next = if page < 8 { (page + 1).to_string() } else { String::new() };
            let page = json!({"metadata": {"continue": next}, "items": pods});
            (200, Body::from(page.to_string()))
        })
        .await;
        let found = failed(&cluster, &workload(), Time::UNIX_EPOCH).await;
        assert_eq!(found.iter().map(Object::name).collect::<Vec<_>>(), ["db-999"]);
    }

    #[tokio::test]
    async fn pods_that_may_not_be_listed_decide_nothing() {
        let cluster = answering(|(request, _)| match request.contains("/pods") {
            true => (403, Body::from(r#"{"kind": "Status", "code": 403, "message": "no"}"#)),
            false => (200, Body::from(POD_KIND)),
        })
        .await;
        assert_eq!(failed(&cluster, &workload(), Time::UNIX_EPOCH).await, Vec::new());
    }
}
