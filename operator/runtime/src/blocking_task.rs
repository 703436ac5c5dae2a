//! Work that blocks, off the threads on which runs are polled.
//!
//! Elsewhere: how many runs may do so at a time (`permit`).

use reconcile::{Outcome, Reason, Wake};

/// Does something that blocks on a thread of its own; `why` and `what` describe one that panicked.
///
/// # Errors
/// What the work returned, or that its thread panicked.
pub async fn blocking<T: Send + 'static>(
    why: Reason,
    what: &str,
    work: impl FnOnce() -> Result<T, Outcome> + Send + 'static,
) -> Result<T, Outcome> {
    let broken =
        |_| Outcome::Failed(why, format!("{what} was interrupted, retrying"), Wake::default());
    tokio::task::spawn_blocking(work).await.map_err(broken)?
}
