//! Delivery of notifications: turns events into messages to services, by Alerts and Providers.
//!
//! Here: how the parts are put together. In the folder, in the order in which an event passes them:
//! * An event is received (`event_dispatch`) unless it is a repetition (`repeated_events`), and matched with Alerts in a queue
//!   for each namespace (`alert_match_queues`, `alert_router`).
//! * Each Alert that selects the event makes a notification. The notification may wait for an incident
//!   (`suppressed_notifications`). It then (`queued_notification`) waits for its Provider in a queue (`notification_queue`,
//!   `provider_queues`), and has a record in a file (`notification_spool`).
//! * A worker for the Provider makes attempts, several at once, with pauses after failed ones (`provider_worker`,
//!   `sending_pace`). Notifications about the same object are sent in their order (`delivery_order`). An attempt
//!   (`delivery_attempt`) sends requests (`transport`, `nats`), and its result is recorded (`last_deliveries`).
//!
//! Beside that: events that the verdict about a change replaces (`withheld_change_events`), notifications about incidents
//! (`incident_notifications`), warnings on Alerts (`alert_warnings`).
//! Elsewhere: the decisions (`engines/notify`), the queue of events (`windlass_cluster::events`), requests
//! (`windlass_runtime::http_request`).

mod alert_match_queues;
mod alert_router;
mod alert_warnings;
pub mod delivery_attempt;
mod delivery_order;
mod event_dispatch;
pub mod incident_notifications;
mod last_deliveries;
mod nats;
mod notification_queue;
mod notification_spool;
mod provider_queues;
mod provider_worker;
mod queued_notification;
mod repeated_events;
mod sending_pace;
pub(crate) mod suppressed_notifications;
pub mod transport;
mod withheld_change_events;

use std::sync::Arc;

use crds::ReconciledObject as _;
use crds::notification::{Alert, Provider};
use tokio_util::sync::CancellationToken;

pub(crate) use self::last_deliveries::{LastDeliveries, LastDeliveryOutcome};
pub(crate) use self::provider_queues::{ProviderKey, ProviderQueues};

use self::alert_router::AlertRouter;
use self::alert_warnings::AlertWarnings;
use self::event_dispatch::EventDispatcher;
use self::incident_notifications::IncidentNotifications;
use self::notification_queue::NotificationQueue;
use self::suppressed_notifications::{AlertObjectPair, SuppressedNotifications};
use windlass_runtime::run_context::RunContext;

/// The name under which Flux reports notifications.
pub(crate) const CONTROLLER: &str = Provider::CONTROLLER;

/// Longest text of another server in a line of the log, in bytes.
const MAX_LOGGED_TEXT_BYTES: usize = 2_048;

/// The beginning of a text, as much as a log line repeats.
pub(crate) fn logged(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_LOGGED_TEXT_BYTES)]
}

/// Waits until Alerts and Providers were listed. Returns false if their watch ended before.
pub(crate) async fn wait_for_alerts(context: &RunContext) -> bool {
    let alerts = context.kept.listed::<Alert>();
    let providers = context.kept.listed::<Provider>();
    alerts.await && providers.await
}

/// The delivery of events to notification services, as Alerts and Providers define it.
///
/// Events pass in one direction: the router makes notifications from an event, and the queue sends them.
pub struct NotificationDelivery {
    context: Arc<RunContext>,
    router: Arc<AlertRouter>,
    queue: Arc<NotificationQueue>,
    pub(crate) incidents: Arc<IncidentNotifications>,
    pub(crate) suppression: SuppressedNotifications,
}

impl NotificationDelivery {
    /// Opens the delivery, which receives events from now on. It reads the notifications in the spool, but sends nothing
    /// before [`NotificationDelivery::run`].
    pub async fn open(context: Arc<RunContext>, stop: CancellationToken) -> Arc<Self> {
        let warnings = Arc::new(AlertWarnings::new(context.clone()));
        let router = Arc::new(AlertRouter::new(context.clone(), warnings.clone()));
        let queue = NotificationQueue::open(context.clone(), warnings, stop).await;
        let incidents = Arc::new(IncidentNotifications::new(router.clone(), queue.clone()));
        let suppression = SuppressedNotifications::default();
        let delivery = Arc::new(Self { context, router, queue, incidents, suppression });
        delivery.context.events.add(EventDispatcher::new(delivery.clone()));
        delivery
    }

    /// Sends notifications until the process is asked to stop. Running attempts then have a short time to end.
    pub async fn run(&self) {
        self.queue.run().await;
    }

    /// Sends a held notification, because no incident replaces it.
    pub(crate) fn send_suppressed(&self, topic: &AlertObjectPair) {
        if let Some(notification) = self.suppression.take(topic) {
            self.queue.put(notification);
        }
    }
}
