//! Judges whether an operation continues, waits or fails because of an event that it waits for.

use reconcile::Time;
use serde::{Deserialize, Serialize};

use crate::lifecycle_hold_phase::LifecycleHoldPhase;
use crate::lifecycle_selection::{HoldingLifecycle, LifecycleTimeoutPolicy};
use crate::observed_lifecycle_event::{
    LifecycleApproval, LifecycleEventState, ObservedLifecycleEvent,
};

/// The longest message in an answer, in bytes.
const MAX_TEXT: usize = 512;
/// The most approvals that an answer lists.
const MAX_APPROVALS: usize = 16;

/// How a phase ended for one lifecycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LifecyclePhaseOutcome {
    /// The event was answered with success.
    Succeeded,
    /// The event was answered with a failure.
    Failed,
    /// The event was not answered in time.
    TimedOut,
    /// Break-glass released the operation.
    Released,
}

impl LifecyclePhaseOutcome {
    /// The spelling in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::TimedOut => "TimedOut",
            Self::Released => "Released",
        }
    }
}

/// The recorded result of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleEventAnswer {
    /// The Lifecycle.
    pub lifecycle: String,
    /// The phase.
    pub phase: LifecycleHoldPhase,
    /// How the phase ended.
    pub outcome: LifecyclePhaseOutcome,
    /// The uid of the event.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub event: String,
    /// The user who answered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answered_by: String,
    /// A message with details for users.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The users who approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<LifecycleApproval>,
    /// When the event was created.
    #[serde(with = "reconcile::time_json")]
    pub asked: Time,
    /// When the phase ended.
    #[serde(with = "reconcile::time_json")]
    pub ended: Time,
}

impl LifecycleEventAnswer {
    /// The message about the failure, with which the operation fails.
    pub fn failure(&self) -> String {
        let lifecycle = &self.lifecycle;
        let phase = self.phase.as_str();
        let by = match self.answered_by.as_str() {
            "" => String::new(),
            by => format!(" (answered by {by})"),
        };
        match (self.outcome, self.message.as_str()) {
            (LifecyclePhaseOutcome::TimedOut, _) => {
                format!("lifecycle {lifecycle} was not answered in time at {phase}")
            }
            (_, "") => format!("lifecycle {lifecycle} failed at {phase}{by}"),
            (_, message) => format!("lifecycle {lifecycle} failed at {phase}{by}: {message}"),
        }
    }
}

/// The meaning of an event for an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifecycleEventVerdict {
    /// The operation continues.
    Pass(LifecycleEventAnswer),
    /// The operation waits. The text says why, and the time, if any, is the latest end of the wait.
    Wait(String, Option<Time>),
    /// The operation fails.
    Fail(LifecycleEventAnswer),
}

/// Judges an event for an operation that a lifecycle holds. `glass` says whether break-glass is in force. Break-glass does not
/// release lifecycles that the namespace requires.
///
/// Each user counts once as an approver. A `Succeeded` event without enough approvals still waits, because the right to answer
/// for a controller does not include the right to approve.
pub fn judge(
    hold: &HoldingLifecycle,
    phase: LifecycleHoldPhase,
    event: &ObservedLifecycleEvent,
    glass: bool,
    now: Time,
) -> LifecycleEventVerdict {
    let answer = |outcome: LifecyclePhaseOutcome| LifecycleEventAnswer {
        lifecycle: hold.lifecycle.clone(),
        phase,
        outcome,
        event: event.uid.clone(),
        answered_by: shortened(&event.answered_by),
        message: shortened(&event.message),
        approvals: approvals(event),
        asked: event.created.unwrap_or(now),
        ended: now,
    };
    let approved = approvals(event).len();
    let is_approved = approved >= usize::from(hold.approvals);
    match event.state {
        LifecycleEventState::Failed => {
            return LifecycleEventVerdict::Fail(answer(LifecyclePhaseOutcome::Failed));
        }
        LifecycleEventState::Succeeded if hold.approvals == 0 => {
            return LifecycleEventVerdict::Pass(answer(LifecyclePhaseOutcome::Succeeded));
        }
        LifecycleEventState::Pending
        | LifecycleEventState::Running
        | LifecycleEventState::Succeeded
            if hold.approvals > 0 && is_approved =>
        {
            return LifecycleEventVerdict::Pass(answer(LifecyclePhaseOutcome::Succeeded));
        }
        // windlass cancels only events that it no longer waits for. If another client cancels an event, the operation must not
        // wait for ever.
        LifecycleEventState::Cancelled => {
            let message = "the LifecycleEvent was cancelled".to_owned();
            return LifecycleEventVerdict::Fail(LifecycleEventAnswer {
                message,
                ..answer(LifecyclePhaseOutcome::Failed)
            });
        }
        LifecycleEventState::Pending
        | LifecycleEventState::Running
        | LifecycleEventState::Succeeded => {}
    }
    if glass && !hold.required {
        return LifecycleEventVerdict::Pass(answer(LifecyclePhaseOutcome::Released));
    }
    let late = event.deadline.filter(|at| *at <= now);
    match (late, hold.on_timeout) {
        (Some(_), LifecycleTimeoutPolicy::Fail) => {
            return LifecycleEventVerdict::Fail(answer(LifecyclePhaseOutcome::TimedOut));
        }
        (Some(_), LifecycleTimeoutPolicy::Continue) => {
            return LifecycleEventVerdict::Pass(answer(LifecyclePhaseOutcome::TimedOut));
        }
        (Some(_), LifecycleTimeoutPolicy::Hold) | (None, _) => {}
    }
    let state = match hold.approvals {
        0 => event.state.as_str().to_owned(),
        needed => format!("has {approved} of {needed} approvals"),
    };
    let verb = if hold.approvals == 0 { "is " } else { "" };
    let text = format!(
        "waiting for lifecycle {} at {}: LifecycleEvent {} {verb}{state}",
        hold.lifecycle,
        phase.as_str(),
        event.name
    );
    LifecycleEventVerdict::Wait(text, event.deadline.filter(|at| *at > now))
}

