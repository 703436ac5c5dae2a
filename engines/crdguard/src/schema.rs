//! Structural schemas, read once and used for many objects.
//!
//! Here: the tree of a schema, and which parts are the same in another schema. Elsewhere: using a schema
//! (`field_defaults`, `field_pruning`, `object_validation`, `validation_rules`).

use std::cell::Cell;
use std::collections::BTreeMap;

use golang::regexp::GoRegexp;
use golang::work_meter::StopSignal;
use serde_json::Value;

use crate::crd_change_verdict::{CrdChangeProblem, ObjectFindingSink};
use crate::field_path::FieldPath;
use crate::validation_rules::{self, ValidationRule};
use crate::{field_defaults, field_pruning, object_validation};

/// The deepest nesting of a schema that is read. Windlass cannot read deeper JSON from the API server anyway.
const MAX_DEPTH: usize = 128;

/// How many parts a schema may have. Each part takes half a KiB, however short its text is.
const MAX_NODES: usize = 200_000;

/// The schema of one version.
#[derive(Debug, Default)]
pub struct CrdVersionSchema {
    pub(crate) root: SchemaNode,
}

impl CrdVersionSchema {
    /// Reads `openAPIV3Schema`. A null gives an empty schema. `keeps_unknown` is `spec.preserveUnknownFields`.
    ///
    /// `None` if the schema nests too deeply or has too many parts.
    pub fn read(value: &Value, keeps_unknown: bool) -> Option<Self> {
        let mut root = SchemaNode::read(value, MAX_DEPTH, &Cell::new(MAX_NODES))?;
        root.keeps_unknown |= keeps_unknown;
        Some(Self { root })
    }

    /// Whether the API server would create an object under this schema. The result is the object that it would store,
    /// or the problems.
    ///
    /// `None` if that cannot be judged.
    pub fn create(&self, object: &Value) -> Option<Result<Value, Vec<String>>> {
        let mut sink = ObjectFindingSink::new(&StopSignal::default());
        let mut place = FieldPath::default();
        let mut next = object.clone();
        field_defaults::fill(&mut next, &self.root, &mut sink);
        field_pruning::prune(&mut next, &self.root, None, &mut sink);
        // Problems in a dropped value do not count against a new object.
        drop(sink.take());
        object_validation::check(&next, &self.root, &mut place, &mut sink);
        if !sink.has(CrdChangeProblem::Invalid) {
            let change = SchemaNodeWithPrevious { node: &self.root, before: None };
            validation_rules::ask(&next, change, None, &mut place, &mut sink);
        }
        let found = sink.take();
        let invalid = found.iter().filter(|it| it.0 == CrdChangeProblem::Invalid);
        let invalid: Vec<String> = invalid.map(|(_, path, why)| format!("{path} {why}")).collect();
        match (invalid.is_empty(), found.is_empty()) {
            (true, true) => Some(Ok(next)),
            (true, false) => None,
            (false, _) => Some(Err(invalid)),
        }
    }

    /// Marks the parts that are the same in another schema, so that they need not be judged.
    pub(crate) fn mark(&mut self, before: &Self) {
        mark(&mut self.root, &before.root);
    }
}

/// The type that a value must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// A type that OpenAPI does not have.
    Unknown,
}

/// The type of a list: how its items are merged and compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum SchemaListType {
    #[default]
    Atomic,
    Set,
    Map,
}

/// A regular expression. It is `None` inside if it cannot be read.
#[derive(Debug)]
pub(crate) struct SchemaPattern {
    pub(crate) text: String,
    pub(crate) regexp: Option<GoRegexp>,
}

impl PartialEq for SchemaPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// The constraints of a node on its own value.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SchemaValueConstraints {
    pub(crate) of: Option<SchemaType>,
    pub(crate) is_nullable: bool,
    pub(crate) int_or_string: bool,
    pub(crate) format: String,
    pub(crate) maximum: Option<f64>,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) pattern: Option<SchemaPattern>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) required: Vec<String>,
    pub(crate) allowed: Option<Vec<Value>>,
    pub(crate) default: Option<Value>,
    pub(crate) is_embedded: bool,
    pub(crate) list: SchemaListType,
    pub(crate) keys: Vec<String>,
    pub(crate) rules: Vec<ValidationRule>,
}

