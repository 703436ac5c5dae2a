//! Determines which event should exist for the present phase of an operation, and which events are no longer needed.
//! Elsewhere: how an event is judged (`operation_verdict.rs`).

use reconcile::Time;

use crate::lifecycle_hold_phase::LifecycleHoldPhase;
use crate::lifecycle_selection::HoldingLifecycle;
use crate::observed_lifecycle_event::{ObservedLifecycleEvent, event_name};
use crate::operation_verdict::{LifecycleEventAnswer, LifecycleEventVerdict, judge};

/// A revision of a release or of a source, as an event names it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReleaseOrSourceRevision {
    /// The number of the release's revision, or the revision of the source.
    pub revision: String,
    /// The chart's name; empty if there is none.
    pub chart_name: String,
    /// The chart's version; empty if there is none.
    pub chart_version: String,
}

/// An event that is to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifecycleEventRequest {
    /// The name of the event.
    pub name: String,
    /// The hold that the event is created for.
    pub hold: HoldingLifecycle,
    /// The phase.
    pub phase: LifecycleHoldPhase,
    /// The operation.
    pub operation: String,
    /// The revision before.
    pub from: Option<ReleaseOrSourceRevision>,
    /// The revision afterwards.
    pub to: Option<ReleaseOrSourceRevision>,
    /// The time until which the event must be answered.
    pub deadline: Time,
}

/// An event that no operation waits for any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DismissedLifecycleEvent {
    /// The name of the event.
    pub name: String,
    /// The uid of the event.
    pub uid: String,
    /// Whether the event may still be answered.
    pub is_open: bool,
}

/// The state of an operation at one hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationHoldState {
    /// The operation continues.
    Pass(LifecycleEventAnswer),
    /// The operation fails.
    Fail(LifecycleEventAnswer),
    /// The operation waits. The text says why, and the time, if any, is the latest end of the wait.
    Wait(String, Option<Time>),
    /// The event is to be created first.
    Ask(Box<LifecycleEventRequest>),
}

/// The subject of an event: for which object, in which phase and when it was created.
#[derive(Debug, Clone, Copy)]
pub struct LifecycleHoldContext<'q> {
    /// The uid of the object whose operation waits.
    pub owner: &'q str,
    /// The first part of the event's name.
    pub subject: &'q str,
    /// The operation.
    pub operation: &'q str,
    /// The phase.
    pub phase: LifecycleHoldPhase,
    /// The revision before.
    pub from: Option<&'q ReleaseOrSourceRevision>,
    /// The revision afterwards.
    pub to: Option<&'q ReleaseOrSourceRevision>,
    /// Whether break-glass is in force.
    pub glass: bool,
    /// The time.
    pub now: Time,
}

impl LifecycleHoldContext<'_> {
    /// The state of an operation at a hold, by the events that exist.
    pub fn stand(
        &self,
        hold: &HoldingLifecycle,
        events: &[ObservedLifecycleEvent],
    ) -> OperationHoldState {
        let Self { phase, operation, now, .. } = *self;
        let is_its = |it: &&ObservedLifecycleEvent| {
            it.operation == operation && it.phase == Some(phase) && it.lifecycle == hold.lifecycle
        };
        let Some(event) = events.iter().find(is_its) else {
            let timeout = std::time::Duration::from_millis(hold.timeout_ms);
            return OperationHoldState::Ask(Box::new(LifecycleEventRequest {
                name: event_name(self.subject, phase, self.owner, operation, &hold.lifecycle),
                hold: hold.clone(),
                phase,
                operation: operation.to_owned(),
                from: self.from.cloned(),
                to: self.to.cloned(),
                deadline: now.saturating_add(timeout).unwrap_or(Time::MAX),
            }));
        };
        match judge(hold, phase, event, self.glass, now) {
            LifecycleEventVerdict::Pass(answer) => OperationHoldState::Pass(answer),
            LifecycleEventVerdict::Fail(answer) => OperationHoldState::Fail(answer),
            LifecycleEventVerdict::Wait(text, until) => OperationHoldState::Wait(text, until),
        }
    }
}

