//! Explains why an object is not ready: a walk from the object that a user asked about to the deepest cause.
//!
//! [`explain`] checks in a fixed order: hold and window, source, dependencies, and the conditions of the object's own
//! run. Then it checks the applied objects, down to Pod, container, exit code and the newest warning event. The walk
//! has no access to a cluster. It returns the facts that it needs ([`FactQuery`]). The caller answers them
//! ([`FactAnswer`]) and calls again, until there is a result ([`StateExplanation`]).
//!
//! * The walk: `cause_walk.rs`, and [`object_references`] with the objects to which an object refers.
//! * Applied objects: `applied_objects.rs`, `workload.rs`, and [`pod`]; objects that another owner took:
//!   `taken_over_objects.rs`, [`object_owners`], [`crd_owners`].
//! * Other causes: second causes (`second_cause.rs`), suspensions (`object_suspension.rs`), undelivered notifications
//!   (`provider_delivery_failure.rs`), and runs in progress (`runs_in_progress.rs`).
//! * Conditions and events: the problem that a reason reports ([`condition_reason`]), and events ([`object_event`]).
//! * The answer: advice (`advice.rs`), the keys that a Secret needs ([`required_secret_keys`]), and the next run
//!   (`next_run.rs`).
//! * Incidents: which failures are one incident ([`incident`]).
//!
//! Elsewhere: reading the facts, and showing the result (the program).

mod advice;
mod cause_result;
mod cause_walk;
mod condition;
pub mod condition_reason;
pub mod crd_owners;
mod fact_query;
mod failing_applied_objects;
pub mod incident;
mod next_run;
pub mod object_event;
pub mod object_owners;
pub mod object_references;
mod object_suspension;
pub mod pod;
mod provider_delivery_failure;
pub mod required_secret_keys;
mod runs_in_progress;
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
pub use fact_query::{FactAnswer, FactAnswers, FactQuery};
pub use object_event::last_seen;
pub use object_suspension::{hold, owners, suspension, unfinished_rollback};
pub use second_cause::warnings;
pub use workload::health_of;

use objects::ObjectId;
use reconcile::Time;

/// Explains the state of an object from the facts that are known so far.
///
/// # Errors
/// The facts that are still missing. The caller adds the answers and calls again. The number of queries is bounded.
pub fn explain(
    subject: &ObjectId,
    known: &FactAnswers,
    now: Time,
) -> Result<StateExplanation, Vec<FactQuery>> {
    cause_walk::CauseWalk::new(known, now).explain(subject)
}
