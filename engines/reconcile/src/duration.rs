//! Reads and writes durations in Go's notation, because specs and statuses use it.
//!
//! Here: [`parse_duration`], [`format_duration`]. Elsewhere: intervals and retries (`requeue_delay.rs`), dates (`time.rs`),
//! Go's results for single strings (`cargo xtask conformance`).

use std::fmt::Write as _;
use std::time::Duration;

/// Why a text is not a duration that can be waited for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// A number is missing.
    #[error("`{0}` is not a duration; use numbers with units, such as `1h30m` or `500ms`")]
    Malformed(String),
    /// A number that no unit follows.
    #[error("duration `{0}` has no unit; add `s`, `m` or `h`")]
    MissingUnit(String),
    /// A unit that does not exist.
    #[error("duration `{text}` has the unknown unit `{unit}`; use `ms`, `s`, `m` or `h`")]
    UnknownUnit {
        /// The whole text.
        text: String,
        /// The part that is not a unit.
        unit: String,
    },
    /// More than Go's 64 bits of nanoseconds hold.
    #[error("duration `{0}` is longer than 2562047h47m16s, about 292 years")]
    TooLong(String),
    /// Less than nothing.
    #[error("duration `{0}` is negative")]
    Negative(String),
}

/// Go's limit: `math.MaxInt64` nanoseconds.
const MAX_NANOS: u64 = i64::MAX as u64;

/// Reads a duration as Go's `time.ParseDuration` does.
///
/// Differs(go): what is negative is an error, because nothing here can wait for less than nothing.
///
/// # Errors
/// If the text is not a duration, is negative, or is longer than 64 bits of nanoseconds hold.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    // Parity(go): zero alone needs no unit.
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    if unsigned.is_empty() {
        return Err(DurationError::Malformed(text.into()));
    }
    let mut nanos = 0u64;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let (part, after) = component(rest, text)?;
        nanos = nanos
            .checked_add(part)
            .filter(|sum| *sum <= MAX_NANOS + u64::from(is_negative))
            .ok_or_else(|| DurationError::TooLong(text.into()))?;
        rest = after;
    }
    if is_negative && nanos > 0 {
        return Err(DurationError::Negative(text.into()));
    }
    Ok(Duration::from_nanos(nanos))
}

/// Reads one number with its unit. Returns the nanoseconds and the rest of the text.
fn component<'t>(from: &'t str, text: &str) -> Result<(u64, &'t str), DurationError> {
    let too_long = || DurationError::TooLong(text.into());
    let (whole, rest) = split_digits(from);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(DurationError::Malformed(text.into()));
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let scale = match unit {
        "ns" => 1,
        // The micro sign and the Greek letter mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" => return Err(DurationError::MissingUnit(text.into())),
        _ => return Err(DurationError::UnknownUnit { text: text.into(), unit: unit.into() }),
    };
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
    let nanos = whole.checked_mul(scale).ok_or_else(too_long)?;
    Ok((nanos.checked_add(fraction_nanos(fraction, scale)).ok_or_else(too_long)?, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// The digits after the point, in units of `scale` nanoseconds.
///
/// Parity(go): digits beyond 2⁶³ are dropped, and the product is rounded as a float64.
fn fraction_nanos(digits: &str, scale: u64) -> u64 {
    let mut value = 0u64;
    let mut divisor = 1f64;
    for digit in digits.bytes().map(|digit| u64::from(digit - b'0')) {
        match value.checked_mul(10).and_then(|tens| tens.checked_add(digit)) {
            Some(next) if next <= MAX_NANOS + 1 => value = next,
            Some(_) | None => break,
        }
        divisor *= 10.0;
    }
    (value as f64 * (scale as f64 / divisor)) as u64
}

/// Writes a duration as Go's `Duration.String` does: `10m0s`, `1.5s`, `300ms`, `0s`.
pub fn format_duration(d: Duration) -> String {
    let nanos = d.subsec_nanos();
    if d.as_secs() == 0 {
        return match nanos {
            0 => "0s".into(),
            1..1_000 => format!("{nanos}ns"),
            1_000..1_000_000 => with_fraction(nanos / 1_000, nanos % 1_000, 3) + "µs",
            _ => with_fraction(nanos / 1_000_000, nanos % 1_000_000, 6) + "ms",
        };
    }
    let hours = d.as_secs() / 3600;
    let minutes = d.as_secs() / 60 % 60;
    let mut text = String::new();
    if hours > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    text + &with_fraction(d.as_secs() % 60, nanos, 9) + "s"
}

/// `whole.fraction` without trailing zeros, where the fraction has `width` digits.
fn with_fraction(whole: impl std::fmt::Display, fraction: u32, width: usize) -> String {
    if fraction == 0 {
        return whole.to_string();
    }
    format!("{whole}.{fraction:0width$}").trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_error_says_what_is_wrong_with_the_text() {
        let text = |text| parse_duration(text).unwrap_err().to_string();
        assert_eq!(text("10"), "duration `10` has no unit; add `s`, `m` or `h`");
        assert_eq!(text("1d"), "duration `1d` has the unknown unit `d`; use `ms`, `s`, `m` or `h`");
        assert_eq!(text("-5m"), "duration `-5m` is negative");
        assert!(text("2562048h").contains("longer than"));
        assert!(text("99999999999999999999h").contains("longer than"));
        assert!(text("soon").contains("is not a duration"));
    }

    #[test]
    fn the_longest_rust_duration_can_be_written() {
        assert_eq!(format_duration(Duration::MAX), "5124095576030431h0m15.999999999s");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(nanos in prop_oneof![0..2_000_000_000u64, 0..=MAX_NANOS]) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_breaks_the_reader(
            text in "[-+]?([0-9]{0,22}\\.?[0-9]{0,22}(ns|us|µs|μs|ms|s|m|h|.)?){0,4}|.*",
        ) {
            if let Ok(duration) = parse_duration(&text) {
                prop_assert!(duration.as_nanos() <= u128::from(MAX_NANOS));
            }
        }
    }
}
