//! Readiness as Helm 3 defines it (`waitStrategy: legacy`). A few kinds have a rule. An object of any other kind is
//! ready once it exists.
//!
//! Source of the semantics: Helm 4.2 `pkg/kube/ready.go`. Elsewhere: the rules for all kinds ([`crate::health`]).

use objects::Object;
use serde_json::Value;

use crate::health::{self, HealthStatus, ObjectHealth};

fn number(object: &Object, path: [&str; 2]) -> i64 {
    let value = object.get(path[0]).and_then(|it| it.get(path[1]));
    value.and_then(Value::as_i64).unwrap_or_default()
}

fn text<'o>(object: &'o Object, path: [&str; 2]) -> &'o str {
    let value = object.get(path[0]).and_then(|it| it.get(path[1]));
    value.and_then(Value::as_str).unwrap_or_default()
}

/// The number of replicas in the spec. It is one if the spec has none.
fn replicas(object: &Object) -> i64 {
    let value = object.get("spec").and_then(|it| it.get("replicas"));
    value.and_then(Value::as_i64).unwrap_or(1)
}

fn is_true(object: &Object, kind: &str) -> bool {
    let conditions = object.get("status").and_then(|it| it.get("conditions"));
    let conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == kind && it["status"] == "True")
}

fn is_observed(object: &Object) -> bool {
    number(object, ["status", "observedGeneration"]) >= object.generation()
}

/// Reads a number, or a percentage of `of`, as rollouts have them. `is_up` says whether a fraction is rounded up.
fn share(value: Option<&Value>, of: i64, is_up: bool) -> i64 {
    match value {
        Some(Value::Number(count)) => count.as_i64().unwrap_or_default(),
        Some(Value::String(share)) => {
            let percent: i64 = share.trim_end_matches('%').parse().unwrap_or_default();
            (percent.saturating_mul(of).saturating_add(if is_up { 99 } else { 0 })) / 100
        }
        _ => 0,
    }
}

/// How many Pods of a Deployment may be missing during a rollout. It is one if the rollout could not progress
/// otherwise.
fn may_miss(object: &Object, of: i64) -> i64 {
    let rolling = object.get("spec").and_then(|it| it.get("strategy")?.get("rollingUpdate"));
    let Some(rolling) = rolling.filter(|it| it.is_object() && of > 0) else { return 0 };
    let surge = share(rolling.get("maxSurge"), of, true);
    match share(rolling.get("maxUnavailable"), of, false) {
        0 if surge == 0 => 1,
        missing => missing.min(of),
    }
}

/// The readiness of an object. `jobs` says whether a Job is ready only once it has ended.
pub fn report(object: &Object, jobs: bool) -> ObjectHealth {
    let is_ready = match (object.api_version(), object.kind()) {
        ("batch/v1", "Job") if jobs => return health::job(object),
        ("v1", "Pod") => is_true(object, "Ready"),
        ("apps/v1", "Deployment") => is_deployed(object),
        ("apps/v1", "DaemonSet") => is_spread(object),
        ("apps/v1", "StatefulSet") => is_stateful_ready(object),
        ("v1", "ReplicationController") | ("apps/v1", "ReplicaSet") => {
            is_observed(object) && number(object, ["status", "readyReplicas"]) >= replicas(object)
        }
        ("v1", "PersistentVolumeClaim") => text(object, ["status", "phase"]) == "Bound",
        ("v1", "Service") => is_served(object),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => is_true(object, "Established"),
        _ => true,
    };
    let status = if is_ready { HealthStatus::Current } else { HealthStatus::InProgress };
    ObjectHealth { status, message: String::new(), conditions: Vec::new() }
}

/// Differs(helm 4): it reads the newest ReplicaSet; here the Deployment's own counts say how many of the newest Pods are
/// ready at least, which is exact once the former ones are gone.
fn is_deployed(object: &Object) -> bool {
    if object.get("spec").and_then(|it| it.get("paused")).and_then(Value::as_bool) == Some(true) {
        return true;
    }
    let wanted = replicas(object);
    let needed = wanted.saturating_sub(may_miss(object, wanted));
    let count = |key| number(object, ["status", key]);
    let updated = count("updatedReplicas");
    let former = count("replicas").saturating_sub(updated).max(0);
    let ready = count("readyReplicas").saturating_sub(former);
    is_observed(object) && updated >= needed && ready >= needed
}

