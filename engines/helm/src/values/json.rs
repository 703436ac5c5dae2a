//! Values as JSON, for storing, hashing and checking them.
//!
//! Elsewhere: the other direction (`golang::Value::from_json`).

use golang::GoRuntimeValue;
use golang::value::GoMap;
use serde_json::{Map as JsonMap, Number, Value as Json};

use super::{Error, ValuesBudget};

/// Why values cannot be converted to JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotJsonError {
    /// A float is not a number, or a type cannot be a value at all.
    #[error("a value of the type {0} has no JSON")]
    Unsupported(String),
    /// There are too many values, or they are nested too deeply.
    #[error(transparent)]
    Limit(#[from] Error),
}

/// Converts values to JSON as Go's `encoding/json` writes them: a whole `float64` becomes an integer, and bytes that
/// are not UTF-8 become U+FFFD.
///
/// # Errors
/// JSON cannot represent a value, or there are too many values.
pub fn to_json(values: &GoMap) -> Result<Json, NotJsonError> {
    table(values, as_written, 0, &mut ValuesBudget::new())
}

/// Like [`to_json`], but a whole float keeps all its digits, while Go's text has zeros in the last places. Zero has no
/// sign. Flux computes digests from this form.
pub(super) fn exact_json(values: &GoMap) -> Result<Json, NotJsonError> {
    table(values, exact, 0, &mut ValuesBudget::new())
}

/// Converts a float to a JSON number. `None` if JSON has no such number.
type FloatConverter = fn(f64) -> Option<Number>;

fn table(
    values: &GoMap,
    floats: FloatConverter,
    depth: usize,
    left: &mut ValuesBudget,
) -> Result<Json, NotJsonError> {
    let entries = values
        .entries()
        .into_iter()
        .map(|(key, value)| Ok((key.lossy().into_owned(), json(&value, floats, depth + 1, left)?)));
    Ok(Json::Object(entries.collect::<Result<JsonMap<_, _>, NotJsonError>>()?))
}

fn json(
    value: &GoRuntimeValue,
    floats: FloatConverter,
    depth: usize,
    left: &mut ValuesBudget,
) -> Result<Json, NotJsonError> {
    left.spend(depth)?;
    Ok(match value {
        GoRuntimeValue::Nil => Json::Null,
        GoRuntimeValue::Bool(truth) => Json::Bool(*truth),
        GoRuntimeValue::Integer(integer) if integer.kind().is_signed() => integer.signed().into(),
        GoRuntimeValue::Integer(integer) => integer.unsigned().into(),
        GoRuntimeValue::Float(float) => {
            Json::Number(floats(*float).ok_or_else(|| unsupported(value))?)
        }
        GoRuntimeValue::String(text) => Json::String(text.lossy().into_owned()),
        GoRuntimeValue::List(list) => {
            let items = list.items().iter().map(|item| json(item, floats, depth + 1, left));
            Json::Array(items.collect::<Result<_, _>>()?)
        }
        GoRuntimeValue::Map(values) => table(values, floats, depth, left)?,
        GoRuntimeValue::Complex(..)
        | GoRuntimeValue::Bytes(_)
        | GoRuntimeValue::Function(_)
        | GoRuntimeValue::Object(_) => {
            return Err(unsupported(value));
        }
    })
}

fn unsupported(value: &GoRuntimeValue) -> NotJsonError {
    NotJsonError::Unsupported(value.type_name())
}

/// A float as a JSON number, written as Go does: whole numbers below 1e21 have no fraction. They have the digits that
/// identify the float, and then zeros. `None` for infinity and NaN.
fn as_written(float: f64) -> Option<Number> {
    let is_negative_zero = float == 0.0 && float.is_sign_negative();
    if float.fract() != 0.0 || is_negative_zero {
        return Number::from_f64(float);
    }
    let text = float.to_string();
    let signed = text.parse::<i64>().map(Number::from);
    let unsigned = || text.parse::<u64>().map(Number::from);
    signed.or_else(|_| unsigned()).ok().or_else(|| Number::from_f64(float))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and in bounds")]
fn exact(float: f64) -> Option<Number> {
    if float.fract() == 0.0 && float.abs() < TWO_TO_THE_63 {
        Some((float as i64).into())
    } else if float.fract() == 0.0 && (TWO_TO_THE_63..2.0 * TWO_TO_THE_63).contains(&float) {
        Some((float as u64).into())
    } else {
        Number::from_f64(float)
    }
}

const TWO_TO_THE_63: f64 = 9_223_372_036_854_775_808.0;
