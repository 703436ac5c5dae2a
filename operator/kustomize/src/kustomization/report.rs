//! Turns the outcome of a Kustomization into its status and its events. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use apply::kustomization_apply_planner::AWAITING_TERMINATION;
use apply::{Action, ObjectInventory};
use crds::kustomize::{HistoryEntry, Kustomization, KustomizationStatus};
use crds::{ObjectStatus as _, ReconciledObject as _};
use kube_core::{Resource as _, ResourceExt as _};
use objects::ObjectId;
use quarantine::build_inputs_record::BuildInputsRecord;
use reconcile::{
    ConditionReason, ConditionStatus, DELETION_HELD, RunOutcome, SnapshotHistory, StatusCondition,
    StatusConditions, Time, WARNINGS, WAVE, condition_reason,
};

use release::lifecycle_hold::LIFECYCLE_PENDING;

use super::deletion_counts;
use super::over_budget_prune::DeletionReport;
use windlass_cluster::announced_failures::FailureAnnouncement;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_runtime::approval_plan::BUDGET_EXCEEDED;
use windlass_runtime::approval_plan::change_approval::{PLAN_PENDING, PLAN_REJECTED};
use windlass_runtime::controller_kind::REQUESTED_AT;
use windlass_runtime::object_status::{conditions_of, listed, recorded, status_of, through};
use windlass_runtime::progress_status::is_decided;

/// Prefix of the facts in events.
const GROUP: &str = "kustomize.toolkit.fluxcd.io/";

const HEALTHY: &str = "Healthy";

/// A build left out some names when it was applied.
const LEFT_OUT: ConditionReason = ConditionReason::new("LeftOut");

/// The conditions that this kind sets. Other conditions in the status are kept.
pub(super) const OWNED: [&str; 4] = [HEALTHY, WARNINGS, DELETION_HELD, WAVE];

/// The progress that is written together with the inventory.
#[derive(Debug, Clone, Copy)]
pub(super) enum InventoryWriteProgress<'a> {
    /// Objects of a revision are about to be applied.
    Applying(&'a str),
    /// A few objects of a revision are applied, with the message while their health is awaited. One write reports both.
    Awaiting(&'a str, &'a str),
    /// Objects left the inventory, and this number of them was deleted without approval.
    Deleted(usize),
}

/// The result of a run, with the facts for its report.
pub(super) struct KustomizationReportInputs<'a> {
    /// About a failure that the status has already.
    pub(super) announcement: FailureAnnouncement,
    pub(super) outcome: &'a RunOutcome,
    /// The revision of the run. Empty if the run ended before it knew the revision.
    pub(super) revision: &'a str,
    /// The origin revision that the source names. Empty if the source names none.
    pub(super) origin_revision: &'a str,
    /// Digest of the build, if there was one.
    pub(super) digest: Option<&'a str>,
    /// The facts of a good result, if a later result may be rolled back to it.
    pub(super) facts: Option<&'a BuildInputsRecord>,
    /// The revision of the source, in whose place the last good one is applied.
    pub(super) quarantine: Option<&'a QuarantinedRevision>,
    /// The reason why the revision of the source waits, if its wave of a rollout is not open.
    pub(super) wave: Option<&'a str>,
    pub(super) changes: &'a [(ObjectId, Action)],
    /// The names that a completely applied build left out.
    pub(super) warnings: &'a [String],
    /// The report about held deletions.
    pub(super) deletion: &'a DeletionReport,
    /// Whether health was asked for.
    pub(super) has_health: bool,
    pub(super) began: Time,
    pub(super) now: Time,
    pub(super) interval: Duration,
}

/// A revision of the source that is not applied, because its result failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QuarantinedRevision {
    /// The revision.
    pub(super) revision: String,
    /// The message about it.
    pub(super) text: String,
}

impl KustomizationReportInputs<'_> {
    /// The outcome for users. The objects that replace a quarantined result are as desired, but the Kustomization is not
    /// ready. Only another revision or a user changes that.
    fn shown(&self) -> Cow<'_, RunOutcome> {
        match self.quarantine.filter(|_| self.outcome.is_settled()) {
            Some(of) => {
                Cow::Owned(RunOutcome::Stalled(condition_reason::QUARANTINED, of.text.clone()))
            }
            None => Cow::Borrowed(self.outcome),
        }
    }
}

