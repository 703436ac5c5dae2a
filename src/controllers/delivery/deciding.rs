//! A queue of decisions for each namespace with Alerts, so that patterns of one that take long delay no other.
//!
//! Elsewhere: the decision (`dispatch`), the threads on which it is made (`controllers::expressions`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crds::notification::Alert;
use futures::future::join_all;
use tokio::sync::{mpsc, oneshot};

use super::Delivery;
use crate::metrics::NotificationOutcome;

/// How many events wait at most for the decisions of a namespace.
const WAITING: usize = 1_000;

/// How long the next event waits for decisions about this one.
const PATIENCE: Duration = Duration::from_secs(1);

/// An event, and the Alerts of the namespace that may want it.
struct Job {
    event: Arc<notify::Event>,
    alerts: Vec<Arc<Alert>>,
    /// Dropped once it is decided.
    _done: oneshot::Sender<()>,
}

struct Queue {
    way: mpsc::Sender<Job>,
    /// Jobs that are not decided yet.
    under_way: Arc<AtomicUsize>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Deciding(BTreeMap<String, Queue>);

impl Deciding {
    /// Has the Alerts decide, by namespace. Returns once they have, but for namespaces that take long: their events are in
    /// order all the same.
    pub(super) async fn decide(
        &mut self,
        delivery: &Arc<Delivery>,
        event: &Arc<notify::Event>,
        alerts: BTreeMap<String, Vec<Arc<Alert>>>,
    ) {
        let mut awaited = Vec::new();
        for (namespace, alerts) in alerts {
            let queue = self.0.entry(namespace).or_insert_with(|| Queue::start(delivery.clone()));
            let (done, decided) = oneshot::channel();
            let is_idle = queue.under_way.fetch_add(1, Ordering::Relaxed) == 0;
            let job = Job { event: event.clone(), alerts, _done: done };
            if queue.way.try_send(job).is_err() {
                queue.under_way.fetch_sub(1, Ordering::Relaxed);
                delivery.context.metrics.notified(NotificationOutcome::Dropped);
            } else if is_idle {
                awaited.push(decided);
            }
        }
        // Both ends are the same: it was decided, or that takes longer.
        drop(tokio::time::timeout(PATIENCE, join_all(awaited)).await);
    }
}

impl Queue {
    fn start(delivery: Arc<Delivery>) -> Self {
        let (way, mut jobs) = mpsc::channel::<Job>(WAITING);
        let under_way = Arc::<AtomicUsize>::default();
        let count = under_way.clone();
        tokio::spawn(async move {
            while let Some(job) = jobs.recv().await {
                delivery.dispatch(&job.event, &job.alerts).await;
                count.fetch_sub(1, Ordering::Relaxed);
            }
        });
        Self { way, under_way }
    }
}
