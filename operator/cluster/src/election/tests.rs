//! Tests that controllers of Flux and their shards keep windlass from leading.

use axum::body::Body;
use serde_json::{Value, json};

use super::*;
use crate::fake_cluster::answering;

const SHARD: &str = "kustomize-controller-leader-election-1a2b3c4d";

fn terms() -> RequiredLeaseElections {
    let second = Duration::from_secs(1);
    let flux = ElectionSettings {
        namespace: "flux-system".to_owned(),
        name: String::new(),
        identity: "windlass-0".to_owned(),
        duration: 15 * second,
        renew_deadline: 10 * second,
        retry: second,
    };
    RequiredLeaseElections { own: None, flux: Some(flux), replaced: replaced(true) }
}

fn deployment(name: &str, labels: &Value, replicas: i64) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "flux-system", "labels": labels},
        "spec": {"replicas": replicas, "selector": {}, "template": {}},
    })
}

/// A fake list whose objects are on its second page.
fn second_page(request: &str, list: &Value, items: &Value) -> Value {
    if request.contains("continue=next") {
        json!({"apiVersion": list[0], "kind": list[1], "metadata": {}, "items": items})
    } else {
        json!({"apiVersion": list[0], "kind": list[1], "metadata": {"continue": "next"}, "items": []})
    }
}

fn not_found() -> (u16, Body) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "reason": "NotFound", "code": 404, "message": "", "details": {"name": "a"}});
    (404, Body::from(status.to_string()))
}

/// The election state of a process beside these Deployments and a shard's Lease with this holder.
async fn standing(deployments: Value, holder: &'static str) -> ElectionState {
    let cluster = answering(move |(request, _)| {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": SHARD, "namespace": "flux-system"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
        });
        let answer = match request.as_str() {
            it if it.contains("/deployments?") && it.contains("part-of%3Dflux") => {
                second_page(it, &json!(["apps/v1", "DeploymentList"]), &deployments)
            }
            it if it.contains("/leases?") => second_page(
                it,
                &json!(["meta.k8s.io/v1", "PartialObjectMetadataList"]),
                &json!([{"metadata": {"name": SHARD}}, {"metadata": {"name": "windlass-leader-election"}}]),
            ),
            it if it.ends_with(SHARD) => lease,
            _ => return not_found(),
        };
        (200, Body::from(answer.to_string()))
    })
    .await;
    cluster.candidate(terms(), "").unwrap().stand().await.unwrap()
}

#[tokio::test]
async fn a_shard_of_flux_excludes_like_its_controller() {
    let flux = json!({"app.kubernetes.io/part-of": "flux"});
    for (name, labels) in [
        ("kustomize-controller", flux.clone()),
        ("kustomize-controller-shard1", flux.clone()),
        ("team-a", json!({COMPONENT: "helm-controller"})),
    ] {
        let found = standing(json!([deployment(name, &labels, 1)]), "").await;
        let text = format!("Deployment flux-system/{name} has 1 replica(s)");
        assert_eq!(found, ElectionState::Excluded(text));
        let found = standing(json!([deployment(name, &labels, 0)]), "").await;
        assert_eq!(found, ElectionState::Leading, "{name}");
    }
    // Programs that are installed beside Flux, and windlass itself, work on other objects.
    for name in ["team-controller", "windlass-controller"] {
        let found = standing(json!([deployment(name, &flux, 1)]), "").await;
        assert_eq!(found, ElectionState::Leading, "{name}");
    }
}

#[tokio::test]
async fn the_lease_of_a_shard_that_is_held_excludes() {
    let found = standing(json!([]), "kustomize-controller-0_a").await;
    let text = format!("Lease flux-system/{SHARD} is held by 'kustomize-controller-0_a'");
    assert_eq!(found, ElectionState::Excluded(text));
}

#[tokio::test]
async fn a_standby_learns_the_storage_of_the_leader_from_the_lease() {
    let cluster = answering(|(request, _)| {
        if !request.ends_with("/windlass-leader-election") {
            return not_found();
        }
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "windlass-leader-election", "namespace": "flux-system", "annotations": {
                "windlass.dev/storage-address": "windlass-1 windlass-1.svc:9090"}},
            "spec": {"holderIdentity": "windlass-1", "leaseDurationSeconds": 15},
        });
        (200, Body::from(lease.to_string()))
    })
    .await;
    let election = terms().flux.unwrap();
    let own = ElectionSettings { name: "windlass-leader-election".to_owned(), ..election };
    let terms = RequiredLeaseElections { own: Some(own), flux: None, replaced: Vec::new() };
    let mut candidate = cluster.candidate(terms, "windlass-0.svc:9090").unwrap();
    assert_eq!(cluster.leadership.leader_storage(), None);
    assert_eq!(candidate.stand().await.unwrap(), ElectionState::Standby);
    assert_eq!(cluster.leadership.leader_storage().as_deref(), Some("windlass-1.svc:9090"));
}

#[test]
fn the_controller_of_a_lease_is_known_by_its_prefix() {
    let of = |name: &str| controller_of_lease(name, &REPLACED_CONTROLLERS);
    assert_eq!(of("source-controller-leader-election"), Some("source-controller"));
    assert_eq!(of(SHARD), Some("kustomize-controller"));
    assert_eq!(of("source-watcher-leader-election"), Some("source-watcher"));
    assert_eq!(
        of("image-automation-controller-leader-election"),
        Some("image-automation-controller")
    );
    assert_eq!(of("team-controller-leader-election"), None);
    assert_eq!(of("windlass-leader-election"), None);
}
