//! Working on a lane: attempts one after the other, pauses between those that fail, and what is said about it.
//!
//! Elsewhere: one attempt (`attempt`), who waits (`provider_queues`).

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::notification::{Alert, Provider};
use futures::FutureExt as _;
use notify::Warning;
use parking_lot::{Mutex, MutexGuard};

use super::Delivery;
use super::attempt::{DeliveryAttempt, DeliveryOutcome, attempt};
use super::incidents::IncidentDeliveryOutcome;
use super::provider_queues::ProviderKey;
use super::spool::Notification;
use windlass_cluster::events::{Event, Severity};
use windlass_cluster::metrics::NotificationOutcome;

/// Pauses after failed attempts; they double.
const SHORTEST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How long a notification waits for a service that does not work.
const KEPT_FOR: i64 = 6 * 3600;

/// After so many attempts the others go first: a service may dislike just this one.
const ATTEMPTS_IN_FRONT: u32 = 8;

/// After so many attempts a service counts as failing, before what waits for it is discarded.
const MIN_FAILED_ATTEMPTS: u32 = 2;

/// How often the same trouble is reported on a Provider.
const REPORT_INTERVAL: Duration = Duration::from_secs(600);

/// How many services that do not work are remembered; the one that was reported first makes room.
const MOST_TROUBLES: usize = 1_000;

/// A service that does not work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ProviderFailures {
    attempts: u32,
    reported_at: Option<Instant>,
}

/// Services that do not work, by their Providers: what is known of one outlives its lane, which ends with what waits in it.
#[derive(Default)]
pub(super) struct ProviderHealth(Mutex<BTreeMap<ProviderKey, ProviderFailures>>);

impl ProviderHealth {
    fn all(&self) -> MutexGuard<'_, BTreeMap<ProviderKey, ProviderFailures>> {
        self.0.lock()
    }

    fn of(&self, place: &ProviderKey) -> ProviderFailures {
        self.all().get(place).copied().unwrap_or_default()
    }

    fn keep(&self, place: &ProviderKey, provider_failures: ProviderFailures) {
        let mut all = self.all();
        all.remove(place);
        if provider_failures == ProviderFailures::default() {
            return;
        }
        if all.len() >= MOST_TROUBLES {
            let first =
                all.iter().min_by_key(|(_, provider_failures)| provider_failures.reported_at);
            if let Some(first) = first.map(|(place, _)| place.clone()) {
                all.remove(&first);
            }
        }
        all.insert(place.clone(), provider_failures);
    }
}

impl ProviderFailures {
    /// The pause before the next attempt.
    fn pause(&self, asked: Option<Duration>) -> Duration {
        let doubled = reconcile::backoff(self.attempts, SHORTEST_PAUSE, LONGEST_PAUSE);
        asked.unwrap_or_default().max(doubled)
    }
}

