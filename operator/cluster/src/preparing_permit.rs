//! The permit under which a run prepares. With it, the run reads the objects that its spec names and builds the desired state.
//!
//! Each cluster has only a few of these permits. They bound the memory for Secrets, ConfigMaps, values and builds, however
//! many objects wake at once. Elsewhere: the queue, which is fair by namespace ([`super::run_permits`]), and the runs that
//! take these permits (crate `windlass-runtime`).

use std::sync::Arc;

use parking_lot::Mutex;

use super::run_permits::{PermitPriority, RunPermit, RunPermits};

/// The preparing permit of one run. Clones share it, so that any part of the run may give it back.
#[derive(Debug, Clone, Default)]
pub struct PreparingPermit(Arc<Mutex<Option<RunPermit>>>);

impl PreparingPermit {
    /// Waits in the queue of a namespace for a permit. Returns at once if the run already holds one.
    pub async fn acquire(&self, permits: &RunPermits, priority: PermitPriority, namespace: &str) {
        if self.0.lock().is_some() {
            return;
        }
        let permit = permits.run_permit_in(priority, namespace).await;
        *self.0.lock() = Some(permit);
    }

    /// Gives the permit back for the rest of the run. Other permits, such as those for applying, bound the later steps.
    pub fn end(&self) {
        let permit = self.0.lock().take();
        drop(permit);
    }

    /// Waits for another server without the permit, and takes a permit again before it returns. A run without a permit only
    /// waits.
    pub async fn aside<T>(&self, wait: impl Future<Output = T>) -> T {
        let permit = self.0.lock().clone();
        match permit {
            Some(permit) => permit.aside(wait).await,
            None => wait.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_run_holds_one_permit_until_any_part_of_it_gives_that_back() {
        let permits = RunPermits::new(1);
        let one = PreparingPermit::default();
        one.acquire(&permits, PermitPriority::New, "shop").await;
        one.acquire(&permits, PermitPriority::New, "shop").await;
        assert_eq!(permits.free(), 0, "the second call takes no second permit");
        let other = PreparingPermit::default();
        let mut waiting = Box::pin(other.acquire(&permits, PermitPriority::New, "shop"));
        assert!((&mut waiting).now_or_never().is_none());
        one.clone().end();
        waiting.await;
        assert_eq!(permits.free(), 0, "it went to the run that waited");
        drop(other);
        assert_eq!(permits.free(), 1);
    }

    #[tokio::test]
    async fn a_run_that_waits_for_a_server_lets_others_prepare() {
        let permits = RunPermits::new(1);
        let one = PreparingPermit::default();
        one.acquire(&permits, PermitPriority::New, "shop").await;
        let free = one.aside(async { permits.free() }).await;
        assert_eq!((free, permits.free()), (1, 0));
        one.end();
        assert_eq!(one.aside(async { permits.free() }).await, 1, "without a permit it just waits");
    }
}
