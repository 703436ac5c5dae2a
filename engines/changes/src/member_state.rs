//! The progress of a member of a change, according to its status.
//!
//! A condition `Ready` about an older revision or generation does not count. A member that failed stays failed while it
//! is retried, until it succeeds. Elsewhere: reading statuses (`operator/changes`).

/// The progress of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// The member failed.
    Failed,
    /// The member was rolled back to the result that was applied before.
    RolledBack,
    /// The member is being applied, or is about to be.
    Progressing,
    /// The member waits for a window, an approval or another object.
    Waiting,
    /// The member is suspended.
    Skipped,
    /// The member succeeded.
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

    /// The first word of a line about a member in this state.
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

    /// Whether the change is over for the member. A suspended member counts, because it gets no further.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        !matches!(self, Self::Progressing | Self::Waiting)
    }

    /// The state after another observation. A member that succeeded in a change stays so, because a later failure has
    /// another cause. A member that failed or was rolled back stays so while it is retried.
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
pub struct ObservedReadyCondition<'o> {
    /// `True`, `False` or `Unknown`.
    pub status: &'o str,
    /// The reason of the condition.
    pub reason: &'o str,
    /// The generation of the spec that the condition is about. `None` if the condition does not say it.
    pub generation: Option<i64>,
}

/// The effect of a Quarantine of the change's revision on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineEffect<'o> {
    /// The member is rolled back to an earlier result.
    RollsBack {
        /// The revision of the earlier result.
        revision: &'o str,
        /// Whether the status records that the earlier result is the last one that was applied to its end.
        is_applied: bool,
    },
    /// The member keeps its present result, and no result is applied.
    Held,
}

/// The observed status of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedMember<'o> {
    /// Whether the member is suspended.
    pub is_suspended: bool,
    /// Whether a run of the member is in progress, according to the condition `Reconciling`. A failed run that is
    /// retried later is not in progress.
    pub is_reconciling: bool,
    /// The generation of the member's spec.
    pub generation: i64,
    /// The member's condition `Ready`.
    pub ready: Option<ObservedReadyCondition<'o>>,
    /// The revision that the member attempted last.
    pub attempted: Option<&'o str>,
    /// The revision that the member last applied successfully.
    pub applied: Option<&'o str>,
    /// Whether the member keeps its revision until its wave of a rollout opens.
    pub waits_for_wave: bool,
    /// The effect of the Quarantine of the revision, if one is in force.
    pub quarantine: Option<QuarantineEffect<'o>>,
}

/// The new version that a change brings to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberNewVersion<'t> {
    /// A new revision of its source.
    Revision(&'t str),
    /// A new spec, identified by its generation.
    Generation(i64),
}

/// Reasons of `Ready` of a member that has not begun yet, so that it has not failed.
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

/// Whether a reason of `Ready` says that the member has not begun yet, so that it has not failed.
#[must_use]
pub fn is_waiting(reason: &str) -> bool {
    WAITS.contains(&reason)
}

/// The reason of `Ready` of a suspended object.
const SUSPENDED: &str = "Suspended";

/// The reason of `Ready` of an object that a Quarantine rolled back, or keeps as it is.
const QUARANTINED: &str = "Quarantined";

/// The reason of `Ready` of an object that cannot be rolled back, because its previous artifact is lost.
const ARTIFACT_LOST: &str = "ArtifactLost";

/// The progress of a member, given its progress before. During a Quarantine the earlier progress does not count,
/// because a member that succeeded or failed is rolled back.
#[must_use]
pub fn next_state(
    before: Option<MemberState>,
    observed: &ObservedMember<'_>,
    target: MemberNewVersion<'_>,
) -> MemberState {
    let state = state(observed, target);
    match before.filter(|_| observed.quarantine.is_none()) {
        Some(before) => before.after(state),
        None => state,
    }
}

