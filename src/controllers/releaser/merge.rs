//! Objects merged by us rather than by the server, for releases that are applied as Helm 3 does it.
//!
//! Three objects are merged: what the revision before said, what this one says, and what is there. What was said before
//! and is not said any more goes; what is said is written; what others added stays.
//!
//! Source of the semantics: apimachinery `strategicpatch.CreateThreeWayMergePatch`. Lists whose items have a key in
//! Kubernetes' schemas are merged by it; others are replaced. Differs(helm 4): the result is sent as a merge patch
//! (RFC 7386) of what differs from the live object, whatever its kind.

use objects::Object;
use serde_json::{Map, Value};

/// The field by which items of a list are known, by the list's own field: those of Kubernetes' built-in kinds.
///
/// The last one that all items have is taken.
const KEYS: [(&str, &[&str]); 12] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("volumes", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("env", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("ports", &["containerPort", "port"]),
    ("hostAliases", &["ip"]),
    ("ownerReferences", &["uid"]),
    ("conditions", &["type"]),
];

/// The patch that brings a live object to what is wanted; `None` if it is that.
pub(crate) fn patch(original: Option<&Object>, wanted: &Object, live: &Object) -> Option<Value> {
    let empty = Map::new();
    let original = original.map_or(&empty, Object::fields);
    let is_built_in = !wanted.gvk().group.contains('.') || wanted.gvk().group.ends_with(".k8s.io");
    let merged = merged_map(original, wanted.fields(), live.fields(), is_built_in);
    difference(live.fields(), &merged)
}

fn merged_map(
    original: &Map<String, Value>,
    wanted: &Map<String, Value>,
    live: &Map<String, Value>,
    by_key: bool,
) -> Map<String, Value> {
    let mut merged = live.clone();
    for key in original.keys().filter(|key| !wanted.contains_key(*key)) {
        merged.remove(key);
    }
    for (key, value) in wanted {
        if value.is_null() {
            merged.remove(key);
            continue;
        }
        let next = merged_value(key, original.get(key), value, live.get(key), by_key);
        merged.insert(key.clone(), next);
    }
    merged
}

// Manifests were read with a limit to their depth.
fn merged_value(
    field: &str,
    original: Option<&Value>,
    wanted: &Value,
    live: Option<&Value>,
    by_key: bool,
) -> Value {
    match (wanted, live) {
        (Value::Object(wanted), Some(Value::Object(live))) => {
            let empty = Map::new();
            let original = original.and_then(Value::as_object).unwrap_or(&empty);
            Value::Object(merged_map(original, wanted, live, by_key))
        }
        (Value::Array(wanted), Some(Value::Array(live))) if by_key => {
            let original = original.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            match key_of(field, &[original, wanted, live]) {
                Some(key) => Value::Array(merged_list(key, original, wanted, live)),
                None => Value::Array(wanted.clone()),
            }
        }
        _ => wanted.clone(),
    }
}

/// The field by which all items of these lists are known.
fn key_of(field: &str, lists: &[&[Value]]) -> Option<&'static str> {
    let keys = KEYS.iter().find(|(name, _)| *name == field)?.1;
    let all = || lists.iter().copied().flatten();
    keys.iter().find(|key| all().all(|item| item.get(**key).is_some())).copied()
}

fn merged_list(key: &str, original: &[Value], wanted: &[Value], live: &[Value]) -> Vec<Value> {
    let known = |list: &[Value], item: &Value| {
        list.iter().find(|other| other.get(key) == item.get(key)).cloned()
    };
    let mut merged: Vec<Value> = wanted
        .iter()
        .map(|item| {
            let (before, now) = (known(original, item), known(live, item));
            merged_value("", before.as_ref(), item, now.as_ref(), true)
        })
        .collect();
    let others =
        live.iter().filter(|item| known(wanted, item).is_none() && known(original, item).is_none());
    merged.extend(others.cloned());
    merged
}

/// The merge patch (RFC 7386) from one map to another; `None` if they are the same.
fn difference(from: &Map<String, Value>, to: &Map<String, Value>) -> Option<Value> {
    let mut patch = Map::new();
    for (key, value) in to {
        match (from.get(key), value) {
            (Some(before), now) if before == now => {}
            (Some(Value::Object(before)), Value::Object(now)) => {
                patch.extend(difference(before, now).map(|it| (key.clone(), it)));
            }
            (_, now) => {
                patch.insert(key.clone(), now.clone());
            }
        }
    }
    let gone = from.keys().filter(|key| !to.contains_key(*key));
    patch.extend(gone.map(|key| (key.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(spec: &Value) -> Object {
        Object::new(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web"}, "spec": spec}))
        .unwrap()
    }

    fn containers(containers: &Value) -> Value {
        json!({"template": {"spec": {"containers": containers}}})
    }

    #[test]
    fn what_others_added_stays_and_what_is_said_no_more_goes() {
        let original = deployment(&json!({"replicas": 1, "paused": true}));
        let wanted = deployment(&json!({"replicas": 2}));
        let live = deployment(&json!({"replicas": 1, "paused": true, "minReadySeconds": 5}));
        let patch = patch(Some(&original), &wanted, &live);
        assert_eq!(patch, Some(json!({"spec": {"replicas": 2, "paused": null}})));
    }

    #[test]
    fn items_with_a_key_are_merged_by_it() {
        let original = deployment(&containers(&json!([
            {"name": "a", "image": "a:1", "tty": true}, {"name": "b", "image": "b:1"}])));
        let wanted = deployment(&containers(&json!([{"name": "a", "image": "a:2"}])));
        let live = deployment(&containers(&json!([
            {"name": "a", "image": "a:1", "tty": true, "stdin": false},
            {"name": "b", "image": "b:1"}, {"name": "sidecar", "image": "s"}])));
        let expected = json!([{"name": "a", "image": "a:2", "stdin": false},
            {"name": "sidecar", "image": "s"}]);
        let patch = patch(Some(&original), &wanted, &live).unwrap();
        assert_eq!(patch["spec"]["template"]["spec"]["containers"], expected);
    }

    #[test]
    fn what_is_as_wanted_needs_no_patch() {
        let wanted = deployment(&json!({"replicas": 2}));
        let live = deployment(&json!({"replicas": 2, "minReadySeconds": 5}));
        assert_eq!(patch(Some(&wanted), &wanted, &live), None);
    }
}
