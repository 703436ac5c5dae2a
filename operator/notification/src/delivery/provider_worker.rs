//! Sends the notifications of a Provider, several at once. It pauses after a failed attempt, and records events about the
//! Provider.
//!
//! Elsewhere: one attempt (`delivery_attempt`), waiting notifications (`notification_queue`) and their order
//! (`provider_queues`), how many are sent at once (`sending_pace`).

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::notification::Provider;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use notify::AlertWarningEvent;
use parking_lot::Mutex;

use super::alert_warnings::dispatch_failed;
use super::delivery_attempt::{DeliveryAttempt, DeliveryOutcome, RequestGate, attempt};
use super::incident_notifications::{IncidentNotificationOutcome, is_current};
use super::notification_queue::NotificationQueue;
use super::provider_queues::ProviderKey;
use super::queued_notification::QueuedNotification;
use super::sending_pace::{AttemptRound, RequestedPause, SendingPace};
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::metrics::NotificationOutcomeLabel;

/// The first pause after a failed attempt. Each further pause is twice as long.
const SHORTEST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The longest time for which a notification waits for a failing service, in seconds.
const KEPT_FOR: i64 = 6 * 3600;

/// After this number of attempts, the other notifications are sent first. The service may only reject this one.
const ATTEMPTS_IN_FRONT: u32 = 8;

/// After this number of attempts a service counts as failing, before its notifications are discarded.
const MIN_FAILED_ATTEMPTS: u32 = 2;

/// The interval at which a failure of a Provider is reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(600);

/// The most failing services that are remembered. A new one replaces the one that was reported first.
const MAX_FAILING_PROVIDERS: usize = 1_000;

/// A service that does not work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ProviderFailures {
    attempts: u32,
    reported_at: Option<Instant>,
}

/// Failures of services, by the uids of their Providers. They are kept longer than a queue, which ends with its last
/// notification. A Provider that was deleted and created again may name another service.
#[derive(Default)]
pub(super) struct ProviderHealth(Mutex<BTreeMap<String, ProviderFailures>>);

impl ProviderHealth {
    fn of(&self, uid: &str) -> ProviderFailures {
        self.0.lock().get(uid).copied().unwrap_or_default()
    }

    fn keep(&self, uid: &str, failures: ProviderFailures) {
        let mut all = self.0.lock();
        all.remove(uid);
        if failures == ProviderFailures::default() {
            return;
        }
        if all.len() >= MAX_FAILING_PROVIDERS {
            let first = all.iter().min_by_key(|(_, failures)| failures.reported_at);
            if let Some(first) = first.map(|(uid, _)| uid.clone()) {
                all.remove(&first);
            }
        }
        all.insert(uid.to_owned(), failures);
    }
}

/// The failures of the Provider's service that a queue knows.
#[derive(Debug, Default)]
struct ProviderFailureRecord {
    /// The uid of the Provider of `failures`. `None` if no Provider was seen yet.
    uid: Option<String>,
    failures: ProviderFailures,
}

impl ProviderFailureRecord {
    /// Notes the present uid of the Provider. If it is another Provider than before, the former failures are not about it.
    fn meet(&mut self, uid: Option<String>, health: &ProviderHealth) {
        let Some(uid) = uid.filter(|uid| self.uid.as_ref() != Some(uid)) else { return };
        self.failures = health.of(&uid);
        self.uid = Some(uid);
    }

    fn keep(&self, health: &ProviderHealth) {
        if let Some(uid) = &self.uid {
            health.keep(uid, self.failures);
        }
    }
}

impl ProviderFailures {
    /// The pause before the next attempt.
    fn pause(&self, asked: Option<Duration>) -> Duration {
        let doubled = reconcile::backoff(self.attempts, SHORTEST_PAUSE, LONGEST_PAUSE);
        asked.unwrap_or_default().max(doubled)
    }
}

/// Sends the notifications that wait for one Provider. Several are sent at once while its service accepts them.
pub(super) struct ProviderWorker {
    queue: Arc<NotificationQueue>,
    provider: ProviderKey,
    known: ProviderFailureRecord,
    pace: SendingPace,
    requested_pause: Arc<RequestedPause>,
}

/// An attempt that has ended, and its notification. There is none if it was dropped to make room for others.
struct PushAttemptEnd {
    number: u64,
    notification: Option<Arc<QueuedNotification>>,
    ended: DeliveryAttempt,
    round: AttemptRound,
}

