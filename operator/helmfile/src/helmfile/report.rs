//! Turns the outcome of a run of a Helmfile into its status and an event. Pure.
//!
//! Elsewhere: the row of each release (`release_status_writer.rs`), conditions (`reconcile`).

use std::collections::BTreeMap;
use std::fmt;

use crds::ObjectStatus as _;
use crds::helmfile::{HelmfileReleaseStatus, HelmfileStatus, ReleaseState};
use reconcile::object_dependency;
use reconcile::{
    ConditionReason, ConditionStatus, DELETION_HELD, NextRunTrigger, RunOutcome, StatusConditions,
    Time, condition_reason,
};

use super::helmfile_kind_differences::{self, HelmfileCustomResource};
use super::plan::ReleaseKey;
use super::release_reconciler::{ReleaseOutcomes, ReleaseProgress};
use windlass_cluster::announced_failures::FailureAnnouncement;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_runtime::applier_run;
use windlass_runtime::approval_plan::BUDGET_EXCEEDED;
use windlass_runtime::approval_plan::change_approval::{PLAN_PENDING, PLAN_REJECTED};
use windlass_runtime::depends_on_annotation::shortened;
use windlass_runtime::hold_conditions;
use windlass_runtime::object_status::{conditions_of, listed, status_of};

/// The condition that the same helmfile and values can give another result, because the helmfile uses random values or the
/// time.
pub(super) const NON_DETERMINISTIC: &str = "NonDeterministic";

/// Whether the spec has fields of helmfile-operator that have no effect here.
pub(super) const WITHOUT_EFFECT: &str = "LegacyFieldsIgnored";

/// The conditions that this kind sets. Other conditions in the status are kept.
pub(super) const OWNED: [&str; 3] = [NON_DETERMINISTIC, WITHOUT_EFFECT, DELETION_HELD];

/// The helmfile calls functions that draw randomness or the time.
const DRAWS: ConditionReason = ConditionReason::new("DrawsValues");

/// The spec has fields that only a Pod could follow.
const NOT_USED: ConditionReason = ConditionReason::new("NoEffect");

/// A release failed.
pub(super) const RELEASE_FAILED: ConditionReason = ConditionReason::new("ReleaseFailed");

/// How many releases a message names at most.
const MAX_NAMED_RELEASES: usize = 3;

/// A list of releases for a message. It names only the first few releases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReleaseNameList {
    number: usize,
    first: Vec<String>,
}

impl ReleaseNameList {
    pub(super) fn is_empty(&self) -> bool {
        self.number == 0
    }

    pub(super) fn push(&mut self, name: impl fmt::Display) {
        if self.first.len() < MAX_NAMED_RELEASES {
            self.first.push(name.to_string());
        }
        self.number += 1;
    }

    /// Adds the releases of another list.
    pub(super) fn extend(&mut self, other: &Self) {
        let room = MAX_NAMED_RELEASES - self.first.len();
        self.first.extend(other.first.iter().take(room).cloned());
        self.number += other.number;
    }
}

impl fmt::Display for ReleaseNameList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let few = self.first.join(", ");
        match self.number.saturating_sub(self.first.len()) {
            0 => write!(f, "{few}"),
            more => write!(f, "{few} and {more} more"),
        }
    }
}

