//! Defaulting: the values that the API server sets when it reads an object.
//!
//! Here: dropping nulls, setting defaults, and finding changed defaults. Elsewhere: dropping the fields that a schema
//! does not have (`field_pruning`).

use serde_json::Value;

use crate::crd_change_verdict::{CrdChangeProblem, ObjectFindingSink};
use crate::field_path::FieldPath;
use crate::schema::SchemaNode;

/// Sets the defaults of a schema. A null that the schema does not allow is dropped, or becomes the default.
pub(crate) fn fill(value: &mut Value, node: &SchemaNode, sink: &mut ObjectFindingSink) {
    fill_below(value, node, false, sink);
}

/// Sets the defaults within a value. `is_new` means that the value is a default itself, so that the old schema set
/// nothing in it.
fn fill_below(value: &mut Value, node: &SchemaNode, is_new: bool, sink: &mut ObjectFindingSink) {
    if (node.is_same && !is_new) || !sink.step() {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, below) in &node.properties {
                let is_absent = !map.contains_key(name);
                if let (true, Some(default)) = (is_absent, &below.own.default) {
                    let mut default = default.clone();
                    fill_below(&mut default, below, true, sink);
                    map.insert(name.clone(), default);
                }
            }
            map.retain(|name, value| match node.of_key(name) {
                Some(below) => fill_item(value, below, is_new, sink),
                None => true,
            });
        }
        Value::Array(items) => {
            let Some(below) = &node.items else { return };
            for item in items {
                fill_item(item, below, is_new, sink);
            }
        }
        _ => {}
    }
}

/// Sets the defaults within an item. Returns whether the item stays.
fn fill_item(
    value: &mut Value,
    node: &SchemaNode,
    is_new: bool,
    sink: &mut ObjectFindingSink,
) -> bool {
    let is_forbidden = is_forbidden_null(value, node);
    if is_forbidden {
        match &node.own.default {
            Some(default) => *value = default.clone(),
            None => return false,
        }
    }
    fill_below(value, node, is_new || is_forbidden, sink);
    true
}

fn is_forbidden_null(value: &Value, node: &SchemaNode) -> bool {
    value.is_null() && !node.own.is_nullable
}

/// Finds fields whose value equals the old default, if the default changes or is removed. Such a value may have been
/// set by a user or by defaulting.
pub(crate) fn changed(
    value: &Value,
    node: &SchemaNode,
    before: &SchemaNode,
    place: &mut FieldPath,
    sink: &mut ObjectFindingSink,
) {
    if node.is_same || !sink.step() {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let pair = node.of_key(name).zip(before.of_key(name));
                let Some((node, was)) = pair else { continue };
                let mut look = |place: &mut FieldPath| {
                    if let Some(default) = &was.own.default
                        && node.own.default.as_ref() != Some(default)
                        && value == default
                    {
                        sink.find(CrdChangeProblem::Default, place, default_text(node));
                    }
                    changed(value, node, was, place, sink);
                };
                match before.properties.contains_key(name) {
                    true => place.below(name, &mut look),
                    false => place.any(&mut look),
                }
            }
        }
        Value::Array(items) => {
            let pair = node.items.as_deref().zip(before.items.as_deref());
            let Some((node, was)) = pair else { return };
            for value in items {
                place.item(|place| changed(value, node, was, place, sink));
            }
        }
        _ => {}
    }
}

fn default_text(node: &SchemaNode) -> String {
    match node.own.default {
        Some(_) => "has the value of the former default; the new default is another".to_owned(),
        None => "has the value of the former default; there is no default any more".to_owned(),
    }
}
