//! Pruning: the API server drops fields that a schema does not have when it reads or writes an object.
//!
//! Here: dropping these fields, and reporting which are lost. Elsewhere: defaults (`field_defaults`), and validating
//! the result (`object_validation`).

use serde_json::Value;

use crate::crd_change_verdict::{CrdChangeProblem, ObjectFindingSink};
use crate::field_path::FieldPath;
use crate::schema::{AdditionalProperties, SchemaNode, SchemaNodeWithPrevious};

/// Drops the fields of an object that a schema does not have. `before` is the schema by which lost fields are named.
pub(crate) fn prune(
    object: &mut Value,
    node: &SchemaNode,
    before: Option<&SchemaNode>,
    sink: &mut ObjectFindingSink,
) {
    let change = SchemaNodeWithPrevious { node, before };
    drop_below(object, change, true, &mut FieldPath::default(), sink);
}

/// Fields that every object may have although no schema names them.
const OF_OBJECTS: [&str; 3] = ["apiVersion", "kind", "metadata"];

fn drop_below(
    value: &mut Value,
    change: SchemaNodeWithPrevious<'_>,
    is_object: bool,
    place: &mut FieldPath,
    sink: &mut ObjectFindingSink,
) {
    let SchemaNodeWithPrevious { node, before } = change;
    if node.is_same || !sink.step() {
        return;
    }
    match value {
        Value::Object(map) => map.retain(|name, value| {
            if is_object && OF_OBJECTS.contains(&name.as_str()) {
                return true;
            }
            let is_named = node.properties.contains_key(name)
                || before.is_some_and(|it| it.properties.contains_key(name));
            let mut act = |place: &mut FieldPath| match change.of_key(name) {
                Some(below) => {
                    drop_below(value, below, below.node.own.is_embedded, place, sink);
                    true
                }
                None => {
                    let is_kept =
                        node.keeps_unknown || matches!(node.additional, AdditionalProperties::Any);
                    // A null means the same as a missing field almost everywhere, so dropping it loses
                    // nothing.
                    if !is_kept && !value.is_null() {
                        let text = "is no field of the new schema, and would be dropped";
                        sink.find(CrdChangeProblem::Lost, place, text.to_owned());
                    }
                    is_kept
                }
            };
            match is_named {
                true => place.below(name, &mut act),
                false => place.any(&mut act),
            }
        }),
        Value::Array(items) => {
            for item in items {
                place.item(|place| match change.of_items() {
                    Some(below) => {
                        drop_below(item, below, below.node.own.is_embedded, place, sink);
                    }
                    None if !node.keeps_unknown => {
                        let nothing = SchemaNode::default();
                        let before = before.and_then(|it| it.items.as_deref());
                        let below = SchemaNodeWithPrevious { node: &nothing, before };
                        drop_below(item, below, false, place, sink);
                    }
                    None => {}
                });
            }
        }
        _ => {}
    }
}