fn is_spread(object: &Object) -> bool {
    let strategy = object.get("spec").and_then(|it| it.get("updateStrategy")?.get("type"));
    if strategy.and_then(Value::as_str) != Some("RollingUpdate") {
        return true;
    }
    let wanted = number(object, ["status", "desiredNumberScheduled"]);
    let rolling = object.get("spec").and_then(|it| it.get("updateStrategy")?.get("rollingUpdate"));
    let may_miss = share(rolling.and_then(|it| it.get("maxUnavailable")), wanted, true);
    is_observed(object)
        && number(object, ["status", "updatedNumberScheduled"]) == wanted
        && number(object, ["status", "numberReady"]) >= wanted - may_miss
}

fn is_stateful_ready(object: &Object) -> bool {
    let strategy = object.get("spec").and_then(|it| it.get("updateStrategy"));
    let kind = strategy.and_then(|it| it.get("type")).and_then(Value::as_str);
    if kind != Some("RollingUpdate") {
        return true;
    }
    let partition = strategy.and_then(|it| it.get("rollingUpdate")?.get("partition"));
    let partition = partition.and_then(Value::as_i64).unwrap_or_default();
    let wanted = replicas(object);
    let is_one =
        text(object, ["status", "currentRevision"]) == text(object, ["status", "updateRevision"]);
    is_observed(object)
        && number(object, ["status", "updatedReplicas"]) >= wanted - partition
        && number(object, ["status", "readyReplicas"]) == wanted
        && (partition != 0 || is_one)
}

fn is_served(object: &Object) -> bool {
    let kind = text(object, ["spec", "type"]);
    if kind == "ExternalName" {
        return true;
    }
    let list =
        |value: Option<&Value>| value.and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    let external = list(object.get("spec").and_then(|it| it.get("externalIPs")));
    let balanced = list(object.get("status").and_then(|it| it.get("loadBalancer")?.get("ingress")));
    !text(object, ["spec", "clusterIP"]).is_empty()
        && (kind != "LoadBalancer" || external || balanced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn is_ready(api_version: &str, kind: &str, spec: &Value, status: &Value) -> bool {
        let object = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": "a", "generation": 2}, "spec": spec, "status": status});
        report(&Object::new(object).unwrap(), false).status == HealthStatus::Current
    }

    #[test]
    fn each_kind_has_its_rule() {
        let deployment =
            |status: &Value| is_ready("apps/v1", "Deployment", &json!({"replicas": 2}), status);
        let done = json!({"observedGeneration": 2, "updatedReplicas": 2, "readyReplicas": 2});
        assert!(deployment(&done));
        assert!(!deployment(
            &json!({"observedGeneration": 1, "updatedReplicas": 2, "readyReplicas": 2})
        ));
        assert!(!deployment(
            &json!({"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 2})
        ));
        assert!(is_ready("apps/v1", "Deployment", &json!({"paused": true}), &json!({})));
        // The Pods of before do not count, nor are all new ones dispensable.
        let beside = json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "readyReplicas": 2});
        assert!(!deployment(&beside));
        let rolling = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
        let one = json!({"replicas": 1, "strategy": {"rollingUpdate": rolling}});
        let none = json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1});
        assert!(!is_ready("apps/v1", "Deployment", &one, &none));
        let fixed = json!({"maxSurge": 0, "maxUnavailable": "25%"});
        let alone = json!({"replicas": 1, "strategy": {"rollingUpdate": fixed}});
        assert!(is_ready("apps/v1", "Deployment", &alone, &none));
        let half = json!({"replicas": 4, "strategy": {"rollingUpdate": {"maxUnavailable": "25%"}}});
        let three = json!({"observedGeneration": 2, "updatedReplicas": 3, "readyReplicas": 3});
        assert!(is_ready("apps/v1", "Deployment", &half, &three));
        let set = json!({"replicas": 1, "updateStrategy": {"type": "RollingUpdate"}});
        let rolled = json!({"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 1,
            "currentRevision": "a", "updateRevision": "a"});
        assert!(is_ready("apps/v1", "StatefulSet", &set, &rolled));
        assert!(!is_ready("apps/v1", "StatefulSet", &set, &json!({"observedGeneration": 2})));
        let service = |spec: &Value| is_ready("v1", "Service", spec, &json!({}));
        assert!(service(&json!({"type": "ExternalName"})));
        assert!(service(&json!({"clusterIP": "10.0.0.1"})));
        assert!(!service(&json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1"})));
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        assert!(is_ready("v1", "Pod", &json!({}), &ready));
        assert!(!is_ready("v1", "Pod", &json!({}), &json!({})));
        assert!(!is_ready("v1", "PersistentVolumeClaim", &json!({}), &json!({"phase": "Pending"})));
        assert!(is_ready("example.com/v1", "Widget", &json!({}), &json!({})));
    }
}
