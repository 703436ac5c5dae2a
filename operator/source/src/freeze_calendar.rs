//! Reads the iCalendar files of Freezes from ConfigMaps into the statuses of the Freezes.
//!
//! One process reads a file, and keeps the times of its events in the status. Every process evaluates them from there.
//! Elsewhere: parsing and expanding a file (engine `reconcile`), evaluating the status of a Freeze
//! (`windlass_runtime::freeze`).

use std::sync::Arc;
use std::time::Duration;

use crds::windlass_release::{Freeze, FreezeCalendarSource, FreezeCalendarStatus, FreezeStatus};
use kube_core::ResourceExt as _;
use objects::Gvk;
use reconcile::{
    ConditionReason, ICalendar, NextRunTrigger, RunOutcome, StatusConditions, Time,
    condition_reason,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use windlass_cluster::ClusterError;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_runtime::freeze::{self, FreezeChangeSignal};
use windlass_runtime::lifecycle::watched_object_cache::{WatchedObjectCache, resource};
use windlass_runtime::object_status::{conditions_of, listed};
use windlass_runtime::run_context::RunContext;

/// The field manager of the status.
const MANAGER: &str = "windlass";

/// The interval at which the ConfigMaps are read.
const READ_PERIOD: Duration = Duration::from_secs(60);

/// The delay before they are read again, if another client changed a Freeze before its status was written.
const CONFLICT_RETRY_PERIOD: Duration = Duration::from_secs(5);

/// The shortest interval of reads, however often Freezes change.
const SHORTEST_READ_PERIOD: Duration = Duration::from_secs(1);

/// The schedules or periods cannot be read.
const INVALID_FREEZE: ConditionReason = ConditionReason::new("InvalidFreeze");

/// The calendar is missing or damaged, so the former calendar counts.
const CALENDAR_FAILED: ConditionReason = ConditionReason::new("CalendarFailed");

/// The calendar is too large or has an unsupported part, so the Freeze denies.
const CALENDAR_NOT_SUPPORTED: ConditionReason = ConditionReason::new("CalendarNotSupported");

/// Reads the calendars of the Freezes of this process, and reports the result in their statuses, until `stop`.
pub async fn run(context: Arc<RunContext>, stop: CancellationToken) {
    stop.run_until_cancelled(read_calendars(&context)).await;
}

/// Reads the calendars again and again, without end.
async fn read_calendars(context: &RunContext) {
    context.cluster.leadership.begun().await;
    let changed = context.shared::<FreezeChangeSignal>();
    let freezes = context.shared::<WatchedObjectCache<Freeze>>();
    loop {
        let mut period = READ_PERIOD;
        for freeze in freezes.all() {
            if !is_read_here(context, &freeze) {
                continue;
            }
            match observe(context, &freeze).await {
                Ok(()) => {}
                // The watch reports the present object.
                Err(error) if error.is_conflict() => period = CONFLICT_RETRY_PERIOD,
                Err(error) => {
                    let name = freeze.name_any();
                    tracing::warn!(
                        "the calendar of Freeze {name} cannot be read or reported: {error}"
                    );
                }
            }
        }
        // A timeout is the next period.
        tokio::time::timeout(period, changed.next_change()).await.unwrap_or_default();
        tokio::time::sleep(SHORTEST_READ_PERIOD).await;
    }
}

/// Whether this process reads the calendar of a Freeze and writes its status. A process for one namespace may not read other
/// namespaces. It would report that, and overwrite the report of the process that may.
fn is_read_here(context: &RunContext, freeze: &Freeze) -> bool {
    let settings = &context.settings;
    let is_of_namespace = |source: &FreezeCalendarSource| {
        source.config_map_ref.namespace == settings.runtime_namespace
    };
    let is_readable =
        settings.watch_all_namespaces || freeze.spec.calendar.as_ref().is_some_and(is_of_namespace);
    is_readable && settings.selects(freeze.labels())
}

/// Reads the calendar of a Freeze, and writes its status if that changes.
async fn observe(context: &RunContext, freeze: &Freeze) -> Result<(), ClusterError> {
    let file = match &freeze.spec.calendar {
        Some(source) => Some(file(context, source).await?),
        None => None,
    };
    let status = status_after(freeze, file, jiff::Timestamp::now());
    if freeze.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let patch = patch(freeze, &status);
    let freezes = resource::<Freeze>();
    let written =
        context.cluster.merge_patch_status(&freezes, "", &freeze.name_any(), &patch, MANAGER).await;
    match written {
        // The Freeze was deleted since, and the watch reports that.
        Err(error) if error.code() == Some(404) => Ok(()),
        written => written,
    }
}

/// The result of looking for a calendar.
enum CalendarFileLookup {
    /// The text of the calendar.
    Text(String),
    /// The calendar is missing, for this reason.
    Missing(String),
}

/// Reads the file of a calendar.
///
/// # Errors
/// The API server does not respond, so it is not known whether the file exists.
async fn file(
    context: &RunContext,
    source: &FreezeCalendarSource,
) -> Result<CalendarFileLookup, ClusterError> {
    let config_maps = ApiResourceLocation {
        gvk: Gvk::new("v1", "ConfigMap"),
        plural: "configmaps".to_owned(),
        namespaced: true,
        watchable: true,
    };
    let of = &source.config_map_ref;
    let found = match context.cluster.get(&config_maps, &of.namespace, &of.name).await {
        Ok(found) => found,
        Err(error) if error.is_transient() => return Err(error),
        Err(error) => return Ok(CalendarFileLookup::Missing(error.to_string())),
    };
    let missing = |why: &str| CalendarFileLookup::Missing(why.to_owned());
    let Some(config_map) = found else { return Ok(missing("the ConfigMap is not found")) };
    let text = config_map.get("data").and_then(|data| data.get(&of.key)).and_then(Value::as_str);
    Ok(match text {
        Some(text) => CalendarFileLookup::Text(text.to_owned()),
        None => missing("the ConfigMap does not have the key in `data`, where a file in UTF-8 is"),
    })
}

/// The status of a Freeze after `file` was read.
fn status_after(freeze: &Freeze, file: Option<CalendarFileLookup>, now: Time) -> FreezeStatus {
    let before = freeze.status.clone().unwrap_or_default();
    let spec = &freeze.spec;
    let last = before.calendar.filter(|it| Some(&it.source) == spec.calendar.as_ref());
    let read = spec
        .calendar
        .as_ref()
        .zip(file)
        .map(|(source, file)| FreezeCalendarReadResult { source, file });
    let (outcome, calendar) = match read {
        Some(read) => read.judged(last, now),
        None => {
            let text = "its times can be read".to_owned();
            (RunOutcome::Settled(condition_reason::SUCCEEDED, text), None)
        }
    };
    let outcome = match freeze::times(spec) {
        Ok(_) => outcome,
        Err(error) => {
            let text = format!("{error}; the Freeze denies until that is corrected");
            RunOutcome::Stalled(INVALID_FREEZE, text)
        }
    };
    let generation = freeze.metadata.generation.unwrap_or_default();
    let known = conditions_of(&before.conditions);
    let conditions = StatusConditions::since(&known, generation, now, &[]).finish(&outcome);
    FreezeStatus { observed_generation: Some(generation), conditions: listed(conditions), calendar }
}

/// The calendar of a spec as it was read.
struct FreezeCalendarReadResult<'s> {
    source: &'s FreezeCalendarSource,
    file: CalendarFileLookup,
}

