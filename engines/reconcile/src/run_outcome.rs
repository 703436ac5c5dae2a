//! The outcome of a run, and what triggers the next run.
//!
//! Here: [`RunOutcome`], [`NextRunTrigger`]. Elsewhere: the loop that produces an outcome (`reconcile_loop.rs`), the conditions
//! that show it to users (`conditions.rs`), the timers and watches that start the next run (the program).

use std::collections::BTreeSet;

use crate::{ConditionReason, ObjectKey, Time};

/// What triggers the next run of an object: a time, or a change of certain objects, whichever comes first.
///
/// An empty trigger would never start a run. An engine that does not know the time may leave it empty, because the caller fills
/// it with [`RunOutcome::or_wake`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextRunTrigger {
    /// Run again at this time at the latest.
    pub at: Option<Time>,
    /// The objects whose change triggers a run.
    pub on: BTreeSet<ObjectKey>,
}

impl NextRunTrigger {
    /// A wake at a time.
    pub fn at(time: Time) -> Self {
        Self { at: Some(time), on: BTreeSet::new() }
    }

    /// A wake on a change of any of these nodes.
    pub fn on(nodes: impl IntoIterator<Item = ObjectKey>) -> Self {
        Self { at: None, on: nodes.into_iter().collect() }
    }

    /// Adds a time to this trigger. If it has a time already, the earlier one is kept.
    #[must_use]
    pub fn and_at(self, time: Time) -> Self {
        Self { at: Some(self.at.map_or(time, |at| at.min(time))), ..self }
    }

    /// The time at which the object runs even if none of the objects it waits for has changed; `None` if there is no such time.
    pub fn earliest(&self) -> Option<Time> {
        self.at
    }

    /// Whether the trigger would never fire.
    pub fn is_empty(&self) -> bool {
        self.at.is_none() && self.on.is_empty()
    }
}

/// The outcome of a run. Everything a user sees is derived from it.
///
/// Each variant carries the reason and the text of `Ready`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// The cluster matches the desired state; the interval and watches trigger the next run.
    Settled(ConditionReason, String),
    /// Work in the cluster is in progress, such as a rollout. Nothing failed.
    Running(ConditionReason, String, NextRunTrigger),
    /// Another object must change first, such as a dependency or a source.
    Blocked(ConditionReason, String, NextRunTrigger),
    /// An attempt failed and will be repeated.
    Failed(ConditionReason, String, NextRunTrigger),
    /// Only a change of the spec can help.
    Stalled(ConditionReason, String),
}

impl RunOutcome {
    /// The reason of `Ready`, as one word.
    pub fn reason(&self) -> ConditionReason {
        match self {
            Self::Settled(why, _)
            | Self::Running(why, ..)
            | Self::Blocked(why, ..)
            | Self::Failed(why, ..)
            | Self::Stalled(why, _) => *why,
        }
    }

    /// The text of `Ready`, for people.
    pub fn text(&self) -> &str {
        match self {
            Self::Settled(_, text)
            | Self::Running(_, text, _)
            | Self::Blocked(_, text, _)
            | Self::Failed(_, text, _)
            | Self::Stalled(_, text) => text,
        }
    }

    /// What triggers the next run. `None` for `Settled`, where only the interval does, and for `Stalled`, where only a change
    /// of the spec does.
    pub fn wake(&self) -> Option<&NextRunTrigger> {
        match self {
            Self::Running(.., wake) | Self::Blocked(.., wake) | Self::Failed(.., wake) => {
                Some(wake)
            }
            Self::Settled(..) | Self::Stalled(..) => None,
        }
    }

    /// True if the cluster matches the desired state.
    pub fn is_settled(&self) -> bool {
        matches!(self, Self::Settled(..))
    }

    /// Whether the outcome lacks a trigger that it needs, so that the object would never run again.
    pub fn has_empty_wake(&self) -> bool {
        self.wake().is_some_and(NextRunTrigger::is_empty)
    }

    /// Fills an empty trigger with a time. Other outcomes stay as they are.
    ///
    /// # Guarantees
    /// `has_empty_wake` is false for the result.
    #[must_use]
    pub fn or_wake(mut self, at: Time) -> Self {
        match &mut self {
            Self::Running(.., wake) | Self::Blocked(.., wake) | Self::Failed(.., wake) => {
                if wake.is_empty() {
                    *wake = NextRunTrigger::at(at);
                }
            }
            Self::Settled(..) | Self::Stalled(..) => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition_reason;

    fn time(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn outcomes(wake: &NextRunTrigger) -> [RunOutcome; 5] {
        let text = String::from("text");
        [
            RunOutcome::Settled(condition_reason::SUCCEEDED, text.clone()),
            RunOutcome::Running(condition_reason::PROGRESSING, text.clone(), wake.clone()),
            RunOutcome::Blocked(condition_reason::DEPENDENCY_NOT_READY, text.clone(), wake.clone()),
            RunOutcome::Failed(condition_reason::BUILD_FAILED, text.clone(), wake.clone()),
            RunOutcome::Stalled(condition_reason::INVALID_PATH, text),
        ]
    }

    #[test]
    fn an_empty_wake_is_found_and_filled_in_every_outcome_that_carries_one() {
        let empty = outcomes(&NextRunTrigger::default());
        assert_eq!(
            empty.each_ref().map(RunOutcome::has_empty_wake),
            [false, true, true, true, false]
        );
        assert_eq!(
            empty.map(|outcome| outcome.or_wake(time(9))),
            outcomes(&NextRunTrigger::at(time(9)))
        );
    }

    #[test]
    fn a_wake_that_is_there_is_not_replaced() {
        for wake in
            [NextRunTrigger::at(time(1)), NextRunTrigger::on([ObjectKey::new("", "Pod", "a", "x")])]
        {
            assert_eq!(outcomes(&wake).map(|outcome| outcome.or_wake(time(9))), outcomes(&wake));
        }
    }

    #[test]
    fn of_two_times_the_earlier_wakes() {
        let wake = NextRunTrigger::on([ObjectKey::new("", "Pod", "a", "x")])
            .and_at(time(5))
            .and_at(time(3));
        assert_eq!(wake.clone().and_at(time(7)).earliest(), Some(time(3)));
        assert_eq!(wake.on.len(), 1);
        assert!(!wake.is_empty() && NextRunTrigger::default().is_empty());
    }

    #[test]
    fn every_outcome_gives_its_reason_and_text() {
        let all = outcomes(&NextRunTrigger::default());
        assert_eq!(
            all.each_ref().map(|outcome| outcome.reason().as_str()),
            ["Succeeded", "Progressing", "DependencyNotReady", "BuildFailed", "InvalidPath"]
        );
        assert!(all.iter().all(|outcome| outcome.text() == "text"));
        assert_eq!(all.map(|outcome| outcome.is_settled()), [true, false, false, false, false]);
    }
}
