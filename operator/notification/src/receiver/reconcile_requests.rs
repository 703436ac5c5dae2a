//! Requests reconciliations on behalf of webhooks. Webhooks come in bursts, so one annotation counts for all requests before
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use notify::receivers::AnnotationTarget;
use objects::Gvk;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::delivery::CONTROLLER;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::controller_kind::REQUESTED_AT;

/// The shortest time between two annotations of an object. It is short enough for a user who waits for a push.
const MIN_ANNOTATION_INTERVAL: Duration = Duration::from_millis(500);

/// Limits how often each object is annotated. A request that comes during an annotation waits. If another annotation begins
/// after it came, it needs none of its own.
pub(super) struct ReconcileRequestThrottle {
    turns: Mutex<BTreeMap<AnnotationTarget, Arc<AnnotationTurn>>>,
    gap: Duration,
}

type AnnotationTurn = tokio::sync::Mutex<Option<Instant>>;

impl Default for ReconcileRequestThrottle {
    fn default() -> Self {
        Self { turns: Mutex::default(), gap: MIN_ANNOTATION_INTERVAL }
    }
}

impl ReconcileRequestThrottle {
    fn turn(&self, target: &AnnotationTarget) -> Arc<AnnotationTurn> {
        let mut all = self.turns.lock();
        // A request that waits for a turn holds it.
        all.retain(|known, turn| {
            let is_old =
                || turn.try_lock().is_ok_and(|at| at.is_none_or(|at| at.elapsed() > self.gap));
            known == target || Arc::strong_count(turn) > 1 || !is_old()
        });
        all.entry(target.clone()).or_default().clone()
    }

    /// Requests a reconciliation of an object with `annotate`, for a webhook that came at a given time. If another annotation
    /// came after that time, nothing is done.
    ///
    /// # Errors
    /// The error of `annotate`. The next waiting request tries again.
    async fn wake<F>(
        &self,
        target: &AnnotationTarget,
        came: Instant,
        annotate: impl FnOnce() -> F,
    ) -> Result<(), ClusterError>
    where
        F: Future<Output = Result<(), ClusterError>>,
    {
        let turn = self.turn(target);
        let mut last = turn.lock().await;
        if let Some(at) = *last {
            if at > came {
                return Ok(());
            }
            tokio::time::sleep_until(at + self.gap).await;
        }
        let began = Instant::now();
        annotate().await?;
        *last = Some(began);
        Ok(())
    }

    /// Requests a reconciliation of an object for a webhook that came at the given time.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub(super) async fn request(
        &self,
        cluster: &ClusterConnection,
        target: &AnnotationTarget,
        came: Instant,
    ) -> Result<(), ClusterError> {
        let annotate = || async {
            let resource = cluster.resource(&Gvk::new(&target.api_version, &target.kind)).await?;
            let now = jiff::Timestamp::now().to_string();
            let patch = json!({"metadata": {"annotations": {REQUESTED_AT: now}}});
            let AnnotationTarget { namespace, name, .. } = target;
            cluster.merge_patch(&resource, namespace, name, &patch, CONTROLLER).await.map(drop)
        };
        self.wake(target, came, annotate).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn wakes(gap: Duration) -> ReconcileRequestThrottle {
        ReconcileRequestThrottle { gap, ..ReconcileRequestThrottle::default() }
    }

    fn target(name: &str) -> AnnotationTarget {
        AnnotationTarget {
            api_version: "source.toolkit.fluxcd.io/v1".to_owned(),
            kind: "GitRepository".to_owned(),
            namespace: "apps".to_owned(),
            name: name.to_owned(),
        }
    }

    #[tokio::test]
    async fn a_burst_is_annotated_once_and_another_object_has_its_own_turn() {
        let wakes = wakes(Duration::from_millis(20));
        let count = AtomicUsize::new(0);
        let annotate = || async {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(())
        };
        let one = target("one");
        let other = target("other");
        let came = Instant::now();
        let burst = futures::future::join_all((0..100).map(|_| wakes.wake(&one, came, annotate)));
        let (burst, alone) = tokio::join!(burst, wakes.wake(&other, came, annotate));
        assert!(burst.iter().all(Result::is_ok) && alone.is_ok());
        assert_eq!(count.load(Ordering::SeqCst), 2);
        // What comes after an annotation began is not in it.
        assert!(wakes.wake(&one, Instant::now(), annotate).await.is_ok());
        assert_eq!(count.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn what_failed_is_tried_by_the_next() {
        let wakes = wakes(Duration::ZERO);
        let failed = || async { Err(ClusterError::NoAnswer("gone".to_owned())) };
        assert!(wakes.wake(&target("one"), Instant::now(), failed).await.is_err());
        let count = AtomicUsize::new(0);
        let annotate = || async {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        assert!(wakes.wake(&target("one"), Instant::now(), annotate).await.is_ok());
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn objects_without_further_requests_are_forgotten() {
        let wakes = wakes(Duration::ZERO);
        for at in 0..10 {
            let done = || async { Ok(()) };
            wakes.wake(&target(&at.to_string()), Instant::now(), done).await.unwrap();
        }
        assert_eq!(wakes.turns.lock().len(), 1);
    }
}
