//! Recurrences of an event: FREQ, INTERVAL, BYDAY, COUNT and UNTIL of a recurrence rule (RFC 5545, section 3.3.10).
//!
//! A rule divides the calendar into periods: days, weeks, months or years. The dates of one period are computed without the
//! earlier periods, so that an event that began long ago costs no more than a new one.
//! Elsewhere: times of day, time zones and the limit on steps (`event.rs`).

use std::collections::BTreeSet;

use jiff::Span;
use jiff::civil::{Date, Weekday};

use super::ICalendarLineError;

/// The most periods between two dates of a rule.
const MAX_INTERVAL: u32 = 1000;

/// The most entries of BYDAY.
const MAX_DAYS: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecurrenceFrequency {
    Daily,
    Weekly,
    Monthly,
    Yearly,
}

/// A day of the week. If `ordinal` is not 0, it selects the nth such day of the month or year, and a negative one counts from
/// the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WeekdayOfPeriod {
    ordinal: i64,
    weekday: Weekday,
}

/// The rule by which an event of a calendar repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecurrenceRule {
    frequency: RecurrenceFrequency,
    interval: i64,
    days: Vec<WeekdayOfPeriod>,
    /// The number of dates after which the rule ends.
    pub(super) count: Option<u32>,
    /// The time after which the rule has no more dates, as text.
    pub(super) until: Option<String>,
}

/// A day, a week, a month or a year.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecurrencePeriod {
    pub(super) first: Date,
    last: Date,
}

impl RecurrenceRule {
    /// Reads the text of a recurrence rule. The error says what is not valid or not supported.
    pub(super) fn parse(text: &str) -> Result<Self, ICalendarLineError> {
        let mut frequency = None;
        let mut rule = Self {
            frequency: RecurrenceFrequency::Daily,
            interval: 1,
            days: Vec::new(),
            count: None,
            until: None,
        };
        let mut names = BTreeSet::new();
        for part in text.split(';') {
            let (name, value) =
                part.split_once('=').ok_or_else(|| wrong("has a part without `=`", part))?;
            let name = name.to_ascii_uppercase();
            if !names.insert(name.clone()) {
                return Err(ICalendarLineError::unsupported(
                    "RRULE with a part twice".to_owned(),
                    text,
                ));
            }
            match name.as_str() {
                "FREQ" => frequency = Some(frequency_of(value)?),
                "INTERVAL" => rule.interval = i64::from(number_of(value, MAX_INTERVAL, part)?),
                "COUNT" => rule.count = Some(number_of(value, u32::MAX, part)?),
                "UNTIL" => rule.until = Some(value.to_owned()),
                "BYDAY" => rule.days = days_of(value)?,
                _ => {
                    return Err(ICalendarLineError::unsupported(
                        format!("RRULE with {name}"),
                        text,
                    ));
                }
            }
        }
        rule.frequency = frequency.ok_or_else(|| wrong("has no FREQ", text))?;
        if rule.count.is_some() && rule.until.is_some() {
            return Err(ICalendarLineError::unsupported(
                "RRULE with COUNT and UNTIL".to_owned(),
                text,
            ));
        }
        let is_short =
            matches!(rule.frequency, RecurrenceFrequency::Daily | RecurrenceFrequency::Weekly);
        if is_short && rule.days.iter().any(|it| it.ordinal != 0) {
            let what = "RRULE with a numbered day and a FREQ that is neither MONTHLY nor YEARLY";
            return Err(ICalendarLineError::unsupported(what.to_owned(), text));
        }
        Ok(rule)
    }

    /// The period with this number; `None` after the end of the calendar. The period that contains `start` has the number 0.
    pub(super) fn period(&self, start: Date, number: i64) -> Option<RecurrencePeriod> {
        let steps = number.checked_mul(self.interval)?;
        let [first, last] = match self.frequency {
            RecurrenceFrequency::Daily => [days_after(start, steps)?; 2],
            RecurrenceFrequency::Weekly => {
                let monday = steps.checked_mul(7)? - offset_in_week(start);
                let first = days_after(start, monday)?;
                [first, days_after(first, 6)?]
            }
            RecurrenceFrequency::Monthly => {
                let months = months_of(start).checked_add(steps)?;
                let year = i16::try_from(months.div_euclid(12)).ok()?;
                let month = i8::try_from(months.rem_euclid(12) + 1).ok()?;
                let first = Date::new(year, month, 1).ok()?;
                [first, first.last_of_month()]
            }
            RecurrenceFrequency::Yearly => {
                let year = i16::try_from(i64::from(start.year()).checked_add(steps)?).ok()?;
                let first = Date::new(year, 1, 1).ok()?;
                [first, first.last_of_year()]
            }
        };
        Some(RecurrencePeriod { first, last })
    }

