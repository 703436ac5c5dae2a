//! The queue of notifications. Each waiting notification has a record in the spool, and a place in the queue of its Provider.
//!
//! Here: the state that all Providers share, when records are written and flushed, start and end. Elsewhere: records
//! (`notification_spool`), the order for each Provider (`provider_queues`), sending (`provider_worker`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::alert_warnings::AlertWarnings;
use super::incident_notifications::IncidentNotificationOutcomes;
use super::last_deliveries::LastDeliveries;
use super::notification_spool::{
    DroppedNotification, FORMER_PROCESS_TIME, NotificationSpool, SpoolBounds, SpoolOpenResult,
};
use super::provider_queues::{ProviderKey, ProviderQueues};
use super::provider_worker::{ProviderHealth, ProviderWorker};
use super::queued_notification::{QueuedNotification, WaitingNotification};
use super::wait_for_alerts;
use windlass_cluster::metrics::NotificationOutcomeLabel;
use windlass_cluster::run_permits::RunPermits;
use windlass_runtime::run_context::RunContext;

/// The most services that are asked at once, in total and for one namespace.
const MAX_CONCURRENT_REQUESTS: usize = 64;
const REQUESTS_EACH: usize = 16;

/// The time that running attempts have once the process was asked to stop.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// How long records wait until they are flushed to the disk, so that many of them share one flush.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// How often the disk is retried while it does not take notifications.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(10);

/// How often the file is tried while another process uses it, which ends soon.
const FORMER_PROCESS_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// While the spool is nearly full, a namespace gets no further notifications as long as more than this number wait for
/// services that accept them.
const MAX_FLOWING: usize = 256;

