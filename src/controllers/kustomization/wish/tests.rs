//! Every field of the spec is either used or refused by its name.

use serde_json::{Value, json};

use super::*;

fn spec(more: &Value) -> KustomizationSpec {
    let mut spec = json!({"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "r"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

/// A value for every field of the schema that has no support.
fn refused_fields() -> Vec<(&'static str, Value)> {
    vec![
        ("decryption", json!({"provider": "sops"})),
        ("namePrefix", json!("x-")),
        ("nameSuffix", json!("-x")),
        ("patches", json!([{"patch": "x"}])),
        ("images", json!([{"name": "x"}])),
        ("buildMetadata", json!(["originAnnotations"])),
        ("components", json!(["x"])),
        ("ignoreMissingComponents", json!(true)),
    ]
}

/// Fields of the schema that are used.
const USED: [&str; 19] = [
    "commonMetadata",
    "dependsOn",
    "interval",
    "retryInterval",
    "path",
    "postBuild",
    "prune",
    "deletionPolicy",
    "healthChecks",
    "healthCheckExprs",
    "ignore",
    "kubeConfig",
    "serviceAccountName",
    "sourceRef",
    "suspend",
    "targetNamespace",
    "timeout",
    "force",
    "wait",
];

#[test]
fn every_field_without_support_is_refused_by_its_name() {
    for (field, value) in refused_fields() {
        let rest = check(&spec(&json!({field: value}))).unwrap_err();
        assert!(matches!(rest, Rest::Stalled(..)), "{field}");
        assert!(
            rest.text().starts_with(&format!("spec.{field} is not supported")),
            "{}",
            rest.text()
        );
    }
    let other_kind =
        check(&spec(&json!({"sourceRef": {"kind": "Bucket", "name": "b"}}))).unwrap_err();
    assert!(other_kind.text().starts_with("spec.sourceRef.kind is"));
    let expression = json!({"dependsOn": [{"name": "a", "readyExpr": "dep.x"}]});
    let rest = check(&spec(&expression)).unwrap_err();
    assert_eq!(
        rest.text(),
        "Reconciliation failed terminally due to configuration error: terminal error: failed to evaluate dependency a: CEL expression output type mismatch: expected bool, got dyn"
    );
}

#[test]
fn every_field_of_the_schema_is_either_used_or_refused() {
    let definitions = crds::all();
    let (_, definition) =
        definitions.iter().find(|(_, d)| d.spec.names.kind == "Kustomization").unwrap();
    let value = serde_json::to_value(definition).unwrap();
    let fields = value
        .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties")
        .unwrap();
    let refused = refused_fields();
    let forgotten: Vec<&String> = fields
        .as_object()
        .unwrap()
        .keys()
        .filter(|f| !USED.contains(&f.as_str()) && !refused.iter().any(|(r, _)| r == f))
        .collect();
    assert_eq!(forgotten, Vec::<&String>::new());
}

#[test]
fn a_target_namespace_goes_where_kustomize_puts_it() {
    let dressed = |value: Value| {
        let mut object = Object::new(value).unwrap();
        into_namespace(&mut object, "t");
        object.into_value()
    };
    let config = dressed(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}),
    );
    assert_eq!(config["metadata"]["namespace"], "t");
    let namespace =
        dressed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}));
    assert_eq!(namespace["metadata"], json!({"name": "t"}));
    let binding = dressed(
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "a"}, "subjects": [{"kind": "ServiceAccount", "name": "default"}, {"name": "x"}]}),
    );
    assert_eq!(binding["subjects"][0]["namespace"], "t");
    assert_eq!(binding["subjects"][1], json!({"name": "x"}));
    assert_eq!(binding["metadata"], json!({"name": "a"}));
}

#[test]
fn a_timeout_is_the_interval_less_half_a_minute_unless_given() {
    assert_eq!(check(&spec(&json!({}))).unwrap().timeout, Duration::from_secs(570));
    assert_eq!(check(&spec(&json!({"timeout": "45s"}))).unwrap().timeout, Duration::from_secs(45));
    assert_eq!(check(&spec(&json!({"timeout": "5s"}))).unwrap().timeout, Duration::from_secs(30));
    assert_eq!(
        check(&spec(&json!({"retryInterval": "1m"}))).unwrap().retry,
        Duration::from_secs(60)
    );
}