impl ProviderWorker {
    pub(super) fn new(queue: Arc<NotificationQueue>, provider: ProviderKey) -> Self {
        let known = ProviderFailureRecord::default();
        let requested_pause = Arc::default();
        Self { queue, provider, known, pace: SendingPace::new(), requested_pause }
    }

    /// Sends notifications until none waits for the Provider, or the process ends.
    pub(super) async fn work(mut self) {
        let queue = self.queue.clone();
        let Some(signals) = queue.providers.signals(&self.provider) else { return };
        let mut running = FuturesUnordered::new();
        loop {
            let is_stopping = queue.stop.is_cancelled();
            self.pace.keep(&self.requested_pause);
            while !is_stopping && let Some(number) = self.begin(running.len()) {
                let pause = self.requested_pause.clone();
                running.push(attempt_of(queue.clone(), number, self.pace.round(), pause));
            }
            let is_done = || queue.providers.remove_empty(&self.provider);
            let pause_end = self.pace.pause_end();
            let is_paused = pause_end.is_some();
            if running.is_empty() && (is_stopping || !is_paused && is_done()) {
                return;
            }
            let pause_end = pause_end.unwrap_or_else(Instant::now);
            tokio::select! {
                Some(attempt) = running.next() => {
                    self.settle(attempt);
                    self.known.keep(&queue.health);
                }
                () = signals.added.notified(), if self.pace.may_begin(running.len()) => {}
                () = tokio::time::sleep_until(pause_end.into()), if is_paused => self.pace.resume(),
                () = signals.changed.notified(), if is_paused => {
                    self.known.failures.attempts = 0;
                    self.pace.resume();
                }
                () = queue.stop.cancelled(), if !is_stopping => {}
            }
        }
    }

    /// Begins to send the next notification, and returns its number. `running` is how many are being sent. `None` if none may
    /// be sent now.
    fn begin(&mut self, running: usize) -> Option<u64> {
        if !self.pace.may_begin(running) {
            return None;
        }
        let ProviderKey { namespace, name } = &self.provider;
        let provider = self.queue.context.seen::<Provider>(namespace, name);
        let uid = provider.as_ref().and_then(|it| it.metadata.uid.clone());
        if running == 0 {
            self.known.meet(uid, &self.queue.health);
        } else if uid.is_some() && uid != self.known.uid {
            // The attempts that run are about the Provider before it.
            return None;
        }
        let by_commit = provider.is_some_and(|it| !notify::has_incidents(it.spec.type_.as_str()));
        self.queue.providers.begin(&self.provider, by_commit)
    }

    /// Handles the end of an attempt to send a notification: it was delivered, is attempted later, or failed finally.
    fn settle(&mut self, PushAttemptEnd { number, notification, ended, round }: PushAttemptEnd) {
        let queue = self.queue.clone();
        let Some(notification) = notification else {
            queue.providers.end(&self.provider, number);
            // If it could not be read, its end has no record yet.
            queue.remove(number);
            return;
        };
        let is_late = self.pace.is_late(round);
        let has_expired = is_expired(&notification);
        let attempts = self.known.failures.attempts + u32::from(!is_late);
        // The next attempt may succeed.
        let is_early = matches!(ended.outcome, DeliveryOutcome::Later(..))
            && !has_expired
            && attempts < MIN_FAILED_ATTEMPTS;
        if !is_early {
            queue.last.record(&self.provider, &ended);
        }
        let is_delivered = matches!(ended.outcome, DeliveryOutcome::Delivered(_));
        // One that waited for too long is sent if its incident is still open.
        let is_ended =
            is_delivered || matches!(ended.outcome, DeliveryOutcome::Refused(_)) && !has_expired;
        let mut message = None;
        let outcome = match ended.outcome {
            DeliveryOutcome::Later(warning, asked) if !has_expired => {
                queue.context.metrics.notified(NotificationOutcomeLabel::Retried);
                self.pause(number, &warning, asked, is_late);
                return;
            }
            DeliveryOutcome::Later(warning, _) | DeliveryOutcome::Refused(warning) => {
                let QueuedNotification { namespace, alert, .. } = &*notification;
                queue.warnings.warn(namespace, alert, warning.clone());
                self.report_failure(&warning, None);
                NotificationOutcomeLabel::Failed
            }
            DeliveryOutcome::Unwanted => NotificationOutcomeLabel::Unwanted,
            DeliveryOutcome::Delivered(id) => {
                message = id;
                queue.providers.delivered(&self.provider, number);
                if !is_late {
                    self.accepted();
                }
                NotificationOutcomeLabel::Delivered
            }
        };
        queue.context.metrics.notified(outcome);
        // The outcome is recorded before the notification leaves the queue, so that it is always known to be waiting or ended.
        if let Some(step) = notification.step().filter(|_| is_ended) {
            queue.incident_outcomes.put(IncidentNotificationOutcome {
                step,
                is_delivered,
                message,
            });
        }
        queue.providers.end(&self.provider, number);
        queue.remove(number);
    }

