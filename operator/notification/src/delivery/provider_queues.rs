//! A queue of notifications for each Provider, so that an unreachable Provider does not delay another.
//!
//! A queue exists while a notification waits in it. Its notifications are sent one after the other.
//! Here: the order. Elsewhere: the notifications themselves (`notification_spool`), sending (`provider_worker`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A Provider by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProviderKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Default)]
struct ProviderQueue {
    /// The numbers of the notifications in the spool.
    numbers: VecDeque<u64>,
    /// Signals that the Provider changed, so that another attempt may succeed now.
    changed: Arc<Notify>,
}

/// The queues of waiting notifications, one for each Provider, so that an unreachable Provider delays no other.
/// A queue exists only while a notification waits in it.
#[derive(Default)]
pub(crate) struct ProviderQueues(Mutex<BTreeMap<ProviderKey, ProviderQueue>>);

impl ProviderQueues {
    /// Adds a notification to the end of a queue. Returns true if the queue is new, so that the caller starts a task for it.
    pub(super) fn push(&self, provider: &ProviderKey, number: u64) -> bool {
        let mut queues = self.0.lock();
        let is_new = !queues.contains_key(provider);
        queues.entry(provider.clone()).or_default().numbers.push_back(number);
        is_new
    }

    /// The first notification in a queue. An empty queue is removed.
    pub(super) fn first(&self, provider: &ProviderKey) -> Option<u64> {
        let mut queues = self.0.lock();
        let first = queues.get(provider)?.numbers.front().copied();
        if first.is_none() {
            queues.remove(provider);
        }
        first
    }

    /// The number of notifications that wait for a Provider.
    pub(super) fn waiting(&self, provider: &ProviderKey) -> usize {
        self.0.lock().get(provider).map_or(0, |queue| queue.numbers.len())
    }

    /// The first has come to its end.
    pub(super) fn end(&self, provider: &ProviderKey) {
        if let Some(queue) = self.0.lock().get_mut(provider) {
            queue.numbers.pop_front();
        }
    }

    /// The first lets the others go before it.
    pub(super) fn step_back(&self, provider: &ProviderKey) {
        if let Some(queue) = self.0.lock().get_mut(provider) {
            queue.numbers.rotate_left(1);
        }
    }

    /// The signal that a Provider changed.
    pub(super) fn changed(&self, provider: &ProviderKey) -> Option<Arc<Notify>> {
        self.0.lock().get(provider).map(|queue| queue.changed.clone())
    }

    /// A Provider changed.
    pub(crate) fn ring(&self, namespace: &str, name: &str) {
        let provider = ProviderKey { namespace: namespace.to_owned(), name: name.to_owned() };
        if let Some(changed) = self.changed(&provider) {
            changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(name: &str) -> ProviderKey {
        ProviderKey { namespace: "apps".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn each_queue_has_its_own_order_and_ends_when_nothing_waits() {
        let queues = ProviderQueues::default();
        let chat = provider("chat");
        let mail = provider("mail");
        assert!(queues.push(&chat, 1));
        assert!(!queues.push(&chat, 3));
        assert!(queues.push(&mail, 2));
        assert_eq!((queues.first(&chat), queues.first(&mail)), (Some(1), Some(2)));
        queues.step_back(&chat);
        assert_eq!(queues.first(&chat), Some(3));
        queues.end(&chat);
        assert_eq!((queues.first(&chat), queues.waiting(&chat)), (Some(1), 1));
        queues.end(&chat);
        assert_eq!(queues.first(&chat), None);
        assert!(queues.push(&chat, 4), "a task is started again");
    }

    #[tokio::test]
    async fn a_change_of_a_provider_rings_in_its_queue_only() {
        let queues = ProviderQueues::default();
        queues.push(&provider("chat"), 1);
        queues.push(&provider("mail"), 2);
        let chat = queues.changed(&provider("chat")).unwrap();
        let mail = queues.changed(&provider("mail")).unwrap();
        queues.ring("apps", "chat");
        chat.notified().await;
        assert!(futures::FutureExt::now_or_never(mail.notified()).is_none());
    }
}
