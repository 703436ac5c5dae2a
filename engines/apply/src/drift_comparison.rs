//! Drift: whether applying a manifest would change the live object, judged by the answer to a dry-run.
//!
//! Here: comparing two objects, and digests of their content. Elsewhere: noticing a change without a request
//! ([`mod@crate::fingerprint`]).

use std::collections::BTreeSet;

use objects::Object;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// What a run did to an object, in the words of Flux's events.
pub use reconcile::AppliedObjectAction as Action;

/// The labels or annotations of an object. `None` if the map is missing or empty.
fn entries<'a>(object: &'a Object, field: &str) -> Option<&'a Map<String, Value>> {
    object.meta(field).and_then(Value::as_object).filter(|map| !map.is_empty())
}

/// The fields of an object that a manifest decides, without labels and annotations.
fn body(object: &Object) -> impl Iterator<Item = (&String, &Value)> {
    object.fields().iter().filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status"))
}

/// Whether applying would change the object.
///
/// Compares labels, annotations, and every top-level field except `metadata` and `status` (source: `hasDrifted` of
/// fluxcd/pkg/ssa). `dry_run` is the API server's answer, so both objects have the same defaults. If that answer has no
/// resource version, the object does not exist yet.
pub fn has_drifted(live: &Object, dry_run: &Object) -> bool {
    let exists =
        dry_run.meta("resourceVersion").and_then(Value::as_str).is_some_and(|v| !v.is_empty());
    !exists
        || ["labels", "annotations"].iter().any(|f| entries(live, f) != entries(dry_run, f))
        || !body(live).eq(body(dry_run))
}

/// Appends one key to a JSON pointer.
pub(crate) fn push_key(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Counts the fields at these JSON pointers that a dry-run adds, changes and removes, in this order.
pub fn change_counts(live: &Object, dry_run: &Object, paths: &[String]) -> [usize; 3] {
    let mut counts = [0; 3];
    let [added, changed, removed] = &mut counts;
    for path in paths {
        let side = |object: &Object| pointed(object, path).is_some_and(|it| !it.is_null());
        match (side(live), side(dry_run)) {
            (false, true) => *added += 1,
            (true, false) => *removed += 1,
            _ => *changed += 1,
        }
    }
    counts
}

/// The value in `object` at a JSON pointer (RFC 6901). `None` if the pointer leads nowhere.
fn pointed<'o>(object: &'o Object, path: &str) -> Option<&'o Value> {
    let mut keys = path.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~"));
    let first = object.get(&keys.next()?)?;
    keys.try_fold(first, |at, key| match at {
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        other => other.get(&key),
    })
}

/// The JSON pointers (RFC 6901) at which two objects differ, in document order, at most `limit` of them.
///
/// They are for logs and messages. Values are never shown, because they may be secret.
pub fn diff_paths(live: &Object, dry_run: &Object, limit: usize) -> Vec<String> {
    let null = Value::Null;
    let mut work: Vec<(String, &Value, &Value)> = Vec::new();
    let tops: BTreeSet<&String> = body(live).chain(body(dry_run)).map(|(key, _)| key).collect();
    for key in tops.into_iter().filter(|key| live.get(key) != dry_run.get(key)) {
        let a = live.get(key).unwrap_or(&null);
        let b = dry_run.get(key).unwrap_or(&null);
        work.push((push_key("", key), a, b));
    }
    for field in ["annotations", "labels"] {
        if entries(live, field) != entries(dry_run, field) {
            let side = |object| Object::meta(object, field).unwrap_or(&null);
            work.push((format!("/metadata/{field}"), side(live), side(dry_run)));
        }
    }
    work.sort_by(|a, b| b.0.cmp(&a.0));
    let mut paths = Vec::new();
    while let Some((path, a, b)) = work.pop() {
        if paths.len() == limit {
            break;
        }
        let before = work.len();
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => {
                let keys: BTreeSet<_> = a.keys().chain(b.keys()).collect();
                for key in keys.into_iter().rev().filter(|key| a.get(*key) != b.get(*key)) {
                    let a = a.get(key).unwrap_or(&null);
                    let b = b.get(key).unwrap_or(&null);
                    work.push((push_key(&path, key), a, b));
                }
            }
            (Value::Array(a), Value::Array(b)) => {
                for i in (0..a.len().max(b.len())).rev().filter(|i| a.get(*i) != b.get(*i)) {
                    let a = a.get(i).unwrap_or(&null);
                    let b = b.get(i).unwrap_or(&null);
                    work.push((format!("{path}/{i}"), a, b));
                }
            }
            _ => {}
        }
        if work.len() == before {
            paths.push(path);
        }
    }
    paths
}

