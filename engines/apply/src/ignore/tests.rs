//! Rules for fields that others may change, on one Deployment.

use serde_json::json;

use super::*;

const MANAGER: &str = "kustomize-controller";

fn deployment(spec: Value, managed: Value) -> Object {
    Object::new(json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec, "metadata": {
        "name": "web", "namespace": "shop", "labels": {"tier": "front"}, "resourceVersion": "7",
        "managedFields": managed}}))
    .unwrap()
}

fn rules(target: IgnoreTarget, paths: &[&str]) -> Rules {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    Rules::new(&[(target, paths)]).unwrap()
}

fn replicas() -> Rules {
    rules(IgnoreTarget::default(), &["/spec/replicas"])
}

#[test]
fn a_manifest_is_another_where_other_fields_are_ignored() {
    let manifest = deployment(json!({"replicas": 2}), json!([]));
    let none = Rules::default().digest(&manifest, "d");
    assert_eq!(none, "d");
    let service = IgnoreTarget { kind: "Service".to_owned(), ..IgnoreTarget::default() };
    assert_eq!(rules(service, &["/spec/replicas"]).digest(&manifest, "d"), none);
    let ignored = replicas().digest(&manifest, "d");
    assert_ne!(ignored, none);
    assert_eq!(replicas().digest(&manifest, "d"), ignored);
    assert_ne!(rules(IgnoreTarget::default(), &["/spec/paused"]).digest(&manifest, "d"), ignored);
}

#[test]
fn an_ignored_field_is_no_drift_and_every_other_one_is() {
    let live = deployment(json!({"replicas": 5, "paused": false}), json!([]));
    let same = deployment(json!({"replicas": 2, "paused": false}), json!([]));
    let other = deployment(json!({"replicas": 2, "paused": true}), json!([]));
    assert!(has_drifted(&live, &same));
    assert!(!replicas().have_drifted(&live, &same));
    assert!(replicas().have_drifted(&live, &other));
}

#[test]
fn the_live_value_is_kept_when_nobody_else_applied_it() {
    let manifest = deployment(json!({"replicas": 2, "paused": true}), json!([]));
    let managed = json!([
        {"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        {"manager": "hpa", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
    ]);
    let live = deployment(json!({"replicas": 5}), managed);
    let payload = replicas().payload(&manifest, &live, MANAGER);
    assert_eq!(payload.get("spec"), Some(&json!({"replicas": 5, "paused": true})));
}

#[test]
fn a_field_that_another_applied_is_left_to_them() {
    let manifest = deployment(json!({"replicas": 2, "paused": true}), json!([]));
    let managed = json!([
        {"manager": "scaler", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
    ]);
    let live = deployment(json!({"replicas": 5}), managed);
    let payload = replicas().payload(&manifest, &live, MANAGER);
    assert_eq!(payload.get("spec"), Some(&json!({"paused": true})));
}

#[test]
fn items_of_lists_are_found_by_their_keys_in_managed_fields() {
    let container = |cpu: &str| json!({"containers": [{"name": "web", "resources": {"cpu": cpu}}]});
    let fields = json!({"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {"f:resources": {"f:cpu": {}}}}}});
    let path = rules(IgnoreTarget::default(), &["/spec/containers/0/resources/cpu"]);
    for (manager, wanted) in [("vpa", json!({})), (MANAGER, json!({"cpu": "9"}))] {
        let managed = json!([{"manager": manager, "operation": "Apply", "fieldsV1": fields}]);
        let live = deployment(container("9"), managed);
        let payload = path.payload(&deployment(container("1"), json!([])), &live, MANAGER);
        let got = payload.get("spec").and_then(|spec| spec.pointer("/containers/0/resources"));
        assert_eq!(got, Some(&wanted), "{manager}");
    }
}

#[test]
fn a_rule_is_for_the_objects_of_its_target_alone() {
    let object = deployment(json!({}), json!([]));
    let target = |part: &str, text: &str| {
        let mut target = IgnoreTarget::default();
        let field = match part {
            "group" => &mut target.group,
            "kind" => &mut target.kind,
            "name" => &mut target.name,
            "labels" => &mut target.labels,
            "annotations" => &mut target.annotations,
            _ => &mut target.namespace,
        };
        text.clone_into(field);
        target
    };
    for (part, text, is_for) in [
        ("group", "apps", true),
        ("group", "app", false),
        ("kind", "Stateful.*|Deployment", true),
        ("kind", "Deploy", false),
        ("name", "w.b", true),
        ("namespace", "shop2?", true),
        ("namespace", "other", false),
        ("labels", "tier in (front)", true),
        ("labels", "!tier", false),
        ("annotations", "tier", false),
    ] {
        let rules = rules(target(part, text), &["/spec/replicas"]);
        assert_eq!(!rules.leave_alone(&object), is_for, "{part} {text}");
    }
}

#[test]
fn a_rule_that_cannot_be_read_is_told() {
    let told = |target: IgnoreTarget, path: &str| {
        Rules::new(&[(target, vec![path.to_owned()])]).unwrap_err().to_string()
    };
    let target = IgnoreTarget { kind: "(".into(), ..IgnoreTarget::default() };
    assert!(told(target, "/a").starts_with("target.kind is not a valid regular expression: "));
    let target = IgnoreTarget { labels: "a in".into(), ..IgnoreTarget::default() };
    assert!(told(target, "/a").starts_with("target.labelSelector: "));
    assert!(
        told(IgnoreTarget::default(), "spec.replicas")
            .contains("`spec.replicas` is not a JSON pointer")
    );
}

#[test]
fn paths_that_lead_nowhere_change_nothing() {
    let manifest = deployment(json!({"list": [1], "text": "x"}), json!([]));
    let paths =
        ["/spec/list/7", "/spec/list/x", "/spec/text/y", "/gone/y", "/spec/~0/a~1b", "/metadata/x"];
    let all = rules(IgnoreTarget::default(), &paths);
    assert_eq!(all.payload(&manifest, &deployment(json!({}), json!([])), MANAGER), manifest);
    assert!(!all.have_drifted(&manifest, &manifest));
}
