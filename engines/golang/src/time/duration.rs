//! Durations: signed 64-bit numbers of nanoseconds. Elsewhere: durations in specs, which are never negative
//! (`reconcile`).

use std::fmt;
use std::str::FromStr;

use super::quote;

/// A length of time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct GoDuration(pub i64);

/// Why a text is not a duration, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoDurationError {
    /// The text does not have the form of a duration, or the duration is too long.
    #[error("time: invalid duration {}", quote(.0.as_bytes()))]
    Invalid(String),
    /// A number has no unit.
    #[error("time: missing unit in duration {}", quote(.0.as_bytes()))]
    MissingUnit(String),
    /// A unit does not exist.
    #[error("time: unknown unit {} in duration {}", quote(unit.as_bytes()), quote(text.as_bytes()))]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// The largest number of nanoseconds before the sign is known. The most negative duration has one nanosecond more than
/// the longest.
const MAX_DURATION_NANOS: u64 = 1 << 63;

impl GoDuration {
    /// A microsecond.
    pub(crate) const MICROSECOND: Self = Self(1_000);
    /// A millisecond.
    pub(crate) const MILLISECOND: Self = Self(1_000_000);
    /// A second.
    pub const SECOND: Self = Self(1_000_000_000);
    /// A minute.
    pub const MINUTE: Self = Self(60 * Self::SECOND.0);
    /// An hour.
    pub const HOUR: Self = Self(60 * Self::MINUTE.0);

    /// Reads numbers with units, such as `-1h30m` or `1.5s`. The units are `ns`, `us` (or `µs`), `ms`, `s`, `m` and
    /// `h`.
    ///
    /// # Errors
    /// The text does not have this form, or the duration is too long.
    pub fn parse(text: &str) -> Result<Self, GoDurationError> {
        let invalid = || GoDurationError::Invalid(text.to_owned());
        let (is_negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut nanos = 0u64;
        while !rest.is_empty() {
            let (part, after) = component(rest, text)?;
            nanos = nanos
                .checked_add(part)
                .filter(|nanos| *nanos <= MAX_DURATION_NANOS)
                .ok_or_else(invalid)?;
            rest = after;
        }
        match i64::try_from(nanos) {
            Ok(nanos) => Ok(Self(if is_negative { -nanos } else { nanos })),
            Err(_) if is_negative => Ok(Self(i64::MIN)),
            Err(_) => Err(invalid()),
        }
    }

    /// Rounds towards zero to a multiple of `unit`. If `unit` is not positive, the duration does not change.
    #[must_use]
    pub fn truncate(self, unit: Self) -> Self {
        if unit.0 <= 0 { self } else { Self(self.0 - self.0 % unit.0) }
    }

    /// Rounds to the nearest multiple of `unit`, and halves away from zero. If `unit` is not positive, the duration
    /// does not change. A result that does not fit becomes the longest duration.
    #[must_use]
    pub fn round(self, unit: Self) -> Self {
        if unit.0 <= 0 {
            return self;
        }
        let over = (self.0 % unit.0).unsigned_abs();
        if over * 2 < unit.0.unsigned_abs() {
            return self.truncate(unit);
        }
        let more = self.truncate(unit).0;
        Self(if self.0 < 0 { more.saturating_sub(unit.0) } else { more.saturating_add(unit.0) })
    }

    /// The duration without its sign. The most negative duration becomes the longest.
    #[must_use]
    pub fn abs(self) -> Self {
        Self(self.0.saturating_abs())
    }

    /// The whole duration in hours, with fractions.
    pub fn hours(self) -> f64 {
        self.in_units(Self::HOUR)
    }

    /// The whole duration in minutes, with fractions.
    pub fn minutes(self) -> f64 {
        self.in_units(Self::MINUTE)
    }

    /// The whole duration in seconds, with fractions.
    pub fn seconds(self) -> f64 {
        self.in_units(Self::SECOND)
    }

    /// The duration in whole milliseconds, rounded towards zero.
    pub fn milliseconds(self) -> i64 {
        self.0 / Self::MILLISECOND.0
    }

    /// The duration in whole microseconds, rounded towards zero.
    pub fn microseconds(self) -> i64 {
        self.0 / Self::MICROSECOND.0
    }

    /// The whole duration in nanoseconds.
    pub fn nanoseconds(self) -> i64 {
        self.0
    }

    /// Parity(go): the whole and the rest are divided apart, which rounds otherwise than one division.
    fn in_units(self, unit: Self) -> f64 {
        (self.0 / unit.0) as f64 + (self.0 % unit.0) as f64 / unit.0 as f64
    }
}

impl FromStr for GoDuration {
    type Err = GoDurationError;