/// The events that the present operation does not wait for. They belong to other operations, or their answers are recorded
/// already.
pub fn dismissed(
    events: &[ObservedLifecycleEvent],
    operation: Option<&str>,
    answers: &[LifecycleEventAnswer],
) -> Vec<DismissedLifecycleEvent> {
    let is_recorded = |event: &ObservedLifecycleEvent| {
        let is_its = |it: &LifecycleEventAnswer| {
            it.lifecycle == event.lifecycle && Some(it.phase) == event.phase
        };
        answers.iter().any(is_its)
    };
    let is_over = |event: &&ObservedLifecycleEvent| {
        operation != Some(event.operation.as_str()) || is_recorded(event)
    };
    let over = events.iter().filter(is_over).map(|event| DismissedLifecycleEvent {
        name: event.name.clone(),
        uid: event.uid.clone(),
        is_open: event.state.is_open(),
    });
    over.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle_selection::LifecycleTimeoutPolicy;
    use crate::observed_lifecycle_event::LifecycleEventState;
    use crate::operation_verdict::LifecyclePhaseOutcome;

    fn hold() -> HoldingLifecycle {
        HoldingLifecycle {
            lifecycle: "a".to_owned(),
            key: "a".to_owned(),
            phases: vec![LifecycleHoldPhase::Promote],
            timeout_ms: 60_000,
            on_timeout: LifecycleTimeoutPolicy::Fail,
            approvals: 0,
            parameters: Default::default(),
            required: false,
        }
    }

    fn event(
        operation: &str,
        phase: LifecycleHoldPhase,
        state: LifecycleEventState,
    ) -> ObservedLifecycleEvent {
        ObservedLifecycleEvent {
            name: "e".to_owned(),
            uid: "u".to_owned(),
            lifecycle: "a".to_owned(),
            phase: Some(phase),
            operation: operation.to_owned(),
            state,
            answered_by: String::new(),
            message: String::new(),
            created: None,
            deadline: None,
            approvals: Vec::new(),
        }
    }

    fn question(operation: &str) -> LifecycleHoldContext<'_> {
        LifecycleHoldContext {
            owner: "uid",
            subject: "web",
            operation,
            phase: LifecycleHoldPhase::Promote,
            from: None,
            to: None,
            glass: false,
            now: Time::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_was_not_asked_is_asked_and_events_of_others_answer_nothing() {
        let others = [
            event("web.v1.0", LifecycleHoldPhase::Promote, LifecycleEventState::Succeeded),
            event("web.v2.0", LifecycleHoldPhase::PostUpgrade, LifecycleEventState::Succeeded),
        ];
        let stand = question("web.v2.0").stand(&hold(), &others);
        let OperationHoldState::Ask(ask) = stand else { panic!("{stand:?}") };
        assert_eq!((ask.phase, ask.operation.as_str()), (LifecycleHoldPhase::Promote, "web.v2.0"));
        assert_eq!(ask.deadline, Time::from_second(60).unwrap());
        let own = [event("web.v2.0", LifecycleHoldPhase::Promote, LifecycleEventState::Succeeded)];
        assert!(matches!(question("web.v2.0").stand(&hold(), &own), OperationHoldState::Pass(_)));
    }

    #[test]
    fn events_are_over_with_their_operation_or_when_they_are_recorded() {
        let events = [
            event("web.v1.0", LifecycleHoldPhase::Promote, LifecycleEventState::Pending),
            event("web.v2.0", LifecycleHoldPhase::PreUpgrade, LifecycleEventState::Succeeded),
            event("web.v2.0", LifecycleHoldPhase::Promote, LifecycleEventState::Pending),
        ];
        let over = |operation, answers: &[LifecycleEventAnswer]| {
            dismissed(&events, operation, answers).iter().map(|it| it.is_open).collect::<Vec<_>>()
        };
        assert_eq!(over(Some("web.v2.0"), &[]), [true]);
        let answer = LifecycleEventAnswer {
            lifecycle: "a".to_owned(),
            phase: LifecycleHoldPhase::PreUpgrade,
            outcome: LifecyclePhaseOutcome::Succeeded,
            event: String::new(),
            answered_by: String::new(),
            message: String::new(),
            approvals: Vec::new(),
            asked: Time::UNIX_EPOCH,
            ended: Time::UNIX_EPOCH,
        };
        assert_eq!(over(Some("web.v2.0"), &[answer]), [true, false]);
        assert_eq!(over(None, &[]), [true, false, true]);
    }
}
