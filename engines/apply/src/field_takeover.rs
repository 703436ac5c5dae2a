//! Takes over the fields that other tools left behind, so that the next apply removes those which the manifest does not
//! have.
//!
//! Here: the JSON patch that changes the field manager. Elsewhere: which objects are exempt (`ssa: Merge`,
//! [`crate::owner_labels_and_apply_annotations`]), and sending the patch (the program).

use std::cell::LazyCell;
use std::collections::BTreeMap;

use objects::Object;
use serde_json::{Map, Value, json};

use crate::drift_comparison::push_key;
use crate::managed_fields_path::ManagedFieldsPathElement;

/// Annotations of tools that managed the object before: kubectl, and very old versions of Flux.
const ANNOTATIONS: [&str; 3] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "kustomize.toolkit.fluxcd.io/checksum",
    "fluxcd.io/sync-checksum",
];

/// A label that very old versions of Flux wrote.
const LABELS: [&str; 1] = ["fluxcd.io/sync-gc-mark"];

/// The JSON patch (RFC 6902) that hands the fields of foreign managers to `manager`, or `None` when there is nothing to do.
///
/// Foreign are `kubectl…`, `before-first-apply…` (Update), our own name with operation Update (before server-side apply),
/// and `overrides`; names are prefixes. Their entries in `managedFields` are merged into our Apply entry,
/// or the first of them becomes it. Entries of subresources are not changed
/// (source: `PatchReplaceFieldsManagers` of fluxcd/pkg/ssa).
///
/// Differs(flux): the patch carries the resource version, because `managedFields` are replaced as a whole
/// and an entry written in between would be lost; a conflict means: observe again.
pub fn take_over(live: &Object, manager: &str, overrides: &[String]) -> Option<Value> {
    take_over_except(&[], live, manager, overrides)
}

/// Like [`take_over`], except that fields under the `ignored` pointers stay with their managers. Each item of `ignored`
/// has the parts of one JSON pointer, without escapes. Returns the JSON patch, or `None` if nothing has to be taken
/// over.
pub(crate) fn take_over_except(
    ignored: &[&[String]],
    live: &Object,
    manager: &str,
    overrides: &[String],
) -> Option<Value> {
    let mut operations = Vec::new();
    for (map, keys) in [("annotations", &ANNOTATIONS[..]), ("labels", &LABELS[..])] {
        let entries = live.meta(map).and_then(Value::as_object);
        let is_ignored = |key: &str| ignored.iter().any(|it| is_in(it, &["metadata", map, key]));
        for key in keys.iter().filter(|key| entries.is_some_and(|e| e.contains_key(**key))) {
            if !is_ignored(key) {
                operations.push(json!({"op": "remove", "path": entry_path(map, key)}));
            }
        }
    }
    let entries = merged_entries(live, manager, ignored, |it| is_foreign(it, manager, overrides));
    patch(live, operations, entries)
}

/// The JSON pointer to an annotation or a label.
fn entry_path(map: &str, key: &str) -> String {
    push_key(&format!("/metadata/{map}"), key)
}

/// Whether a patch of [`take_over`] removes this annotation or label.
pub(crate) fn removes(patch: &Value, map: &str, key: &str) -> bool {
    let path = entry_path(map, key);
    let mut operations = patch.as_array().into_iter().flatten();
    operations.any(|it| it["op"] == "remove" && it["path"] == path)
}

/// Whether a JSON pointer names a path, or a field that contains the path.
pub(crate) fn is_in(pointer: &[String], path: &[&str]) -> bool {
    pointer.len() <= path.len() && pointer.iter().zip(path).all(|(one, other)| one == other)
}

/// Like [`take_over`], but hands over only the fields of the manager `former`. Returns the JSON patch, or `None` if
/// nothing has to be taken over.
pub fn take_over_from(live: &Object, manager: &str, former: &str) -> Option<Value> {
    let is_former =
        |it: &Value| text(it, "manager") == former && text(it, "subresource").is_empty();
    patch(live, Vec::new(), merged_entries(live, manager, &[], is_former))
}

fn patch(live: &Object, mut operations: Vec<Value>, entries: Option<Vec<Value>>) -> Option<Value> {
    if let Some(entries) = entries {
        operations
            .push(json!({"op": "replace", "path": "/metadata/managedFields", "value": entries}));
    }
    if operations.is_empty() {
        return None;
    }
    if let Some(version) = live.meta("resourceVersion") {
        let path = "/metadata/resourceVersion";
        operations.push(json!({"op": "replace", "path": path, "value": version}));
    }
    Some(Value::Array(operations))
}

