//! Reads a time by a layout.
//!
//! Here: the parts, and the time that they form. Below: reading one part (`field.rs`).

mod field;

use super::calendar::{self, CalendarDate, TimeOfDay};
use super::layout::{self, LayoutChunk};
use super::{GoTime, GoTimeZone, quote};
use field::TimeFieldError;

/// Why a text is not a time of the layout, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeParseError {
    /// A part of the text does not match the part of the layout.
    #[error(
        "parsing time {} as {}: cannot parse {} as {}",
        quote(text.as_bytes()), quote(layout.as_bytes()), quote(rest), quote(element)
    )]
    Mismatch {
        /// The layout.
        layout: String,
        /// The text.
        text: String,
        /// The rest of the text, from the mismatch on.
        rest: Vec<u8>,
        /// The element of the layout.
        element: Vec<u8>,
    },
    /// Text follows the time.
    #[error("parsing time {}: extra text: {}", quote(text.as_bytes()), quote(rest))]
    ExtraText {
        /// The text.
        text: String,
        /// The text after the time.
        rest: Vec<u8>,
    },
    /// A number is out of its range.
    #[error("parsing time {}: {what} out of range", quote(text.as_bytes()))]
    OutOfRange {
        /// The text.
        text: String,
        /// What the number counts.
        what: &'static str,
    },
    /// The day of the year contradicts the month or the day.
    #[error("parsing time {}: day-of-year does not match {what}", quote(text.as_bytes()))]
    YearDay {
        /// The text.
        text: String,
        /// The part that contradicts the day of the year.
        what: &'static str,
    },
}

/// The parts that were read. Parts that the layout lacks keep these values.
#[derive(Default)]
struct TimeParts {
    year: i64,
    month: Option<u32>,
    day: Option<u32>,
    year_day: Option<u32>,
    clock: TimeOfDay,
    /// Whether `PM` was read. `None` if neither `AM` nor `PM` was.
    is_afternoon: Option<bool>,
    is_utc: bool,
    /// The offset, in seconds east of UTC.
    offset: Option<i32>,
    /// The abbreviation of a zone.
    zone: Option<String>,
}

/// Reads a time. `zone` is the zone of times without one, and `local` the zone whose abbreviations are known.
pub(super) fn parse(
    layout: &str,
    text: &str,
    zone: &GoTimeZone,
    local: &GoTimeZone,
) -> Result<GoTime, TimeParseError> {
    let mismatch = |rest: &[u8], element: &[u8]| TimeParseError::Mismatch {
        layout: layout.to_owned(),
        text: text.to_owned(),
        rest: rest.to_owned(),
        element: element.to_owned(),
    };
    let mut parts = TimeParts::default();
    let mut layout_left = layout.as_bytes();
    let mut left = text.as_bytes();
    while let Some(LayoutChunk { before, spelled, element, after }) = layout::chunk(layout_left) {
        left = skip(left, before).map_err(|rest| mismatch(rest, before))?;
        layout_left = after;
        left = parts.read(element, left, layout_left).map_err(|fault| match fault {
            TimeFieldError::Mismatch => mismatch(left, spelled),
            TimeFieldError::OutOfRange(what) => {
                TimeParseError::OutOfRange { text: text.to_owned(), what }
            }
        })?;
    }
    left = skip(left, layout_left).map_err(|rest| mismatch(rest, layout_left))?;
    if !left.is_empty() {
        return Err(TimeParseError::ExtraText { text: text.to_owned(), rest: left.to_owned() });
    }
    if parts.is_afternoon == Some(true) && parts.clock.hour < 12 {
        parts.clock.hour += 12;
    } else if parts.is_afternoon == Some(false) && parts.clock.hour == 12 {
        parts.clock.hour = 0;
    }
    let date = parts.date(text)?;
    Ok(parts.time(date, zone, local))
}

/// Removes literal text from the beginning. Any number of spaces matches a space. An error has the text from the
/// mismatch on.
fn skip<'t>(mut text: &'t [u8], mut literal: &[u8]) -> Result<&'t [u8], &'t [u8]> {
    while let [byte, rest @ ..] = literal {
        if *byte == b' ' {
            if text.first().is_some_and(|byte| *byte != b' ') {
                return Err(text);
            }
            (literal, text) = (without_spaces(literal), without_spaces(text));
            continue;
        }
        text = text.strip_prefix(&[*byte]).ok_or(text)?;
        literal = rest;
    }
    Ok(text)
}

fn without_spaces(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|byte| **byte == b' ').count()..]
}

impl TimeParts {
    /// The date that was read.
    fn date(&self, text: &str) -> Result<CalendarDate, TimeParseError> {
        let out_of_range = |what| TimeParseError::OutOfRange { text: text.to_owned(), what };
        let year = self.year;
        let Some(year_day) = self.year_day else {
            let month = self.month.unwrap_or(1);
            let day = self.day.unwrap_or(1);
            if day < 1 || day > calendar::days_in(month, year) {
                return Err(out_of_range("day"));
            }
            return Ok(CalendarDate { year, month, day });
        };
        if year_day < 1 || year_day > if calendar::is_leap(year) { 366 } else { 365 } {
            return Err(out_of_range("day-of-year"));
        }
        let mut month = 1;
        let mut day = year_day;
        while day > calendar::days_in(month, year) {
            day -= calendar::days_in(month, year);
            month += 1;
        }
        let contradicts = |what| TimeParseError::YearDay { text: text.to_owned(), what };
        if self.month.is_some_and(|read| read != month) {
            return Err(contradicts("month"));
        }
        if self.day.is_some_and(|read| read != day) {
            return Err(contradicts("day"));
        }
        Ok(CalendarDate { year, month, day })
    }

    fn time(self, date: CalendarDate, zone: &GoTimeZone, local: &GoTimeZone) -> GoTime {
        let clock = self.clock;
        if self.is_utc {
            return GoTime::from_civil(date, clock, GoTimeZone::Utc);
        }
        let shown = calendar::seconds(date, clock);
        let at = |offset: i32, zone| {
            let seconds = shown - i64::from(offset);
            GoTime::from_unix(seconds, clock.nanosecond.into(), zone)
        };
        // Parity(go): it marks a missing offset by the number -1, so that -1 is treated as missing.
        if let Some(offset) = self.offset.filter(|offset| *offset != -1) {
            let period = local.period(shown - i64::from(offset));
            let is_named = self.zone.as_ref().is_none_or(|name| *name == period.abbreviation);
            if period.offset == offset && is_named {
                return at(offset, local.clone());
            }
            return at(offset, GoTimeZone::fixed(&self.zone.unwrap_or_default(), offset));
        }
        let Some(name) = self.zone else { return GoTime::from_civil(date, clock, zone.clone()) };
        if let Some(offset) = local.offset_of_name(&name, shown) {
            return at(offset, local.clone());
        }
        // An unknown abbreviation is kept with the offset zero. Only a form such as `GMT+3` has an offset.
        let hours = name.strip_prefix("GMT").and_then(|hours| hours.parse().ok()).unwrap_or(0);
        // Parity(go): then the time is read as that of UTC.
        GoTime::from_unix(shown, clock.nanosecond.into(), GoTimeZone::fixed(&name, hours * 3600))
    }
}