/// Whether the status reports that the last good result is applied in place of a quarantined one, or that nothing is applied
/// because of one.
pub(super) fn is_quarantined(object: &Kustomization) -> bool {
    object
        .condition(reconcile::READY)
        .is_some_and(|it| it.reason == condition_reason::QUARANTINED.as_str())
}

/// Whether the status reports that a build is live: the newest attempt was at this revision with the current spec, it
/// applied this build successfully, and no other attempt has begun since.
pub(super) fn was_applied(object: &Kustomization, revision: &str, digest: &str) -> bool {
    let Some(status) = object.status.as_ref() else { return false };
    let [attempted, applied] = [&status.last_attempted_revision, &status.last_applied_revision];
    attempted.as_deref() == Some(revision)
        && applied.as_deref() == Some(revision)
        && object.observed_generation() == object.meta().generation
        && is_newest_success(status, digest)
        && !is_under_way(object)
}

/// Whether the newest entry of the history is the success of a build.
fn is_newest_success(status: &KustomizationStatus, digest: &str) -> bool {
    let newest = status.history.first();
    newest.is_some_and(|it| {
        it.digest == digest
            && it.last_reconciled_status == condition_reason::RECONCILIATION_SUCCEEDED.as_str()
    })
}

/// The newest entry of the history about a build that was applied to its end.
fn last_applied(object: &Kustomization) -> Option<&HistoryEntry> {
    let mut history = object.status.iter().flat_map(|status| &status.history);
    history
        .find(|it| it.last_reconciled_status == condition_reason::RECONCILIATION_SUCCEEDED.as_str())
}

/// The digest of the last build that was applied to its end, by the history. `None` if there is none.
pub(super) fn last_applied_build(object: &Kustomization) -> Option<&str> {
    last_applied(object).map(|it| it.digest.as_str())
}

/// Whether the last result that was applied to its end was applied with the present spec: the observed generation moves only
/// then.
pub(super) fn is_spec_applied(object: &Kustomization) -> bool {
    object.observed_generation() == object.meta().generation
}

/// Since when the cluster certainly has nothing newer than the last build that was applied to its end: the beginning of the
/// newest recorded run. Failed runs count, since they may have written a part of another build, except those of `next`, which
/// is applied now. `None` if no build was applied, or if the history cannot be read.
pub(super) fn applied_since(object: &Kustomization, next: &str) -> Option<Time> {
    let applied = last_applied(object)?;
    let history = object.status.iter().flat_map(|status| &status.history);
    let counted = history.filter(|it| {
        it.digest != next || it.last_reconciled_status == applied.last_reconciled_status
    });
    let begun = counted.map(|it| {
        let took = reconcile::parse_duration(it.last_reconciled_duration.as_str()).ok()?;
        it.last_reconciled.0.checked_sub(took).ok()
    });
    let begun: Option<Vec<Time>> = begun.collect();
    begun?.into_iter().max()
}

/// The images of a build that was good before, from the history.
pub(super) fn images_of_build(object: &Kustomization, digest: &str) -> Vec<String> {
    let mut history = object.status.iter().flat_map(|status| &status.history);
    let known = history.find_map(|it| {
        BuildInputsRecord::of_entry(&it.digest, &it.metadata).filter(|_| it.digest == digest)
    });
    known.map(|facts| facts.images).unwrap_or_default()
}

/// Whether a build was once applied to its end, by the history.
pub(super) fn was_good(object: &Kustomization, digest: &str) -> bool {
    let mut history = object.status.iter().flat_map(|status| &status.history);
    history.any(|it| {
        it.digest == digest
            && it.last_reconciled_status == condition_reason::RECONCILIATION_SUCCEEDED.as_str()
    })
}

/// The facts of the last build that was applied to its end, by the history. `None` if the history entry has no facts.
pub(super) fn last_good(object: &Kustomization) -> Option<BuildInputsRecord> {
    last_applied(object).and_then(|it| BuildInputsRecord::of_entry(&it.digest, &it.metadata))
}

/// Whether the status reports that a revision waits for the approval of its Plan, or that a user rejected the Plan.
pub(super) fn waits_for_plan(object: &Kustomization) -> bool {
    let ready = object.condition(reconcile::READY);
    ready
        .is_some_and(|it| [PLAN_PENDING, PLAN_REJECTED].iter().any(|why| it.reason == why.as_str()))
}

