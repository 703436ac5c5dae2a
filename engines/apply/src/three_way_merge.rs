//! Objects merged by us rather than by the server, for releases that are applied as Helm 3 does it.
//!
//! Three objects are merged: the manifest of the previous revision, the new manifest, and the live object. Fields that
//! only the previous manifest has are removed, fields of the new manifest are written, and fields that others added
//! stay.
//!
//! Source of the semantics: apimachinery `strategicpatch.CreateThreeWayMergePatch`. Lists whose items have a key in the
//! types of built-in kinds are merged by it; others are replaced. Differs(helm 4): the result is sent as a merge patch
//! (RFC 7386) of what differs from the live object, for objects of every kind.

mod merge_key_table;

use std::collections::BTreeMap;

use objects::Object;
use serde_json::{Map, Value};

use self::merge_key_table::{FieldMergeRule, ListMergeKey};

/// The patch that turns a live object into the merged one. `None` if the live object needs no change.
pub fn patch(original: Option<&Object>, wanted: &Object, live: &Object) -> Option<Value> {
    difference(live.fields(), merged(original, wanted, live).fields())
}

/// The live object after the [`patch`], without the changes that the API server makes.
#[must_use]
pub fn merged(original: Option<&Object>, wanted: &Object, live: &Object) -> Object {
    let empty = Map::new();
    let original = original.map_or(&empty, Object::fields);
    let of =
        FieldMergeRule { below: merge_key_table::type_of(wanted), ..FieldMergeRule::default() };
    let fields = merged_map(original, wanted.fields(), live.fields(), of);
    let mut merged = live.clone();
    *merged.fields_mut() = fields;
    merged
}

fn merged_map(
    original: &Map<String, Value>,
    wanted: &Map<String, Value>,
    live: &Map<String, Value>,
    of: FieldMergeRule,
) -> Map<String, Value> {
    let mut merged = live.clone();
    if of.retains_wanted_only {
        merged.retain(|key, _| wanted.contains_key(key));
    }
    for key in original.keys().filter(|key| !wanted.contains_key(*key)) {
        merged.remove(key);
    }
    for (key, value) in wanted {
        if value.is_null() {
            merged.remove(key);
            continue;
        }
        let field = merge_key_table::of(of.below, key);
        let next = merged_value(original.get(key), value, live.get(key), field);
        merged.insert(key.clone(), next);
    }
    merged
}

// The recursion is bounded, because the depth of manifests was limited when they were read.
fn merged_value(
    original: Option<&Value>,
    wanted: &Value,
    live: Option<&Value>,
    of: FieldMergeRule,
) -> Value {
    match (wanted, live) {
        (Value::Object(wanted), Some(Value::Object(live))) if !of.is_replaced => {
            let empty = Map::new();
            let original = original.and_then(Value::as_object).unwrap_or(&empty);
            Value::Object(merged_map(original, wanted, live, of))
        }
        (Value::Array(wanted), Some(Value::Array(live))) => {
            let original = original.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let lists = [original, wanted, live];
            match of.items.filter(|items| lists.iter().copied().flatten().all(|it| items.know(it)))
            {
                Some(items) => Value::Array(merged_list(items, of, original, wanted, live)),
                None => Value::Array(wanted.clone()),
            }
        }
        _ => wanted.clone(),
    }
}

impl ListMergeKey {
    /// Whether an item has its merge key.
    fn know(self, item: &Value) -> bool {
        match self {
            Self::Strings => !item.is_object() && !item.is_array(),
            Self::By(key) => item.get(key).is_some(),
        }
    }

    /// The merge key of a list item, as JSON. Two items with the same key are versions of the same item. `None` if the
    /// item does not have the key.
    fn identity(self, item: &Value) -> Option<String> {
        match self {
            Self::Strings => Some(item.to_string()),
            Self::By(key) => item.get(key).map(Value::to_string),
        }
    }
}

/// An index of the items of a list by their merge key. A user decides the length of the list, so it is not searched
/// each time.
struct MergeKeyPositions<'v> {
    items: ListMergeKey,
    list: &'v [Value],
    by_identity: BTreeMap<Option<String>, Vec<usize>>,
}

impl<'v> MergeKeyPositions<'v> {
    fn of(items: ListMergeKey, list: &'v [Value]) -> Self {
        let mut by_identity: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (place, item) in list.iter().enumerate() {
            by_identity.entry(items.identity(item)).or_default().push(place);
        }
        Self { items, list, by_identity }
    }

    fn all(&self, item: &Value) -> &[usize] {
        self.by_identity.get(&self.items.identity(item)).map_or(&[], Vec::as_slice)
    }

    fn first(&self, item: &Value) -> Option<usize> {
        self.all(item).first().copied()
    }