    /// The dates of the rule in one of its periods, including dates before `start`. A date that does not exist, such as
    /// February 30, is left out.
    pub(super) fn dates(&self, start: Date, period: RecurrencePeriod) -> BTreeSet<Date> {
        let first = period.first;
        if !self.days.is_empty() {
            return self.days.iter().flat_map(|it| it.dates(period)).collect();
        }
        let date = match self.frequency {
            RecurrenceFrequency::Daily => Some(first),
            RecurrenceFrequency::Weekly => days_after(first, offset_in_week(start)),
            RecurrenceFrequency::Monthly => {
                Date::new(first.year(), first.month(), start.day()).ok()
            }
            RecurrenceFrequency::Yearly => Date::new(first.year(), start.month(), start.day()).ok(),
        };
        date.into_iter().collect()
    }

    /// The number of the period that contains a date, or of the earlier period next to it. It is 0 for a date before `start`.
    pub(super) fn number_at(&self, start: Date, date: Date) -> i64 {
        let units = match self.frequency {
            RecurrenceFrequency::Daily => days_between(start, date),
            RecurrenceFrequency::Weekly => {
                (days_between(start, date) + offset_in_week(start)).div_euclid(7)
            }
            RecurrenceFrequency::Monthly => months_of(date) - months_of(start),
            RecurrenceFrequency::Yearly => i64::from(date.year()) - i64::from(start.year()),
        };
        units.div_euclid(self.interval).max(0)
    }
}

impl WeekdayOfPeriod {
    fn parse(text: &str) -> Option<Self> {
        let name = text.get(text.len().checked_sub(2)?..)?;
        let weekday = match name.to_ascii_uppercase().as_str() {
            "MO" => Weekday::Monday,
            "TU" => Weekday::Tuesday,
            "WE" => Weekday::Wednesday,
            "TH" => Weekday::Thursday,
            "FR" => Weekday::Friday,
            "SA" => Weekday::Saturday,
            "SU" => Weekday::Sunday,
            _ => return None,
        };
        let ordinal = match text.strip_suffix(name)? {
            "" => 0,
            number => {
                number.parse::<i64>().ok().filter(|it| *it != 0 && (-53..=53).contains(it))?
            }
        };
        Some(Self { ordinal, weekday })
    }

    fn dates(self, period: RecurrencePeriod) -> Vec<Date> {
        let first = i64::from(self.weekday.since(period.first.weekday()));
        let count = (days_between(period.first, period.last) - first).div_euclid(7) + 1;
        let wanted = match self.ordinal {
            0 => 0..count,
            ordinal if ordinal > 0 => ordinal - 1..ordinal.min(count),
            ordinal => (count + ordinal).max(0)..count + ordinal + 1,
        };
        wanted.filter_map(|at| days_after(period.first, first + 7 * at)).collect()
    }
}

fn wrong(why: &str, text: &str) -> ICalendarLineError {
    ICalendarLineError::broken(format!("RRULE {why}"), text)
}

/// A number above 0. One above `most` can be read and is not supported.
fn number_of(text: &str, most: u32, part: &str) -> Result<u32, ICalendarLineError> {
    let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    match text.parse::<u32>() {
        Ok(number) if is_number && (1..=most).contains(&number) => Ok(number),
        Ok(1..) | Err(_) if is_number => {
            Err(ICalendarLineError::unsupported(format!("RRULE with a number above {most}"), part))
        }
        _ => Err(wrong("needs a number above 0", part)),
    }
}

fn frequency_of(text: &str) -> Result<RecurrenceFrequency, ICalendarLineError> {
    match text.to_ascii_uppercase().as_str() {
        "DAILY" => Ok(RecurrenceFrequency::Daily),
        "WEEKLY" => Ok(RecurrenceFrequency::Weekly),
        "MONTHLY" => Ok(RecurrenceFrequency::Monthly),
        "YEARLY" => Ok(RecurrenceFrequency::Yearly),
        _ => Err(ICalendarLineError::unsupported("RRULE with this FREQ".to_owned(), text)),
    }
}

fn days_of(text: &str) -> Result<Vec<WeekdayOfPeriod>, ICalendarLineError> {
    let days: Option<Vec<_>> =
        text.split(',').take(MAX_DAYS + 1).map(WeekdayOfPeriod::parse).collect();
    let days = days.ok_or_else(|| wrong("has an entry in BYDAY that is no day", text))?;
    match days.len() > MAX_DAYS {
        true => {
            Err(ICalendarLineError::unsupported("BYDAY with more than 32 days".to_owned(), text))
        }
        false => Ok(days),
    }
}

/// The days from Monday to a date.
fn offset_in_week(date: Date) -> i64 {
    i64::from(date.weekday().to_monday_zero_offset())
}

/// The months from the year 0 to a date.
fn months_of(date: Date) -> i64 {
    i64::from(date.year()) * 12 + i64::from(date.month()) - 1
}

/// The date that is this many days later; `None` after the end of the calendar.
pub(super) fn days_after(date: Date, days: i64) -> Option<Date> {
    date.checked_add(Span::new().try_days(days).ok()?).ok()
}

fn days_between(from: Date, to: Date) -> i64 {
    to.duration_since(from).as_hours() / 24
}
