//! The loop that every kind shares: observe, decide, act, observe again, until there is nothing to do.
//!
//! Here: [`ReconcilePlanner`] (the decision), [`Executor`] (the hands), [`drive`].
//! Elsewhere: each kind's plan (its engine), each kind's executor (the program).

use std::fmt::{self, Debug};

use crate::{NextRunTrigger, RunOutcome, reason};

/// What one observation led to: plain data to print, compare and assert on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanVerdict<S> {
    /// Do these in this order, then observe again. Never empty.
    Act(Vec<S>),
    /// There is nothing to do, for this reason.
    Outcome(RunOutcome),
}

/// A kind that is reconciled. Pure: no client, no clock (the time is in `ObservedState`), no log.
pub trait ReconcilePlanner {
    /// The desired state, complete: the plan reads nothing else.
    type DesiredState: Sync;
    /// What one observation found.
    type ObservedState: Send;
    /// One change of the cluster, as ids and digests: it is kept, compared and printed.
    type PlanStep: Clone + Debug + PartialEq + Send + Sync;

    /// Decides what to do next.
    ///
    /// # Guarantees
    /// Equal arguments give an equal verdict; a state that matches the desired one gives an outcome.
    fn plan(
        desired: &Self::DesiredState,
        observed: &Self::ObservedState,
    ) -> PlanVerdict<Self::PlanStep>;

    /// How many observations one run may take before it is judged to be going in circles; at least one.
    fn rounds(_desired: &Self::DesiredState) -> usize {
        16
    }
}

/// What a step did to one object, in the words of Flux's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AppliedObjectAction {
    /// It did not exist before.
    Created,
    /// It existed and was changed.
    Configured,
    /// It was as wanted.
    Unchanged,
    /// It existed and was deleted.
    Deleted,
    /// It was skipped on purpose.
    Skipped,
    /// The outcome is not known.
    Unknown,
}

impl fmt::Display for AppliedObjectAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
            Self::Skipped => "skipped",
            Self::Unknown => "unknown",
        })
    }
}

/// What observes and changes the cluster for a kind. Faults arrive already judged, as an [`RunOutcome`].
pub trait Executor<K: ReconcilePlanner>: Sync {
    /// Looks. It must see what `perform` did before it: live reads, never a cache that lags.
    fn observe(
        &self,
        desired: &K::DesiredState,
    ) -> impl Future<Output = Result<K::ObservedState, RunOutcome>> + Send;

    /// Does one step.
    ///
    /// `Err` means that the step could not be done, or that the run has to stop here.
    /// A step that was done and turned out badly is `Ok`: the next observation shows how it went.
    fn perform(&self, step: &K::PlanStep) -> impl Future<Output = Result<(), RunOutcome>> + Send;
}

/// Observes, plans and acts, then observes again, until the plan has an outcome.
///
/// Returns the steps that were done, in order, and where the run ended.
///
/// # Guarantees
/// No step is done twice, and there are at most [`ReconcilePlanner::rounds`] observations. A run that would break
/// either ends as `Failed` with [`reason::NO_PROGRESS`] and an empty wake, for the caller to fill.
pub async fn drive<K: ReconcilePlanner>(
    desired: &K::DesiredState,
    executor: &impl Executor<K>,
) -> (Vec<K::PlanStep>, RunOutcome) {
    let mut done = Vec::new();
    let rounds = K::rounds(desired).max(1);
    for _ in 0..rounds {
        let steps = match executor.observe(desired).await.map(|seen| K::plan(desired, &seen)) {
            Ok(PlanVerdict::Act(steps)) => steps,
            Ok(PlanVerdict::Outcome(outcome)) | Err(outcome) => return (done, outcome),
        };
        if steps.is_empty() {
            return (done, no_progress("the plan has no step and no result".into()));
        }
        for step in steps {
            if done.contains(&step) {
                return (done, no_progress(format!("already done in this run: {step:?}")));
            }
            if let Err(outcome) = executor.perform(&step).await {
                return (done, outcome);
            }
            done.push(step);
        }
    }
    (done, no_progress(format!("not settled after {rounds} rounds")))
}

fn no_progress(text: String) -> RunOutcome {
    RunOutcome::Failed(reason::NO_PROGRESS, text, NextRunTrigger::default())
}

#[cfg(test)]
mod tests;
