//! The failure policy of a release, in addition to the remediation in its spec. Inputs that reached the allowed number of
//! failures are quarantined and not released again.
//!
//! Elsewhere: the remediation itself ([`crate::settings`]), the decisions ([`crate::release_decision`]), Quarantines as objects
//! (the program).

use crate::journal::OperationKind;
use crate::release_decision::{ReleaseDecision, ReleaseState};
use crate::release_snapshot::{ReleaseSnapshot, SnapshotAction, latest};
use crate::release_spec::{ReleaseDesiredState, RemediationStrategy};
use crate::revisions::ReleaseRevisions;
use crate::status::HelmReleaseStatusFields;

/// The failure policy of a release, in addition to the remediation in its spec.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailurePolicy {
    /// Whether inputs are quarantined when they reach the allowed number of failures.
    pub quarantines: bool,
    /// Whether the last failure of an upgrade is undone by a rollback, where the spec does not say otherwise.
    pub rolls_back: bool,
    /// The Quarantine of the desired inputs, if one is in force.
    pub quarantine: Option<ReleaseQuarantine>,
}

/// The Quarantine of inputs, in the form that decisions need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseQuarantine {
    /// The message about the Quarantine.
    pub text: String,
    /// Whether the last good release stays in place of these inputs. Its drift is then corrected.
    pub keeps_last_good: bool,
}

impl FailurePolicy {
    /// Whether the record of the last good release is kept, however many revisions follow.
    pub(crate) fn spares_last_good(&self) -> bool {
        self.quarantines || self.quarantine.is_some()
    }

    /// Whether the last good release stays in place of quarantined inputs.
    pub(crate) fn keeps_last_good(&self) -> bool {
        self.quarantine.as_ref().is_some_and(|it| it.keeps_last_good)
    }
}

impl ReleaseDesiredState {
    /// Whether failed tests are ignored: by the setting of the last action, or else by the test settings.
    fn ignores_tests(&self, status: &HelmReleaseStatusFields) -> bool {
        let default = self.spec.test.ignore_failures;
        self.active(status).map_or(default, |active| active.ignores_tests(&self.spec.test))
    }

    /// The newest release in the history that was good; `None` if there is none.
    pub fn last_good<'s>(
        &self,
        status: &'s HelmReleaseStatusFields,
    ) -> Option<&'s ReleaseSnapshot> {
        let ignores = self.ignores_tests(status);
        let good = status.history.iter().filter(|it| it.is_target_of_rollback(ignores));
        good.max_by_key(|it| it.version)
    }

    /// The good release in the cluster that replaces the desired one: a rollback restored it, or nothing has replaced it since.
    /// `None` if the newest release is not of this kind.
    pub fn stays_in_place<'s>(
        &self,
        status: &'s HelmReleaseStatusFields,
    ) -> Option<&'s ReleaseSnapshot> {
        let ignores = self.ignores_tests(status);
        latest(&status.history).filter(|it| {
            let is_back = it.action == Some(SnapshotAction::Rollback);
            it.is_target_of_rollback(ignores) && (is_back || !self.is_made_from(it))
        })
    }

    /// Whether the records show a good release of the desired inputs. If these inputs fail later, the cause is elsewhere.
    pub fn was_good(&self, status: &HelmReleaseStatusFields, revisions: &ReleaseRevisions) -> bool {
        let ignores = self.ignores_tests(status);
        revisions.all().iter().any(|revision| {
            let is_same = revision.journal.as_ref().is_some_and(|journal| {
                self.owns(journal)
                    && journal.inputs == self.inputs
                    && journal.action != OperationKind::Rollback
                    && journal.failure.is_none()
            });
            let known = status.history.iter().find(|it| it.targets(&revision.record));
            is_same && known.is_some_and(|it| it.is_target_of_rollback(ignores))
        })
    }

    /// Whether a release has the desired chart and values.
    fn is_made_from(&self, snapshot: &ReleaseSnapshot) -> bool {
        snapshot.chart_name == self.chart_name
            && snapshot.chart_version == self.chart_version
            && snapshot.config_digest == self.config_digest
    }

    /// The records to prune for a new one. The record of the last good release is left out if a failure may return to it.
    pub(crate) fn without_last_good(
        &self,
        prune: Vec<i64>,
        status: &HelmReleaseStatusFields,
    ) -> Vec<i64> {
        let good = self.last_good(status).filter(|_| self.failures.spares_last_good());
        let good = good.map(|it| it.version);
        prune.into_iter().filter(|version| Some(*version) != good).collect()
    }

    /// Whether the inputs reached the allowed number of failures. This must be known even if the release was removed since,
    /// because an upgrade that is remediated by a removal leaves no failed installation behind.
    pub(crate) fn is_given_up(&self, status: &HelmReleaseStatusFields) -> bool {
        self.failures.quarantines
            && self.active(status).is_some_and(|it| it.retry.is_none() && it.is_exhausted())
    }

    /// Adjusts a decision while a Quarantine of the inputs is in force: these inputs are not released again. Steps that undo
    /// their failure are allowed, including a rollback that the spec alone would not start.
    pub(crate) fn unless_quarantined(
        &self,
        decision: ReleaseDecision,
        state: &ReleaseState,
        rollback: impl FnOnce() -> ReleaseDecision,
    ) -> ReleaseDecision {
        let keeps_last_good = self.failures.keeps_last_good();
        if self.failures.quarantine.is_none() {
            return decision;
        }
        let releases = matches!(
            &decision,
            ReleaseDecision::Begin(
                OperationKind::Install | OperationKind::Upgrade | OperationKind::Test,
                _
            )
        );
        let is_over = matches!(
            &decision,
            ReleaseDecision::Nothing
                | ReleaseDecision::Exhausted
                | ReleaseDecision::NoRollbackTarget
        );
        match decision {
            // The last failure may belong to other inputs, which the quarantined inputs were meant to replace.
            _ if releases && keeps_last_good && matches!(state, ReleaseState::Failed(_)) => {
                match rollback() {
                    rollback @ ReleaseDecision::Begin(OperationKind::Rollback, _) => rollback,
                    _ => ReleaseDecision::Quarantined,
                }
            }
            ReleaseDecision::Drift { .. } | ReleaseDecision::Observe if keeps_last_good => decision,
            ReleaseDecision::Drift { .. } | ReleaseDecision::Observe => {
                ReleaseDecision::Quarantined
            }
            _ if releases || is_over => ReleaseDecision::Quarantined,
            other => other,
        }
    }
}

/// Whether the last failure of an upgrade is undone if the spec does not say.
pub(crate) fn undoes_by_default(
    policy: &FailurePolicy,
    retries: i64,
    strategy: RemediationStrategy,
) -> bool {
    retries > 0 || (policy.rolls_back && strategy == RemediationStrategy::Rollback)
}