impl FreezeCalendarReadResult<'_> {
    /// The report about the calendar, and the calendar that counts from now on.
    fn judged(
        self,
        last: Option<FreezeCalendarStatus>,
        now: Time,
    ) -> (RunOutcome, Option<FreezeCalendarStatus>) {
        let Self { source, file } = self;
        let shown = freeze::calendar_name(source);
        let failed = |why: &str, last: Option<FreezeCalendarStatus>| {
            let what = match last {
                Some(_) => "the last one that could be read counts",
                None => "the Freeze denies until it can be read",
            };
            let text = format!("the calendar in {shown} cannot be read, and {what}: {why}");
            let soon = now.saturating_add(READ_PERIOD).unwrap_or(Time::MAX);
            (RunOutcome::Failed(CALENDAR_FAILED, text, NextRunTrigger::at(soon)), last)
        };
        let text = match file {
            CalendarFileLookup::Text(text) => text,
            CalendarFileLookup::Missing(why) => return failed(&why, last),
        };
        let accepted = last.as_ref().map(|it| it.text.as_str());
        let read = ICalendar::parse(&text, &source.time_zone)
            .and_then(|calendar| calendar.verify(now, accepted).map(|()| calendar));
        match read {
            Ok(calendar) => {
                let text = format!("the calendar in {shown} has {} events", calendar.event_count());
                let source = source.clone();
                let read = FreezeCalendarStatus { source, text: calendar.text().to_owned() };
                (RunOutcome::Settled(condition_reason::SUCCEEDED, text), Some(read))
            }
            Err(error) if error.is_broken() => failed(&error.to_string(), last),
            // The new calendar differs from the last one, and its content is not known.
            Err(error) => {
                let text = format!(
                    "the calendar in {shown} cannot be used, and the Freeze denies until it is corrected: {error}"
                );
                (RunOutcome::Stalled(CALENDAR_NOT_SUPPORTED, text), None)
            }
        }
    }
}

