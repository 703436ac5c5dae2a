//! Conditions of a status as `metav1.Condition`, and the one way to make them.
//!
//! Here: [`StatusCondition`] and [`StatusConditions`], which derives `Ready`, `Reconciling` and `Stalled` from
//! an [`RunOutcome`], so that they are views of one fact and cannot contradict each other.
//! Elsewhere: the status's own `observedGeneration`, writing it, events (the program).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ConditionReason, NextRunTrigger, RunOutcome, Time, reason, time};

/// Type of the condition that sums an object up.
pub const READY: &str = "Ready";
/// Type of the condition that is there, and True, only while work is under way or will be repeated.
pub const RECONCILING: &str = "Reconciling";
/// Type of the condition that is True only while the object needs another spec, and absent otherwise.
pub const STALLED: &str = "Stalled";

/// Type of the condition that is there while an object has windows: True while one is open.
pub const WINDOW: &str = "windlass.dev/Window";
/// Type of the condition that is there while an object is suspended by a hold.
pub const HOLD: &str = "windlass.dev/Hold";
/// Type of the condition that is there, and False, while the schedule that an object names cannot be parsed.
pub const SCHEDULE: &str = "windlass.dev/Schedule";

/// Type of the condition that is there, and True, while a Freeze denies, or while it is not known which Freezes do.
pub const FREEZE: &str = "windlass.dev/Freeze";

/// Type of the condition that is there, and True, while an object stays at the revision that it has, because its wave of a rollout
/// is not open for the newest one.
pub const WAVE: &str = "windlass.dev/Wave";

/// Type of the condition that is there, and True, while something was left out of what was applied, such as fields that are
/// misspelt: its message has a line for each.
pub const WARNINGS: &str = "windlass.dev/Warnings";

/// Type of the condition of an ImageUpdateAutomation that is there, and True, while files and markers have no effect: its message
/// names them.
pub const MARKERS_IGNORED: &str = "MarkersIgnored";

/// Type of the condition of an applier that is there, and True, while objects that left its manifests are not deleted, because a
/// user has to approve that first: for a release, its next operation waits. Its event has the same word as its reason.
pub const DELETION_HELD: &str = "DeletionHeld";

/// The types that [`StatusConditions::marked`] manages.
const MARKS: [&str; 3] = [WINDOW, HOLD, SCHEDULE];

/// A condition about what a person asked for besides the spec; it does not depend on the outcome of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnotationCondition {
    /// [`WINDOW`], [`HOLD`], [`SCHEDULE`] or [`FREEZE`].
    pub kind: &'static str,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, as one word.
    pub reason: ConditionReason,
    /// Why, for people.
    pub text: String,
}

/// The CRDs' limit on a message. It counts characters there; bytes are never fewer.
const MAX_MESSAGE: usize = 32768;

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is being found out.
    Unknown,
}

impl ConditionStatus {
    /// The spelling in Kubernetes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// The status of Kubernetes' text; `None` for any other text.
    pub fn named(text: &str) -> Option<Self> {
        [Self::True, Self::False, Self::Unknown].into_iter().find(|it| it.as_str() == text)
    }
}

/// One condition of a status; its JSON is `metav1.Condition`'s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// Type, such as `Ready`; unique within a status.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Generation of the spec with which the run that set it began; 0 is not written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// When its status, reason or message changed last; written to the second.
    #[serde(with = "time")]
    pub last_transition_time: Time,
    /// One PascalCase word.
    #[serde(default)]
    pub reason: String,
    /// The same for people.
    #[serde(default)]
    pub message: String,
}

impl StatusCondition {
    /// The condition of a type; `None` if a status does not have it.
    pub fn find<'c>(conditions: &'c [Self], kind: &str) -> Option<&'c Self> {
        conditions.iter().find(|condition| condition.kind == kind)
    }

    /// True if a status has a condition of this type and it has this status.
    pub fn is(conditions: &[Self], kind: &str, status: ConditionStatus) -> bool {
        Self::find(conditions, kind).is_some_and(|condition| condition.status == status)
    }
}

fn is_zero(generation: &i64) -> bool {
    *generation == 0
}

/// Builds the conditions of a status. [`finish`](Self::finish) is the way out of a run;
/// [`finish_as_before`](Self::finish_as_before) that of a run that observed nothing new,
/// [`finish_suspended`](Self::finish_suspended) that of an object that is suspended.
///
/// # Guarantees
/// * Exactly one of `Ready`, `Reconciling` and `Stalled` is True, beside `Reconciling` for an action that
///   [`progressing`](Self::progressing) names; of a suspended object at most one is.
/// * A condition with the same status, reason and message as before keeps its transition time.
/// * Conditions of foreign types are carried over untouched.
/// * Every type occurs once, in the order `Stalled`, `Reconciling`, `Ready`, then the rest by name.
#[derive(Debug)]
pub struct StatusConditions<'a> {
    before: &'a [StatusCondition],
    generation: i64,
    now: Time,
    next: BTreeMap<String, StatusCondition>,
    /// What is under way; it does not depend on the outcome.
    progress: Option<&'a str>,
    /// The reason and text of `Ready` for an outcome that is stalled.
    failure: Option<(ConditionReason, &'a str)>,
}

