//! The times at which Freezes deny, from their specs and from the iCalendar events in their statuses.
//!
//! The status keeps the events, so every process evaluates the same times, also after a restart. A later problem with the file
//! does not end a Freeze. If the status has no events of the spec's calendar, the Freeze denies. Elsewhere: reading the file
//! (crate `source-controller`), evaluating times (engine `reconcile`), and the held objects (`freeze`).

use crds::windlass_release::{
    FreezeCalendarSource, FreezePeriod, FreezeSchedule, FreezeSpec, FreezeStatus,
};
use reconcile::{
    FreezeCalendar, FreezeCalendarError, FreezePeriodText, FreezeScheduleText, ICalendar, READY,
    Time,
};
use tokio::sync::Notify;

/// A signal that wakes the reader of iCalendar files when a Freeze was created or changed.
#[derive(Default)]
pub struct FreezeChangeSignal(Notify);

impl FreezeChangeSignal {
    /// Notes that a Freeze was created or changed.
    pub(super) fn changed(&self) {
        self.0.notify_one();
    }

    /// Waits for a change since the last call. Several changes count as one.
    pub async fn next_change(&self) {
        self.0.notified().await;
    }
}

/// The times at which a Freeze denies, evaluated for about one day from now.
///
/// # Errors
/// The times cannot be read, with a text for users. The Freeze then always denies.
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

/// The times in a spec, without those of its calendar.
///
/// # Errors
/// The times cannot be read.
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

/// The reason why a Freeze has no calendar, for users.
fn missing(source: &FreezeCalendarSource, status: Option<&FreezeStatus>) -> String {
    let conditions = status.map(|it| it.conditions.as_slice()).unwrap_or_default();
    let failure = conditions.iter().find(|it| it.type_ == READY && it.status == "False");
    match failure {
        Some(failure) => failure.message.clone(),
        None => format!("its calendar in {} has not been read yet", calendar_name(source)),
    }
}

/// The name of a calendar in messages.
pub fn calendar_name(source: &FreezeCalendarSource) -> String {
    let of = &source.config_map_ref;
    format!("ConfigMap {}/{}, key `{}`", of.namespace, of.name, of.key)
}