/// The `managedFields` that a patch of [`take_over`] writes; empty if it writes none.
pub(crate) fn entries_after(patch: &Value) -> Vec<Value> {
    let operations = patch.as_array().into_iter().flatten();
    let written = operations.filter(|it| it["path"] == "/metadata/managedFields");
    written.filter_map(|it| it["value"].as_array()).flatten().cloned().collect()
}

/// Whether an entry of `managedFields` was written by a server-side apply of `manager`.
pub(crate) fn is_apply_of(entry: &Value, manager: &str) -> bool {
    text(entry, "manager") == manager
        && text(entry, "operation") == "Apply"
        && text(entry, "subresource").is_empty()
}

fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn is_foreign(entry: &Value, manager: &str, overrides: &[String]) -> bool {
    let name = text(entry, "manager");
    let updates = match text(entry, "operation") {
        "Update" => true,
        "Apply" => false,
        _ => return false,
    };
    text(entry, "subresource").is_empty()
        && (name.starts_with("kubectl")
            || overrides.iter().any(|prefix| name.starts_with(prefix.as_str()))
            || (updates && (name.starts_with("before-first-apply") || name.starts_with(manager))))
}

/// The fields of a `managedFields` entry of another manager, divided into two parts.
struct ManagedFieldsEntryTakeover {
    /// The fields that windlass takes over.
    taken: Option<Value>,
    /// The fields that stay with their manager.
    left: Option<Value>,
}

impl ManagedFieldsEntryTakeover {
    fn whole(entry: &Value) -> Self {
        Self { taken: Some(entry.clone()), left: None }
    }

    /// Divides an entry: the fields that `pointers` name stay with their manager.
    fn of(entry: &Value, live: &Value, pointers: &[&[String]]) -> Self {
        let Some(fields) = entry.get("fieldsV1").and_then(Value::as_object) else {
            return Self::whole(entry);
        };
        let DividedFieldSet { named, others } = divided(fields, live, pointers);
        let with = |fields: Map<String, Value>| {
            let mut entry = entry.clone();
            entry["fieldsV1"] = Value::Object(fields);
            Some(entry)
        };
        match (named.is_empty(), others.is_empty()) {
            (true, _) => Self::whole(entry),
            (false, true) => Self { taken: None, left: Some(entry.clone()) },
            (false, false) => Self { taken: with(others), left: with(named) },
        }
    }
}

/// A set of field paths, divided into two parts.
#[derive(Default)]
struct DividedFieldSet {
    /// The paths that the JSON pointers name, and everything below them.
    named: Map<String, Value>,
    others: Map<String, Value>,
}

/// Divides a set of field paths of `value` into those that the JSON pointers name and the others. The set was read as
/// JSON, whose depth is limited, so the recursion is, too.
fn divided(set: &Map<String, Value>, value: &Value, pointers: &[&[String]]) -> DividedFieldSet {
    let mut all = DividedFieldSet::default();
    for (key, below) in set.iter().filter(|(key, _)| key.as_str() != ".") {
        let mut part = None;
        let mut inner: Vec<&[String]> = Vec::new();
        for (first, rest) in pointers.iter().filter_map(|pointer| pointer.split_first()) {
            if let Some(meant) = ManagedFieldsPathElement::at(value, key, first) {
                part = Some(meant);
                inner.push(rest);
            }
        }
        if inner.iter().any(|rest| rest.is_empty()) {
            all.named.insert(key.clone(), below.clone());
            continue;
        }
        let child = part.and_then(|part| part.child(value));
        // A path without further parts stands for the whole field.
        let parts = below.as_object().filter(|parts| !parts.is_empty());
        let Some((child, parts)) = child.zip(parts) else {
            all.others.insert(key.clone(), below.clone());
            continue;
        };
        let DividedFieldSet { named, others } = divided(parts, child, &inner);
        if !named.is_empty() {
            all.named.insert(key.clone(), Value::Object(named));
        }
        if !others.is_empty() {
            all.others.insert(key.clone(), Value::Object(others));
        }
    }
    // A path that only contains named fields exists because of these.
    let is_for_named = !all.named.is_empty() && all.others.is_empty();
    if let Some(itself) = set.get(".").filter(|_| !is_for_named) {
        all.others.insert(".".to_owned(), itself.clone());
    }
    all
}

