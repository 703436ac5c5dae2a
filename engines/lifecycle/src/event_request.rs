//! Asking at a phase: which event is to be there, and which are over.
//!
//! Elsewhere: what an event means (`judge.rs`).

use reconcile::Time;

use crate::event::{Event, event_name};
use crate::judge::{EventAnswer, EventVerdict, judge};
use crate::phase::Phase;
use crate::select::Hold;

/// A revision of a release or of a source, as an event names it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Revision {
    /// Its number, or the revision of the source.
    pub revision: String,
    /// The chart's name; empty if there is none.
    pub chart_name: String,
    /// The chart's version; empty if there is none.
    pub chart_version: String,
}

/// An event that is to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Its name.
    pub name: String,
    /// Why it is asked.
    pub hold: Hold,
    /// The phase.
    pub phase: Phase,
    /// The operation.
    pub operation: String,
    /// The revision before.
    pub from: Option<Revision>,
    /// The revision afterwards.
    pub to: Option<Revision>,
    /// Until when it has to be answered.
    pub deadline: Time,
}

/// An event that nothing waits for any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DismissedEvent {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether it may still be answered.
    pub is_open: bool,
}

/// Where an operation stands with one hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stand {
    /// It continues.
    Pass(EventAnswer),
    /// It fails.
    Fail(EventAnswer),
    /// It waits, for this reason, and no longer than until a time if there is one.
    Wait(String, Option<Time>),
    /// The event is to be created first.
    Ask(Box<Ask>),
}

/// The question that an event asks: for which object, in which phase and when.
#[derive(Debug, Clone, Copy)]
pub struct Question<'q> {
    /// The uid of the object that waits.
    pub owner: &'q str,
    /// With what the name of the event begins.
    pub subject: &'q str,
    /// The operation.
    pub operation: &'q str,
    /// The phase.
    pub phase: Phase,
    /// The revision before.
    pub from: Option<&'q Revision>,
    /// The revision afterwards.
    pub to: Option<&'q Revision>,
    /// Whether break-glass is in force.
    pub glass: bool,
    /// The time.
    pub now: Time,
}

impl Question<'_> {
    /// Where an operation stands with a hold, by the events that there are.
    pub fn stand(&self, hold: &Hold, events: &[Event]) -> Stand {
        let Self { phase, operation, now, .. } = *self;
        let is_its = |it: &&Event| {
            it.operation == operation && it.phase == Some(phase) && it.lifecycle == hold.lifecycle
        };
        let Some(event) = events.iter().find(is_its) else {
            let timeout = std::time::Duration::from_millis(hold.timeout_ms);
            return Stand::Ask(Box::new(Ask {
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
            EventVerdict::Pass(answer) => Stand::Pass(answer),
            EventVerdict::Fail(answer) => Stand::Fail(answer),
            EventVerdict::Wait(text, until) => Stand::Wait(text, until),
        }
    }
}

/// The events that no phase of the present operation waits for: those of other operations, and those whose answers are
/// recorded.
pub fn dismissed(
    events: &[Event],
    operation: Option<&str>,
    answers: &[EventAnswer],
) -> Vec<DismissedEvent> {
    let is_recorded = |event: &Event| {
        let is_its =
            |it: &EventAnswer| it.lifecycle == event.lifecycle && Some(it.phase) == event.phase;
        answers.iter().any(is_its)
    };
    let is_over =
        |event: &&Event| operation != Some(event.operation.as_str()) || is_recorded(event);
    let over = events.iter().filter(is_over).map(|event| DismissedEvent {
        name: event.name.clone(),
        uid: event.uid.clone(),
        is_open: event.state.is_open(),
    });
    over.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::State;
    use crate::judge::PhaseOutcome;
    use crate::select::OnTimeout;

    fn hold() -> Hold {
        Hold {
            lifecycle: "a".to_owned(),
            key: "a".to_owned(),
            phases: vec![Phase::Promote],
            timeout_ms: 60_000,
            on_timeout: OnTimeout::Fail,
            approvals: 0,
            parameters: Default::default(),
            required: false,
        }
    }

    fn event(operation: &str, phase: Phase, state: State) -> Event {
        Event {
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

    fn question(operation: &str) -> Question<'_> {
        Question {
            owner: "uid",
            subject: "web",
            operation,
            phase: Phase::Promote,
            from: None,
            to: None,
            glass: false,
            now: Time::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_was_not_asked_is_asked_and_events_of_others_answer_nothing() {
        let others = [
            event("web.v1.0", Phase::Promote, State::Succeeded),
            event("web.v2.0", Phase::PostUpgrade, State::Succeeded),
        ];
        let stand = question("web.v2.0").stand(&hold(), &others);
        let Stand::Ask(ask) = stand else { panic!("{stand:?}") };
        assert_eq!((ask.phase, ask.operation.as_str()), (Phase::Promote, "web.v2.0"));
        assert_eq!(ask.deadline, Time::from_second(60).unwrap());
        let own = [event("web.v2.0", Phase::Promote, State::Succeeded)];
        assert!(matches!(question("web.v2.0").stand(&hold(), &own), Stand::Pass(_)));
    }

    #[test]
    fn events_are_over_with_their_operation_or_when_they_are_recorded() {
        let events = [
            event("web.v1.0", Phase::Promote, State::Pending),
            event("web.v2.0", Phase::PreUpgrade, State::Succeeded),
            event("web.v2.0", Phase::Promote, State::Pending),
        ];
        let over = |operation, answers: &[EventAnswer]| {
            dismissed(&events, operation, answers).iter().map(|it| it.is_open).collect::<Vec<_>>()
        };
        assert_eq!(over(Some("web.v2.0"), &[]), [true]);
        let answer = EventAnswer {
            lifecycle: "a".to_owned(),
            phase: Phase::PreUpgrade,
            outcome: PhaseOutcome::Succeeded,
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
