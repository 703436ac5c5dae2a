//! Change windows and schedules of an object: the annotations `windlass.dev/window`, `-break-glass` and `-schedule`.
//!
//! Here: reading the annotations, and when they start a run. Elsewhere: their meaning (engine `reconcile`), what a closed
//! window stops (`dependency_gate.rs`), and their conditions (`hold_conditions.rs`).

use std::time::Duration;

use crds::ReconciledObject;
use kube_core::{Resource, ResourceExt as _};
use reconcile::{
    AnnotationCondition, ChangeWindowState, ConditionStatus, ReconcileSchedule, SCHEDULE, Time,
    condition_reason,
};

use windlass_cluster::windlass_kind::WindlassKind;

pub(super) use reconcile::{BREAK_GLASS, WINDOW_ANNOTATION as WINDOW};
/// The annotation with the schedule at which an object is reconciled in addition to its interval.
pub(super) const SCHEDULE_ANNOTATION: &str = "windlass.dev/schedule";

/// The current state of an object's change windows. `None` if it has no windows, or its kind applies no objects.
pub fn state<K: WindlassKind + ReconciledObject>(
    object: &K,
    now: Time,
) -> Option<ChangeWindowState> {
    if !K::APPLIES {
        return None;
    }
    ChangeWindowState::of(now, |key| object.annotations().get(key).map(String::as_str))
}

/// When an object's windows close. `None` if they stay open or the object has none. An invalid window counts as closed.
pub fn closes<K: WindlassKind + ReconciledObject>(object: &K, now: Time) -> Option<Time> {
    match state(object, now)? {
        ChangeWindowState::Open { until, .. } => until,
        ChangeWindowState::Closed { .. } | ChangeWindowState::Invalid { .. } => Some(Time::MIN),
    }
}

fn schedule_times<K: Resource>(
    object: &K,
) -> Option<Result<ReconcileSchedule, AnnotationCondition>> {
    let text = object.annotations().get(SCHEDULE_ANNOTATION)?;
    Some(ReconcileSchedule::parse(text).map_err(|error| AnnotationCondition {
        kind: SCHEDULE,
        status: ConditionStatus::False,
        reason: condition_reason::INVALID_SCHEDULE,
        text: format!(
            "{SCHEDULE_ANNOTATION}: {error}. Only the interval applies until it is corrected"
        ),
    }))
}

/// The condition that says why an object's schedule is invalid. `None` if the schedule is valid, or if there is no schedule.
pub(crate) fn invalid_schedule<K: Resource>(object: &K) -> Option<AnnotationCondition> {
    schedule_times(object)?.err()
}

/// Whether a scheduled time of an object has passed since `since`.
pub fn schedule_time_passed<K: Resource>(object: &K, since: Time, now: Time) -> bool {
    let next = schedule_times(object).and_then(Result::ok).and_then(|it| it.next_after(since));
    next.is_some_and(|next| next <= now)
}

/// The time until the next run: `again`, or an earlier time because of the schedule, the windows or the hold of the object.
/// `None` if no run is due at a known time.
pub(crate) fn sooner<K: WindlassKind + ReconciledObject>(
    object: &K,
    again: Option<Duration>,
) -> Option<Duration> {
    let now = jiff::Timestamp::now();
    let scheduled = schedule_times(object).and_then(Result::ok).and_then(|it| it.next_after(now));
    let window = state(object, now).and_then(|state| state.changes_at());
    let hold = super::object_hold::of(object).and_then(|hold| hold.expires_at());
    let delays = [scheduled, window, hold].into_iter().flatten().filter(|at| *at > now);
    let delays = delays.filter_map(|at| Duration::try_from(at.duration_since(now)).ok());
    delays.chain(again).min()
}

#[cfg(test)]
mod tests {
    use crds::kustomize::Kustomization;
    use crds::source::GitRepository;
    use serde_json::json;

    use super::*;

    fn object<K: WindlassKind>(annotations: &serde_json::Value) -> K {
        let of = json!({"kind": "GitRepository", "name": "app"});
        let fields = json!({"f:spec": {"f:suspend": {}},
            "f:metadata": {"f:annotations": {"f:windlass.dev/suspended-until": {}}}});
        let managed =
            json!([{"manager": "windlass-cli", "operation": "Update", "fieldsV1": fields}]);
        serde_json::from_value(json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": {"name": "app", "annotations": annotations, "managedFields": managed},
            "spec": {"interval": "10m", "prune": true, "sourceRef": of, "url": "http://git.test/app"},
        }))
        .unwrap()
    }

    #[test]
    fn windows_are_about_what_applies() {
        let annotations = json!({WINDOW: "@daily 4h"});
        assert!(state(&object::<Kustomization>(&annotations), Time::MIN).is_some());
        assert!(state(&object::<GitRepository>(&annotations), Time::MIN).is_none());
    }

    #[test]
    fn whatever_comes_first_has_the_object_run() {
        let minute = Duration::from_secs(60);
        let hour = Some(60 * minute);
        let delay = |annotations| sooner(&object::<Kustomization>(&annotations), hour);
        assert_eq!(delay(json!({})), hour);
        assert!(delay(json!({SCHEDULE_ANNOTATION: "* * * * *"})).unwrap() <= minute);
        assert!(delay(json!({WINDOW: "* * * * * 1s"})).unwrap() <= minute);
        assert_eq!(delay(json!({SCHEDULE_ANNOTATION: "soon", WINDOW: "never"})), hour);
        let past = json!({super::super::object_hold::UNTIL: "2020-01-01T00:00:00Z"});
        assert_eq!(delay(past), hour);
        let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(30);
        assert!(
            delay(json!({super::super::object_hold::UNTIL: soon.to_string()})).unwrap() < minute
        );
        let stalled = object::<Kustomization>(&json!({SCHEDULE_ANNOTATION: "@hourly"}));
        assert!(sooner(&stalled, None).is_some());
    }

    #[test]
    fn a_schedule_time_that_came_since_the_last_run_is_due() {
        let object: GitRepository = object(&json!({SCHEDULE_ANNOTATION: "0 6 * * *"}));
        let time = |text: &str| text.parse::<Time>().unwrap();
        let before = time("2026-11-23T05:00:00Z");
        let at = time("2026-11-23T06:00:00Z");
        assert!(schedule_time_passed(&object, before, at));
        assert!(!schedule_time_passed(&object, at, time("2026-11-23T12:00:00Z")));
        let wrong = self::object::<GitRepository>(&json!({SCHEDULE_ANNOTATION: "0 6 * * 8"}));
        assert!(!schedule_time_passed(&wrong, before, at));
        assert!(
            invalid_schedule(&wrong).unwrap().text.starts_with("windlass.dev/schedule: `8` is not")
        );
    }
}