/// Whether the status reports an attempt without an end. An attempt that was suspended has no end.
fn is_under_way(object: &Kustomization) -> bool {
    let is_unknown = |kind| {
        object.condition(kind).is_some_and(|it| it.status == ConditionStatus::Unknown.as_str())
    };
    let is_suspended = object
        .condition(reconcile::READY)
        .is_some_and(|it| it.status != "True" && it.reason == condition_reason::SUSPENDED.as_str());
    is_unknown(reconcile::READY) || is_unknown(HEALTHY) || is_suspended
}

/// The status to write and the events to announce.
pub(super) struct KustomizationReport {
    pub(super) before: KustomizationStatus,
    pub(super) after: KustomizationStatus,
    pub(super) events: Vec<ObjectEvent>,
}

/// A wait that the status records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordedHealthWait {
    /// The reason of the wait, from the plan.
    reason: String,
    /// The revision that was attempted.
    revision: String,
    /// When the wait began, which is the transition to Healthy=Unknown.
    since: Time,
}

impl RecordedHealthWait {
    /// The time when the wait with this reason and revision began. A wait for the end of deleted objects belongs to no
    /// revision.
    pub(super) fn since(&self, why: ConditionReason, revision: &str) -> Option<Time> {
        let is_of_revision = why == AWAITING_TERMINATION || self.revision == revision;
        (is_of_revision && self.reason == why.as_str()).then_some(self.since)
    }
}

/// The wait that the status records. A wait of another generation does not count, because its deadline must not be
/// inherited.
pub(super) fn waiting(object: &Kustomization) -> Option<RecordedHealthWait> {
    let conditions = conditions_of(object.conditions());
    let generation = object.meta().generation.unwrap_or_default();
    let healthy = StatusCondition::find(&conditions, HEALTHY)
        .filter(|c| c.status == ConditionStatus::Unknown && c.observed_generation == generation)?;
    let attempted = object.status.as_ref().and_then(|it| it.last_attempted_revision.clone());
    Some(RecordedHealthWait {
        reason: healthy.reason.clone(),
        revision: attempted.unwrap_or_default(),
        since: healthy.last_transition_time,
    })
}

/// The message about a phase. Parity(flux).
pub(super) fn phase(phase: &str, revision: &str, timeout: Duration) -> String {
    let timeout = reconcile::format_duration(timeout);
    format!("{phase} for revision {revision} with a timeout of {timeout}")
}

/// Whether `Ready` does not report this revision yet: the status neither has a result of the revision, nor waits for its
/// health.
pub(super) fn is_new(object: &Kustomization, revision: &str) -> bool {
    let attempted = object.status.as_ref().and_then(|s| s.last_attempted_revision.as_deref());
    let awaits = || {
        object.condition(HEALTHY).is_some_and(|healthy| {
            healthy.status == "Unknown" && healthy.observed_generation == object.meta().generation
        })
    };
    let is_known = || is_decided(object) || awaits() || waits_for_plan(object);
    let is_same = || attempted == Some(revision) && is_known();
    // A deleted Kustomization has no revision, and there is nothing new about it.
    !revision.is_empty() && !is_same()
}

