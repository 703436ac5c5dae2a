//! Health beyond the recorded answers of the Go libraries, which `cargo xtask conformance` replays.

use super::*;
use serde_json::{Value, json};

fn now() -> Time {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

#[test]
fn a_pod_may_wait_fifteen_seconds_for_a_node() {
    let pod = Object::new(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "creationTimestamp": "2026-06-01T00:00:00Z"},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}))
    .unwrap();
    let after = |seconds| compute(&pod, now() + Duration::from_secs(seconds)).unwrap().status;
    assert_eq!(
        (after(14), after(15), after(16)),
        (HealthStatus::InProgress, HealthStatus::Failed, HealthStatus::Failed)
    );
}

#[test]
fn pods_of_another_namespace_do_not_count() {
    let set = Object::new(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "r", "namespace": "a"}, "spec": {"selector": {"matchExpressions": [
            {"key": "app", "operator": "In", "values": ["x", "y"]}, {"key": "old", "operator": "DoesNotExist"}]}}}))
    .unwrap();
    let pod = |namespace: &str, labels: Value| {
        Object::new(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": namespace, "labels": labels},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}))
        .unwrap()
    };
    let status = |pod| read(&set, &[pod], now()).status;
    assert_eq!(status(pod("a", json!({"app": "y"}))), HealthStatus::Failed);
    assert_eq!(status(pod("b", json!({"app": "y"}))), HealthStatus::InProgress);
    assert_eq!(status(pod("a", json!({"app": "y", "old": ""}))), HealthStatus::InProgress);
    assert_eq!(status(pod("a", json!({"app": "z"}))), HealthStatus::InProgress);
}

#[test]
fn only_what_changes_the_answer_is_listed() {
    let related = |api: &str, kind: &str| related_kinds(&Gvk::new(api, kind)).map(|gvk| gvk.kind);
    assert_eq!(related("apps/v1", "StatefulSet").as_deref(), Some("Pod"));
    assert_eq!(related("apps/v1", "ReplicaSet").as_deref(), Some("Pod"));
    assert_eq!(related("apps/v1", "Deployment"), None);
    assert_eq!(related("extensions/v1beta1", "ReplicaSet"), None);
}

#[test]
fn a_list_by_the_selector_has_the_pods_that_count_and_no_others() {
    let selector = |kind: &str, selector: Value| {
        let object = Object::new(json!({"apiVersion": "apps/v1", "kind": kind,
            "metadata": {"name": "r", "namespace": "a"}, "spec": {"selector": selector}}));
        related_selector(&object.unwrap())
    };
    let labels = json!({"matchLabels": {"app": "x"}});
    assert_eq!(selector("StatefulSet", labels.clone()).as_deref(), Some("app in (x)"));
    let expressions = json!({"matchLabels": {"app": "x"}, "matchExpressions": [
        {"key": "tier", "operator": "In", "values": ["a", "b"]},
        {"key": "zone", "operator": "NotIn", "values": ["c"]},
        {"key": "new", "operator": "Exists"}, {"key": "old", "operator": "DoesNotExist"}]});
    let expected = "app in (x),tier in (a,b),zone notin (c),new,!old";
    assert_eq!(selector("ReplicaSet", expressions).as_deref(), Some(expected));
    assert_eq!(selector("ReplicaSet", json!({"matchExpressions": "?"})), None);
    assert_eq!(selector("Deployment", labels), None, "its Pods do not count");
}

#[test]
fn the_default_of_an_observed_generation_is_not_shown_as_a_number() {
    let of = |observed: i64| {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": "w", "generation": 2}, "status": {"observedGeneration": observed}});
        compute(&Object::new(object).unwrap(), now()).unwrap().words().to_owned()
    };
    assert_eq!(of(-1), "it has not been reconciled yet");
    assert_eq!(of(1), "Widget generation is 2, but latest observed generation is 1");
}
