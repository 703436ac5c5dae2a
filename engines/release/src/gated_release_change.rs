//! The phases of a release, at each of which a gate may hold it before the phase begins.
//!
//! Here: the phases, and which of them windows and Freezes hold. Elsewhere: when a phase is reached ([`crate::plan`]), and the
//! windows and Freezes of a HelmRelease (the program).

use std::sync::Arc;

use reconcile::{
    ConditionReason, FreezeHold, RemovalCause, RemovalGate, RemovalPermit, RemovalRefusal, Time,
    condition_reason,
};

use crate::journal::OperationKind;
use crate::release_decision::ReleaseDecision;
use crate::release_spec::{DriftMode, ReleaseDesiredState};
use crate::release_target::ReleaseTargetChange;

/// A change that is about to begin.
///
/// An operation in progress reaches no further phase. It is completed, or continues to a point at which nothing is half done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatedReleaseChange {
    /// The first step of an operation.
    Begin(OperationKind),
    /// The completion of an operation that another client left behind.
    Unlock,
    /// The correction of drift.
    Correct,
    /// The removal of a release because its target changed.
    Replace(ReleaseTargetChange),
}

impl GatedReleaseChange {
    /// The phase that begins with a decision; `None` if the decision changes nothing in the cluster.
    pub fn of(decision: &ReleaseDecision, desired: &ReleaseDesiredState) -> Option<Self> {
        match decision {
            ReleaseDecision::Begin(action, _) => Some(Self::Begin(*action)),
            ReleaseDecision::Unlock(_) => Some(Self::Unlock),
            ReleaseDecision::Drift { .. } => {
                (desired.spec.drift == DriftMode::Enabled).then_some(Self::Correct)
            }
            ReleaseDecision::Nothing
            | ReleaseDecision::Observe
            | ReleaseDecision::Exhausted
            | ReleaseDecision::NoRollbackTarget
            | ReleaseDecision::Quarantined => None,
        }
    }

    /// The held phase in a message: the subject of "… waits until …".
    pub fn subject(self) -> String {
        match self {
            Self::Begin(OperationKind::Test) => "a test".to_owned(),
            Self::Begin(action) if action.is_release() => "the changed spec".to_owned(),
            Self::Begin(action) => format!("the {}", action.as_str()),
            Self::Unlock => "completion of an unfinished operation".to_owned(),
            Self::Correct => "a correction of drift".to_owned(),
            Self::Replace(change) => format!("another {}", change.as_str()),
        }
    }
}

/// The gates that may hold a release at its phases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReleaseChangeGates {
    /// The time at which the windows of the object close.
    pub closes: Option<Time>,
    /// The Freezes that held the object when the run began.
    pub freeze: Option<Arc<FreezeHold>>,
    /// Why the release is removed, if it is.
    pub removal: RemovalCause,
}

/// A hold on a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseChangeHold {
    /// The condition reason of the hold.
    pub reason: ConditionReason,
    /// The subject of the message: [`GatedReleaseChange::subject`]. For a Freeze, the whole message.
    pub subject: String,
    /// The latest time at which the hold is checked again, if it is known.
    pub recheck_at: Option<Time>,
}

impl ReleaseChangeHold {
    fn new(reason: ConditionReason, subject: String) -> Self {
        Self { reason, subject, recheck_at: None }
    }

    fn of_freeze(freeze: &FreezeHold, subject: &str) -> Self {
        let subject = freeze.message(subject);
        Self { reason: freeze.reason, subject, recheck_at: Some(freeze.recheck_at) }
    }
}

impl ReleaseChangeGates {
    /// The hold on a phase that is reached at `now`; `None` if the phase may begin.
    ///
    /// Windows and Freezes do not hold operations that undo a failure. Removals have their own gate,
    /// [`ReleaseChangeGates::permit_removal`]. A rollback requested by a user has its own, too,
    /// [`ReleaseChangeGates::hold_requested_rollback`].
    pub fn hold(&self, phase: GatedReleaseChange, now: Time) -> Option<ReleaseChangeHold> {
        let is_undone = |action: OperationKind| action.is_remediation() || action.is_removal();
        let is_exempt = matches!(phase, GatedReleaseChange::Begin(action) if is_undone(action));
        if is_exempt {
            return None;
        }
        if self.closes.is_some_and(|at| at <= now) {
            return Some(ReleaseChangeHold::new(condition_reason::WINDOW_CLOSED, phase.subject()));
        }
        let is_let =
            |freeze: &FreezeHold| phase == GatedReleaseChange::Correct && freeze.corrects_drift;
        let freeze = self.freeze.as_ref().filter(|freeze| !is_let(freeze))?;
        Some(ReleaseChangeHold::of_freeze(freeze, &phase.subject()))
    }

    /// The hold on a rollback that a user requests for a suspended release. `None` if no Freeze denies it. Windows do
    /// not hold such a rollback.
    pub(crate) fn hold_requested_rollback(&self) -> Option<ReleaseChangeHold> {
        let freeze = self.freeze.as_ref()?;
        Some(ReleaseChangeHold::of_freeze(freeze, "the requested rollback"))
    }

