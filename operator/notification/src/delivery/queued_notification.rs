//! A notification from the moment in which an Alert selects an event, and how it waits.
//!
//! Elsewhere: where it is stored (`notification_spool`), in which order it is sent (`delivery_order`, `provider_queues`).

use serde::{Deserialize, Serialize};

use super::delivery_order::DeliveryOrder;
use super::incident_notifications::{
    IncidentNotificationKey, IncidentTransition, IncidentTransitionReference,
};
use super::provider_queues::ProviderKey;

/// The largest notification in bytes. The limit is needed because the Alert and the controller write metadata of any length.
/// Messages are shorter.
pub(super) const MAX_NOTIFICATION_BYTES: usize = 256 << 10;

/// The notification of an Alert to its Provider, about an event that the Alert selected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct QueuedNotification {
    /// The namespace of Alert and Provider.
    pub(super) namespace: String,
    pub(super) alert: String,
    pub(super) provider: String,
    /// The time when the notification began to wait, in seconds since 1970.
    pub(super) since: i64,
    /// The incident that the notification is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) incident: Option<IncidentTransitionReference>,
    /// The event. In JSON it has the form in which it is posted.
    pub(super) event: notify::FluxEvent,
    /// The nanoseconds of the event, which its form in JSON lacks.
    pub(super) nanoseconds: u32,
}

impl QueuedNotification {
    /// A notification about an event, with all its metadata.
    pub(super) fn new(
        namespace: &str,
        alert: &str,
        provider: &str,
        event: &notify::FluxEvent,
        since: i64,
    ) -> Self {
        let [namespace, alert, provider] = [namespace, alert, provider].map(str::to_owned);
        let nanoseconds = event.nanoseconds;
        let event = event.clone();
        Self { namespace, alert, provider, since, incident: None, event, nanoseconds }
    }

    /// The same notification as one about an incident.
    pub(super) fn about(self, incident: IncidentTransitionReference) -> Self {
        Self { incident: Some(incident), ..self }
    }

    /// The event that the notification carries, in the form in which the engine sends it.
    pub(super) fn event(&self) -> notify::FluxEvent {
        let incident = self.incident.as_ref().map(IncidentTransitionReference::incident);
        notify::FluxEvent {
            nanoseconds: self.nanoseconds,
            lacks_metadata: false,
            incident,
            ..self.event.clone()
        }
    }

    /// The identity of a notification about an Incident. `None` if the notification is not about an Incident.
    pub(super) fn step(&self) -> Option<IncidentNotificationKey> {
        let mark = self.incident.clone()?;
        let [namespace, alert, provider] =
            [&self.namespace, &self.alert, &self.provider].map(Clone::clone);
        Some(IncidentNotificationKey { namespace, alert, provider, mark })
    }

    /// Whether the notification reports the end of an incident.
    pub(super) fn ends_incident(&self) -> bool {
        self.incident.as_ref().is_some_and(|mark| mark.saying == IncidentTransition::Resolved)
    }

    pub(super) fn provider_key(&self) -> ProviderKey {
        ProviderKey { namespace: self.namespace.clone(), name: self.provider.clone() }
    }

    pub(super) fn is_error(&self) -> bool {
        self.event.severity == "error"
    }
}

/// A notification in the spool that may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitingNotification {
    /// Its number in the spool.
    pub(super) number: u64,
    pub(super) provider: ProviderKey,
    pub(super) order: DeliveryOrder,
}

impl WaitingNotification {
    pub(super) fn new(number: u64, notification: &QueuedNotification) -> Self {
        let order = DeliveryOrder::of(&notification.event);
        Self { number, provider: notification.provider_key(), order }
    }
}
