//! Why an object is not ready: the walk from what a person asked about to the deepest cause.
//!
//! [`explain`] walks in one order: hold and window, source, dependencies, what the run itself reports, then the objects that
//! were applied, down to Pod, container, exit and the newest warning event. It has no access to a cluster: it returns
//! the facts that it needs ([`FactQuery`]), gets them ([`FactAnswer`]), and is called again until it has a result
//! ([`StateExplanation`]).
//!
//! Here: the walk (`cause_walk.rs`), what was applied (`applied_objects.rs`), what of it another owner has
//! (`taken_over_objects.rs`, [`object_owners`]), who has a definition ([`crd_owners`]), workloads (`workload.rs`),
//! Pods ([`pod`]), notifications that fail (`provider_delivery.rs`), what is in progress (`rollout_progress.rs`),
//! what happens next (`next_run.rs`), second causes (`second_cause.rs`), what an object refers to
//! ([`object_references`]), what reasons are about ([`condition_reason`]), which failures are one incident
//! ([`incident`]), suspensions (`object_suspension.rs`), events ([`object_event`]), what Secrets have to hold
//! ([`required_keys`]), what would help (`advice.rs`). Elsewhere: fetching facts, and how a result is shown (the program).

mod advice;
mod applied_objects;
mod cause_result;
mod cause_walk;
mod condition;
pub mod condition_reason;
pub mod crd_owners;
mod fact_query;
pub mod incident;
mod next_run;
pub mod object_event;
pub mod object_owners;
pub mod object_references;
mod object_suspension;
pub mod pod;
mod provider_delivery;
pub mod required_keys;
mod rollout_progress;
mod second_cause;
mod taken_over_objects;
mod workload;

#[cfg(test)]
mod tests;

pub use cause_result::{
    CauseAdvice, CauseKind, CauseStep, ExaminedObjectState, RootCause, SecondCause,
    StateExplanation,
};
pub use condition::{ConditionView, condition, exhausted, since, spec_changed};
pub use fact_query::{FactAnswer, FactQuery, QueryAnswers};
pub use object_event::last_seen;
pub use object_suspension::{hold, owners, suspension, unfinished_rollback};
pub use second_cause::warnings;
pub use workload::health_of;

use objects::ObjectId;
use reconcile::Time;

/// Explains the state of an object with what is known.
///
/// # Errors
/// Facts that are missing; the caller adds the answers and calls again. The number of queries is bounded.
pub fn explain(
    subject: &ObjectId,
    known: &QueryAnswers,
    now: Time,
) -> Result<StateExplanation, Vec<FactQuery>> {
    cause_walk::CauseWalk::new(known, now).explain(subject)
}
