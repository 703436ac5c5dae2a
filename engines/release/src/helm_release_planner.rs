//! Decides the next step of a run of a HelmRelease, or the outcome of the run.
//!
//! Here: combining the desired state with the state of the run, one step at a time. Below: beginning an operation
//! (`helm_release_planner/operation_start.rs`).
//! Elsewhere: the state of a release and the next operation ([`crate::release_decision`]), an operation under way
//! ([`crate::operation`]), the status ([`crate::operation_status_changes`]).

mod operation_start;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use lifecycle::{DismissedLifecycleEvent, dismissed};
use reconcile::{
    ConditionStatus as Truth, NextRunTrigger, PlannerDecision, ReconcilePlanner, ReleaseRollback,
    ReleaseRollbackProgress, RemovalCause, RunOutcome, Time, condition_reason,
};

use crate::gated_release_change::{GatedReleaseChange, ReleaseChangeHold};
use crate::journal::{OperationJournal, OperationKind};
use crate::lifecycle_hold::{LIFECYCLE_PENDING, LIFECYCLES_UNKNOWN};
use crate::operation::{
    self, ObservedLiveObjects, OperationNextStep, OperationTask, RecordAndJournalWrite,
    RemainingReleaseRemoval, StepOutcome,
};
use crate::operation_status_changes;
use crate::record::{ReleaseRecord, RevisionStatus as Life};
use crate::release_decision::{
    ReleaseDecision, ReleaseDrift, ReleaseState, ReleaseStateError, decide, state,
};
use crate::release_snapshot::{ReleaseSnapshot, SnapshotDigestError, SnapshotMatch, latest};
use crate::release_spec::{DriftMode, ReleaseDesiredState};
use crate::release_step::ReleaseStep;
use crate::release_target::{ReleaseTargetChange, change};
use crate::revisions::{ReleaseRevision, ReleaseRevisions};
use crate::status::{self, HelmReleaseStatusFields, ReleaseReport};

/// The observed state of a run.
///
/// # Assumes
/// The state is read live, and includes the effects of earlier steps.
#[derive(Debug, Clone)]
pub struct ReleaseObservedState {
    /// The time of the run.
    pub now: Time,
    /// The last written status.
    pub status: HelmReleaseStatusFields,
    /// The revisions of the release that [`released`] names.
    pub revisions: ReleaseRevisions,
    /// The observations that an open operation needs according to [`operation::scope`].
    pub live: ObservedLiveObjects,
    /// The drift of the deployed revision, if [`RequiredObservation::Drift`] requested it.
    pub drift: Option<ReleaseDrift>,
    /// Set while another client repeatedly undoes corrections, so that corrections are paused: the message about it, and the
    /// time of the next run.
    pub contested: Option<(String, Time)>,
    /// The outcome of the last step in this run.
    pub outcome: Option<StepOutcome>,
    /// The progress of this run.
    pub ran: RunProgress,
}

/// The progress of one run. Every run begins with a new one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunProgress {
    /// Operations that ended.
    pub ended: BTreeSet<OperationKind>,
    /// Whether the unfinished operation of another client was ended.
    pub unlocked: bool,
    /// Whether drift was corrected, or tried to be.
    pub corrected: bool,
    /// Whether something failed without a trace in storage.
    pub failed_early: bool,
}

impl RunProgress {
    /// Remembers a step that was done.
    pub fn note(&mut self, step: &ReleaseStep) {
        match step {
            ReleaseStep::Tell(report) => {
                self.failed_early |= report.is_early_failure;
                self.ended.extend(report.ended);
            }
            ReleaseStep::Unlock { .. } => self.unlocked = true,
            ReleaseStep::CorrectDrift { .. } => self.corrected = true,
            _ => {}
        }
    }

    fn has_released(&self) -> bool {
        self.ended.iter().any(|action| action.is_release())
    }

    fn has_remediated(&self) -> bool {
        self.ended.iter().any(|action| action.is_remediation())
    }
}

/// The observations that a plan needs in addition to the revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredObservation {
    /// No observations.
    Nothing,
    /// The observations for the open operation on the last revision.
    Operation(operation::ObservationScope),
    /// The comparison of the cluster with the last revision.
    Drift,
}

/// Namespace of the records and name of the observed release: the release in the status, or else the desired one.
pub fn released(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
) -> (String, String) {
    let target = (desired.spec.target.storage_namespace.clone(), desired.spec.target.name.clone());
    if status.storage_namespace.is_empty() {
        return target;
    }
    let name = latest(&status.history).map_or(target.1, |known| known.name.clone());
    (status.storage_namespace.clone(), name)
}

/// The observations that a run must make before it plans.
pub fn need(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    revisions: &ReleaseRevisions,
) -> RequiredObservation {
    if let Some((revision, journal)) = own(desired, revisions).filter(|(_, it)| it.is_open()) {
        return RequiredObservation::Operation(operation::scope(journal, &revision.record));
    }
    let status = operation_status_changes::attempted(desired, status);
    match state(desired, &status, revisions, None) {
        Ok(ReleaseState::Unobserved) if !desired.deleted => RequiredObservation::Drift,
        _ => RequiredObservation::Nothing,
    }
}

