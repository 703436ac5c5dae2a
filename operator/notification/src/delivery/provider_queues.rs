//! The notifications that wait for each Provider: a lane for each, so that an unreachable one delays no other.
//!
//! A lane exists while a notification waits in it; its notifications are sent one after the other.
//! Here: the order. Elsewhere: what waits (`spool`), sending (`provider_queue`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// A Provider by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProviderKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Default)]
struct Lane {
    numbers: VecDeque<u64>,
    /// Rings when the Provider changed: another attempt may succeed now.
    changed: Arc<Notify>,
}

/// The queues of waiting notifications, one for each Provider, so that an unreachable Provider delays no other.
/// A queue exists only while a notification waits in it.
#[derive(Default)]
pub(crate) struct Lanes(Mutex<BTreeMap<ProviderKey, Lane>>);

impl Lanes {
    fn lanes(&self) -> MutexGuard<'_, BTreeMap<ProviderKey, Lane>> {
        self.0.lock()
    }

    /// Has a notification wait behind the others; true if the lane is new, so that the caller starts a task for it.
    pub(super) fn push(&self, place: &ProviderKey, number: u64) -> bool {
        let mut lanes = self.lanes();
        let is_new = !lanes.contains_key(place);
        lanes.entry(place.clone()).or_default().numbers.push_back(number);
        is_new
    }

    /// The first in a lane; an empty lane is removed.
    pub(super) fn first(&self, place: &ProviderKey) -> Option<u64> {
        let mut lanes = self.lanes();
        let first = lanes.get(place)?.numbers.front().copied();
        if first.is_none() {
            lanes.remove(place);
        }
        first
    }

    /// How many wait in a lane.
    pub(super) fn waiting(&self, place: &ProviderKey) -> usize {
        self.lanes().get(place).map_or(0, |lane| lane.numbers.len())
    }

    /// The first has come to its end.
    pub(super) fn end(&self, place: &ProviderKey) {
        if let Some(lane) = self.lanes().get_mut(place) {
            lane.numbers.pop_front();
        }
    }

    /// The first lets the others go before it.
    pub(super) fn step_back(&self, place: &ProviderKey) {
        if let Some(lane) = self.lanes().get_mut(place) {
            lane.numbers.rotate_left(1);
        }
    }

    /// What rings when a Provider changed.
    pub(super) fn changed(&self, place: &ProviderKey) -> Option<Arc<Notify>> {
        self.lanes().get(place).map(|lane| lane.changed.clone())
    }

    /// A Provider changed.
    pub(crate) fn ring(&self, namespace: &str, name: &str) {
        let place = ProviderKey { namespace: namespace.to_owned(), name: name.to_owned() };
        if let Some(changed) = self.changed(&place) {
            changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> ProviderKey {
        ProviderKey { namespace: "apps".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn each_lane_has_its_own_order_and_ends_when_nothing_waits() {
        let lanes = Lanes::default();
        let chat = place("chat");
        let mail = place("mail");
        assert!(lanes.push(&chat, 1));
        assert!(!lanes.push(&chat, 3));
        assert!(lanes.push(&mail, 2));
        assert_eq!((lanes.first(&chat), lanes.first(&mail)), (Some(1), Some(2)));
        lanes.step_back(&chat);
        assert_eq!(lanes.first(&chat), Some(3));
        lanes.end(&chat);
        assert_eq!((lanes.first(&chat), lanes.waiting(&chat)), (Some(1), 1));
        lanes.end(&chat);
        assert_eq!(lanes.first(&chat), None);
        assert!(lanes.push(&chat, 4), "somebody has to work on it again");
    }

    #[tokio::test]
    async fn a_change_of_a_provider_rings_in_its_lane_only() {
        let lanes = Lanes::default();
        lanes.push(&place("chat"), 1);
        lanes.push(&place("mail"), 2);
        let chat = lanes.changed(&place("chat")).unwrap();
        let mail = lanes.changed(&place("mail")).unwrap();
        lanes.ring("apps", "chat");
        chat.notified().await;
        assert!(futures::FutureExt::now_or_never(mail.notified()).is_none());
    }
}
