//! Begins an operation: reports, prepares and stores it.
//!
//! Elsewhere: why the operation begins ([`crate::release_decision`]), how it continues ([`crate::operation`]).

use helm::manifests::HookEvent;
use lifecycle::{
    LifecycleEventAnswer, LifecycleHoldContext, OperationHoldState,
    ReleaseOrSourceRevision as Named,
};
use reconcile::{PlannerDecision, RemovalCause, RemovalPermit};

use crate::gated_release_change::{ReleaseChangeGates, removal_of};
use crate::journal::{OperationJournal, OperationKind, operation_id};
use crate::lifecycle_hold::{self, revision_of};
use crate::operation::{self, NewRevisionPlan, RecordAndJournalWrite, started};
use crate::operation_origin::OperationOrigin;
use crate::operation_status_changes;
use crate::planned_operation::PlannedOperation;
use crate::record::{ReleaseRecord, RevisionStatus as Life};
use crate::release_snapshot::{SnapshotDigestError, is_selected};
use crate::release_spec::{ReleaseDesiredState, ReleaseSpec};
use crate::release_step::ReleaseStep;
use crate::revisions::ReleaseRevision;
use crate::status::{HelmReleaseStatusFields, LifecycleRefusedOperation};

use super::DesiredAndObservedRelease;

/// The answers of lifecycles before an operation, and the name of the operation at that time.
struct LifecycleAnswers {
    operation: String,
    answers: Vec<LifecycleEventAnswer>,
}