/// Whether an operation of an owner is in progress, or has ended before the status reported it. The cluster is named by
/// [`ReleaseDesiredState::kube_context`].
pub fn is_under_way(
    owner: &str,
    kube_context: &str,
    status: &HelmReleaseStatusFields,
    revisions: &ReleaseRevisions,
) -> bool {
    let last = revisions.last();
    let journal = last.and_then(|it| Some((it, it.journal.as_ref()?)));
    let is_its =
        |journal: &OperationJournal| journal.owner == owner && journal.kube_context == kube_context;
    journal.filter(|(_, journal)| is_its(journal)).is_some_and(|(last, journal)| {
        journal.is_open() || !operation_status_changes::is_reported(status, &last.record, journal)
    })
}

/// The last revision with the journal of an operation of this HelmRelease.
fn own<'r>(
    desired: &ReleaseDesiredState,
    revisions: &'r ReleaseRevisions,
) -> Option<(&'r ReleaseRevision, &'r OperationJournal)> {
    let last = revisions.last()?;
    let journal = last.journal.as_ref().filter(|journal| desired.owns(journal))?;
    Some((last, journal))
}

/// Keeps the Helm release of a HelmRelease in its desired state.
///
/// # Guarantees
/// A hook that was begun is not begun again, even if the program crashes. A failure is counted once. The status reports all
/// events before a new operation begins.
#[derive(Debug, Clone, Copy)]
pub struct HelmReleasePlanner;

impl ReconcilePlanner for HelmReleasePlanner {
    type DesiredState = ReleaseDesiredState;
    type ObservedState = ReleaseObservedState;
    type PlanStep = ReleaseStep;

    fn plan(
        desired: &ReleaseDesiredState,
        observed: &ReleaseObservedState,
    ) -> PlannerDecision<ReleaseStep> {
        let run = DesiredAndObservedRelease { desired, observed };
        run.verdict().unwrap_or_else(|error| {
            let text = format!("Could not determine release state: {error}");
            run.failed(status::STATE_ERROR, text)
        })
    }

    /// Every hook takes some rounds, and a release has fewer hooks than objects, which limits the rounds.
    fn rounds(_: &ReleaseDesiredState) -> usize {
        10_000
    }
}

/// Notes in the journal that the status reports the end of its operation.
fn accounted(record: &ReleaseRecord, journal: &OperationJournal) -> ReleaseStep {
    let journal = OperationJournal { accounted: true, ..journal.clone() };
    let version = record.version;
    let changes = Vec::new();
    let others = Vec::new();
    ReleaseStep::Write(Box::new(RecordAndJournalWrite { version, changes, others, journal }))
}

/// The state of a rollback that a user requests by annotation.
enum RequestedRollbackState {
    /// No rollback is requested, or it was already performed.
    Nothing,
    /// The rollback to this revision may begin.
    To(i64),
    /// The rollback cannot begin, for this reason.
    Refused(ReleaseRollback, String),
}

/// A desired state and a run.
struct DesiredAndObservedRelease<'r> {
    desired: &'r ReleaseDesiredState,
    observed: &'r ReleaseObservedState,
}

