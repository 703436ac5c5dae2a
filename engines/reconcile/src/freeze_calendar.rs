//! Freezes: the times at which windlass begins no change, and how a Freeze holds one object.
//!
//! Here: [`FreezeCalendar`] (when a Freeze denies changes), and [`FreezeHold`] (its effect on one object, and the text that
//! reports it).
//! Elsewhere: the notation of recurring times (`cron.rs`, `change_window.rs`), events of an iCalendar file (`icalendar.rs`),
//! when a held change is checked again (`requeue_delay.rs`), which steps a hold stops (`run_gate.rs`, `removal_gate.rs`), which
//! objects a Freeze selects and which users may bypass it (the program).

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::cron::{CronError, time_zone};
use crate::time::whole_seconds;
use crate::{
    AnnotationCondition, ChangeWindowError, ChangeWindows, ConditionReason, ConditionStatus,
    FREEZE, ICalendar, ICalendarError, NextRunTrigger, RunOutcome, Time, WindowEnd,
};

/// The most recurring times of a Freeze.
const MAX_SCHEDULES: usize = 16;

/// The most periods of a Freeze.
const MAX_PERIODS: usize = 64;

/// How many frozen times are followed if each begins before the last one has ended.
const MAX_JOINED_TIMES: usize = 128;

/// How far ahead the events of an iCalendar file are expanded. An event that recurs each year is always included.
pub(crate) const EXPANSION_HORIZON: SignedDuration = SignedDuration::from_hours(400 * 24);

/// After this time the events are expanded anew.
const EXPANSION_AGE: SignedDuration = SignedDuration::from_hours(24);

/// A recurring time in the spec of a Freeze.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FreezeScheduleText {
    /// When the frozen time begins: a cron expression of five fields, or a macro such as `@daily`.
    pub cron: String,
    /// How long the frozen time lasts, such as `62h`.
    pub duration: String,
    /// The name of the time zone of `cron`; empty for UTC.
    pub time_zone: String,
}

/// A period in the spec of a Freeze.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FreezePeriodText {
    /// When the period begins: a date, a date with a time of day, or an RFC 3339 time.
    pub from: String,
    /// When the period ends. If it is a date without a time, that day is part of the period.
    pub to: String,
    /// The time zone of dates and times that have no UTC offset; empty for UTC.
    pub time_zone: String,
}

/// Why the times of a Freeze cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FreezeCalendarError {
    /// A recurring time is wrong.
    #[error("schedules[{0}]: {1}")]
    Schedule(usize, ChangeWindowError),
    /// The entry at this index contains `;`. That character separates several entries in an annotation, but here an entry has
    /// only one.
    #[error("schedules[{0}]: `;` is not allowed; write one entry for each time")]
    Separator(usize),
    /// The time zone of a period does not exist.
    #[error("periods[{0}]: {1}")]
    Zone(usize, CronError),
    /// The begin or the end of a period is wrong.
    #[error(
        "periods[{0}]: `{1}` is neither a date such as `2026-12-24`, nor a local time such as `2026-12-24T18:00`, nor a \
         time such as `2026-12-24T18:00:00Z`"
    )]
    Time(usize, String),
    /// A period ends before it begins.
    #[error("periods[{0}]: `to` is not after `from`")]
    Empty(usize),
    /// There are too many times.
    #[error("at most {MAX_SCHEDULES} schedules and {MAX_PERIODS} periods are allowed")]
    TooMany,
}

/// The times at which a Freeze denies changes: recurring times, periods, and events of an iCalendar file. A Freeze without any
/// times always denies.
#[derive(Debug, Clone)]
pub struct FreezeCalendar {
    schedules: Vec<ChangeWindows>,
    periods: Vec<FrozenPeriod>,
    events: Option<ExpandedCalendarEvents>,
}

/// A period that ends before its last instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrozenPeriod {
    pub(crate) from: Time,
    pub(crate) to: Time,
}

/// The periods of the events between two times. Events outside of these times are not known.
#[derive(Debug, Clone)]
struct ExpandedCalendarEvents {
    from: Time,
    to: Time,
    /// The periods in order. They do not overlap.
    periods: Vec<FrozenPeriod>,
}

