//! Pruning: fields that a schema does not have are dropped when an object is read or written.
//!
//! Here: doing it, and saying what is lost. Elsewhere: filling in (`defaults`), judging what is left (`check`).

use serde_json::Value;

use crate::place::FieldPath;
use crate::schema::{Additional, SchemaNode};
use crate::verdict::{Problem, Sink};

/// Drops what a schema does not have from an object; `before` is the schema by which lost fields are named.
pub(crate) fn prune(
    object: &mut Value,
    node: &SchemaNode,
    before: Option<&SchemaNode>,
    sink: &mut Sink,
) {
    drop_below(object, (node, before), (true, node.keeps_unknown), &mut FieldPath::default(), sink);
}

/// Fields that every object has, which no schema needs to name.
const OF_OBJECTS: [&str; 3] = ["apiVersion", "kind", "metadata"];

fn drop_below(
    value: &mut Value,
    (node, before): (&SchemaNode, Option<&SchemaNode>),
    (is_object, keeps): (bool, bool),
    place: &mut FieldPath,
    sink: &mut Sink,
) {
    if node.is_same || !sink.step() {
        return;
    }
    match value {
        Value::Object(map) => map.retain(|name, value| {
            if is_object && OF_OBJECTS.contains(&name.as_str()) {
                return true;
            }
            let was = before.and_then(|it| it.of_key(name));
            let is_named = node.properties.contains_key(name)
                || before.is_some_and(|it| it.properties.contains_key(name));
            let mut act = |place: &mut FieldPath| match node.of_key(name) {
                Some(below) => {
                    let of = (below.own.is_embedded, below.keeps_unknown);
                    drop_below(value, (below, was), of, place, sink);
                    true
                }
                None => {
                    let is_kept = keeps || matches!(node.additional, Additional::Any);
                    // Null and nothing mean the same almost everywhere.
                    if !is_kept && !value.is_null() {
                        let text = "is no field of the new schema, and would be dropped";
                        sink.find(Problem::Lost, place, text.to_owned());
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
            let was = before.and_then(|it| it.items.as_deref());
            for item in items {
                place.item(|place| match &node.items {
                    Some(below) => {
                        let of = (below.own.is_embedded, below.keeps_unknown);
                        drop_below(item, (below, was), of, place, sink);
                    }
                    None if !keeps => {
                        let nothing = SchemaNode::default();
                        drop_below(item, (&nothing, was), (false, false), place, sink);
                    }
                    None => {}
                });
            }
        }
        _ => {}
    }
}
