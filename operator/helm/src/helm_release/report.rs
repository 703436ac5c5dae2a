//! Turns the outcome of a HelmRelease, or of a release of a Helmfile, into its status and its events. Pure.
//!
//! Elsewhere: how decisions change the status (engine `release`, `operation_status_changes`), the fields of the status
//! (`status`).

use std::collections::BTreeMap;

use crds::helm::{HelmRelease, HelmReleaseStatus};
use crds::{ObjectStatus as _, ResourceInventory};
use kube_core::ResourceExt as _;
use reconcile::{
    AnnotationCondition, ConditionReason, ConditionStatus as Truth, DELETION_HELD, NextRunTrigger,
    RunOutcome, StatusCondition, Time, condition_reason,
};
use release::ReleaseDesiredState;
use release::status::{DRIFT_CORRECTION_FAILED, ReleaseEvent, ReleaseProgress, ReleaseReport};

use super::chart_source::SOURCE_NOT_READY;
use super::status;
use windlass_cluster::announced_failures::FailureAnnouncement;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::approval_plan::BUDGET_EXCEEDED;
use windlass_runtime::approval_plan::change_approval::{PLAN_PENDING, PLAN_REJECTED};
use windlass_runtime::controller_kind::REQUESTED_AT;
use windlass_runtime::object_status::{conditions_of, listed};

/// An event in the form in which it is recorded about an owner. The group of the owner's kind is the prefix of the facts.
pub fn event<K: WindlassKind>(of: &ReleaseEvent) -> ObjectEvent {
    let group = K::group(&());
    let severity = if of.warning { EventSeverity::Error } else { EventSeverity::Info };
    let facts = [
        ("revision", &of.revision),
        ("token", &of.token),
        ("app-version", &of.app_version),
        ("oci-digest", &of.oci_digest),
    ];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    ObjectEvent {
        severity,
        reason: of.reason.as_str().to_owned(),
        message: of.text.clone(),
        metadata: facts.map(|(key, value)| (format!("{group}/{key}"), value.clone())).collect(),
    }
}

/// The status in the middle of a run, with the decisions so far and the running operation. `inventory` is given if objects
/// changed; without a history there is none.
///
/// # Errors
/// A revision of the history has a value that the CRD does not allow.
pub fn progress(
    before: &HelmReleaseStatus,
    release_report: &ReleaseReport,
    inventory: Option<ResourceInventory>,
    desired: &ReleaseDesiredState,
    now: Time,
) -> Result<HelmReleaseStatus, RunOutcome> {
    let mut after = before.clone();
    status::write(&release_report.status, &mut after)?;
    match inventory {
        Some(inventory) => after.inventory = Some(inventory),
        None if release_report.status.history.is_empty() => after.inventory = None,
        None => {}
    }
    let had = conditions_of(&before.conditions);
    let progress = release_report.progress.as_ref().map(|it| it.text.as_str());
    let conditions = status::conditions(&release_report.status, &had, desired.generation, now)
        .progressing(progress);
    // Once an operation begins, its deletions are permitted, so they are not held any more.
    let conditions = match progress {
        Some(_) => conditions,
        None => conditions.keep(DELETION_HELD),
    };
    let summary = release_report.status.summary(desired);
    let ready = StatusCondition::find(&had, reconcile::READY);
    let was = |why: ConditionReason| ready.is_some_and(|said| said.reason == why.as_str());
    // The end of the run reports that a contest began, with an event.
    let was_contested = was(condition_reason::CONTESTED);
    let is_drifted =
        release_report.status.drifted.as_ref().is_some_and(|said| said.status == Truth::True);
    let is_uncorrected = is_drifted && was(DRIFT_CORRECTION_FAILED);
    let outcome = match (&release_report.progress, summary) {
        (Some(ReleaseProgress { text, makes_unready: true }), _) => running(text),
        // The end of the run reports whether the drift is corrected.
        (_, Some(said)) if said.status == Truth::True && is_uncorrected => None,
        (_, Some(said)) if said.status == Truth::True => Some(match &release_report.contested {
            Some(text) if was_contested => RunOutcome::Failed(
                condition_reason::CONTESTED,
                text.clone(),
                NextRunTrigger::default(),
            ),
            Some(_) | None => RunOutcome::Settled(said.reason, said.text),
        }),
        (_, Some(said)) if said.status == Truth::False => {
            Some(RunOutcome::Failed(said.reason, said.text, NextRunTrigger::default()))
        }
        (_, Some(said)) => {
            Some(RunOutcome::Running(said.reason, said.text, NextRunTrigger::default()))
        }
        (Some(ReleaseProgress { text, .. }), None) => running(text),
        (None, None) => None,
    };
    let conditions = match outcome {
        Some(outcome) => Some(conditions.finish(&outcome)),
        None => conditions.finish_as_before(),
    };
    if let Some(conditions) = conditions {
        after.conditions = listed(conditions);
    }
    Ok(after)
}