/// The merge patch from the present status of a Freeze to a new status.
fn patch(freeze: &Freeze, status: &FreezeStatus) -> Value {
    let mut patch = json!({
        "metadata": {"uid": freeze.uid(), "resourceVersion": freeze.resource_version()},
        "status": status,
    });
    // A field that the patch leaves out would stay.
    match &status.calendar {
        None => patch["status"]["calendar"] = Value::Null,
        Some(calendar) if calendar.source.time_zone.is_empty() => {
            patch["status"]["calendar"]["source"]["timeZone"] = Value::Null;
        }
        Some(_) => {}
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227\n\
                        END:VEVENT\nEND:VCALENDAR\n";

    fn now() -> Time {
        "2026-12-24T12:00:00Z".parse().unwrap()
    }

    fn freeze_of(spec: &Value) -> Freeze {
        let mut spec = spec.clone();
        spec["reason"] = json!("sales");
        spec["namespaceSelector"] = json!({});
        serde_json::from_value(json!({"metadata": {"name": "a", "generation": 1}, "spec": spec}))
            .unwrap()
    }

    fn with_calendar(zone: &str) -> Freeze {
        let reference = json!({"name": "freezes", "namespace": "platform", "key": "a.ics"});
        freeze_of(&json!({"calendar": {"configMapRef": reference, "timeZone": zone}}))
    }

    /// The Freeze after its calendar was found to be `file`.
    fn after(freeze: &Freeze, file: Result<&str, &str>) -> Freeze {
        let file = match file {
            Ok(text) => CalendarFileLookup::Text(text.to_owned()),
            Err(why) => CalendarFileLookup::Missing(why.to_owned()),
        };
        let status = status_after(freeze, Some(file), now());
        Freeze { status: Some(status), ..freeze.clone() }
    }

    /// The reason of `Ready`, and whether the Freeze is `Stalled`.
    fn reported(freeze: &Freeze) -> (String, bool) {
        let conditions = &freeze.status.as_ref().unwrap().conditions;
        let of = |kind: &str| conditions.iter().find(|it| it.type_ == kind);
        (of("Ready").unwrap().reason.clone(), of("Stalled").is_some())
    }

    /// Until when the Freeze denies, or why its times cannot be read.
    fn denies(freeze: &Freeze) -> Result<String, String> {
        let calendar = freeze::calendar(&freeze.spec, freeze.status.as_ref(), now())?;
        Ok(format!("{:?}", calendar.denies(now())))
    }

    #[test]
    fn a_calendar_counts_from_when_it_is_in_the_status() {
        let new = with_calendar("");
        assert!(
            denies(&new)
                .unwrap_err()
                .contains("platform/freezes, key `a.ics` has not been read yet")
        );
        let read = after(&new, Ok(GOOD));
        assert_eq!(reported(&read), ("Succeeded".to_owned(), false));
        assert!(denies(&read).unwrap().contains("2026-12-27T00:00:00Z"));
        let again = after(&read, Ok(GOOD));
        assert_eq!(again, read, "nothing is to be written");
    }

    #[test]
    fn a_calendar_that_is_damaged_or_missing_leaves_the_last_one_and_without_one_the_freeze_denies()
    {
        let read = after(&with_calendar(""), Ok(GOOD));
        let empty = "BEGIN:VCALENDAR\nVERSION:2.0\nEND:VCALENDAR\n";
        for file in [Ok("<html>"), Err("the ConfigMap is not found"), Ok(""), Ok(empty)] {
            let broken = after(&read, file);
            assert_eq!(reported(&broken), ("CalendarFailed".to_owned(), false));
            assert!(denies(&broken).unwrap().contains("2026-12-27T00:00:00Z"), "{file:?}");
            let none = after(&with_calendar(""), file);
            assert!(denies(&none).unwrap_err().contains("denies until it can be read"), "{file:?}");
        }
    }

    #[test]
    fn a_calendar_that_is_not_supported_or_too_large_stalls_the_freeze_and_denies() {
        let read = after(&with_calendar(""), Ok(GOOD));
        let rule = GOOD.replace("END:VEVENT", "RRULE:FREQ=YEARLY;BYMONTH=12\nEND:VEVENT");
        for file in [rule, "A:1\n".repeat(400_000)] {
            let stalled = after(&read, Ok(file.as_str()));
            assert_eq!(reported(&stalled), ("CalendarNotSupported".to_owned(), true));
            let why = denies(&stalled).unwrap_err();
            assert!(why.contains("the Freeze denies until it is corrected"), "{why}");
            let damaged = after(&stalled, Ok("<html>"));
            assert!(denies(&damaged).is_err(), "there is no last one");
            assert!(denies(&after(&damaged, Ok(GOOD))).is_ok());
        }
    }

    #[test]
    fn the_last_calendar_counts_only_for_the_spec_that_it_was_read_for() {
        let read = after(&with_calendar(""), Ok(GOOD));
        let moved = Freeze { status: read.status.clone(), ..with_calendar("Asia/Tokyo") };
        assert!(denies(&moved).is_err());
        let broken = after(&moved, Err("the ConfigMap is not found"));
        assert_eq!(broken.status.as_ref().unwrap().calendar, None);
        let without = freeze_of(&json!({"periods": [{"from": "2026-12-24", "to": "2026-12-24"}]}));
        let without = Freeze { status: read.status, ..without };
        assert!(denies(&without).unwrap().contains("2026-12-25T00:00:00Z"));
        assert_eq!(status_after(&without, None, now()).calendar, None);
    }

    #[test]
    fn a_spec_that_cannot_be_read_is_reported() {
        let broken = freeze_of(&json!({"periods": [{"from": "soon", "to": "2026-12-24"}]}));
        let status = status_after(&broken, None, now());
        let broken = Freeze { status: Some(status), ..broken };
        assert_eq!(reported(&broken), ("InvalidFreeze".to_owned(), true));
    }

    #[test]
    fn a_patch_removes_what_is_absent() {
        let new = with_calendar("");
        let read = after(&new, Ok(GOOD));
        let of = |freeze: &Freeze| patch(&new, freeze.status.as_ref().unwrap());
        assert_eq!(of(&read)["status"]["calendar"]["source"].get("timeZone"), Some(&Value::Null));
        let none = after(&new, Err("the ConfigMap is not found"));
        assert_eq!(of(&none)["status"].get("calendar"), Some(&Value::Null));
    }
}
