//! One event of an iCalendar file, and the periods that the event covers.
//!
//! Elsewhere: the dates of a recurrence rule (`recurrence.rs`), reading the file (`icalendar.rs`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::{self, Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span};

use super::content_line::ICalendarContentLine;
use super::recurrence::{RecurrenceRule, days_after};
use super::{ICalendarLineError, RecurrenceExpansionBudget, RecurrenceExpansionLimitExceeded};
use crate::Time;
use crate::cron::time_zone;
use crate::freeze_calendar::FrozenPeriod;

/// The lines of an event that affect when it is.
#[derive(Debug, Default)]
pub(super) struct CalendarEventProperties {
    start: Option<ICalendarContentLine>,
    end: Option<ICalendarContentLine>,
    duration: Option<ICalendarContentLine>,
    rule: Option<ICalendarContentLine>,
    status: Option<ICalendarContentLine>,
    excluded: Vec<ICalendarContentLine>,
}

impl CalendarEventProperties {
    /// Keeps a line if it affects when the event is. Other lines are ignored.
    pub(super) fn take(&mut self, line: ICalendarContentLine) -> Result<(), ICalendarLineError> {
        let place = match line.name.as_str() {
            "DTSTART" => Some(&mut self.start),
            "DTEND" => Some(&mut self.end),
            "DURATION" => Some(&mut self.duration),
            "RRULE" => Some(&mut self.rule),
            "STATUS" => Some(&mut self.status),
            "EXDATE" => None,
            "RDATE" | "EXRULE" | "RECURRENCE-ID" => {
                return Err(ICalendarLineError::unsupported(line.name, &line.value));
            }
            _ => return Ok(()),
        };
        if line.repeats_a_parameter() {
            let what = format!("{} with a parameter twice", line.name);
            return Err(ICalendarLineError::unsupported(what, &line.text));
        }
        match place {
            Some(taken) if taken.is_some() => {
                return Err(ICalendarLineError::unsupported(
                    format!("a second {}", line.name),
                    &line.value,
                ));
            }
            Some(free) => *free = Some(line),
            None => self.excluded.push(line),
        }
        Ok(())
    }

    /// Whether the event was called off.
    pub(super) fn is_cancelled(&self) -> bool {
        self.status.as_ref().is_some_and(|it| it.value.eq_ignore_ascii_case("CANCELLED"))
    }

    /// The lines that affect when the event is, unchanged.
    pub(super) fn kept(&self) -> impl Iterator<Item = &str> {
        let single = [&self.start, &self.end, &self.duration, &self.rule];
        single.into_iter().flatten().chain(&self.excluded).map(|it| it.text.as_str())
    }
}

/// The rules of time zones, each read once for a file.
pub(super) struct TimeZoneTable {
    /// The time zone of times that name no zone.
    default: TimeZone,
    named: BTreeMap<String, TimeZone>,
}

impl TimeZoneTable {
    pub(super) fn new(default: TimeZone) -> Self {
        Self { default, named: BTreeMap::new() }
    }

    fn named(&mut self, name: &str) -> Result<TimeZone, ICalendarLineError> {
        if let Some(zone) = self.named.get(name) {
            return Ok(zone.clone());
        }
        let zone = time_zone(name).map_err(|_| {
            ICalendarLineError::unsupported("a TZID that is no IANA name".to_owned(), name)
        })?;
        self.named.insert(name.to_owned(), zone.clone());
        Ok(zone)
    }
}

/// A date, or a date with a time of day, in a time zone.
#[derive(Debug, Clone)]
struct CalendarEventTime {
    local: DateTime,
    zone: TimeZone,
    is_date: bool,
    /// Whether the time neither is in UTC nor names a time zone.
    is_floating: bool,
}

