//! What would change of which objects, and what cannot be compared.
//!
//! Elsewhere: which fields differ and what is shown of them (`plan::FieldChangeList`), how changes are printed (`format.rs`).

use std::collections::BTreeSet;

use objects::{Object, ObjectId, SecretMasking};
use plan::{FieldChangeLimits, FieldChangeList};
use serde::Serialize;
use serde_json::Value;

use windlass_cluster::ClusterConnection;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_runtime::crd_guard::is_definition;

/// What would happen to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DiffAction {
    Created,
    Changed,
    /// Deleted and created again.
    Recreated,
    Removed,
}

/// An object that would change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct DiffChange {
    pub(super) action: DiffAction,
    pub(super) object: DiffObjectReference,
    #[serde(flatten)]
    pub(super) fields: FieldChangeList,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<&'static str>,
}

/// What an object is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DiffObjectReference {
    pub(super) api_version: String,
    pub(super) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    pub(super) name: String,
}

impl DiffObjectReference {
    /// `Kind/namespace/name`.
    pub(super) fn subject(&self) -> String {
        ObjectId::new(&self.namespace, &self.name, "", &self.kind).subject()
    }
}

/// How many fields of an object are listed; their values are whole.
const FIELD_CHANGE_LIMITS: FieldChangeLimits =
    FieldChangeLimits { max_listed_fields: 1000, cuts_values: false };

impl DiffChange {
    /// A change without fields.
    pub(super) fn of(action: DiffAction, object: &Object) -> Self {
        let object = DiffObjectReference {
            api_version: object.api_version().to_owned(),
            kind: object.kind().to_owned(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
        };
        Self { action, object, fields: FieldChangeList::default(), note: None }
    }

    /// One of the fields in which an object differs from what it would be.
    pub(super) fn between(live: &Object, after: &Object, secrets: &SecretMasking) -> Self {
        let fields = FieldChangeList::between(live, after, secrets, FIELD_CHANGE_LIMITS);
        Self { fields, ..Self::of(DiffAction::Changed, live) }
    }

    pub(super) fn noted(self, note: Option<&'static str>) -> Self {
        Self { note, ..self }
    }
}

/// What is said where fields of other tools are taken over.
const TAKEN_OVER: &str = "fields that other tools have set are taken over";

/// The same where the API server does not tell what becomes of the object.
const TAKEN_OVER_UNTRIED: &str =
    "fields that other tools have set are taken over; those that the manifest lacks go";

/// What an object becomes whose fields are taken over from other tools by a patch, and a note that says so; `dry` is what a
/// dry-run of the apply alone makes of it. What the API server fills in, and whether it takes the object, is tried by a
/// dry-run.
pub(super) async fn taken_over(
    cluster: &ClusterConnection,
    resource: &ApiResourceLocation,
    taken: Option<&Value>,
    dry: Object,
    manager: &str,
) -> (Object, Option<&'static str>) {
    let after = taken.and_then(|taken| apply::after_take_over(taken, &dry, manager));
    let Some(mut after) = after else { return (dry, None) };
    after.metadata_mut().remove("managedFields");
    let tried = format!("{manager}&dryRun=All");
    match cluster.replace_object(resource, &after, &tried).await {
        Ok(after) => (after, Some(TAKEN_OVER)),
        Err(_) => (dry, Some(TAKEN_OVER_UNTRIED)),
    }
}

/// How one object compares.
#[derive(Debug, PartialEq)]
pub(super) enum ComparisonResult {
    Changes(DiffChange),
    Same,
    /// An annotation or label excludes it.
    Skipped,
}

/// What would change, and what could not be compared.
#[derive(Debug, Default)]
pub(crate) struct DiffReport {
    pub(super) changes: Vec<DiffChange>,
    pub(super) unchanged: usize,
    pub(super) skipped: usize,
    /// Why objects cannot be compared.
    pub(super) problems: Vec<String>,
}

impl DiffReport {
    pub(super) fn add(&mut self, compared: Result<ComparisonResult, String>) {
        match compared {
            Ok(ComparisonResult::Changes(change)) => self.changes.push(change),
            Ok(ComparisonResult::Same) => self.unchanged += 1,
            Ok(ComparisonResult::Skipped) => self.skipped += 1,
            Err(problem) => self.problems.push(problem),
        }
    }
}

/// Kinds and namespaces that exist only once the first objects are written.
#[derive(Debug, Default)]
pub(super) struct PlannedCrdsAndNamespaces {
    /// Group and kind.
    kinds: BTreeSet<(String, String)>,
    pub(super) namespaces: BTreeSet<String>,
}

impl PlannedCrdsAndNamespaces {
    /// What comes with some objects.
    pub(super) fn of<'o>(objects: impl Iterator<Item = &'o Object>) -> Self {
        let mut planned = Self::default();
        for object in objects {
            let spec = object.get("spec").filter(|_| is_definition(object));
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            planned.kinds.extend(spec.map(|it| (text(&it["group"]), text(&it["names"]["kind"]))));
            if (object.api_version(), object.kind()) == ("v1", "Namespace") {
                planned.namespaces.insert(object.name().to_owned());
            }
        }
        planned
    }

    /// Whether a kind that is not served comes along.
    pub(super) fn has_kind_of(&self, object: &Object) -> bool {
        let gvk = object.gvk();
        self.kinds.contains(&(gvk.group, gvk.kind))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn object(kind: &str, more: &Value) -> Object {
        let mut value = json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": "a", "namespace": "n", "resourceVersion": "1"}});
        for (key, field) in more.as_object().unwrap() {
            value[key] = field.clone();
        }
        Object::new(value).unwrap()
    }

    #[test]
    fn values_are_whole_and_fields_beyond_the_limit_are_counted() {
        let map = |value: &str| {
            let data = (0..1001).map(|at| (format!("k{at:04}"), Value::from(value)));
            object("ConfigMap", &json!({"data": data.collect::<Map<_, _>>()}))
        };
        let long = "x".repeat(20_000);
        let change = DiffChange::between(&map("1"), &map(&long), &SecretMasking::default());
        let change = serde_json::to_value(change).unwrap();
        assert_eq!(change["fields"][0], json!({"path": "/data/k0000", "old": "1", "new": long}));
        assert_eq!(change["fields"].as_array().map(Vec::len), Some(1000));
        assert_eq!(change["omittedFields"], 1);
        let created = DiffChange::of(DiffAction::Created, &map("1"));
        let reference =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "a"});
        let expected = json!({"action": "created", "object": reference, "fields": []});
        assert_eq!(serde_json::to_value(created).unwrap(), expected);
    }

    #[test]
    fn kinds_and_namespaces_may_come_with_the_objects() {
        let names = json!({"group": "example.com", "names": {"kind": "Widget"}});
        let definition = Object::new(json!({"apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition", "metadata": {"name": "w"}, "spec": names}));
        let all = [definition.unwrap(), object("Namespace", &json!({}))];
        let planned = PlannedCrdsAndNamespaces::of(all.iter());
        let of = |version: &str| {
            let metadata = json!({"name": "w"});
            let value = json!({"apiVersion": version, "kind": "Widget", "metadata": metadata});
            planned.has_kind_of(&Object::new(value).unwrap())
        };
        assert!(of("example.com/v1") && !of("example.org/v1"));
        assert_eq!(planned.namespaces, BTreeSet::from(["a".to_owned()]));
    }
}
