//! The loop that the reconcilers of all kinds share: observe, plan, perform the steps, and observe again until no step is left.
//!
//! Here: [`ReconcilePlanner`] (decides the steps), [`Executor`] (observes and performs them), [`drive`] (the loop).
//! Elsewhere: the plan of each kind (its engine), the executor of each kind (the program).

use std::fmt::{self, Debug};

use crate::{NextRunTrigger, RunOutcome, condition_reason};

/// The decision after one observation. It is plain data, so that it can be printed, compared and tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannerDecision<S> {
    /// Perform these steps in this order, then observe again. The list is never empty.
    Act(Vec<S>),
    /// There is nothing to do, for this reason.
    Outcome(RunOutcome),
}

/// Decides the steps of a kind that is reconciled. An implementation is pure: it has no client, no log and no clock. The time
/// is in `ObservedState`.
pub trait ReconcilePlanner {
    /// The complete desired state. The plan reads no other desired state.
    type DesiredState: Sync;
    /// The result of one observation.
    type ObservedState: Send;
    /// One change of the cluster. It holds ids and digests only, because steps are stored, compared and printed.
    type PlanStep: Clone + Debug + PartialEq + Send + Sync;

    /// Decides the next steps, or the outcome of the run.
    ///
    /// # Guarantees
    /// Equal arguments give an equal decision. A state that matches the desired state gives an outcome.
    fn plan(
        desired: &Self::DesiredState,
        observed: &Self::ObservedState,
    ) -> PlannerDecision<Self::PlanStep>;

    /// How many observations one run may make, at least one. After that the run counts as an endless loop.
    fn rounds(_desired: &Self::DesiredState) -> usize {
        16
    }
}

/// The action of a step on one object, named as in Flux's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AppliedObjectAction {
    /// The object did not exist before.
    Created,
    /// The object existed and was changed.
    Configured,
    /// The object already had the desired state.
    Unchanged,
    /// The object existed and was deleted.
    Deleted,
    /// The object was skipped on purpose.
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

/// Observes and changes the cluster for one kind. It returns faults as a [`RunOutcome`], which already says how to proceed.
pub trait Executor<K: ReconcilePlanner>: Sync {
    /// Observes the cluster. The result must include the effect of every earlier `perform`, so it is read live and not from a
    /// cache.
    fn observe(
        &self,
        desired: &K::DesiredState,
    ) -> impl Future<Output = Result<K::ObservedState, RunOutcome>> + Send;

    /// Performs one step.
    ///
    /// `Err` means that the step could not be performed, or that the run must stop here. A step that was performed but turned
    /// out badly is `Ok`, because the next observation shows its result.
    fn perform(&self, step: &K::PlanStep) -> impl Future<Output = Result<(), RunOutcome>> + Send;
}

/// Observes, plans and acts, then observes again, until the plan has an outcome.
///
/// Returns the performed steps in order, and the outcome of the run.
///
/// # Guarantees
/// No step is performed twice, and there are at most [`ReconcilePlanner::rounds`] observations. A run that would break either
/// ends as `Failed` with [`condition_reason::NO_PROGRESS`] and an empty wake, for the caller to fill.
pub async fn drive<K: ReconcilePlanner>(
    desired: &K::DesiredState,
    executor: &impl Executor<K>,
) -> (Vec<K::PlanStep>, RunOutcome) {
    let mut done = Vec::new();
    let rounds = K::rounds(desired).max(1);
    for _ in 0..rounds {
        let steps = match executor.observe(desired).await.map(|seen| K::plan(desired, &seen)) {
            Ok(PlannerDecision::Act(steps)) => steps,
            Ok(PlannerDecision::Outcome(outcome)) | Err(outcome) => return (done, outcome),
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
    RunOutcome::Failed(condition_reason::NO_PROGRESS, text, NextRunTrigger::default())
}

#[cfg(test)]
mod tests;
