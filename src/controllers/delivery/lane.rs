//! Working on a lane: attempts one after the other, pauses between those that fail, and what is said about it.
//!
//! Elsewhere: one attempt (`attempt`), who waits (`lanes`).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::notification::{Alert, Provider};
use futures::FutureExt as _;
use notify::Warning;

use super::Delivery;
use super::attempt::{Ended, attempt};
use super::lanes::Place;
use super::spool::Notification;
use crate::events::{Event, Severity};
use crate::metrics::NotificationOutcome;

/// Pauses after failed attempts; they double.
const SHORTEST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How long a notification waits for a service that does not work.
const KEPT_FOR: i64 = 6 * 3600;

/// After so many attempts the others go first: a service may dislike just this one.
const ATTEMPTS_IN_FRONT: u32 = 8;

/// How often the same trouble is told on a Provider.
const TOLD_AGAIN: Duration = Duration::from_secs(600);

/// A service that does not work.
#[derive(Default)]
struct Trouble {
    attempts: u32,
    told: Option<Instant>,
}

impl Trouble {
    /// The pause before the next attempt.
    fn pause(&self, asked: Option<Duration>) -> Duration {
        let doubled = reconcile::backoff(self.attempts, SHORTEST_PAUSE, LONGEST_PAUSE);
        asked.unwrap_or_default().max(doubled)
    }
}

/// Works on a lane until nothing waits in it, or the process ends.
pub(super) async fn work(delivery: Arc<Delivery>, place: Place) {
    let mut trouble = Trouble::default();
    while let Some(number) = delivery.lanes.first(&place) {
        if delivery.stop.is_cancelled() {
            return;
        }
        let Some(notification) = delivery.read(number).await else {
            delivery.lanes.end(&place);
            continue;
        };
        let trying = attempt(&delivery.context, &delivery.permits, &notification);
        let ended = match AssertUnwindSafe(trying).catch_unwind().await {
            Ok(ended) => ended,
            Err(_) => Ended::Refused(panicked(&notification)),
        };
        let Some(pause) = delivery.settle(&place, number, &notification, ended, &mut trouble).await
        else {
            continue;
        };
        let changed = delivery.lanes.changed(&place);
        let rings = async {
            match changed {
                Some(changed) => changed.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = rings => trouble.attempts = 0,
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
        annotations: std::collections::BTreeMap::new(),
    }
}

impl Delivery {
    /// Draws the conclusion from an attempt; returns the pause before the next one of the same notification.
    async fn settle(
        &self,
        place: &Place,
        number: u64,
        notification: &Notification,
        ended: Ended,
        trouble: &mut Trouble,
    ) -> Option<Duration> {
        let outcome = match ended {
            Ended::Later(warning, asked) if !is_expired(notification) => {
                trouble.attempts += 1;
                let pause = trouble.pause(asked);
                self.context.metrics.notified(NotificationOutcome::Retried);
                self.tell_trouble(place, &warning, Some(pause), trouble);
                if trouble.attempts.is_multiple_of(ATTEMPTS_IN_FRONT) {
                    self.lanes.step_back(place);
                }
                return Some(pause);
            }
            Ended::Later(warning, _) | Ended::Refused(warning) => {
                self.warn(&notification.namespace, &notification.alert, warning.clone());
                self.tell_trouble(place, &warning, None, trouble);
                NotificationOutcome::Failed
            }
            Ended::Unwanted => NotificationOutcome::Unwanted,
            Ended::Delivered => {
                if std::mem::take(trouble).told.is_some() {
                    let waiting = self.lanes.waiting(place).saturating_sub(1);
                    let text = format!("notifications are delivered again; {waiting} are waiting");
                    self.tell(place, Severity::Info, "DeliveryResumed", text);
                }
                NotificationOutcome::Delivered
            }
        };
        self.context.metrics.notified(outcome);
        self.lanes.end(place);
        self.remove(number).await;
        None
    }

    /// Says on a Provider that its service does not work; the same trouble is not told at every attempt.
    fn tell_trouble(
        &self,
        place: &Place,
        warning: &Warning,
        again: Option<Duration>,
        trouble: &mut Trouble,
    ) {
        if trouble.told.is_some_and(|at| at.elapsed() < TOLD_AGAIN) {
            return;
        }
        trouble.told = Some(Instant::now());
        let why = &warning.message;
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
    fn tell(&self, place: &Place, severity: Severity, reason: &str, message: String) {
        let Some(provider) = self.context.seen::<Provider>(&place.namespace, &place.name) else {
            return;
        };
        let reason = reason.to_owned();
        let event =
            Event { severity, reason, message, metadata: std::collections::BTreeMap::new() };
        self.context.events.announce(&*provider, super::CONTROLLER, event);
    }

    /// Records what the engine says about an Alert; the same is not told again for a while.
    pub(super) fn warn(&self, namespace: &str, name: &str, warning: Warning) {
        let Some(alert) = self.context.seen::<Alert>(namespace, name) else { return };
        let key = format!("{namespace}/{name}/{}/{}", warning.reason, warning.message);
        if self.is_told(key) {
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
            let trouble = Trouble { attempts, told: None };
            trouble.pause(asked.map(Duration::from_secs)).as_secs()
        };
        assert_eq!([1, 2, 3, 20].map(|attempts| pause(attempts, None)), [5, 10, 20, 300]);
        assert_eq!(pause(1, Some(60)), 60);
        assert_eq!(pause(20, Some(1)), 300);
    }
}