    /// Pauses after a failed attempt. All notifications of the Provider wait until then.
    ///
    /// Attempts that ran at the same time fail for the same reason, so the later ones do not make the pause grow. The service
    /// may ask for a longer one in each of its answers.
    fn pause(
        &mut self,
        number: u64,
        warning: &AlertWarningEvent,
        asked: Option<Duration>,
        is_late: bool,
    ) {
        let queue = self.queue.clone();
        if is_late {
            queue.providers.retry(&self.provider, number);
            if let Some(asked) = asked.filter(|it| !it.is_zero()) {
                self.pace.extend(asked);
            }
            return;
        }
        self.known.failures.attempts += 1;
        let pause = self.known.failures.pause(asked);
        self.pace.pause(pause);
        self.report_failure(warning, Some(pause));
        if self.known.failures.attempts.is_multiple_of(ATTEMPTS_IN_FRONT) {
            queue.providers.step_back(&self.provider, number);
        } else {
            queue.providers.retry(&self.provider, number);
        }
    }

    /// Records that the service of the Provider works. An event reports it if a failure was reported before.
    fn accepted(&mut self) {
        self.pace.accepted();
        if std::mem::take(&mut self.known.failures).reported_at.is_some() {
            let waiting = self.queue.providers.waiting(&self.provider).saturating_sub(1);
            let text = format!("notifications are delivered again; {waiting} are waiting");
            self.report(EventSeverity::Info, "DeliveryResumed", text);
        }
    }

    /// Reports on the Provider that its service does not work, but not at every attempt.
    fn report_failure(&mut self, warning: &AlertWarningEvent, again: Option<Duration>) {
        if self.known.failures.reported_at.is_some_and(|at| at.elapsed() < REPORT_INTERVAL) {
            return;
        }
        self.known.failures.reported_at = Some(Instant::now());
        let why = super::logged(&warning.message);
        let text = match again {
            Some(pause) => {
                let waiting = self.queue.providers.waiting(&self.provider);
                let pause = reconcile::format_duration(pause);
                format!("{why}; retrying in {pause}, {waiting} notification(s) are waiting")
            }
            None => format!("{why}; the notification is not sent again"),
        };
        tracing::error!(
            controller_kind = "Provider",
            name = self.provider.name,
            namespace = self.provider.namespace,
            error = text,
            "failed to deliver a notification"
        );
        self.report(EventSeverity::Error, "DeliveryFailed", text);
    }

    /// Records an event on the Provider.
    fn report(&self, severity: EventSeverity, reason: &str, message: String) {
        let ProviderKey { namespace, name } = &self.provider;
        let context = &self.queue.context;
        let Some(provider) = context.seen::<Provider>(namespace, name) else { return };
        let reason = reason.to_owned();
        let event = ObjectEvent { severity, reason, message, metadata: BTreeMap::new() };
        context.events.announce(&*provider, super::CONTROLLER, event);
    }
}

/// Reads a notification and makes an attempt to send it.
async fn attempt_of(
    queue: Arc<NotificationQueue>,
    number: u64,
    round: AttemptRound,
    pause: Arc<RequestedPause>,
) -> PushAttemptEnd {
    let notification = queue.read(number).await;
    let ended = match &notification {
        Some(notification) => attempt_to_send(&queue, notification, &pause).await,
        None => DeliveryAttempt::unsent(DeliveryOutcome::Unwanted),
    };
    PushAttemptEnd { number, notification, ended, round }
}