/// The outcome of the whole, by the outcomes of its releases.
pub(super) fn outcome(
    revision: &str,
    rows: &[HelmfileReleaseStatus],
    outcomes: &ReleaseOutcomes,
) -> RunOutcome {
    let of = |key: &str| rows.iter().find(|row| ReleaseKey::of(row).to_string() == key);
    let mut wake = NextRunTrigger::default();
    for progress in outcomes.values() {
        if let ReleaseProgress::Unfinished(outcome) = progress
            && let Some(at) = outcome.wake().and_then(NextRunTrigger::earliest)
        {
            wake = wake.and_at(at);
        }
    }
    let mut failed = Vec::new();
    let mut running = Vec::new();
    let mut pending = Vec::new();
    let mut rejected = Vec::new();
    let mut waiting = Vec::new();
    for (key, progress) in outcomes {
        match progress {
            ReleaseProgress::Unfinished(RunOutcome::Failed(..) | RunOutcome::Stalled(..)) => {
                failed.push(key.to_string());
            }
            ReleaseProgress::Unfinished(RunOutcome::Running(PLAN_PENDING, text, _)) => {
                pending.push(format!("release {key}: {text}"));
            }
            ReleaseProgress::Unfinished(RunOutcome::Blocked(PLAN_REJECTED, text, _)) => {
                rejected.push(format!("release {key}: {text}"));
            }
            ReleaseProgress::Unfinished(RunOutcome::Running(..)) => running.push(key.to_string()),
            ReleaseProgress::Unfinished(RunOutcome::Blocked(..)) | ReleaseProgress::Waits => {
                waiting.push(key.to_string());
            }
            ReleaseProgress::Suspended { is_there: false } => waiting.push(key.to_string()),
            ReleaseProgress::Unfinished(RunOutcome::Settled(..))
            | ReleaseProgress::Kept
            | ReleaseProgress::Suspended { .. } => {}
        }
    }
    let waits = match waiting.len() {
        0 => String::new(),
        1 => format!("; {} waits", waiting[0]),
        number => format!("; {number} releases wait: {}", named(&waiting)),
    };
    if let Some(first) = failed.first() {
        let why = of(first).and_then(|row| row.message.as_deref()).unwrap_or("failed");
        let others = match failed.len() {
            1 => String::new(),
            number => {
                format!("; {} other releases failed, too: {}", number - 1, named(&failed[1..]))
            }
        };
        return RunOutcome::Failed(
            RELEASE_FAILED,
            format!("release {first}: {why}{others}{waits}"),
            wake,
        );
    }
    if !running.is_empty() {
        let text = match running.len() {
            1 => format!("release {} is in progress{waits}", running[0]),
            number => format!("{number} releases are in progress: {}{waits}", named(&running)),
        };
        return RunOutcome::Running(condition_reason::PROGRESSING, text, wake);
    }
    if let Some(first) = pending.first() {
        let more = match pending.len().saturating_sub(1) {
            0 => String::new(),
            more => format!("; {more} more wait for approval, `windlass get plans` shows them"),
        };
        return RunOutcome::Running(PLAN_PENDING, format!("{first}{more}{waits}"), wake);
    }
    if let Some(first) = rejected.first() {
        return RunOutcome::Blocked(PLAN_REJECTED, format!("{first}{waits}"), wake);
    }
    if let Some(first) = waiting.first() {
        let why = of(first).and_then(|row| row.message.as_deref()).unwrap_or("waits");
        let of_freeze = outcomes.values().find_map(freeze_reason);
        let reason = of_freeze.unwrap_or(condition_reason::DEPENDENCY_NOT_READY);
        return RunOutcome::Blocked(reason, format!("release {first}: {why}"), wake);
    }
    RunOutcome::Settled(
        condition_reason::RECONCILIATION_SUCCEEDED,
        format!("Applied revision: {revision}"),
    )
}

/// The reason of a release that a Freeze holds, or that is held because the Freezes are not known.
fn freeze_reason(progress: &ReleaseProgress) -> Option<ConditionReason> {
    let ReleaseProgress::Unfinished(outcome) = progress else { return None };
    let reason = outcome.reason();
    matches!(reason, condition_reason::FROZEN | condition_reason::FREEZES_UNKNOWN).then_some(reason)
}

fn named(keys: &[String]) -> String {
    let mut several = ReleaseNameList::default();
    keys.iter().for_each(|key| several.push(key));
    several.to_string()
}

