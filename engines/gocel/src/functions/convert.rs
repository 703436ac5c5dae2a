//! Conversions between types: `int('1')`, `string(2.5)`, `timestamp('…')`.

use std::rc::Rc;

use golang::strconv::{self, FloatForm, format_float};
use golang::time::{Duration, Time, Zone};

use super::{Outcome, arithmetic};
use crate::budget::{Budget, Fault};
use crate::value::{Value, general};

/// Go's layout `RFC3339`.
const RFC3339: &str = "2006-01-02T15:04:05Z07:00";
/// Go's layout `RFC3339Nano`.
pub(super) const RFC3339_NANO: &str = "2006-01-02T15:04:05.999999999Z07:00";

/// Converts a value to the type that a function is named for.
pub(super) fn to<'a>(name: &str, value: &Value<'a>, budget: &mut Budget) -> Outcome<'a> {
    if let Value::String(text) = value {
        budget.spend_bytes(text.len())?;
    }
    let converted = match name {
        "bool" => match value {
            Value::Bool(_) => Some(value.clone()),
            Value::String(text) => strconv::parse_bool(text).ok().map(Value::Bool),
            _ => None,
        },
        "bytes" => match value {
            Value::Bytes(_) => Some(value.clone()),
            Value::String(text) => Some(Value::Bytes(text.as_bytes().into())),
            _ => None,
        },
        "double" => double(value).map(Value::Double),
        "int" => int(value)?.map(Value::Int),
        "uint" => uint(value)?.map(Value::Uint),
        "string" => string(value)?.map(Value::text),
        "duration" => match value {
            Value::Duration(_) => Some(value.clone()),
            Value::String(text) => Duration::parse(text).ok().map(Value::Duration),
            _ => None,
        },
        "timestamp" => timestamp(value)?,
        _ => None,
    };
    converted.ok_or_else(|| {
        let to = match name {
            "duration" => "google.protobuf.Duration",
            "timestamp" => "google.protobuf.Timestamp",
            other => other,
        };
        let from = value.type_name();
        Fault::failed(format!("type conversion error from '{from}' to '{to}'"))
    })
}

#[expect(clippy::cast_precision_loss, reason = "doubles are what is asked for")]
fn double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(double) => Some(*double),
        Value::Int(int) => Some(*int as f64),
        Value::Uint(uint) => Some(*uint as f64),
        Value::String(text) => strconv::parse_float(text, 64).ok(),
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked before")]
fn int(value: &Value<'_>) -> Result<Option<i64>, Fault> {
    let overflow = || Fault::failed("integer overflow");
    Ok(match value {
        Value::Int(int) => Some(*int),
        Value::Uint(uint) => Some(i64::try_from(*uint).map_err(|_| overflow())?),
        Value::Double(double) => {
            let limit = 2f64.powi(63);
            let fits = *double > -limit && *double < limit;
            Some(fits.then_some(*double as i64).ok_or_else(overflow)?)
        }
        Value::String(text) => strconv::parse_int(text, 10, 64).ok(),
        Value::Timestamp(time) => Some(time.unix()),
        Value::Duration(duration) => Some(duration.0),
        _ => None,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the bounds are checked before"
)]
fn uint(value: &Value<'_>) -> Result<Option<u64>, Fault> {
    let overflow = || Fault::failed("unsigned integer overflow");
    Ok(match value {
        Value::Uint(uint) => Some(*uint),
        Value::Int(int) => Some(u64::try_from(*int).map_err(|_| overflow())?),
        Value::Double(double) => {
            let fits = *double >= 0.0 && *double < 2f64.powi(64);
            Some(fits.then_some(*double as u64).ok_or_else(overflow)?)
        }
        Value::String(text) => strconv::parse_uint(text, 10, 64).ok(),
        _ => None,
    })
}

/// The text of a duration: seconds, and an `s`.
pub(super) fn seconds_text(duration: Duration) -> String {
    format!("{}s", format_float(duration.seconds(), FloatForm::Fixed, None))
}

fn string(value: &Value<'_>) -> Result<Option<String>, Fault> {
    Ok(match value {
        Value::String(text) => Some(text.to_string()),
        Value::Bool(bool) => Some(bool.to_string()),
        Value::Int(int) => Some(int.to_string()),
        Value::Uint(uint) => Some(uint.to_string()),
        Value::Double(double) => Some(general(*double, 21)),
        Value::Bytes(bytes) => {
            let text = std::str::from_utf8(bytes)
                .map_err(|_| Fault::failed("invalid UTF-8 in bytes, cannot convert to string"))?;
            Some(text.to_owned())
        }
        Value::Duration(duration) => Some(seconds_text(*duration)),
        Value::Timestamp(time) => Some(time.format(RFC3339_NANO)),
        _ => None,
    })
}

fn timestamp<'a>(value: &Value<'a>) -> Result<Option<Value<'a>>, Fault> {
    let time = match value {
        Value::Timestamp(_) => return Ok(Some(value.clone())),
        Value::Int(seconds) => Time::from_unix(*seconds, 0, Zone::Utc),
        Value::String(text) => match Time::parse(RFC3339, text, &Zone::Utc) {
            Ok(time) => time,
            Err(_) => return Ok(None),
        },
        _ => return Ok(None),
    };
    if !arithmetic::is_in_range(time.unix()) {
        return Err(Fault::failed("timestamp overflow"));
    }
    Ok(Some(Value::Timestamp(Rc::new(time))))
}