impl DesiredAndObservedRelease<'_> {
    fn verdict(&self) -> Result<PlannerDecision<ReleaseStep>, ReleaseStateError> {
        let revisions = &self.observed.revisions;
        let is_readable = revisions.unreadable_last().is_none();
        if let Some((revision, journal)) = own(self.desired, revisions).filter(|_| is_readable) {
            if journal.is_open() {
                if let Some(verdict) = self.dismissal(Some(journal)) {
                    return Ok(verdict);
                }
                return Ok(self.under_way(&revision.record, journal)?);
            }
            if !operation_status_changes::is_reported(
                &self.observed.status,
                &revision.record,
                journal,
            ) {
                return Ok(self.account(&revision.record, journal)?);
            }
        }
        if let Some(broken) = revisions.unreadable_last() {
            // A record that cannot be read must not count as absent, for any plan.
            return Err(ReleaseStateError::unreadable(broken));
        }
        if self.desired.deleted {
            return Ok(self.removal(None));
        }
        let status = &self.observed.status;
        if self.desired.suspended {
            return Ok(match self.asked_rollback()? {
                RequestedRollbackState::Nothing => self.suspended(),
                RequestedRollbackState::To(target) => {
                    match self.desired.gates.hold_requested_rollback() {
                        Some(held) => self.resting_held(held),
                        None => self.begin(OperationKind::Rollback, Some(target), status)?,
                    }
                }
                RequestedRollbackState::Refused(asked, why) => self.refused(asked, &why),
            });
        }
        let changed = change(
            &self.desired.spec.target,
            &self.desired.chart_name,
            &status.storage_namespace,
            &status.history,
        );
        if let Some(verdict) = changed.and_then(|_| self.quarantined(status, false)) {
            // The release that would replace the removed one is quarantined, so nothing is removed.
            return Ok(verdict);
        }
        let in_place = self.desired.spec.upgrade.in_place_chart_name_change;
        if let Some(changed) = changed.filter(|it| *it != ReleaseTargetChange::Chart || !in_place) {
            let held = self.held(GatedReleaseChange::Replace(changed));
            return Ok(held.unwrap_or_else(|| self.removal(Some(changed))));
        }
        let attempted = operation_status_changes::attempted(self.desired, status);
        if attempted != *status {
            // Requests are compared with the status before, so this run must not forget that there were any.
            return self.decided(&attempted);
        }
        self.decided(status)
    }

    /// The verdict for a suspended release: no operation begins.
    fn suspended(&self) -> PlannerDecision<ReleaseStep> {
        let text = "reconciliation is suspended".to_owned();
        let wake = NextRunTrigger::at(self.later(self.desired.interval));
        PlannerDecision::Outcome(RunOutcome::Blocked(condition_reason::SUSPENDED, text, wake))
    }

    /// The revision that a user requests to roll back to. It must be in Helm's storage, with the same digest as in the status
    /// if the status has one. The newest revision must be the one in the request, and no operation may be in progress.
    fn asked_rollback(&self) -> Result<RequestedRollbackState, SnapshotDigestError> {
        let ReleaseObservedState { revisions, status, .. } = self.observed;
        let requests = &self.desired.requests;
        let Some(asked) = requests.rollback.or(requests.unverified_rollback) else {
            return Ok(RequestedRollbackState::Nothing);
        };
        let ReleaseRollback { from, to } = asked;
        let refused = |why: String| Ok(RequestedRollbackState::Refused(asked, why));
        let Some(last) = revisions.last().filter(|last| last.record.version == from) else {
            let progress = asked.progress(status.history.iter().map(ReleaseSnapshot::made));
            if !matches!(
                progress,
                ReleaseRollbackProgress::Requested | ReleaseRollbackProgress::Overtaken
            ) {
                return Ok(RequestedRollbackState::Nothing);
            }
            return refused(match revisions.last() {
                Some(last) => {
                    format!("revision {} is the newest one, and not {from}", last.record.version)
                }
                None => "Helm has no revision of the release".to_owned(),
            });
        };
        let life = &last.record.info.status;
        if !matches!(life, Life::Deployed | Life::Failed) {
            return refused(format!("revision {from} is {life}"));
        }
        let Some(target) = revisions.get(to) else {
            return refused(format!("Helm has no revision {to} of the release"));
        };
        let known = status.history.iter().find(|it| it.version == to);
        if let Some(known) = known
            && known.matches(&target.record)? != SnapshotMatch::Same
        {
            return refused(format!(
                "revision {to} of Helm is not the one that status.history has"
            ));
        }
        match requests.rollback {
            Some(_) => Ok(RequestedRollbackState::To(to)),
            None => refused(format!(
                "status.history does not have revision {to}, as windlass.dev/require-verified demands"
            )),
        }
    }

    /// A rollback that was requested and cannot begin is reported once.
    fn refused(&self, asked: ReleaseRollback, why: &str) -> PlannerDecision<ReleaseStep> {
        match operation_status_changes::rollback_refused(
            self.desired,
            &self.observed.status,
            asked,
            why,
        ) {
            Some(report) => PlannerDecision::Act(vec![self.tell(report)]),
            None => self.suspended(),
        }
    }

    /// Dismisses events of lifecycles that no operation waits for any more, whether an operation is open or not.
    fn dismissal(&self, open: Option<&OperationJournal>) -> Option<PlannerDecision<ReleaseStep>> {
        let operation = open.map(|journal| journal.id.as_str());
        let answers = open.map_or(&[][..], |journal| journal.answers.as_slice());
        self.dismiss(dismissed(&self.observed.live.events, operation, answers))
    }

    fn dismiss(&self, over: Vec<DismissedLifecycleEvent>) -> Option<PlannerDecision<ReleaseStep>> {
        (!over.is_empty()).then(|| PlannerDecision::Act(vec![ReleaseStep::Dismiss(over)]))
    }

    /// The outcome of a run that waits for a lifecycle.
    fn awaiting(&self, text: String, until: Option<Time>) -> RunOutcome {
        let wake = NextRunTrigger::at(until.unwrap_or_else(|| self.later(self.desired.interval)));
        RunOutcome::Running(LIFECYCLE_PENDING, text, wake)
    }

    /// The outcome of a run that must not begin an action, because it is unknown which lifecycles hold it.
    fn unless_known(&self, action: OperationKind) -> Option<PlannerDecision<ReleaseStep>> {
        let why = self.desired.lifecycles.unknown.clone().filter(|_| !action.is_remediation())?;
        let wake = NextRunTrigger::on(self.desired.lifecycles.known_on.clone());
        let wake = wake.and_at(self.later(self.desired.retry));
        Some(PlannerDecision::Outcome(RunOutcome::Blocked(LIFECYCLES_UNKNOWN, why, wake)))
    }

    /// The outcome of a run whose next phase is held by a gate; `None` if no gate holds it.
    fn held(&self, phase: GatedReleaseChange) -> Option<PlannerDecision<ReleaseStep>> {
        let held = self.desired.gates.hold(phase, self.observed.now)?;
        Some(self.resting_held(held))
    }

    fn resting_held(&self, held: ReleaseChangeHold) -> PlannerDecision<ReleaseStep> {
        let wake = NextRunTrigger::at(self.later(self.desired.interval));
        let wake = held.recheck_at.into_iter().fold(wake, NextRunTrigger::and_at);
        PlannerDecision::Outcome(RunOutcome::Blocked(held.reason, held.subject, wake))
    }

    /// Writes the status and its consequences. Even in the middle of a run, it does not report a release as Ready while an
    /// object of it is contested.
    fn tell(&self, report: ReleaseReport) -> ReleaseStep {
        let contested = self.observed.contested.as_ref().map(|(text, _)| text.clone());
        ReleaseStep::Tell(Box::new(ReleaseReport { contested, ..report }))
    }

    fn failed(
        &self,
        why: reconcile::ConditionReason,
        text: String,
    ) -> PlannerDecision<ReleaseStep> {
        let at = self.later(self.desired.retry);
        PlannerDecision::Outcome(RunOutcome::Failed(why, text, NextRunTrigger::at(at)))
    }

    fn later(&self, by: std::time::Duration) -> Time {
        self.observed.now.saturating_add(by).unwrap_or(Time::MAX)
    }

    /// An operation is open.
    fn under_way(
        &self,
        record: &ReleaseRecord,
        journal: &OperationJournal,
    ) -> Result<PlannerDecision<ReleaseStep>, SnapshotDigestError> {
        let ReleaseObservedState { revisions, live, outcome, now, status, .. } = self.observed;
        let is_purge = operation::present(journal, record) == Some(OperationTask::Purge);
        if is_purge && !journal.accounted {
            return self.account(record, journal);
        }
        if let Some(journal) = self.with_new_timeout(journal) {
            let version = record.version;
            let changes = Vec::new();
            let others = Vec::new();
            let write = RecordAndJournalWrite { version, changes, others, journal };
            return Ok(PlannerDecision::Act(vec![ReleaseStep::Write(Box::new(write))]));
        }
        let is_held =
            matches!(operation::present(journal, record), Some(OperationTask::Hold { .. }));
        let is_asked = self.desired.requests.is_for(journal);
        if is_held && self.desired.suspended && !self.desired.deleted && !is_asked {
            return Ok(self.suspended());
        }
        let stop = self.stop(journal);
        let stop = stop.as_deref();
        let next = operation::next(journal, record, revisions, live, outcome.as_ref(), stop, *now);
        Ok(match next {
            OperationNextStep::Do(step) => PlannerDecision::Act(vec![step]),
            OperationNextStep::Wait(_, wake) => {
                let timeout = std::time::Duration::from_millis(journal.plan.timeout_ms);
                let text = operation_status_changes::running_text(journal.action, timeout);
                // A remediation or a test must not hide the outcome of the operation before it.
                let run_outcome = match status.summary(self.desired) {
                    Some(said) if journal.action.is_remediation() => {
                        RunOutcome::Failed(said.reason, said.text, wake)
                    }
                    Some(said) if journal.action == OperationKind::Test => {
                        RunOutcome::Running(said.reason, said.text, wake)
                    }
                    _ => RunOutcome::Running(condition_reason::PROGRESSING, text, wake),
                };
                PlannerDecision::Outcome(run_outcome)
            }
            OperationNextStep::Held(text, until) => PlannerDecision::Outcome(
                match (status.summary(self.desired), self.awaiting(text, until)) {
                    (Some(said), RunOutcome::Running(_, text, wake))
                        if journal.action.is_remediation() =>
                    {
                        RunOutcome::Failed(said.reason, format!("{}; {text}", said.text), wake)
                    }
                    (_, run_outcome) => run_outcome,
                },
            ),
            OperationNextStep::Blind => {
                let text = format!("not observed: {}", record.full_name());
                self.failed(status::RECONCILE_ERROR, text)
            }
        })
    }

    /// The journal of an open operation with the timeout of the present spec, if it has changed. The new timeout applies from
    /// now on.
    fn with_new_timeout(&self, journal: &OperationJournal) -> Option<OperationJournal> {
        let mut journal = journal.clone();
        let timeout_ms = self.desired.plan(journal.action).timeout_ms;
        let is_known = std::mem::replace(&mut journal.plan.timeout_ms, timeout_ms) == timeout_ms;
        journal.since = self.observed.now;
        (!is_known && !self.desired.suspended).then_some(journal)
    }

    /// Why an open operation should end early; `None` if it should not.
    fn stop(&self, journal: &OperationJournal) -> Option<String> {
        let desired = self.desired;
        if journal.action.is_removal() {
            return None;
        }
        if desired.deleted {
            return Some("superseded by the removal of the release".to_owned());
        }
        if desired.requests.is_for(journal) {
            return None;
        }
        if desired.suspended {
            return Some(format!("suspended during the {}", journal.action.as_str()));
        }
        // During a Freeze the operation that supersedes this one could not begin either, so the present one is completed.
        let is_frozen = desired.gates.freeze.is_some();
        (journal.inputs != desired.inputs && !is_frozen)
            .then(|| format!("superseded by {}", desired.inputs))
    }

    /// Reports an ended operation in the status. Then notes in its journal that it is reported, unless the status itself shows
    /// that.
    fn account(
        &self,
        record: &ReleaseRecord,
        journal: &OperationJournal,
    ) -> Result<PlannerDecision<ReleaseStep>, SnapshotDigestError> {
        let ReleaseObservedState { revisions, status, .. } = self.observed;
        let report =
            operation_status_changes::ended(self.desired, status, revisions, record, journal)?;
        let is_seen = operation_status_changes::is_reported(&report.status, record, journal);
        let report_step = self.tell(report);
        Ok(PlannerDecision::Act(match is_seen {
            true => vec![report_step],
            false => vec![report_step, accounted(record, journal)],
        }))
    }

    /// Removes the release that the status knows, because the HelmRelease is deleted or another release replaces it.
    fn removal(&self, changed: Option<ReleaseTargetChange>) -> PlannerDecision<ReleaseStep> {
        if let Some(verdict) = self.dismissal(None) {
            return verdict;
        }
        let ReleaseObservedState { status, revisions, ran, .. } = self.observed;
        let known = latest(&status.history);
        let is_known = !status.storage_namespace.is_empty() && known.is_some();
        let last = revisions.last().filter(|_| is_known);
        if let Some((last, known)) =
            last.zip(known).filter(|(last, known)| self.is_another(last, known))
        {
            return PlannerDecision::Act(vec![self.tell(operation_status_changes::left(
                status,
                &last.record,
                known,
            ))]);
        }
        let name = &self.desired.spec.target.name;
        let keep = self.desired.spec.uninstall.keep_history;
        let left = operation::removal(name, revisions, keep).ok().filter(|_| is_known);
        if let Some(RemainingReleaseRemoval::Purge(versions)) = left {
            return PlannerDecision::Act(vec![ReleaseStep::Purge { versions }]);
        }
        if let (Some(RemainingReleaseRemoval::Run), Some(last)) = (left, revisions.last()) {
            if ran.ended.contains(&OperationKind::Uninstall) {
                // The uninstallation failed in this run.
                let said = status.summary(self.desired);
                let text = said.map_or_else(String::new, |said| said.text);
                return self.failed(status::UNINSTALL_FAILED, text);
            }
            let unknown = self.unless_known(OperationKind::Uninstall);
            // The replacement by another release was checked as a separate phase.
            let cause = changed.map_or(self.desired.gates.removal, |_| RemovalCause::Pruned);
            return unknown.unwrap_or_else(|| self.begin_removal(&last.record, cause, status));
        }
        match changed {
            Some(_) => PlannerDecision::Act(vec![
                self.tell(ReleaseReport::of(operation_status_changes::forgotten(status))),
            ]),
            None => {
                let text = known.map_or_else(
                    || "there is no release to uninstall".to_owned(),
                    |known| format!("Release {} is uninstalled", known.full_name()),
                );
                PlannerDecision::Outcome(RunOutcome::Settled(status::UNINSTALL_SUCCEEDED, text))
            }
        }
    }

    /// Whether the existing release is not the one that the status knows. The kubeconfig may refer to another cluster by now.
    ///
    /// Differs(flux): Flux uninstalls it, also where another owner installed it.
    fn is_another(&self, last: &ReleaseRevision, known: &ReleaseSnapshot) -> bool {
        match &last.journal {
            Some(journal) if self.desired.owns(journal) => false,
            // An adopted release keeps the journal of its previous owner until the first operation on it.
            Some(_) => !known.tells_of(&last.record),
            None => {
                let began = last.record.info.first_deployed.as_ref();
                let began = began.and_then(crate::record::GoTimestamp::whole_second);
                began.zip(known.first_deployed).is_some_and(|(there, here)| there != here)
            }
        }
    }

    /// Decides by the state of the release. No operation is open, and all events are reported.
    fn decided(
        &self,
        status: &HelmReleaseStatusFields,
    ) -> Result<PlannerDecision<ReleaseStep>, ReleaseStateError> {
        let ReleaseObservedState { revisions, drift, .. } = self.observed;
        let desired = self.desired;
        let forced = desired.requests.forces(&self.observed.status);
        if self.observed.ran.has_remediated() {
            return Ok(self.dismissal(None).unwrap_or_else(|| self.after_remediation(status)));
        }
        if let Some(record) = self.half_removed() {
            return Ok(self.begin_removal(record, RemovalCause::Remediated, status));
        }
        let state = state(desired, status, revisions, drift.as_ref())?;
        if let Some(record) = self.adoptable(&state, status, forced)? {
            let report = operation_status_changes::adopted(desired, status, record)?;
            return Ok(PlannerDecision::Act(vec![self.tell(report)]));
        }
        let is_uncounted = self.uncounted(&state);
        let decision = match is_uncounted && desired.failures.quarantine.is_none() {
            true => ReleaseDecision::Begin(OperationKind::Upgrade, None),
            false => decide(&state, desired, status, revisions, forced)?,
        };
        let next = match &decision {
            ReleaseDecision::Begin(action, _) => self.held_operation(*action, status),
            _ => None,
        };
        let over = dismissed(&self.observed.live.events, next.as_deref(), &[]);
        if let Some(verdict) = self.dismiss(over) {
            return Ok(verdict);
        }
        if let Some(held) =
            GatedReleaseChange::of(&decision, desired).and_then(|phase| self.held(phase))
        {
            return Ok(held);
        }
        let is_held = !is_uncounted || self.observed.ran.failed_early;
        if let (true, Some(outcome)) = (is_held, self.later_retry(&state, &decision, status)) {
            return Ok(outcome);
        }
        Ok(match decision {
            ReleaseDecision::Nothing => self.unless_contested(self.verdict_of_status(status, true)),
            ReleaseDecision::Observe => {
                let text = "the cluster was not compared with the release".to_owned();
                self.failed(status::RECONCILE_ERROR, text)
            }
            ReleaseDecision::Exhausted => PlannerDecision::Outcome(self.exhausted(status)),
            ReleaseDecision::NoRollbackTarget => {
                let text = "Failed to perform remediation: missing target release for rollback: \
                            cannot remediate failed release";
                PlannerDecision::Outcome(RunOutcome::Stalled(
                    status::MISSING_ROLLBACK_TARGET,
                    text.to_owned(),
                ))
            }
            ReleaseDecision::Quarantined => {
                let is_in_sync = matches!(state, ReleaseState::InSync);
                self.quarantined(status, is_in_sync)
                    .unwrap_or_else(|| PlannerDecision::Outcome(self.exhausted(status)))
            }
            ReleaseDecision::Unlock(life) => match self.being_removed() {
                Some(outcome) => outcome,
                None => self.unlock(status, &life)?,
            },
            ReleaseDecision::Drift { digest, text } => self.drift(status, digest, &text),
            ReleaseDecision::Begin(action, target) => {
                let mut status = status.clone();
                // Parity(flux): what cannot be relied on is forgotten.
                if matches!(state, ReleaseState::Unmanaged(_)) {
                    // Clearing the history removes the proof that the last operation was reported, so its journal records that
                    // first.
                    if let Some((last, journal)) = own(desired, revisions)
                        && !journal.accounted
                    {
                        return Ok(PlannerDecision::Act(vec![accounted(&last.record, journal)]));
                    }
                    status.history.clear();
                }
                self.begin(action, target, &status)?
            }
        })
    }

    /// The existing release of another client, if it matches the desired state.
    fn adoptable(
        &self,
        state: &ReleaseState,
        status: &HelmReleaseStatusFields,
        forced: bool,
    ) -> Result<Option<&ReleaseRecord>, SnapshotDigestError> {
        let desired = self.desired;
        let last = self.observed.revisions.last().map(|last| last.record.as_ref());
        let is_unknown = matches!(state, ReleaseState::Unmanaged(_)) && status.history.is_empty();
        let is_plain = desired.spec.post_renderers_digest.is_empty()
            && desired.spec.common_metadata_digest.is_empty()
            && desired.failures.quarantine.is_none();
        let Some(record) = last.filter(|_| is_unknown && is_plain && !forced) else {
            return Ok(None);
        };
        if record.info.status != Life::Deployed {
            return Ok(None);
        }
        let found = ReleaseSnapshot::of(record, None, "")?;
        let is_same = found.chart_name == desired.chart_name
            && found.chart_version == desired.chart_version
            && found.config_digest == desired.config_digest
            && found.namespace == desired.spec.target.namespace;
        Ok(is_same.then_some(record))
    }

    /// The record of a release that is only partly removed, because its remediation failed.
    ///
    /// Differs(flux): in Flux only a person can help, since no action knows how to handle such a record.
    fn half_removed(&self) -> Option<&ReleaseRecord> {
        let (revision, journal) = own(self.desired, &self.observed.revisions)?;
        let is_half = revision.record.info.status == Life::Uninstalling;
        (is_half && journal.action.is_removal()).then_some(revision.record.as_ref())
    }

    /// Whether the last revision failed only because it was stopped, so that the failure does not count.
    fn uncounted(&self, state: &ReleaseState) -> bool {
        let journal = own(self.desired, &self.observed.revisions).map(|(_, journal)| journal);
        let failure = journal.and_then(|journal| journal.failure.as_ref());
        matches!(state, ReleaseState::Failed(_)) && failure.is_some_and(|failure| !failure.counts)
    }

    /// Delays the retry of a failed action. The delay is counted from the end of the failure.
    ///
    /// Differs(flux): in Flux a restart of the controller retries at once.
    fn later_retry(
        &self,
        state: &ReleaseState,
        decision: &ReleaseDecision,
        status: &HelmReleaseStatusFields,
    ) -> Option<PlannerDecision<ReleaseStep>> {
        let ReleaseDecision::Begin(action, _) = decision else { return None };
        let ran = &self.observed.ran;
        let retry = self.desired.active(status).and_then(|active| active.retry);
        let said = || status.summary(self.desired).map(|said| (said.reason, said.text));
        let default = || (status::RECONCILE_ERROR, "the release has failed".to_owned());
        let resting = |at| {
            let (why, text) = said().unwrap_or_else(default);
            Some(PlannerDecision::Outcome(RunOutcome::Failed(why, text, NextRunTrigger::at(at))))
        };
        if ran.failed_early {
            return resting(self.later(retry.unwrap_or(self.desired.retry)));
        }
        let journal = own(self.desired, &self.observed.revisions).map(|(_, journal)| journal);
        let is_counted = |it: &&OperationJournal| it.failure.as_ref().is_some_and(|it| it.counts);
        let ended = journal.filter(is_counted).and_then(|it| it.ended);
        if let (ReleaseState::Failed(_), Some(retry), Some(ended)) = (state, retry, ended) {
            let at = ended.saturating_add(retry).unwrap_or(Time::MAX);
            let is_asked =
                self.desired.requests.is_new(&self.observed.status) && ran.ended.is_empty();
            let is_changed = status.failures == 0;
            if at > self.observed.now && !is_asked && !is_changed {
                return resting(at);
            }
        }
        // Parity(flux): an action of one kind is done once in a run.
        let is_forced = self.desired.requests.forces(&self.observed.status);
        let is_repeated = (action.is_release() && ran.has_released() && !is_forced)
            || (*action == OperationKind::Test && ran.ended.contains(action));
        is_repeated.then(|| resting(self.later(self.desired.retry))).flatten()
    }

    fn exhausted(&self, status: &HelmReleaseStatusFields) -> RunOutcome {
        let action = status.last_attempted_action.map_or("", OperationKind::as_str);
        let failures = self.desired.active(status).map_or(0, |active| active.failures);
        let mut text = format!("Failed to {action} after {failures} attempt(s)");
        // Differs(flux): in Flux `Stalled` does not name the cause, which `Ready` keeps; here both have the same text.
        if let Some(said) = status.summary(self.desired).filter(|it| it.status != Truth::True) {
            text = format!("{text}: {}", said.text);
        }
        RunOutcome::Stalled(status::RETRIES_EXCEEDED, text)
    }

    /// The outcome of a run that releases nothing because the desired inputs are quarantined; `None` if they are not. The
    /// release that stays in their place may still be compared with the cluster; `is_in_sync` says that it has no drift.
    fn quarantined(
        &self,
        status: &HelmReleaseStatusFields,
        is_in_sync: bool,
    ) -> Option<PlannerDecision<ReleaseStep>> {
        let text = self.desired.failures.quarantine.as_ref()?.text.clone();
        if is_in_sync && self.desired.spec.drift != DriftMode::Disabled {
            let settled = operation_status_changes::without_drift(self.desired, status);
            if settled.drifted != self.observed.status.drifted {
                return Some(PlannerDecision::Act(vec![self.tell(ReleaseReport::of(settled))]));
            }
        }
        Some(PlannerDecision::Outcome(RunOutcome::Stalled(condition_reason::QUARANTINED, text)))
    }

    /// The verdict after a remediation in this run. The next run continues, unless the allowed attempts are used up.
    fn after_remediation(&self, status: &HelmReleaseStatusFields) -> PlannerDecision<ReleaseStep> {
        if let Some(verdict) = self.quarantined(status, false) {
            return verdict;
        }
        let active = self.desired.active(status);
        let is_over = active.is_some_and(|active| {
            // After an upgrade was remediated by a removal, inputs that will be quarantined are not installed again.
            let goes_on = active.retry.is_some()
                || active.is_upgrade
                    && active.strategy() == crate::release_spec::RemediationStrategy::Uninstall
                    && !self.desired.failures.quarantines;
            active.is_exhausted() && !goes_on
        });
        if is_over {
            return PlannerDecision::Outcome(self.exhausted(status));
        }
        let wait = active.and_then(|active| active.retry).unwrap_or(self.desired.retry);
        let said = status.summary(self.desired).map(|said| (said.reason, said.text));
        let (why, text) =
            said.unwrap_or_else(|| (status::RECONCILE_ERROR, "the release was undone".to_owned()));
        PlannerDecision::Outcome(RunOutcome::Failed(
            why,
            text,
            NextRunTrigger::at(self.later(wait)),
        ))
    }

    /// The outcome of a run while another client may still be uninstalling the release. It waits for the uninstall timeout of
    /// the spec.
    fn being_removed(&self) -> Option<PlannerDecision<ReleaseStep>> {
        let last = self.observed.revisions.last().filter(|last| last.journal.is_none())?;
        let record = last.record.as_ref();
        let began =
            record.info.deleted.as_ref().filter(|_| record.info.status == Life::Uninstalling);
        let began = began.and_then(crate::record::GoTimestamp::whole_second)?;
        let until = began.saturating_add(self.desired.spec.uninstall.timeout).unwrap_or(Time::MAX);
        (began..until).contains(&self.observed.now).then(|| {
            let text = format!(
                "another client began to uninstall release {} at {began}; unless that ends by {until}, it counts as \
                 interrupted, and the release is upgraded",
                record.full_name()
            );
            PlannerDecision::Outcome(RunOutcome::Blocked(status::PENDING_RELEASE, text, NextRunTrigger::at(until)))
        })
    }

    fn unlock(
        &self,
        status: &HelmReleaseStatusFields,
        life: &Life,
    ) -> Result<PlannerDecision<ReleaseStep>, SnapshotDigestError> {
        let Some(last) = self.observed.revisions.last() else {
            return Ok(self.verdict_of_status(status, false));
        };
        let (report, description) =
            operation_status_changes::unlocked(self.desired, status, &last.record, life)?;
        let version = last.record.version;
        // The status is written first. After a crash in between, both steps are repeated and the status becomes true.
        Ok(PlannerDecision::Act(vec![
            self.tell(report),
            ReleaseStep::Unlock { version, description },
        ]))
    }

    fn drift(
        &self,
        status: &HelmReleaseStatusFields,
        digest: String,
        found: &str,
    ) -> PlannerDecision<ReleaseStep> {
        let report = operation_status_changes::drifted(self.desired, status, found);
        let is_reported = report.status == self.observed.status;
        let is_enabled = self.desired.spec.drift == DriftMode::Enabled;
        if is_enabled && self.observed.ran.corrected {
            if let Some(faults) = self.uncorrected() {
                let text = operation_status_changes::correction_failed(status, faults);
                return self.failed(status::DRIFT_CORRECTION_FAILED, text);
            }
            // Another client undoes the correction at once.
            let wake = NextRunTrigger::at(self.later(self.desired.retry));
            let text = "correcting cluster drift".to_owned();
            return PlannerDecision::Outcome(RunOutcome::Running(
                condition_reason::PROGRESSING,
                text,
                wake,
            ));
        }
        if !is_enabled {
            return match is_reported {
                true => self
                    .quarantined(status, false)
                    .unwrap_or_else(|| self.verdict_of_status(status, false)),
                false => PlannerDecision::Act(vec![self.tell(report)]),
            };
        }
        let version = self.observed.revisions.last().map_or(0, |last| last.record.version);
        PlannerDecision::Act(vec![self.tell(report), ReleaseStep::CorrectDrift { version, digest }])
    }

    /// Why not all objects could be corrected in this run.
    ///
    /// Differs(flux): in Flux `Ready` is Unknown with `correcting cluster drift`, however often that fails.
    fn uncorrected(&self) -> Option<&str> {
        let outcome = self.observed.outcome.as_ref()?;
        let is_correction = matches!(outcome.step, ReleaseStep::CorrectDrift { .. });
        outcome.error.as_deref().filter(|_| is_correction)
    }

    /// Changes the verdict for a release with a contested object, because such a release is not in its desired state.
    fn unless_contested(
        &self,
        verdict: PlannerDecision<ReleaseStep>,
    ) -> PlannerDecision<ReleaseStep> {
        match (&self.observed.contested, &verdict) {
            (Some((text, at)), PlannerDecision::Outcome(RunOutcome::Settled(..))) => {
                PlannerDecision::Outcome(RunOutcome::Failed(
                    condition_reason::CONTESTED,
                    text.clone(),
                    NextRunTrigger::at(*at),
                ))
            }
            _ => verdict,
        }
    }

    /// The verdict if no step is left: the status is written, and its conditions give the outcome of the run.
    fn verdict_of_status(
        &self,
        status: &HelmReleaseStatusFields,
        is_in_sync: bool,
    ) -> PlannerDecision<ReleaseStep> {
        let settled = operation_status_changes::settled(self.desired, status, is_in_sync);
        if settled != self.observed.status {
            return PlannerDecision::Act(vec![self.tell(ReleaseReport::of(settled))]);
        }
        let wake = || NextRunTrigger::at(self.later(self.desired.interval));
        PlannerDecision::Outcome(match status.summary(self.desired) {
            Some(said) if said.status == Truth::True => RunOutcome::Settled(said.reason, said.text),
            Some(said) => RunOutcome::Failed(said.reason, said.text, wake()),
            None => RunOutcome::Settled(
                condition_reason::SUCCEEDED,
                "the release is as the HelmRelease says".to_owned(),
            ),
        })
    }
}