impl CalendarEventTime {
    /// Reads one value of a line.
    fn parse(
        line: &ICalendarContentLine,
        text: &str,
        zones: &mut TimeZoneTable,
    ) -> Result<Self, ICalendarLineError> {
        let name = &line.name;
        let is_date = match line.parameter("VALUE").map(str::to_ascii_uppercase).as_deref() {
            None | Some("DATE-TIME") => false,
            Some("DATE") => true,
            Some(_) => {
                return Err(ICalendarLineError::unsupported(
                    format!("{name} with this VALUE"),
                    &line.text,
                ));
            }
        };
        let wrong = || ICalendarLineError::broken(format!("{name} is not a time"), text);
        if is_date && line.parameter("TZID").is_some() {
            let what = format!("{name} of whole days with TZID");
            return Err(ICalendarLineError::unsupported(what, &line.text));
        }
        if is_date {
            let date = date_of(text).ok_or_else(wrong)?;
            let zone = zones.default.clone();
            return Ok(Self { local: midnight(date), zone, is_date, is_floating: false });
        }
        let (local, is_utc) = match text.strip_suffix('Z') {
            Some(text) => (date_time_of(text), true),
            None => (date_time_of(text), false),
        };
        let local = local.ok_or_else(wrong)?;
        let zone = match (is_utc, line.parameter("TZID")) {
            (true, None) => TimeZone::UTC,
            (true, Some(_)) => {
                let what = format!("{name} in UTC with TZID");
                return Err(ICalendarLineError::unsupported(what, &line.text));
            }
            (false, Some(name)) => zones.named(name)?,
            (false, None) => zones.default.clone(),
        };
        let is_floating = !is_utc && line.parameter("TZID").is_none();
        Ok(Self { local, zone, is_date, is_floating })
    }

    /// The instant of this time. A time after the end of the calendar, such as `99991231T235959Z`, becomes the last instant.
    fn time(&self) -> Time {
        instant(&self.zone, self.local).unwrap_or(Time::MAX)
    }
}

/// How long an event lasts: a number of calendar days, plus a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CalendarEventDuration {
    days: i64,
    exact: SignedDuration,
}

/// An event of a calendar, with its times and repetitions.
#[derive(Debug, Clone)]
pub(super) struct CalendarEvent {
    start: DateTime,
    zone: TimeZone,
    length: CalendarEventDuration,
    rule: Option<RecurrenceRule>,
    /// The latest time at which the event may begin.
    until: Option<Time>,
    /// Excluded times at which the event does not begin.
    excluded: BTreeSet<Time>,
}

impl CalendarEvent {
    /// The event of some lines.
    pub(super) fn of(
        lines: &CalendarEventProperties,
        zones: &mut TimeZoneTable,
    ) -> Result<Self, ICalendarLineError> {
        let Some(start_line) = &lines.start else {
            return Err(ICalendarLineError::broken("the event has no DTSTART".to_owned(), ""));
        };
        let start = CalendarEventTime::parse(start_line, &start_line.value, zones)?;
        let length = length_of(lines, &start, zones)?;
        let rule = lines.rule.as_ref().map(|it| RecurrenceRule::parse(&it.value)).transpose()?;
        let until = match rule.as_ref().and_then(|it| it.until.as_deref()) {
            Some(text) => Some(until_of(text, &start)?),
            None => None,
        };
        // Such an event would never happen. Its author hardly meant that, so it is an error.
        if until.is_some_and(|until| until < start.time()) {
            let what = "an UNTIL before DTSTART".to_owned();
            return Err(ICalendarLineError::unsupported(what, &start_line.value));
        }
        let date = start.local.date();
        // RFC 5545, section 3.8.5.3, leaves a rule undefined whose dates do not include DTSTART.
        let is_first = |rule: &RecurrenceRule| {
            rule.period(date, 0).is_some_and(|period| rule.dates(date, period).contains(&date))
        };
        if rule.as_ref().is_some_and(|rule| !is_first(rule)) {
            let what = "a DTSTART that is not one of the times of its RRULE".to_owned();
            return Err(ICalendarLineError::unsupported(what, &start_line.value));
        }
        let mut excluded = BTreeSet::new();
        for line in &lines.excluded {
            for text in line.value.split(',') {
                let moment = CalendarEventTime::parse(line, text, zones)?;
                if moment.is_date != start.is_date {
                    let what = "EXDATE of another type than DTSTART".to_owned();
                    return Err(ICalendarLineError::unsupported(what, text));
                }
                excluded.insert(moment.time());
            }
        }
        Ok(Self { start: start.local, zone: start.zone, length, rule, until, excluded })
    }