/// The progress of a member, by its present status only.
fn state(observed: &ObservedMember<'_>, target: MemberNewVersion<'_>) -> MemberState {
    let ready = observed.ready.filter(|it| is_of_newest_spec(observed, it));
    // A wave does not matter any more once the revision is attempted. A wave never holds back a spec.
    let is_before_wave = observed.waits_for_wave
        && matches!(target, MemberNewVersion::Revision(_))
        && !is_at(observed, target);
    let waits =
        is_before_wave || ready.is_some_and(|it| it.status != "True" && is_waiting(it.reason));
    let ended = ready.filter(|_| !observed.is_reconciling && !waits);
    let end = match observed.quarantine {
        Some(QuarantineEffect::Held) => Some(MemberState::Failed),
        // What such a member waits for, such as a dependency that was rolled back as well, comes after the way back. If it has
        // attempted another result since, that one may be applied in part.
        Some(QuarantineEffect::RollsBack { revision, is_applied: true })
            if waits && observed.attempted == Some(revision) =>
        {
            Some(MemberState::RolledBack)
        }
        Some(QuarantineEffect::RollsBack { revision, .. }) => {
            ended.and_then(|it| end_of_way_back(&it, observed.attempted == Some(revision)))
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

/// How a rollback ended. `None` if it has not ended. `is_back` says whether the member attempted the previous revision.
fn end_of_way_back(ready: &ObservedReadyCondition<'_>, is_back: bool) -> Option<MemberState> {
    match (ready.reason, ready.status) {
        (QUARANTINED, _) if is_back => Some(MemberState::RolledBack),
        // The rollback changed nothing.
        (QUARANTINED | ARTIFACT_LOST, _) => Some(MemberState::Failed),
        (_, "False") if is_back => Some(MemberState::Failed),
        _ => None,
    }
}

fn is_of_newest_spec(observed: &ObservedMember<'_>, ready: &ObservedReadyCondition<'_>) -> bool {
    ready.generation.is_none_or(|generation| generation >= observed.generation)
}

/// Whether the status is about the new revision or spec.
fn is_at(observed: &ObservedMember<'_>, target: MemberNewVersion<'_>) -> bool {
    match target {
        MemberNewVersion::Revision(revision) => observed.attempted == Some(revision),
        // A condition without a generation may be about the old spec.
        MemberNewVersion::Generation(generation) => {
            observed.ready.and_then(|it| it.generation).is_some_and(|it| it >= generation)
        }
    }
}

fn has_applied(observed: &ObservedMember<'_>, target: MemberNewVersion<'_>) -> bool {
    match target {
        MemberNewVersion::Revision(revision) => observed.applied == Some(revision),
        MemberNewVersion::Generation(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: MemberNewVersion<'static> = MemberNewVersion::Revision("main@sha1:2");

    fn ready<'o>(status: &'o str, reason: &'o str) -> ObservedMember<'o> {
        ObservedMember {
            is_suspended: false,
            is_reconciling: false,
            generation: 3,
            ready: Some(ObservedReadyCondition { status, reason, generation: Some(3) }),
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
        assert_eq!(state(&older_spec, MemberNewVersion::Generation(4)), MemberState::Progressing);
        assert_eq!(state(&good, MemberNewVersion::Generation(3)), MemberState::Succeeded);
        let silent = ObservedReadyCondition { generation: None, ..good.ready.unwrap() };
        let silent = ObservedMember { ready: Some(silent), ..good };
        assert_eq!(state(&silent, MemberNewVersion::Generation(3)), MemberState::Progressing);
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

    const WAY_BACK: QuarantineEffect<'static> =
        QuarantineEffect::RollsBack { revision: "main@sha1:1", is_applied: false };

    #[test]
    fn what_is_quarantined_went_back_only_once_it_is_at_the_revision_before() {
        let back = ObservedMember {
            quarantine: Some(WAY_BACK),
            attempted: Some("main@sha1:1"),
            ..ready("False", QUARANTINED)
        };
        assert_eq!(state(&back, NEW), MemberState::RolledBack);
        let stays = ObservedMember { attempted: Some("main@sha1:2"), ..back };
        assert_eq!(state(&stays, NEW), MemberState::Failed, "nothing is changed");
        let held = ObservedMember { quarantine: Some(QuarantineEffect::Held), ..back };
        assert_eq!(state(&held, NEW), MemberState::Failed);
        let reason = |reason| ObservedReadyCondition { reason, ..back.ready.unwrap() };
        let lost = ObservedMember { ready: Some(reason(ARTIFACT_LOST)), ..back };
        assert_eq!(state(&lost, NEW), MemberState::Failed);
        let unhealthy = ObservedMember { ready: Some(reason("HealthCheckFailed")), ..back };
        assert_eq!(state(&unhealthy, NEW), MemberState::Failed, "the way back failed");
        let begins = ObservedMember { attempted: Some("main@sha1:2"), ..unhealthy };
        assert_eq!(state(&begins, NEW), MemberState::Progressing);
    }

    #[test]
    fn what_has_applied_the_earlier_result_is_back_although_it_waits_for_another_object() {
        let effect = QuarantineEffect::RollsBack { revision: "main@sha1:1", is_applied: true };
        let back = ObservedMember {
            quarantine: Some(effect),
            attempted: Some("main@sha1:1"),
            applied: Some("main@sha1:1"),
            ..ready("False", "DependencyNotReady")
        };
        assert_eq!(state(&back, NEW), MemberState::RolledBack);
        let half = ObservedMember { attempted: Some("main@sha1:2"), ..back };
        assert_eq!(state(&half, NEW), MemberState::Waiting, "another build of the revision");
        // A revision that failed never was the last one that was applied.
        let begins = ObservedMember { quarantine: Some(WAY_BACK), ..back };
        assert_eq!(state(&begins, NEW), MemberState::Waiting);
        let unhealthy = ObservedMember { ready: ready("False", "HealthCheckFailed").ready, ..back };
        assert_eq!(state(&unhealthy, NEW), MemberState::Failed);
    }

    #[test]
    fn what_succeeded_or_failed_goes_back() {
        let pinned = ObservedMember {
            quarantine: Some(WAY_BACK),
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
