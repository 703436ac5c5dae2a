//! The function `format`: `'%s of %d'.format([a, b])`.
//!
//! Source of the semantics: cel-go 0.26 `ext/formatting_v2.go`.

use golang::GoRuntimeValue as Go;
use golang::fmt;
use golang::strconv::{FloatTextFormat, format_float};
use golang::time::GoTimeZone;
use golang::value::{IntegerKind, SizedInteger};

use super::convert::{RFC3339_NANO, seconds_text};
use crate::budget::{CelBudget, CelError};
use crate::value::{CelList, CelValue};

/// How many digits after the point a clause may request.
///
/// Differs(cel-go): cel-go allows any number.
const MAX_PRECISION: usize = 1000;

pub(super) fn format(
    text: &str,
    args: &CelList<'_>,
    budget: &mut CelBudget,
) -> Result<String, CelError> {
    let mut formatted = String::with_capacity(text.len());
    let mut next = 0;
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let (before, clause) = rest.split_at(at);
        formatted.push_str(before);
        if let Some(after) = clause.strip_prefix("%%") {
            formatted.push('%');
            rest = after;
            continue;
        }
        let Some(arg) = args.get(next) else {
            return Err(CelError::failed(format!("index {next} out of range")));
        };
        next += 1;
        let clause = clause.get(1..).unwrap_or_default();
        if clause.is_empty() {
            return Err(CelError::failed("unexpected end of string"));
        }
        let (shown, after) = self::clause(clause, &arg, budget)?;
        budget.spend_bytes(shown.len())?;
        formatted.push_str(&shown);
        rest = after;
    }
    formatted.push_str(rest);
    budget.spend_bytes(formatted.len())?;
    Ok(formatted)
}

fn malformed(text: &str) -> CelError {
    CelError::failed(format!("could not parse formatting clause: {text}"))
}

/// Formats one clause. Returns its text and the rest of the format.
fn clause<'t>(
    clause: &'t str,
    arg: &CelValue<'_>,
    budget: &mut CelBudget,
) -> Result<(String, &'t str), CelError> {
    let (precision, rest) = precision(clause)?;
    let mut characters = rest.chars();
    let shown = match characters.next() {
        Some('s') => {
            let mut shown = String::new();
            append(&mut shown, arg, budget)?;
            Ok(shown)
        }
        Some('d') => match arg {
            CelValue::Int(int) => Ok(int.to_string()),
            CelValue::Uint(uint) => Ok(uint.to_string()),
            CelValue::Double(double) => Ok(plain(*double)),
            _ => Err("decimal clause can only be used on ints, uints, and doubles"),
        },
        Some('f') => number('f', precision, arg)
            .ok_or("fixed-point clause can only be used on ints, uints, and doubles"),
        Some('e') => number('e', precision, arg)
            .ok_or("scientific clause can only be used on ints, uints, and doubles"),
        Some('b') => match arg {
            CelValue::Bool(bool) => Ok(u8::from(*bool).to_string()),
            CelValue::Int(int) => Ok(signed(*int, |it| format!("{it:b}"))),
            CelValue::Uint(uint) => Ok(format!("{uint:b}")),
            _ => Err("only ints, uints, and bools can be formatted as binary"),
        },
        Some('o') => match arg {
            CelValue::Int(int) => Ok(signed(*int, |it| format!("{it:o}"))),
            CelValue::Uint(uint) => Ok(format!("{uint:o}")),
            _ => Err("octal clause can only be used on ints and uints"),
        },
        Some(letter @ ('x' | 'X')) => hexadecimal(arg)
            .map(|shown| if letter == 'X' { shown.to_uppercase() } else { shown })
            .ok_or("only ints, uints, bytes, and strings can be formatted as hex"),
        Some(other) => {
            return Err(malformed(&format!("unrecognized formatting clause \"{other}\"")));
        }
        None => return Err(malformed("could not find end of precision specifier")),
    };
    let shown = shown.map_err(|text| {
        let name = arg.type_name();
        CelError::failed(format!("error during formatting: {text}, was given {name}"))
    })?;
    Ok((shown, characters.as_str()))
}