    /// The periods of the event between two times, in order. The result may also have some periods just outside of these times.
    pub(super) fn frozen(
        &self,
        from: Time,
        to: Time,
        steps: &mut RecurrenceExpansionBudget,
    ) -> Result<Vec<FrozenPeriod>, RecurrenceExpansionLimitExceeded> {
        let start = self.start.date();
        let mut frozen = Vec::new();
        let Some(rule) = &self.rule else {
            steps.take()?;
            frozen.extend(self.period_on(start));
            return Ok(frozen);
        };
        let date_at = |time: Time| self.zone.to_datetime(time).date();
        let earliest = days_after(date_at(from), -self.days_covered()).unwrap_or(Date::MIN);
        let latest = days_after(date_at(to), 1).unwrap_or(Date::MAX);
        // COUNT counts dates from the first one on, so earlier dates must be counted, too.
        let mut left = rule.count;
        let mut number = match left {
            Some(_) => 0,
            None => rule.number_at(start, earliest),
        };
        while let Some(period) = rule.period(start, number).filter(|it| it.first <= latest) {
            steps.take()?;
            for date in rule.dates(start, period).range(start..) {
                steps.take()?;
                if let Some(left) = &mut left {
                    let Some(fewer) = left.checked_sub(1) else { return Ok(frozen) };
                    *left = fewer;
                }
                if *date >= earliest {
                    frozen.extend(self.period_on(*date));
                }
            }
            number += 1;
        }
        Ok(frozen)
    }

    /// The period that begins on a date; `None` if the date is excluded or after the last one of the rule.
    fn period_on(&self, date: Date) -> Option<FrozenPeriod> {
        let local = date.to_datetime(self.start.time());
        let from = instant(&self.zone, local)?;
        if self.until.is_some_and(|until| from > until) || self.excluded.contains(&from) {
            return None;
        }
        let to = end_of(from, local, &self.zone, self.length).unwrap_or(Time::MAX);
        Some(FrozenPeriod { from, to })
    }

    /// An upper bound on the days that the event covers, which includes changes of daylight saving time.
    fn days_covered(&self) -> i64 {
        self.length.days.saturating_add(self.length.exact.as_hours() / 24).saturating_add(2)
    }
}

fn length_of(
    lines: &CalendarEventProperties,
    start: &CalendarEventTime,
    zones: &mut TimeZoneTable,
) -> Result<CalendarEventDuration, ICalendarLineError> {
    let length = match (&lines.end, &lines.duration) {
        (Some(end), Some(_)) => {
            let what = "an event with DTEND and DURATION".to_owned();
            return Err(ICalendarLineError::unsupported(what, &end.text));
        }
        (Some(line), None) => {
            let end = CalendarEventTime::parse(line, &line.value, zones)?;
            let between = match (start.is_date, end.is_date) {
                (true, true) => {
                    let days = end.local.date().duration_since(start.local.date()).as_hours() / 24;
                    Some(CalendarEventDuration { days, exact: SignedDuration::ZERO })
                }
                (false, false) => {
                    let exact = end.time().duration_since(start.time());
                    Some(CalendarEventDuration { days: 0, exact })
                }
                _ => None,
            };
            let wrong = || {
                let what = "DTEND of another type than DTSTART".to_owned();
                ICalendarLineError::unsupported(what, &line.text)
            };
            between.ok_or_else(wrong)?
        }
        (None, Some(line)) => duration_of(&line.value).ok_or_else(|| {
            ICalendarLineError::broken("DURATION cannot be read".to_owned(), &line.value)
        })?,
        (None, None) if start.is_date => {
            CalendarEventDuration { days: 1, exact: SignedDuration::ZERO }
        }
        (None, None) => {
            let what = "an event without DTEND and DURATION".to_owned();
            return Err(ICalendarLineError::unsupported(what, ""));
        }
    };
    if start.is_date && !length.exact.is_zero() {
        let what = "an event of whole days with a DURATION of hours".to_owned();
        return Err(ICalendarLineError::unsupported(what, ""));
    }
    let is_positive = length.days > 0 || length.exact.is_positive();
    match is_positive {
        true => Ok(length),
        false => {
            let what = "an event that does not end after it begins".to_owned();
            Err(ICalendarLineError::unsupported(what, ""))
        }
    }
}