/// The status in the middle of a run, with the inventory and the running work.
pub(super) fn progress(
    object: &Kustomization,
    inventory: &ObjectInventory,
    progress: InventoryWriteProgress<'_>,
    now: Time,
) -> (KustomizationStatus, KustomizationStatus) {
    let before = status_of(object);
    let mut after = before.clone();
    after.inventory = Some(recorded(inventory));
    let had = conditions_of(&before.conditions);
    let generation = object.meta().generation.unwrap_or_default();
    let conditions = StatusConditions::since(&had, generation, now, &OWNED);
    let conditions = conditions.keep(WARNINGS).keep(DELETION_HELD);
    // A Kustomization that is pinned to its revision has applied that revision, and still waits for its wave.
    let is_applied = match progress {
        InventoryWriteProgress::Applying(of) | InventoryWriteProgress::Awaiting(of, _) => {
            before.last_applied_revision.as_deref() == Some(of)
        }
        InventoryWriteProgress::Deleted(_) => false,
    };
    let conditions = if is_applied { conditions.keep(WAVE) } else { conditions };
    let (revision, conditions) = match progress {
        InventoryWriteProgress::Applying(revision) => {
            let text = format!("Applying manifests of revision {revision}");
            (
                revision,
                conditions.keep(HEALTHY).finish_progress(condition_reason::PROGRESSING, &text),
            )
        }
        InventoryWriteProgress::Awaiting(revision, text) => {
            let conditions = conditions.begin(
                HEALTHY,
                ConditionStatus::Unknown,
                condition_reason::PROGRESSING,
                text,
            );
            (revision, conditions.finish_progress(condition_reason::PROGRESSING, text))
        }
        InventoryWriteProgress::Deleted(count) => {
            if count > 0 {
                deletion_counts::count(&mut after.history, now, count);
            }
            return (before, after);
        }
    };
    after.conditions = listed(conditions);
    after.last_attempted_revision = Some(revision.to_owned());
    (before, after)
}

/// Derives status and events from the outcome of a run.
pub(super) fn report(
    object: &Kustomization,
    run: &KustomizationReportInputs<'_>,
) -> KustomizationReport {
    let before = status_of(object);
    let had = conditions_of(&before.conditions);
    let mut after = before.clone();
    after.conditions = listed(conditions(object, &had, run));
    if let Some(requested) = object.annotations().get(REQUESTED_AT) {
        after.set_last_handled_reconcile_at(requested);
    }
    // Parity(flux): a run that waits for dependencies has not attempted the revision.
    let is_unattempted =
        matches!(run.outcome, RunOutcome::Blocked(condition_reason::DEPENDENCY_NOT_READY, ..));
    if !run.revision.is_empty() && !is_unattempted {
        after.last_attempted_revision = Some(run.revision.to_owned());
    }
    if run.outcome.is_settled() {
        after.last_applied_revision = Some(run.revision.to_owned());
        after.last_applied_origin_revision =
            Some(run.origin_revision.to_owned()).filter(|revision| !revision.is_empty());
        // Parity(flux): a Kustomization's observedGeneration moves only when it is ready.
        after.set_observed_generation(object.meta().generation.unwrap_or_default());
    }
    let shown = run.shown();
    let failed_anew = is_failure(&shown) && !was_reported(&had, &shown);
    let recovered =
        shown.is_settled() && !StatusCondition::is(&had, reconcile::READY, ConditionStatus::True);
    // Parity(flux): notifications that set a commit's state need an event for it, also where the commit touches no
    // applied object. Differs(flux): a run that finds a revision already applied sends no event.
    let is_new =
        !run.changes.is_empty() || failed_anew || recovered || is_new_revision(&before, run);
    // The newest entry is live, also if a build changed no object.
    let is_another = |digest: &str| run.outcome.is_settled() && !is_newest_success(&before, digest);
    let is_recorded = |digest: &&str| {
        let is_over = !matches!(run.outcome, RunOutcome::Running(..));
        is_over && (is_new || is_another(digest) || lacks_facts(&before, run))
    };
    // Differs(flux): history is written when something is new, not at every run.
    if let Some(digest) = run.digest.filter(is_recorded) {
        let mut history: SnapshotHistory = through(&before.history).unwrap_or_default();
        let mut metadata = facts("", run.revision, run.origin_revision);
        metadata.extend(run.facts.map(BuildInputsRecord::metadata).unwrap_or_default());
        let took = Duration::try_from(run.now.duration_since(run.began)).unwrap_or_default();
        history.upsert(digest, run.now, took, run.outcome.reason(), metadata);
        after.history = through(&history).unwrap_or_default();
        deletion_counts::carry(&before.history, &mut after.history);
    }
    let events = events(&before, &had, run, is_new);
    KustomizationReport { before, after, events }
}

/// Whether the newest history entry lacks the facts of a good build.
fn lacks_facts(before: &KustomizationStatus, run: &KustomizationReportInputs<'_>) -> bool {
    let Some(facts) = run.facts.filter(|_| run.outcome.is_settled()) else { return false };
    let newest = before.history.first();
    newest.and_then(|it| BuildInputsRecord::of_entry(&it.digest, &it.metadata)).as_ref()
        != Some(facts)
}

