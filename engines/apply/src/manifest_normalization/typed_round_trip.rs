//! Reads an object into the type of its kind and writes it again, as Flux does before it applies.
//!
//! Here: one walk that reads and writes. Elsewhere: the types ([`super::table`]), and the changes to an object beside
//! that ([`super`]).
//!
//! Source of the semantics: apimachinery 0.36 `pkg/runtime/converter.go`.

use golang::strconv::{FloatTextFormat, format_float};
use golang::time::{GoDuration, GoTime, GoTimeZone};
use serde_json::{Map, Value};

use super::builtin_type_table::{JsonFieldType, TABLE};
use super::quantity;

/// How deep a value may nest. A type may contain itself, so only this limit bounds the depth of the walk.
const MAX_DEPTH: usize = 200;

const RFC3339: &str = "2006-01-02T15:04:05Z07:00";
const RFC3339_MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";
/// Go's zero time, in seconds since 1970.
const ZERO_TIME: i64 = -62_135_596_800;

/// An object does not fit its type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TypeMismatch;

/// A value as its type writes it.
struct EncodedTypedValue {
    value: Value,
    /// Whether a field that leaves out empty values leaves this one out.
    is_empty: bool,
    /// Whether a field that leaves out zero values leaves this one out.
    is_zero: bool,
}

impl EncodedTypedValue {
    fn new(value: impl Into<Value>, is_zero: bool) -> Self {
        Self { value: value.into(), is_empty: is_zero, is_zero }
    }

    /// A field whose value is never treated as empty.
    fn special(value: impl Into<Value>, is_zero: bool) -> Self {
        Self { value: value.into(), is_empty: false, is_zero }
    }
}

/// Writes an object as its type would. `None` if the table does not have its kind.
pub(super) fn round_trip(
    object: &Map<String, Value>,
) -> Option<Result<Map<String, Value>, TypeMismatch>> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let number = TABLE.kind(text("apiVersion"), text("kind"))?;
    Some(structure(number, Some(object), 0).map(|(fields, _)| fields))
}

fn written(
    shape: &JsonFieldType,
    value: Option<&Value>,
    depth: usize,
) -> Result<EncodedTypedValue, TypeMismatch> {
    if depth > MAX_DEPTH {
        return Err(TypeMismatch);
    }
    let value = value.filter(|value| !value.is_null());
    Ok(match (shape, value) {
        (JsonFieldType::Text, None) => EncodedTypedValue::new("", true),
        (JsonFieldType::Text, Some(Value::String(text))) => {
            EncodedTypedValue::new(text.as_str(), text.is_empty())
        }
        (JsonFieldType::Bool, None) => EncodedTypedValue::new(false, true),
        (JsonFieldType::Bool, Some(Value::Bool(bool))) => EncodedTypedValue::new(*bool, !bool),
        (JsonFieldType::Int32 | JsonFieldType::Int64 | JsonFieldType::Byte, value) => {
            let number = value.map_or(Some(0), whole).ok_or(TypeMismatch)?;
            // Parity(kubernetes): what does not fit is cut off.
            let number = match shape {
                JsonFieldType::Int32 => i64::from(number as i32),
                JsonFieldType::Byte => i64::from(number as u8),
                _ => number,
            };
            EncodedTypedValue::new(number, number == 0)
        }
        (JsonFieldType::Float, value) => {
            let number = value.map_or(Some(0.0), Value::as_f64).ok_or(TypeMismatch)?;
            EncodedTypedValue::new(number, number == 0.0)
        }
        (JsonFieldType::Any | JsonFieldType::Raw, value) => {
            let is_zero = value.is_none();
            let value = value.cloned().unwrap_or(Value::Null);
            match shape {
                JsonFieldType::Any => EncodedTypedValue::new(value, is_zero),
                _ => EncodedTypedValue::special(value, is_zero),
            }
        }
        (JsonFieldType::Bytes, None) => EncodedTypedValue::new(Value::Null, true),
        (JsonFieldType::Bytes, Some(Value::String(text))) => {
            let bytes = super::base64::decode(text).ok_or(TypeMismatch)?;
            let is_empty = bytes.is_empty();
            EncodedTypedValue {
                value: super::base64::encode(&bytes).into(),
                is_empty,
                is_zero: false,
            }
        }
        (JsonFieldType::Pointer(_), None) => EncodedTypedValue::new(Value::Null, true),
        (JsonFieldType::Pointer(of), value) => {
            EncodedTypedValue { is_empty: false, is_zero: false, ..written(of, value, depth + 1)? }
        }
        (JsonFieldType::List(_) | JsonFieldType::Map(_), None) => {
            EncodedTypedValue::new(Value::Null, true)
        }
        (JsonFieldType::List(of), Some(Value::Array(items))) => {
            let items: Result<Vec<Value>, TypeMismatch> =
                items.iter().map(|item| Ok(written(of, Some(item), depth + 1)?.value)).collect();
            let items = items?;
            EncodedTypedValue { is_empty: items.is_empty(), is_zero: false, value: items.into() }
        }
        (JsonFieldType::Map(of), Some(Value::Object(entries))) => {
            let mut map = Map::new();
            for (key, value) in entries {
                map.insert(key.clone(), written(of, Some(value), depth + 1)?.value);
            }
            EncodedTypedValue { is_empty: map.is_empty(), is_zero: false, value: map.into() }
        }
        (JsonFieldType::Struct(number), value) => {
            let fields = match value {
                None => None,
                Some(Value::Object(fields)) => Some(fields),
                Some(_) => return Err(TypeMismatch),
            };
            let (fields, is_zero) = structure(*number, fields, depth + 1)?;
            EncodedTypedValue::special(fields, is_zero)
        }
        (JsonFieldType::Quantity | JsonFieldType::IntOrString, value) => special(shape, value)?,
        (JsonFieldType::Time | JsonFieldType::MicroTime | JsonFieldType::Duration, value) => {
            moment(shape, value)?
        }
        _ => return Err(TypeMismatch),
    })
}

