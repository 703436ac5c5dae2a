//! Parses numbers and times, and rejects invalid ones.

use golang::GoRuntimeValue;
use golang::strconv::{NumErrorReason, QuotingStyle, parse_float, parse_int, quote};
use golang::time::{GoTime, GoTimeZone};

use super::{LOCAL_DATE, LOCAL_DATETIME, LOCAL_TIME};
use crate::template_environment::TemplateEnvironment;

fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&quote(text.as_bytes(), QuotingStyle::Printable)).into_owned()
}

/// A whole number, in base 2, 8, 10 or 16.
pub(super) fn integer(text: &str) -> Result<GoRuntimeValue, String> {
    let invalid = |what: &str| Err(format!("Invalid integer {}: {what}", quoted(text)));
    if !are_underscores_inside(text) {
        return invalid("underscores must be surrounded by digits");
    }
    if has_leading_zero(text) {
        return invalid("cannot have leading zeroes");
    }
    match parse_int(text, 0, 64) {
        Ok(number) => Ok(GoRuntimeValue::int64(number)),
        Err(error) if error.reason == NumErrorReason::Range => {
            Err(format!("{text} is out of range for int64"))
        }
        Err(_) => Err(format!("BUG: Expected integer value, but got '{text}'.\n\n")),
    }
}

/// Reads a number of TOML that is not an integer. The error says what is not valid.
pub(super) fn float(text: &str) -> Result<GoRuntimeValue, String> {
    let invalid = |what: &str| Err(format!("Invalid float {}: {what}", quoted(text)));
    let parts: Vec<&str> = text.split(['.', 'e', 'E']).filter(|part| !part.is_empty()).collect();
    if !parts.iter().all(|part| are_underscores_inside(part)) {
        return invalid("underscores must be surrounded by digits");
    }
    if parts.first().is_some_and(|part| has_leading_zero(part)) {
        return invalid("cannot have leading zeroes");
    }
    let is_point_alone = |(at, _)| !text.as_bytes().get(at + 1).is_some_and(u8::is_ascii_digit);
    if text.match_indices('.').any(is_point_alone) {
        return invalid("'.' must be followed by one or more digits");
    }
    let digits = text.replace('_', "");
    match digits.as_str() {
        "+nan" => return Ok(GoRuntimeValue::Float(f64::NAN)),
        "-nan" => return Ok(GoRuntimeValue::Float(-f64::NAN)),
        _ => {}
    }
    match parse_float(&digits, 64) {
        Ok(number) => Ok(GoRuntimeValue::Float(number)),
        Err(error) if error.reason == NumErrorReason::Range => {
            Err(format!("{text} is out of range for float64"))
        }
        Err(_) => Err(format!("Invalid float value: {}", quoted(text))),
    }
}

fn has_leading_zero(text: &str) -> bool {
    match text.as_bytes() {
        [b'0', b'b' | b'o' | b'x', ..] => false,
        [b'0', _, ..] | [b'-' | b'+', b'0', _, ..] => true,
        _ => false,
    }
}

/// Whether each underscore is between digits.
fn are_underscores_inside(text: &str) -> bool {
    if matches!(text, "nan" | "+nan" | "-nan" | "inf" | "-inf" | "+inf") {
        return true;
    }
    let mut is_digit = false;
    for byte in text.bytes() {
        if byte == b'_' && !is_digit {
            return false;
        }
        is_digit = byte.is_ascii_hexdigit();
    }
    is_digit
}

/// Parses a date, a time of day, or both. Without an offset, the time is in the local zone.
pub(super) fn time(
    text: &str,
    template_environment: &dyn TemplateEnvironment,
) -> Result<GoRuntimeValue, String> {
    let text = text.replace('z', "Z").replace(['t', ' '], "T");
    let local = template_environment.local();
    let (_, offset) = template_environment.now().in_zone(local.clone()).abbreviation_and_offset();
    let [datetime, date, clock] =
        [LOCAL_DATETIME, LOCAL_DATE, LOCAL_TIME].map(|name| GoTimeZone::fixed(name, offset));
    let layouts = [
        ("2006-01-02T15:04:05.999999999Z07:00", local),
        ("2006-01-02T15:04:05.999999999", &datetime),
        ("2006-01-02", &date),
        ("15:04:05.999999999", &clock),
        ("2006-01-02T15:04Z07:00", local),
        ("2006-01-02T15:04", &datetime),
        ("15:04", &clock),
    ];
    for (layout, zone) in layouts {
        let Ok(time) = GoTime::parse_in(layout, &text, zone) else { continue };
        if lacks_zero(&text, layout) {
            break;
        }
        return Ok(GoRuntimeValue::object(time));
    }
    Err(format!("invalid datetime: {}", quoted(&text)))
}

/// Whether a number has fewer digits than in the layout, which Go's `time` lets pass.
fn lacks_zero(text: &str, layout: &str) -> bool {
    let fixed = layout.bytes().take_while(|byte| !matches!(byte, b'.' | b'Z'));
    fixed
        .enumerate()
        .any(|(at, byte)| !byte.is_ascii_digit() && text.as_bytes().get(at) != Some(&byte))
}
