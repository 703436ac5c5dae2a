//! Sums, differences, products, quotients and remainders, with errors where a result does not fit.

use std::rc::Rc;

use golang::time::{Duration, Time};

use super::Outcome;
use crate::budget::{Budget, Fault};
use crate::value::Value;

/// The first second of the year 1.
const MIN_SECONDS: i64 = -62_135_596_800;
/// The last second of the year 9999.
const MAX_SECONDS: i64 = 253_402_300_799;

const NANOS: i64 = 1_000_000_000;

/// Whether a time may be a value.
pub(super) fn is_in_range(seconds: i64) -> bool {
    (MIN_SECONDS..=MAX_SECONDS).contains(&seconds)
}

/// The whole number that a double is.
#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked before")]
pub(super) fn whole(double: f64) -> Option<i64> {
    let fits = double.fract() == 0.0 && double > -(2f64.powi(63)) && double < 2f64.powi(63);
    fits.then_some(double as i64)
}

pub(super) fn binary<'a>(
    name: &str,
    one: &Value<'a>,
    two: &Value<'a>,
    budget: &mut Budget,
) -> Outcome<'a> {
    match (one, two) {
        (Value::Int(one), Value::Int(two)) => int(name, *one, *two).map(Value::Int),
        (Value::Uint(one), Value::Uint(two)) => uint(name, *one, *two).map(Value::Uint),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(match name {
            "_+_" => one + two,
            "_-_" => one - two,
            "_*_" => one * two,
            "_/_" => one / two,
            _ => return Err(Fault::no_such_overload()),
        })),
        (Value::String(one), Value::String(two)) if name == "_+_" => {
            budget.spend_bytes(one.len() + two.len())?;
            Ok(Value::text([&**one, &**two].concat()))
        }
        (Value::Bytes(one), Value::Bytes(two)) if name == "_+_" => {
            budget.spend_bytes(one.len() + two.len())?;
            Ok(Value::Bytes([&**one, &**two].concat().into()))
        }
        _ => times(name, one, two),
    }
}

fn int(name: &str, one: i64, two: i64) -> Result<i64, Fault> {
    let result = match name {
        "_+_" => one.checked_add(two),
        "_-_" => one.checked_sub(two),
        "_*_" => one.checked_mul(two),
        "_/_" if two == 0 => return Err(Fault::failed("division by zero")),
        "_/_" => one.checked_div(two),
        _ if two == 0 => return Err(Fault::failed("modulus by zero")),
        _ => one.checked_rem(two),
    };
    result.ok_or_else(|| Fault::failed("integer overflow"))
}

fn uint(name: &str, one: u64, two: u64) -> Result<u64, Fault> {
    let result = match name {
        "_+_" => one.checked_add(two),
        "_-_" => one.checked_sub(two),
        "_*_" => one.checked_mul(two),
        "_/_" if two == 0 => return Err(Fault::failed("division by zero")),
        "_/_" => one.checked_div(two),
        _ if two == 0 => return Err(Fault::failed("modulus by zero")),
        _ => one.checked_rem(two),
    };
    result.ok_or_else(|| Fault::failed("unsigned integer overflow"))
}

fn times<'a>(name: &str, one: &Value<'a>, two: &Value<'a>) -> Outcome<'a> {
    // Parity(cel-go): the overflow is called that of an integer.
    let too_long = || Fault::failed("integer overflow");
    match (name, one, two) {
        ("_+_", Value::Duration(one), Value::Duration(two)) => {
            one.0.checked_add(two.0).map(duration).ok_or_else(too_long)
        }
        ("_-_", Value::Duration(one), Value::Duration(two)) => {
            one.0.checked_sub(two.0).map(duration).ok_or_else(too_long)
        }
        ("_+_", Value::Duration(by), Value::Timestamp(time))
        | ("_+_", Value::Timestamp(time), Value::Duration(by)) => moved(time, i128::from(by.0)),
        ("_-_", Value::Timestamp(time), Value::Duration(by)) => moved(time, -i128::from(by.0)),
        ("_-_", Value::Timestamp(one), Value::Timestamp(two)) => {
            i64::try_from(nanos(one) - nanos(two)).map(duration).map_err(|_| too_long())
        }
        _ => Err(Fault::no_such_overload()),
    }
}

fn duration<'a>(nanos: i64) -> Value<'a> {
    Value::Duration(Duration(nanos))
}

fn nanos(time: &Time) -> i128 {
    i128::from(time.unix()) * i128::from(NANOS) + i128::from(time.nanosecond())
}

fn moved<'a>(time: &Time, by: i128) -> Outcome<'a> {
    let at = nanos(time) + by;
    let seconds = i64::try_from(at.div_euclid(i128::from(NANOS))).unwrap_or(i64::MAX);
    if !is_in_range(seconds) {
        return Err(Fault::failed("timestamp overflow"));
    }
    let rest = i64::try_from(at.rem_euclid(i128::from(NANOS))).unwrap_or_default();
    Ok(Value::Timestamp(Rc::new(Time::from_unix(seconds, rest, time.zone().clone()))))
}

pub(super) fn negate<'a>(value: &Value<'a>) -> Outcome<'a> {
    let overflow = || Fault::failed("integer overflow");
    match value {
        Value::Int(value) => value.checked_neg().map(Value::Int).ok_or_else(overflow),
        Value::Double(value) => Ok(Value::Double(-value)),
        Value::Duration(value) => value.0.checked_neg().map(duration).ok_or_else(overflow),
        _ => Err(Fault::no_such_overload()),
    }
}
