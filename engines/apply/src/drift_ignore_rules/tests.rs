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

fn rules(target: DriftIgnoreTarget, paths: &[&str]) -> DriftIgnoreRules {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    DriftIgnoreRules::new(&[(target, paths)]).unwrap()
}

fn replicas() -> DriftIgnoreRules {
    rules(DriftIgnoreTarget::default(), &["/spec/replicas"])
}

#[test]
fn a_manifest_is_another_where_other_fields_are_ignored() {
    let manifest = deployment(json!({"replicas": 2}), json!([]));
    let none = DriftIgnoreRules::default().digest(&manifest, "d");
    assert_eq!(none, "d");
    let service = DriftIgnoreTarget { kind: "Service".to_owned(), ..DriftIgnoreTarget::default() };
    assert_eq!(rules(service, &["/spec/replicas"]).digest(&manifest, "d"), none);
    let ignored = replicas().digest(&manifest, "d");
    assert_ne!(ignored, none);
    assert_eq!(replicas().digest(&manifest, "d"), ignored);
    assert_ne!(
        rules(DriftIgnoreTarget::default(), &["/spec/paused"]).digest(&manifest, "d"),
        ignored
    );
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
fn the_live_value_is_kept_when_no_other_manager_applied_it() {
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

fn edited(fields: &Value) -> Value {
    json!({"manager": "kubectl-edit", "operation": "Update", "apiVersion": "apps/v1", "fieldsV1": fields})
}

/// The entries of managed fields after a take-over; none if nothing is taken over.
fn entries_after(rules: &DriftIgnoreRules, live: &Object) -> Option<Value> {
    let manifest = deployment(json!({"replicas": 2, "paused": true}), json!([]));
    let patch = rules.take_over(&manifest, live, MANAGER, &[])?;
    Some(patch[0]["value"].clone())
}

#[test]
fn a_field_that_is_ignored_is_not_taken_over_from_kubectl() {
    let scaled = edited(&json!({"f:spec": {"f:replicas": {}}}));
    let live = deployment(json!({"replicas": 5, "paused": true}), json!([scaled]));
    assert_eq!(entries_after(&replicas(), &live), None);
    assert!(entries_after(&DriftIgnoreRules::default(), &live).is_some());
    // What else kubectl has set becomes ours, also where the manifest does not have the ignored field.
    let both = edited(&json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}));
    let ours = json!({"manager": MANAGER, "operation": "Apply", "apiVersion": "apps/v1",
        "fieldsV1": {"f:spec": {"f:paused": {}}}});
    let live = deployment(json!({"replicas": 5, "paused": true}), json!([both]));
    assert_eq!(entries_after(&replicas(), &live), Some(json!([scaled, ours])));
    let whole = edited(&json!({"f:spec": {}}));
    let live = deployment(json!({"replicas": 5}), json!([whole]));
    assert!(entries_after(&replicas(), &live).is_some(), "it is not the ignored field alone");
}

#[test]
fn ignored_items_and_annotations_are_not_taken_over_from_kubectl() {
    let container = json!({"containers": [{"name": "log"}, {"name": "web", "image": "web:2"}]});
    let image = json!({"f:containers": {"k:{\"name\":\"web\"}": {"f:image": {}}}});
    let live = deployment(container, json!([edited(&json!({"f:spec": image}))]));
    let of = |path: &str| rules(DriftIgnoreTarget::default(), &[path]);
    assert_eq!(entries_after(&of("/spec/containers/1/image"), &live), None);
    assert_eq!(entries_after(&of("/spec/containers/1"), &live), None);
    assert!(entries_after(&of("/spec/containers/0/image"), &live).is_some());
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let annotations = json!({".": {}, format!("f:{annotation}"): {}});
    let entry = edited(&json!({"f:metadata": {"f:annotations": annotations}}));
    let mut live = deployment(json!({}), json!([entry]));
    live.set_annotation(annotation, "{}");
    let pointer = format!("/metadata/annotations/{}", annotation.replace('/', "~1"));
    assert_eq!(entries_after(&of(&pointer), &live), None);
    assert!(entries_after(&of("/metadata/annotations/other"), &live).is_some());
}

#[test]
fn items_of_lists_are_found_by_their_keys_in_managed_fields() {
    let container = |cpu: &str| json!({"containers": [{"name": "web", "resources": {"cpu": cpu}}]});
    let fields = json!({"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {"f:resources": {"f:cpu": {}}}}}});
    let path = rules(DriftIgnoreTarget::default(), &["/spec/containers/0/resources/cpu"]);
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
        let mut target = DriftIgnoreTarget::default();
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
fn a_rule_that_cannot_be_read_is_reported() {
    let error_of = |target: DriftIgnoreTarget, path: &str| {
        DriftIgnoreRules::new(&[(target, vec![path.to_owned()])]).unwrap_err().to_string()
    };
    let target = DriftIgnoreTarget { kind: "(".into(), ..DriftIgnoreTarget::default() };
    assert!(error_of(target, "/a").starts_with("target.kind is not a valid regular expression: "));
    let target = DriftIgnoreTarget { labels: "a in".into(), ..DriftIgnoreTarget::default() };
    assert!(error_of(target, "/a").starts_with("target.labelSelector: "));
    assert!(
        error_of(DriftIgnoreTarget::default(), "spec.replicas")
            .contains("`spec.replicas` is not a JSON pointer")
    );
}

#[test]
fn paths_that_lead_nowhere_change_nothing() {
    let manifest = deployment(json!({"list": [1], "text": "x"}), json!([]));
    let paths =
        ["/spec/list/7", "/spec/list/x", "/spec/text/y", "/gone/y", "/spec/~0/a~1b", "/metadata/x"];
    let all = rules(DriftIgnoreTarget::default(), &paths);
    assert_eq!(all.payload(&manifest, &deployment(json!({}), json!([])), MANAGER), manifest);
    assert!(!all.have_drifted(&manifest, &manifest));
}
