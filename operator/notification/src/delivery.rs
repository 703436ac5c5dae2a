//! Delivery: from events to what services are sent, by Alerts and Providers.
//!
//! Here: what all of it shares, start and end. In the folder: which events go where (`dispatch`, `matcher`), which
//! events and warnings are repetitions (`repeated_events`), what waits (`spool`) and for whom (`provider_queues`),
//! attempts and pauses (`provider_queue`), one attempt (`attempt`), how the last one ended (`last_deliveries`), what
//! goes out (`transport`, `nats`), what is sent about incidents (`incidents`) and which events wait for them
//! (`suppression`). Elsewhere: the decisions (`engines/notify`), the way of events (`windlass_cluster::events`),
//! requests (`windlass_runtime::http_request`).

pub mod attempt;
mod dispatch;
pub mod incidents;
mod last_deliveries;
mod matcher;
mod nats;
mod provider_queue;
mod provider_queues;
mod repeated_events;
mod spool;
pub(crate) mod suppression;
pub mod transport;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::ReconciledObject as _;
use crds::notification::{Alert, Provider};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::last_deliveries::{LastDeliveries, LastDelivery};
pub(crate) use self::provider_queues::{Lanes, ProviderKey};

use self::dispatch::Dispatcher;
use self::incidents::Outcomes;
use self::provider_queue::ProviderHealth;
use self::repeated_events::Repetitions;
use self::spool::{Bounds, Notification, Spool};
use self::suppression::Suppression;
use windlass_runtime::context::Context;
use windlass_runtime::permit::Permits;

/// The name under which Flux reports what is done here.
pub(crate) const CONTROLLER: &str = Provider::CONTROLLER;

/// How many services are asked at once, and how many of them in the name of one namespace.
const MAX_CONCURRENT_REQUESTS: usize = 64;
const REQUESTS_EACH: usize = 16;

/// How often the same warning is recorded on an Alert.
const WARNED_AGAIN: Duration = Duration::from_secs(300);

/// How long attempts under way may take once the process was asked to stop.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// Longest text of another server in a line of the log, in bytes.
const MAX_LOGGED_TEXT_BYTES: usize = 2_048;

/// As much of a text as a line of the log repeats.
pub(crate) fn logged(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_LOGGED_TEXT_BYTES)]
}

/// The delivery of events to notification services, as Alerts and Providers define it:
/// the state that its queues, attempts and incidents share.
pub struct Delivery {
    context: Arc<Context>,
    spool: Arc<Spool>,
    lanes: Arc<Lanes>,
    permits: Permits,
    provider_health: ProviderHealth,
    last: Arc<LastDeliveries>,
    outcomes: Outcomes,
    suppression: Suppression,
    warned: Mutex<Repetitions>,
    stop: CancellationToken,
    working: TaskTracker,
    /// What waited when the process started.
    found: Mutex<Vec<(u64, ProviderKey)>>,
}

impl Delivery {
    /// Receives events from now on. What waits in the spool is read, and nothing is sent before [`Delivery::run`].
    pub async fn open(context: Arc<Context>, stop: CancellationToken) -> Arc<Self> {
        let storage = context.settings.storage_path.clone();
        let opened =
            tokio::task::spawn_blocking(move || Spool::open(&storage, Bounds::default())).await;
        let (spool, found) = opened.unwrap_or_else(|_| Spool::in_memory());
        if !found.is_empty() {
            tracing::info!(waiting = found.len(), "notifications wait since before the start");
        }
        let delivery = Arc::new(Self {
            lanes: context.shared::<Lanes>(),
            spool: Arc::new(spool),
            permits: Permits::shared(MAX_CONCURRENT_REQUESTS, REQUESTS_EACH),
            provider_health: ProviderHealth::default(),
            last: context.shared::<LastDeliveries>(),
            outcomes: Outcomes::default(),
            suppression: Suppression::default(),
            warned: Mutex::new(Repetitions::within(WARNED_AGAIN)),
            stop,
            working: TaskTracker::new(),
            found: Mutex::new(found),
            context,
        });
        delivery.count();
        let interval = delivery.context.settings.rate_limit_interval;
        delivery.context.events.add(Dispatcher::new(delivery.clone(), interval));
        delivery
    }

    /// Sends until the process is asked to stop; attempts under way then have a short time to end.
    pub async fn run(self: Arc<Self>) {
        if self.stop.clone().run_until_cancelled(self.listed()).await == Some(true) {
            self.begin();
        }
        self.stop.cancelled().await;
        self.working.close();
        if tokio::time::timeout(STOP_LIMIT, self.working.wait()).await.is_err() {
            tracing::info!(
                "some notifications were being sent when the process exited; they are sent again after the next start"
            );
        }
    }

    /// Has what waited when the process started wait for its Providers.
    fn begin(self: &Arc<Self>) {
        let found = std::mem::take(&mut *self.found.lock());
        for (number, place) in found {
            self.enqueue(number, &place);
        }
    }

    /// Returns once Alerts and Providers were listed; false if their watch ended before.
    pub(crate) async fn listed(&self) -> bool {
        let kept = &self.context.kept;
        let alerts = kept.listed::<Alert>();
        let providers = kept.listed::<Provider>();
        alerts.await && providers.await
    }

    /// Has a notification wait for its Provider.
    async fn put(self: &Arc<Self>, notification: Notification) {
        let spool = self.spool.clone();
        let place = notification.place();
        // It panics only where the disk's driver does.
        let put = tokio::task::spawn_blocking(move || spool.put(notification)).await;
        let put = put.unwrap_or_default();
        for _ in 0..put.dropped {
            self.context.metrics.notified(windlass_cluster::metrics::NotificationOutcome::Dropped);
        }
        if let Some(number) = put.number {
            self.enqueue(number, &place);
        }
        self.count();
    }

    fn enqueue(self: &Arc<Self>, number: u64, place: &ProviderKey) {
        if self.lanes.push(place, number) {
            self.working.spawn(provider_queue::work(self.clone(), place.clone()));
        }
    }

    async fn read(&self, number: u64) -> Option<Arc<Notification>> {
        let spool = self.spool.clone();
        tokio::task::spawn_blocking(move || spool.read(number)).await.ok().flatten()
    }

    async fn remove(&self, number: u64) {
        let spool = self.spool.clone();
        // It panics only where the disk's driver does.
        tokio::task::spawn_blocking(move || spool.remove(number)).await.unwrap_or_default();
        self.count();
    }

    fn count(&self) {
        let waiting = i64::try_from(self.spool.len()).unwrap_or(i64::MAX);
        self.context.metrics.waiting_notifications.set(waiting);
    }

    /// Whether the same was recorded a moment ago.
    fn is_reported(&self, key: &str) -> bool {
        let mut warned = self.warned.lock();
        warned.is_repeated(key, Instant::now())
    }
}
