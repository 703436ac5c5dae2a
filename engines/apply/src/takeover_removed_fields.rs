//! Predicts the fields that an apply removes after a take-over. Other tools had set these fields, and no manager
//! applies them any more.
//!
//! Here: the prediction from a dry-run without the take-over, because the API server cannot try both together.
//! Elsewhere: the take-over ([`crate::take_over`]).

use objects::Object;
use serde_json::{Map, Value};

use crate::field_takeover::{entries_after, is_apply_of, removes};
use crate::managed_fields_path::ManagedFieldsPathElement;

/// The object after the patch `taken` of a take-over and the apply that follows it. `dry` is the result of a dry-run of
/// the apply alone. `None` if the result is not an object.
///
/// A field is removed if windlass took it over, and neither the manifest nor another manager has it (source: `prune` of
/// structured-merge-diff's updater). Defaults that the API server sets after that are not known here.
pub fn after_take_over(taken: &Value, dry: &Object, manager: &str) -> Option<Object> {
    let mut after = dry.clone();
    for map in ["annotations", "labels"] {
        if let Some(entries) = after.metadata_mut().get_mut(map).and_then(Value::as_object_mut) {
            entries.retain(|key, _| !removes(taken, map, key));
        }
    }
    let entries = entries_after(taken);
    let fields = |entry: &Value| entry.get("fieldsV1").and_then(Value::as_object).cloned();
    let (ours, others): (Vec<&Value>, Vec<&Value>) =
        entries.iter().partition(|entry| is_apply_of(entry, manager));
    let before = ours.first().copied().and_then(fields).unwrap_or_default();
    let dry_entries = dry.meta("managedFields").and_then(Value::as_array);
    let now = dry_entries.into_iter().flatten().find(|entry| is_apply_of(entry, manager));
    let now = now.and_then(fields).unwrap_or_default();
    let others: Vec<Map<String, Value>> = others.into_iter().filter_map(fields).collect();
    let keepers: Vec<&Map<String, Value>> = others.iter().chain([&now]).collect();
    let mut value = after.into_value();
    prune(&mut value, &before, &keepers);
    Object::new(value).ok()
}

/// Removes the fields of `set` that no set of `keepers` has. The sets were read as JSON, whose depth is limited, so the
/// recursion is, too.
fn prune(value: &mut Value, set: &Map<String, Value>, keepers: &[&Map<String, Value>]) {
    for (key, below) in set.iter().filter(|(key, _)| key.as_str() != ".") {
        let kept: Vec<&Map<String, Value>> =
            keepers.iter().filter_map(|it| it.get(key)?.as_object()).collect();
        // A manager of a path owns everything below it.
        if kept.iter().any(|it| it.is_empty()) {
            continue;
        }
        if kept.is_empty() {
            remove(value, key);
        } else if let (Some(child), Some(below)) = (child(value, key), below.as_object()) {
            prune(child, below, &kept);
        }
    }
}

fn child<'v>(value: &'v mut Value, key: &str) -> Option<&'v mut Value> {
    match ManagedFieldsPathElement::of(value, key)? {
        ManagedFieldsPathElement::Field(name) => value.get_mut(name),
        ManagedFieldsPathElement::Item(at) => value.get_mut(at),
    }
}

fn remove(value: &mut Value, key: &str) {
    match (ManagedFieldsPathElement::of(value, key), value) {
        (Some(ManagedFieldsPathElement::Field(name)), Value::Object(fields)) => {
            fields.remove(name);
        }
        (Some(ManagedFieldsPathElement::Item(at)), Value::Array(items)) if at < items.len() => {
            items.remove(at);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OURS: &str = "kustomize-controller";

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "fieldsV1": fields})
    }

    fn object(data: Value, managed: Value) -> Object {
        Object::new(json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "managedFields": managed}, "data": data}))
        .unwrap()
    }

    /// The data that kubectl wrote, after a manifest of ours with `says` was applied.
    fn after(data: Value, wrote: Value, says: Value, other: Value) -> Value {
        let wrote = entry("kubectl-create", "Update", json!({"f:data": wrote}));
        let other = entry("hpa", "Update", json!({"f:data": other}));
        let live = object(data.clone(), json!([wrote, other]));
        let says = entry(OURS, "Apply", json!({"f:data": says}));
        let dry = object(data, json!([wrote, other, says]));
        let taken = crate::take_over(&live, OURS, &[]).unwrap();
        let after = after_take_over(&taken, &dry, OURS).unwrap();
        let annotations = after.meta("annotations").unwrap();
        assert_eq!(*annotations, json!({}), "the annotation of kubectl goes");
        after.get("data").cloned().unwrap_or_default()
    }

    #[test]
    fn fields_go_that_no_manager_applies_any_more() {
        let data = json!({"a": "1", "b": "2", "c": "3", "d": "4"});
        let wrote = json!({".": {}, "f:a": {}, "f:b": {}, "f:c": {}});
        let expected = json!({"a": "1", "c": "3", "d": "4"});
        assert_eq!(after(data, wrote, json!({"f:a": {}}), json!({"f:c": {}})), expected);
    }

    #[test]
    fn items_of_lists_go_by_their_keys() {
        let data = json!({"ports": [{"port": 80, "protocol": "TCP"}, {"port": 81, "name": "x"}],
            "finalizers": ["a", "b"]});
        let port = |number: u16| format!("k:{{\"port\":{number}}}");
        let wrote = json!({"f:ports": {port(80): {".": {}, "f:port": {}},
            port(81): {".": {}, "f:port": {}, "f:name": {}}},
            "f:finalizers": {"v:\"a\"": {}, "v:\"b\"": {}}});
        let says = json!({"f:ports": {port(81): {".": {}, "f:port": {}}},
            "f:finalizers": {"v:\"b\"": {}}});
        let expected = json!({"ports": [{"port": 81}], "finalizers": ["b"]});
        assert_eq!(after(data, wrote, says, json!({"f:other": {}})), expected);
    }

    #[test]
    fn a_field_that_is_said_as_a_whole_stays_as_a_whole() {
        let data = json!({"spec": {"a": 1, "b": 2}});
        let wrote = json!({"f:spec": {"f:a": {}, "f:b": {}}});
        let other = json!({"f:other": {}});
        assert_eq!(after(data.clone(), wrote, json!({"f:spec": {}}), other), data);
    }
}
