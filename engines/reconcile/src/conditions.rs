//! The conditions in a status, in the form of Kubernetes' `metav1.Condition`. All conditions are made here.
//!
//! Here: [`StatusCondition`], and [`StatusConditions`], which derives `Ready`, `Reconciling` and `Stalled` from one
//! [`RunOutcome`]. Because all three have one source, they cannot contradict each other.
//! Elsewhere: the status's own `observedGeneration`, writing the status, events (the program).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ConditionReason, NextRunTrigger, RunOutcome, Time, condition_reason, time};

/// Type of the condition that sums an object up.
pub const READY: &str = "Ready";
/// Type of the condition about work in progress. It is True while work is in progress or will be retried. At other times the
/// object does not have the condition.
pub const RECONCILING: &str = "Reconciling";
/// Type of the condition that is True only while the object needs another spec, and absent otherwise.
pub const STALLED: &str = "Stalled";

/// Type of the condition about change windows. An object with windows has it; it is True while a window is open.
pub const WINDOW: &str = "windlass.dev/Window";
/// Type of the condition about holds. An object has it while a hold suspends the object.
pub const HOLD: &str = "windlass.dev/Hold";
/// Type of the condition about schedules. It is False while the schedule of an object cannot be parsed. At other times the
/// object does not have the condition.
pub const SCHEDULE: &str = "windlass.dev/Schedule";

/// Type of the condition about Freezes. It is True while a Freeze denies changes, or while it is unknown which Freezes do. At
/// other times the object does not have the condition.
pub const FREEZE: &str = "windlass.dev/Freeze";

/// Type of the condition about waves. It is True while an object stays at its present revision because its wave of a rollout is
/// not open for the newest revision. At other times the object does not have the condition.
pub const WAVE: &str = "windlass.dev/Wave";

/// Type of the condition about omissions. It is True while windlass left something out of what it applied, such as misspelt
/// fields. Its message has one line for each omission. At other times the object does not have the condition.
pub const WARNINGS: &str = "windlass.dev/Warnings";

/// Type of a condition of an ImageUpdateAutomation. It is True while some files or markers have no effect, and its message
/// names them. At other times the object does not have the condition.
pub const MARKERS_IGNORED: &str = "MarkersIgnored";

/// Type of the condition about held deletions. It is True while objects that left the manifests are kept, because a user has to
/// approve their deletion first. A release starts no operation until then. The event's reason is the same word.
pub const DELETION_HELD: &str = "DeletionHeld";

/// The types that [`StatusConditions::marked`] manages.
const MARKS: [&str; 3] = [WINDOW, HOLD, SCHEDULE];

/// A condition about an annotation with which a user asks for something. It does not depend on the outcome of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnotationCondition {
    /// [`WINDOW`], [`HOLD`], [`SCHEDULE`] or [`FREEZE`].
    pub kind: &'static str,
    /// The status of the condition.
    pub status: ConditionStatus,
    /// The reason of the condition, as one word.
    pub reason: ConditionReason,
    /// The message of the condition, for users.
    pub text: String,
}

/// The longest message that the CRDs allow. The CRDs count characters and windlass counts bytes, which are never fewer.
const MAX_MESSAGE: usize = 32768;

/// Whether a condition of an object holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// It is not known yet whether the condition holds.
    Unknown,
}

impl ConditionStatus {
    /// The spelling of this status in Kubernetes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// Reads a condition status from its text in Kubernetes, such as `True`; `None` for any other text.
    pub fn named(text: &str) -> Option<Self> {
        [Self::True, Self::False, Self::Unknown].into_iter().find(|it| it.as_str() == text)
    }
}

/// One condition of a status. Its JSON form is that of `metav1.Condition`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// Type, such as `Ready`. A status has one condition of each type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status of the condition.
    pub status: ConditionStatus,
    /// The generation of the spec for which a run set this condition. The value 0 is not written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// When the status, reason or message of the condition changed last, in whole seconds.
    #[serde(with = "time")]
    pub last_transition_time: Time,
    /// One PascalCase word.
    #[serde(default)]
    pub reason: String,
    /// The explanation for users.
    #[serde(default)]
    pub message: String,
}

