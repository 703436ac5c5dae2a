//! Sums, differences, products, quotients and remainders. A result that does not fit its type is an error.

use std::rc::Rc;

use golang::time::{GoDuration, GoTime};

use super::FunctionResult;
use crate::budget::{CelBudget, CelError};
use crate::value::CelValue;

/// The first second of the year 1.
const MIN_SECONDS: i64 = -62_135_596_800;
/// The last second of the year 9999.
const MAX_SECONDS: i64 = 253_402_300_799;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Whether a time is in the range of CEL timestamps.
pub(super) fn is_in_range(seconds: i64) -> bool {
    (MIN_SECONDS..=MAX_SECONDS).contains(&seconds)
}

/// The double as a whole number. `None` if it is not one.
#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked before")]
pub(super) fn whole(double: f64) -> Option<i64> {
    let fits = double.fract() == 0.0 && double > -(2f64.powi(63)) && double < 2f64.powi(63);
    fits.then_some(double as i64)
}

pub(super) fn binary<'a>(
    name: &str,
    one: &CelValue<'a>,
    two: &CelValue<'a>,
    budget: &mut CelBudget,
) -> FunctionResult<'a> {
    match (one, two) {
        (CelValue::Int(one), CelValue::Int(two)) => int(name, *one, *two).map(CelValue::Int),
        (CelValue::Uint(one), CelValue::Uint(two)) => uint(name, *one, *two).map(CelValue::Uint),
        (CelValue::Double(one), CelValue::Double(two)) => Ok(CelValue::Double(match name {
            "_+_" => one + two,
            "_-_" => one - two,
            "_*_" => one * two,
            "_/_" => one / two,
            _ => return Err(CelError::no_such_overload()),
        })),
        (CelValue::String(one), CelValue::String(two)) if name == "_+_" => {
            budget.spend_bytes(one.len() + two.len())?;
            Ok(CelValue::text([&**one, &**two].concat()))
        }
        (CelValue::Bytes(one), CelValue::Bytes(two)) if name == "_+_" => {
            budget.spend_bytes(one.len() + two.len())?;
            Ok(CelValue::Bytes([&**one, &**two].concat().into()))
        }
        _ => times(name, one, two),
    }
}

fn int(name: &str, one: i64, two: i64) -> Result<i64, CelError> {
    let result = match name {
        "_+_" => one.checked_add(two),
        "_-_" => one.checked_sub(two),
        "_*_" => one.checked_mul(two),
        "_/_" if two == 0 => return Err(CelError::failed("division by zero")),
        "_/_" => one.checked_div(two),
        _ if two == 0 => return Err(CelError::failed("modulus by zero")),
        _ => one.checked_rem(two),
    };
    result.ok_or_else(|| CelError::failed("integer overflow"))
}

fn uint(name: &str, one: u64, two: u64) -> Result<u64, CelError> {
    let result = match name {
        "_+_" => one.checked_add(two),
        "_-_" => one.checked_sub(two),
        "_*_" => one.checked_mul(two),
        "_/_" if two == 0 => return Err(CelError::failed("division by zero")),
        "_/_" => one.checked_div(two),
        _ if two == 0 => return Err(CelError::failed("modulus by zero")),
        _ => one.checked_rem(two),
    };
    result.ok_or_else(|| CelError::failed("unsigned integer overflow"))
}

fn times<'a>(name: &str, one: &CelValue<'a>, two: &CelValue<'a>) -> FunctionResult<'a> {
    // Parity(cel-go): the message names the overflow that of an integer.
    let too_long = || CelError::failed("integer overflow");
    match (name, one, two) {
        ("_+_", CelValue::Duration(one), CelValue::Duration(two)) => {
            one.0.checked_add(two.0).map(duration).ok_or_else(too_long)
        }
        ("_-_", CelValue::Duration(one), CelValue::Duration(two)) => {
            one.0.checked_sub(two.0).map(duration).ok_or_else(too_long)
        }
        ("_+_", CelValue::Duration(by), CelValue::Timestamp(time))
        | ("_+_", CelValue::Timestamp(time), CelValue::Duration(by)) => {
            moved(time, i128::from(by.0))
        }
        ("_-_", CelValue::Timestamp(time), CelValue::Duration(by)) => {
            moved(time, -i128::from(by.0))
        }
        ("_-_", CelValue::Timestamp(one), CelValue::Timestamp(two)) => {
            i64::try_from(nanos(one) - nanos(two)).map(duration).map_err(|_| too_long())
        }
        _ => Err(CelError::no_such_overload()),
    }
}

fn duration<'a>(nanos: i64) -> CelValue<'a> {
    CelValue::Duration(GoDuration(nanos))
}

fn nanos(time: &GoTime) -> i128 {
    i128::from(time.unix()) * i128::from(NANOS_PER_SECOND) + i128::from(time.nanosecond())
}

fn moved<'a>(time: &GoTime, by: i128) -> FunctionResult<'a> {
    let at = nanos(time) + by;
    let seconds = i64::try_from(at.div_euclid(i128::from(NANOS_PER_SECOND))).unwrap_or(i64::MAX);
    if !is_in_range(seconds) {
        return Err(CelError::failed("timestamp overflow"));
    }
    let rest = i64::try_from(at.rem_euclid(i128::from(NANOS_PER_SECOND))).unwrap_or_default();
    Ok(CelValue::Timestamp(Rc::new(GoTime::from_unix(seconds, rest, time.zone().clone()))))
}

pub(super) fn negate<'a>(value: &CelValue<'a>) -> FunctionResult<'a> {
    let overflow = || CelError::failed("integer overflow");
    match value {
        CelValue::Int(value) => value.checked_neg().map(CelValue::Int).ok_or_else(overflow),
        CelValue::Double(value) => Ok(CelValue::Double(-value)),
        CelValue::Duration(value) => value.0.checked_neg().map(duration).ok_or_else(overflow),
        _ => Err(CelError::no_such_overload()),
    }
}
