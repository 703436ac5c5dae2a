//! The queue of notifications. Each waiting notification has a file in the spool, and a place in the queue of its Provider.
//!
//! Here: the state that all Providers share, start and end. Elsewhere: files (`notification_spool`), the order for each
//! Provider (`provider_queues`), sending (`provider_worker`).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::alert_warnings::AlertWarnings;
use super::incident_notifications::IncidentNotificationOutcomes;
use super::last_deliveries::LastDeliveries;
use super::notification_spool::{NotificationSpool, QueuedNotification, SpoolBounds};
use super::provider_queues::{ProviderKey, ProviderQueues};
use super::provider_worker::{ProviderHealth, ProviderWorker};
use super::wait_for_alerts;
use windlass_cluster::metrics::NotificationOutcomeLabel;
use windlass_cluster::run_permits::RunPermits;
use windlass_runtime::run_context::RunContext;

/// The most services that are asked at once, in total and for one namespace.
const MAX_CONCURRENT_REQUESTS: usize = 64;
const REQUESTS_EACH: usize = 16;

/// The time that running attempts have once the process was asked to stop.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// The waiting notifications of all Providers, and the data that their workers share. A Provider has a worker while a
/// notification waits for it.
pub(super) struct NotificationQueue {
    pub(super) context: Arc<RunContext>,
    pub(super) warnings: Arc<AlertWarnings>,
    pub(super) spool: Arc<NotificationSpool>,
    pub(super) providers: Arc<ProviderQueues>,
    pub(super) health: ProviderHealth,
    pub(super) last: Arc<LastDeliveries>,
    pub(super) incident_outcomes: IncidentNotificationOutcomes,
    pub(super) permits: RunPermits,
    pub(super) stop: CancellationToken,
    workers: TaskTracker,
    /// The notifications that waited when the process started.
    found: Mutex<Vec<(u64, ProviderKey)>>,
}

impl NotificationQueue {
    /// Reads the notifications in the spool. Nothing is sent before [`Self::start`].
    pub(super) async fn open(
        context: Arc<RunContext>,
        warnings: Arc<AlertWarnings>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let storage = context.settings.storage_path.clone();
        let opened = tokio::task::spawn_blocking(move || {
            NotificationSpool::open(&storage, SpoolBounds::default())
        })
        .await;
        let (spool, found) = opened.unwrap_or_default();
        if !found.is_empty() {
            tracing::info!(waiting = found.len(), "notifications wait since before the start");
        }
        let queue = Arc::new(Self {
            warnings,
            spool: Arc::new(spool),
            providers: context.shared::<ProviderQueues>(),
            health: ProviderHealth::default(),
            last: context.shared::<LastDeliveries>(),
            incident_outcomes: IncidentNotificationOutcomes::default(),
            permits: RunPermits::shared(MAX_CONCURRENT_REQUESTS, REQUESTS_EACH),
            stop,
            workers: TaskTracker::new(),
            found: Mutex::new(found),
            context,
        });
        queue.count();
        queue
    }

    /// Sends notifications until the process is asked to stop. Running attempts then have a short time to end.
    pub(super) async fn run(self: &Arc<Self>) {
        if self.stop.run_until_cancelled(wait_for_alerts(&self.context)).await == Some(true) {
            self.start();
        }
        self.stop.cancelled().await;
        self.workers.close();
        if tokio::time::timeout(STOP_LIMIT, self.workers.wait()).await.is_err() {
            tracing::info!(
                "some notifications were being sent when the process exited; they are sent again after the next start"
            );
        }
    }

    /// Puts the notifications that were in the spool at the start of the process into the queues of their Providers.
    pub(super) fn start(self: &Arc<Self>) {
        let found = std::mem::take(&mut *self.found.lock());
        for (number, provider) in found {
            self.enqueue(number, provider);
        }
    }

    /// Adds a notification to the queue of its Provider.
    pub(super) async fn put(self: &Arc<Self>, notification: QueuedNotification) {
        let provider = notification.provider_key();
        let put = self.on_disk(move |spool| spool.put(notification)).await;
        for _ in 0..put.dropped {
            self.context.metrics.notified(NotificationOutcomeLabel::Dropped);
        }
        if let Some(number) = put.number {
            self.enqueue(number, provider);
        }
        self.count();
    }

    fn enqueue(self: &Arc<Self>, number: u64, provider: ProviderKey) {
        if self.providers.push(&provider, number) {
            self.workers.spawn(ProviderWorker::new(self.clone(), provider).work());
        }
    }

    /// Reads a waiting notification. `None` if it was dropped to make room for others.
    pub(super) async fn read(&self, number: u64) -> Option<Arc<QueuedNotification>> {
        self.on_disk(move |spool| spool.read(number)).await
    }

    /// A notification has come to its end.
    pub(super) async fn remove(&self, number: u64) {
        self.on_disk(move |spool| spool.remove(number)).await;
        self.count();
    }

    async fn on_disk<T, F>(&self, work: F) -> T
    where
        T: Default + Send + 'static,
        F: FnOnce(&NotificationSpool) -> T + Send + 'static,
    {
        let spool = self.spool.clone();
        // The work only panics if the driver of the disk does.
        tokio::task::spawn_blocking(move || work(&spool)).await.unwrap_or_default()
    }

    fn count(&self) {
        let waiting = i64::try_from(self.spool.len()).unwrap_or(i64::MAX);
        self.context.metrics.waiting_notifications.set(waiting);
    }
}
