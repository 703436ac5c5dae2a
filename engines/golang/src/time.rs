//! Times, layouts and durations as Go's `time` reads and writes them.
//!
//! Here: a time. Below: durations (`duration.rs`), the calendar (`calendar.rs`), zones (`zone.rs`), layouts
//! (`layout.rs`), writing (`format.rs`) and reading (`parse.rs`) by them, what templates see of times (`object.rs`).
//! Elsewhere: the current time, which a caller passes.
//!
//! ```
//! use golang::time::{RFC3339, GoTime, GoTimeZone};
//!
//! let time = GoTime::parse("2006-01-02 15:04", "2027-03-04 05:06", &GoTimeZone::Utc)?;
//! let there = time.in_zone(GoTimeZone::load("America/New_York")?);
//! assert_eq!(there.format(RFC3339), "2027-03-04T00:06:00-05:00");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod calendar;
mod duration;
mod format;
mod layout;
mod object;
mod parse;
mod zone;

use std::cmp::Ordering;
use std::fmt;

pub use calendar::{CalendarDate, TimeOfDay};
pub use duration::{GoDuration, GoDurationError};
pub use parse::TimeParseError;
pub use zone::{GoTimeZone, GoTimeZoneError};

/// `2006-01-02T15:04:05Z07:00`
pub const RFC3339: &str = "2006-01-02T15:04:05Z07:00";
/// `2006-01-02T15:04:05.999999999Z07:00`
pub const RFC3339_NANO: &str = "2006-01-02T15:04:05.999999999Z07:00";

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A moment, and the zone in which it is written.
///
/// Equality and order are those of the moment (Go's `Equal` and `Compare`); the zone does not matter.
/// Years beyond ±292 billion are not reached; arithmetic stops there, where Go's wraps around.
#[derive(Debug, Clone)]
pub struct GoTime {
    /// Since 1970, rounded down.
    seconds: i64,
    /// Since the second began.
    nanos: u32,
    zone: GoTimeZone,
}

impl GoTime {
    /// The time so many seconds and nanoseconds after 1970 began in UTC; both may be anything.
    pub fn from_unix(seconds: i64, nanos: i64, zone: GoTimeZone) -> Self {
        let seconds = seconds.saturating_add(nanos.div_euclid(NANOS_PER_SECOND));
        let nanos = nanos.rem_euclid(NANOS_PER_SECOND) as u32;
        Self { seconds, nanos, zone }
    }

    /// What a clock shows in a zone. A time that a change of the clock leaves out is read by the offset that
    /// holds before or after it; of two that show the same, it is one of both (which ones, Go does not say).
    pub(crate) fn from_civil(date: CalendarDate, clock: TimeOfDay, zone: GoTimeZone) -> Self {
        let shown = calendar::seconds(date, clock);
        let seconds = shown.saturating_sub(zone.offset_of_civil(shown).into());
        Self { seconds, nanos: clock.nanosecond, zone }
    }

    /// Reads a time by a layout, in which `2006-01-02T15:04:05Z07:00` and its like stand for the parts.
    ///
    /// `local` is the zone whose abbreviations and offsets are known; a time without a zone is one of UTC.
    ///
    /// # Errors
    /// If the text is not of the layout, or no time.
    pub fn parse(layout: &str, text: &str, local: &GoTimeZone) -> Result<Self, TimeParseError> {
        parse::parse(layout, text, &GoTimeZone::Utc, local)
    }

    /// As [`GoTime::parse`], with a time without a zone being one of `zone` too (Go's `ParseInLocation`).
    ///
    /// # Errors
    /// If the text is not of the layout, or no time.
    pub fn parse_in(layout: &str, text: &str, zone: &GoTimeZone) -> Result<Self, TimeParseError> {
        parse::parse(layout, text, zone, zone)
    }

    /// The time by a layout.
    pub fn format(&self, layout: &str) -> String {
        format::format(self, layout)
    }

    /// The same moment in another zone.
    #[must_use]
    pub fn in_zone(&self, zone: GoTimeZone) -> Self {
        Self { zone, ..*self }
    }

    /// The zone in which it is written.
    pub fn zone(&self) -> &GoTimeZone {
        &self.zone
    }

    /// The abbreviation and the offset, in seconds east of UTC, that hold then in its zone.
    /// The abbreviation is empty where only the offset is known.
    pub fn abbreviation_and_offset(&self) -> (String, i32) {
        let period = self.zone.period(self.seconds);
        (period.abbreviation, period.offset)
    }

    /// Whole seconds since 1970 in UTC, rounded down.
    pub fn unix(&self) -> i64 {
        self.seconds
    }

    /// Nanoseconds since the second began.
    pub fn nanosecond(&self) -> u32 {
        self.nanos
    }

    /// The date in its zone.
    pub fn date(&self) -> CalendarDate {
        calendar::date(self.shown())
    }

    /// The time of day in its zone.
    pub fn clock(&self) -> TimeOfDay {
        TimeOfDay { nanosecond: self.nanos, ..calendar::clock(self.shown()) }
    }

    /// This time and a duration later.
    #[must_use]
    pub fn add(&self, duration: GoDuration) -> Self {
        let GoDuration(nanos) = duration;
        let seconds = self.seconds.saturating_add(nanos.div_euclid(NANOS_PER_SECOND));
        let nanos = i64::from(self.nanos) + nanos.rem_euclid(NANOS_PER_SECOND);
        Self::from_unix(seconds, nanos, self.zone.clone())
    }

    /// How long this is after another time, at most the longest duration there is.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> GoDuration {
        let seconds = i128::from(self.seconds) - i128::from(earlier.seconds);
        let nanos = seconds * i128::from(NANOS_PER_SECOND) + i128::from(self.nanos)
            - i128::from(earlier.nanos);
        let clamped = nanos.clamp(i64::MIN.into(), i64::MAX.into());
        GoDuration(i64::try_from(clamped).unwrap_or_default())
    }

    /// Seconds since 1970 as its clock shows them.
    fn shown(&self) -> i64 {
        self.seconds.saturating_add(self.zone.period(self.seconds).offset.into())
    }
}

impl PartialEq for GoTime {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for GoTime {}

impl PartialOrd for GoTime {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for GoTime {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl fmt::Display for GoTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.format("2006-01-02 15:04:05.999999999 -0700 MST"))
    }
}

/// Quotes as Go's `time` does: simpler than `strconv`, byte by byte.
fn quote(text: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for byte in text {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(*byte)]),
            b' '..=0x7f => quoted.push(char::from(*byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests;
