//! The values of a spec, given the ConfigMaps and Secrets that exist. The merge itself is checked against recorded
//! answers (`cargo xtask conformance`).

use kube_core::Status;
use serde_json::{Value as Json, json};

use super::*;

fn spec(more: &Json) -> HelmReleaseSpec {
    let mut spec = json!({"interval": "10m", "chartRef": {"kind": "HelmChart", "name": "c"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

fn there(kind: ConfigKind, name: &str, data: &[(&str, &str)]) -> ValuesFromObjects {
    let data = data.iter().map(|(key, text)| ((*key).to_owned(), text.as_bytes().to_vec()));
    ValuesFromObjects::from([((kind, name.to_owned()), Ok(Some(data.collect())))])
}

fn composed(more: &Json, objects: &ValuesFromObjects) -> Result<Json, String> {
    let values = compose("shop", &spec(more), objects).map_err(|outcome| {
        assert_eq!(outcome.reason().as_str(), "ValuesError");
        assert!(matches!(outcome, RunOutcome::Failed(..)), "{outcome:?}");
        outcome.text().to_owned()
    })?;
    assert_eq!(values.digest, helm::values::digest(&values.map).unwrap());
    Ok(helm::values::to_json(&values.map).unwrap())
}

#[test]
fn a_spec_without_values_has_the_digest_of_nothing() {
    let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for more in [json!({}), json!({"values": {}}), json!({"values": ["no", "table"]})] {
        let values = compose("shop", &spec(&more), &ValuesFromObjects::new()).unwrap();
        assert_eq!(values.digest, empty, "{more}");
        assert!(values.map.is_empty());
    }
}

#[test]
fn later_references_count_more_and_the_spec_most() {
    let mut objects = there(ConfigKind::ConfigMap, "base", &[("values.yaml", "a: 1\nb: 1\nc: 1")]);
    objects.append(&mut there(ConfigKind::Secret, "more", &[("prod.yaml", "b: 2\nc: 2")]));
    let more = json!({
        "values": {"c": 3},
        "valuesFrom": [
            {"kind": "ConfigMap", "name": "base"},
            {"kind": "Secret", "name": "more", "valuesKey": "prod.yaml"},
        ],
    });
    assert_eq!(composed(&more, &objects).unwrap(), json!({"a": 1, "b": 2, "c": 3}));
}

#[test]
fn a_value_is_put_at_its_target_path_as_set_reads_it_or_as_it_is() {
    let objects = there(ConfigKind::Secret, "s", &[("x", "a,b=c"), ("n", "5")]);
    let at = |key: &str, literal: bool| {
        let from = json!([{"kind": "Secret", "name": "s", "valuesKey": key, "targetPath": "app.x",
            "literal": literal}]);
        composed(&json!({ "valuesFrom": from }), &objects).unwrap()
    };
    assert_eq!(at("x", true), json!({"app": {"x": "a,b=c"}}));
    assert_eq!(at("x", false), json!({"app": {"x": "a"}, "b": "c"}));
    assert_eq!(at("n", false), json!({"app": {"x": 5}}));
    assert_eq!(at("n", true), json!({"app": {"x": "5"}}));
}

#[test]
fn what_is_missing_is_named_unless_it_is_optional() {
    let objects = there(ConfigKind::ConfigMap, "base", &[("other.yaml", "a: 1")]);
    let from = |kind: &str, name: &str, optional: bool| {
        let from = json!([{"kind": kind, "name": name, "optional": optional}]);
        composed(&json!({"valuesFrom": from, "values": {"b": 1}}), &objects)
    };
    let advice = "; create it, or set `optional: true` in spec.valuesFrom";
    let absent = "could not resolve Secret chart values reference 'shop/gone' with key 'values.yaml': secrets \"gone\" \
                  not found";
    assert_eq!(from("Secret", "gone", false).unwrap_err(), format!("{absent}{advice}"));
    let no_key = "could not resolve ConfigMap chart values reference 'shop/base' with key 'values.yaml': key not found";
    assert_eq!(from("ConfigMap", "base", false).unwrap_err(), format!("{no_key}{advice}"));
    assert_eq!(from("Secret", "gone", true).unwrap(), json!({"b": 1}));
    assert_eq!(from("ConfigMap", "base", true).unwrap(), json!({"b": 1}));
}

#[test]
fn an_object_that_cannot_be_read_fails_also_where_it_is_optional() {
    let refusal =
        Status { message: "secrets \"s\" is forbidden".to_owned(), code: 403, ..Status::default() };
    let refused = Err(ClusterError::Refused(Box::new(refusal)));
    let objects = ValuesFromObjects::from([((ConfigKind::Secret, "s".to_owned()), refused)]);
    let from = json!([{"kind": "Secret", "name": "s", "optional": true}]);
    assert_eq!(
        composed(&json!({ "valuesFrom": from }), &objects).unwrap_err(),
        "could not read Secret 'shop/s' for spec.valuesFrom: secrets \"s\" is forbidden"
    );
}

#[test]
fn no_error_shows_what_a_secret_holds() {
    let error_of = |text: &str, path: Option<&str>| {
        let objects = there(ConfigKind::Secret, "s", &[("k", text)]);
        let from = json!([{"kind": "Secret", "name": "s", "valuesKey": "k", "targetPath": path}]);
        let error = composed(&json!({ "valuesFrom": from }), &objects).unwrap_err();
        let start = "could not resolve Secret chart values reference 'shop/s' with key 'k': ";
        let problem = error.strip_prefix(start).unwrap().to_owned();
        assert!(!problem.contains("hunter2"), "{problem}");
        problem
    };
    for text in ["a: *hunter2", "hunter2: [}", "a: hunter2: b"] {
        assert_eq!(error_of(text, None), "it is not valid YAML at line 1", "{text}");
    }
    for text in ["- hunter2", "hunter2"] {
        assert!(error_of(text, None).contains("cannot unmarshal"), "{text}");
    }
    for text in ["x,hunter2", "x,a.b.c=hunter2", "x,a[99999999]=hunter2"] {
        assert!(error_of(text, Some("a.b")).starts_with("its value cannot be set at"), "{text}");
    }
}

#[test]
fn a_config_map_that_is_no_yaml_is_reported_as_flux_does() {
    let objects = there(ConfigKind::ConfigMap, "c", &[("values.yaml", "a: *gone")]);
    let from = json!([{"kind": "ConfigMap", "name": "c"}]);
    let error = composed(&json!({ "valuesFrom": from }), &objects).unwrap_err();
    let start = "could not resolve ConfigMap chart values reference 'shop/c' with key 'values.yaml': error \
                 converting YAML to JSON: yaml: ";
    assert!(error.starts_with(start) && error.contains("gone"), "{error}");
}