/// Works on a lane until nothing waits in it, or the process ends.
pub(super) async fn work(delivery: Arc<Delivery>, place: ProviderKey) {
    let mut provider_failures = delivery.provider_health.of(&place);
    while let Some(number) = delivery.lanes.first(&place) {
        if delivery.stop.is_cancelled() {
            return;
        }
        let Some(notification) = delivery.read(number).await else {
            delivery.lanes.end(&place);
            continue;
        };
        let ended = if !delivery.is_current(&notification) {
            DeliveryAttempt::unsent(DeliveryOutcome::Unwanted)
        } else if is_expired(&notification) {
            DeliveryAttempt::unsent(DeliveryOutcome::Refused(expired(&notification)))
        } else {
            let trying = attempt(&delivery.context, &delivery.permits, &notification);
            let ended = AssertUnwindSafe(trying).catch_unwind().await;
            ended.unwrap_or_else(|_| {
                DeliveryAttempt::unsent(DeliveryOutcome::Refused(panicked(&notification)))
            })
        };
        let pause =
            delivery.settle(&place, number, &notification, ended, &mut provider_failures).await;
        delivery.provider_health.keep(&place, provider_failures);
        let Some(pause) = pause else { continue };
        let changed = delivery.lanes.changed(&place);
        let rings = async {
            match changed {
                Some(changed) => changed.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = rings => provider_failures.attempts = 0,
            () = delivery.stop.cancelled() => return,
        }
    }
}

fn panicked(notification: &Notification) -> Warning {
    tracing::error!(
        provider = notification.provider,
        namespace = notification.namespace,
        "sending a notification panicked; this is a bug in windlass, please report it"
    );
    Warning {
        reason: "NotificationDispatchFailed",
        message: "failed to send a notification: sending it panicked; this is a bug in windlass, please report it"
            .to_owned(),
        annotations: BTreeMap::new(),
    }
}

/// It names no object, so that many of them are one warning.
fn expired(notification: &Notification) -> Warning {
    let provider = &notification.provider;
    Warning {
        reason: "NotificationDispatchFailed",
        message: format!(
            "discarded a notification that waited for Provider '{provider}' for more than {} hours",
            KEPT_FOR / 3600
        ),
        annotations: BTreeMap::new(),
    }
}

impl Delivery {
    /// Draws the conclusion from an attempt; returns the pause before the next one of the same notification.
    async fn settle(
        &self,
        place: &ProviderKey,
        number: u64,
        notification: &Notification,
        ended: DeliveryAttempt,
        provider_failures: &mut ProviderFailures,
    ) -> Option<Duration> {
        let has_expired = is_expired(notification);
        // The next attempt may succeed.
        let is_early = matches!(ended.outcome, DeliveryOutcome::Later(..))
            && !has_expired
            && provider_failures.attempts + 1 < MIN_FAILED_ATTEMPTS;
        if !is_early {
            self.last.record(place, &ended);
        }
        let is_delivered = matches!(ended.outcome, DeliveryOutcome::Delivered(_));
        // One that waited for too long is sent if its incident is still open.
        let is_ended =
            is_delivered || matches!(ended.outcome, DeliveryOutcome::Refused(_)) && !has_expired;
        let mut message = None;
        let outcome = match ended.outcome {
            DeliveryOutcome::Later(warning, asked) if !has_expired => {
                provider_failures.attempts += 1;
                let pause = provider_failures.pause(asked);
                self.context.metrics.notified(NotificationOutcome::Retried);
                self.tell_failures(place, &warning, Some(pause), provider_failures);
                if provider_failures.attempts.is_multiple_of(ATTEMPTS_IN_FRONT) {
                    self.lanes.step_back(place);
                }
                return Some(pause);
            }
            DeliveryOutcome::Later(warning, _) | DeliveryOutcome::Refused(warning) => {
                self.warn(&notification.namespace, &notification.alert, warning.clone());
                self.tell_failures(place, &warning, None, provider_failures);
                NotificationOutcome::Failed
            }
            DeliveryOutcome::Unwanted => NotificationOutcome::Unwanted,
            DeliveryOutcome::Delivered(id) => {
                message = id;
                if std::mem::take(provider_failures).reported_at.is_some() {
                    let waiting = self.lanes.waiting(place).saturating_sub(1);
                    let text = format!("notifications are delivered again; {waiting} are waiting");
                    self.tell(place, Severity::Info, "DeliveryResumed", text);
                }
                NotificationOutcome::Delivered
            }
        };
        self.context.metrics.notified(outcome);
        // Before it waits no more, so that it is always known to be one or the other.
        if let Some(step) = notification.step().filter(|_| is_ended) {
            self.outcomes.put(IncidentDeliveryOutcome { step, is_delivered, message });
        }
        self.lanes.end(place);
        self.remove(number).await;
        None
    }

    /// Reports on a Provider that its service does not work, but not at every attempt.
    fn tell_failures(
        &self,
        place: &ProviderKey,
        warning: &Warning,
        again: Option<Duration>,
        provider_failures: &mut ProviderFailures,
    ) {
        if provider_failures.reported_at.is_some_and(|at| at.elapsed() < REPORT_INTERVAL) {
            return;
        }
        provider_failures.reported_at = Some(Instant::now());
        let why = super::logged(&warning.message);
        let text = match again {
            Some(pause) => {
                let waiting = self.lanes.waiting(place);
                let pause = reconcile::format_duration(pause);
                format!("{why}; retrying in {pause}, {waiting} notification(s) are waiting")
            }
            None => format!("{why}; the notification is not sent again"),
        };
        tracing::error!(
            controller_kind = "Provider",
            name = place.name,
            namespace = place.namespace,
            error = text,
            "failed to deliver a notification"
        );
        self.tell(place, Severity::Error, "DeliveryFailed", text);
    }

    /// Records an event on a Provider.
    fn tell(&self, place: &ProviderKey, severity: Severity, reason: &str, message: String) {
        let Some(provider) = self.context.seen::<Provider>(&place.namespace, &place.name) else {
            return;
        };
        let reason = reason.to_owned();
        let event = Event { severity, reason, message, metadata: BTreeMap::new() };
        self.context.events.announce(&*provider, super::CONTROLLER, event);
    }

    /// Records what the engine says about an Alert; the same warning is not recorded again for a while.
    pub(super) fn warn(&self, namespace: &str, name: &str, warning: Warning) {
        let Some(alert) = self.context.seen::<Alert>(namespace, name) else { return };
        let key = format!("{namespace}/{name}/{}/{}", warning.reason, warning.message);
        if self.is_reported(&key) {
            return;
        }
        let event = Event {
            severity: Severity::Error,
            reason: warning.reason.to_owned(),
            message: warning.message,
            metadata: warning.annotations,
        };
        self.context.events.announce(&*alert, super::CONTROLLER, event);
    }
}

fn is_expired(notification: &Notification) -> bool {
    jiff::Timestamp::now().as_second() - notification.since >= KEPT_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_are_never_shorter_than_a_service_asks() {
        let pause = |attempts, asked: Option<u64>| {
            let provider_failures = ProviderFailures { attempts, reported_at: None };
            provider_failures.pause(asked.map(Duration::from_secs)).as_secs()
        };
        assert_eq!([1, 2, 3, 20].map(|attempts| pause(attempts, None)), [5, 10, 20, 300]);
        assert_eq!(pause(1, Some(60)), 60);
        assert_eq!(pause(20, Some(1)), 300);
    }

    #[test]
    fn a_service_that_does_not_work_is_remembered_when_its_lane_ends_and_so_many_of_them() {
        let place = |name: usize| ProviderKey { namespace: "a".to_owned(), name: name.to_string() };
        let begin = Instant::now();
        let failures_at = |seconds: usize| {
            let reported_at = Some(begin + Duration::from_secs(seconds as u64));
            ProviderFailures { attempts: 1, reported_at }
        };
        let provider_health = ProviderHealth::default();
        for at in 0..MOST_TROUBLES + 2 {
            provider_health.keep(&place(at), failures_at(at));
        }
        assert_eq!(provider_health.all().len(), MOST_TROUBLES);
        assert_eq!(
            [0, 1].map(|at| provider_health.of(&place(at))),
            [ProviderFailures::default(); 2]
        );
        assert_eq!(provider_health.of(&place(2)), failures_at(2));
        provider_health.keep(&place(2), ProviderFailures::default());
        assert_eq!(provider_health.of(&place(2)), ProviderFailures::default());
        assert_eq!(provider_health.all().len(), MOST_TROUBLES - 1);
    }

    #[test]
    fn what_waited_too_long_is_one_warning_for_all_of_a_provider() {
        let notification = |name: &str, since: i64| {
            let object = notify::ObjectReference { name: name.to_owned(), ..Default::default() };
            let event = notify::Event { object, ..notify::Event::default() };
            Notification::new("apps", "alert", "chat", &event, since)
        };
        let now = jiff::Timestamp::now().as_second();
        let [old, older] = [KEPT_FOR, KEPT_FOR * 9].map(|age| notification("a", now - age));
        assert!(is_expired(&old) && is_expired(&older));
        assert!(!is_expired(&notification("a", now)));
        assert_eq!(expired(&old), expired(&notification("b", now - KEPT_FOR)));
        assert!(expired(&old).message.contains("'chat' for more than 6 hours"));
    }
}
