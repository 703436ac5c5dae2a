//! The template functions for durations. Each function of sprig parses strings by its own rules. The functions that Helm has
//! from 4.3 on share one set of rules.

use std::any::Any;

use golang::GoRuntimeValue;
use golang::strconv::{QuotingStyle, parse_float, parse_int, quote};
use golang::time::GoDuration;
use golang::value::IntegerKind;
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use super::dates::given as time;
use super::integers::clamped;
use crate::arguments::{SprigResult, any};
use crate::function_table::{SprigFunctionEntry, impure, plain};
use crate::number_cast::truncated;
use crate::template_environment::TemplateEnvironment;

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    plain("duration", "func(interface {}) string", duration),
    plain("durationDays", "func(interface {}) float64", days),
    plain("durationHours", "func(interface {}) float64", hours),
    plain("durationMicroseconds", "func(interface {}) int64", microseconds),
    plain("durationMilliseconds", "func(interface {}) int64", milliseconds),
    plain("durationMinutes", "func(interface {}) float64", minutes),
    plain("durationNanoseconds", "func(interface {}) int64", nanoseconds),
    impure("durationRound", "func(interface {}) string", duration_round),
    plain("durationRoundTo", "func(interface {}, interface {}) time.Duration", round_to),
    plain("durationSeconds", "func(interface {}) float64", seconds),
    plain("durationTruncateTo", "func(interface {}, interface {}) time.Duration", truncate_to),
    plain("durationWeeks", "func(interface {}) float64", weeks),
    plain("mustToDuration", "func(interface {}) time.Duration", must_to_duration),
];

/// Converts seconds to a duration.
///
/// Parity(helm 4): of numbers an `int64` alone counts.
fn duration(args: &[GoRuntimeValue]) -> SprigResult {
    let seconds = match any(args, 0) {
        GoRuntimeValue::String(text) => {
            let text = String::from_utf8_lossy(text);
            clamped(parse_int(&text, 10, 64), &text)
        }
        GoRuntimeValue::Integer(integer) if integer.kind() == IntegerKind::Int64 => {
            integer.signed()
        }
        _ => 0,
    };
    Ok(GoRuntimeValue::from(GoDuration(seconds.wrapping_mul(GoDuration::SECOND.0)).to_string()))
}

/// A duration, or the time since a point in time, in the largest unit of which there is more than one.
fn duration_round(
    template_environment: &dyn TemplateEnvironment,
    _: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    let GoDuration(length) = match any(args, 0) {
        GoRuntimeValue::String(text) => {
            GoDuration::parse(&String::from_utf8_lossy(text)).unwrap_or_default()
        }
        GoRuntimeValue::Integer(integer) if integer.kind() == IntegerKind::Int64 => {
            GoDuration(integer.signed())
        }
        value => time(value).map(|time| template_environment.now().since(time)).unwrap_or_default(),
    };
    let length = length.unsigned_abs();
    let hour = GoDuration::HOUR.0.unsigned_abs();
    let units = [
        (hour * 24 * 365, "y"),
        (hour * 24 * 30, "mo"),
        (hour * 24, "d"),
        (hour, "h"),
        (GoDuration::MINUTE.0.unsigned_abs(), "m"),
        (GoDuration::SECOND.0.unsigned_abs(), "s"),
    ];
    let unit = units.into_iter().find(|(unit, _)| length > *unit);
    Ok(GoRuntimeValue::from(
        unit.map_or_else(|| "0s".to_owned(), |(unit, sign)| format!("{}{sign}", length / unit)),
    ))
}

/// A duration in days; zero if it is not valid.
fn days(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Float(forgiven(args).hours() / 24.0))
}

/// A duration in hours; zero if it is not valid.
fn hours(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Float(forgiven(args).hours()))
}

/// A duration in whole microseconds; zero if it is not valid.
fn microseconds(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::int64(forgiven(args).microseconds()))
}

/// A duration in whole milliseconds; zero if it is not valid.
fn milliseconds(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::int64(forgiven(args).milliseconds()))
}

/// A duration in minutes; zero if it is not valid.
fn minutes(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Float(forgiven(args).minutes()))
}

/// A duration in nanoseconds; zero if it is not valid.
fn nanoseconds(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::int64(forgiven(args).nanoseconds()))
}

/// Rounds a duration to a multiple of another one. If the other one is not valid, the duration stays unchanged.
fn round_to(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::object(forgiven(args).round(length(any(args, 1)).unwrap_or_default())))
}

/// A duration in seconds; zero if it is not valid.
fn seconds(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Float(forgiven(args).seconds()))
}

