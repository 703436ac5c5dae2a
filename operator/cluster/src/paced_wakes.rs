//! Wakes many objects a few at a time, so that a change that comes meanwhile has few runs before it.
//!
//! Elsewhere: the queue itself (`work_queue`), and which objects wait for others after a start
//! (`windlass_runtime::object_run`).

use std::time::Duration;

use reconcile::ObjectKey;

use crate::metrics::WakeReason;
use crate::work_queue::WorkQueue;

/// How many objects are woken per second at most. This many or fewer are woken at once.
const MAX_WAKES_PER_SECOND: usize = 100;

/// How many objects are woken at a time.
const WAKES_AT_ONCE: usize = 25;

/// The time after which the next ones are woken.
const WAKE_PERIOD: Duration = Duration::from_millis(250);

/// How many more periods the next ones wait while most of these have not had their run. Runs for a cluster that does not respond
/// take long, and must not delay all others.
const MAX_WAITED_PERIODS: usize = 3;

impl WorkQueue {
    /// Wakes objects whose runs are not urgent: at most 100 per second, and as few as 25 per second while their runs take longer.
    /// Up to 100 objects are woken at once.
    pub async fn wake_paced(&self, nodes: &[ObjectKey], why: WakeReason) {
        let is_few = nodes.len() <= MAX_WAKES_PER_SECOND;
        for some in nodes.chunks(if is_few { MAX_WAKES_PER_SECOND } else { WAKES_AT_ONCE }) {
            for node in some {
                self.wake(node, why);
            }
            if is_few {
                return;
            }
            tokio::time::sleep(WAKE_PERIOD).await;
            for _ in 0..MAX_WAITED_PERIODS {
                if !self.are_mostly_due(some) {
                    break;
                }
                tokio::time::sleep(WAKE_PERIOD).await;
            }
        }
    }

    /// Whether more than half of these objects are queued or run.
    fn are_mostly_due(&self, nodes: &[ObjectKey]) -> bool {
        nodes.iter().filter(|node| self.is_due(node)).count() > nodes.len() / 2
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::metrics::MetricsRegistry;

    fn nodes(count: usize) -> Vec<ObjectKey> {
        (0..count).map(|at| ObjectKey::new("g", "Kustomization", "shop", &at.to_string())).collect()
    }

    #[tokio::test]
    async fn a_few_objects_are_woken_at_once_and_many_in_parts() {
        let work_queue = Arc::new(WorkQueue::new(MetricsRegistry::new()));
        let mut woken = work_queue.open(["g", "Kustomization"]);
        work_queue.wake_paced(&nodes(MAX_WAKES_PER_SECOND), WakeReason::Spec).await;
        assert_eq!(std::iter::from_fn(|| woken.try_recv().ok()).count(), MAX_WAKES_PER_SECOND);
        let waking = tokio::spawn({
            let work_queue = work_queue.clone();
            async move {
                work_queue.wake_paced(&nodes(MAX_WAKES_PER_SECOND + 1), WakeReason::Spec).await;
            }
        });
        let first = woken.recv().await;
        assert_eq!(first.as_ref(), nodes(1).first());
        let rest = std::iter::from_fn(|| woken.try_recv().ok()).count();
        assert_eq!(rest + 1, WAKES_AT_ONCE);
        waking.abort();
    }

    #[test]
    fn the_next_objects_wait_while_more_than_half_have_had_no_run() {
        let work_queue = WorkQueue::new(MetricsRegistry::new());
        let _woken = work_queue.open(["g", "Kustomization"]);
        let nodes = nodes(4);
        assert!(!work_queue.are_mostly_due(&nodes));
        for node in &nodes {
            work_queue.wake(node, WakeReason::Spec);
        }
        work_queue.run_begins(&nodes[0]);
        assert!(work_queue.are_mostly_due(&nodes), "a run is not over");
        work_queue.run_ends(&nodes[0]);
        assert!(work_queue.are_mostly_due(&nodes));
        work_queue.leaves_queue(&nodes[1]);
        assert!(!work_queue.are_mostly_due(&nodes));
    }
}
