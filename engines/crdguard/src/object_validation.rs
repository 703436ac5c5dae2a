//! Validates an object by a schema.
//!
//! Here: all constraints except expressions. Elsewhere: expressions (`validation_rules`), formats (`value_format`).
//!
//! Only values whose schema changed are checked. For all other values, the result is the same as before.
//!
//! Source of the semantics: kube-openapi `pkg/validation/validate`, apiextensions-apiserver `pkg/apiserver/schema`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::crd_change_verdict::{CrdChangeProblem, ObjectFindingSink};
use crate::field_path::FieldPath;
use crate::schema::{SchemaListType, SchemaNode, SchemaType, SchemaValueConstraints};
use crate::value_format::{self, FormatMatch};

/// A problem of a part of an object, or the reason why the part cannot be judged.
type ObjectValidationFinding = (CrdChangeProblem, String);

/// Validates a value and everything in it.
pub(crate) fn check(
    value: &Value,
    node: &SchemaNode,
    place: &mut FieldPath,
    sink: &mut ObjectFindingSink,
) {
    // An alternative such as `anyOf` is about a whole value, so its unchanged parts are checked, too.
    if (node.is_same && !sink.is_whole) || !sink.step() {
        return;
    }
    own(value, &node.own, place, sink);
    // For null, only type and allowed values are checked, and no alternatives.
    if value.is_null() {
        return;
    }
    junctors(value, node, place, sink);
    match value {
        Value::Object(map) => fields(map, node, place, sink),
        Value::Array(items) => {
            if let Some(below) = &node.items {
                for item in items {
                    place.item(|place| check(item, below, place, sink));
                }
            }
        }
        _ => {}
    }
}

fn fields(
    map: &Map<String, Value>,
    node: &SchemaNode,
    place: &mut FieldPath,
    sink: &mut ObjectFindingSink,
) {
    for name in &node.own.required {
        if !map.contains_key(name) {
            place.below(name, |place| sink.invalid(place, "is required".to_owned()));
        }
    }
    if node.own.is_embedded {
        for name in ["apiVersion", "kind"] {
            if map.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                place.below(name, |place| sink.invalid(place, "must not be empty".to_owned()));
            }
        }
    }
    for (name, value) in map {
        if let Some(below) = node.properties.get(name) {
            place.below(name, |place| check(value, below, place, sink));
        } else if let Some(below) = node.of_additional() {
            place.any(|place| check(value, below, place, sink));
        }
    }
}

/// Whether a value has no problem. `None` if that cannot be judged.
fn is_valid(value: &Value, node: &SchemaNode, sink: &mut ObjectFindingSink) -> Option<bool> {
    let mut inner = sink.aside();
    check(value, node, &mut FieldPath::default(), &mut inner);
    let outcome =
        match (inner.has(CrdChangeProblem::Invalid), inner.has(CrdChangeProblem::Unjudged)) {
            (true, _) => Some(false),
            (false, true) => None,
            (false, false) => Some(true),
        };
    sink.back(inner);
    outcome
}

fn junctors(value: &Value, node: &SchemaNode, place: &mut FieldPath, sink: &mut ObjectFindingSink) {
    let was_whole = std::mem::replace(&mut sink.is_whole, true);
    for part in &node.all_of {
        check(value, part, place, sink);
    }
    sink.is_whole = was_whole;
    let unjudged = || (CrdChangeProblem::Unjudged, "alternatives of the schema".to_owned());
    if !node.any_of.is_empty() {
        let all: Vec<_> = node.any_of.iter().map(|it| is_valid(value, it, sink)).collect();
        if !all.contains(&Some(true)) {
            let invalid = (CrdChangeProblem::Invalid, "fits none of `anyOf`".to_owned());
            let (problem, text) = if all.contains(&None) { unjudged() } else { invalid };
            sink.find(problem, place, text);
        }
    }
    if !node.one_of.is_empty() {
        let all: Vec<_> = node.one_of.iter().map(|it| is_valid(value, it, sink)).collect();
        let fitting = all.iter().filter(|it| **it == Some(true)).count();
        if all.contains(&None) && fitting < 2 {
            let (problem, text) = unjudged();
            sink.find(problem, place, text);
        } else if fitting != 1 {
            sink.invalid(place, format!("fits {fitting} of `oneOf`"));
        }
    }
    if let Some(not) = &node.not {
        match is_valid(value, not, sink) {
            Some(true) => sink.invalid(place, "fits `not`".to_owned()),
            Some(false) => {}
            None => {
                let (problem, text) = unjudged();
                sink.find(problem, place, text);
            }
        }
    }
}

fn own(
    value: &Value,
    own: &SchemaValueConstraints,
    place: &mut FieldPath,
    sink: &mut ObjectFindingSink,
) {
    if !own.rules.is_empty() && sink.is_aside() {
        sink.find(
            CrdChangeProblem::Unjudged,
            place,
            "expressions in alternatives of the schema".to_owned(),
        );
    }
    let mut all: Vec<ObjectValidationFinding> = Vec::new();
    let mut invalid = |text: String| all.push((CrdChangeProblem::Invalid, text));
    if let Some(text) = of_type(value, own) {
        invalid(text);
    } else if value.is_null() {
        // For null only `enum` is checked.
    } else if let Value::Number(number) = value {
        of_number(number.as_f64().unwrap_or_default(), own, &mut invalid);
    }
    let found = match value {
        Value::String(text) => of_text(text, own),
        Value::Array(items) => of_list(items, own),
        Value::Object(map) => of_map(map.len() as u64, own),
        _ => Vec::new(),
    };
    all.extend(found);
    if let Some(allowed) = &own.allowed
        && !allowed.iter().any(|it| is_equal(it, value))
    {
        all.push((CrdChangeProblem::Invalid, "is none of the allowed values".to_owned()));
    }
    for (problem, text) in all {
        sink.find(problem, place, text);
    }
}