/// The `managedFields` after the take-over. `None` if there are no fields to take over. Fields under the `ignored`
/// pointers stay with their managers.
fn merged_entries(
    live: &Object,
    manager: &str,
    ignored: &[&[String]],
    is_foreign: impl Fn(&Value) -> bool,
) -> Option<Vec<Value>> {
    let entries = live.meta("managedFields")?.as_array()?;
    let at = entries.iter().rposition(|entry| is_apply_of(entry, manager));
    let mut ours = at.and_then(|at| entries.get(at)).cloned();
    let mut kept = Vec::with_capacity(entries.len());
    let mut is_taken = false;
    let value = LazyCell::new(|| Value::Object(live.fields().clone()));
    for (i, entry) in entries.iter().enumerate() {
        if Some(i) == at {
            continue;
        }
        if !is_foreign(entry) {
            kept.push(entry.clone());
            continue;
        }
        let divided = match ignored.is_empty() {
            true => ManagedFieldsEntryTakeover::whole(entry),
            false => ManagedFieldsEntryTakeover::of(entry, &value, ignored),
        };
        kept.extend(divided.left);
        let Some(mut taken) = divided.taken else { continue };
        is_taken = true;
        match &mut ours {
            Some(ours) => merge_fields(ours, &taken),
            None => {
                taken["manager"] = manager.into();
                taken["operation"] = "Apply".into();
                ours = Some(taken);
            }
        }
    }
    if !is_taken {
        return None;
    }
    kept.extend(ours);
    Some(kept)
}

fn merge_fields(ours: &mut Value, theirs: &Value) {
    // At the root, an empty map is an empty set of paths. Below the root, it is a path.
    let filled = |set: &&mut Value| set.as_object().is_some_and(|map| !map.is_empty());
    let Some(theirs) =
        theirs.get("fieldsV1").filter(|set| set.as_object().is_some_and(|map| !map.is_empty()))
    else {
        return;
    };
    match ours.get_mut("fieldsV1").filter(filled) {
        Some(ours) => union(ours, theirs.clone()),
        None => ours["fieldsV1"] = theirs.clone(),
    }
}