/// The result of a run.
pub(super) struct HelmfileRunSummary<'r> {
    pub(super) outcome: &'r RunOutcome,
    /// About a failure that the status has already.
    pub(super) announcement: FailureAnnouncement,
    /// The request that the run has seen.
    pub(super) requested: Option<&'r str>,
    /// The revision of the source. Empty if the run ended before it knew the revision.
    pub(super) revision: &'r str,
    /// The present rows, if the run changed any.
    pub(super) rows: Option<Vec<HelmfileReleaseStatus>>,
    /// Functions of the helmfile that draw randomness or the time, if it was read.
    pub(super) drawn: Option<&'r [&'static str]>,
    pub(super) now: Time,
}

/// The status before and after the run, and the events to announce.
pub(super) fn report<K: HelmfileCustomResource>(
    object: &K,
    run: HelmfileRunSummary<'_>,
) -> (HelmfileStatus, HelmfileStatus, Option<ObjectEvent>) {
    let before = status_of(object);
    let mut after = before.clone();
    let had = conditions_of(&before.conditions);
    let generation = object.meta().generation.unwrap_or_default();
    let conditions = StatusConditions::since(&had, generation, run.now, &OWNED)
        .marked(&hold_conditions::of(object, run.now));
    let conditions = match run.drawn {
        None => conditions.keep(NON_DETERMINISTIC),
        Some([]) => conditions,
        Some(drawn) => {
            let text = format!(
                "the helmfile uses {}: what it gives is kept until its source or its spec changes",
                drawn.join(", ")
            );
            conditions.set(NON_DETERMINISTIC, ConditionStatus::True, DRAWS, &text)
        }
    };
    let conditions = match without_effect(object) {
        None => conditions,
        Some(text) => conditions.set(WITHOUT_EFFECT, ConditionStatus::True, NOT_USED, &text),
    };
    let rows = run.rows.as_deref().unwrap_or(&before.releases);
    let conditions = match held_deletions(rows) {
        None => conditions,
        Some(text) => conditions.set(DELETION_HELD, ConditionStatus::True, BUDGET_EXCEEDED, &text),
    };
    after.conditions = listed(conditions.finish(run.outcome));
    // As of a Kustomization, and Parity(flux) of a HelmRelease: a run that waits for dependencies has not attempted the revision.
    // A run that has rows has made a plan, so it waits for one of its releases.
    let is_unattempted = run.rows.is_none()
        && matches!(run.outcome, RunOutcome::Blocked(condition_reason::DEPENDENCY_NOT_READY, ..));
    if let Some(rows) = run.rows {
        after.releases = rows;
    }
    let under_way = matches!(run.outcome, RunOutcome::Running(..));
    if let Some(requested) = run.requested.filter(|_| !under_way) {
        after.set_last_handled_reconcile_at(requested);
    }
    if !run.revision.is_empty() && !is_unattempted {
        after.last_attempted_revision = Some(run.revision.to_owned());
    }
    if run.outcome.is_settled() {
        after.last_applied_revision = Some(run.revision.to_owned()).filter(|it| !it.is_empty());
    }
    if matches!(run.outcome, RunOutcome::Settled(..) | RunOutcome::Stalled(..)) {
        after.set_observed_generation(generation);
    }
    let event = event::<K>(&before, &after, run.outcome, run.announcement, run.revision);
    (before, after, event)
}

/// The operations that wait because of their deletions, with a line for each of the first ones. `None` if no operation waits.
fn held_deletions(rows: &[HelmfileReleaseStatus]) -> Option<String> {
    let said = |row: &HelmfileReleaseStatus| {
        let mut conditions = row.status.conditions.iter();
        let held = conditions.find(|it| it.type_ == DELETION_HELD && it.status == "True")?;
        Some(format!("release {}: {}", ReleaseKey::of(row), held.message))
    };
    let mut held: Vec<String> = rows.iter().filter_map(said).collect();
    let more = held.len().saturating_sub(MAX_NAMED_RELEASES);
    held.truncate(MAX_NAMED_RELEASES);
    if more > 0 {
        held.push(format!(
            "{more} more operations wait; `windlass get plans` shows what they would delete"
        ));
    }
    (!held.is_empty()).then(|| held.join("\n"))
}