impl StatusCondition {
    /// Finds the condition of a type; `None` if the status does not have it.
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

/// Builds the conditions of a status. A run ends with [`finish`](Self::finish). A run that observed nothing new ends with
/// [`finish_as_before`](Self::finish_as_before), and that of a suspended object with
/// [`finish_suspended`](Self::finish_suspended).
///
/// # Guarantees
/// * Exactly one of `Ready`, `Reconciling` and `Stalled` is True. An action named with [`progressing`](Self::progressing) adds
///   a `Reconciling` that is True. A suspended object has at most one that is True.
/// * A condition whose status, reason and message did not change keeps its transition time.
/// * Conditions of other controllers' types are carried over untouched.
/// * Every type occurs once, in the order `Stalled`, `Reconciling`, `Ready`, then the rest by name.
#[derive(Debug)]
pub struct StatusConditions<'a> {
    before: &'a [StatusCondition],
    generation: i64,
    now: Time,
    next: BTreeMap<String, StatusCondition>,
    /// The action that is under way. It does not depend on the outcome.
    progress: Option<&'a str>,
    /// The reason and text of `Ready` for an outcome that is stalled.
    failure: Option<(ConditionReason, &'a str)>,
}

impl<'a> StatusConditions<'a> {
    /// Starts from the conditions that the object has.
    ///
    /// `generation` is the generation of the object at the start of the run. `owned` lists the condition types that this kind
    /// manages. A condition of an owned type disappears unless it is set or kept. `Ready`, `Reconciling` and `Stalled` are
    /// always owned, and all other types are carried over.
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

    /// Sets a condition that belongs to the kind, such as `Healthy`.
    ///
    /// `Ready`, `Reconciling` and `Stalled` are derived from the outcome alone. Setting one of them here is a mistake: debug
    /// builds panic, and other builds ignore it.
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

    /// Like [`Self::set`], for a condition that starts anew with each generation, such as a wait. If the generation changed,
    /// the condition gets a new transition time even if its text is the same.
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

    /// Carries an owned condition over unchanged, if the object has it.
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

    /// Replaces the conditions about windows, holds and schedules. Without this call those conditions are carried over.
    #[must_use]
    pub fn marked(mut self, marks: &[AnnotationCondition]) -> Self {
        self.next.retain(|kind, _| !MARKS.contains(&kind.as_str()));
        marks
            .iter()
            .filter(|mark| MARKS.contains(&mark.kind))
            .fold(self, |it, mark| it.put(mark.kind, mark.status, mark.reason, &mark.text))
    }

    /// Sets the condition about Freezes. With `None` the condition is removed.
    #[must_use]
    pub fn frozen(mut self, mark: Option<&AnnotationCondition>) -> Self {
        self.next.remove(FREEZE);
        match mark {
            Some(mark) => self.put(FREEZE, mark.status, mark.reason, &mark.text),
            None => self,
        }
    }

    /// Names an action that is under way. `Reconciling` becomes True and names the action, even while `Ready` still reports the
    /// state before the action.
    #[must_use]
    pub fn progressing(self, text: Option<&'a str>) -> Self {
        Self { progress: text, ..self }
    }

    /// Sets a failure whose reason and text `Ready` keeps if the outcome is [`RunOutcome::Stalled`]. `Stalled` then says that
    /// it is not retried.
    #[must_use]
    pub fn failing(self, failure: Option<(ConditionReason, &'a str)>) -> Self {
        Self { failure, ..self }
    }

    /// The conditions after a run that did nothing. `Ready`, `Reconciling` and `Stalled` stay as they were.
    ///
    /// `None` if no other condition has changed either, because the status need not be written then.
    pub fn finish_as_before(mut self) -> Option<Vec<StatusCondition>> {
        for condition in self.before.iter().rev().filter(|it| is_derived(&it.kind)) {
            self.next.insert(condition.kind.clone(), condition.clone());
        }
        self.with_progress().changed()
    }

    /// The conditions of a suspended object. `Reconciling` is removed, because nothing is under way. A `Ready` that was Unknown
    /// becomes False with the message `text`, and owned conditions that were Unknown are removed.
    ///
    /// Owned conditions that are True or False are kept. `None` if the conditions did not change.
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
            self = self.put(READY, ConditionStatus::False, condition_reason::SUSPENDED, text);
        }
        self.changed()
    }

    /// All conditions in their order; `None` if they did not change.
    fn changed(self) -> Option<Vec<StatusCondition>> {
        let is_same = self.next.len() == self.before.len()
            && self.before.iter().all(|was| self.next.get(&was.kind) == Some(was));
        if is_same { None } else { Some(self.in_order()) }
    }

    /// Derives `Ready`, `Reconciling` and `Stalled`, and returns all conditions in order.
    pub fn finish(self, outcome: &RunOutcome) -> Vec<StatusCondition> {
        use condition_reason::{PROGRESSING, PROGRESSING_WITH_RETRY};
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

    /// Adds a True `Reconciling` while an action is under way, because the object is then neither stalled nor finished.
    fn with_progress(mut self) -> Self {
        let Some(text) = self.progress else { return self };
        self.next.remove(STALLED);
        self.put(RECONCILING, ConditionStatus::True, condition_reason::PROGRESSING, text)
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

    /// The conditions to write before a long step. `text` says which step is about to begin.
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
