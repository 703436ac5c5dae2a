//! Removes the fields of a manifest that a server-side apply must not have, and gives the manifest the form that Flux
//! applies.
//!
//! Here: fields that would make an apply fail or cause drift forever, and the rules for ports, Secrets and metrics.
//! Below: reading and writing objects by the types of their kinds (`typed_round_trip`), quantities, and the types.
//! Elsewhere: owner labels ([`crate::owner_labels_and_apply_annotations`]).
//!
//! Source of the semantics: fluxcd/pkg/ssa 0.76 `normalize`.

mod base64;
mod builtin_type_table;
mod quantity;
mod typed_round_trip;
mod unknown_fields;

use objects::Object;
use serde_json::{Map, Value};

/// Fields of `metadata` that belong to the API server.
const SERVER_OWNED: [&str; 6] =
    ["creationTimestamp", "managedFields", "uid", "resourceVersion", "generation", "selfLink"];

/// Removes the status and the metadata of the API server, and turns a Secret's `stringData` into `data`.
///
/// A CustomResourceDefinition keeps its status, because its health is judged by it. If `stringData` has a value that is
/// not a string, it is not changed, and the API server will refuse the object.
pub fn normalize(object: &mut Object) {
    let api = object.api_version().to_owned();
    let kind = object.kind().to_ascii_lowercase();
    for field in SERVER_OWNED {
        object.metadata_mut().remove(field);
    }
    if !(kind == "customresourcedefinition" && api.starts_with("apiextensions.k8s.io/")) {
        object.fields_mut().remove("status");
    }
    if kind == "secret" && api == "v1" {
        encode_string_data(object.fields_mut());
    }
}

fn encode_string_data(secret: &mut Map<String, Value>) {
    let encoded: Option<Vec<(String, Value)>> = match secret.get("stringData") {
        Some(Value::Object(strings)) => strings
            .iter()
            .map(|(key, text)| {
                Some((key.clone(), base64::encode(text.as_str()?.as_bytes()).into()))
            })
            .collect(),
        Some(Value::Null) => Some(Vec::new()),
        _ => None,
    };
    let data_is_usable = matches!(secret.get("data"), None | Some(Value::Null | Value::Object(_)));
    let (Some(encoded), true) = (encoded, data_is_usable) else { return };
    secret.remove("stringData");
    if encoded.is_empty() {
        return;
    }
    let data = secret.entry("data").or_insert(Value::Null);
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    if let Value::Object(data) = data {
        data.extend(encoded);
    }
}

/// Gives an object the form in which Flux applies it, without the fields of the API server.
///
/// [`canonical`] leaves `metadata.creationTimestamp: null`, and this function removes it. It returns the same unknown
/// fields as [`canonical`].
pub fn typed(object: &mut Object) -> Vec<String> {
    let unknown = canonical(object.fields_mut());
    normalize(object);
    unknown
}

/// Gives an object exactly the form that Flux gives it before comparing or applying it.
///
/// An object of a built-in kind is read into its type and written again. This removes unknown and empty fields, gives
/// quantities their canonical form, and adds fields that the type always writes, such as `strategy: {}`. If an object
/// does not fit its type, only creation time and status change.
///
/// Returns the paths of removed fields that have a value but are unknown to the type, at most
/// [`unknown_fields::MAX_UNKNOWN_FIELDS`] of them.
///
/// Parity(flux): Roles and ClusterRoles of `rbac.authorization.k8s.io/v1` are not changed.
pub fn canonical(object: &mut Map<String, Value>) -> Vec<String> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let api = text("apiVersion").to_owned();
    let kind = text("kind").to_owned();
    let mut unknown = Vec::new();
    if api == "rbac.authorization.k8s.io/v1" && matches!(kind.as_str(), "Role" | "ClusterRole") {
        return unknown;
    }
    if let Some(Ok(mut written)) = typed_round_trip::round_trip(object) {
        unknown = unknown_fields::fields(object, &written);
        set_protocols(&api, &kind, &mut written);
        if api == "v1" && kind == "Secret" {
            encode_string_data(&mut written);
        }
        *object = written;
    }
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        metadata.insert("creationTimestamp".to_owned(), Value::Null);
    }
    let is_crd = kind.eq_ignore_ascii_case("customresourcedefinition")
        && api.starts_with("apiextensions.k8s.io/");
    if !is_crd {
        object.remove("status");
    }
    unknown
}