/// The event about the Helmfile as a whole, if its result is new. Each release has events of its own.
fn event<K: HelmfileCustomResource>(
    before: &HelmfileStatus,
    after: &HelmfileStatus,
    outcome: &RunOutcome,
    announcement: FailureAnnouncement,
    revision: &str,
) -> Option<ObjectEvent> {
    let was = before.conditions.iter().find(|it| it.type_ == reconcile::READY);
    let is_in_status = was.is_some_and(|it| it.message == outcome.text());
    let is_said = announcement.is_reported(is_in_status, outcome);
    let (severity, is_worth_event) = match outcome {
        RunOutcome::Running(..) => return None,
        RunOutcome::Settled(..) => {
            let is_new = before.last_applied_revision != after.last_applied_revision;
            let is_well_again = was.is_some_and(|it| it.status == "False");
            (EventSeverity::Info, is_new || is_well_again)
        }
        // As for a Kustomization, only the log reports that a source has no artifact yet.
        RunOutcome::Blocked(condition_reason::ARTIFACT_FAILED, ..) => return None,
        RunOutcome::Blocked(..) => (EventSeverity::Info, !is_said),
        RunOutcome::Failed(..) | RunOutcome::Stalled(..) => (EventSeverity::Error, !is_said),
    };
    let metadata = match revision.is_empty() {
        true => BTreeMap::new(),
        false => BTreeMap::from([(
            format!("{}/revision", helmfile_kind_differences::group::<K>()),
            revision.to_owned(),
        )]),
    };
    is_worth_event.then(|| ObjectEvent {
        severity,
        reason: outcome.reason().as_str().to_owned(),
        message: outcome.text().to_owned(),
        metadata,
    })
}

