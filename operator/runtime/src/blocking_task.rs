//! Work that blocks, off the threads on which runs are polled.
//!
//! Elsewhere: how many runs may do so at a time (`windlass_cluster::run_permits`).

use reconcile::{ConditionReason, NextRunTrigger, RunOutcome};

/// Does something that blocks on a thread of its own; `why` and `what` describe one that panicked.
///
/// # Errors
/// What the work returned, or that its thread panicked.
pub async fn blocking<T: Send + 'static>(
    why: ConditionReason,
    what: &str,
    work: impl FnOnce() -> Result<T, RunOutcome> + Send + 'static,
) -> Result<T, RunOutcome> {
    let broken = |_| {
        RunOutcome::Failed(
            why,
            format!("{what} was interrupted, retrying"),
            NextRunTrigger::default(),
        )
    };
    tokio::task::spawn_blocking(work).await.map_err(broken)?
}