impl DesiredAndObservedRelease<'_> {
    pub(super) fn begin(
        &self,
        action: OperationKind,
        target: Option<i64>,
        status: &HelmReleaseStatusFields,
    ) -> Result<PlannerDecision<ReleaseStep>, SnapshotDigestError> {
        let last = self.observed.revisions.last();
        if let Some(verdict) = self.unless_known(action) {
            return Ok(verdict);
        }
        match (action, last) {
            (OperationKind::Install | OperationKind::Upgrade, _) => {
                Ok(self.begin_release(action, status))
            }
            (OperationKind::Rollback, Some(last)) => Ok(self.begin_rollback(last, target, status)),
            (OperationKind::UninstallRemediation | OperationKind::Uninstall, Some(last)) => {
                Ok(self.begin_remediation(&last.record, status))
            }
            (OperationKind::Test, Some(last)) => Ok(self.begin_on(action, &last.record, status)),
            (_, None) => Ok(self.verdict_of_status(status, false)),
        }
    }

    /// Begins an installation or an upgrade.
    fn begin_release(
        &self,
        action: OperationKind,
        status: &HelmReleaseStatusFields,
    ) -> PlannerDecision<ReleaseStep> {
        let report = operation_status_changes::begun(self.desired, status, action);
        let place = match self.place(action) {
            Ok(place) => place,
            Err(error) => return self.fail_early(action, &report.status, &error),
        };
        let answers = match self.before(action, place.version, &report.status) {
            Ok(answers) => answers,
            Err(verdict) => return *verdict,
        };
        let inputs = self.desired.inputs.clone();
        let prepare = ReleaseStep::Prepare { action, version: place.version, inputs };
        match self.observed.outcome.as_ref().filter(|it| it.step == prepare) {
            None => {
                let steps = PlannerDecision::Act(vec![self.tell(report), prepare]);
                match action {
                    OperationKind::Upgrade => {
                        judged_first(PlannedOperation::Upgrade { version: place.version }, steps)
                    }
                    _ => judged_first(PlannedOperation::Install { version: place.version }, steps),
                }
            }
            Some(outcome) => match &outcome.error {
                Some(error) => self.fail_early(action, &report.status, error),
                None => {
                    let mut journal = self.journal(action, place.version, place.base, None, status);
                    if let Some(LifecycleAnswers { operation, answers }) = answers {
                        (journal.id, journal.answers) = (operation, answers);
                    }
                    journal.deletions = outcome.deletions;
                    let others = place.others;
                    let write = RecordAndJournalWrite {
                        version: place.version,
                        changes: Vec::new(),
                        others,
                        journal,
                    };
                    let prune = self.desired.without_last_good(place.prune, status);
                    PlannerDecision::Act(vec![ReleaseStep::Open { prune, write: Box::new(write) }])
                }
            },
        }
    }

    /// The place of an installation's or upgrade's revision among the existing revisions.
    ///
    /// Differs(flux): Flux does not install over the remains of a release that was uninstalled, unless `install.replace` is
    /// set. This works as `helm upgrade --install` does.
    fn place(&self, action: OperationKind) -> Result<NewRevisionPlan, String> {
        let ReleaseSpec { target, install, max_history, .. } = &self.desired.spec;
        let revisions = &self.observed.revisions;
        let is_left = |last: &ReleaseRevision| last.record.info.status == Life::Uninstalled;
        let replace = install.replace || revisions.last().is_some_and(is_left);
        operation::place(action, &target.name, revisions, replace, *max_history)
    }

    /// The name of an installation or upgrade that would begin, if lifecycles hold it before its beginning. `None` if
    /// no lifecycle holds it, or if it cannot begin.
    pub(super) fn held_operation(
        &self,
        action: OperationKind,
        status: &HelmReleaseStatusFields,
    ) -> Option<String> {
        self.desired.lifecycles.before(action)?;
        let place = self.place(action).ok()?;
        // Failures are counted as they are when it begins.
        Some(lifecycle_hold::held_operation(self.desired, status, action, place.version))
    }

    /// The answers of lifecycles to an installation or upgrade that may begin; `None` if no lifecycle holds it.
    ///
    /// # Errors
    /// A lifecycle must be asked, has not answered yet, or does not allow the operation.
    fn before(
        &self,
        action: OperationKind,
        version: i64,
        status: &HelmReleaseStatusFields,
    ) -> Result<Option<LifecycleAnswers>, Box<PlannerDecision<ReleaseStep>>> {
        let ReleaseDesiredState { owner, spec, lifecycles, .. } = self.desired;
        let Some((phase, holds)) = lifecycles.before(action) else { return Ok(None) };
        let operation = lifecycle_hold::held_operation(self.desired, status, action, version);
        let from = self.observed.revisions.current().map(|it| revision_of(&it.record));
        let to = Named {
            revision: version.to_string(),
            chart_name: self.desired.chart_name.clone(),
            chart_version: self.desired.chart_version.clone(),
        };
        let question = LifecycleHoldContext {
            owner,
            subject: &spec.target.name,
            operation: &operation,
            phase,
            from: from.as_ref(),
            to: Some(&to),
            glass: lifecycles.glass,
            now: self.observed.now,
        };
        let mut answers = Vec::new();
        for hold in holds {
            let verdict = match question.stand(hold, &self.observed.live.events) {
                OperationHoldState::Pass(answer) => {
                    answers.push(answer);
                    continue;
                }
                OperationHoldState::Ask(ask) => PlannerDecision::Act(vec![ReleaseStep::Ask(ask)]),
                OperationHoldState::Wait(text, until) => {
                    PlannerDecision::Outcome(self.awaiting(text, until))
                }
                OperationHoldState::Fail(answer) => {
                    let error = answer.failure();
                    answers.push(answer);
                    let refused =
                        LifecycleRefusedOperation { operation, action, from, to, answers, error };
                    let report = operation_status_changes::held_back(self.desired, status, refused);
                    PlannerDecision::Act(vec![self.tell(report)])
                }
            };
            return Err(Box::new(verdict));
        }
        Ok(Some(LifecycleAnswers { operation, answers }))
    }

    fn fail_early(
        &self,
        action: OperationKind,
        status: &HelmReleaseStatusFields,
        error: &str,
    ) -> PlannerDecision<ReleaseStep> {
        let report = operation_status_changes::failed_early(self.desired, status, action, error);
        PlannerDecision::Act(vec![self.tell(report)])
    }

    fn begin_rollback(
        &self,
        last: &ReleaseRevision,
        to: Option<i64>,
        status: &HelmReleaseStatusFields,
    ) -> PlannerDecision<ReleaseStep> {
        let action = OperationKind::Rollback;
        let report = operation_status_changes::begun(self.desired, status, action);
        let version = last.record.version.saturating_add(1);
        let mut journal = self.journal(action, version, Some(last.record.version), to, status);
        if !self.desired.requests.is_for(&journal) {
            // The uninstallation undoes a failure, and deletes the objects that the failed operation created.
            journal.origin.rollback = None;
        } else if let Some(to) = to {
            let deletion = PlannedOperation::Rollback { from: last.record.version, to };
            let judge = ReleaseStep::JudgeOperation(deletion);
            let judged = self.observed.outcome.as_ref().filter(|it| it.step == judge);
            let Some(outcome) = judged else { return PlannerDecision::Act(vec![judge]) };
            journal.deletions = outcome.deletions;
        }
        let prune = self.observed.revisions.prunable(self.desired.spec.max_history);
        // The target of the rollback must stay until the rollback is done.
        let prune = prune.into_iter().filter(|version| Some(*version) != to).collect();
        let prune = self.desired.without_last_good(prune, status);
        let changes = Vec::new();
        let others = Vec::new();
        let write = Box::new(RecordAndJournalWrite { version, changes, others, journal });
        PlannerDecision::Act(vec![self.tell(report), ReleaseStep::Open { prune, write }])
    }

    /// Begins the removal of a release, unless a gate holds the removal.
    pub(super) fn begin_removal(
        &self,
        last: &ReleaseRecord,
        cause: RemovalCause,
        status: &HelmReleaseStatusFields,
    ) -> PlannerDecision<ReleaseStep> {
        let gates = ReleaseChangeGates { removal: cause, ..self.desired.gates.clone() };
        match gates.permit_removal(self.desired.suspended, self.observed.now) {
            Ok(permit) => {
                let steps = self.begin_uninstall(permit, last, status);
                let is_replaced = !self.desired.deleted;
                let deletion = PlannedOperation::Uninstall { version: last.version, is_replaced };
                match permit.cause() {
                    RemovalCause::Pruned => judged_first(deletion, steps),
                    // A user or an applier deleted the owner, and the applier's own budget counted that. Or a failure is
                    // undone, which `begin_remediation` judges.
                    RemovalCause::OwnerDeleted
                    | RemovalCause::Remediated
                    | RemovalCause::Recreated
                    | RemovalCause::UnderWay => steps,
                }
            }
            Err(held) => self.resting_held(held),
        }
    }

    /// Begins the removal of a release that undoes a failure. If an upgrade failed, this also deletes objects of the earlier
    /// revisions.
    fn begin_remediation(
        &self,
        last: &ReleaseRecord,
        status: &HelmReleaseStatusFields,
    ) -> PlannerDecision<ReleaseStep> {
        let steps = self.begin_removal(last, RemovalCause::Remediated, status);
        match self.desired.active(status).is_some_and(|active| active.is_upgrade) {
            true => judged_first(PlannedOperation::Remediation { version: last.version }, steps),
            false => steps,
        }
    }

    /// The removal of a release, which was permitted.
    fn begin_uninstall(
        &self,
        permit: RemovalPermit,
        last: &ReleaseRecord,
        status: &HelmReleaseStatusFields,
    ) -> PlannerDecision<ReleaseStep> {
        self.begin_on(removal_of(permit.cause()), last, status)
    }

    /// Begins an operation on the last revision itself: a test, or a removal that was permitted.
    fn begin_on(
        &self,
        action: OperationKind,
        last: &ReleaseRecord,
        status: &HelmReleaseStatusFields,
    ) -> PlannerDecision<ReleaseStep> {
        let report = operation_status_changes::begun(self.desired, status, action);
        let mut journal = self.journal(action, last.version, None, None, status);
        if action == OperationKind::Test {
            let filters = &self.desired.spec.test.filters;
            let tests = last.hooks.iter().enumerate().filter(|(_, hook)| {
                hook.is_for(HookEvent::Test) && is_selected(&hook.name, filters)
            });
            journal.plan.selected = Some(tests.map(|(place, _)| place).collect());
        }
        let revisions = self.observed.revisions.all().iter().map(|it| it.record.as_ref());
        let deployed = revisions.filter(|it| it.info.status == Life::Deployed);
        let deployed: Vec<i64> = deployed.map(|it| it.version).collect();
        let write = started(last, journal, &deployed, self.observed.now);
        PlannerDecision::Act(vec![self.tell(report), ReleaseStep::Write(Box::new(write))])
    }

    /// The inputs with which the operation begins. A request that was already handled is not one of its causes.
    fn origin(&self) -> OperationOrigin {
        let ReleaseDesiredState { origin, requests, .. } = self.desired;
        let request = origin.request.clone().filter(|_| requests.is_new(&self.observed.status));
        OperationOrigin { request, ..origin.clone() }
    }

    fn journal(
        &self,
        action: OperationKind,
        version: i64,
        base: Option<i64>,
        target: Option<i64>,
        status: &HelmReleaseStatusFields,
    ) -> OperationJournal {
        let desired = self.desired;
        let now = self.observed.now;
        let failures = match action {
            OperationKind::Test => desired.active(status).map_or(0, |active| active.failures),
            action => status.failures_of(action),
        };
        let id = operation_id(&desired.spec.target.name, version, action, &desired.inputs, now);
        OperationJournal {
            kube_context: desired.kube_context.clone(),
            inputs: desired.inputs.clone(),
            base,
            target,
            plan: desired.plan(action),
            attempt: failures.saturating_add(1),
            failures: status.failures.saturating_add(1),
            force: desired.requests.force.clone().filter(|_| action.is_release()),
            oci_digest: if action.is_release() {
                desired.oci_digest.clone()
            } else {
                String::new()
            },
            origin: self.origin(),
            ..OperationJournal::begin(id, desired.owner.clone(), action, now)
        }
    }
}

/// Steps that come after an operation was found to be allowed.
fn judged_first(
    operation: PlannedOperation,
    steps: PlannerDecision<ReleaseStep>,
) -> PlannerDecision<ReleaseStep> {
    match steps {
        PlannerDecision::Act(steps) => {
            let judge = ReleaseStep::JudgeOperation(operation);
            PlannerDecision::Act(std::iter::once(judge).chain(steps).collect())
        }
        PlannerDecision::Outcome(outcome) => PlannerDecision::Outcome(outcome),
    }
}
