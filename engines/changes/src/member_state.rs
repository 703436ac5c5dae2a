//! How far a member of a change is, by its status.
//!
//! A `Ready` that is about an older revision or generation says nothing. What came to its end does not leave it by being
//! repeated: a member that failed is not under way again until it succeeds.
//! Elsewhere: reading statuses (`operator/changes`).

/// How far a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// It failed.
    Failed,
    /// It went back to what was applied before.
    RolledBack,
    /// It is being applied, or is about to be.
    Progressing,
    /// It waits for a window, an approval or another object.
    Waiting,
    /// It is suspended.
    Skipped,
    /// It succeeded.
    Succeeded,
}

impl MemberState {
    /// All states, in the order in which lines about members are listed.
    pub const ALL: [Self; 6] = [
        Self::Failed,
        Self::RolledBack,
        Self::Progressing,
        Self::Waiting,
        Self::Skipped,
        Self::Succeeded,
    ];

    /// The word that lines about members begin with.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "Failed",
            Self::RolledBack => "RolledBack",
            Self::Progressing => "Progressing",
            Self::Waiting => "Waiting",
            Self::Skipped => "Skipped",
            Self::Succeeded => "Succeeded",
        }
    }

    /// Whether a member came to its end. One that is suspended comes to no other.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        !matches!(self, Self::Progressing | Self::Waiting)
    }

    /// The state after another observation. What succeeded in a change does not fail in it later: something else has changed
    /// then. What failed or went back is not under way again while it is repeated.
    #[must_use]
    pub const fn after(self, observed: Self) -> Self {
        match self {
            Self::Succeeded if !matches!(observed, Self::RolledBack) => Self::Succeeded,
            Self::Failed | Self::RolledBack if !observed.has_ended() => self,
            _ => observed,
        }
    }
}

/// The condition `Ready` of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedReady<'o> {
    /// `True`, `False` or `Unknown`.
    pub status: &'o str,
    /// Why.
    pub reason: &'o str,
    /// The generation of the spec that it is about; `None` if it does not say.
    pub generation: Option<i64>,
}

/// What a Quarantine of the revision of the change does to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineEffect<'o> {
    /// What was applied before is applied again, which is of this revision.
    RollsBack(&'o str),
    /// Nothing is applied.
    Held,
}

/// What is observed of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedMember<'o> {
    /// Whether it is suspended.
    pub is_suspended: bool,
    /// Whether an attempt is under way, by the condition `Reconciling`. One that failed and is repeated later is not.
    pub is_reconciling: bool,
    /// The generation of its spec.
    pub generation: i64,
    /// Its condition `Ready`.
    pub ready: Option<ObservedReady<'o>>,
    /// The revision that it attempted last.
    pub attempted: Option<&'o str>,
    /// The revision that it applied last with success.
    pub applied: Option<&'o str>,
    /// Whether it stays at what it has until its wave of a rollout is open.
    pub waits_for_wave: bool,
    /// The Quarantine in force of the revision.
    pub quarantine: Option<QuarantineEffect<'o>>,
}

/// What a change brings to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberTarget<'t> {
    /// A revision of its source.
    Revision(&'t str),
    /// A spec, by its generation.
    Generation(i64),
}

/// Reasons of `Ready` that say that nothing begins yet, so that nothing failed.
const WAITS: [&str; 14] = [
    "AwaitingDependents",
    "BudgetExceeded",
    "DependencyNotReady",
    "FreezesUnknown",
    "Frozen",
    "LifecyclePending",
    "PlanPending",
    "PlanPoliciesUnknown",
    "QuarantinesUnknown",
    "RolloutsUnknown",
    SUSPENDED,
    "SourceNotVerified",
    "WaitingForWave",
    "WindowClosed",
];

/// The reason of `Ready` of an object that is suspended.
const SUSPENDED: &str = "Suspended";

/// The reason of `Ready` of an object that went back, or stays as it is, because of a Quarantine.
const QUARANTINED: &str = "Quarantined";

/// The reason of `Ready` of an object that cannot go back, because what it had before is lost.
const ARTIFACT_LOST: &str = "ArtifactLost";

/// How far a member is that was this far before. A Quarantine is another beginning: what succeeded or failed goes back.
#[must_use]
pub fn next_state(
    before: Option<MemberState>,
    observed: &ObservedMember<'_>,
    target: MemberTarget<'_>,
) -> MemberState {
    let state = state(observed, target);
    match before.filter(|_| observed.quarantine.is_none()) {
        Some(before) => before.after(state),
        None => state,
    }
}