/// The approvals of different users.
fn approvals(event: &ObservedLifecycleEvent) -> Vec<LifecycleApproval> {
    let mut found: Vec<LifecycleApproval> = Vec::new();
    for approval in &event.approvals {
        let is_known = found.iter().any(|it| it.user == approval.user);
        if !is_known && !approval.user.is_empty() && found.len() < MAX_APPROVALS {
            let comment = shortened(&approval.comment);
            found.push(LifecycleApproval {
                user: shortened(&approval.user),
                comment,
                ..approval.clone()
            });
        }
    }
    found
}

fn shortened(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hold(approvals: u16, on_timeout: LifecycleTimeoutPolicy) -> HoldingLifecycle {
        HoldingLifecycle {
            lifecycle: "check".to_owned(),
            key: "check".to_owned(),
            phases: vec![LifecycleHoldPhase::PreUpgrade],
            timeout_ms: 60_000,
            on_timeout,
            approvals,
            parameters: Default::default(),
            required: false,
        }
    }

    fn event(state: LifecycleEventState, users: &[&str]) -> ObservedLifecycleEvent {
        let approval = |user: &&str| LifecycleApproval {
            user: (*user).to_owned(),
            at: None,
            comment: String::new(),
        };
        ObservedLifecycleEvent {
            name: "web-preupgrade-0".to_owned(),
            uid: "u".to_owned(),
            lifecycle: "check".to_owned(),
            phase: Some(LifecycleHoldPhase::PreUpgrade),
            operation: "web.v1.0".to_owned(),
            state,
            answered_by: String::new(),
            message: String::new(),
            created: Some(Time::UNIX_EPOCH),
            deadline: Some(second(60)),
            approvals: users.iter().map(approval).collect(),
        }
    }

    fn second(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn word(verdict: &LifecycleEventVerdict) -> String {
        match verdict {
            LifecycleEventVerdict::Pass(answer) => format!("pass {}", answer.outcome.as_str()),
            LifecycleEventVerdict::Wait(_, Some(at)) => format!("wait until {}", at.as_second()),
            LifecycleEventVerdict::Wait(_, None) => "wait".to_owned(),
            LifecycleEventVerdict::Fail(answer) => format!("fail {}", answer.outcome.as_str()),
        }
    }

    fn judged(
        hold: &HoldingLifecycle,
        event: &ObservedLifecycleEvent,
        glass: bool,
        now: i64,
    ) -> String {
        word(&judge(hold, LifecycleHoldPhase::PreUpgrade, event, glass, second(now)))
    }

    #[test]
    fn an_answer_of_a_controller_decides() {
        let hold = hold(0, LifecycleTimeoutPolicy::Fail);
        let of = |state, now| judged(&hold, &event(state, &[]), false, now);
        assert_eq!(of(LifecycleEventState::Pending, 59), "wait until 60");
        assert_eq!(of(LifecycleEventState::Running, 59), "wait until 60");
        assert_eq!(of(LifecycleEventState::Succeeded, 99), "pass Succeeded");
        assert_eq!(of(LifecycleEventState::Failed, 0), "fail Failed");
        assert_eq!(of(LifecycleEventState::Cancelled, 0), "fail Failed");
        assert_eq!(of(LifecycleEventState::Running, 60), "fail TimedOut");
    }

    #[test]
    fn what_is_late_fails_continues_or_waits() {
        let of = |on_timeout| {
            judged(&hold(0, on_timeout), &event(LifecycleEventState::Running, &[]), false, 60)
        };
        assert_eq!(of(LifecycleTimeoutPolicy::Fail), "fail TimedOut");
        assert_eq!(of(LifecycleTimeoutPolicy::Continue), "pass TimedOut");
        assert_eq!(of(LifecycleTimeoutPolicy::Hold), "wait");
        let late = judged(
            &hold(0, LifecycleTimeoutPolicy::Hold),
            &event(LifecycleEventState::Succeeded, &[]),
            false,
            99,
        );
        assert_eq!(late, "pass Succeeded", "a late answer counts where it is awaited");
    }

    #[test]
    fn approvals_count_by_user_and_nothing_else_approves() {
        let hold = hold(2, LifecycleTimeoutPolicy::Fail);
        let of = |state, users: &[&str]| judged(&hold, &event(state, users), false, 0);
        assert_eq!(of(LifecycleEventState::Pending, &[]), "wait until 60");
        assert_eq!(of(LifecycleEventState::Pending, &["alice", "alice", ""]), "wait until 60");
        assert_eq!(of(LifecycleEventState::Pending, &["alice", "bob"]), "pass Succeeded");
        assert_eq!(of(LifecycleEventState::Succeeded, &["alice"]), "wait until 60");
        assert_eq!(of(LifecycleEventState::Failed, &["alice", "bob"]), "fail Failed");
        let verdict = judge(
            &hold,
            LifecycleHoldPhase::PreUpgrade,
            &event(LifecycleEventState::Pending, &["alice"]),
            false,
            second(0),
        );
        let LifecycleEventVerdict::Wait(text, _) = verdict else { panic!("{verdict:?}") };
        assert_eq!(
            text,
            "waiting for lifecycle check at PreUpgrade: LifecycleEvent web-preupgrade-0 has 1 of 2 approvals"
        );
    }

    #[test]
    fn break_glass_releases_what_the_namespace_does_not_require() {
        let open = event(LifecycleEventState::Pending, &[]);
        let own = hold(2, LifecycleTimeoutPolicy::Fail);
        assert_eq!(judged(&own, &open, true, 0), "pass Released");
        let required = HoldingLifecycle { required: true, ..own.clone() };
        assert_eq!(judged(&required, &open, true, 0), "wait until 60");
        assert_eq!(judged(&own, &event(LifecycleEventState::Failed, &[]), true, 0), "fail Failed");
    }

    #[test]
    fn a_failure_names_lifecycle_phase_and_who_answered() {
        let mut failed = event(LifecycleEventState::Failed, &[]);
        (failed.answered_by, failed.message) = ("checker".to_owned(), "no quota".to_owned());
        let hold = hold(0, LifecycleTimeoutPolicy::Fail);
        let text = |event: &ObservedLifecycleEvent, now| match judge(
            &hold,
            LifecycleHoldPhase::PreUpgrade,
            event,
            false,
            second(now),
        ) {
            LifecycleEventVerdict::Fail(answer) => answer.failure(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            text(&failed, 0),
            "lifecycle check failed at PreUpgrade (answered by checker): no quota"
        );
        assert_eq!(
            text(&event(LifecycleEventState::Pending, &[]), 60),
            "lifecycle check was not answered in time at PreUpgrade"
        );
    }

    proptest! {
        /// For every status: the text of an answer is bounded, and only an answer, enough approvals, break-glass or a
        /// timeout lets an operation continue.
        #[test]
        fn nothing_continues_without_a_reason(
            state in prop::sample::select(vec![
                LifecycleEventState::Pending, LifecycleEventState::Running, LifecycleEventState::Succeeded, LifecycleEventState::Failed, LifecycleEventState::Cancelled,
            ]),
            users in prop::collection::vec(".{0,40}", 0..40),
            message in ".{0,2000}",
            needed in 0..3_u16,
            now in 0..120_i64,
            glass: bool,
        ) {
            let users: Vec<&str> = users.iter().map(String::as_str).collect();
            let mut event = event(state, &users);
            event.message = message;
            let verdict = judge(&hold(needed, LifecycleTimeoutPolicy::Fail), LifecycleHoldPhase::PreUpgrade, &event, glass, second(now));
            match &verdict {
                LifecycleEventVerdict::Pass(answer) => {
                    let is_answered = match needed {
                        0 => state == LifecycleEventState::Succeeded,
                        needed => answer.approvals.len() >= usize::from(needed),
                    };
                    prop_assert!(is_answered || glass, "{verdict:?}");
                }
                LifecycleEventVerdict::Wait(..) => prop_assert!(now < 60 && !glass, "{verdict:?}"),
                LifecycleEventVerdict::Fail(_) => prop_assert!(now >= 60 || !state.is_open(), "{verdict:?}"),
            }
            if let LifecycleEventVerdict::Pass(answer) | LifecycleEventVerdict::Fail(answer) = verdict {
                prop_assert!(answer.message.len() <= MAX_TEXT + 3);
                prop_assert!(answer.approvals.len() <= MAX_APPROVALS);
            }
        }
    }
}