    /// Whether the removal of the release may begin at `now`. Windows and Freezes hold the removal of a pruned release, but not
    /// that of a release whose owner is deleted.
    ///
    /// # Errors
    /// The removal is held.
    pub fn permit_removal(
        &self,
        is_suspended: bool,
        now: Time,
    ) -> Result<RemovalPermit, ReleaseChangeHold> {
        let gate = RemovalGate {
            cause: self.removal,
            is_owner_suspended: is_suspended,
            is_suspended: false,
            closes: self.closes,
            is_frozen: self.freeze.is_some(),
        };
        let subject = GatedReleaseChange::Begin(removal_of(self.removal)).subject();
        gate.permit(now).map_err(|refused| match (refused, &self.freeze) {
            (RemovalRefusal::Suspended, _) => {
                ReleaseChangeHold::new(condition_reason::SUSPENDED, subject)
            }
            (RemovalRefusal::WindowClosed, _) => {
                ReleaseChangeHold::new(condition_reason::WINDOW_CLOSED, subject)
            }
            (RemovalRefusal::Frozen, Some(freeze)) => {
                ReleaseChangeHold::of_freeze(freeze, &subject)
            }
            (RemovalRefusal::Frozen, None) => {
                ReleaseChangeHold::new(condition_reason::FROZEN, subject)
            }
        })
    }
}

/// The action that removes a release for a cause.
pub(crate) fn removal_of(cause: RemovalCause) -> OperationKind {
    match cause {
        RemovalCause::Remediated => OperationKind::UninstallRemediation,
        RemovalCause::OwnerDeleted
        | RemovalCause::Pruned
        | RemovalCause::Recreated
        | RemovalCause::UnderWay => OperationKind::Uninstall,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_windows_hold_every_phase_but_those_that_undo_or_remove() {
        let now = Time::UNIX_EPOCH;
        let closed = ReleaseChangeGates { closes: Some(now), ..ReleaseChangeGates::default() };
        let is_held = |action| closed.hold(GatedReleaseChange::Begin(action), now).is_some();
        let held =
            [OperationKind::Install, OperationKind::Upgrade, OperationKind::Test].map(is_held);
        assert_eq!(held, [true; 3]);
        let exempt = [
            OperationKind::Rollback,
            OperationKind::Uninstall,
            OperationKind::UninstallRemediation,
        ]
        .map(is_held);
        assert_eq!(exempt, [false; 3]);
        let others = [
            GatedReleaseChange::Unlock,
            GatedReleaseChange::Correct,
            GatedReleaseChange::Replace(ReleaseTargetChange::Chart),
        ];
        assert!(others.into_iter().all(|phase| closed.hold(phase, now).is_some()));
    }

    #[test]
    fn windows_hold_the_removal_of_what_was_pruned_and_not_that_of_a_deleted_owner() {
        let now = Time::UNIX_EPOCH;
        let closed = |removal| ReleaseChangeGates {
            closes: Some(now),
            removal,
            ..ReleaseChangeGates::default()
        };
        let held = |gates: ReleaseChangeGates| {
            gates.permit_removal(false, now).map_err(|held| held.subject)
        };
        assert_eq!(held(closed(RemovalCause::Pruned)), Err("the uninstall".to_owned()));
        assert!(held(closed(RemovalCause::OwnerDeleted)).is_ok());
        let open =
            ReleaseChangeGates { removal: RemovalCause::Pruned, ..ReleaseChangeGates::default() };
        assert!(held(open).is_ok());
    }

    fn frozen(corrects_drift: bool, removal: RemovalCause) -> ReleaseChangeGates {
        let text = "Freeze christmas".to_owned();
        let recheck_at = Time::UNIX_EPOCH;
        let hold =
            FreezeHold { reason: condition_reason::FROZEN, text, corrects_drift, recheck_at };
        ReleaseChangeGates {
            freeze: Some(Arc::new(hold)),
            removal,
            ..ReleaseChangeGates::default()
        }
    }

    #[test]
    fn a_freeze_holds_what_begins_and_a_requested_rollback_and_drift_if_it_says_so() {
        let now = Time::UNIX_EPOCH;
        let held = |gates: &ReleaseChangeGates, phase| gates.hold(phase, now).map(|it| it.subject);
        for corrects_drift in [true, false] {
            let gates = frozen(corrects_drift, RemovalCause::Pruned);
            let upgrade = held(&gates, GatedReleaseChange::Begin(OperationKind::Upgrade));
            assert_eq!(upgrade.unwrap(), "the changed spec waits: Freeze christmas");
            assert_eq!(held(&gates, GatedReleaseChange::Correct).is_none(), corrects_drift);
            assert_eq!(held(&gates, GatedReleaseChange::Begin(OperationKind::Rollback)), None);
            let removal = gates.permit_removal(false, now).unwrap_err();
            assert_eq!(removal.reason, condition_reason::FROZEN);
            assert!(gates.hold_requested_rollback().is_some());
        }
        assert!(frozen(true, RemovalCause::OwnerDeleted).permit_removal(false, now).is_ok());
        assert_eq!(ReleaseChangeGates::default().hold_requested_rollback(), None);
    }

    #[test]
    fn windows_hold_from_when_on_they_are_closed() {
        let now = Time::UNIX_EPOCH;
        let later = now.saturating_add(std::time::Duration::from_secs(1)).unwrap();
        let closing = ReleaseChangeGates { closes: Some(later), ..ReleaseChangeGates::default() };
        let phase = GatedReleaseChange::Begin(OperationKind::Upgrade);
        assert_eq!(closing.hold(phase, now), None);
        assert_eq!(closing.hold(phase, later).unwrap().subject, "the changed spec");
        assert_eq!(ReleaseChangeGates::default().hold(phase, later), None);
    }
}