    fn from_str(text: &str) -> Result<Self, GoDurationError> {
        Self::parse(text)
    }
}

/// Reads one number with its unit. Returns the nanoseconds and the rest of the text.
fn component<'t>(from: &'t str, text: &str) -> Result<(u64, &'t str), GoDurationError> {
    let invalid = || GoDurationError::Invalid(text.to_owned());
    let (whole, rest) = split_digits(from);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    let whole = match (whole, fraction) {
        ("", "") => return Err(invalid()),
        ("", _) => 0,
        _ => whole.parse().ok().filter(|whole| *whole <= MAX_DURATION_NANOS).ok_or_else(invalid)?,
    };
    let end = rest.find(|next: char| next == '.' || next.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let scale: u64 = match unit {
        "ns" => 1,
        // The micro sign, and the Greek letter mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" => return Err(GoDurationError::MissingUnit(text.to_owned())),
        _ => {
            let unit = unit.to_owned();
            let text = text.to_owned();
            return Err(GoDurationError::UnknownUnit { unit, text });
        }
    };
    let nanos = whole
        .checked_mul(scale)
        .and_then(|nanos| nanos.checked_add(nanos_of_fraction(fraction, scale)))
        .filter(|nanos| *nanos <= MAX_DURATION_NANOS);
    Ok((nanos.ok_or_else(invalid)?, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len()))
}

/// The digits after the point, in units of `scale` nanoseconds.
///
/// Parity(go): digits beyond 2⁶³ are dropped, and the product is rounded as a float64.
fn nanos_of_fraction(digits: &str, scale: u64) -> u64 {
    let mut value = 0u64;
    let mut divisor = 1f64;
    for digit in digits.bytes().map(|digit| u64::from(digit - b'0')) {
        match value.checked_mul(10).and_then(|tens| tens.checked_add(digit)) {
            Some(next) if value <= (MAX_DURATION_NANOS - 1) / 10 && next <= MAX_DURATION_NANOS => {
                value = next;
            }
            Some(_) | None => break,
        }
        divisor *= 10.0;
    }
    (value as f64 * (scale as f64 / divisor)) as u64
}

impl fmt::Display for GoDuration {
    /// Writes the duration as Go does: `1h30m0s`, `1.5s`, `300ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write!(f, "{}µs", DurationDecimal(nanos, 3)),
            1_000_000..1_000_000_000 => write!(f, "{}ms", DurationDecimal(nanos, 6)),
            _ => {
                let minutes = nanos / 60_000_000_000;
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                write!(f, "{}s", DurationDecimal(nanos % 60_000_000_000, 9))
            }
        }
    }
}

/// A number with this number of digits after the point, written without zeros at its end.
struct DurationDecimal(u64, u32);

impl fmt::Display for DurationDecimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, digits) = *self;
        let unit = 10u64.pow(digits);
        write!(f, "{}", number / unit)?;
        if number % unit == 0 {
            return Ok(());
        }
        let fraction = format!("{:0width$}", number % unit, width = digits as usize);
        write!(f, ".{}", fraction.trim_end_matches('0'))
    }
}