/// How far a member is.
fn state(observed: &ObservedMember<'_>, target: MemberTarget<'_>) -> MemberState {
    let ready = observed.ready.filter(|it| is_of_newest_spec(observed, it));
    // What is said of a wave is over once the revision is attempted, and a wave holds no spec.
    let is_before_wave = observed.waits_for_wave
        && matches!(target, MemberTarget::Revision(_))
        && !is_at(observed, target);
    let waits =
        is_before_wave || ready.is_some_and(|it| it.status != "True" && WAITS.contains(&it.reason));
    let ended = ready.filter(|_| !observed.is_reconciling && !waits);
    let end = match observed.quarantine {
        Some(QuarantineEffect::Held) => Some(MemberState::Failed),
        Some(QuarantineEffect::RollsBack(to)) => {
            ended.and_then(|it| end_of_way_back(&it, observed.attempted == Some(to)))
        }
        None => match ended.filter(|_| is_at(observed, target)).map(|it| it.status) {
            Some("True") if has_applied(observed, target) => Some(MemberState::Succeeded),
            Some("False") => Some(MemberState::Failed),
            _ => None,
        },
    };
    let under_way = match (observed.is_suspended, waits) {
        (true, _) => MemberState::Skipped,
        (false, true) => MemberState::Waiting,
        (false, false) => MemberState::Progressing,
    };
    end.unwrap_or(under_way)
}

/// How the way back ended; `None` if it has not. `is_back` is whether the revision was attempted that was applied before.
fn end_of_way_back(ready: &ObservedReady<'_>, is_back: bool) -> Option<MemberState> {
    match (ready.reason, ready.status) {
        (QUARANTINED, _) if is_back => Some(MemberState::RolledBack),
        // Nothing is changed.
        (QUARANTINED | ARTIFACT_LOST, _) => Some(MemberState::Failed),
        (_, "False") if is_back => Some(MemberState::Failed),
        _ => None,
    }
}

fn is_of_newest_spec(observed: &ObservedMember<'_>, ready: &ObservedReady<'_>) -> bool {
    ready.generation.is_none_or(|generation| generation >= observed.generation)
}

/// Whether the status is about what the change brings.
fn is_at(observed: &ObservedMember<'_>, target: MemberTarget<'_>) -> bool {
    match target {
        MemberTarget::Revision(revision) => observed.attempted == Some(revision),
        // A condition that does not say which spec it is about may be about the old one.
        MemberTarget::Generation(generation) => {
            observed.ready.and_then(|it| it.generation).is_some_and(|it| it >= generation)
        }
    }
}