/// The fields of a map that the schema does not name.
#[derive(Debug, Default)]
pub(crate) enum AdditionalProperties {
    /// These fields are pruned.
    #[default]
    None,
    /// These fields are kept without validation.
    Any,
    /// These fields are kept and validated by a schema.
    Of(Box<SchemaNode>),
}

/// A schema or a part of one.
#[derive(Debug, Default)]
pub(crate) struct SchemaNode {
    pub(crate) own: SchemaValueConstraints,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub(crate) keeps_unknown: bool,
    pub(crate) properties: BTreeMap<String, Self>,
    pub(crate) additional: AdditionalProperties,
    pub(crate) items: Option<Box<Self>>,
    pub(crate) all_of: Vec<Self>,
    pub(crate) any_of: Vec<Self>,
    pub(crate) one_of: Vec<Self>,
    pub(crate) not: Option<Box<Self>>,
    /// Whether this part is the same in the other schema.
    pub(crate) is_same: bool,
}

/// A part of a schema, with the same part of the old schema if that has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaNodeWithPrevious<'s> {
    pub(crate) node: &'s SchemaNode,
    pub(crate) before: Option<&'s SchemaNode>,
}

impl SchemaNodeWithPrevious<'_> {
    /// The schema of a field. `None` if the schema does not have the field.
    pub(crate) fn of_key(self, key: &str) -> Option<Self> {
        let node = self.node.of_key(key)?;
        Some(Self { node, before: self.before.and_then(|it| it.of_key(key)) })
    }

    /// The schema of the items of a list. `None` if this schema does not say what its items are.
    pub(crate) fn of_items(self) -> Option<Self> {
        let node = self.node.items.as_deref()?;
        Some(Self { node, before: self.before.and_then(|it| it.items.as_deref()) })
    }
}

impl SchemaNode {
    /// The schema of a field, which is the schema for additional properties if the field is not listed. `None` if
    /// neither is given.
    pub(crate) fn of_key(&self, key: &str) -> Option<&Self> {
        self.properties.get(key).or_else(|| self.of_additional())
    }

    pub(crate) fn of_additional(&self) -> Option<&Self> {
        match &self.additional {
            AdditionalProperties::Of(node) => Some(node),
            AdditionalProperties::Any | AdditionalProperties::None => None,
        }
    }

    fn read(value: &Value, depth: usize, nodes: &Cell<usize>) -> Option<Self> {
        let below = depth.checked_sub(1)?;
        nodes.set(nodes.get().checked_sub(1)?);
        let one = |name: &str| match &value[name] {
            Value::Object(_) => {
                Self::read(&value[name], below, nodes).map(|node| Some(Box::new(node)))
            }
            _ => Some(None),
        };
        let all = |name: &str| -> Option<Vec<Self>> {
            value[name]
                .as_array()
                .into_iter()
                .flatten()
                .map(|it| Self::read(it, below, nodes))
                .collect()
        };
        let properties = value["properties"].as_object().into_iter().flatten();
        let properties =
            properties.map(|(key, it)| Some((key.clone(), Self::read(it, below, nodes)?)));
        let additional = match &value["additionalProperties"] {
            Value::Bool(true) => AdditionalProperties::Any,
            Value::Object(_) => AdditionalProperties::Of(Box::new(Self::read(
                &value["additionalProperties"],
                below,
                nodes,
            )?)),
            _ => AdditionalProperties::None,
        };
        Some(Self {
            own: SchemaValueConstraints::read(value),
            keeps_unknown: is(value, "x-kubernetes-preserve-unknown-fields"),
            properties: properties.collect::<Option<_>>()?,
            additional,
            items: one("items")?,
            all_of: all("allOf")?,
            any_of: all("anyOf")?,
            one_of: all("oneOf")?,
            not: one("not")?,
            is_same: false,
        })
    }
}

