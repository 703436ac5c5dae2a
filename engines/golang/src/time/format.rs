//! Writing a time by a layout.

use super::Time;
use super::calendar::{self, Clock, Date};
use super::layout::{self, Element, MONTHS, Offset, WEEKDAYS};

/// The parts of a time in its zone and calendar.
struct LocalTimeFields {
    date: Date,
    clock: Clock,
    abbreviation: String,
    offset: i32,
}

/// Writes a time.
pub(super) fn format(time: &Time, layout: &str) -> String {
    let period = time.zone.period(time.seconds);
    let seconds = time.seconds.saturating_add(period.offset.into());
    let shown = LocalTimeFields {
        date: calendar::date(seconds),
        clock: Clock { nanosecond: time.nanos, ..calendar::clock(seconds) },
        abbreviation: period.abbreviation,
        offset: period.offset,
    };
    let mut text = String::with_capacity(layout.len() + 10);
    let mut rest = layout;
    while let Some(chunk) = layout::chunk(rest.as_bytes()) {
        // Elements are ASCII, so nothing is cut within a character.
        text.push_str(&rest[..chunk.before.len()]);
        element(chunk.element, &shown, &mut text);
        rest = &rest[rest.len() - chunk.after.len()..];
    }
    text.push_str(rest);
    text
}

fn element(element: Element, shown: &LocalTimeFields, to: &mut String) {
    let LocalTimeFields { date, clock, .. } = shown;
    let month = MONTHS[date.month.clamp(1, 12) as usize - 1];
    let weekday = WEEKDAYS[date.weekday()];
    let hour = if clock.hour % 12 == 0 { 12 } else { clock.hour % 12 };
    let text = match element {
        Element::LongMonth => month.to_owned(),
        Element::Month => month[..3].to_owned(),
        Element::NumMonth => date.month.to_string(),
        Element::ZeroMonth => format!("{:02}", date.month),
        Element::LongWeekday => weekday.to_owned(),
        Element::Weekday => weekday[..3].to_owned(),
        Element::Day => date.day.to_string(),
        Element::UnderDay => format!("{:2}", date.day),
        Element::ZeroDay => format!("{:02}", date.day),
        Element::UnderYearDay => format!("{:3}", date.year_day()),
        Element::ZeroYearDay => format!("{:03}", date.year_day()),
        Element::Hour => format!("{:02}", clock.hour),
        Element::Hour12 => hour.to_string(),
        Element::ZeroHour12 => format!("{hour:02}"),
        Element::Minute => clock.minute.to_string(),
        Element::ZeroMinute => format!("{:02}", clock.minute),
        Element::Second => clock.second.to_string(),
        Element::ZeroSecond => format!("{:02}", clock.second),
        Element::LongYear if date.year < 0 => format!("-{:04}", -date.year),
        Element::LongYear => format!("{:04}", date.year),
        Element::Year => format!("{:02}", date.year.unsigned_abs() % 100),
        Element::HalfDay { is_upper } => match (is_upper, clock.hour >= 12) {
            (true, false) => "AM",
            (true, true) => "PM",
            (false, false) => "am",
            (false, true) => "pm",
        }
        .to_owned(),
        Element::Abbreviation if !shown.abbreviation.is_empty() => shown.abbreviation.clone(),
        Element::Abbreviation => offset(shown.offset, NUMERIC),
        Element::Offset(form) => offset(shown.offset, form),
        Element::Fraction { digits, is_trimmed, separator } => {
            fraction(clock.nanosecond, digits, is_trimmed, char::from(separator))
        }
    };
    to.push_str(&text);
}

/// How an offset is written where an abbreviation should be.
const NUMERIC: Offset =
    Offset { has_z: false, has_colon: false, has_minutes: true, has_seconds: false };

fn offset(seconds: i32, form: Offset) -> String {
    if seconds == 0 && form.has_z {
        return "Z".to_owned();
    }
    // Parity(go): an offset of less than a minute has the sign `+`, whichever it is.
    let sign = if seconds / 60 < 0 { '-' } else { '+' };
    let minutes = (seconds / 60).abs();
    let colon = if form.has_colon { ":" } else { "" };
    let mut text = format!("{sign}{:02}", minutes / 60);
    if form.has_minutes {
        text.push_str(&format!("{colon}{:02}", minutes % 60));
    }
    if form.has_seconds {
        // Parity(go): and with that sign, its seconds are written as they are.
        let seconds = if seconds / 60 < 0 { -seconds } else { seconds };
        text.push_str(&match seconds % 60 {
            seconds if seconds < 0 => format!("{colon}-{:02}", -seconds),
            seconds => format!("{colon}{seconds:02}"),
        });
    }
    text
}

fn fraction(nanos: u32, digits: usize, is_trimmed: bool, separator: char) -> String {
    if is_trimmed && (digits == 0 || nanos == 0) {
        return String::new();
    }
    let text = format!("{separator}{nanos:09}");
    let text = &text[..=digits.min(9)];
    if !is_trimmed {
        return text.to_owned();
    }
    let text = text.trim_end_matches('0');
    text.strip_suffix(separator).unwrap_or(text).to_owned()
}