fn precision(clause: &str) -> Result<(usize, &str), CelError> {
    let Some(rest) = clause.strip_prefix('.') else { return Ok((6, clause)) };
    let digits = rest.len() - rest.trim_start_matches(|it: char| it.is_ascii_digit()).len();
    let (digits, rest) = rest.split_at(digits);
    if rest.is_empty() {
        let text = "error while parsing precision: could not find end of precision specifier";
        return Err(malformed(text));
    }
    let precision = digits.parse().ok().filter(|it| *it <= MAX_PRECISION).ok_or_else(|| {
        malformed(&format!("error while parsing precision: error while converting precision to integer: \"{digits}\" is none up to {MAX_PRECISION}"))
    })?;
    Ok((precision, rest))
}

fn plain(double: f64) -> String {
    if double.is_nan() {
        return "NaN".to_owned();
    }
    if double.is_infinite() {
        return if double > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    format_float(double, FloatTextFormat::Fixed, None)
}

/// Formats a number by the verb with this precision. `None` if `arg` is not a number.
///
/// Parity(cel-go): whole numbers come out as Go's complaint about the verb.
fn number(verb: char, precision: usize, arg: &CelValue<'_>) -> Option<String> {
    let width = if verb == 'e' { "1" } else { "" };
    let form = format!("%{width}.{precision}{verb}");
    let value = match arg {
        CelValue::Int(int) => Go::int64(*int),
        CelValue::Uint(uint) => {
            Go::Integer(SizedInteger::new(IntegerKind::Uint64, uint.cast_signed()))
        }
        CelValue::Double(double) if !double.is_finite() => return Some(plain(*double)),
        CelValue::Double(double) => Go::Float(*double),
        _ => return None,
    };
    let shown = fmt::sprintf(form, &[value]).unwrap_or_default();
    Some(String::from_utf8_lossy(&shown).into_owned())
}

fn signed(int: i64, shown: impl Fn(u64) -> String) -> String {
    let sign = if int < 0 { "-" } else { "" };
    format!("{sign}{}", shown(int.unsigned_abs()))
}

fn hexadecimal(arg: &CelValue<'_>) -> Option<String> {
    let of_bytes = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match arg {
        CelValue::Int(int) => Some(signed(*int, |it| format!("{it:x}"))),
        CelValue::Uint(uint) => Some(format!("{uint:x}")),
        CelValue::String(text) => Some(of_bytes(text.as_bytes())),
        CelValue::Bytes(bytes) => Some(of_bytes(bytes)),
        _ => None,
    }
}

fn append(shown: &mut String, arg: &CelValue<'_>, budget: &mut CelBudget) -> Result<(), CelError> {
    budget.spend(1)?;
    match arg {
        CelValue::Null => shown.push_str("null"),
        CelValue::Bool(bool) => shown.push_str(&bool.to_string()),
        CelValue::Int(int) => shown.push_str(&int.to_string()),
        CelValue::Uint(uint) => shown.push_str(&uint.to_string()),
        CelValue::Double(double) => shown.push_str(&plain(*double)),
        CelValue::String(text) => {
            budget.spend_bytes(text.len())?;
            shown.push_str(text);
        }
        // Differs(cel-go): strings here are UTF-8, so bytes that are not are replaced.
        CelValue::Bytes(bytes) => {
            budget.spend_bytes(bytes.len())?;
            shown.push_str(&String::from_utf8_lossy(bytes));
        }
        CelValue::Duration(duration) => shown.push_str(&seconds_text(*duration)),
        CelValue::Timestamp(time) => {
            shown.push_str(&time.in_zone(GoTimeZone::Utc).format(RFC3339_NANO));
        }
        CelValue::Type(name) => shown.push_str(name),
        CelValue::List(list) => {
            shown.push('[');
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    shown.push_str(", ");
                }
                append(shown, &element, budget)?;
            }
            shown.push(']');
        }
        CelValue::Map(entries) => {
            let mut lines = Vec::with_capacity(entries.len());
            for key in entries.keys(budget)? {
                let value = entries.get(&key, budget)?.unwrap_or(CelValue::Null);
                let mut left = String::new();
                let mut right = String::new();
                append(&mut left, &key, budget)?;
                append(&mut right, &value, budget)?;
                // The text is copied twice.
                budget.spend_bytes((left.len() + right.len()).saturating_mul(2))?;
                lines.push((left, right));
            }
            lines.sort_by(|one, two| one.0.cmp(&two.0));
            let lines: Vec<String> =
                lines.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
            shown.push_str(&format!("{{{}}}", lines.join(", ")));
        }
        CelValue::Optional(_) => {
            return Err(CelError::failed(
                "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given optional_type",
            ));
        }
    }
    Ok(())
}
