//! Runs blocking work on its own threads, so that it does not block the async threads.
//!
//! Elsewhere: how many runs may do that at once (`windlass_cluster::run_permits`).

use reconcile::{ConditionReason, NextRunTrigger, RunOutcome};

/// Runs blocking work on a thread of its own. `why` and `what` describe the work in the error if it panics.
///
/// # Errors
/// The error of the work, or an outcome that says that its thread panicked.
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