/// Sets the protocol TCP for ports that have none. Without a protocol, server-side apply mistakes two ports for one.
fn set_protocols(api: &str, kind: &str, object: &mut Map<String, Value>) {
    let lists = match (api, kind) {
        ("v1", "Service") => "/spec",
        ("v1", "Pod") => "/spec/containers",
        ("apps/v1", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch/v1", "Job") => "/spec/template/spec/containers",
        ("batch/v1", "CronJob") => "/spec/jobTemplate/spec/template/spec/containers",
        _ => return,
    };
    let mut within = Some(object);
    let mut names = lists.split('/').skip(1).peekable();
    while let Some(name) = names.next() {
        let Some(value) = within.take().and_then(|fields| fields.get_mut(name)) else { return };
        if names.peek().is_some() {
            within = value.as_object_mut();
            continue;
        }
        let owners = match value {
            Value::Array(owners) => owners.as_mut_slice(),
            owner => std::slice::from_mut(owner),
        };
        let ports = owners.iter_mut().filter_map(|owner| owner.get_mut("ports")?.as_array_mut());
        for port in ports.flatten().filter_map(Value::as_object_mut) {
            port.entry("protocol").or_insert_with(|| "TCP".into());
        }
    }
}

/// The API server answered with an object that does not fit the type of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the API server's response for {0} does not match the type of its kind")]
pub struct UntypedApiResponseError(String);

/// Corrects the answer to a dry-run where old API servers answer wrongly.
///
/// Parity(flux): of an autoscaler, metrics that are there twice and metrics without a type are taken out, and the object
/// is written by its type; other kinds are not changed.
///
/// # Errors
/// The autoscaler in the answer does not fit its type.
pub fn dry_run_answer(object: &mut Map<String, Value>) -> Result<(), UntypedApiResponseError> {
    if object.get("kind").and_then(Value::as_str) != Some("HorizontalPodAutoscaler") {
        return Ok(());
    }
    let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(Ok(mut written)) = typed_round_trip::round_trip(object) else {
        return Err(UntypedApiResponseError(format!("{version} HorizontalPodAutoscaler")));
    };
    if version == "autoscaling/v2"
        && let Some(Value::Object(spec)) = written.get_mut("spec")
        && let Some(Value::Array(metrics)) = spec.remove("metrics")
    {
        let mut kept: Vec<Value> = Vec::with_capacity(metrics.len());
        for metric in metrics {
            let has_type = metric.get("type").is_some_and(|it| it.as_str() != Some(""));
            if has_type && !kept.contains(&metric) {
                kept.push(metric);
            }
        }
        if !kept.is_empty() {
            spec.insert("metrics".to_owned(), kept.into());
        }
    }
    *object = written;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(object: Value, want: Value) {
        let mut object = Object::new(object).unwrap();
        normalize(&mut object);
        assert_eq!(object.into_value(), want);
    }

    #[test]
    fn string_data_of_a_secret_wins_over_data() {
        let meta = json!({"name": "s"});
        check(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"a": "new", "b": "é"}, "data": {"a": "b2xk", "c": "eA=="}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"a": "bmV3", "b": "w6k=", "c": "eA=="}}),
        );
        let odd =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"a": 5}});
        check(odd.clone(), odd);
    }

    #[test]
    fn what_the_server_owns_is_removed_except_the_status_of_a_definition() {
        let meta = json!({"name": "x", "uid": "u", "generation": 2, "creationTimestamp": null, "managedFields": []});
        check(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "status": {"replicas": 1}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}),
        );
        check(
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "status": {}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"}, "status": {}}),
        );
    }

    fn canonical_of(object: Value) -> Value {
        let mut object = object.as_object().unwrap().clone();
        canonical(&mut object);
        object.into()
    }

    #[test]
    fn a_built_in_kind_gets_the_form_of_its_type() {
        let ports = json!([{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}]);
        let resources = json!({"limits": {"cpu": 0.5, "memory": "0.5Gi"}});
        let template = json!({"spec": {"containers": [{"name": "a", "ports": ports, "resources": resources, "unknown": 1}]}});
        let got = canonical_of(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "labels": {}},
            "spec": {"replicas": 0, "paused": false, "template": template}, "status": {"replicas": 2},
        }));
        // Answer of fluxcd/pkg/ssa 0.76.1.
        let want = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "creationTimestamp": null},
            "spec": {"replicas": 0, "selector": null, "strategy": {}, "template": {"metadata": {}, "spec": {"containers": [{
                "name": "a",
                "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}],
                "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}},
            }]}}},
        });
        assert_eq!(got, want);
    }

    #[test]
    fn what_does_not_fit_its_type_stays_but_for_status_and_creation_time() {
        let odd = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"ports": [{"port": "80"}]}});
        let mut want = odd.clone();
        want["metadata"]["creationTimestamp"] = Value::Null;
        let mut given = odd;
        given["status"] = json!({"a": 1});
        assert_eq!(canonical_of(given), want);
        let custom = json!({"apiVersion": "acme.io/v1", "kind": "W", "metadata": {"name": "x", "creationTimestamp": null}, "spec": {"a": null, "b": []}});
        assert_eq!(canonical_of(custom.clone()), custom);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "extra": 1, "status": {}});
        assert_eq!(canonical_of(role.clone()), role);
    }

    #[test]
    fn the_form_for_an_apply_has_nothing_of_the_servers() {
        let mut object = Object::new(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "uid": "u"},
            "data": {"a": "aGk=\n"}, "stringData": {"b": "hi"},
        }))
        .unwrap();
        typed(&mut object);
        let want = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "aGk=", "b": "aGk="}});
        assert_eq!(object.into_value(), want);
    }
}