impl<'a> StatusConditions<'a> {
    /// Starts from the conditions that the object has.
    ///
    /// `generation` is that of the object the run started with. `owned` lists the types that this
    /// kind manages: one of them that is neither set nor kept disappears; `Ready`, `Reconciling`
    /// and `Stalled` are always ours. All other types are carried over.
    pub fn since(
        before: &'a [StatusCondition],
        generation: i64,
        now: Time,
        owned: &[&str],
    ) -> Self {
        let foreign = before.iter().rev().filter(|condition| {
            !is_derived(&condition.kind) && !owned.contains(&condition.kind.as_str())
        });
        let next = foreign.map(|condition| (condition.kind.clone(), condition.clone())).collect();
        let now = time::whole_seconds(now);
        Self { before, generation, now, next, progress: None, failure: None }
    }

    /// Sets a condition of the kind's own, such as `Healthy`.
    ///
    /// `Ready`, `Reconciling` and `Stalled` come from the outcome alone: setting one here is a mistake
    /// that debug builds refuse and others ignore.
    #[must_use]
    pub fn set(
        self,
        kind: &str,
        status: ConditionStatus,
        why: ConditionReason,
        text: &str,
    ) -> Self {
        debug_assert!(!is_derived(kind), "{kind} is derived from the rest");
        if is_derived(kind) { self } else { self.put(kind, status, why, text) }
    }

    /// Like [`Self::set`], for a condition that begins anew with each generation, such as a wait: the transition time of
    /// another generation is not kept, even if the text is the same.
    #[must_use]
    pub fn begin(
        mut self,
        kind: &str,
        status: ConditionStatus,
        why: ConditionReason,
        text: &str,
    ) -> Self {
        let is_older = StatusCondition::find(self.before, kind)
            .is_some_and(|was| was.observed_generation != self.generation);
        self = self.set(kind, status, why, text);
        let now = self.now;
        if let Some(condition) = self.next.get_mut(kind).filter(|_| is_older && !is_derived(kind)) {
            condition.last_transition_time = now;
        }
        self
    }

    /// Carries an owned condition over as it was, if it was there.
    #[must_use]
    pub fn keep(mut self, kind: &str) -> Self {
        debug_assert!(!is_derived(kind), "{kind} is derived from the rest");
        if let Some(condition) = StatusCondition::find(self.before, kind)
            && !is_derived(kind)
        {
            self.next.insert(kind.to_owned(), condition.clone());
        }
        self
    }

    /// Replaces the conditions about windows, holds and schedules; without this call they are carried over.
    #[must_use]
    pub fn marked(mut self, marks: &[AnnotationCondition]) -> Self {
        self.next.retain(|kind, _| !MARKS.contains(&kind.as_str()));
        marks
            .iter()
            .filter(|mark| MARKS.contains(&mark.kind))
            .fold(self, |it, mark| it.put(mark.kind, mark.status, mark.reason, &mark.text))
    }

    /// The condition about Freezes; without one it disappears.
    #[must_use]
    pub fn frozen(mut self, mark: Option<&AnnotationCondition>) -> Self {
        self.next.remove(FREEZE);
        match mark {
            Some(mark) => self.put(FREEZE, mark.status, mark.reason, &mark.text),
            None => self,
        }
    }

    /// Names an action that is under way: `Reconciling` is set and says so, also while `Ready` still reports the state
    /// before it.
    #[must_use]
    pub fn progressing(self, text: Option<&'a str>) -> Self {
        Self { progress: text, ..self }
    }