impl ExpandedCalendarEvents {
    /// The end of the period that contains `now`; `None` if no period does.
    fn end(&self, now: Time) -> Option<WindowEnd> {
        if now >= self.to {
            return Some(WindowEnd::Further);
        }
        let begun = self.periods.partition_point(|it| it.from <= now);
        let last = self.periods.get(begun.checked_sub(1)?)?;
        match last.to {
            to if to <= now => None,
            // The period reaches the end of the expanded time, and later events are not known.
            to if to >= self.to => Some(WindowEnd::Further),
            to => Some(WindowEnd::Time(to)),
        }
    }

    fn next_begin(&self, now: Time) -> Option<Time> {
        let begun = self.periods.partition_point(|it| it.from <= now);
        self.periods.get(begun).map(|it| it.from)
    }
}

impl FreezeCalendar {
    /// Reads the times of a Freeze.
    ///
    /// # Errors
    /// If an entry cannot be read, ends before it begins, or never happens, or if there are too many entries.
    pub fn parse(
        schedules: &[FreezeScheduleText],
        periods: &[FreezePeriodText],
    ) -> Result<Self, FreezeCalendarError> {
        if schedules.len() > MAX_SCHEDULES || periods.len() > MAX_PERIODS {
            return Err(FreezeCalendarError::TooMany);
        }
        let schedules = schedules.iter().enumerate().map(|(at, text)| schedule(at, text));
        let periods = periods.iter().enumerate().map(|(at, text)| period(at, text));
        Ok(Self {
            schedules: schedules.collect::<Result<_, _>>()?,
            periods: periods.collect::<Result<_, _>>()?,
            events: None,
        })
    }

    /// Adds the events of an iCalendar file to the frozen times. The calendar must be made again once it is not
    /// [current](Self::is_current).
    ///
    /// # Errors
    /// The events cannot be expanded within their bounds.
    pub fn with_events(self, events: &ICalendar, now: Time) -> Result<Self, ICalendarError> {
        let from = whole_seconds(now);
        let to = from.saturating_add(EXPANSION_HORIZON).unwrap_or(Time::MAX);
        let periods = events.frozen(from, to)?;
        Ok(Self { events: Some(ExpandedCalendarEvents { from, to, periods }), ..self })
    }

    /// Whether the events were expanded recently and for the time `now`. A calendar without events is always current.
    pub fn is_current(&self, now: Time) -> bool {
        let is_lately = |it: &ExpandedCalendarEvents| {
            it.from <= now && now.duration_since(it.from) < EXPANSION_AGE
        };
        self.events.as_ref().is_none_or(is_lately)
    }

    /// The time until which the Freeze denies changes; `None` if it does not deny at `now`. Frozen times that follow each other
    /// without a gap count as one. The Freeze also denies at times for which its events were not expanded.
    pub fn denies(&self, now: Time) -> Option<WindowEnd> {
        let has_no_times = self.schedules.is_empty() && self.periods.is_empty();
        let is_known =
            self.events.as_ref().map_or(!has_no_times, |it| it.from <= now && now < it.to);
        if !is_known {
            return Some(WindowEnd::Further);
        }
        let mut until = self.end(whole_seconds(now))?;
        for _ in 0..MAX_JOINED_TIMES {
            let WindowEnd::Time(at) = until else { break };
            match self.end(at) {
                Some(next) => until = next,
                None => return Some(until),
            }
        }
        Some(WindowEnd::Further)
    }

    /// The next time after `now` at which a frozen time begins; `None` if there is none. Events are known for the next 400 days
    /// only.
    pub fn next_begin(&self, now: Time) -> Option<Time> {
        let of_schedules = self.schedules.iter().filter_map(|it| it.next_opening(now));
        let of_periods = self.periods.iter().map(|it| it.from).filter(|from| *from > now);
        let of_events = self.events.as_ref().and_then(|it| it.next_begin(now));
        of_schedules.chain(of_periods).chain(of_events).min()
    }