/// Writes a struct, and says whether all of its fields are zero.
fn structure(
    number: usize,
    object: Option<&Map<String, Value>>,
    depth: usize,
) -> Result<(Map<String, Value>, bool), TypeMismatch> {
    let mut fields = Map::new();
    let mut is_zero = true;
    for field in TABLE.fields(number) {
        let value = object.and_then(|object| object.get(field.name));
        let field_written = written(&field.shape, value, depth)?;
        is_zero &= field_written.is_zero;
        let is_left_out = (field.omit_empty && field_written.is_empty)
            || (field.omit_zero && field_written.is_zero);
        if !is_left_out {
            fields.insert(field.name.to_owned(), field_written.value);
        }
    }
    Ok((fields, is_zero))
}

/// Reads a whole number, which may be written with a decimal point. `None` if the value is not a whole number.
#[expect(clippy::cast_possible_truncation, reason = "Go's conversion cuts off too")]
fn whole(value: &Value) -> Option<i64> {
    let Value::Number(number) = value else { return None };
    number.as_i64().or_else(|| {
        let double = number.as_f64().filter(|double| double.fract() == 0.0)?;
        Some(double as i64)
    })
}

/// A number as Go writes it in JSON.
fn number_text(number: &serde_json::Number) -> String {
    if let Some(int) = number.as_i64() {
        return int.to_string();
    }
    let double = number.as_f64().unwrap_or_default();
    let magnitude = double.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        return format_float(double, FloatTextFormat::Exponent, None);
    }
    format_float(double, FloatTextFormat::Fixed, None)
}

fn special(
    shape: &JsonFieldType,
    value: Option<&Value>,
) -> Result<EncodedTypedValue, TypeMismatch> {
    let is_quantity = *shape == JsonFieldType::Quantity;
    Ok(match value {
        None if is_quantity => EncodedTypedValue::special("0", true),
        None => EncodedTypedValue::special(0, true),
        Some(Value::String(text)) if is_quantity => {
            EncodedTypedValue::special(quantity::canonical(text).ok_or(TypeMismatch)?, false)
        }
        Some(Value::Number(number)) if is_quantity => {
            let text = number_text(number);
            EncodedTypedValue::special(quantity::canonical(&text).ok_or(TypeMismatch)?, false)
        }
        Some(Value::String(text)) => EncodedTypedValue::special(text.as_str(), false),
        Some(Value::Number(number)) => {
            let int = number_text(number).parse::<i32>().map_err(|_| TypeMismatch)?;
            EncodedTypedValue::special(int, int == 0)
        }
        Some(_) => return Err(TypeMismatch),
    })
}

fn moment(shape: &JsonFieldType, value: Option<&Value>) -> Result<EncodedTypedValue, TypeMismatch> {
    let text = match value {
        None if *shape == JsonFieldType::Duration => {
            return Ok(EncodedTypedValue::special("0s", true));
        }
        None => return Ok(EncodedTypedValue::special(Value::Null, true)),
        Some(value) => value.as_str().ok_or(TypeMismatch)?,
    };
    if *shape == JsonFieldType::Duration {
        let duration = GoDuration::parse(text).map_err(|_| TypeMismatch)?;
        return Ok(EncodedTypedValue::special(duration.to_string(), duration.0 == 0));
    }
    let layout = if *shape == JsonFieldType::Time { RFC3339 } else { RFC3339_MICRO };
    let time = GoTime::parse(layout, text, &GoTimeZone::Utc).map_err(|_| TypeMismatch)?;
    if time.unix() == ZERO_TIME && time.nanosecond() == 0 {
        return Ok(EncodedTypedValue::special(Value::Null, true));
    }
    Ok(EncodedTypedValue::special(time.in_zone(GoTimeZone::Utc).format(layout), false))
}