/// The message about fields that have no effect.
fn without_effect<K: HelmfileCustomResource>(object: &K) -> Option<String> {
    let fields = object.without_effect();
    let parts: Vec<String> =
        fields.iter().map(|(field, why)| format!("{field} has no effect: {why}")).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// A text that changes with everything that other objects may depend on: the whole Helmfile, and the state of each release.
pub(super) fn announcement<K: HelmfileCustomResource>(object: &K) -> String {
    let status = object.status();
    let revision = status.and_then(|it| it.last_applied_revision.as_deref());
    let mut text = applier_run::announcement(object, revision);
    for row in status.into_iter().flat_map(|it| &it.releases) {
        let revision = row.revision.unwrap_or_default();
        text.push_str(&format!(" {} {} {revision}", ReleaseKey::of(row), row.state));
    }
    text
}

/// Whether a revision of its source was applied.
pub(super) fn is_at<K: HelmfileCustomResource>(object: &K, revision: &str) -> bool {
    object.status().and_then(|it| it.last_applied_revision.as_deref()) == Some(revision)
}

/// The reason why a release is not as the helmfile says, for objects that depend on it. `None` if the release is ready.
pub(super) fn release_not_ready<K: HelmfileCustomResource>(
    object: &K,
    release: &str,
) -> Option<String> {
    let ready = object.condition("Ready");
    if ready.and_then(|it| it.observed_generation) != object.meta().generation {
        return Some("the latest generation of its Helmfile has not been reconciled".to_owned());
    }
    let rows = object.status().map(|it| it.releases.as_slice()).unwrap_or_default();
    let all = rows.iter().map(|row| (row, [&*row.kube_context, &*row.namespace, &*row.name]));
    let row = match object_dependency::releases(release, all).as_slice() {
        [] => return Some("the helmfile has no such release".to_owned()),
        [(row, _)] => *row,
        several => {
            let names: Vec<String> = several.iter().map(|(_, name)| name.clone()).collect();
            return Some(format!("it may be one of several releases: name {}", named(&names)));
        }
    };
    if row.state == ReleaseState::Ready {
        return None;
    }
    let message = row.message.as_deref().map(shortened).unwrap_or_default();
    Some(format!("it is {}{}{message}", row.state, if message.is_empty() { "" } else { ": " }))
}

/// Whether a row says that an operation may be under way.
pub(super) fn is_under_way(row: &HelmfileReleaseStatus) -> bool {
    matches!(row.state, ReleaseState::Progressing | ReleaseState::Uninstalling)
}

#[cfg(test)]
mod tests {
    use crds::helmfile::Helmfile;
    use serde_json::json;

    use super::*;

    fn helmfile(status: &HelmfileStatus) -> Helmfile {
        serde_json::from_value(json!({
            "apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
            "metadata": {"name": "shop", "namespace": "apps", "generation": 1},
            "spec": {"interval": "10m", "sourceRef": {"kind": "GitRepository", "name": "shop"}},
            "status": status,
        }))
        .unwrap()
    }

    fn run<'r>(revision: &'r str, outcome: &'r RunOutcome) -> HelmfileRunSummary<'r> {
        HelmfileRunSummary {
            outcome,
            announcement: FailureAnnouncement::Made,
            requested: None,
            revision,
            rows: None,
            drawn: None,
            now: Time::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_run_that_waits_for_dependencies_has_not_attempted_the_revision() {
        let attempted = |outcome: &RunOutcome, rows: Option<Vec<HelmfileReleaseStatus>>| {
            let known = HelmfileStatus {
                last_attempted_revision: Some("main@sha1:1".to_owned()),
                ..HelmfileStatus::default()
            };
            let object = helmfile(&known);
            let run = HelmfileRunSummary { rows, ..run("main@sha1:2", outcome) };
            let (_, after, _) = report(&object, run);
            after.last_attempted_revision.unwrap()
        };
        let text = || "Kustomization/apps/base is not ready".to_owned();
        let wake = NextRunTrigger::default;
        let waits = RunOutcome::Blocked(condition_reason::DEPENDENCY_NOT_READY, text(), wake());
        assert_eq!(attempted(&waits, None), "main@sha1:1");
        assert_eq!(attempted(&waits, Some(Vec::new())), "main@sha1:2", "one of its releases waits");
        let failed = RunOutcome::Failed(RELEASE_FAILED, text(), wake());
        assert_eq!(attempted(&failed, None), "main@sha1:2");
    }

    #[test]
    fn a_failure_is_reported_once_and_once_more_after_a_takeover() {
        let text = "release apps/web: it was refused".to_owned();
        let failed = RunOutcome::Failed(RELEASE_FAILED, text, NextRunTrigger::default());
        let (_, after, first) =
            report(&helmfile(&HelmfileStatus::default()), run("main@sha1:1", &failed));
        let severity = first.as_ref().map(|event| event.severity);
        assert_eq!(severity, Some(EventSeverity::Error));
        let object = helmfile(&after);
        let (_, _, again) = report(&object, run("main@sha1:1", &failed));
        assert_eq!(again, None);
        let announcement = FailureAnnouncement::Due;
        let after_takeover = HelmfileRunSummary { announcement, ..run("main@sha1:1", &failed) };
        let (_, _, sent_again) = report(&object, after_takeover);
        assert_eq!(sent_again, first);
    }

    #[test]
    fn the_first_operations_that_wait_for_an_approval_are_named_a_line_each() {
        let row = |at: usize, kind: &str| -> HelmfileReleaseStatus {
            let condition = json!({"type": kind, "status": "True", "reason": "A", "message": format!("plan/{at}"),
                "lastTransitionTime": "2026-11-01T00:00:00Z"});
            let row = json!({"name": format!("r{at}"), "namespace": "n", "state": "Progressing",
                "status": {"conditions": [condition]}});
            serde_json::from_value(row).unwrap()
        };
        assert_eq!(held_deletions(&[row(0, "Ready")]), None);
        let one = held_deletions(&[row(0, "Ready"), row(1, DELETION_HELD)]);
        assert_eq!(one.as_deref(), Some("release n/r1: plan/1"));
        let many: Vec<_> = (0..5).map(|at| row(at, DELETION_HELD)).collect();
        let text = held_deletions(&many).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[3].starts_with("2 more operations wait; "), "{text}");
    }
}
