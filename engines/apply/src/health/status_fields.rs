//! Reads fields of a status as the Go library does: leniently for counts, strictly for generations and conditions.
//!
//! Here: values at a path of fields, conditions, and the errors of both. Elsewhere: the meaning of the values.

use objects::Object;
use serde_json::Value;

/// Why a status cannot be understood. The text is the Go library's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MalformedStatusError(pub(super) String);

/// A condition as every API writes it; absent strings are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct StatusCondition<'a> {
    pub(super) kind: &'a str,
    pub(super) status: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
}

/// The type of a value in Go's words (`%T`).
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The kind of a value in Go's words (`reflect.Kind`).
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => go_type(value),
    }
}

fn accessor_error(path: &[&str], value: &Value, expected: &str) -> MalformedStatusError {
    let shown = match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        // Differs(flux): Go prints the whole content here, which does not help and can be long.
        Value::Array(_) => "[...]".to_owned(),
        Value::Object(_) => "map[...]".to_owned(),
    };
    let path = path.join(".");
    let found = go_type(value);
    MalformedStatusError(format!(
        ".{path} accessor error: {shown} is of the type {found}, expected {expected}"
    ))
}

fn looking_up(path: &[&str], error: MalformedStatusError) -> MalformedStatusError {
    MalformedStatusError(format!("looking up {} from resource: {error}", path.join(".")))
}

/// The value at a path. There is no value if a parent is null. A parent of any other type than a mapping is an error.
pub(super) fn lookup<'a>(
    object: &'a Object,
    path: &[&str],
) -> Result<Option<&'a Value>, MalformedStatusError> {
    let Some((first, rest)) = path.split_first() else { return Ok(None) };
    let mut found = object.get(first);
    for field in rest {
        found = match found {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(map)) => map.get(*field),
            Some(other) => return Err(accessor_error(path, other, "map[string]interface{}")),
        };
    }
    Ok(found)
}

/// The text at a path, if there is one. A value of another type is an error.
pub(super) fn string_strict<'a>(
    object: &'a Object,
    path: &[&str],
) -> Result<Option<&'a str>, MalformedStatusError> {
    let wrong = |value| accessor_error(path, value, "string");
    let found = lookup(object, path).and_then(|found| {
        found.map(|value| value.as_str().ok_or_else(|| wrong(value))).transpose()
    });
    found.map_err(|error| looking_up(path, error))
}

/// The integer at a path, if there is one. A value of another type is an error.
pub(super) fn integer_strict(
    object: &Object,
    path: &[&str],
) -> Result<Option<i64>, MalformedStatusError> {
    let wrong = |value| accessor_error(path, value, "int64");
    let found = lookup(object, path).and_then(|found| {
        found.map(|value| value.as_i64().ok_or_else(|| wrong(value))).transpose()
    });
    found.map_err(|error| looking_up(path, error))
}

/// The list at a path, if there is one. A value of another type is an error.
pub(super) fn list_strict<'a>(
    object: &'a Object,
    path: &[&str],
) -> Result<Option<&'a [Value]>, MalformedStatusError> {
    let wrong = |value| accessor_error(path, value, "[]interface{}");
    lookup(object, path)?
        .map(|value| value.as_array().map(Vec::as_slice).ok_or_else(|| wrong(value)))
        .transpose()
}

/// The mapping at a path, if there is one. A value of another type is an error.
pub(super) fn mapping_strict<'a>(
    object: &'a Object,
    path: &[&str],
) -> Result<Option<&'a serde_json::Map<String, Value>>, MalformedStatusError> {
    let wrong = |value| accessor_error(path, value, "map[string]interface{}");
    lookup(object, path)?.map(|value| value.as_object().ok_or_else(|| wrong(value))).transpose()
}

/// An integer, or `default` where there is none.
pub(super) fn integer(object: &Object, path: &[&str], default: i64) -> i64 {
    lookup(object, path).ok().flatten().and_then(Value::as_i64).unwrap_or(default)
}

/// A text, or `default` where there is none.
pub(super) fn string<'a>(object: &'a Object, path: &[&str], default: &'a str) -> &'a str {
    lookup(object, path).ok().flatten().and_then(Value::as_str).unwrap_or(default)
}

fn condition_text<'a>(
    entry: &'a Value,
    field: &str,
    go_name: &str,
) -> Result<&'a str, MalformedStatusError> {
    match entry.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        // Parity(apimachinery): integers convert to strings in Go's eyes, so they get another message.
        Some(n @ Value::Number(_)) if n.is_i64() => {
            Err(MalformedStatusError(format!("cannot convert int64 to {go_name}")))
        }
        Some(_) => Err(MalformedStatusError("unrecognized type: string".into())),
    }
}

/// The conditions in `status.conditions` of any object.
pub(super) fn conditions(
    object: &Object,
) -> Result<Vec<StatusCondition<'_>>, MalformedStatusError> {
    let list = match object.get("status") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(status)) => status.get("conditions"),
        Some(other) => {
            return Err(MalformedStatusError(format!(
                "cannot restore struct from: {}",
                go_kind(other)
            )));
        }
    };
    let entries = match list {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(other) => {
            return Err(MalformedStatusError(format!(
                "cannot restore slice from {}",
                go_kind(other)
            )));
        }
    };
    let mut found = Vec::with_capacity(entries.len());
    for entry in entries {
        found.push(match entry {
            Value::Null => StatusCondition::default(),
            Value::Object(_) => StatusCondition {
                kind: condition_text(entry, "type", "string")?,
                status: condition_text(entry, "status", "v1.ConditionStatus")?,
                reason: condition_text(entry, "reason", "string")?,
                message: condition_text(entry, "message", "string")?,
            },
            other => {
                return Err(MalformedStatusError(format!(
                    "cannot restore struct from: {}",
                    go_kind(other)
                )));
            }
        });
    }
    Ok(found)
}