/// Truncates a duration to a multiple of another one. If the other one is not valid, the duration stays unchanged.
fn truncate_to(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::object(forgiven(args).truncate(length(any(args, 1)).unwrap_or_default())))
}

/// A duration in weeks; zero if it is not valid.
fn weeks(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Float(forgiven(args).hours() / 24.0 / 7.0))
}

/// The function `mustToDuration` of templates: reads a value as a duration, and fails if that is not possible.
fn must_to_duration(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::object(length(any(args, 0))?))
}

fn forgiven(args: &[GoRuntimeValue]) -> GoDuration {
    length(any(args, 0)).unwrap_or_default()
}

/// Reads a value as a duration like Helm. A number means seconds and may have a fraction.
fn length(value: &GoRuntimeValue) -> Result<GoDuration, TemplateFunctionError> {
    let fraction = |seconds: f64| GoDuration(truncated(seconds * GoDuration::SECOND.0 as f64));
    match value {
        GoRuntimeValue::Nil => return Err("invalid duration".into()),
        GoRuntimeValue::String(given) => {
            let text = String::from_utf8_lossy(given);
            let text = text.trim();
            if text.is_empty() {
                return Err("empty duration".into());
            }
            if let Ok(length) = GoDuration::parse(text) {
                return Ok(length);
            }
            return parse_float(text, 64).map(fraction).map_err(|_| {
                let quoted = quote(given, QuotingStyle::Printable);
                format!("could not parse duration {}", String::from_utf8_lossy(&quoted)).into()
            });
        }
        GoRuntimeValue::Object(object) => {
            let object: &dyn Any = &**object;
            if let Some(length) = object.downcast_ref::<GoDuration>() {
                return Ok(*length);
            }
        }
        _ => {}
    }
    match value.underlying() {
        GoRuntimeValue::Integer(integer) if !integer.kind().is_signed() && integer.signed() < 0 => {
            Err(format!("duration seconds overflow: {}", integer.unsigned()).into())
        }
        GoRuntimeValue::Integer(integer) => {
            Ok(GoDuration(integer.signed().wrapping_mul(GoDuration::SECOND.0)))
        }
        GoRuntimeValue::Float(seconds) => Ok(fraction(seconds)),
        _ => Err(format!("unsupported duration type {}", value.type_name()).into()),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn sprig_reads_each_in_its_own_way() {
        check(&[
            (
                r#"{{ duration 95 }} {{ duration "95" }} {{ duration (int64 95) }} {{ duration "x" }}"#,
                "0s 1m35s 1m35s 0s",
            ),
            (
                r#"{{ durationRound "2h10m5s" }} {{ durationRound "2400h10m5s" }} {{ durationRound "1h" }}"#,
                "2h 3mo 60m",
            ),
            (
                r#"{{ durationRound (now.AddDate -2 0 0) }} {{ durationRound 5 }} {{ durationRound "-90m" }}"#,
                "2y 0s 1h",
            ),
        ]);
    }

    #[test]
    fn helm_reads_all_alike() {
        check(&[
            (
                r#"{{ mustToDuration "1h30m" }} {{ mustToDuration 90 }} {{ mustToDuration " 2.5 " }}"#,
                "1h30m0s 1m30s 2.5s",
            ),
            (
                r#"{{ mustToDuration "bogus" }}"#,
                r#"error: error calling mustToDuration: could not parse duration "bogus""#,
            ),
            (
                r#"{{ mustToDuration true }}"#,
                "error: error calling mustToDuration: unsupported duration type bool",
            ),
            (
                r#"{{ durationSeconds "1.5s" }} {{ durationMinutes 30 }} {{ durationHours "90m" }}"#,
                "1.5 0.5 1.5",
            ),
            (
                r#"{{ durationDays "36h" }} {{ durationWeeks "168h" }} {{ durationDays "x" }}"#,
                "1.5 1 0",
            ),
            (
                r#"{{ durationMilliseconds "1.5s" }} {{ durationMicroseconds 1 }} {{ durationNanoseconds 1.5 }}"#,
                "1500 1000000 1500000000",
            ),
            (
                r#"{{ durationRoundTo "1h31m" "1h" }} {{ durationRoundTo "1h" "x" }}"#,
                "2h0m0s 1h0m0s",
            ),
            (
                r#"{{ durationTruncateTo "-90m" "1h" }} {{ durationTruncateTo "bad" "1h" }}"#,
                "-1h0m0s 0s",
            ),
        ]);
    }
}
