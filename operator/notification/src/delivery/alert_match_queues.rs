//! Matches events with Alerts. The notification of each Alert that selects an event goes into the queue of its Provider.
//!
//! Each namespace with Alerts has a queue of events, so that slow patterns of one namespace do not delay another. If too many
//! events wait, the namespace with the most waiting events loses its oldest one. Elsewhere: the decision (`alert_router`), the
//! threads on which it is made (crate `windlass-expressions`).

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use crds::notification::Alert;
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use super::NotificationDelivery;
use super::alert_router::{ObjectLabels, is_of_incident};
use super::suppressed_notifications::AlertObjectPair;
use super::withheld_change_events::is_withheld;
use windlass_cluster::metrics::NotificationOutcomeLabel;

/// The most bytes of waiting events. An event counts once for each namespace in which it waits.
const WAITING_BYTES: usize = 64 << 20;

/// How many Alerts decide about an event before other tasks on this thread have their turn.
const ALERTS_PER_TURN: usize = 16;

/// The memory of a map entry besides its texts.
const METADATA_ENTRY_OVERHEAD_BYTES: usize = 100;

/// An event, and the names of the Alerts that may want it.
struct QueuedAlertMatch {
    event: Arc<notify::FluxEvent>,
    alerts: Vec<String>,
    bytes: usize,
}

/// The events that wait for the Alerts of a namespace. They are matched in their order.
#[derive(Default)]
struct NamespaceAlertQueue {
    jobs: VecDeque<QueuedAlertMatch>,
    bytes: usize,
}

/// The queues by namespace. A queue exists while a task works on it.
#[derive(Default)]
struct NamespaceAlertQueues {
    of: BTreeMap<String, NamespaceAlertQueue>,
    bytes: usize,
}

/// Matches events with Alerts, in a task for each namespace with Alerts, so that slow patterns delay no other namespace.
pub(super) struct AlertMatcher {
    delivery: Arc<NotificationDelivery>,
    queues: Mutex<NamespaceAlertQueues>,
    workers: TaskTracker,
}

impl QueuedAlertMatch {
    fn new(event: Arc<notify::FluxEvent>, alerts: Vec<String>) -> Self {
        let notify::ObjectReference { kind, namespace, name, uid, api_version, .. } = &event.object;
        let object = [kind, namespace, name, uid, api_version, &event.object.resource_version];
        let others = [&event.message, &event.reason, &event.reporting_controller];
        let metadata = event.metadata.iter().flat_map(|(key, value)| [key, value]);
        let strings = object.into_iter().chain(others).chain([&event.reporting_instance]);
        let length = strings.chain(metadata).chain(&alerts).map(String::len).sum::<usize>();
        let entries = event.metadata.len() * METADATA_ENTRY_OVERHEAD_BYTES
            + alerts.len() * size_of::<String>();
        let bytes = size_of::<Self>() + size_of::<notify::FluxEvent>() + length + entries;
        Self { event, alerts, bytes }
    }
}

impl NamespaceAlertQueues {
    /// Queues a job. Returns whether the queue is new, so that it needs a task, and how many jobs were dropped to make room.
    fn push(&mut self, namespace: &str, job: QueuedAlertMatch, most: usize) -> (bool, usize) {
        let is_new = !self.of.contains_key(namespace);
        let queue = self.of.entry(namespace.to_owned()).or_default();
        queue.bytes += job.bytes;
        self.bytes += job.bytes;
        queue.jobs.push_back(job);
        let mut dropped = 0;
        while self.bytes > most {
            let largest = self.of.values_mut().max_by_key(|queue| queue.bytes);
            let Some(job) = largest.and_then(NamespaceAlertQueue::pop) else { break };
            self.bytes -= job.bytes;
            dropped += 1;
        }
        (is_new, dropped)
    }

    /// Takes the next job from the queue of a namespace. `None` if there is no job, and then the queue is removed.
    fn next(&mut self, namespace: &str) -> Option<QueuedAlertMatch> {
        let job = self.of.get_mut(namespace).and_then(NamespaceAlertQueue::pop);
        match &job {
            Some(job) => self.bytes -= job.bytes,
            None => drop(self.of.remove(namespace)),
        }
        job
    }
}

impl NamespaceAlertQueue {
    fn pop(&mut self) -> Option<QueuedAlertMatch> {
        let job = self.jobs.pop_front()?;
        self.bytes -= job.bytes;
        Some(job)
    }
}

impl AlertMatcher {
    pub(super) fn new(delivery: Arc<NotificationDelivery>) -> Self {
        Self { delivery, queues: Mutex::default(), workers: TaskTracker::new() }
    }

