//! Health against the recorded answers of the Go libraries, and what those do not cover.

use super::*;
use crate::recorded;
use serde_json::{Value, json};

/// A moment after every recorded Pod that is old, and before the one that is young.
fn now() -> Time {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

fn told(report: &Report, with_conditions: bool) -> Value {
    let mut told = json!({"status": report.status.to_string(), "message": report.message});
    if let Health::Unknown(error) = &report.status {
        told["error"] = error.as_str().into();
    }
    if with_conditions {
        let says = report.conditions.iter().map(|c| {
            let mut one = json!({"type": c.kind, "status": "True"});
            for (field, text) in [("reason", &c.reason), ("message", &c.message)] {
                if !text.is_empty() {
                    one[field] = text.as_str().into();
                }
            }
            one
        });
        told["conditions"] = says.collect();
    }
    told
}

#[test]
fn every_recorded_answer_is_given_again() {
    let mut wrong = Vec::new();
    let mut judged = 0;
    for case in recorded::cases(recorded::KSTATUS) {
        judged += 1;
        let object = Object::new(case["object"].clone()).unwrap();
        let related: Vec<_> = case["related"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|o| Object::new(o.clone()).unwrap())
            .collect();
        let answer = match case["reader"].as_str().unwrap() {
            "compute" => compute(&object, now()).map(|r| told(&r, true)).map_err(|e| e.to_string()),
            "job" => Ok(told(&job(&object), false)),
            "default" => Ok(told(&read(&object, &related, now()), false)),
            other => panic!("no reader {other}"),
        };
        let right = match &answer {
            Ok(out) => case.get("out") == Some(out),
            // Go's library panics where an error is due.
            Err(_) if case.get("panic").is_some() => true,
            Err(text) => case["err"] == text.as_str(),
        };
        if !right {
            wrong.push(format!("{}: {answer:?}", case["name"]));
        }
    }
    assert_eq!((judged, wrong.join("\n")), (229, String::new()));
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
        (Health::InProgress, Health::Failed, Health::Failed)
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
    assert_eq!(status(pod("a", json!({"app": "y"}))), Health::Failed);
    assert_eq!(status(pod("b", json!({"app": "y"}))), Health::InProgress);
    assert_eq!(status(pod("a", json!({"app": "y", "old": ""}))), Health::InProgress);
    assert_eq!(status(pod("a", json!({"app": "z"}))), Health::InProgress);
}

#[test]
fn only_what_changes_the_answer_is_listed() {
    let related = |api: &str, kind: &str| related_kinds(&Gvk::new(api, kind)).map(|gvk| gvk.kind);
    assert_eq!(related("apps/v1", "StatefulSet").as_deref(), Some("Pod"));
    assert_eq!(related("apps/v1", "ReplicaSet").as_deref(), Some("Pod"));
    assert_eq!(related("apps/v1", "Deployment"), None);
    assert_eq!(related("extensions/v1beta1", "ReplicaSet"), None);
}