fn running(text: &str) -> Option<RunOutcome> {
    Some(RunOutcome::Running(
        condition_reason::PROGRESSING,
        text.to_owned(),
        NextRunTrigger::default(),
    ))
}

/// The result of a run of a release.
pub struct ReleaseRunResult<'a> {
    /// The outcome of the run.
    pub outcome: &'a RunOutcome,
    /// The desired state, if the run came that far.
    pub desired: Option<&'a ReleaseDesiredState>,
    /// The generation of the owner.
    pub generation: i64,
    /// The requests of a user in annotations, if the release has conditions for them.
    pub marks: &'a [AnnotationCondition],
    /// The present action of a running operation, by its journal.
    pub running: Option<&'a str>,
    /// About a failure that the status has already.
    pub announcement: FailureAnnouncement,
    /// The time when the run ended.
    pub now: Time,
}

/// The status of the release at the end of a run.
pub fn ended(before: &HelmReleaseStatus, run: &ReleaseRunResult<'_>) -> HelmReleaseStatus {
    let had = conditions_of(&before.conditions);
    let known = status::of(before.clone());
    let summary = run.desired.and_then(|desired| known.summary(desired));
    // Parity(flux): `Ready` keeps the failure, and `Stalled` says that no further attempt is made.
    let failure = summary.as_ref().filter(|said| said.status != Truth::True);
    // A Quarantine names its failure, and the revision that is applied in its place.
    let failure = failure.filter(|_| run.outcome.reason() != condition_reason::QUARANTINED);
    let under_way = matches!(run.outcome, RunOutcome::Running(..));
    let conditions = status::conditions(&known, &had, run.generation, run.now)
        .marked(run.marks)
        .failing(failure.map(|said| (said.reason, said.text.as_str())))
        .progressing(run.running.filter(|_| under_way));
    let conditions = match run.outcome {
        RunOutcome::Running(BUDGET_EXCEEDED, text, _) => {
            conditions.set(DELETION_HELD, Truth::True, BUDGET_EXCEEDED, text)
        }
        // Nothing waits for an approval any more, and `Ready` says why.
        RunOutcome::Blocked(PLAN_REJECTED, ..) => conditions,
        RunOutcome::Blocked(..) | RunOutcome::Failed(..) => conditions.keep(DELETION_HELD),
        RunOutcome::Running(..) | RunOutcome::Settled(..) | RunOutcome::Stalled(..) => conditions,
    };
    let mut after = before.clone();
    after.conditions = listed(conditions.finish(run.outcome));
    if matches!(run.outcome, RunOutcome::Settled(..) | RunOutcome::Stalled(..)) {
        after.set_observed_generation(run.generation);
    }
    after
}

/// The status to write, the event to announce and the event to log at the end of a run of a HelmRelease.
pub(crate) struct HelmReleaseReport {
    pub(crate) after: HelmReleaseStatus,
    pub(crate) event: Option<ObjectEvent>,
    /// The event that is written only to the log.
    pub(crate) logged: Option<ObjectEvent>,
}

/// Makes the status and the event from the outcome of a run. `helm_chart` is `namespace/name` of the HelmChart that was made
/// for the HelmRelease, if it is known.
pub(crate) fn report(
    object: &HelmRelease,
    before: &HelmReleaseStatus,
    helm_chart: Option<&str>,
    run: &ReleaseRunResult<'_>,
) -> HelmReleaseReport {
    let mut after = ended(before, run);
    let under_way = matches!(run.outcome, RunOutcome::Running(..));
    if let Some(requested) = object.annotations().get(REQUESTED_AT).filter(|_| !under_way) {
        after.set_last_handled_reconcile_at(requested);
    }
    if let Some(chart) = helm_chart {
        after.helm_chart = Some(chart.to_owned()).filter(|chart| !chart.is_empty());
    }
    let run_event = held_event(before, run.outcome).or_else(|| run_event(before, run));
    let (event, logged) = match is_only_logged(run.outcome) {
        true => (None, run_event),
        false => (run_event, None),
    };
    HelmReleaseReport { after, event, logged }
}