    /// Queues an event for the Alerts that may select it.
    pub(super) async fn push(self: &Arc<Self>, event: &Arc<notify::FluxEvent>) {
        for (namespace, alerts) in self.delivery.router.candidates(&event.object).await {
            let job = QueuedAlertMatch::new(event.clone(), alerts);
            let (is_new, dropped) = self.queues.lock().push(&namespace, job, WAITING_BYTES);
            for _ in 0..dropped {
                self.delivery.context.metrics.notified(NotificationOutcomeLabel::Dropped);
            }
            if is_new {
                self.workers.spawn(self.clone().work(namespace));
            }
        }
    }

    /// Returns once all events are matched.
    pub(super) async fn settle(&self) {
        self.workers.close();
        self.workers.wait().await;
    }

    async fn work(self: Arc<Self>, namespace: String) {
        loop {
            let job = self.queues.lock().next(&namespace);
            let Some(job) = job else { return };
            self.delivery.queue.wait_for_room(&namespace).await;
            let matching = self.dispatch(&job.event, &namespace, &job.alerts);
            if AssertUnwindSafe(matching).catch_unwind().await.is_err() {
                tracing::error!(
                    namespace,
                    "the decision about an event panicked; this is a bug in windlass, please report it"
                );
            }
        }
    }

    /// Queues the notification of every Alert of a namespace that selects an event. One that an incident may replace waits.
    async fn dispatch(&self, event: &Arc<notify::FluxEvent>, namespace: &str, alerts: &[String]) {
        let NotificationDelivery { context, router, queue, incidents, suppression } =
            &*self.delivery;
        let mut labels = ObjectLabels::Unread;
        let is_of_incident = is_of_incident(event);
        for (at, name) in alerts.iter().enumerate() {
            if at.is_multiple_of(ALERTS_PER_TURN) {
                tokio::task::yield_now().await;
            }
            let Some(alert) = context.seen::<Alert>(namespace, name) else { continue };
            if is_withheld(context, event, &alert) {
                continue;
            }
            let decision = router.route(event, &alert, &mut labels).await;
            let Some((notification, bytes)) = router.notification(&alert, decision) else {
                continue;
            };
            let unheld = if is_of_incident && incidents.may_replace_errors(&alert) {
                suppression.hold(
                    AlertObjectPair::of(&event.object, &notification),
                    notification,
                    bytes,
                )
            } else {
                Some(notification)
            };
            if let Some(notification) = unheld {
                queue.put(notification);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(message: &str) -> QueuedAlertMatch {
        let event =
            notify::FluxEvent { message: message.to_owned(), ..notify::FluxEvent::default() };
        QueuedAlertMatch::new(Arc::new(event), vec!["alert".to_owned()])
    }

    #[test]
    fn events_are_decided_in_their_order_and_a_queue_ends_with_them() {
        let mut queues = NamespaceAlertQueues::default();
        assert_eq!(queues.push("a", job("1"), WAITING_BYTES), (true, 0));
        assert_eq!(queues.push("a", job("2"), WAITING_BYTES), (false, 0));
        assert_eq!(queues.push("b", job("3"), WAITING_BYTES), (true, 0));
        for expected in [Some("1"), Some("2"), None] {
            let next = queues.next("a").map(|job| job.event.message.clone());
            assert_eq!(next.as_deref(), expected);
        }
        assert_eq!(queues.push("a", job("4"), WAITING_BYTES), (true, 0));
        assert!(queues.next("a").is_some() && queues.next("b").is_some());
        assert_eq!(queues.bytes, 0);
    }

    #[test]
    fn all_that_an_event_says_counts() {
        let long = "x".repeat(1_000);
        let object = notify::ObjectReference { name: long.clone(), ..Default::default() };
        let metadata = BTreeMap::from([(long.clone(), long.clone())]);
        let event =
            notify::FluxEvent { object, reason: long.clone(), metadata, ..Default::default() };
        let bytes = QueuedAlertMatch::new(Arc::new(event), vec![long]).bytes;
        assert!(bytes > job("").bytes + 4_900, "{bytes}");
    }

    #[test]
    fn a_namespace_whose_decisions_take_long_loses_its_own_events() {
        let mut queues = NamespaceAlertQueues::default();
        let most = 10 * job(&"x".repeat(1_000)).bytes;
        queues.push("quiet", job("one"), most);
        let mut dropped = 0;
        for at in 0..100 {
            dropped += queues.push("loud", job(&format!("{at:01000}")), most).1;
        }
        assert!(queues.bytes <= most && dropped >= 90, "{dropped}");
        assert!(!queues.push("quiet", job("two"), most).0);
        assert_eq!(queues.of["quiet"].jobs.len(), 2);
        let next = queues.next("loud").map(|job| job.event.message.clone());
        assert!(next.is_some_and(|next| next.ends_with("91") || next.ends_with("92")));
    }
}
