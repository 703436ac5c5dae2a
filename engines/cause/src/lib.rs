//! Why an object is not ready: the walk from what a person asked about to the deepest cause.
//!
//! [`explain`] walks in one order: hold and window, source, dependencies, what the run itself reports, then the objects that
//! were applied, down to Pod, container, exit and the newest warning event. It has no access to a cluster: it returns
//! the facts that it needs ([`Query`]), gets them ([`FactAnswer`]), and is called again until it has a result
//! ([`Why`]).
//!
//! Here: the walk (`walk.rs`), what was applied (`applied_objects.rs`), workloads (`workload.rs`), Pods ([`pod`]),
//! notifications that fail (`delivery.rs`), what is in progress (`progress.rs`), second causes
//! (`second_cause.rs`), what an object refers to ([`object_references`]), what reasons are about ([`reason`]), which
//! failures are one incident ([`incident`]), suspensions (`hold.rs`), events ([`event`]), what Secrets have to hold
//! (`required_keys.rs`), what would help (`advice.rs`). Elsewhere: fetching facts, and how a result is shown (the
//! program).

mod advice;
mod applied_objects;
mod condition;
mod delivery;
pub mod event;
mod fact;
mod hold;
pub mod incident;
pub mod object_references;
pub mod pod;
mod progress;
pub mod reason;
mod required_keys;
mod result;
mod second_cause;
mod walk;
mod workload;

#[cfg(test)]
mod tests;

pub use condition::{ConditionView, condition, exhausted, since, spec_changed};
pub use event::last_seen;
pub use fact::{FactAnswer, Query, QueryAnswers};
pub use hold::{hold, owners, suspension, unfinished_rollback};
pub use result::{Advice, Cause, CauseStep, Problem, SecondCause, State, Why};
pub use second_cause::warnings;
pub use workload::health_of;

use objects::ObjectId;
use reconcile::Time;

/// Explains the state of an object with what is known.
///
/// # Errors
/// Facts that are missing; the caller adds the answers and calls again. The number of queries is bounded.
pub fn explain(subject: &ObjectId, known: &QueryAnswers, now: Time) -> Result<Why, Vec<Query>> {
    walk::Walk::new(known, now).explain(subject)
}