/// The event about an operation that waits for the approval of its Plan. `None` if the condition of the status reports the
/// same. The text names the Plan, so each Plan has one event.
pub fn held_event(before: &HelmReleaseStatus, outcome: &RunOutcome) -> Option<ObjectEvent> {
    let RunOutcome::Running(why, text, _) = outcome else { return None };
    let (severity, reason, condition) = match *why {
        BUDGET_EXCEEDED => (EventSeverity::Error, DELETION_HELD, DELETION_HELD),
        PLAN_PENDING => (EventSeverity::Info, PLAN_PENDING.as_str(), reconcile::READY),
        _ => return None,
    };
    let said = before.conditions.iter().find(|it| it.type_ == condition);
    said.is_none_or(|said| said.message != *text).then(|| ObjectEvent {
        severity,
        reason: reason.to_owned(),
        message: text.clone(),
        metadata: BTreeMap::new(),
    })
}

/// Parity(flux): users mostly create a HelmRelease together with its source, so a source that has no artifact yet is
/// logged without an event.
fn is_only_logged(outcome: &RunOutcome) -> bool {
    matches!(outcome, RunOutcome::Blocked(condition_reason::ARTIFACT_FAILED | SOURCE_NOT_READY, ..))
}

/// The event about a failure of a release that its status has already. `None` unless the process that led before may have ended
/// before it sent the event of this failure. A suspended release has none.
pub fn failure_after_takeover(
    before: &HelmReleaseStatus,
    run: &ReleaseRunResult<'_>,
) -> Option<ObjectEvent> {
    let is_suspended = run.desired.is_some_and(|desired| desired.suspended);
    let is_in_status = is_in_status(before, run);
    let is_due = is_in_status && !run.announcement.is_reported(is_in_status, run.outcome);
    (is_due && !is_suspended).then(|| outcome_event(EventSeverity::Error, run.outcome))
}

/// Whether a status has the text of an outcome already, or an action reported it.
fn is_in_status(before: &HelmReleaseStatus, run: &ReleaseRunResult<'_>) -> bool {
    let text = run.outcome.text();
    let of_action = run.desired.and_then(|desired| status::of(before.clone()).summary(desired));
    before.conditions.iter().any(|it| it.message == text)
        || of_action.is_some_and(|said| said.text == text)
}

/// The event for the outcome of a run. `None` if it is known, or if an action already reported the same text.
fn run_event(before: &HelmReleaseStatus, run: &ReleaseRunResult<'_>) -> Option<ObjectEvent> {
    let severity = match run.outcome {
        RunOutcome::Settled(..) | RunOutcome::Running(..) => return None,
        RunOutcome::Blocked(..) => EventSeverity::Info,
        RunOutcome::Failed(..) | RunOutcome::Stalled(..) => EventSeverity::Error,
    };
    let is_reported = run.announcement.is_reported(is_in_status(before, run), run.outcome);
    (!is_reported).then(|| outcome_event(severity, run.outcome))
}

fn outcome_event(severity: EventSeverity, outcome: &RunOutcome) -> ObjectEvent {
    ObjectEvent {
        severity,
        reason: outcome.reason().as_str().to_owned(),
        message: outcome.text().to_owned(),
        metadata: BTreeMap::new(),
    }
}

