//! When Freezes deny: what their specs say, and the times of iCalendar files that their statuses have.
//!
//! Every process evaluates the same times, a restart keeps them, and what has become of the file since does not end a Freeze.
//! Without times in the status that are of the calendar of the spec, the Freeze denies.
//! Elsewhere: reading the file into the status (crate `source-controller`), how times are evaluated (engine `reconcile`), which
//! objects a Freeze holds (`freeze`).

use crds::release::{FreezeCalendarSource, FreezePeriod, FreezeSchedule, FreezeSpec, FreezeStatus};
use reconcile::{
    FreezeCalendar, FreezeCalendarError, FreezePeriodText, FreezeScheduleText, ICalendar, READY,
    Time,
};
use tokio::sync::Notify;

/// Wakes the reader of iCalendar files when a Freeze was created or changed.
#[derive(Default)]
pub struct ChangedFreezes(Notify);

impl ChangedFreezes {
    /// A Freeze was created or changed.
    pub(super) fn changed(&self) {
        self.0.notify_one();
    }

    /// Waits for a change since the last call. The changes meanwhile are one.
    pub async fn next_change(&self) {
        self.0.notified().await;
    }
}

/// When a Freeze denies, evaluated for about a day from now on.
///
/// # Errors
/// Its times cannot be read, for people; the Freeze denies at all times then.
pub fn calendar(
    spec: &FreezeSpec,
    status: Option<&FreezeStatus>,
    now: Time,
) -> Result<FreezeCalendar, String> {
    let calendar = times(spec).map_err(|error| error.to_string())?;
    let Some(source) = &spec.calendar else { return Ok(calendar) };
    let read = status.and_then(|it| it.calendar.as_ref()).filter(|it| it.source == *source);
    let Some(read) = read else { return Err(missing(source, status)) };
    let events = ICalendar::parse(&read.text, &source.time_zone);
    let calendar = events.and_then(|events| calendar.with_events(&events, now));
    calendar.map_err(|error| error.to_string())
}

/// The times of a spec without its calendar.
///
/// # Errors
/// They cannot be read.
pub fn times(spec: &FreezeSpec) -> Result<FreezeCalendar, FreezeCalendarError> {
    let schedule = |it: &FreezeSchedule| FreezeScheduleText {
        cron: it.cron.clone(),
        duration: it.duration.clone(),
        time_zone: it.time_zone.clone(),
    };
    let period = |it: &FreezePeriod| FreezePeriodText {
        from: it.from.clone(),
        to: it.to.clone(),
        time_zone: it.time_zone.clone(),
    };
    let schedules: Vec<FreezeScheduleText> = spec.schedules.iter().map(schedule).collect();
    let periods: Vec<FreezePeriodText> = spec.periods.iter().map(period).collect();
    FreezeCalendar::parse(&schedules, &periods)
}

/// Why there is no calendar, for people.
fn missing(source: &FreezeCalendarSource, status: Option<&FreezeStatus>) -> String {
    let conditions = status.map(|it| it.conditions.as_slice()).unwrap_or_default();
    let failure = conditions.iter().find(|it| it.type_ == READY && it.status == "False");
    match failure {
        Some(failure) => failure.message.clone(),
        None => format!("its calendar in {} has not been read yet", calendar_name(source)),
    }
}

/// How messages name a calendar.
pub fn calendar_name(source: &FreezeCalendarSource) -> String {
    let of = &source.config_map_ref;
    format!("ConfigMap {}/{}, key `{}`", of.namespace, of.name, of.key)
}
