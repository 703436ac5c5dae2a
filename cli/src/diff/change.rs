//! Changes of objects by field, without what Secrets hold.
//!
//! Elsewhere: which fields differ (`apply::drift_comparison`), how changes are printed (`format.rs`).

use std::collections::BTreeSet;

use apply::drift_comparison::diff_paths;
use objects::{Object, ObjectId, SecretMasking};
use serde::Serialize;
use serde_json::{Map, Value};

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
    pub(super) fields: Vec<FieldChange>,
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

/// A field that would change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FieldChange {
    /// A JSON pointer.
    pub(super) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) old: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) new: Option<Value>,
}

impl DiffChange {
    /// A change without fields.
    pub(super) fn of(action: DiffAction, object: &Object) -> Self {
        let object = DiffObjectReference {
            api_version: object.api_version().to_owned(),
            kind: object.kind().to_owned(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
        };
        Self { action, object, fields: Vec::new(), note: None }
    }

    /// One of the fields in which an object differs from what it would be.
    pub(super) fn between(live: &Object, after: &Object, secrets: &SecretMasking) -> Self {
        Self { fields: fields(live, after, secrets), ..Self::of(DiffAction::Changed, live) }
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
pub(super) struct PendingObjects {
    /// Group and kind.
    kinds: BTreeSet<(String, String)>,
    pub(super) namespaces: BTreeSet<String>,
}

impl PendingObjects {
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

/// What stands for a value of a Secret.
const MASK: &str = "****";

/// Fields of a Secret that hold nothing secret.
const PLAIN: [&str; 3] = ["/metadata/labels", "/type", "/immutable"];

/// The most fields of an object that are listed.
const MAX_LISTED_FIELDS: usize = 1000;

/// The fields in which two states of an object differ. No value of a Secret is among them.
fn fields(before: &Object, after: &Object, secrets: &SecretMasking) -> Vec<FieldChange> {
    let is_secret = (after.api_version(), after.kind()) == ("v1", "Secret");
    let field = |path: String| {
        let is_plain = !is_secret || PLAIN.iter().any(|plain| path.starts_with(plain));
        let values = [before, after].map(|object| pointed(object, &path));
        let values = values.map(|value| value.filter(|value| !value.is_null()));
        let [old, new] = match is_plain {
            true => shown(values, secrets),
            false => values.map(|value| value.map(hidden)),
        };
        FieldChange { path, old, new }
    };
    diff_paths(before, after, MAX_LISTED_FIELDS).into_iter().map(field).collect()
}

/// The value at a JSON pointer (RFC 6901).
fn pointed<'o>(object: &'o Object, path: &str) -> Option<&'o Value> {
    let path = path.strip_prefix('/')?;
    let (first, rest) = path.find('/').map_or((path, ""), |at| path.split_at(at));
    object.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)
}

/// A value of a Secret: which keys it has, and nothing else.
fn hidden(value: &Value) -> Value {
    match value {
        Value::Object(entries) => {
            let masked = entries.keys().map(|key| (key.clone(), MASK.into()));
            Value::Object(masked.collect::<Map<_, _>>())
        }
        _ => MASK.into(),
    }
}

/// Both values of a field. Where one came from a Secret, the other one did so earlier or does so later.
fn shown(values: [Option<&Value>; 2], secrets: &SecretMasking) -> [Option<Value>; 2] {
    let masked = values.map(|value| value.map(|value| without(value, secrets)));
    let is_same = |at: usize| masked[at].as_ref() == values[at];
    match (is_same(0), is_same(1)) {
        (true, true) | (false, false) => masked,
        (true, false) => [masked[0].as_ref().map(|_| MASK.into()), masked[1].clone()],
        (false, true) => [masked[0].clone(), masked[1].as_ref().map(|_| MASK.into())],
    }
}

/// A value without what came from Secrets.
fn without(value: &Value, secrets: &SecretMasking) -> Value {
    let text = value.to_string();
    let masked = secrets.mask(&text);
    if masked == text {
        return value.clone();
    }
    serde_json::from_str(&masked).unwrap_or(Value::String(masked))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, more: &Value) -> Object {
        let mut value = json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": "a", "namespace": "n", "resourceVersion": "1"}});
        for (key, field) in more.as_object().unwrap() {
            value[key] = field.clone();
        }
        Object::new(value).unwrap()
    }