/// How long a namespace waits at most until it is checked again whether there is room.
const ROOM_CHECK_INTERVAL: Duration = Duration::from_millis(100);

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
    /// Signals that records have to be written.
    unwritten: Notify,
    /// Signals that records have to be flushed to the disk.
    unflushed: Notify,
    /// Signals that a notification has come to its end.
    ended: Notify,
    /// The notifications that waited when the process started. `None` after [`Self::start`].
    found: Mutex<Option<Vec<WaitingNotification>>>,
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
            unwritten: Notify::new(),
            unflushed: Notify::new(),
            ended: Notify::new(),
            found: Mutex::new(Some(found)),
            context,
        });
        if queue.spool.is_unopened() {
            queue.providers.remember_deliveries();
        }
        queue.count();
        tokio::spawn(queue.clone().write_records());
        tokio::spawn(queue.clone().flush_records());
        queue
    }

    /// Sends notifications until the process is asked to stop. Running attempts then have a short time to end.
    pub(super) async fn run(self: &Arc<Self>) {
        if self.stop.run_until_cancelled(wait_for_alerts(&self.context)).await == Some(true) {
            self.start();
            self.stop.run_until_cancelled(self.recover_spool()).await;
        }
        self.stop.cancelled().await;
        self.workers.close();
        if tokio::time::timeout(STOP_LIMIT, self.workers.wait()).await.is_err() {
            tracing::info!(
                "some notifications were being sent when the process exited; they are sent again after the next start"
            );
        }
        self.settle().await;
    }

    /// Writes the records of all notifications that came or ended until now.
    pub(super) async fn settle(self: &Arc<Self>) {
        self.write().await;
        self.on_disk(NotificationSpool::flush).await;
    }

    async fn write(self: &Arc<Self>) {
        for waiting in self.on_disk(NotificationSpool::write).await {
            self.enqueue(&waiting);
        }
        self.unflushed.notify_one();
        self.count();
    }

    /// Tries the disk again from time to time, while notifications wait in memory only. What the file has from before the start
    /// of the process is sent then.
    async fn recover_spool(self: &Arc<Self>) {
        loop {
            tokio::time::sleep(RECOVERY_INTERVAL).await;
            if self.spool.is_unsaved() {
                self.recover().await;
            }
        }
    }

    async fn recover(self: &Arc<Self>) {
        let SpoolOpenResult { found, dropped } = self.on_disk(NotificationSpool::recover).await;
        self.forget_dropped(dropped);
        let is_started = match &mut *self.found.lock() {
            Some(waiting) => {
                waiting.extend_from_slice(&found);
                false
            }
            None => true,
        };
        if is_started {
            self.send_found(&found);
        }
        self.unflushed.notify_one();
        self.count();
    }

    /// Waits while another process uses the file, which is asked to stop when this one starts. What it leaves is sent before
    /// what waits in memory.
    async fn await_former_process(self: &Arc<Self>) {
        let begin = Instant::now();
        while self.spool.is_used_elsewhere() && begin.elapsed() < FORMER_PROCESS_TIME {
            tokio::time::sleep(FORMER_PROCESS_CHECK_INTERVAL).await;
            self.recover().await;
        }
    }

    /// Writes records while the process runs. Those that come during a write are written together by the next one.
    async fn write_records(self: Arc<Self>) {
        self.await_former_process().await;
        loop {
            self.unwritten.notified().await;
            self.write().await;
        }
    }

    /// Flushes records to the disk while the process runs.
    async fn flush_records(self: Arc<Self>) {
        loop {
            self.unflushed.notified().await;
            tokio::time::sleep(FLUSH_INTERVAL).await;
            self.on_disk(NotificationSpool::flush).await;
        }
    }

    /// Puts the notifications that were in the spool at the start of the process into the queues of their Providers.
    pub(super) fn start(self: &Arc<Self>) {
        let found = self.found.lock().take().unwrap_or_default();
        self.send_found(&found);
    }

    /// Adds a notification. It is in the queue of its Provider once its record is written.
    pub(super) fn put(&self, notification: QueuedNotification) {
        let put = self.spool.put(notification);
        if put.number.is_none() {
            self.context.metrics.notified(NotificationOutcomeLabel::Dropped);
        }
        self.forget_dropped(put.dropped);
        self.unwritten.notify_one();
        self.count();
    }

    /// Removes notifications that were dropped from the queues of their Providers.
    fn forget_dropped(&self, dropped: Vec<DroppedNotification>) {
        for DroppedNotification { number, provider } in dropped {
            self.context.metrics.notified(NotificationOutcomeLabel::Dropped);
            self.providers.remove_dropped(&provider, number);
        }
    }

    /// Waits while further notifications of a namespace would drive others out, although its services accept them: events are
    /// matched faster than notifications are sent. When the process is asked to stop, nothing is sent any more, so what is
    /// left is written.
    pub(super) async fn wait_for_room(&self, namespace: &str) {
        let is_held = || {
            !self.stop.is_cancelled()
                && self.spool.is_nearly_full()
                && self.providers.flowing(namespace) > MAX_FLOWING
        };
        while is_held() {
            drop(tokio::time::timeout(ROOM_CHECK_INTERVAL, self.ended.notified()).await);
        }
    }

    fn enqueue(self: &Arc<Self>, waiting: &WaitingNotification) {
        if self.providers.push(waiting) {
            self.spawn_worker(&waiting.provider);
        }
    }

    /// Puts notifications of an earlier process into the queues of their Providers, unless later ones overtook them.
    fn send_found(self: &Arc<Self>, found: &[WaitingNotification]) {
        for waiting in found {
            match self.providers.push_found_late(waiting) {
                Some(true) => self.spawn_worker(&waiting.provider),
                Some(false) => {}
                None => {
                    self.context.metrics.notified(NotificationOutcomeLabel::Dropped);
                    self.remove(waiting.number);
                }
            }
        }
        if !self.spool.is_unopened() {
            self.providers.forget_deliveries();
        }
    }

    fn spawn_worker(self: &Arc<Self>, provider: &ProviderKey) {
        self.workers.spawn(ProviderWorker::new(self.clone(), provider.clone()).work());
    }

    /// Reads a waiting notification. `None` if it was dropped to make room for others.
    pub(super) async fn read(&self, number: u64) -> Option<Arc<QueuedNotification>> {
        if let Some(notification) = self.spool.in_memory(number) {
            return Some(notification);
        }
        self.on_disk(move |spool| spool.read(number)).await
    }

    /// A notification has come to its end.
    pub(super) fn remove(&self, number: u64) {
        self.spool.remove(number);
        self.unwritten.notify_one();
        self.ended.notify_waiters();
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
        let metrics = &self.context.metrics;
        metrics.waiting_notifications.set(waiting);
        metrics.unsaved_notifications.set(i64::from(self.spool.is_unsaved()));
    }
}
