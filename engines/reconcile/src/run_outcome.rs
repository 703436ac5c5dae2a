//! Where a run ends and what starts the next one.
//!
//! Here: [`RunOutcome`], [`NextRunTrigger`]. Elsewhere: the loop that arrives at an outcome (`reconcile_loop.rs`),
//! what users see of it (`conditions.rs`), timers and watches that carry out a wake (the program).

use std::collections::BTreeSet;

use crate::{ConditionReason, ObjectKey, Time};

/// What makes a node run again: a time, a change of some nodes, or whichever comes first.
///
/// An empty one would never fire. Engines that do not know the time may leave it empty;
/// [`RunOutcome::or_wake`] fills it at the edge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextRunTrigger {
    /// Run again at this time at the latest.
    pub at: Option<Time>,
    /// Run again when one of these changes.
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

    /// This trigger, which also fires at a time; of two times the earlier counts.
    #[must_use]
    pub fn and_at(self, time: Time) -> Self {
        Self { at: Some(self.at.map_or(time, |at| at.min(time))), ..self }
    }

    /// The time after which the node runs even if nothing it waits for has changed; `None` if there is none.
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
    /// Work is under way in the cluster, such as a rollout; nothing failed.
    Running(ConditionReason, String, NextRunTrigger),
    /// Another object must change first, such as a dependency or a source.
    Blocked(ConditionReason, String, NextRunTrigger),
    /// An attempt failed and will be repeated.
    Failed(ConditionReason, String, NextRunTrigger),
    /// Only a change of spec can help.
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

    /// What triggers the next run; `None` where only the interval (`Settled`) or the spec (`Stalled`) does.
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

    /// True if this outcome needs a wake and has none, so that its node would sleep for ever.
    pub fn has_empty_wake(&self) -> bool {
        self.wake().is_some_and(NextRunTrigger::is_empty)
    }

    /// Fills an empty wake with a time; any other outcome stays as it is.
    ///
    /// # Guarantees
    /// `has_empty_wake` is false of the result.
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
    use crate::reason;

    fn time(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn outcomes(wake: &NextRunTrigger) -> [RunOutcome; 5] {
        let text = String::from("text");
        [
            RunOutcome::Settled(reason::SUCCEEDED, text.clone()),
            RunOutcome::Running(reason::PROGRESSING, text.clone(), wake.clone()),
            RunOutcome::Blocked(reason::DEPENDENCY_NOT_READY, text.clone(), wake.clone()),
            RunOutcome::Failed(reason::BUILD_FAILED, text.clone(), wake.clone()),
            RunOutcome::Stalled(reason::INVALID_PATH, text),
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
