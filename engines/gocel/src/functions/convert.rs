//! Conversions between types: `int('1')`, `string(2.5)`, `timestamp('…')`.

use std::rc::Rc;

use golang::strconv::{self, FloatTextFormat, format_float};
use golang::time::{GoDuration, GoTime, GoTimeZone};

use super::{FunctionResult, arithmetic};
use crate::budget::{CelBudget, CelError};
use crate::value::{CelValue, general};

/// Go's layout `RFC3339`.
const RFC3339: &str = "2006-01-02T15:04:05Z07:00";
/// Go's layout `RFC3339Nano`.
pub(super) const RFC3339_NANO: &str = "2006-01-02T15:04:05.999999999Z07:00";

/// Converts a value to the type that is the name of the function.
pub(super) fn to<'a>(
    name: &str,
    value: &CelValue<'a>,
    budget: &mut CelBudget,
) -> FunctionResult<'a> {
    if let CelValue::String(text) = value {
        budget.spend_bytes(text.len())?;
    }
    let converted = match name {
        "bool" => match value {
            CelValue::Bool(_) => Some(value.clone()),
            CelValue::String(text) => strconv::parse_bool(text).ok().map(CelValue::Bool),
            _ => None,
        },
        "bytes" => match value {
            CelValue::Bytes(_) => Some(value.clone()),
            CelValue::String(text) => Some(CelValue::Bytes(text.as_bytes().into())),
            _ => None,
        },
        "double" => double(value).map(CelValue::Double),
        "int" => int(value)?.map(CelValue::Int),
        "uint" => uint(value)?.map(CelValue::Uint),
        "string" => string(value)?.map(CelValue::text),
        "duration" => match value {
            CelValue::Duration(_) => Some(value.clone()),
            CelValue::String(text) => GoDuration::parse(text).ok().map(CelValue::Duration),
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
        CelError::failed(format!("type conversion error from '{from}' to '{to}'"))
    })
}

#[expect(clippy::cast_precision_loss, reason = "doubles are what is asked for")]
fn double(value: &CelValue<'_>) -> Option<f64> {
    match value {
        CelValue::Double(double) => Some(*double),
        CelValue::Int(int) => Some(*int as f64),
        CelValue::Uint(uint) => Some(*uint as f64),
        CelValue::String(text) => strconv::parse_float(text, 64).ok(),
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked before")]
fn int(value: &CelValue<'_>) -> Result<Option<i64>, CelError> {
    let overflow = || CelError::failed("integer overflow");
    Ok(match value {
        CelValue::Int(int) => Some(*int),
        CelValue::Uint(uint) => Some(i64::try_from(*uint).map_err(|_| overflow())?),
        CelValue::Double(double) => {
            let limit = 2f64.powi(63);
            let fits = *double > -limit && *double < limit;
            Some(fits.then_some(*double as i64).ok_or_else(overflow)?)
        }
        CelValue::String(text) => strconv::parse_int(text, 10, 64).ok(),
        CelValue::Timestamp(time) => Some(time.unix()),
        CelValue::Duration(duration) => Some(duration.0),
        _ => None,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the bounds are checked before"
)]
fn uint(value: &CelValue<'_>) -> Result<Option<u64>, CelError> {
    let overflow = || CelError::failed("unsigned integer overflow");
    Ok(match value {
        CelValue::Uint(uint) => Some(*uint),
        CelValue::Int(int) => Some(u64::try_from(*int).map_err(|_| overflow())?),
        CelValue::Double(double) => {
            let fits = *double >= 0.0 && *double < 2f64.powi(64);
            Some(fits.then_some(*double as u64).ok_or_else(overflow)?)
        }
        CelValue::String(text) => strconv::parse_uint(text, 10, 64).ok(),
        _ => None,
    })
}

/// A duration as text: its seconds, followed by `s`.
pub(super) fn seconds_text(duration: GoDuration) -> String {
    format!("{}s", format_float(duration.seconds(), FloatTextFormat::Fixed, None))
}

fn string(value: &CelValue<'_>) -> Result<Option<String>, CelError> {
    Ok(match value {
        CelValue::String(text) => Some(text.to_string()),
        CelValue::Bool(bool) => Some(bool.to_string()),
        CelValue::Int(int) => Some(int.to_string()),
        CelValue::Uint(uint) => Some(uint.to_string()),
        CelValue::Double(double) => Some(general(*double, 21)),
        CelValue::Bytes(bytes) => {
            let text = std::str::from_utf8(bytes).map_err(|_| {
                CelError::failed("invalid UTF-8 in bytes, cannot convert to string")
            })?;
            Some(text.to_owned())
        }
        CelValue::Duration(duration) => Some(seconds_text(*duration)),
        CelValue::Timestamp(time) => Some(time.format(RFC3339_NANO)),
        _ => None,
    })
}

fn timestamp<'a>(value: &CelValue<'a>) -> Result<Option<CelValue<'a>>, CelError> {
    let time = match value {
        CelValue::Timestamp(_) => return Ok(Some(value.clone())),
        CelValue::Int(seconds) => GoTime::from_unix(*seconds, 0, GoTimeZone::Utc),
        CelValue::String(text) => match GoTime::parse(RFC3339, text, &GoTimeZone::Utc) {
            Ok(time) => time,
            Err(_) => return Ok(None),
        },
        _ => return Ok(None),
    };
    if !arithmetic::is_in_range(time.unix()) {
        return Err(CelError::failed("timestamp overflow"));
    }
    Ok(Some(CelValue::Timestamp(Rc::new(time))))
}
