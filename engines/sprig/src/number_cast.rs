//! Converts any value to a number like `spf13/cast` 1.7. A value that is not a number becomes zero.

use golang::GoRuntimeValue;
use golang::strconv::{parse_float, parse_int};

/// `ToInt64` and `ToInt`. The two differ only on machines with 32 bits.
///
/// Parity(helm 4): strings have a base (`010` is 8), zeros behind a point do not make a fraction, and of named types only
/// months and weekdays are numbers.
pub(crate) fn to_int(value: &GoRuntimeValue) -> i64 {
    match value {
        GoRuntimeValue::Bool(truth) => i64::from(*truth),
        GoRuntimeValue::Integer(integer) => integer.signed(),
        GoRuntimeValue::Float(float) => truncated(*float),
        GoRuntimeValue::String(text) => std::str::from_utf8(text)
            .ok()
            .and_then(|text| parse_int(without_zeros(text), 0, 64).ok())
            .unwrap_or_default(),
        other => calendar_number(other).unwrap_or_default(),
    }
}

/// Converts a value to a float, like `ToFloat64` of Go's package `cast`.
pub(crate) fn to_float(value: &GoRuntimeValue) -> f64 {
    match value {
        GoRuntimeValue::Bool(truth) => f64::from(u8::from(*truth)),
        GoRuntimeValue::Integer(integer) if integer.kind().is_signed() => integer.signed() as f64,
        GoRuntimeValue::Integer(integer) => integer.unsigned() as f64,
        GoRuntimeValue::Float(float) => *float,
        GoRuntimeValue::String(text) => std::str::from_utf8(text)
            .ok()
            .and_then(|text| parse_float(text, 64).ok())
            .unwrap_or_default(),
        other => calendar_number(other).unwrap_or_default() as f64,
    }
}

/// Converts a float like Go on an x86 machine. A number that does not fit becomes the smallest integer.
pub(crate) fn truncated(float: f64) -> i64 {
    let bound = 2f64.powi(63);
    if (-bound..bound).contains(&float) { float as i64 } else { i64::MIN }
}

fn calendar_number(value: &GoRuntimeValue) -> Option<i64> {
    let GoRuntimeValue::Object(object) = value else { return None };
    match (object.type_name(), object.underlying()?) {
        ("time.Month" | "time.Weekday", GoRuntimeValue::Integer(integer)) => Some(integer.signed()),
        _ => None,
    }
}

/// `1.00` without its point and zeros.
fn without_zeros(text: &str) -> &str {
    let rest = text.trim_end_matches('0');
    match rest.strip_suffix('.') {
        Some(whole) if rest.len() < text.len() => whole,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_with_their_base_and_without_a_fraction_of_zeros() {
        for (text, wanted) in [
            ("12", 12),
            ("010", 8),
            ("0x1f", 31),
            ("08", 0),
            ("1.0", 1),
            ("1.", 0),
            ("1.5", 0),
            ("-3.00", -3),
            ("1e3", 0),
            (" 1", 0),
        ] {
            assert_eq!(to_int(&GoRuntimeValue::from(text)), wanted, "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_is_the_least_number() {
        assert_eq!(truncated(1e20), i64::MIN);
        assert_eq!(truncated(f64::NAN), i64::MIN);
        assert_eq!(truncated(-1.9), -1);
    }
}
