//! Writes a time by a layout.

use super::GoTime;
use super::calendar::{self, CalendarDate, TimeOfDay};
use super::layout::{self, LayoutElement, MONTHS, WEEKDAYS, ZoneOffsetFormat};

/// The parts of a time, in its zone and calendar.
struct LocalTimeFields {
    date: CalendarDate,
    clock: TimeOfDay,
    abbreviation: String,
    offset: i32,
}

/// Writes a time in the form that a Go layout describes.
pub(super) fn format(time: &GoTime, layout: &str) -> String {
    let period = time.zone.period(time.seconds);
    let seconds = time.seconds.saturating_add(period.offset.into());
    let shown = LocalTimeFields {
        date: calendar::date(seconds),
        clock: TimeOfDay { nanosecond: time.nanos, ..calendar::clock(seconds) },
        abbreviation: period.abbreviation,
        offset: period.offset,
    };
    let mut text = String::with_capacity(layout.len() + 10);
    let mut rest = layout;
    while let Some(chunk) = layout::chunk(rest.as_bytes()) {
        // Elements of a layout are ASCII, so the text is never cut within a character.
        text.push_str(&rest[..chunk.before.len()]);
        element(chunk.element, &shown, &mut text);
        rest = &rest[rest.len() - chunk.after.len()..];
    }
    text.push_str(rest);
    text
}

fn element(element: LayoutElement, shown: &LocalTimeFields, to: &mut String) {
    let LocalTimeFields { date, clock, .. } = shown;
    let month = MONTHS[date.month.clamp(1, 12) as usize - 1];
    let weekday = WEEKDAYS[date.weekday()];
    let hour = if clock.hour % 12 == 0 { 12 } else { clock.hour % 12 };
    let text = match element {
        LayoutElement::LongMonth => month.to_owned(),
        LayoutElement::Month => month[..3].to_owned(),
        LayoutElement::NumMonth => date.month.to_string(),
        LayoutElement::ZeroMonth => format!("{:02}", date.month),
        LayoutElement::LongWeekday => weekday.to_owned(),
        LayoutElement::Weekday => weekday[..3].to_owned(),
        LayoutElement::Day => date.day.to_string(),
        LayoutElement::UnderDay => format!("{:2}", date.day),
        LayoutElement::ZeroDay => format!("{:02}", date.day),
        LayoutElement::UnderYearDay => format!("{:3}", date.year_day()),
        LayoutElement::ZeroYearDay => format!("{:03}", date.year_day()),
        LayoutElement::Hour => format!("{:02}", clock.hour),
        LayoutElement::Hour12 => hour.to_string(),
        LayoutElement::ZeroHour12 => format!("{hour:02}"),
        LayoutElement::Minute => clock.minute.to_string(),
        LayoutElement::ZeroMinute => format!("{:02}", clock.minute),
        LayoutElement::Second => clock.second.to_string(),
        LayoutElement::ZeroSecond => format!("{:02}", clock.second),
        LayoutElement::LongYear if date.year < 0 => format!("-{:04}", -date.year),
        LayoutElement::LongYear => format!("{:04}", date.year),
        LayoutElement::Year => format!("{:02}", date.year.unsigned_abs() % 100),
        LayoutElement::HalfDay { is_upper } => match (is_upper, clock.hour >= 12) {
            (true, false) => "AM",
            (true, true) => "PM",
            (false, false) => "am",
            (false, true) => "pm",
        }
        .to_owned(),
        LayoutElement::Abbreviation if !shown.abbreviation.is_empty() => shown.abbreviation.clone(),
        LayoutElement::Abbreviation => offset(shown.offset, NUMERIC),
        LayoutElement::Offset(form) => offset(shown.offset, form),
        LayoutElement::Fraction { digits, is_trimmed, separator } => {
            fraction(clock.nanosecond, digits, is_trimmed, char::from(separator))
        }
    };
    to.push_str(&text);
}

/// The form of an offset that replaces a missing abbreviation.
const NUMERIC: ZoneOffsetFormat =
    ZoneOffsetFormat { has_z: false, has_colon: false, has_minutes: true, has_seconds: false };

fn offset(seconds: i32, form: ZoneOffsetFormat) -> String {
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
