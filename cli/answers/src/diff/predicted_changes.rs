//! The predicted changes of objects, and the objects that cannot be compared.
//!
//! Elsewhere: predicting one object (`windlass_cli_plan::object_prediction`), comparing and masking fields
//! (`plan::FieldChangeList`), printing changes (the command `windlass diff`).

use objects::{Gvk, Object, ObjectId, SecretMasking};
use plan::{FieldChangeLimits, FieldChangeList};
use serde::Serialize;

use windlass_cli_plan::object_prediction::{ObjectPrediction, PredictionFailure};

/// The predicted action on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DiffAction {
    /// The object does not exist yet.
    Created,
    /// Some fields of the object change.
    Changed,
    /// The object is deleted and created again.
    Recreated,
    /// The object is deleted.
    Removed,
}

/// A predicted change of an object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiffChange {
    /// The predicted action.
    pub action: DiffAction,
    /// The object.
    pub object: DiffObjectReference,
    /// The fields that would change. Values of Secrets are masked.
    #[serde(flatten)]
    pub fields: FieldChangeList,
    /// A further remark about the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// The name of an object in a diff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffObjectReference {
    pub(super) api_version: String,
    pub(super) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    pub(super) name: String,
}

impl DiffObjectReference {
    /// The identity of the object, without the API version.
    pub fn id(&self) -> ObjectId {
        let group = Gvk::new(&self.api_version, &self.kind).group;
        ObjectId::new(&self.namespace, &self.name, &group, &self.kind)
    }

    /// The name of the changed object for messages: `Kind/namespace/name`.
    pub fn subject(&self) -> String {
        self.id().subject()
    }
}

/// The limits for listed fields of an object. Values are not shortened.
const FIELD_CHANGE_LIMITS: FieldChangeLimits =
    FieldChangeLimits { max_listed_fields: 1000, cuts_values: false };

impl DiffChange {
    /// Makes a change without fields.
    pub fn of(action: DiffAction, object: &Object) -> Self {
        let object = DiffObjectReference {
            api_version: object.api_version().to_owned(),
            kind: object.kind().to_owned(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
        };
        Self { action, object, fields: FieldChangeList::default(), note: None }
    }

    /// Compares an object with its predicted state.
    pub fn between(live: &Object, after: &Object, secrets: &SecretMasking) -> Self {
        let fields = FieldChangeList::between(live, after, secrets, FIELD_CHANGE_LIMITS);
        Self { fields, ..Self::of(DiffAction::Changed, live) }
    }

    /// Adds a note to the change.
    pub fn noted(self, note: Option<&'static str>) -> Self {
        Self { note, ..self }
    }
}

/// The predicted changes, and the problems of the comparison.
#[derive(Debug, Default)]
pub struct DiffReport {
    /// The objects that would change.
    pub changes: Vec<DiffChange>,
    /// How many objects would stay unchanged.
    pub unchanged: usize,
    /// How many objects are excluded from being applied.
    pub skipped: usize,
    /// Why some objects cannot be compared.
    pub problems: Vec<String>,
}

impl DiffReport {
    /// Adds the prediction for an object.
    pub(super) fn add(
        &mut self,
        predicted: Result<ObjectPrediction, PredictionFailure>,
        secrets: &SecretMasking,
    ) {
        let change = match predicted {
            Ok(ObjectPrediction::Created { object, note }) => {
                DiffChange::of(DiffAction::Created, &object).noted(note)
            }
            Ok(ObjectPrediction::Changed(update)) => {
                DiffChange::between(&update.live, &update.after, secrets).noted(update.note)
            }
            Ok(ObjectPrediction::Recreated(update)) => {
                DiffChange::of(DiffAction::Recreated, &update.live).noted(update.note)
            }
            Ok(ObjectPrediction::Same(_)) => {
                self.unchanged += 1;
                return;
            }
            Ok(ObjectPrediction::Skipped(_)) => {
                self.skipped += 1;
                return;
            }
            Err(failure) => {
                self.problems.push(failure.into_text());
                return;
            }
        };
        self.changes.push(change);
    }

    /// Adds an object that is no longer among the built objects, in its current state. Nothing is added if the object no longer
    /// exists.
    pub(super) fn add_left(
        &mut self,
        left: Result<Option<Object>, String>,
        is_kept: KeepPolicyCheck,
    ) {
        match left {
            Ok(None) => {}
            Ok(Some(live)) if is_kept(&live) => self.skipped += 1,
            Ok(Some(live)) => self.changes.push(DiffChange::of(DiffAction::Removed, &live)),
            Err(problem) => self.problems.push(problem),
        }
    }
}

/// Decides whether an object that is missing among the built objects itself requests to stay.
pub(super) type KeepPolicyCheck = fn(&Object) -> bool;

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

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
}