fn has_applied(observed: &ObservedMember<'_>, target: MemberTarget<'_>) -> bool {
    match target {
        MemberTarget::Revision(revision) => observed.applied == Some(revision),
        MemberTarget::Generation(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: MemberTarget<'static> = MemberTarget::Revision("main@sha1:2");

    fn ready<'o>(status: &'o str, reason: &'o str) -> ObservedMember<'o> {
        ObservedMember {
            is_suspended: false,
            is_reconciling: false,
            generation: 3,
            ready: Some(ObservedReady { status, reason, generation: Some(3) }),
            attempted: Some("main@sha1:2"),
            applied: Some("main@sha1:2"),
            waits_for_wave: false,
            quarantine: None,
        }
    }

    #[test]
    fn what_stays_at_the_revision_before_until_its_wave_is_open_waits() {
        let good = ready("True", "ReconciliationSucceeded");
        let pinned = ObservedMember {
            attempted: Some("main@sha1:1"),
            applied: Some("main@sha1:1"),
            waits_for_wave: true,
            ..good
        };
        assert_eq!(state(&pinned, NEW), MemberState::Waiting);
        assert_eq!(state(&ready("False", "WaitingForWave"), NEW), MemberState::Waiting);
        let suspended = ObservedMember { is_suspended: true, ..pinned };
        assert_eq!(state(&suspended, NEW), MemberState::Skipped);
        let stale = ObservedMember { waits_for_wave: true, ..good };
        assert_eq!(state(&stale, NEW), MemberState::Succeeded);
    }

    #[test]
    fn a_ready_that_is_about_an_older_revision_or_spec_says_nothing() {
        let good = ready("True", "ReconciliationSucceeded");
        assert_eq!(state(&good, NEW), MemberState::Succeeded);
        let stale = ObservedMember { attempted: Some("main@sha1:1"), applied: None, ..good };
        assert_eq!(state(&stale, NEW), MemberState::Progressing);
        let half = ObservedMember { applied: Some("main@sha1:1"), ..good };
        assert_eq!(state(&half, NEW), MemberState::Progressing);
        let older_spec = ObservedMember { generation: 4, ..good };
        assert_eq!(state(&older_spec, NEW), MemberState::Progressing);
        assert_eq!(state(&older_spec, MemberTarget::Generation(4)), MemberState::Progressing);
        assert_eq!(state(&good, MemberTarget::Generation(3)), MemberState::Succeeded);
        let silent = ObservedReady { generation: None, ..good.ready.unwrap() };
        let silent = ObservedMember { ready: Some(silent), ..good };
        assert_eq!(state(&silent, MemberTarget::Generation(3)), MemberState::Progressing);
        let running = ObservedMember { is_reconciling: true, ..good };
        assert_eq!(state(&running, NEW), MemberState::Progressing);
    }

    #[test]
    fn a_window_is_waiting_a_suspension_is_skipped_and_other_reasons_are_failures() {
        assert_eq!(state(&ready("False", "WindowClosed"), NEW), MemberState::Waiting);
        assert_eq!(state(&ready("False", "HealthCheckFailed"), NEW), MemberState::Failed);
        let failed_before = ObservedMember {
            attempted: Some("main@sha1:1"),
            ..ready("False", "HealthCheckFailed")
        };
        assert_eq!(state(&failed_before, NEW), MemberState::Progressing);
        let suspended = ObservedMember { is_suspended: true, ..ready("False", SUSPENDED) };
        assert_eq!(state(&suspended, NEW), MemberState::Skipped);
        let suspended_before = ObservedMember { is_suspended: true, ..failed_before };
        assert_eq!(state(&suspended_before, NEW), MemberState::Skipped);
        // It came to its end before it was suspended.
        let suspended_after =
            ObservedMember { is_suspended: true, ..ready("True", "ReconciliationSucceeded") };
        assert_eq!(state(&suspended_after, NEW), MemberState::Succeeded);
    }

    #[test]
    fn what_is_quarantined_went_back_only_once_it_is_at_the_revision_before() {
        let back = ObservedMember {
            quarantine: Some(QuarantineEffect::RollsBack("main@sha1:1")),
            attempted: Some("main@sha1:1"),
            ..ready("False", QUARANTINED)
        };
        assert_eq!(state(&back, NEW), MemberState::RolledBack);
        let stays = ObservedMember { attempted: Some("main@sha1:2"), ..back };
        assert_eq!(state(&stays, NEW), MemberState::Failed, "nothing is changed");
        let held = ObservedMember { quarantine: Some(QuarantineEffect::Held), ..back };
        assert_eq!(state(&held, NEW), MemberState::Failed);
        let reason = |reason| ObservedReady { reason, ..back.ready.unwrap() };
        let lost = ObservedMember { ready: Some(reason(ARTIFACT_LOST)), ..back };
        assert_eq!(state(&lost, NEW), MemberState::Failed);
        let unhealthy = ObservedMember { ready: Some(reason("HealthCheckFailed")), ..back };
        assert_eq!(state(&unhealthy, NEW), MemberState::Failed, "the way back failed");
        let begins = ObservedMember { attempted: Some("main@sha1:2"), ..unhealthy };
        assert_eq!(state(&begins, NEW), MemberState::Progressing);
    }

    #[test]
    fn what_succeeded_or_failed_goes_back() {
        let pinned = ObservedMember {
            quarantine: Some(QuarantineEffect::RollsBack("main@sha1:1")),
            ..ready("True", "ReconciliationSucceeded")
        };
        for before in [MemberState::Succeeded, MemberState::Failed] {
            assert_eq!(next_state(Some(before), &pinned, NEW), MemberState::Progressing);
        }
        let lifted = ObservedMember { quarantine: None, ..ready("Unknown", "Progressing") };
        let before = Some(MemberState::RolledBack);
        assert_eq!(next_state(before, &lifted, NEW), MemberState::RolledBack);
        assert_eq!(next_state(None, &lifted, NEW), MemberState::Progressing);
    }

    #[test]
    fn an_end_is_left_only_for_another_end() {
        use MemberState::{Failed, Progressing, RolledBack, Skipped, Succeeded, Waiting};
        assert_eq!(Failed.after(Progressing), Failed);
        assert_eq!(Failed.after(Waiting), Failed);
        assert_eq!(Failed.after(Succeeded), Succeeded);
        assert_eq!(Failed.after(RolledBack), RolledBack);
        assert_eq!(Succeeded.after(Failed), Succeeded, "something else has changed");
        assert_eq!(Succeeded.after(RolledBack), RolledBack);
        assert_eq!(Skipped.after(Progressing), Progressing, "it is resumed");
        assert_eq!(RolledBack.after(Progressing), RolledBack);
        assert_eq!(RolledBack.after(Succeeded), Succeeded, "a user lifted the Quarantine");
        assert_eq!(Progressing.after(Waiting), Waiting);
    }
}
