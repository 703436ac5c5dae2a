//! Events that say what an incident says: they wait until it is known that their Alert is sent the incident.
//!
//! An Alert with incidents is sent one message about a failure instead of each error. Whether there is an incident, and
//! whether the Alert is sent it, is known seconds later: the API server may reject it, too many may be open, the patterns of the
//! Alert may not select it. The event of such a failure is sent after all.
//!
//! They wait in memory, like all events before it is decided who wants them: those of the last seconds are lost if the process is
//! killed. One that finds no room is sent at once.
//! Elsewhere: which events these are (`dispatch`), what becomes of one (`incident`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use notify::ObjectReference;
use objects::{Gvk, ObjectId};
use parking_lot::{Mutex, MutexGuard};
use reconcile::Time;

use super::Delivery;
use super::spool::Notification;

/// Bounds of what waits.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    events: usize,
    bytes: usize,
}

/// For all Alerts.
const ALL: Bounds = Bounds { events: 10_000, bytes: 16 << 20 };

/// For the Alerts of one namespace.
const EACH: Bounds = Bounds { events: 2_500, bytes: 4 << 20 };

/// An Alert, and an object about which it has an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Topic {
    /// The namespace of the Alert.
    pub(crate) namespace: String,
    pub(crate) alert: String,
    pub(crate) object: ObjectId,
}

/// Since when an event waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning {
    pub(crate) at: Time,
    pub(crate) since: Instant,
}

struct WaitingEvent {
    beginning: Beginning,
    notification: Notification,
    bytes: usize,
}

/// How much waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Amount {
    events: usize,
    bytes: usize,
}

impl Amount {
    fn has_room(self, bytes: usize, bounds: Bounds) -> bool {
        self.events < bounds.events && self.bytes + bytes <= bounds.bytes
    }

    fn add(&mut self, bytes: usize) {
        self.events += 1;
        self.bytes += bytes;
    }

    fn subtract(&mut self, bytes: usize) {
        self.events -= 1;
        self.bytes -= bytes;
    }
}

#[derive(Default)]
struct Backlog {
    of: BTreeMap<Topic, WaitingEvent>,
    all: Amount,
    each: BTreeMap<String, Amount>,
}

impl Backlog {
    fn take(&mut self, topic: &Topic) -> Option<WaitingEvent> {
        let entry = self.of.remove(topic)?;
        self.all.subtract(entry.bytes);
        if let Some(each) = self.each.get_mut(&topic.namespace) {
            each.subtract(entry.bytes);
            if each.events == 0 {
                self.each.remove(&topic.namespace);
            }
        }
        Some(entry)
    }
}

/// The events that wait in memory until it is known whether their Alert is sent an incident in their place.
#[derive(Default)]
pub(super) struct Suppression(Mutex<Backlog>);

impl Suppression {
    fn waiting(&self) -> MutexGuard<'_, Backlog> {
        self.0.lock()
    }

    /// Has an event wait in the place of an earlier one about the same, which began to wait before. Comes back if there is no
    /// room.
    fn hold(&self, topic: Topic, notification: Notification, bytes: usize) -> Option<Notification> {
        let mut waiting = self.waiting();
        let earlier = waiting.take(&topic).map(|entry| entry.beginning);
        let each = waiting.each.get(&topic.namespace).copied().unwrap_or_default();
        if !waiting.all.has_room(bytes, ALL) || !each.has_room(bytes, EACH) {
            return Some(notification);
        }
        waiting.all.add(bytes);
        waiting.each.entry(topic.namespace.clone()).or_default().add(bytes);
        let now = || Beginning { at: jiff::Timestamp::now(), since: Instant::now() };
        let beginning = earlier.unwrap_or_else(now);
        waiting.of.insert(topic, WaitingEvent { beginning, notification, bytes });
        None
    }

    fn take(&self, topic: &Topic) -> Option<Notification> {
        self.waiting().take(topic).map(|entry| entry.notification)
    }

    fn topics(&self) -> Vec<(Topic, Beginning)> {
        let waiting = self.waiting();
        waiting.of.iter().map(|(topic, entry)| (topic.clone(), entry.beginning)).collect()
    }
}

impl Delivery {
    /// Has an event wait that an incident may say instead.
    pub(super) async fn suppress(
        self: &Arc<Self>,
        object: &ObjectReference,
        notification: Notification,
        bytes: usize,
    ) {
        let gvk = Gvk::new(&object.api_version, &object.kind);
        let topic = Topic {
            namespace: notification.namespace.clone(),
            alert: notification.alert.clone(),
            object: ObjectId::new(&object.namespace, &object.name, &gvk.group, &gvk.kind),
        };
        if let Some(notification) = self.suppression.hold(topic, notification, bytes) {
            self.put(notification).await;
        }
    }

    /// What waits until it is known whether an incident says it.
    pub(crate) fn suppressed(&self) -> Vec<(Topic, Beginning)> {
        self.suppression.topics()
    }

    /// Forgets an event that an incident says.
    pub(crate) fn forget_suppressed(&self, topic: &Topic) {
        drop(self.suppression.take(topic));
    }

    /// Has an event sent after all.
    pub(crate) async fn send_suppressed(self: &Arc<Self>, topic: &Topic) {
        if let Some(notification) = self.suppression.take(topic) {
            self.put(notification).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(namespace: &str, name: usize) -> Topic {
        let object = ObjectId::new("apps", &name.to_string(), "g.io", "Kustomization");
        Topic { namespace: namespace.to_owned(), alert: "a".to_owned(), object }
    }

    fn notification(message: &str) -> Notification {
        let event = notify::Event { message: message.to_owned(), ..notify::Event::default() };
        Notification::new("apps", "a", "p", &event, 0)
    }

    #[test]
    fn the_newest_event_about_an_object_waits_since_the_first_of_them() {
        let events = Suppression::default();
        assert!(events.hold(topic("apps", 1), notification("first"), 10).is_none());
        let first = events.topics()[0].1.since;
        assert!(events.hold(topic("apps", 1), notification("second"), 20).is_none());
        let all = events.topics();
        assert_eq!((all.len(), all[0].1.since), (1, first));
        let kept = events.take(&topic("apps", 1)).map(|it| it.event().message);
        assert_eq!(kept.as_deref(), Some("second"));
        assert_eq!(events.waiting().all, Amount::default());
        assert!(events.waiting().each.is_empty());
    }

    #[test]
    fn what_finds_no_room_comes_back_and_takes_none_of_the_room_of_others() {
        let events = Suppression::default();
        for at in 0..EACH.events {
            assert!(events.hold(topic("loud", at), notification(""), 1).is_none());
        }
        assert!(events.hold(topic("loud", EACH.events), notification(""), 1).is_some());
        assert!(events.hold(topic("quiet", 0), notification(""), 1).is_none());
        assert!(events.hold(topic("quiet", 1), notification(""), EACH.bytes).is_some());
        assert!(events.take(&topic("loud", 0)).is_some());
        assert!(events.hold(topic("loud", 0), notification(""), 1).is_none());
    }
}