/// A line in the log.
pub(crate) fn log(object: &HelmRelease, event: &ObjectEvent) {
    let name = object.name_any();
    let namespace = object.namespace().unwrap_or_default();
    let why = &event.reason;
    let text = &event.message;
    match event.severity {
        EventSeverity::Error => {
            tracing::error!(
                controller_kind = "HelmRelease",
                name,
                namespace,
                reason = why,
                "{text}"
            );
        }
        EventSeverity::Info => {
            tracing::info!(
                controller_kind = "HelmRelease",
                name,
                namespace,
                reason = why,
                "{text}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use release::status::{HelmReleaseStatusFields, ReleaseCondition};
    use serde_json::json;

    use super::*;
    use crate::helm_release::validated_spec::read_without_chart;
    use crate::release_runner::validated_spec::ReleaseInputs;
    use windlass_serve::settings::OperatorSettings;

    fn release() -> HelmRelease {
        serde_json::from_value(json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "app", "namespace": "apps", "generation": 1},
            "spec": {"interval": "1m", "chartRef": {"kind": "HelmChart", "name": "c"}},
        }))
        .unwrap()
    }

    fn event_and_log(outcome: &RunOutcome) -> [Option<String>; 2] {
        let run = ReleaseRunResult {
            outcome,
            desired: None,
            generation: 1,
            marks: &[],
            running: None,
            announcement: FailureAnnouncement::Made,
            now: Time::UNIX_EPOCH,
        };
        let report = report(&release(), &HelmReleaseStatus::default(), None, &run);
        [report.event, report.logged].map(|event| event.map(|it| it.message))
    }

    #[test]
    fn a_status_in_the_middle_of_a_run_calls_no_release_ready_that_was_not() {
        let object = release();
        let settings = OperatorSettings::from_flags::<&str>(&[]).unwrap();
        let spec = read_without_chart(&object, &settings);
        let desired = spec.desired(&object, ReleaseInputs::default(), 0, &settings);
        let said = |reason: ConditionReason, text: &str| {
            let text = text.to_owned();
            Some(ReleaseCondition { status: Truth::True, reason, text, generation: 1 })
        };
        let released = said(release::status::UPGRADE_SUCCEEDED, "Helm upgrade succeeded");
        let is_drifted = Cell::new(false);
        let ready = |before: &HelmReleaseStatus, contested: Option<&str>| {
            let contested = contested.map(str::to_owned);
            let drifted = said(release::status::DRIFT_DETECTED, "").filter(|_| is_drifted.get());
            let released = released.clone();
            let status =
                HelmReleaseStatusFields { released, drifted, ..HelmReleaseStatusFields::default() };
            let release_report = ReleaseReport { contested, ..ReleaseReport::of(status) };
            let after =
                progress(before, &release_report, None, &desired, Time::UNIX_EPOCH).unwrap();
            let ready =
                StatusCondition::find(&conditions_of(&after.conditions), reconcile::READY).cloned();
            ready.map(|it| (it.status, it.reason, it.message)).unwrap()
        };
        let none = HelmReleaseStatus::default();
        let settled = ready(&none, None);
        assert_eq!((settled.0, settled.1.as_str()), (Truth::True, "UpgradeSucceeded"));
        // That it begins is for the end of the run, which sends an event.
        let begins = ready(&none, Some("ConfigMap/apps/a is contested"));
        assert_eq!((begins.0, begins.1.as_str()), (Truth::True, "UpgradeSucceeded"));
        let failing = |reason: &str, message: &str| {
            let before = json!({"conditions": [{"type": "Ready", "status": "False", "reason": reason,
                "message": message, "lastTransitionTime": "1970-01-01T00:00:00Z"}]});
            serde_json::from_value::<HelmReleaseStatus>(before).unwrap()
        };
        let text = "ConfigMap/apps/a is contested";
        let contested = ready(&failing("Contested", text), Some(text));
        assert_eq!(contested, (Truth::False, "Contested".to_owned(), text.to_owned()));
        // Whether the drift is corrected by now is for the end of the run, too.
        let failed = failing("DriftCorrectionFailed", "it was refused");
        assert_eq!(ready(&failed, None).0, Truth::True, "it has not drifted");
        is_drifted.set(true);
        let uncorrected =
            (Truth::False, "DriftCorrectionFailed".to_owned(), "it was refused".to_owned());
        assert_eq!(ready(&failed, None), uncorrected);
    }

    #[test]
    fn that_a_source_has_nothing_yet_is_logged_and_no_event() {
        let text = || "HelmChart/apps/c is not ready: it has no artifact".to_owned();
        for why in [SOURCE_NOT_READY, condition_reason::ARTIFACT_FAILED] {
            assert_eq!(
                event_and_log(&RunOutcome::Blocked(why, text(), NextRunTrigger::default())),
                [None, Some(text())]
            );
        }
        let waits = RunOutcome::Blocked(
            condition_reason::DEPENDENCY_NOT_READY,
            text(),
            NextRunTrigger::default(),
        );
        assert_eq!(event_and_log(&waits), [Some(text()), None]);
        let failed = RunOutcome::Failed(
            condition_reason::ARTIFACT_FAILED,
            text(),
            NextRunTrigger::default(),
        );
        assert_eq!(event_and_log(&failed), [Some(text()), None]);
    }

    #[test]
    fn a_failure_that_the_status_has_is_reported_once_more_after_a_takeover() {
        let report_of = |before: &HelmReleaseStatus, announcement: FailureAnnouncement| {
            let text = "Failed to install after 1 attempt(s)".to_owned();
            let outcome = RunOutcome::Stalled(release::status::RETRIES_EXCEEDED, text);
            let run = ReleaseRunResult {
                outcome: &outcome,
                desired: None,
                generation: 1,
                marks: &[],
                running: None,
                announcement,
                now: Time::UNIX_EPOCH,
            };
            let of_release = failure_after_takeover(before, &run);
            let HelmReleaseReport { after, event, .. } = report(&release(), before, None, &run);
            (after, event, of_release)
        };
        let none = HelmReleaseStatus::default();
        // What is new has an event in any case. Those of a Helmfile's release are sent by its actions.
        let (failing, first, of_release) = report_of(&none, FailureAnnouncement::Due);
        assert_eq!(first.as_ref().map(|event| event.severity), Some(EventSeverity::Error));
        assert_eq!(of_release, None);
        let (_, again, of_release) = report_of(&failing, FailureAnnouncement::Made);
        assert_eq!((again, of_release), (None, None));
        let (_, after_takeover, of_release) = report_of(&failing, FailureAnnouncement::Due);
        assert_eq!(after_takeover, first);
        assert_eq!(of_release, first);
    }

    #[test]
    fn an_operation_whose_plan_waits_is_announced_once() {
        let waits = |plan: &str| {
            let text = format!("the upgrade waits for approval: 1 changed: plan/{plan}");
            RunOutcome::Running(PLAN_PENDING, text, NextRunTrigger::default())
        };
        let run = |before: &HelmReleaseStatus, outcome: &RunOutcome| {
            let run = ReleaseRunResult {
                outcome,
                desired: None,
                generation: 1,
                marks: &[],
                running: None,
                announcement: FailureAnnouncement::Made,
                now: Time::UNIX_EPOCH,
            };
            let HelmReleaseReport { after, event, .. } = report(&release(), before, None, &run);
            (after, event.map(|it| (it.reason, it.severity)))
        };
        let announced = Some(("PlanPending".to_owned(), EventSeverity::Info));
        let (first, event) = run(&HelmReleaseStatus::default(), &waits("a"));
        assert_eq!(event, announced);
        let conditions = conditions_of(&first.conditions);
        let ready = StatusCondition::find(&conditions, reconcile::READY).unwrap();
        assert_eq!((ready.status, ready.reason.as_str()), (Truth::Unknown, "PlanPending"));
        assert!(!StatusCondition::is(&conditions, DELETION_HELD, Truth::True));
        assert_eq!(run(&first, &waits("a")).1, None, "it was announced");
        assert_eq!(run(&first, &waits("b")).1, announced);
    }

    #[test]
    fn an_operation_that_waits_has_a_condition_and_one_event_for_each_plan() {
        let held = |plan: &str| {
            let text =
                format!("the upgrade waits, because it would delete 12 objects: plan/{plan}");
            RunOutcome::Running(BUDGET_EXCEEDED, text, NextRunTrigger::default())
        };
        let run = |before: &HelmReleaseStatus, outcome: &RunOutcome| {
            let run = ReleaseRunResult {
                outcome,
                desired: None,
                generation: 1,
                marks: &[],
                running: None,
                announcement: FailureAnnouncement::Made,
                now: Time::UNIX_EPOCH,
            };
            let HelmReleaseReport { after, event, .. } = report(&release(), before, None, &run);
            (after, event.map(|it| (it.reason, it.severity)))
        };
        let is_held = |status: &HelmReleaseStatus| {
            StatusCondition::is(&conditions_of(&status.conditions), DELETION_HELD, Truth::True)
        };
        let announced = Some((DELETION_HELD.to_owned(), EventSeverity::Error));
        let (first, event) = run(&HelmReleaseStatus::default(), &held("a"));
        assert!(is_held(&first) && event == announced);
        let ready =
            StatusCondition::find(&conditions_of(&first.conditions), reconcile::READY).cloned();
        assert_eq!(ready.unwrap().status, Truth::Unknown);
        assert_eq!(run(&first, &held("a")).1, None, "it was announced");
        assert_eq!(run(&first, &held("b")).1, announced);
        let closed = RunOutcome::Blocked(
            condition_reason::WINDOW_CLOSED,
            "the changed spec".to_owned(),
            NextRunTrigger::default(),
        );
        assert!(is_held(&run(&first, &closed).0), "it is held as well");
        let text = "the upgrade is rejected by bob".to_owned();
        let rejected = RunOutcome::Blocked(PLAN_REJECTED, text, NextRunTrigger::default());
        let (after, event) = run(&first, &rejected);
        assert!(!is_held(&after), "it waits for no approval any more");
        assert_eq!(event, Some(("PlanRejected".to_owned(), EventSeverity::Info)));
        let settled = RunOutcome::Settled(condition_reason::SUCCEEDED, String::new());
        assert!(!is_held(&run(&first, &settled).0));
    }
}