fn of_type(value: &Value, own: &SchemaValueConstraints) -> Option<String> {
    if value.is_null() {
        let is_typed = own.of.is_some() || own.int_or_string;
        return (is_typed && !own.is_nullable).then(|| "must not be null".to_owned());
    }
    let is_integer = |value: &Value| match value.as_f64() {
        Some(number) => value.is_i64() || value.is_u64() || number.fract() == 0.0,
        None => false,
    };
    if own.int_or_string {
        let fits = value.is_string() || is_integer(value);
        return (!fits).then(|| "must be an integer or a string".to_owned());
    }
    let (fits, wanted) = match own.of? {
        SchemaType::Object => (value.is_object(), "a map"),
        SchemaType::Array => (value.is_array(), "a list"),
        SchemaType::String => (value.is_string(), "a string"),
        SchemaType::Integer => (is_integer(value), "an integer"),
        SchemaType::Number => (value.is_number(), "a number"),
        SchemaType::Boolean => (value.is_boolean(), "a boolean"),
        SchemaType::Unknown => (false, "of a type that is not known"),
    };
    // Parity(kubernetes 1.34): where strings are checked for a format, the type of strings and lists is not.
    let is_number = matches!(own.of, Some(SchemaType::Integer | SchemaType::Number));
    let is_exempt = (value.is_string() || value.is_array())
        && !is_number
        && value_format::is_checked(&own.format);
    (!fits && !is_exempt).then(|| format!("must be {wanted}"))
}

fn of_number(number: f64, own: &SchemaValueConstraints, invalid: &mut impl FnMut(String)) {
    if own.maximum.is_some_and(|it| number > it || (own.exclusive_maximum && number >= it)) {
        invalid("is greater than the maximum".to_owned());
    }
    if own.minimum.is_some_and(|it| number < it || (own.exclusive_minimum && number <= it)) {
        invalid("is less than the minimum".to_owned());
    }
    let is_multiple = |of: f64| {
        let times = number / of;
        (times - times.round()).abs() < 1e-9
    };
    if own.multiple_of.is_some_and(|it| it > 0.0 && !is_multiple(it)) {
        invalid("is no multiple of what it must be".to_owned());
    }
    if matches!(own.of, Some(SchemaType::Integer | SchemaType::Number))
        && !value_format::of_number(&own.format, number)
    {
        invalid(format!("is out of the range of {}", own.format));
    }
}

fn of_text(text: &str, own: &SchemaValueConstraints) -> Vec<ObjectValidationFinding> {
    let mut found = Vec::new();
    let mut invalid = |text: &str| found.push((CrdChangeProblem::Invalid, text.to_owned()));
    let length = text.chars().count() as u64;
    if own.max_length.is_some_and(|it| length > it) {
        invalid("is too long");
    }
    if own.min_length.is_some_and(|it| length < it) {
        invalid("is too short");
    }
    if let Some(pattern) = &own.pattern {
        match &pattern.regexp {
            Some(regexp) if regexp.is_match(text) => {}
            Some(_) => invalid(&format!("does not match the pattern `{}`", pattern.text)),
            None => {
                found.push((CrdChangeProblem::Unjudged, "its pattern cannot be read".to_owned()));
            }
        }
    }
    if own.of == Some(SchemaType::String) {
        match value_format::of_text(&own.format, text) {
            FormatMatch::Yes => {}
            FormatMatch::No => {
                found.push((
                    CrdChangeProblem::Invalid,
                    format!("has not the format {}", own.format),
                ));
            }
            FormatMatch::Unknown => {
                found.push((CrdChangeProblem::Unjudged, format!("format {}", own.format)));
            }
        }
    }
    found
}

fn of_map(length: u64, own: &SchemaValueConstraints) -> Vec<ObjectValidationFinding> {
    let mut found = Vec::new();
    if own.max_properties.is_some_and(|it| length > it) {
        found.push((CrdChangeProblem::Invalid, "has too many fields".to_owned()));
    }
    if own.min_properties.is_some_and(|it| length < it) {
        found.push((CrdChangeProblem::Invalid, "has too few fields".to_owned()));
    }
    found
}

fn of_list(items: &[Value], own: &SchemaValueConstraints) -> Vec<ObjectValidationFinding> {
    let mut found = Vec::new();
    let length = items.len() as u64;
    if own.max_items.is_some_and(|it| length > it) {
        found.push((CrdChangeProblem::Invalid, "has too many items".to_owned()));
    }
    if own.min_items.is_some_and(|it| length < it) {
        found.push((CrdChangeProblem::Invalid, "has too few items".to_owned()));
    }
    let key_of = |item: &Value| match own.list {
        SchemaListType::Map => {
            let key: Vec<&Value> = own.keys.iter().map(|it| &item[it.as_str()]).collect();
            serde_json::to_string(&key).unwrap_or_default()
        }
        SchemaListType::Set | SchemaListType::Atomic => item.to_string(),
    };
    let mut keys = BTreeSet::new();
    if own.list != SchemaListType::Atomic && !items.iter().all(|item| keys.insert(key_of(item))) {
        let what = if own.list == SchemaListType::Set { "items" } else { "keys" };
        found.push((CrdChangeProblem::Invalid, format!("has duplicate {what}")));
    }
    found
}

/// Whether two JSON values are equal. The numbers 1 and 1.0 are equal.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        _ => one == other,
    }
}
