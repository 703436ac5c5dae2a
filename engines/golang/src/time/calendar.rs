//! The Gregorian calendar, also for dates before it was introduced, and the time of day. Elsewhere: zones.

const SECONDS_PER_DAY: i64 = 86_400;
const DAYS_PER_CYCLE: i64 = 146_097;

/// The number of seconds after which the calendar repeats, including weekdays.
pub(super) const CALENDAR_CYCLE_SECONDS: i64 = DAYS_PER_CYCLE * SECONDS_PER_DAY;

/// A day in the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CalendarDate {
    /// The year. The year 0 precedes the year 1.
    pub year: i64,
    /// The month, from 1 to 12.
    pub month: u32,
    /// The day of the month, from 1.
    pub day: u32,
}

/// A time of day, without a date or time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TimeOfDay {
    /// The hour, from 0 to 23.
    pub hour: u32,
    /// The minute, from 0 to 59.
    pub minute: u32,
    /// The second, from 0 to 59.
    pub second: u32,
    /// The nanosecond, from 0 to 999999999.
    pub nanosecond: u32,
}

impl CalendarDate {
    /// The day of the year, from 1.
    pub fn year_day(self) -> u32 {
        let first = Self { month: 1, day: 1, ..self };
        u32::try_from(days(self) - days(first) + 1).unwrap_or_default()
    }

    /// The weekday, as days since Sunday.
    pub fn weekday(self) -> usize {
        // 1970 began on a Thursday.
        usize::try_from((days(self) + 4).rem_euclid(7)).unwrap_or_default()
    }
}

/// Whether a year has a 29th of February.
pub(super) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// How many days a month has.
pub(super) fn days_in(month: u32, year: i64) -> u32 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The days since the beginning of 1970. Months are counted from March, so that the leap day is the last day.
fn days(CalendarDate { year, month, day }: CalendarDate) -> i64 {
    let (year, month) =
        if month > 2 { (year, i64::from(month) - 3) } else { (year - 1, i64::from(month) + 9) };
    let cycle = year.div_euclid(400);
    let of_cycle = year.rem_euclid(400);
    let of_year = (153 * month + 2) / 5 + i64::from(day) - 1;
    let of_cycle = of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + of_year;
    cycle.saturating_mul(DAYS_PER_CYCLE).saturating_add(of_cycle - 719_468)
}

/// The seconds from the beginning of 1970 to a date and time of day.
pub(super) fn seconds(date: CalendarDate, clock: TimeOfDay) -> i64 {
    let of_day = (clock.hour * 60 + clock.minute) * 60 + clock.second;
    days(date).saturating_mul(SECONDS_PER_DAY).saturating_add(of_day.into())
}

/// The date at this number of seconds after the beginning of 1970.
pub(super) fn date(seconds: i64) -> CalendarDate {
    let days = seconds.div_euclid(SECONDS_PER_DAY) + 719_468;
    let cycle = days.div_euclid(DAYS_PER_CYCLE);
    let of_cycle = days.rem_euclid(DAYS_PER_CYCLE);
    let year = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    CalendarDate {
        year: cycle * 400 + year + i64::from(month <= 2),
        month: u32::try_from(month).unwrap_or_default(),
        day: u32::try_from(day).unwrap_or_default(),
    }
}

/// The time of day at this number of seconds after the beginning of 1970.
pub(super) fn clock(seconds: i64) -> TimeOfDay {
    let of_day = u32::try_from(seconds.rem_euclid(SECONDS_PER_DAY)).unwrap_or_default();
    TimeOfDay { hour: of_day / 3600, minute: of_day / 60 % 60, second: of_day % 60, nanosecond: 0 }
}
