//! Receives events, and passes on the events that Alerts may select.
//!
//! Elsewhere: the queue of events (`windlass_cluster::events`), which Alerts select one (`alert_match_queues`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use notify::ObjectReference;

use super::alert_match_queues::AlertMatcher;
use super::alert_router::is_reported_alone;
use super::repeated_events::RepeatedEvents;
use super::{NotificationDelivery, wait_for_alerts};
use windlass_cluster::events::{EventOrigin, EventRecord, EventSeverity, EventSink};
use windlass_cluster::metrics::NotificationOutcomeLabel;

/// Longest message. Parity(flux).
const MESSAGE_LIMIT: usize = 39_000;

/// How long events wait for the first list of Alerts and Providers. If their CRDs are not installed, no Alert selects events.
const LISTED_WITHIN: Duration = Duration::from_secs(60);

/// The group of Alerts, Providers and Receivers. Events about them are never sent.
const GROUP: &str = "notification.toolkit.fluxcd.io";

/// Takes events from their queue.
pub(super) struct EventDispatcher {
    delivery: Arc<NotificationDelivery>,
    matcher: Arc<AlertMatcher>,
    repetitions: RepeatedEvents,
    is_listed: bool,
    has_waited: bool,
}

impl EventDispatcher {
    /// A dispatcher. It does not send the same event twice within the interval of a flag.
    pub(super) fn new(delivery: Arc<NotificationDelivery>) -> Self {
        let repetitions = RepeatedEvents::within(delivery.context.settings.rate_limit_interval);
        let matcher = Arc::new(AlertMatcher::new(delivery.clone()));
        Self { delivery, matcher, repetitions, is_listed: false, has_waited: false }
    }

    /// Whether another program posted an event about an object that this process alone reports about.
    ///
    /// Differs(flux): any client may post any event there.
    fn is_forged(&self, record: &EventRecord) -> bool {
        let settings = &self.delivery.context.settings;
        let reconciles_all =
            settings.watch_all_namespaces && settings.watch_label_selector.text().is_empty();
        let is_forged = record.origin == EventOrigin::Posted
            && reconciles_all
            && is_reported_alone(&record.about.kind);
        if is_forged {
            tracing::debug!(
                controller_kind = record.about.kind,
                name = record.about.name,
                namespace = record.about.namespace,
                reporter = %record.controller,
                "ignored a posted event about an object that windlass reconciles"
            );
        }
        is_forged
    }

    /// Whether Alerts and Providers are known.
    async fn listed(&mut self) -> bool {
        if !self.is_listed {
            let listed = wait_for_alerts(&self.delivery.context);
            self.is_listed = match self.has_waited {
                true => listed.now_or_never() == Some(true),
                false => tokio::time::timeout(LISTED_WITHIN, listed).await == Ok(true),
            };
            self.has_waited = true;
            if self.is_listed {
                // Notifications from before the start are sent first.
                self.delivery.queue.start();
            }
        }
        self.is_listed
    }
}

impl EventSink for EventDispatcher {
    const NAME: &'static str = "notifications";
    const TAKES_POSTED: bool = true;

    async fn tell(&mut self, record: &EventRecord, _: bool) {
        let group = record.about.api_version.split('/').next().unwrap_or_default();
        if group == GROUP || self.is_forged(record) || !self.listed().await {
            return;
        }
        let mut event = event(record);
        event.clean_metadata();
        if self.repetitions.is_repeated(&event.rate_key(), Instant::now()) {
            self.delivery.context.metrics.notified(NotificationOutcomeLabel::Repeated);
            return;
        }
        self.matcher.push(&Arc::new(event)).await;
    }

    async fn end(&mut self) {
        self.matcher.settle().await;
        self.delivery.queue.settle().await;
    }
}

/// An event as the engine reads it.
fn event(record: &EventRecord) -> notify::FluxEvent {
    let about = &record.about;
    let mut message = record.event.message.clone();
    message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
    notify::FluxEvent {
        object: ObjectReference {
            kind: about.kind.clone(),
            namespace: about.namespace.clone(),
            name: about.name.clone(),
            uid: about.uid.clone(),
            api_version: about.api_version.clone(),
            resource_version: about.resource_version.clone(),
            field_path: String::new(),
        },
        severity: match record.event.severity {
            EventSeverity::Info => "info".to_owned(),
            EventSeverity::Error => "error".to_owned(),
        },
        timestamp: Some(record.at.as_second()),
        nanoseconds: u32::try_from(record.at.subsec_nanosecond()).unwrap_or_default(),
        message,
        reason: record.event.reason.clone(),
        metadata: record.event.metadata.clone(),
        lacks_metadata: record.event.metadata.is_empty(),
        reporting_controller: record.controller.clone().into_owned(),
        reporting_instance: record.instance.to_string(),
        incident: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_cluster::events::{EventObject, ObjectEvent};

    /// An error of a Kustomization.
    fn event_record(message: &str) -> EventRecord {
        let revision = "main@sha1:1".to_owned();
        let metadata = [("kustomize.toolkit.fluxcd.io/revision".to_owned(), revision)];
        EventRecord {
            origin: EventOrigin::Own,
            about: EventObject {
                api_version: "kustomize.toolkit.fluxcd.io/v1".to_owned(),
                kind: "Kustomization".to_owned(),
                namespace: "apps".to_owned(),
                name: "app".to_owned(),
                ..EventObject::default()
            },
            event: ObjectEvent {
                severity: EventSeverity::Error,
                reason: "BuildFailed".to_owned(),
                message: message.to_owned(),
                metadata: metadata.into(),
            },
            at: "2026-01-02T03:04:05.678Z".parse().unwrap(),
            controller: "kustomize-controller".into(),
            instance: "windlass-0".into(),
        }
    }

    #[test]
    fn an_event_keeps_what_it_says() {
        let event = event(&event_record(&"ä".repeat(30_000)));
        assert_eq!(event.object.name, "app");
        assert_eq!((event.severity.as_str(), event.reason.as_str()), ("error", "BuildFailed"));
        assert_eq!(event.timestamp, Some(1_767_323_045));
        assert_eq!(event.nanoseconds, 678_000_000);
        assert!(event.message.len() <= MESSAGE_LIMIT && event.message.ends_with('ä'));
        assert_eq!(event.metadata["kustomize.toolkit.fluxcd.io/revision"], "main@sha1:1");
        assert_eq!(event.reporting_controller, "kustomize-controller");
    }
}
