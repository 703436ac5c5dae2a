//! Holds notifications whose content an incident also reports. They wait until it is known that their Alert is sent the
//! incident.
//!
//! An Alert with incidents is sent one message about a failure instead of each error. But an incident may not open: the API
//! server may reject it, or too many may be open. The patterns of the Alert may also not select it. This is known seconds
//! later, and then the notification is sent after all.
//!
//! The notifications wait in memory, like events that were not matched yet, so a killed process loses those of the last
//! seconds. A notification that finds no room is sent at once.
//! Elsewhere: which notifications wait (`alert_router`), whether one is sent (`incident`).

use std::collections::BTreeMap;
use std::time::Instant;

use notify::ObjectReference;
use objects::{Gvk, ObjectId};
use parking_lot::Mutex;
use reconcile::Time;

use super::queued_notification::QueuedNotification;

/// The most that may wait for all Alerts.
const ALL: SuppressedNotificationUsage =
    SuppressedNotificationUsage { notifications: 10_000, bytes: 16 << 20 };

/// The most that may wait for the Alerts of one namespace.
const EACH: SuppressedNotificationUsage =
    SuppressedNotificationUsage { notifications: 2_500, bytes: 4 << 20 };

/// An Alert, and an object about which it sends notifications.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AlertObjectPair {
    /// The namespace of the Alert.
    pub(crate) namespace: String,
    pub(crate) alert: String,
    pub(crate) object: ObjectId,
}

impl AlertObjectPair {
    /// The topic of a notification about an object.
    pub(super) fn of(object: &ObjectReference, notification: &QueuedNotification) -> Self {
        let gvk = Gvk::new(&object.api_version, &object.kind);
        Self {
            namespace: notification.namespace.clone(),
            alert: notification.alert.clone(),
            object: ObjectId::new(&object.namespace, &object.name, &gvk.group, &gvk.kind),
        }
    }
}

/// The time since when a notification waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotificationWaitStart {
    pub(crate) at: Time,
    pub(crate) since: Instant,
}

struct SuppressedNotification {
    beginning: NotificationWaitStart,
    notification: QueuedNotification,
    bytes: usize,
}

/// The number and bytes of waiting notifications.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SuppressedNotificationUsage {
    notifications: usize,
    bytes: usize,
}

impl SuppressedNotificationUsage {
    fn has_room(self, bytes: usize, bounds: Self) -> bool {
        self.notifications < bounds.notifications && self.bytes + bytes <= bounds.bytes
    }

    fn add(&mut self, bytes: usize) {
        self.notifications += 1;
        self.bytes += bytes;
    }

    fn subtract(&mut self, bytes: usize) {
        self.notifications -= 1;
        self.bytes -= bytes;
    }
}

#[derive(Default)]
struct SuppressionBacklog {
    of: BTreeMap<AlertObjectPair, SuppressedNotification>,
    all: SuppressedNotificationUsage,
    each: BTreeMap<String, SuppressedNotificationUsage>,
}

impl SuppressionBacklog {
    fn take(&mut self, topic: &AlertObjectPair) -> Option<SuppressedNotification> {
        let entry = self.of.remove(topic)?;
        self.all.subtract(entry.bytes);
        if let Some(each) = self.each.get_mut(&topic.namespace) {
            each.subtract(entry.bytes);
            if each.notifications == 0 {
                self.each.remove(&topic.namespace);
            }
        }
        Some(entry)
    }
}

/// The notifications that wait in memory until it is known whether their Alert is sent an incident in their place.
#[derive(Default)]
pub(crate) struct SuppressedNotifications(Mutex<SuppressionBacklog>);

impl SuppressedNotifications {
    /// Holds a notification, in place of an earlier one about the same topic, and with the earlier one's waiting time. Returns
    /// the notification if there is no room, and otherwise `None`.
    pub(super) fn hold(
        &self,
        topic: AlertObjectPair,
        notification: QueuedNotification,
        bytes: usize,
    ) -> Option<QueuedNotification> {
        let mut waiting = self.0.lock();
        let earlier = waiting.take(&topic).map(|entry| entry.beginning);
        let each = waiting.each.get(&topic.namespace).copied().unwrap_or_default();
        if !waiting.all.has_room(bytes, ALL) || !each.has_room(bytes, EACH) {
            return Some(notification);
        }
        waiting.all.add(bytes);
        waiting.each.entry(topic.namespace.clone()).or_default().add(bytes);
        let now = || NotificationWaitStart { at: jiff::Timestamp::now(), since: Instant::now() };
        let beginning = earlier.unwrap_or_else(now);
        waiting.of.insert(topic, SuppressedNotification { beginning, notification, bytes });
        None
    }

    /// Takes the notification about a topic out of the waiting ones. `None` if none waits.
    pub(super) fn take(&self, topic: &AlertObjectPair) -> Option<QueuedNotification> {
        self.0.lock().take(topic).map(|entry| entry.notification)
    }

    /// Forgets a notification that an incident replaces.
    pub(crate) fn forget(&self, topic: &AlertObjectPair) {
        drop(self.take(topic));
    }

    /// The topics of the waiting notifications.
    pub(crate) fn topics(&self) -> Vec<(AlertObjectPair, NotificationWaitStart)> {
        let waiting = self.0.lock();
        waiting.of.iter().map(|(topic, entry)| (topic.clone(), entry.beginning)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(namespace: &str, name: usize) -> AlertObjectPair {
        let object = ObjectId::new("apps", &name.to_string(), "g.io", "Kustomization");
        AlertObjectPair { namespace: namespace.to_owned(), alert: "a".to_owned(), object }
    }

    fn notification(message: &str) -> QueuedNotification {
        let event =
            notify::FluxEvent { message: message.to_owned(), ..notify::FluxEvent::default() };
        QueuedNotification::new("apps", "a", "p", &event, 0)
    }

    #[test]
    fn the_newest_notification_about_an_object_waits_since_the_first_of_them() {
        let suppression = SuppressedNotifications::default();
        assert!(suppression.hold(topic("apps", 1), notification("first"), 10).is_none());
        let first = suppression.topics()[0].1.since;
        assert!(suppression.hold(topic("apps", 1), notification("second"), 20).is_none());
        let all = suppression.topics();
        assert_eq!((all.len(), all[0].1.since), (1, first));
        let kept = suppression.take(&topic("apps", 1)).map(|it| it.event().message);
        assert_eq!(kept.as_deref(), Some("second"));
        assert_eq!(suppression.0.lock().all, SuppressedNotificationUsage::default());
        assert!(suppression.0.lock().each.is_empty());
    }

    #[test]
    fn what_finds_no_room_comes_back_and_takes_none_of_the_room_of_others() {
        let suppression = SuppressedNotifications::default();
        for at in 0..EACH.notifications {
            assert!(suppression.hold(topic("loud", at), notification(""), 1).is_none());
        }
        assert!(suppression.hold(topic("loud", EACH.notifications), notification(""), 1).is_some());
        assert!(suppression.hold(topic("quiet", 0), notification(""), 1).is_none());
        assert!(suppression.hold(topic("quiet", 1), notification(""), EACH.bytes).is_some());
        assert!(suppression.take(&topic("loud", 0)).is_some());
        assert!(suppression.hold(topic("loud", 0), notification(""), 1).is_none());
    }
}
