//! Reads and writes times and durations as Go's `time` does, with its layouts.
//!
//! Here: a time. Below: durations (`duration.rs`), the calendar (`calendar.rs`), zones (`zone.rs`), layouts
//! (`layout.rs`), writing (`format.rs`) and reading (`parse.rs`) times by a layout, and times as templates see them
//! (`template_object.rs`). Elsewhere: the current time, which the caller passes.
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
mod parse;
mod template_object;
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

/// A moment, with the zone in which it is written.
///
/// Equality and order compare the moments (Go's `Equal` and `Compare`). The zone does not matter. Years beyond ±292
/// billion cannot be represented. Arithmetic stops there, where Go's wraps around.
#[derive(Debug, Clone)]
pub struct GoTime {
    /// Seconds since 1970, rounded down.
    seconds: i64,
    /// Nanoseconds since the beginning of the second.
    nanos: u32,
    zone: GoTimeZone,
}

impl GoTime {
    /// The time at this number of seconds and nanoseconds after the beginning of 1970 in UTC. Both may have any value.
    pub fn from_unix(seconds: i64, nanos: i64, zone: GoTimeZone) -> Self {
        let seconds = seconds.saturating_add(nanos.div_euclid(NANOS_PER_SECOND));
        let nanos = nanos.rem_euclid(NANOS_PER_SECOND) as u32;
        Self { seconds, nanos, zone }
    }

    /// The time that a clock in a zone shows. A change of the clock may skip a time, which is then read with the offset
    /// before or after the change. If the clock shows a time twice, the result is one of both. Go does not say which.
    pub(crate) fn from_civil(date: CalendarDate, clock: TimeOfDay, zone: GoTimeZone) -> Self {
        let shown = calendar::seconds(date, clock);
        let seconds = shown.saturating_sub(zone.offset_of_civil(shown).into());
        Self { seconds, nanos: clock.nanosecond, zone }
    }

    /// Reads a time by a layout, in which texts such as `2006-01-02T15:04:05Z07:00` stand for the parts.
    ///
    /// `local` is the zone whose abbreviations and offsets are known. A time without a zone is in UTC.
    ///
    /// # Errors
    /// The text does not follow the layout, or is not a valid time.
    pub fn parse(layout: &str, text: &str, local: &GoTimeZone) -> Result<Self, TimeParseError> {
        parse::parse(layout, text, &GoTimeZone::Utc, local)
    }

    /// Like [`GoTime::parse`], except that a time without a zone is in `zone` (Go's `ParseInLocation`).
    ///
    /// # Errors
    /// The text does not follow the layout, or is not a valid time.
    pub fn parse_in(layout: &str, text: &str, zone: &GoTimeZone) -> Result<Self, TimeParseError> {
        parse::parse(layout, text, zone, zone)
    }

    /// Writes the time by a layout.
    pub fn format(&self, layout: &str) -> String {
        format::format(self, layout)
    }

    /// The same moment in another zone.
    #[must_use]
    pub fn in_zone(&self, zone: GoTimeZone) -> Self {
        Self { zone, ..*self }
    }

    /// The zone in which the time is written.
    pub fn zone(&self) -> &GoTimeZone {
        &self.zone
    }

    /// The abbreviation and the offset of the time's zone at that moment. The offset is in seconds east of UTC. The
    /// abbreviation is empty if only the offset is known.
    pub fn abbreviation_and_offset(&self) -> (String, i32) {
        let period = self.zone.period(self.seconds);
        (period.abbreviation, period.offset)
    }

    /// Whole seconds since 1970 in UTC, rounded down.
    pub fn unix(&self) -> i64 {
        self.seconds
    }

    /// Nanoseconds since the beginning of the second.
    pub fn nanosecond(&self) -> u32 {
        self.nanos
    }

    /// The date in the time's zone.
    pub fn date(&self) -> CalendarDate {
        calendar::date(self.shown())
    }

    /// The time of day in the time's zone.
    pub fn clock(&self) -> TimeOfDay {
        TimeOfDay { nanosecond: self.nanos, ..calendar::clock(self.shown()) }
    }

    /// The time after a duration.
    #[must_use]
    pub fn add(&self, duration: GoDuration) -> Self {
        let GoDuration(nanos) = duration;
        let seconds = self.seconds.saturating_add(nanos.div_euclid(NANOS_PER_SECOND));
        let nanos = i64::from(self.nanos) + nanos.rem_euclid(NANOS_PER_SECOND);
        Self::from_unix(seconds, nanos, self.zone.clone())
    }

    /// The duration since an earlier time. It is at most the longest duration.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> GoDuration {
        let seconds = i128::from(self.seconds) - i128::from(earlier.seconds);
        let nanos = seconds * i128::from(NANOS_PER_SECOND) + i128::from(self.nanos)
            - i128::from(earlier.nanos);
        let clamped = nanos.clamp(i64::MIN.into(), i64::MAX.into());
        GoDuration(i64::try_from(clamped).unwrap_or_default())
    }

    /// The seconds since 1970 that a clock in the time's zone shows.
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

/// Quotes a text as Go's `time` does, byte by byte. This is simpler than `strconv`.
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