/// Whether a revision was brought to its end for the first time.
fn is_new_revision(before: &KustomizationStatus, run: &KustomizationReportInputs<'_>) -> bool {
    run.outcome.is_settled() && before.last_applied_revision.as_deref() != Some(run.revision)
}

/// The metadata about a revision. Unknown values are left out.
fn facts(prefix: &str, revision: &str, origin_revision: &str) -> BTreeMap<String, String> {
    let all = [("revision", revision), ("originRevision", origin_revision)];
    let known = all.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(key, value)| (format!("{prefix}{key}"), value.to_owned())).collect()
}

fn is_failure(outcome: &RunOutcome) -> bool {
    matches!(outcome, RunOutcome::Failed(..) | RunOutcome::Stalled(..))
}

fn was_reported(had: &[StatusCondition], outcome: &RunOutcome) -> bool {
    StatusCondition::find(had, reconcile::READY)
        .is_some_and(|c| c.reason == outcome.reason().as_str() && c.message == outcome.text())
}

fn conditions(
    object: &Kustomization,
    had: &[StatusCondition],
    run: &KustomizationReportInputs<'_>,
) -> Vec<StatusCondition> {
    let generation = object.meta().generation.unwrap_or_default();
    let conditions = StatusConditions::since(had, generation, run.now, &OWNED)
        .marked(&windlass_runtime::hold_conditions::of(object, run.now));
    let conditions = match run.outcome {
        RunOutcome::Settled(..) if run.warnings.is_empty() => conditions,
        RunOutcome::Settled(..) => {
            conditions.set(WARNINGS, ConditionStatus::True, LEFT_OUT, &run.warnings.join("\n"))
        }
        // The objects that were applied before are unchanged.
        RunOutcome::Running(..)
        | RunOutcome::Blocked(..)
        | RunOutcome::Failed(..)
        | RunOutcome::Stalled(..) => conditions.keep(WARNINGS),
    };
    let conditions = match run.deletion {
        DeletionReport::AsBefore => conditions.keep(DELETION_HELD),
        DeletionReport::Free => conditions,
        DeletionReport::Held { text, .. } => {
            conditions.set(DELETION_HELD, ConditionStatus::True, BUDGET_EXCEEDED, text)
        }
    };
    let conditions = match run.wave {
        Some(text) => {
            conditions.set(WAVE, ConditionStatus::True, condition_reason::WAITING_FOR_WAVE, text)
        }
        None => conditions,
    };
    let is_healthy = StatusCondition::is(had, HEALTHY, ConditionStatus::True);
    let conditions = match run.outcome {
        RunOutcome::Settled(..) if !run.has_health => conditions,
        // A run that changed nothing reports nothing new about health.
        RunOutcome::Settled(..) if is_healthy && run.changes.is_empty() => conditions.keep(HEALTHY),
        RunOutcome::Settled(..) => conditions.set(
            HEALTHY,
            ConditionStatus::True,
            condition_reason::SUCCEEDED,
            &health_passed(had, run),
        ),
        RunOutcome::Running(LIFECYCLE_PENDING | PLAN_PENDING, ..) => conditions.keep(HEALTHY),
        RunOutcome::Running(why, text, _) => {
            conditions.begin(HEALTHY, ConditionStatus::Unknown, *why, text)
        }
        RunOutcome::Failed(why, text, _) if *why == condition_reason::HEALTH_CHECK_FAILED => {
            conditions.set(HEALTHY, ConditionStatus::False, *why, text)
        }
        RunOutcome::Blocked(..) | RunOutcome::Failed(..) | RunOutcome::Stalled(..) => {
            conditions.keep(HEALTHY)
        }
    };
    conditions.finish(&run.shown())
}

/// What is said once all are healthy. Parity(flux).
fn health_passed(had: &[StatusCondition], run: &KustomizationReportInputs<'_>) -> String {
    let since = StatusCondition::find(had, HEALTHY)
        .filter(|c| c.status == ConditionStatus::Unknown)
        .map_or(run.began, |c| c.last_transition_time);
    format!("Health check passed in {}", took(since, run.now))
}