/// Reads a duration, such as `P1DT12H`. RFC 5545 has no months and years in durations. `None` if the text is not valid.
fn duration_of(text: &str) -> Option<CalendarEventDuration> {
    let text = text.strip_prefix('+').unwrap_or(text);
    // Fractions, small letters and words are of ISO 8601 and of jiff.
    if !text.starts_with('P') || !text.bytes().all(|it| b"0123456789PWDTHMS".contains(&it)) {
        return None;
    }
    let span: Span = text.parse().ok()?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return None;
    }
    let days = i64::from(span.get_weeks()) * 7 + i64::from(span.get_days());
    let hours = SignedDuration::from_secs(i64::from(span.get_hours()) * 3600);
    let minutes = SignedDuration::from_secs(span.get_minutes().checked_mul(60)?);
    let exact = hours.checked_add(minutes)?;
    let exact = exact.checked_add(SignedDuration::from_secs(span.get_seconds()))?;
    Some(CalendarEventDuration { days, exact })
}

/// The latest time at which a rule may begin an event. A time after the end of the calendar becomes the last instant.
fn until_of(text: &str, start: &CalendarEventTime) -> Result<Time, ICalendarLineError> {
    let of_another_type = || {
        let what = "UNTIL that is no date although DTSTART is one, or is not in UTC although DTSTART is no date";
        ICalendarLineError::unsupported(what.to_owned(), text)
    };
    let time = text.strip_suffix('Z');
    let is_utc = time.is_some();
    let local = match (date_of(text), date_time_of(time.unwrap_or(text))) {
        (Some(date), _) if start.is_date => midnight(date),
        (_, Some(local)) if !start.is_date && (is_utc || start.is_floating) => local,
        (None, None) => {
            return Err(ICalendarLineError::broken("UNTIL is not a time".to_owned(), text));
        }
        _ => return Err(of_another_type()),
    };
    let zone = if is_utc { TimeZone::UTC } else { start.zone.clone() };
    Ok(instant(&zone, local).unwrap_or(Time::MAX))
}

/// The end of a period that begins at `from` and has this length. `None` if the end is beyond all dates.
fn end_of(
    from: Time,
    local: DateTime,
    zone: &TimeZone,
    length: CalendarEventDuration,
) -> Option<Time> {
    let days_later = match length.days {
        0 => from,
        days => instant(zone, days_after(local.date(), days)?.to_datetime(local.time()))?,
    };
    days_later.checked_add(length.exact).ok()
}

/// The instant of a local time. A local time that comes twice means the first one. A local time that the clocks skip
/// means the time after the gap (RFC 5545, section 3.3.5). `None` if it is beyond all dates.
fn instant(zone: &TimeZone, local: DateTime) -> Option<Time> {
    zone.to_ambiguous_timestamp(local).compatible().ok()
}

fn midnight(date: Date) -> DateTime {
    date.to_datetime(civil::Time::midnight())
}

/// Reads a date such as `20261224`. `None` if the text is not a date.
fn date_of(text: &str) -> Option<Date> {
    if text.len() != 8 || !text.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let year = text.get(..4)?.parse().ok()?;
    let month = text.get(4..6)?.parse().ok()?;
    let day = text.get(6..)?.parse().ok()?;
    Date::new(year, month, day).ok()
}

/// Reads a local time such as `20261224T180000`. `None` if the text is not such a time.
fn date_time_of(text: &str) -> Option<DateTime> {
    let (date, time) = text.split_once('T')?;
    if time.len() != 6 || !time.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let hour = time.get(..2)?.parse().ok()?;
    let minute = time.get(2..4)?.parse().ok()?;
    let second = time.get(4..)?.parse().ok()?;
    Some(date_of(date)?.to_datetime(civil::Time::new(hour, minute, second, 0).ok()?))
}
