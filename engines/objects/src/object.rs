//! One Kubernetes object as a JSON value that is known to have a kind and a name.

use serde_json::{Map, Value};

use crate::id::{Gvk, ObjectId};

/// A JSON object with `apiVersion`, `kind` and `metadata.name`.
///
/// # Guarantees
/// The accessors below cannot fail, because [`Object::new`] checked the fields that they read. Entries of `metadata.labels` and
/// `metadata.annotations` that are not strings are ignored.
#[derive(Debug, Clone, PartialEq)]
pub struct Object(Map<String, Value>);

/// Why a value is not a Kubernetes object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// A list, a number, a text.
    #[error("a manifest must be a mapping with apiVersion, kind and metadata, not {0}")]
    NotAMapping(&'static str),
    /// A field is absent, empty or of another type.
    #[error("`{0}` is missing or not a string; every manifest requires it")]
    Missing(&'static str),
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

impl Object {
    /// Checks that a value has the fields that every object needs.
    ///
    /// # Errors
    /// The missing field.
    pub fn new(value: Value) -> Result<Self, ObjectError> {
        let Value::Object(map) = value else {
            return Err(ObjectError::NotAMapping(kind_of(&value)));
        };
        let text =
            |value: Option<&Value>| value.and_then(Value::as_str).is_some_and(|s| !s.is_empty());
        if !text(map.get("apiVersion")) {
            return Err(ObjectError::Missing("apiVersion"));
        }
        if !text(map.get("kind")) {
            return Err(ObjectError::Missing("kind"));
        }
        if !text(map.get("metadata").and_then(|m| m.get("name"))) {
            return Err(ObjectError::Missing("metadata.name"));
        }
        Ok(Self(map))
    }

    /// The group, version and kind of the object, from `apiVersion` and `kind`.
    pub fn gvk(&self) -> Gvk {
        Gvk::new(self.text("apiVersion"), self.text("kind"))
    }

    /// The id of the object: namespace, name, group and kind.
    pub fn id(&self) -> ObjectId {
        let Gvk { group, kind, .. } = self.gvk();
        ObjectId::new(self.namespace(), self.name(), &group, &kind)
    }

    /// The kind of the object, from its field `kind`.
    pub fn kind(&self) -> &str {
        self.text("kind")
    }

    /// The API version of the object, from its field `apiVersion`.
    pub fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    /// The name of the object, from `metadata.name`. It is empty if the object has none.
    pub fn name(&self) -> &str {
        self.meta("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// `metadata.namespace`, empty when there is none.
    pub fn namespace(&self) -> &str {
        self.meta("namespace").and_then(Value::as_str).unwrap_or_default()
    }

    /// Puts the object into a namespace.
    pub fn set_namespace(&mut self, namespace: &str) {
        self.metadata_mut().insert("namespace".into(), namespace.into());
    }

    /// The value of a field of the object's `metadata`. `None` if the field is missing.
    pub fn meta(&self, field: &str) -> Option<&Value> {
        self.0.get("metadata").and_then(|m| m.get(field))
    }

    /// The `metadata` of the object, to change it. It is created if it is missing.
    pub fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        let metadata = self.0.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if !metadata.is_object() {
            *metadata = Value::Object(Map::new());
        }
        metadata.as_object_mut().expect("it was made an object above")
    }

    /// The value of a label. `None` if the object does not have the label or its value is not a text.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.meta("labels").and_then(|l| l.get(key)).and_then(Value::as_str)
    }

    /// The value of an annotation. `None` if the object does not have the annotation or its value is not a text.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.meta("annotations").and_then(|a| a.get(key)).and_then(Value::as_str)
    }

    /// Sets a label of the object.
    pub fn set_label(&mut self, key: &str, value: &str) {
        self.set_meta_entry("labels", key, value);
    }

    /// Sets an annotation of the object.
    pub fn set_annotation(&mut self, key: &str, value: &str) {
        self.set_meta_entry("annotations", key, value);
    }

    fn set_meta_entry(&mut self, map: &str, key: &str, value: &str) {
        let entries = self.metadata_mut().entry(map).or_insert_with(|| Value::Object(Map::new()));
        if !entries.is_object() {
            *entries = Value::Object(Map::new());
        }
        if let Some(entries) = entries.as_object_mut() {
            entries.insert(key.into(), value.into());
        }
    }

    /// `metadata.uid`, empty before the cluster gave one.
    pub fn uid(&self) -> &str {
        self.meta("uid").and_then(Value::as_str).unwrap_or_default()
    }

    /// `metadata.generation`, 0 when there is none.
    pub fn generation(&self) -> i64 {
        self.meta("generation").and_then(Value::as_i64).unwrap_or_default()
    }

    /// The value of a top-level field of the object. `None` if the field is missing.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }

    /// The whole object, to read.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// All fields of the object, for changes. If a field that [`Object::new`] checked is removed, its accessor returns "".
    pub fn fields_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.0
    }

    /// The whole object as a value.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    fn text(&self, field: &str) -> &str {
        self.0.get(field).and_then(Value::as_str).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_says_what_it_is_called() {
        let object = Object::new(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop"}}))
        .unwrap();
        assert_eq!(object.id().to_string(), "shop_web_apps_Deployment");
        assert_eq!(object.id().subject(), "Deployment/shop/web");
        assert_eq!(object.gvk().api_version(), "apps/v1");
    }

    #[test]
    fn a_manifest_without_a_name_is_refused_by_the_field() {
        let error = Object::new(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}}));
        assert_eq!(error.unwrap_err(), ObjectError::Missing("metadata.name"));
        assert_eq!(Object::new(json!([1])).unwrap_err(), ObjectError::NotAMapping("a list"));
    }

    #[test]
    fn labels_are_set_where_there_were_none() {
        let mut object = Object::new(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": null}}),
        )
        .unwrap();
        object.set_label("a", "b");
        assert_eq!(object.label("a"), Some("b"));
    }
}