async fn attempt_to_send(
    queue: &NotificationQueue,
    notification: &QueuedNotification,
    requested_pause: &RequestedPause,
) -> DeliveryAttempt {
    let NotificationQueue { context, permits, .. } = queue;
    if !is_current(context, notification) {
        return DeliveryAttempt::unsent(DeliveryOutcome::Unwanted);
    }
    if is_expired(notification) {
        return DeliveryAttempt::unsent(DeliveryOutcome::Refused(expired(notification)));
    }
    let gate = RequestGate { permits, requested_pause };
    let trying = attempt(context, gate, notification);
    let ended = AssertUnwindSafe(trying).catch_unwind().await;
    ended.unwrap_or_else(|_| {
        tracing::error!(
            provider = notification.provider,
            namespace = notification.namespace,
            "sending a notification panicked; this is a bug in windlass, please report it"
        );
        let message = "failed to send a notification: sending it panicked; this is a bug in windlass, please report it";
        DeliveryAttempt::unsent(DeliveryOutcome::Refused(dispatch_failed(message.to_owned())))
    })
}

/// The warning names no object, so that many expired notifications give one warning.
fn expired(notification: &QueuedNotification) -> AlertWarningEvent {
    let provider = &notification.provider;
    dispatch_failed(format!(
        "discarded a notification that waited for Provider '{provider}' for more than {} hours",
        KEPT_FOR / 3600
    ))
}

fn is_expired(notification: &QueuedNotification) -> bool {
    jiff::Timestamp::now().as_second() - notification.since >= KEPT_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_are_never_shorter_than_a_service_asks() {
        let pause = |attempts, asked: Option<u64>| {
            let failures = ProviderFailures { attempts, reported_at: None };
            failures.pause(asked.map(Duration::from_secs)).as_secs()
        };
        assert_eq!([1, 2, 3, 20].map(|attempts| pause(attempts, None)), [5, 10, 20, 300]);
        assert_eq!(pause(1, Some(60)), 60);
        assert_eq!(pause(20, Some(1)), 300);
    }

    #[test]
    fn a_service_that_does_not_work_is_remembered_when_its_queue_ends_and_so_many_of_them() {
        let begin = Instant::now();
        let failures_at = |seconds: usize| {
            let reported_at = Some(begin + Duration::from_secs(seconds as u64));
            ProviderFailures { attempts: 1, reported_at }
        };
        let health = ProviderHealth::default();
        for at in 0..MAX_FAILING_PROVIDERS + 2 {
            health.keep(&at.to_string(), failures_at(at));
        }
        assert_eq!(health.0.lock().len(), MAX_FAILING_PROVIDERS);
        assert_eq!(["0", "1"].map(|uid| health.of(uid)), [ProviderFailures::default(); 2]);
        assert_eq!(health.of("2"), failures_at(2));
        health.keep("2", ProviderFailures::default());
        assert_eq!(health.of("2"), ProviderFailures::default());
        assert_eq!(health.0.lock().len(), MAX_FAILING_PROVIDERS - 1);
    }

    #[test]
    fn a_provider_that_was_created_again_is_not_taken_for_the_one_before() {
        let health = ProviderHealth::default();
        let failures = ProviderFailures { attempts: 7, reported_at: Some(Instant::now()) };
        let mut known = ProviderFailureRecord::default();
        let uid = |uid: &str| Some(uid.to_owned());
        known.meet(uid("first"), &health);
        known.failures = failures;
        // While it does not exist, nothing is known of another one.
        known.meet(None, &health);
        known.meet(uid("first"), &health);
        assert_eq!(known.failures, failures);
        known.keep(&health);
        known.meet(uid("second"), &health);
        assert_eq!(known.failures, ProviderFailures::default(), "its own queue goes on");
        let mut later = ProviderFailureRecord::default();
        later.meet(uid("second"), &health);
        assert_eq!(later.failures, ProviderFailures::default(), "a later queue");
        later.meet(uid("first"), &health);
        assert_eq!(later.failures, failures);
    }

    #[test]
    fn what_waited_too_long_is_one_warning_for_all_of_a_provider() {
        let notification = |name: &str, since: i64| {
            let object = notify::ObjectReference { name: name.to_owned(), ..Default::default() };
            let event = notify::FluxEvent { object, ..notify::FluxEvent::default() };
            QueuedNotification::new("apps", "alert", "chat", &event, since)
        };
        let now = jiff::Timestamp::now().as_second();
        let [old, older] = [KEPT_FOR, KEPT_FOR * 9].map(|age| notification("a", now - age));
        assert!(is_expired(&old) && is_expired(&older));
        assert!(!is_expired(&notification("a", now)));
        assert_eq!(expired(&old), expired(&notification("b", now - KEPT_FOR)));
        assert!(expired(&old).message.contains("'chat' for more than 6 hours"));
    }
}