    /// The latest end of the frozen times that `now` is in. `None` if `now` is in none.
    fn end(&self, now: Time) -> Option<WindowEnd> {
        let is_in = |it: &&FrozenPeriod| it.from <= now && now < it.to;
        let of_periods = self.periods.iter().filter(is_in).map(|it| WindowEnd::Time(it.to));
        let of_schedules = self.schedules.iter().filter_map(|it| it.is_open(now));
        let of_events = self.events.as_ref().and_then(|it| it.end(now));
        of_schedules.chain(of_periods).chain(of_events).reduce(WindowEnd::later)
    }
}

fn schedule(at: usize, text: &FreezeScheduleText) -> Result<ChangeWindows, FreezeCalendarError> {
    let FreezeScheduleText { cron, duration, time_zone } = text;
    let text = format!("{cron} {duration} {time_zone}");
    if text.contains(';') {
        return Err(FreezeCalendarError::Separator(at));
    }
    ChangeWindows::parse(&text).map_err(|error| FreezeCalendarError::Schedule(at, error))
}

fn period(at: usize, text: &FreezePeriodText) -> Result<FrozenPeriod, FreezeCalendarError> {
    let FreezePeriodText { from, to, time_zone: zone } = text;
    let zone = match zone.trim() {
        "" => TimeZone::UTC,
        name => time_zone(name).map_err(|error| FreezeCalendarError::Zone(at, error))?,
    };
    let wrong = |text: &str| {
        let text: String = text.chars().take(100).collect();
        FreezeCalendarError::Time(at, text)
    };
    let from = instant(from, &zone, false).ok_or_else(|| wrong(from))?;
    let to = instant(to, &zone, true).ok_or_else(|| wrong(to))?;
    match from < to {
        true => Ok(FrozenPeriod { from, to }),
        false => Err(FreezeCalendarError::Empty(at)),
    }
}

/// Reads a time in whole seconds. `None` if the text is not valid or names a time zone in brackets. A date means its
/// first instant, or its last instant as an end. A local time that the clocks skip means the time after the gap. A
/// local time that they show twice means the first one as a begin and the second one as an end. A period is therefore
/// never shorter than it reads.
fn instant(text: &str, zone: &TimeZone, is_end: bool) -> Option<Time> {
    let text = text.trim();
    // A time zone in the text is rejected, because it would be ignored in favor of the period's time zone.
    if text.contains('[') {
        return None;
    }
    if let Ok(time) = text.parse::<Time>() {
        return Some(whole_seconds(time));
    }
    let has_time = text.contains(['T', 't', ' ']);
    let local: DateTime = match has_time {
        true => text.parse().ok()?,
        false => {
            let date: Date = text.parse().ok()?;
            let date = if is_end { date.tomorrow().ok()? } else { date };
            date.to_datetime(jiff::civil::Time::midnight())
        }
    };
    let local = zone.to_ambiguous_timestamp(local);
    let time = match has_time && is_end {
        true => local.later(),
        false => local.compatible(),
    };
    Some(whole_seconds(time.ok()?))
}

/// Why one object is held: some Freezes deny changes now, or windlass does not know which Freezes do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreezeHold {
    /// The reason of the held run's outcome.
    pub reason: ConditionReason,
    /// The message for users: which Freeze holds the object, why, until when, and how to proceed.
    pub text: String,
    /// Whether drift is corrected meanwhile.
    pub corrects_drift: bool,
    /// The latest time at which the hold is checked again.
    pub recheck_at: Time,
}

impl FreezeHold {
    /// The message about a held change. `waiting` names the change, such as `revision main@sha1:…`.
    pub fn message(&self, waiting: &str) -> String {
        format!("{waiting} waits: {}", self.text)
    }

    /// The outcome of a run that would begin `waiting`.
    pub fn outcome(&self, waiting: &str) -> RunOutcome {
        let wake = NextRunTrigger::at(self.recheck_at);
        RunOutcome::Blocked(self.reason, self.message(waiting), wake)
    }