    /// The item of this list that matches `item`. If several items have its merge key, the result is the one at place
    /// `nth` among them. `None` if there is no such item.
    fn version(&self, item: &Value, nth: usize) -> Option<&'v Value> {
        self.all(item).get(nth).map(|place| &self.list[*place])
    }
}

fn merged_list(
    items: ListMergeKey,
    of: FieldMergeRule,
    original: &[Value],
    wanted: &[Value],
    live: &[Value],
) -> Vec<Value> {
    let before = MergeKeyPositions::of(items, original);
    let now = MergeKeyPositions::of(items, live);
    let of_item = FieldMergeRule { is_replaced: false, items: None, ..of };
    // Two ports with the same number and different protocols have the same merge key. Such items are merged in order:
    // the first with the first, the second with the second.
    let mut counts: BTreeMap<Option<String>, usize> = BTreeMap::new();
    let mut own = Vec::with_capacity(wanted.len());
    for item in wanted {
        let count = counts.entry(items.identity(item)).or_default();
        let before = before.version(item, *count);
        let now = now.version(item, *count);
        own.push(merged_value(before, item, now, of_item));
        *count += 1;
    }
    let is_others =
        |item: &&Value| !counts.contains_key(&items.identity(item)) && before.first(item).is_none();
    let others = live.iter().filter(is_others).cloned().collect();
    in_order(&now, own, others)
}

/// Items in the wanted order, and those of others where they are in the live list. Parity(apimachinery): an item of
/// another comes before one that is not there yet.
fn in_order(live: &MergeKeyPositions<'_>, own: Vec<Value>, others: Vec<Value>) -> Vec<Value> {
    let mut all = Vec::with_capacity(own.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in own {
        let at = live.first(&item);
        while let Some(other) = others.peek() {
            let is_first = at.is_none_or(|at| live.first(other).is_none_or(|it| it < at));
            if !is_first {
                break;
            }
            all.extend(others.next());
        }
        all.push(item);
    }
    all.extend(others);
    all
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

    /// A merge that Kubernetes' library made.
    #[derive(serde::Deserialize)]
    struct RecordedMerge {
        name: String,
        original: Value,
        wanted: Value,
        live: Value,
        merged: Value,
    }

    #[test]
    fn built_in_kinds_are_merged_as_kubernetes_library_merges_them() {
        let recorded: Vec<RecordedMerge> =
            serde_json::from_str(include_str!("three_way_merge/merges.json")).unwrap();
        assert!(recorded.len() >= 18);
        for RecordedMerge { name, original, wanted, live, merged } in recorded {
            let object = |value: Value| Object::new(value).unwrap();
            let original = object(original);
            let wanted = object(wanted);
            let live = object(live);
            let of = FieldMergeRule {
                below: merge_key_table::type_of(&wanted),
                ..FieldMergeRule::default()
            };
            let found = merged_map(original.fields(), wanted.fields(), live.fields(), of);
            assert_eq!(Value::Object(found), merged, "{name}");
        }
    }

    #[test]
    fn two_items_of_one_key_are_merged_each_with_its_own() {
        let port = |protocol: &str| json!({"containerPort": 53, "protocol": protocol});
        let wanted = json!([port("UDP"), port("TCP")]);
        let mut live = wanted.clone();
        live[0]["hostPort"] = 53.into();
        let of = |ports: &Value| deployment(&containers(&json!([{"name": "dns", "ports": ports}])));
        assert_eq!(patch(None, &of(&wanted), &of(&live)), None);
    }

    #[test]
    fn the_work_for_a_list_grows_with_its_length() {
        // Comparing each of 40 000 items with all others would take minutes.
        let named = |from: u32, to: u32| -> Value {
            (from..to).map(|number| json!({"name": format!("c{number}"), "image": "i"})).collect()
        };
        let of = |items: &Value| deployment(&containers(items));
        let wanted = of(&named(0, 40_000));
        let live = of(&named(20_000, 60_000));
        let patch = patch(None, &wanted, &live).unwrap();
        let merged = &patch["spec"]["template"]["spec"]["containers"];
        assert_eq!(merged.as_array().unwrap().len(), 60_000);
    }

    #[test]
    fn lists_of_custom_kinds_are_replaced_whatever_their_fields_are_called() {
        let object = |ports: Value| {
            Object::new(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": {"name": "g"}, "spec": {"ports": ports, "containers": []}}))
            .unwrap()
        };
        let wanted = json!([{"port": 80}]);
        let live = json!([{"port": 80}, {"port": 81}]);
        let patch = patch(None, &object(wanted.clone()), &object(live));
        assert_eq!(patch, Some(json!({"spec": {"ports": wanted}})));
    }

    #[test]
    fn what_is_as_wanted_needs_no_patch() {
        let wanted = deployment(&json!({"replicas": 2}));
        let live = deployment(&json!({"replicas": 2, "minReadySeconds": 5}));
        assert_eq!(patch(Some(&wanted), &wanted, &live), None);
    }
}