/// The digest of an object's content: SHA-256, in hexadecimal, of its JSON with sorted keys.
pub fn digest(object: &Object) -> String {
    digest_of(object.fields())
}

/// The digest of a stored object, without the fields that change although its manifest does not. These are the status,
/// and `generation`, `managedFields` and `resourceVersion` of the metadata.
pub fn stored_digest(object: &Object) -> String {
    let mut fields = object.fields().clone();
    fields.remove("status");
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        for field in ["generation", "managedFields", "resourceVersion"] {
            metadata.remove(field);
        }
    }
    digest_of(&fields)
}

fn digest_of(fields: &Map<String, Value>) -> String {
    let text = serde_json::to_vec(fields).expect("maps of text keys always serialise");
    hex::encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(spec: Value, labels: Value, version: &str) -> Object {
        Object::new(json!({"apiVersion": "v1", "kind": "Thing", "spec": spec, "status": {"at": version},
            "metadata": {"name": "t", "labels": labels, "resourceVersion": version, "generation": 3}}))
        .unwrap()
    }

    #[test]
    fn fields_that_a_dry_run_adds_changes_and_removes_are_counted() {
        let live = object(json!({"changed": 1, "removed": [1], "same": 1}), json!({}), "7");
        let dry = object(json!({"changed": 2, "added": {"a/b": 1}, "same": 1}), json!({}), "8");
        let paths = diff_paths(&live, &dry, usize::MAX);
        assert_eq!(change_counts(&live, &dry, &paths), [1, 1, 1], "{paths:?}");
        assert_eq!(change_counts(&live, &dry, &["/spec/added/a~1b".to_owned()]), [1, 0, 0]);
        assert_eq!(change_counts(&live, &dry, &["/spec/removed/0".to_owned()]), [0, 0, 1]);
    }

    #[test]
    fn only_what_manifests_decide_is_drift() {
        let live = object(json!({"a": 1}), json!({"x": "y"}), "7");
        assert!(!has_drifted(&live, &object(json!({"a": 1}), json!({"x": "y"}), "8")));
        assert!(has_drifted(&live, &object(json!({"a": 2}), json!({"x": "y"}), "7")));
        assert!(has_drifted(&live, &object(json!({"a": 1.0}), json!({"x": "y"}), "7")));
        assert!(has_drifted(&live, &object(json!({"a": 1}), json!({}), "7")));
        assert!(!has_drifted(
            &object(json!({}), json!(null), "7"),
            &object(json!({}), json!({}), "7")
        ));
    }

    #[test]
    fn a_stored_object_has_the_same_digest_until_a_field_of_manifests_changes() {
        let stored = |spec, version| stored_digest(&object(spec, json!({}), version));
        assert_eq!(stored(json!({"a": 1}), "7"), stored(json!({"a": 1}), "8"));
        assert_ne!(stored(json!({"a": 1}), "7"), stored(json!({"a": 2}), "7"));
    }

    #[test]
    fn an_object_that_does_not_exist_has_drifted() {
        let same = object(json!({}), json!({}), "");
        assert!(has_drifted(&same, &same));
    }

    #[test]
    fn differences_are_named_by_path_and_never_by_value() {
        let live =
            object(json!({"a/b": {"k": [1, 2, {"z": "old"}]}, "gone": 1}), json!({"l": "1"}), "7");
        let want = object(json!({"a/b": {"k": [1, 3, {"z": "new"}, 4]}}), json!({"l": "2"}), "7");
        let paths = diff_paths(&live, &want, 10);
        assert_eq!(
            paths,
            [
                "/metadata/labels/l",
                "/spec/a~1b/k/1",
                "/spec/a~1b/k/2/z",
                "/spec/a~1b/k/3",
                "/spec/gone"
            ]
        );
        assert_eq!(diff_paths(&live, &want, 2), paths[..2]);
        assert!(diff_paths(&live, &live, 10).is_empty());
    }

    #[test]
    fn a_digest_names_content_whatever_the_order_of_keys() {
        let a: Value =
            serde_json::from_str(r#"{"kind":"K","apiVersion":"v1","metadata":{"name":"n"}}"#)
                .unwrap();
        let b: Value =
            serde_json::from_str(r#"{"metadata":{"name":"n"},"apiVersion":"v1","kind":"K"}"#)
                .unwrap();
        let a = Object::new(a).unwrap();
        let b = Object::new(b).unwrap();
        assert_eq!(digest(&a), digest(&b));
        assert_eq!(digest(&a), "d5c695219a600ad2a1b0d92c1dcb6e1967788866e76c8371521d9e951a0c2e0b");
    }
}
