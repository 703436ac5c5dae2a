//! Drops the parts of `metadata.managedFields` that windlass does not use, for objects of its own kinds. They are most of an
//! object in memory. windlass uses only who suspended or resumed an object, who wrote its spec or an annotation, and which
//! labels and annotations an apply set.
//!
//! Elsewhere: the users of these fields (`object_hold`, `audit` and `chart_template` of the controllers), and the fields of
//! applied objects, of which a watch keeps a fingerprint (`apply::managed_fields_fingerprint`).

use kube::core::Resource;
use serde_json::{Map, Value};

const METADATA: &str = "f:metadata";
const LABELS: &str = "f:labels";
const ANNOTATIONS: &str = "f:annotations";
const SPEC: &str = "f:spec";
const SUSPEND: &str = "f:suspend";

/// Keeps only the managed fields that windlass uses: labels, annotations, `spec.suspend`, and whether a manager wrote any
/// field of the spec.
pub(crate) fn keep_needed<K: Resource>(object: &mut K) {
    let Some(entries) = &mut object.meta_mut().managed_fields else { return };
    entries.retain_mut(|entry| {
        // A subresource, such as the status, has no fields of spec, labels and annotations.
        let fields = entry.fields_v1.as_mut().filter(|_| entry.subresource.is_none());
        let Some(fields) = fields else { return false };
        let needed = needed(fields.0.take());
        let is_needed = !needed.is_empty();
        fields.0 = Value::Object(needed);
        is_needed
    });
    entries.shrink_to_fit();
}

fn needed(fields: Value) -> Map<String, Value> {
    let mut needed = Map::new();
    let Value::Object(mut fields) = fields else { return needed };
    if let Some(Value::Object(mut metadata)) = fields.remove(METADATA) {
        metadata.retain(|key, _| [LABELS, ANNOTATIONS].contains(&key.as_str()));
        if !metadata.is_empty() {
            needed.insert(METADATA.to_owned(), Value::Object(metadata));
        }
    }
    if let Some(mut spec) = fields.remove(SPEC).filter(|spec| !spec.is_null()) {
        let suspend = spec.get_mut(SUSPEND).map(Value::take);
        let suspend = suspend.map(|it| (SUSPEND.to_owned(), it));
        needed.insert(SPEC.to_owned(), Value::Object(suspend.into_iter().collect()));
    }
    needed
}

#[cfg(test)]
mod tests {
    use crds::kustomize::Kustomization;
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, subresource: Option<&str>, fields: &Value) -> Value {
        let mut entry = json!({"manager": manager, "operation": "Update", "fieldsType": "FieldsV1",
            "apiVersion": "v1", "time": "2026-01-02T03:04:05Z", "fieldsV1": fields});
        if let Some(subresource) = subresource {
            entry["subresource"] = subresource.into();
        }
        entry
    }

    /// The managed fields that are kept of these entries, as manager and fields.
    fn kept(entries: &[Value]) -> Vec<(String, Value)> {
        let mut object: Kustomization = serde_json::from_value(json!({
            "metadata": {"name": "a", "managedFields": entries},
            "spec": {"interval": "1m", "prune": true, "sourceRef": {"kind": "Bucket", "name": "b"}}}))
        .unwrap();
        keep_needed(&mut object);
        let entries = object.metadata.managed_fields.unwrap().into_iter();
        entries.map(|it| (it.manager.unwrap(), it.fields_v1.unwrap().0)).collect()
    }

    #[test]
    fn who_suspended_and_who_wrote_what_stays_known() {
        let annotations = json!({".": {}, "f:windlass.dev/suspended-by": {}});
        let user = json!({"f:metadata": {"f:annotations": annotations, "f:finalizers": {"v:\"x\"": {}}},
            "f:spec": {"f:suspend": {}, "f:interval": {}, "f:sourceRef": {"f:name": {}}}});
        let git = json!({"f:metadata": {"f:labels": {"f:team": {}}}, "f:spec": {"f:interval": {}}});
        let kept = kept(&[entry("kubectl", None, &user), entry("git", None, &git)]);
        let expected = [
            (
                "kubectl",
                json!({"f:metadata": {"f:annotations": annotations}, "f:spec": {"f:suspend": {}}}),
            ),
            ("git", json!({"f:metadata": {"f:labels": {"f:team": {}}}, "f:spec": {}})),
        ];
        assert_eq!(kept, expected.map(|(manager, fields)| (manager.to_owned(), fields)));
    }

    #[test]
    fn what_nothing_uses_is_dropped() {
        let status = json!({"f:status": {"f:conditions": {".": {}, "k:{\"type\":\"Ready\"}": {"f:status": {}}}}});
        let finalizers = json!({"f:metadata": {"f:finalizers": {".": {}}}});
        let entries = [
            entry("gotk-kustomize-controller", Some("status"), &status),
            entry("gotk-kustomize-controller", None, &finalizers),
            entry("odd", None, &json!({"f:spec": null})),
            entry("odder", None, &json!([1])),
        ];
        assert!(kept(&entries).is_empty());
    }
}
