//! Beginning an operation: what is reported, prepared and stored first.
//!
//! Elsewhere: why it begins ([`crate::decide`]), how it continues ([`crate::operation`]).

use helm::manifests::HookEvent;
use lifecycle::{EventAnswer, Question, Revision as Named, Stand};
use reconcile::{PlanVerdict, RemovalCause, RemovalPermit};

use crate::hold::{self, revision_of};
use crate::journal::{Action, Journal, operation_id};
use crate::operation::{self, RevisionPlacement, Write, started};
use crate::operation_status;
use crate::origin::Origin;
use crate::phase::{Gates, removal_of};
use crate::record::{Record, RevisionStatus as Life};
use crate::revisions::Revision;
use crate::settings::{ReleaseDesiredState, ReleaseSpec};
use crate::snapshot::{DigestError, is_selected};
use crate::status::{RefusedOperation, ReleaseStatus};
use crate::step::ReleaseStep;

use super::ReleasePlanner;

/// What lifecycles answered before an operation, and what it was called then.
struct LifecycleAnswers {
    operation: String,
    answers: Vec<EventAnswer>,
}

impl ReleasePlanner<'_> {
    pub(super) fn begin(
        &self,
        action: Action,
        target: Option<i64>,
        status: &ReleaseStatus,
    ) -> Result<PlanVerdict<ReleaseStep>, DigestError> {
        let last = self.observed.revisions.last();
        if let Some(verdict) = self.unless_known(action) {
            return Ok(verdict);
        }
        match (action, last) {
            (Action::Install | Action::Upgrade, _) => Ok(self.begin_release(action, status)),
            (Action::Rollback, Some(last)) => Ok(self.begin_rollback(last, target, status)),
            (Action::UninstallRemediation | Action::Uninstall, Some(last)) => {
                Ok(self.begin_removal(&last.record, RemovalCause::Remediated, status))
            }
            (Action::Test, Some(last)) => Ok(self.begin_on(action, &last.record, status)),
            (_, None) => Ok(self.verdict_of_status(status, false)),
        }
    }

    /// The first revision, or the next one of a chart.
    fn begin_release(&self, action: Action, status: &ReleaseStatus) -> PlanVerdict<ReleaseStep> {
        let report = operation_status::begun(self.desired, status, action);
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
            None => PlanVerdict::Act(vec![self.tell(report), prepare]),
            Some(outcome) => match &outcome.error {
                Some(error) => self.fail_early(action, &report.status, error),
                None => {
                    let mut journal = self.journal(action, place.version, place.base, None, status);
                    if let Some(LifecycleAnswers { operation, answers }) = answers {
                        (journal.id, journal.answers) = (operation, answers);
                    }
                    let others = place.others;
                    let write =
                        Write { version: place.version, changes: Vec::new(), others, journal };
                    PlanVerdict::Act(vec![ReleaseStep::Open {
                        prune: place.prune,
                        write: Box::new(write),
                    }])
                }
            },
        }
    }

    /// Where the revision of an installation or upgrade stands.
    ///
    /// Differs(flux): Flux does not install over the remains of a release that was uninstalled, unless
    /// `install.replace` is set. This works as `helm upgrade --install` does.
    fn place(&self, action: Action) -> Result<RevisionPlacement, String> {
        let ReleaseSpec { target, install, max_history, .. } = &self.desired.spec;
        let revisions = &self.observed.revisions;
        let is_left = |last: &Revision| last.record.info.status == Life::Uninstalled;
        let replace = install.replace || revisions.last().is_some_and(is_left);
        operation::place(action, &target.name, revisions, replace, *max_history)
    }

    /// The name of an installation or upgrade that would begin, if lifecycles hold it before.
    pub(super) fn held_operation(&self, action: Action, status: &ReleaseStatus) -> Option<String> {
        self.desired.lifecycles.before(action)?;
        let place = self.place(action).ok()?;
        // Failures are counted as they are when it begins.
        Some(hold::held_operation(self.desired, status, action, place.version))
    }

    /// What lifecycles answered before an installation or upgrade; nothing where none holds it.
    ///
    /// # Errors
    /// A lifecycle has to be asked, is awaited, or does not let it begin.
    fn before(
        &self,
        action: Action,
        version: i64,
        status: &ReleaseStatus,
    ) -> Result<Option<LifecycleAnswers>, Box<PlanVerdict<ReleaseStep>>> {
        let ReleaseDesiredState { owner, spec, lifecycles, .. } = self.desired;
        let Some((phase, holds)) = lifecycles.before(action) else { return Ok(None) };
        let operation = hold::held_operation(self.desired, status, action, version);
        let from = self.observed.revisions.current().map(|it| revision_of(&it.record));
        let to = Named {
            revision: version.to_string(),
            chart_name: self.desired.chart_name.clone(),
            chart_version: self.desired.chart_version.clone(),
        };
        let question = Question {
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
                Stand::Pass(answer) => {
                    answers.push(answer);
                    continue;
                }
                Stand::Ask(ask) => PlanVerdict::Act(vec![ReleaseStep::Ask(ask)]),
                Stand::Wait(text, until) => PlanVerdict::Outcome(self.awaiting(text, until)),
                Stand::Fail(answer) => {
                    let error = answer.failure();
                    answers.push(answer);
                    let refused = RefusedOperation { operation, action, from, to, answers, error };
                    let report = operation_status::held_back(self.desired, status, refused);
                    PlanVerdict::Act(vec![self.tell(report)])
                }
            };
            return Err(Box::new(verdict));
        }
        Ok(Some(LifecycleAnswers { operation, answers }))
    }

    fn fail_early(
        &self,
        action: Action,
        status: &ReleaseStatus,
        error: &str,
    ) -> PlanVerdict<ReleaseStep> {
        let report = operation_status::failed_early(self.desired, status, action, error);
        PlanVerdict::Act(vec![self.tell(report)])
    }

    fn begin_rollback(
        &self,
        last: &Revision,
        to: Option<i64>,
        status: &ReleaseStatus,
    ) -> PlanVerdict<ReleaseStep> {
        let action = Action::Rollback;
        let report = operation_status::begun(self.desired, status, action);
        let version = last.record.version.saturating_add(1);
        let mut journal = self.journal(action, version, Some(last.record.version), to, status);
        if !self.desired.requests.is_for(&journal) {
            // It undoes a failure.
            journal.origin.rollback = None;
        }
        let prune = self.observed.revisions.prunable(self.desired.spec.max_history);
        // What is rolled back to has to stay until that is done.
        let prune = prune.into_iter().filter(|version| Some(*version) != to).collect();
        let changes = Vec::new();
        let others = Vec::new();
        let write = Box::new(Write { version, changes, others, journal });
        PlanVerdict::Act(vec![self.tell(report), ReleaseStep::Open { prune, write }])
    }

    /// The removal of a release begins, if nothing holds it.
    pub(super) fn begin_removal(
        &self,
        last: &Record,
        cause: RemovalCause,
        status: &ReleaseStatus,
    ) -> PlanVerdict<ReleaseStep> {
        let gates = Gates { removal: cause, ..self.desired.gates };
        match gates.permit_removal(self.desired.suspended, self.observed.now) {
            Ok(permit) => self.begin_uninstall(permit, last, status),
            Err(held) => self.resting_held(held),
        }
    }

    /// The removal of a release, which was permitted.
    fn begin_uninstall(
        &self,
        permit: RemovalPermit,
        last: &Record,
        status: &ReleaseStatus,
    ) -> PlanVerdict<ReleaseStep> {
        self.begin_on(removal_of(permit.cause()), last, status)
    }

    /// Begins an action on the last revision itself: tests, and removals that were permitted.
    fn begin_on(
        &self,
        action: Action,
        last: &Record,
        status: &ReleaseStatus,
    ) -> PlanVerdict<ReleaseStep> {
        let report = operation_status::begun(self.desired, status, action);
        let mut journal = self.journal(action, last.version, None, None, status);
        if action == Action::Test {
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
        PlanVerdict::Act(vec![self.tell(report), ReleaseStep::Write(Box::new(write))])
    }

    /// What the operation begins with. A request that was handled is not what asks for it.
    fn origin(&self) -> Origin {
        let ReleaseDesiredState { origin, requests, .. } = self.desired;
        let request = origin.request.clone().filter(|_| requests.is_new(&self.observed.status));
        Origin { request, ..origin.clone() }
    }

    fn journal(
        &self,
        action: Action,
        version: i64,
        base: Option<i64>,
        target: Option<i64>,
        status: &ReleaseStatus,
    ) -> Journal {
        let desired = self.desired;
        let now = self.observed.now;
        let failures = match action {
            Action::Test => desired.active(status).map_or(0, |active| active.failures),
            action => status.failures_of(action),
        };
        let id = operation_id(&desired.spec.target.name, version, action, &desired.inputs, now);
        Journal {
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
            ..Journal::begin(id, desired.owner.clone(), action, now)
        }
    }
}