    fn fields_of(kind: &str, before: &Value, after: &Value, secrets: &SecretMasking) -> Value {
        let change = DiffChange::between(&object(kind, before), &object(kind, after), secrets);
        serde_json::to_value(change.fields).unwrap()
    }

    #[test]
    fn fields_have_their_values_before_and_after() {
        let before = json!({"data": {"a": "1", "gone": "x"}, "list": [1, {"b/c": 2}]});
        let after = json!({"data": {"a": "2", "new": "y"}, "list": [1, {"b/c": 3}]});
        let expected = json!([
            {"path": "/data/a", "old": "1", "new": "2"},
            {"path": "/data/gone", "old": "x"},
            {"path": "/data/new", "new": "y"},
            {"path": "/list/1/b~1c", "old": 2, "new": 3},
        ]);
        assert_eq!(fields_of("ConfigMap", &before, &after, &SecretMasking::default()), expected);
    }

    #[test]
    fn of_a_secret_only_keys_are_shown() {
        let last = json!({"name": "a", "annotations": {"last-applied": "aHVudGVyMg=="}});
        let before = json!({"data": {"password": "aHVudGVyMg==", "same": "c2FtZQ=="}});
        let after = json!({"data": {"password": "b3RoZXI=", "same": "c2FtZQ=="}, "type": "x",
            "stringData": {"token": "hunter3"}, "metadata": last});
        let fields = fields_of("Secret", &before, &after, &SecretMasking::default());
        let expected = json!([
            {"path": "/data/password", "old": MASK, "new": MASK},
            {"path": "/metadata/annotations", "new": {"last-applied": MASK}},
            {"path": "/stringData", "new": {"token": MASK}},
            {"path": "/type", "new": "x"},
        ]);
        assert_eq!(fields, expected);
    }

    #[test]
    fn what_came_from_a_secret_is_masked_in_other_objects() {
        let secrets = SecretMasking::new([b"hunter2-and-more".to_vec()]);
        let after = json!({"data": {"a": "is hunter2-and-more", "b": "plain"}});
        let expected = json!([{"path": "/data", "new": {"a": "is ****", "b": "plain"}}]);
        assert_eq!(fields_of("ConfigMap", &json!({}), &after, &secrets), expected);
        let before = json!({"data": {"a": "was what it held before", "b": "other"}});
        let expected = json!([{"path": "/data/a", "old": MASK, "new": "is ****"},
            {"path": "/data/b", "old": "other", "new": "plain"}]);
        assert_eq!(fields_of("ConfigMap", &before, &after, &secrets), expected);
        let after = json!({"data": {"a": 3, "b": "other"}});
        let before = json!({"data": {"a": "hunter2-and-more", "b": "other"}});
        let expected = json!([{"path": "/data/a", "old": MASK, "new": MASK}]);
        assert_eq!(fields_of("ConfigMap", &before, &after, &secrets), expected);
    }

    #[test]
    fn kinds_and_namespaces_may_come_with_the_objects() {
        let names = json!({"group": "example.com", "names": {"kind": "Widget"}});
        let definition = Object::new(json!({"apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition", "metadata": {"name": "w"}, "spec": names}));
        let all = [definition.unwrap(), object("Namespace", &json!({}))];
        let planned = PendingObjects::of(all.iter());
        let of = |version: &str| {
            let metadata = json!({"name": "w"});
            let value = json!({"apiVersion": version, "kind": "Widget", "metadata": metadata});
            planned.has_kind_of(&Object::new(value).unwrap())
        };
        assert!(of("example.com/v1") && !of("example.org/v1"));
        assert_eq!(planned.namespaces, BTreeSet::from(["a".to_owned()]));
    }
}