    /// Keeps reason and text of a failure in `Ready` when the outcome is that it is not retried, which `Stalled`
    /// reports.
    #[must_use]
    pub fn failing(self, failure: Option<(ConditionReason, &'a str)>) -> Self {
        Self { failure, ..self }
    }

    /// The conditions when nothing was run: `Ready`, `Reconciling` and `Stalled` stay as they were.
    ///
    /// `None` if no other condition has changed either, so that there is nothing to write.
    pub fn finish_as_before(mut self) -> Option<Vec<StatusCondition>> {
        for condition in self.before.iter().rev().filter(|it| is_derived(&it.kind)) {
            self.next.insert(condition.kind.clone(), condition.clone());
        }
        self.with_progress().changed()
    }

    /// The conditions of an object that is suspended: nothing is under way, so that `Reconciling` goes, and neither
    /// `Ready` nor an owned condition waits to be known. A `Ready` that was Unknown is False from here on, with `text`.
    ///
    /// Owned conditions that are True or False are kept. `None` if there is nothing to write.
    pub fn finish_suspended(mut self, text: &str) -> Option<Vec<StatusCondition>> {
        let stays = |it: &&StatusCondition| {
            it.kind != RECONCILING
                && it.status != ConditionStatus::Unknown
                && !MARKS.contains(&it.kind.as_str())
        };
        for was in self.before.iter().filter(stays) {
            self.next.entry(was.kind.clone()).or_insert_with(|| was.clone());
        }
        if StatusCondition::is(self.before, READY, ConditionStatus::Unknown) {
            self = self.put(READY, ConditionStatus::False, reason::SUSPENDED, text);
        }
        self.changed()
    }

    /// All conditions in order, unless they are what they were.
    fn changed(self) -> Option<Vec<StatusCondition>> {
        let is_same = self.next.len() == self.before.len()
            && self.before.iter().all(|was| self.next.get(&was.kind) == Some(was));
        if is_same { None } else { Some(self.in_order()) }
    }

    /// Derives `Ready`, `Reconciling` and `Stalled`, and returns all conditions in order.
    pub fn finish(self, outcome: &RunOutcome) -> Vec<StatusCondition> {
        use reason::{PROGRESSING, PROGRESSING_WITH_RETRY};
        let why = outcome.reason();
        let text = outcome.text();
        let (ready, summed) = match outcome {
            RunOutcome::Settled(..) => (ConditionStatus::True, self),
            // Differs(flux): Flux's `Ready` is "Reconciliation in progress" meanwhile; here its message names what is
            // in progress, because `Ready` is the one condition that listings show.
            RunOutcome::Running(..) => (
                ConditionStatus::Unknown,
                self.put(RECONCILING, ConditionStatus::True, PROGRESSING, text),
            ),
            RunOutcome::Blocked(..) | RunOutcome::Failed(..) => (
                ConditionStatus::False,
                self.put(RECONCILING, ConditionStatus::True, PROGRESSING_WITH_RETRY, text),
            ),
            RunOutcome::Stalled(..) => {
                (ConditionStatus::False, self.put(STALLED, ConditionStatus::True, why, text))
            }
        };
        let (why, text) = match (outcome, summed.failure) {
            (RunOutcome::Stalled(..), Some(failure)) => failure,
            _ => (why, text),
        };
        summed.put(READY, ready, why, text).with_progress().in_order()
    }

    /// An action that is under way is neither stalled nor over.
    fn with_progress(mut self) -> Self {
        let Some(text) = self.progress else { return self };
        self.next.remove(STALLED);
        self.put(RECONCILING, ConditionStatus::True, reason::PROGRESSING, text)
    }

    fn in_order(self) -> Vec<StatusCondition> {
        let mut all: Vec<_> = self.next.into_values().collect();
        // The sort is stable, so types of equal rank stay in the map's order, by name.
        all.sort_by_key(|condition| match condition.kind.as_str() {
            STALLED => 0,
            RECONCILING => 1,
            READY => 2,
            _ => 3,
        });
        all
    }

    /// The conditions to write before a step that takes long: what is about to be done.
    pub fn finish_progress(self, why: ConditionReason, text: &str) -> Vec<StatusCondition> {
        self.finish(&RunOutcome::Running(why, text.to_owned(), NextRunTrigger::default()))
    }

    fn put(
        mut self,
        kind: &str,
        status: ConditionStatus,
        why: ConditionReason,
        text: &str,
    ) -> Self {
        let message = within_limit(text);
        let last_transition_time = StatusCondition::find(self.before, kind)
            // Parity(flux): a change of reason or message is a transition too, not of status alone.
            .filter(|was| {
                was.status == status && was.reason == why.as_str() && was.message == message
            })
            .map_or(self.now, |was| was.last_transition_time);
        let condition = StatusCondition {
            kind: kind.to_owned(),
            status,
            observed_generation: self.generation,
            last_transition_time,
            reason: why.as_str().to_owned(),
            message,
        };
        self.next.insert(kind.to_owned(), condition);
        self
    }
}

fn is_derived(kind: &str) -> bool {
    matches!(kind, READY | RECONCILING | STALLED)
}

/// Cuts a text that is too long for a message, and marks the cut.
fn within_limit(text: &str) -> String {
    const CUT: &str = "…";
    if text.len() <= MAX_MESSAGE {
        return text.to_owned();
    }
    format!("{}{CUT}", &text[..text.floor_char_boundary(MAX_MESSAGE - CUT.len())])
}

#[cfg(test)]
mod tests;
