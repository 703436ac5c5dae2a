//! Fields of an object that the type of its kind does not know, such as a misspelt one.
//!
//! An object is decoded into its type and encoded again ([`super::typed_round_trip`]). Fields that are missing after that
//! are unknown.

use serde_json::{Map, Value};

/// How many unknown fields of an object are reported. A manifest may have any number of them, and their paths are
/// written to a status.
pub(crate) const MAX_UNKNOWN_FIELDS: usize = 5;

/// The paths of the fields with a value that an object has and its type did not write, such as
/// `spec.template.spec.container`.
pub(super) fn fields(before: &Map<String, Value>, written: &Map<String, Value>) -> Vec<String> {
    let mut search = UnknownFieldSearch { path: Vec::new(), unknown: Vec::new() };
    search.map(before, written);
    search.unknown
}

/// A step of a path.
#[derive(Clone, Copy)]
enum FieldPathStep<'a> {
    Field(&'a str),
    Item(usize),
}

struct UnknownFieldSearch<'a> {
    path: Vec<FieldPathStep<'a>>,
    unknown: Vec<String>,
}

impl<'a> UnknownFieldSearch<'a> {
    fn map(&mut self, before: &'a Map<String, Value>, written: &Map<String, Value>) {
        for (name, value) in before {
            if self.unknown.len() >= MAX_UNKNOWN_FIELDS {
                return;
            }
            self.path.push(FieldPathStep::Field(name));
            match written.get(name) {
                Some(written) => self.value(value, written),
                None if has_value(value) => self.unknown.push(self.shown_path()),
                None => {}
            }
            self.path.pop();
        }
    }

    fn value(&mut self, before: &'a Value, written: &Value) {
        match (before, written) {
            (Value::Object(before), Value::Object(written)) => self.map(before, written),
            (Value::Array(before), Value::Array(written)) => {
                for (at, (before, written)) in before.iter().zip(written).enumerate() {
                    self.path.push(FieldPathStep::Item(at));
                    self.value(before, written);
                    self.path.pop();
                }
            }
            _ => {}
        }
    }

    fn shown_path(&self) -> String {
        let mut shown = String::new();
        for step in &self.path {
            match step {
                FieldPathStep::Field(name) if shown.is_empty() => shown.push_str(name),
                FieldPathStep::Field(name) => {
                    shown.push('.');
                    shown.push_str(name);
                }
                FieldPathStep::Item(at) => {
                    shown.push('[');
                    shown.push_str(&at.to_string());
                    shown.push(']');
                }
            }
        }
        shown
    }
}

/// Whether it makes a difference to leave a value out. Types leave out empty values anyway.
fn has_value(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.values().any(has_value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::canonical;
    use super::*;

    fn unknown(object: Value) -> Vec<String> {
        let Value::Object(mut object) = object else { panic!() };
        canonical(&mut object)
    }

    #[test]
    fn fields_with_a_value_that_a_kind_does_not_know_are_named_with_their_path() {
        let container = json!({"name": "web", "image": "web:1", "port": [{"containerPort": 80}]});
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replica": 3, "template": {"spec": {"containers": [container]}}}});
        assert_eq!(unknown(object), ["spec.replica", "spec.template.spec.containers[0].port"]);
    }

    #[test]
    fn what_a_type_leaves_out_because_it_is_empty_is_not_named() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "creationTimestamp": null, "labels": {}},
            "spec": {"paused": false, "minReadySeconds": 0, "strategy": {},
                "template": {"spec": {"nodeName": "", "containers": [], "securityContext": {}}}},
            "status": {}});
        assert_eq!(unknown(object), [""; 0]);
    }

    #[test]
    fn kinds_without_a_type_have_no_unknown_fields() {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Thing", "spec": {"any": 1}});
        assert_eq!(unknown(object), [""; 0]);
    }

    #[test]
    fn few_of_many_are_named() {
        let data: Map<String, Value> = (0..100).map(|at| (format!("f{at}"), json!(1))).collect();
        let object =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": data});
        assert_eq!(unknown(object).len(), MAX_UNKNOWN_FIELDS);
    }
}