    /// The condition that shows the hold in a status.
    pub fn mark(&self) -> AnnotationCondition {
        AnnotationCondition {
            kind: FREEZE,
            status: ConditionStatus::True,
            reason: self.reason,
            text: self.text.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition_reason;

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    fn weekend(zone: &str) -> FreezeScheduleText {
        FreezeScheduleText {
            cron: "0 18 * * 5".to_owned(),
            duration: "62h".to_owned(),
            time_zone: zone.to_owned(),
        }
    }

    fn days(from: &str, to: &str, zone: &str) -> FreezePeriodText {
        let [from, to, time_zone] = [from, to, zone].map(str::to_owned);
        FreezePeriodText { from, to, time_zone }
    }

    fn end(text: &str) -> Option<WindowEnd> {
        Some(WindowEnd::Time(time(text)))
    }

    #[test]
    fn a_freeze_without_times_denies_always() {
        let always = FreezeCalendar::parse(&[], &[]).unwrap();
        assert_eq!(always.denies(Time::UNIX_EPOCH), Some(WindowEnd::Further));
        assert_eq!(always.next_begin(Time::UNIX_EPOCH), None);
    }

    #[test]
    fn a_date_as_an_end_is_part_of_the_period_in_its_time_zone() {
        let of = [days("2026-12-24", "2026-12-26", "Europe/Berlin")];
        let calendar = FreezeCalendar::parse(&[], &of).unwrap();
        assert_eq!(calendar.denies(time("2026-12-23T22:59:59Z")), None);
        assert_eq!(
            calendar.next_begin(time("2026-12-23T22:59:59Z")),
            Some(time("2026-12-23T23:00:00Z"))
        );
        for at in ["2026-12-23T23:00:00Z", "2026-12-26T22:59:59Z"] {
            assert_eq!(calendar.denies(time(at)), end("2026-12-26T23:00:00Z"), "{at}");
        }
        assert_eq!(calendar.denies(time("2026-12-26T23:00:00Z")), None);
        assert_eq!(calendar.next_begin(time("2026-12-26T23:00:00Z")), None);
    }

    #[test]
    fn times_of_day_and_offsets_are_exact() {
        let of = [
            days("2026-12-24T18:00", "2026-12-24T20:00:00", "Asia/Tokyo"),
            days("2027-01-01T00:00:00+02:00", "2027-01-01T00:00:00Z", ""),
        ];
        let calendar = FreezeCalendar::parse(&[], &of).unwrap();
        assert_eq!(calendar.denies(time("2026-12-24T09:00:00Z")), end("2026-12-24T11:00:00Z"));
        assert_eq!(calendar.denies(time("2026-12-31T22:00:00Z")), end("2027-01-01T00:00:00Z"));
        assert_eq!(calendar.denies(time("2026-12-31T21:59:59Z")), None);
    }

    #[test]
    fn a_period_is_not_shorter_than_it_reads_where_clocks_are_turned() {
        let berlin = |from: &str, to: &str| {
            let calendar = FreezeCalendar::parse(&[], &[days(from, to, "Europe/Berlin")]).unwrap();
            (calendar.next_begin(Time::UNIX_EPOCH).unwrap(), calendar)
        };
        // 02:30 comes twice on that day, at 00:30Z and at 01:30Z.
        let (begin, calendar) = berlin("2026-10-25T02:30", "2026-10-25T04:00");
        assert_eq!(begin, time("2026-10-25T00:30:00Z"));
        assert_eq!(calendar.denies(begin), end("2026-10-25T03:00:00Z"));
        let (begin, calendar) = berlin("2026-10-24T00:00", "2026-10-25T02:30");
        assert_eq!(calendar.denies(begin), end("2026-10-25T01:30:00Z"));
        // 02:30 does not come on that day: clocks go from 02:00 to 03:00 at 01:00Z.
        let (begin, calendar) = berlin("2026-03-29T02:30", "2026-03-29");
        assert_eq!(begin, time("2026-03-29T01:30:00Z"));
        assert_eq!(calendar.denies(begin), end("2026-03-29T22:00:00Z"), "a day of 23 hours");
    }

    #[test]
    fn fractions_of_a_second_do_not_count() {
        let of = [days("2026-12-24T10:00:00.7Z", "2026-12-24T11:00:00.7Z", "")];
        let calendar = FreezeCalendar::parse(&[], &of).unwrap();
        let last = calendar.denies(time("2026-12-24T10:59:59.9Z"));
        assert_eq!(last, end("2026-12-24T11:00:00Z"), "the end is later than what it is asked at");
        assert_eq!(calendar.denies(time("2026-12-24T11:00:00.1Z")), None);
    }

    #[test]
    fn a_recurring_time_that_begins_again_before_it_has_ended_has_no_known_end() {
        let hourly = FreezeScheduleText {
            cron: "@hourly".to_owned(),
            duration: "2h".to_owned(),
            ..FreezeScheduleText::default()
        };
        let calendar = FreezeCalendar::parse(&[hourly], &[]).unwrap();
        assert_eq!(calendar.denies(time("2026-12-24T10:30:00Z")), Some(WindowEnd::Further));
    }

    #[test]
    fn a_recurring_time_lasts_as_long_as_it_says_also_when_clocks_are_turned() {
        let calendar = FreezeCalendar::parse(&[weekend("Europe/Berlin")], &[]).unwrap();
        // From Friday, 18:00 summer time, to Monday, 07:00 winter time: 62 hours.
        assert_eq!(calendar.denies(time("2026-10-25T12:00:00Z")), end("2026-10-26T06:00:00Z"));
        assert_eq!(calendar.denies(time("2026-10-26T06:00:00Z")), None);
        assert_eq!(
            calendar.next_begin(time("2026-10-26T06:00:00Z")),
            Some(time("2026-10-30T17:00:00Z"))
        );
    }

    #[test]
    fn times_that_follow_each_other_are_one() {
        let of = [days("2026-11-30T08:00", "2026-12-02", ""), days("2026-12-03", "2026-12-03", "")];
        let calendar = FreezeCalendar::parse(&[weekend("")], &of).unwrap();
        assert_eq!(calendar.denies(time("2026-11-28T00:00:00Z")), end("2026-12-04T00:00:00Z"));
    }

    /// The events of a file on one day of each year, evaluated at a time.
    fn yearly(now: &str, schedules: &[FreezeScheduleText]) -> FreezeCalendar {
        let text = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20201224\nRRULE:FREQ=YEARLY\n\
                    END:VEVENT\nEND:VCALENDAR\n";
        let events = ICalendar::parse(text, "").unwrap();
        let calendar = FreezeCalendar::parse(schedules, &[]).unwrap();
        calendar.with_events(&events, time(now)).unwrap()
    }

    #[test]
    fn events_deny_and_are_known_for_a_year_and_evaluated_anew_after_a_day() {
        let calendar = yearly("2026-11-01T00:00:00Z", &[]);
        assert_eq!(calendar.denies(time("2026-12-23T23:59:59Z")), None);
        assert_eq!(calendar.denies(time("2026-12-24T00:00:00Z")), end("2026-12-25T00:00:00Z"));
        assert_eq!(calendar.denies(time("2026-12-25T00:00:00Z")), None);
        let next = |now: &str| calendar.next_begin(time(now));
        assert_eq!(next("2026-11-01T00:00:00Z"), Some(time("2026-12-24T00:00:00Z")));
        assert_eq!(next("2026-12-24T00:00:00Z"), None, "it is beyond what was evaluated");
        for unknown in ["2026-10-31T23:59:59Z", "2027-12-06T00:00:00Z"] {
            assert_eq!(calendar.denies(time(unknown)), Some(WindowEnd::Further), "{unknown}");
        }
        assert!(calendar.is_current(time("2026-11-01T23:59:59Z")));
        assert!(!calendar.is_current(time("2026-11-02T00:00:00Z")));
        assert!(!calendar.is_current(time("2026-10-31T23:59:59Z")), "the clock was set");
        let always = FreezeCalendar::parse(&[], &[]).unwrap();
        assert!(always.is_current(Time::MAX));
    }

    #[test]
    fn events_and_other_times_that_follow_each_other_are_one() {
        // Friday, 18:00, is on the day after that of the event.
        let calendar = yearly("2026-12-01T00:00:00Z", &[weekend("")]);
        assert_eq!(calendar.denies(time("2026-12-24T12:00:00Z")), end("2026-12-25T00:00:00Z"));
        assert_eq!(calendar.denies(time("2026-12-25T18:00:00Z")), end("2026-12-28T08:00:00Z"));
        let daily = FreezeScheduleText {
            cron: "0 0 25 12 *".to_owned(),
            duration: "24h".to_owned(),
            ..FreezeScheduleText::default()
        };
        let calendar = yearly("2026-12-01T00:00:00Z", &[daily]);
        assert_eq!(calendar.denies(time("2026-12-24T12:00:00Z")), end("2026-12-26T00:00:00Z"));
    }

    #[test]
    fn a_calendar_without_events_denies_never() {
        let events = ICalendar::parse("BEGIN:VCALENDAR\nEND:VCALENDAR\n", "").unwrap();
        let now = time("2026-12-24T00:00:00Z");
        let calendar = FreezeCalendar::parse(&[], &[]).unwrap().with_events(&events, now).unwrap();
        assert_eq!(calendar.denies(now), None);
        assert_eq!(calendar.next_begin(now), None);
    }

    #[test]
    fn a_period_that_ends_after_what_is_known_of_events_has_no_known_end() {
        let events = ICalendar::parse("BEGIN:VCALENDAR\nEND:VCALENDAR\n", "").unwrap();
        let now = time("2026-12-24T00:00:00Z");
        let of = [days("2026-12-24", "2029-12-24", "")];
        let calendar = FreezeCalendar::parse(&[], &of).unwrap().with_events(&events, now).unwrap();
        assert_eq!(calendar.denies(now), Some(WindowEnd::Further));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = |schedules: &[FreezeScheduleText], periods: &[FreezePeriodText]| {
            FreezeCalendar::parse(schedules, periods).unwrap_err().to_string()
        };
        let two = FreezeScheduleText { cron: "@daily 1h; @daily".to_owned(), ..weekend("") };
        assert!(error(&[two], &[]).starts_with("schedules[0]: `;` is not allowed"));
        let no_duration = FreezeScheduleText { duration: String::new(), ..weekend("") };
        assert!(error(&[weekend(""), no_duration], &[]).starts_with("schedules[1]: missing"));
        assert!(error(&[weekend("Mars/Base")], &[]).contains("unknown time zone `Mars/Base`"));
        let zone = error(&[], &[days("2026-12-24", "2026-12-26", "Mars/Base")]);
        assert!(zone.contains("periods[0]: unknown time zone"), "{zone}");
        let period = |from: &str, to: &str| error(&[], &[days(from, to, "")]);
        assert!(period("Christmas", "2026-12-26").contains("`Christmas` is neither"));
        assert!(period("2026-12-24", "2026-02-30").contains("`2026-02-30` is neither"));
        assert!(period("2026-12-24T10:00", "2026-12-24T10:00").contains("`to` is not after"));
        let two_zones = period("2026-12-24T10:00[Europe/Berlin]", "2026-12-26");
        assert!(two_zones.contains("[Europe/Berlin]` is neither"), "{two_zones}");
        let many = vec![days("2026-12-24", "2026-12-26", ""); MAX_PERIODS + 1];
        assert!(error(&[], &many).starts_with("at most 16 schedules and 64 periods"));
    }

    #[test]
    fn a_hold_says_what_waits_and_when_it_is_checked_again() {
        let recheck_at = time("2026-12-24T10:10:00Z");
        let text = "Freeze christmas until 2026-12-27T00:00:00Z".to_owned();
        let hold =
            FreezeHold { reason: condition_reason::FROZEN, text, corrects_drift: true, recheck_at };
        let outcome = hold.outcome("revision 2");
        let said = "revision 2 waits: Freeze christmas until 2026-12-27T00:00:00Z";
        assert_eq!(outcome.text(), said);
        assert_eq!(outcome.reason(), condition_reason::FROZEN);
        assert_eq!(outcome.wake().and_then(NextRunTrigger::earliest), Some(recheck_at));
    }
}