/// A duration as text, to the millisecond.
fn took(since: Time, now: Time) -> String {
    let took = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let took = Duration::from_millis(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    reconcile::format_duration(took)
}

/// The lines `Kind/namespace/name action`, as in Flux's events.
fn lines(changes: &[(ObjectId, Action)]) -> String {
    let lines: Vec<String> =
        changes.iter().map(|(id, action)| format!("{} {action}", id.subject())).collect();
    lines.join("\n")
}

/// The lines for the changes with some actions, for one event. Empty if there are no such changes.
fn change_lines(
    changes: &[(ObjectId, Action)],
    is_listed: impl Fn(Action) -> bool,
) -> Option<String> {
    let selected: Vec<_> =
        changes.iter().filter(|(_, action)| is_listed(*action)).cloned().collect();
    (!selected.is_empty()).then(|| lines(&selected))
}

/// The facts about the last applied result of a deleted Kustomization.
fn facts_of_last(object: &Kustomization) -> BTreeMap<String, String> {
    let status = object.status.as_ref();
    let revision = status.and_then(|it| it.last_applied_revision.as_deref());
    let origin = status.and_then(|it| it.last_applied_origin_revision.as_deref());
    facts(GROUP, revision.unwrap_or_default(), origin.unwrap_or_default())
}

/// The events for a deleted Kustomization whose objects are deleted.
pub(super) fn finalized(
    object: &Kustomization,
    changes: &[(ObjectId, Action)],
) -> Vec<ObjectEvent> {
    if changes.is_empty() {
        return Vec::new();
    }
    let reason = condition_reason::RECONCILIATION_SUCCEEDED.to_string();
    let message = lines(changes);
    let metadata = facts_of_last(object);
    vec![ObjectEvent { severity: EventSeverity::Info, reason, message, metadata }]
}

/// The most objects that a text about pending deletions names.
const MAX_TERMINATING_NAMED: usize = 20;

/// The state of objects whose deletion the API server accepted and whose end was not observed, with their finalizers. `None`
/// if there are no such objects. `waited` is how long the run waited for them.
pub(super) fn terminating(
    objects: &BTreeMap<ObjectId, Vec<String>>,
    waited: Option<Duration>,
) -> Option<String> {
    if objects.is_empty() {
        return None;
    }
    let named = objects.iter().take(MAX_TERMINATING_NAMED);
    let mut names: Vec<String> = named
        .map(|(id, finalizers)| match finalizers.is_empty() {
            true => id.subject(),
            false => format!("{} (finalizers {})", id.subject(), finalizers.join(", ")),
        })
        .collect();
    if objects.len() > names.len() {
        names.push(format!("{} more", objects.len() - names.len()));
    }
    let names = names.join(", ");
    Some(match waited {
        Some(waited) => {
            format!("still terminating after {}: {names}", reconcile::format_duration(waited))
        }
        None => format!("deletion requested, its end was not awaited: {names}"),
    })
}

/// The event for a deleted Kustomization that no longer waits for its objects.
pub(super) fn gave_up_waiting(object: &Kustomization, terminating: &str) -> ObjectEvent {
    ObjectEvent {
        severity: EventSeverity::Error,
        reason: condition_reason::PRUNE_FAILED.to_string(),
        message: format!(
            "{terminating}; spec.timeout is over, so the Kustomization goes before them; remove what holds their finalizers"
        ),
        metadata: facts_of_last(object),
    }
}

/// The event for a deleted Kustomization whose objects cannot be deleted, because `subject` is gone.
pub(super) fn left_behind(object: &Kustomization, subject: &str) -> ObjectEvent {
    let inventory = object.status.as_ref().and_then(|s| s.inventory.as_ref());
    let ids = inventory.iter().flat_map(|i| &i.entries).map(|entry| entry.id.as_str());
    let ids: Vec<&str> = ids.collect();
    ObjectEvent {
        severity: EventSeverity::Error,
        reason: condition_reason::PRUNE_FAILED.to_string(),
        message: format!(
            "unable to prune objects: {subject} not found; objects left in the cluster:\n{}",
            ids.join("\n")
        ),
        metadata: facts_of_last(object),
    }
}

/// Parity(flux): applying, pruning and health are events of their own, before that of the run's end.
fn events(
    before: &KustomizationStatus,
    had: &[StatusCondition],
    run: &KustomizationReportInputs<'_>,
    is_new: bool,
) -> Vec<ObjectEvent> {
    let metadata = facts(GROUP, run.revision, run.origin_revision);
    let info = |reason: &str, message: String| ObjectEvent {
        severity: EventSeverity::Info,
        reason: reason.to_owned(),
        message,
        metadata: metadata.clone(),
    };
    let progressing = condition_reason::PROGRESSING.as_str();
    let applied = change_lines(run.changes, |action| action != Action::Deleted);
    let was_healthy = StatusCondition::is(had, HEALTHY, ConditionStatus::True);
    let is_passed = run.has_health
        && run.outcome.is_settled()
        && (!was_healthy || applied.is_some() && is_new_revision(before, run));
    let pruned = change_lines(run.changes, |action| action == Action::Deleted);
    let passed = is_passed.then(|| health_passed(had, run));
    let mut events: Vec<ObjectEvent> =
        [applied, pruned, passed].into_iter().flatten().map(|it| info(progressing, it)).collect();
    if let DeletionReport::Held { text, is_new: true } = run.deletion {
        // A user has to act, although nothing failed.
        events.push(ObjectEvent {
            severity: EventSeverity::Error,
            ..info(DELETION_HELD, text.clone())
        });
    }
    let shown = run.shown();
    let is_reported = run.announcement.is_reported(was_reported(had, &shown), &shown);
    match &*shown {
        RunOutcome::Settled(..) if !is_new => {}
        RunOutcome::Settled(why, _) => {
            let next = reconcile::format_duration(run.interval);
            let took = took(run.began, run.now);
            let text = format!("Reconciliation finished in {took}, next run in {next}");
            let mut done = info(why.as_str(), text);
            done.metadata.insert(format!("{GROUP}commit_status"), "update".to_owned());
            events.push(done);
        }
        // A user has to act. The text names the Plan, so each Plan has one event.
        RunOutcome::Running(why @ PLAN_PENDING, text, _) if !is_reported => {
            events.push(info(why.as_str(), text.clone()));
        }
        RunOutcome::Running(..) => {}
        RunOutcome::Blocked(..) | RunOutcome::Failed(..) | RunOutcome::Stalled(..)
            if is_reported => {}
        // Parity(flux): users mostly create an object together with its source, so this is logged only.
        RunOutcome::Blocked(condition_reason::ARTIFACT_FAILED, ..) => {}
        RunOutcome::Blocked(why, text, _) => events.push(info(why.as_str(), text.clone())),
        RunOutcome::Failed(why, text, _) | RunOutcome::Stalled(why, text) => {
            let mut failure = info(why.as_str(), text.clone());
            failure.severity = EventSeverity::Error;
            // The commit status is set for the failed commit, and not for the one that is applied in its place.
            if let Some(of) = run.quarantine.filter(|_| run.outcome.is_settled()) {
                failure.metadata = facts(GROUP, &of.revision, "");
            }
            events.push(failure);
        }
    }
    events
}

impl KustomizationReport {
    /// Log lines, when something happened.
    pub(super) fn log(&self, object: &Kustomization, run: &KustomizationReportInputs<'_>) {
        let name = object.name_any();
        let namespace = object.namespace().unwrap_or_default();
        for (id, action) in run.changes {
            let object = id.subject();
            let action = action.to_string();
            tracing::info!(
                controller_kind = "Kustomization",
                name,
                namespace,
                object,
                action,
                // `flux logs` shows no other field than the message.
                "{object} {action}"
            );
        }
        let revision = run.revision;
        let shown = run.shown();
        let text = shown.text();
        match &*shown {
            RunOutcome::Failed(..) | RunOutcome::Stalled(..) => {
                tracing::error!(
                    controller_kind = "Kustomization",
                    name,
                    namespace,
                    revision,
                    error = text,
                    "failed"
                );
            }
            RunOutcome::Settled(..) | RunOutcome::Running(..) | RunOutcome::Blocked(..)
                if self.before != self.after =>
            {
                tracing::info!(
                    controller_kind = "Kustomization",
                    name,
                    namespace,
                    revision,
                    "{text}"
                );
            }
            RunOutcome::Settled(..) | RunOutcome::Running(..) | RunOutcome::Blocked(..) => {
                tracing::debug!(
                    controller_kind = "Kustomization",
                    name,
                    namespace,
                    revision,
                    "{text}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