/// Joins two sets of field paths, which are stored as tries.
///
/// An empty map is a path of the set. If a path of the set has children, a member `.` marks it.
fn union(into: &mut Value, from: Value) {
    let mut work = vec![(into, from)];
    while let Some((into, from)) = work.pop() {
        let (Value::Object(into), Value::Object(from)) = (into, from) else { continue };
        match (into.is_empty(), from.is_empty()) {
            (true, true) => continue,
            (true, false) | (false, true) => {
                into.extend(from);
                into.insert(".".into(), Value::Object(Map::new()));
                continue;
            }
            (false, false) => {}
        }
        let mut shared = BTreeMap::new();
        for (key, theirs) in from {
            if into.contains_key(&key) {
                shared.insert(key, theirs);
            } else {
                into.insert(key, theirs);
            }
        }
        for (key, ours) in into {
            if let Some(theirs) = shared.remove(key) {
                work.push((ours, theirs));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn live(annotations: Value, managed: Value) -> Object {
        Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "resourceVersion": "9",
            "annotations": annotations, "managedFields": managed}}))
        .unwrap()
    }

    fn fields_after(managed: Value, overrides: &[&str]) -> Value {
        let overrides: Vec<_> = overrides.iter().map(|o| (*o).to_owned()).collect();
        let patch = take_over(&live(json!({}), managed), "kustomize-controller", &overrides);
        patch.map_or(Value::Null, |patch| {
            assert_eq!(patch[0]["path"], "/metadata/managedFields");
            assert_eq!(
                patch[1],
                json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "9"})
            );
            patch[0]["value"].clone()
        })
    }

    #[test]
    fn kubectl_edits_are_merged_into_our_entry() {
        let ours = entry("kustomize-controller", "Apply", json!({"f:data": {"f:a": {}}}));
        let theirs =
            entry("kubectl-edit", "Update", json!({"f:data": {".": {}, "f:b": {}}, "f:x": {}}));
        let other = entry("hpa", "Update", json!({"f:spec": {}}));
        let after = fields_after(json!([theirs, ours, other]), &[]);
        let merged = json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:x": {}});
        assert_eq!(after, json!([other, entry("kustomize-controller", "Apply", merged)]));
    }

    #[test]
    fn the_first_foreign_entry_becomes_ours_when_we_have_none() {
        let first = entry("before-first-apply", "Update", json!({"f:a": {}}));
        let second = entry("kubectl", "Apply", json!({"f:a": {"f:b": {}}}));
        let after = fields_after(json!([first, second]), &[]);
        assert_eq!(
            after,
            json!([entry("kustomize-controller", "Apply", json!({"f:a": {".": {}, "f:b": {}}}))])
        );
    }

    #[test]
    fn who_else_may_stay_stays() {
        let mut scale = entry("kubectl", "Update", json!({"f:spec": {"f:replicas": {}}}));
        scale["subresource"] = "scale".into();
        let apply = entry("before-first-apply", "Apply", json!({}));
        let helm = entry("helm", "Apply", json!({"f:z": {}}));
        assert_eq!(fields_after(json!([scale, apply, helm]), &[]), Value::Null);
        assert_eq!(fields_after(json!([helm]), &["hel"])[0]["manager"], "kustomize-controller");
    }

    #[test]
    fn of_one_manager_the_fields_are_taken_over_and_of_no_other() {
        let restored = entry("kubectl-windlass", "Update", json!({"f:a": {}}));
        let edited = entry("kubectl-edit", "Update", json!({"f:b": {}}));
        let mut status = entry("kubectl-windlass", "Update", json!({"f:status": {}}));
        status["subresource"] = "status".into();
        let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
        let live = live(annotations, json!([restored, edited, status]));
        let patch = take_over_from(&live, "helm-controller", "kubectl-windlass").unwrap();
        let ours = entry("helm-controller", "Apply", json!({"f:a": {}}));
        assert_eq!(patch[0]["value"], json!([edited, status, ours]));
        assert_eq!(patch.as_array().map(Vec::len), Some(2), "{patch}");
        assert_eq!(take_over_from(&live, "helm-controller", "kubectl"), None);
    }

    #[test]
    fn our_updates_from_before_server_side_apply_become_applies() {
        let old = entry("kustomize-controller", "Update", json!({"f:a": {}}));
        let after = fields_after(json!([old]), &[]);
        assert_eq!(after, json!([entry("kustomize-controller", "Apply", json!({"f:a": {}}))]));
        assert_eq!(fields_after(after, &[]), Value::Null);
    }

    #[test]
    fn the_annotation_of_kubectl_apply_is_removed() {
        let live = live(
            json!({"kubectl.kubernetes.io/last-applied-configuration": "{}", "keep": "x"}),
            json!([]),
        );
        let patch = take_over(&live, "kustomize-controller", &[]).unwrap();
        assert_eq!(
            patch,
            json!([
                {"op": "remove", "path": "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": "9"}])
        );
    }

    /// Answers of `Set.Union` of sigs.k8s.io/structured-merge-diff v6.3.2.
    #[test]
    fn sets_of_fields_are_joined_as_the_api_server_joins_them() {
        let item =
            |name: &str| json!({format!("k:{{\"name\":\"{name}\"}}"): {".": {}, "f:name": {}}});
        let mut items = item("a");
        union(&mut items, item("b"));
        let cases = [
            (json!({"f:a": {}}), json!({"f:a": {"f:b": {}}}), json!({"f:a": {".": {}, "f:b": {}}})),
            (json!({"f:a": {"f:b": {}}}), json!({"f:a": {}}), json!({"f:a": {".": {}, "f:b": {}}})),
            (json!({}), json!({"f:a": {}}), json!({"f:a": {}})),
            (json!({"f:a": {}}), json!({}), json!({"f:a": {}})),
            (json!({"f:l": item("a")}), json!({"f:l": item("b")}), json!({"f:l": items})),
        ];
        for (ours, theirs, want) in cases {
            let managed = json!([
                entry("kustomize-controller", "Apply", ours),
                entry("kubectl", "Update", theirs)
            ]);
            assert_eq!(fields_after(managed, &[])[0]["fieldsV1"], want);
        }
    }

    #[test]
    fn sets_nested_a_hundred_deep_are_joined_without_recursion() {
        let deep = |leaf: &str| {
            (0..100).fold(json!({leaf: {}}), |inner, i| json!({format!("f:{i}"): inner}))
        };
        let mut both = deep("f:x");
        union(&mut both, deep("f:y"));
        let path: String = (0..100).rev().map(|i| format!("/f:{i}")).collect();
        assert_eq!(both.pointer(&path), Some(&json!({"f:x": {}, "f:y": {}})));
    }
}