fn is(value: &Value, name: &str) -> bool {
    value[name] == true
}

impl SchemaValueConstraints {
    fn read(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().unwrap_or_default();
        let strings = |name: &str| -> Vec<String> {
            let all = value[name].as_array().into_iter().flatten();
            all.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let pattern = Some(text("pattern")).filter(|it| !it.is_empty());
        let rules = value["x-kubernetes-validations"].as_array().into_iter().flatten();
        Self {
            of: type_of(text("type")),
            is_nullable: is(value, "nullable"),
            int_or_string: is(value, "x-kubernetes-int-or-string"),
            format: text("format").to_owned(),
            maximum: value["maximum"].as_f64(),
            minimum: value["minimum"].as_f64(),
            exclusive_maximum: is(value, "exclusiveMaximum"),
            exclusive_minimum: is(value, "exclusiveMinimum"),
            multiple_of: value["multipleOf"].as_f64(),
            max_length: value["maxLength"].as_u64(),
            min_length: value["minLength"].as_u64(),
            pattern: pattern.map(|text| SchemaPattern {
                text: text.to_owned(),
                regexp: GoRegexp::new(text).ok(),
            }),
            max_items: value["maxItems"].as_u64(),
            min_items: value["minItems"].as_u64(),
            max_properties: value["maxProperties"].as_u64(),
            min_properties: value["minProperties"].as_u64(),
            required: strings("required"),
            allowed: value["enum"].as_array().filter(|it| !it.is_empty()).cloned(),
            default: Some(&value["default"]).filter(|it| !it.is_null()).cloned(),
            is_embedded: is(value, "x-kubernetes-embedded-resource"),
            list: match text("x-kubernetes-list-type") {
                "set" => SchemaListType::Set,
                "map" => SchemaListType::Map,
                _ => SchemaListType::Atomic,
            },
            keys: strings("x-kubernetes-list-map-keys"),
            rules: rules.map(ValidationRule::read).collect(),
        }
    }
}

fn type_of(text: &str) -> Option<SchemaType> {
    Some(match text {
        "" => return None,
        "object" => SchemaType::Object,
        "array" => SchemaType::Array,
        "string" => SchemaType::String,
        "integer" => SchemaType::Integer,
        "number" => SchemaType::Number,
        "boolean" => SchemaType::Boolean,
        _ => SchemaType::Unknown,
    })
}

/// Marks unchanged parts from the leaves upwards. Returns whether the whole part is unchanged.
fn mark(node: &mut SchemaNode, before: &SchemaNode) -> bool {
    let mut is_same = node.own == before.own
        && node.keeps_unknown == before.keeps_unknown
        && node.properties.len() == before.properties.len();
    for (name, node) in &mut node.properties {
        is_same &= before.properties.get(name).is_some_and(|before| mark(node, before));
    }
    is_same &= match (&mut node.additional, &before.additional) {
        (AdditionalProperties::None, AdditionalProperties::None)
        | (AdditionalProperties::Any, AdditionalProperties::Any) => true,
        (AdditionalProperties::Of(node), AdditionalProperties::Of(before)) => mark(node, before),
        _ => false,
    };
    is_same &= mark_one(&mut node.items, &before.items) & mark_one(&mut node.not, &before.not);
    let lists = [
        (&mut node.all_of, &before.all_of),
        (&mut node.any_of, &before.any_of),
        (&mut node.one_of, &before.one_of),
    ];
    for (nodes, before) in lists {
        is_same &= nodes.len() == before.len();
        for (node, before) in nodes.iter_mut().zip(before) {
            is_same &= mark(node, before);
        }
    }
    node.is_same = is_same;
    is_same
}

fn mark_one(node: &mut Option<Box<SchemaNode>>, before: &Option<Box<SchemaNode>>) -> bool {
    match (node, before) {
        (None, None) => true,
        (Some(node), Some(before)) => mark(node, before),
        _ => false,
    }
}
