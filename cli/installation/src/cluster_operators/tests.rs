//! Tests that operators are found by Deployments, StatefulSets and Leases, including shards.

use axum::body::Body;
use serde_json::{Value, json};

use super::*;
use fake_cluster::{answering, with_objects};

fn workload(kind: &str, namespace: &str, name: &str, labels: &Value, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"replicas": replicas},
    })
}

fn lease(namespace: &str, name: &str, holder: &str, renewed: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed.to_string()},
    })
}

/// The operators of a cluster with these objects.
async fn operators(objects: Vec<Value>) -> ClusterOperators {
    ClusterOperators::find(&with_objects(objects).await.0).await.unwrap()
}

fn subjects<'o>(found: impl Iterator<Item = &'o DetectedOperator>) -> Vec<&'o str> {
    found.map(|it| it.subject.as_str()).collect()
}

#[tokio::test]
async fn windlass_flux_and_its_shards_are_found_in_every_namespace() {
    let ours = json!({"app.kubernetes.io/name": "windlass", "app.kubernetes.io/part-of": "flux"});
    let flux = json!({"app.kubernetes.io/part-of": "flux"});
    let component = json!({"app.kubernetes.io/part-of": "flux", COMPONENT: "helm-controller"});
    let workloads = vec![
        workload("Deployment", "gitops", "windlass-controller", &ours, 0),
        workload("StatefulSet", "replicated", "windlass-controller", &ours, 2),
        workload("Deployment", "flux-system", "source-controller", &flux, 1),
        workload("Deployment", "flux-system", "kustomize-controller-shard1", &flux, 1),
        workload("Deployment", "flux-system", "kustomize-controller", &flux, 0),
        workload("Deployment", "flux-system", "team-a", &component, 1),
        workload("Deployment", "flux-system", "team-controller", &flux, 1),
    ];
    let found = operators(workloads).await;
    assert_eq!(
        subjects(found.active()),
        [
            "StatefulSet/replicated/windlass-controller has 2 replica(s)",
            "Deployment/flux-system/source-controller has 1 replica(s)",
            "Deployment/flux-system/kustomize-controller-shard1 has 1 replica(s)",
            "Deployment/flux-system/team-a has 1 replica(s)",
        ]
    );
    assert_eq!(
        subjects(found.elsewhere("replicated")),
        ["Deployment/gitops/windlass-controller has 0 replica(s)"]
    );
}

#[tokio::test]
async fn a_controller_without_a_workload_is_found_by_its_lease() {
    let now = Timestamp::now();
    let long_ago = now - SignedDuration::from_mins(5);
    let leases = vec![
        lease("flux-system", "kustomize-controller-leader-election-1a2b3c4d", "laptop_1", now),
        lease("flux-system", "helm-controller-leader-election", "laptop_2", long_ago),
        lease("flux-system", "source-controller-leader-election", "", now),
        lease("gitops", "windlass-leader-election", "windlass-0", now),
        // windlass holds this Lease, so no Flux controller is active.
        lease("gitops", "kustomize-controller-leader-election", "windlass-0", now),
        lease("gitops", "another-controller-leader-election", "other", now),
    ];
    let found = operators(leases).await;
    assert_eq!(
        subjects(found.active()),
        [
            "Lease/flux-system/kustomize-controller-leader-election-1a2b3c4d is held by 'laptop_1'",
            "Lease/gitops/windlass-leader-election is held by 'windlass-0'",
        ]
    );
    assert_eq!(found.flux().count(), 1);
}

#[tokio::test]
async fn what_may_not_be_listed_is_not_taken_for_absent() {
    let cluster = answering(|_| (403, Body::from("{}"))).await;
    let error = format!("{:#}", ClusterOperators::find(&cluster).await.unwrap_err());
    assert!(error.contains("cannot determine which operators are in the cluster"), "{error}");
}

#[tokio::test]
async fn windlass_is_installed_neither_beside_flux_nor_beside_another_installation() {
    let flux = json!({"app.kubernetes.io/part-of": "flux"});
    let of_flux = workload("Deployment", "flux", "helm-controller-shard2", &flux, 1);
    let found = operators(vec![of_flux.clone()]).await;
    let error = found.permit_installation("gitops").unwrap_err().to_string();
    assert!(
        error.starts_with("Deployment/flux/helm-controller-shard2 has 1 replica(s)"),
        "{error}"
    );
    assert!(error.contains("nothing was changed: `windlass migrate from-flux -n flux`"), "{error}");

    let ours = json!({"app.kubernetes.io/name": "windlass"});
    let first = workload("Deployment", "gitops", "windlass-controller", &ours, 1);
    let mut stopped = of_flux;
    stopped["spec"]["replicas"] = json!(0);
    let found = operators(vec![first, stopped]).await;
    found.permit_installation("gitops").unwrap();
    let error = found.permit_installation("flux-system").unwrap_err().to_string();
    assert!(error.contains("windlass is in namespace gitops already"), "{error}");
    assert!(error.contains("`windlass uninstall -n gitops`"), "{error}");
}
