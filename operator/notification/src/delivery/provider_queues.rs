//! A queue of notifications for each Provider, so that an unreachable Provider does not delay another.
//!
//! A queue exists while a notification waits in it. Several of its notifications may be sent at the same time, except those
//! that have to be sent one after the other (`delivery_order`).
//! Here: which notification is next. Elsewhere: the notifications themselves (`notification_spool`), sending
//! (`provider_worker`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::delivery_order::DeliveryOrder;
use super::queued_notification::WaitingNotification;

/// The next notification is searched among this many at the front of a queue.
const MAX_SEARCH_DEPTH: usize = 64;

/// The most notifications that are sent at once besides the first of each queue, in total and for one namespace. Services
/// that do not respond thus take no more than half of the permits for requests from the first notifications of other queues.
const MAX_ADDITIONAL: usize = 32;
const MAX_ADDITIONAL_EACH: usize = 8;

/// For how many objects it is remembered that a notification about them was delivered.
const MAX_DELIVERED_OBJECTS: usize = 16_384;

/// A queue without a delivery for this time does not flow.
const FLOW_TIMEOUT: Duration = Duration::from_secs(1);

/// A Provider by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProviderKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A notification in a queue.
struct QueuePlace {
    /// The number of the notification in the spool.
    number: u64,
    order: DeliveryOrder,
    /// Whether it is being sent.
    is_running: bool,
}

/// What a worker waits for.
#[derive(Clone, Default)]
pub(super) struct QueueSignals {
    /// The Provider changed, so that another attempt may succeed now.
    pub(super) changed: Arc<Notify>,
    /// A notification was added.
    pub(super) added: Arc<Notify>,
}

#[derive(Default)]
struct ProviderQueue {
    places: VecDeque<QueuePlace>,
    /// How many of them are being sent.
    running: usize,
    /// When a notification was delivered last.
    delivered_at: Option<Instant>,
    signals: QueueSignals,
}

#[derive(Default)]
struct AllQueues {
    of: BTreeMap<ProviderKey, ProviderQueue>,
    /// How many notifications are being sent besides the first of each queue.
    additional: usize,
    additional_by_namespace: BTreeMap<String, usize>,
    /// The highest number of a delivered notification about each object. `None` unless earlier notifications may still be
    /// found.
    delivered: Option<BTreeMap<DeliveredObject, u64>>,
}

/// An object about which a Provider delivered a notification.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DeliveredObject {
    provider: ProviderKey,
    /// The hash of the object.
    object: u64,
}

impl DeliveredObject {
    fn of(provider: &ProviderKey, order: DeliveryOrder) -> Self {
        Self { provider: provider.clone(), object: order.object() }
    }
}

/// The queues of waiting notifications, one for each Provider, so that an unreachable Provider delays no other.
/// A queue exists only while a notification waits in it.
#[derive(Default)]
pub(crate) struct ProviderQueues(Mutex<AllQueues>);

impl ProviderQueue {
    /// The index of the first notification that may be sent now. It has to wait for each one before it with which it shares a
    /// hash. `None` if no notification may be sent now.
    fn next(&self, by_commit: bool) -> Option<usize> {
        let mut before = BTreeSet::new();
        for (at, place) in self.places.iter().take(MAX_SEARCH_DEPTH).enumerate() {
            let is_first = !place.order.hashes(by_commit).any(|hash| before.contains(&hash));
            if is_first && !place.is_running {
                return Some(at);
            }
            before.extend(place.order.hashes(by_commit));
        }
        None
    }

    /// The index of a notification in the queue of its Provider. `None` if it is not in this queue.
    fn place_of(&self, number: u64) -> Option<usize> {
        self.places.iter().position(|place| place.number == number)
    }
}

impl AllQueues {
    fn may_add(&self, namespace: &str) -> bool {
        let each = self.additional_by_namespace.get(namespace).copied().unwrap_or_default();
        self.additional < MAX_ADDITIONAL && each < MAX_ADDITIONAL_EACH
    }

    /// Adds a notification, see [`ProviderQueues::push`].
    fn push(&mut self, waiting: &WaitingNotification) -> bool {
        let WaitingNotification { number, provider, order } = waiting;
        let is_new = !self.of.contains_key(provider);
        let queue = self.of.entry(provider.clone()).or_default();
        let place = QueuePlace { number: *number, order: *order, is_running: false };
        let before = queue.places.iter().rposition(|it| it.number < *number || it.is_running);
        queue.places.insert(before.map_or(0, |at| at + 1), place);
        queue.signals.added.notify_one();
        is_new
    }

    /// Whether a later notification about the same object is being sent, or was delivered.
    fn is_overtaken(&self, waiting: &WaitingNotification) -> bool {
        let WaitingNotification { number, provider, order } = waiting;
        let is_delivered = || {
            let last = self.delivered.as_ref()?.get(&DeliveredObject::of(provider, *order))?;
            Some(last > number)
        };
        let overtakes = |place: &QueuePlace| {
            place.is_running && place.number > *number && place.order.is_about_object_of(*order)
        };
        let is_being_sent =
            self.of.get(provider).is_some_and(|queue| queue.places.iter().any(overtakes));
        is_being_sent || is_delivered() == Some(true)
    }

    /// Begins to send the next notification of a queue, and returns the number of that notification. `None` if none may be sent
    /// now.
    fn begin(&mut self, provider: &ProviderKey, by_commit: bool) -> Option<u64> {
        let is_additional = self.of.get(provider)?.running > 0;
        if is_additional && !self.may_add(&provider.namespace) {
            return None;
        }
        let queue = self.of.get_mut(provider)?;
        let next = queue.next(by_commit)?;
        let place = queue.places.get_mut(next)?;
        place.is_running = true;
        let number = place.number;
        queue.running += 1;
        if is_additional {
            self.additional += 1;
            let each = self.additional_by_namespace.entry(provider.namespace.clone());
            *each.or_default() += 1;
        }
        Some(number)
    }

    /// Records that a notification of a queue is not being sent any more. Returns the queue, and where the notification is in
    /// it. `None` if the notification is not in the queue.
    fn stop(&mut self, provider: &ProviderKey, number: u64) -> Option<StoppedPlace<'_>> {
        let queue = self.of.get_mut(provider)?;
        let at = queue.place_of(number)?;
        let place = queue.places.get_mut(at)?;
        if std::mem::take(&mut place.is_running) {
            queue.running -= 1;
            if queue.running > 0 {
                self.additional -= 1;
                if let Some(each) = self.additional_by_namespace.get_mut(&provider.namespace) {
                    *each -= 1;
                    if *each == 0 {
                        self.additional_by_namespace.remove(&provider.namespace);
                    }
                }
            }
        }
        Some(StoppedPlace { queue, at })
    }
}

/// A notification that is not being sent any more, in its queue.
struct StoppedPlace<'q> {
    queue: &'q mut ProviderQueue,
    at: usize,
}

impl ProviderQueues {
    /// Adds a notification to its queue: to the end, or if it has a lower number than others that wait, before these. Returns
    /// true if the queue is new, so that the caller starts a task for it.
    pub(super) fn push(&self, waiting: &WaitingNotification) -> bool {
        self.0.lock().push(waiting)
    }

    /// Like [`Self::push`], for a notification that an earlier process left and that was found late. `None` if it is not added:
    /// a later one about the same object is being sent or was delivered, so this one would not be the last any more.
    pub(super) fn push_found_late(&self, waiting: &WaitingNotification) -> Option<bool> {
        let mut queues = self.0.lock();
        (!queues.is_overtaken(waiting)).then(|| queues.push(waiting))
    }

    /// Remembers from now on about which objects notifications were delivered, because earlier ones may be found late.
    pub(super) fn remember_deliveries(&self) {
        self.0.lock().delivered = Some(BTreeMap::new());
    }

    /// Ends what [`Self::remember_deliveries`] began: deliveries are not remembered any more.
    pub(super) fn forget_deliveries(&self) {
        self.0.lock().delivered = None;
    }

    /// Begins to send the next notification of a queue, and returns its number. Notifications about one object, and if
    /// `by_commit` those about one commit, are sent one after the other. `None` if none may be sent now.
    pub(super) fn begin(&self, provider: &ProviderKey, by_commit: bool) -> Option<u64> {
        self.0.lock().begin(provider, by_commit)
    }

    /// Removes a queue if no notification waits in it. Returns whether it is gone.
    pub(super) fn remove_empty(&self, provider: &ProviderKey) -> bool {
        let mut queues = self.0.lock();
        let is_empty = queues.of.get(provider).is_none_or(|queue| queue.places.is_empty());
        if is_empty {
            queues.of.remove(provider);
        }
        is_empty
    }

    /// The number of notifications that wait for a Provider.
    pub(super) fn waiting(&self, provider: &ProviderKey) -> usize {
        self.0.lock().of.get(provider).map_or(0, |queue| queue.places.len())
    }

    /// The number of notifications that wait for those Providers of a namespace whose services accept notifications now.
    pub(super) fn flowing(&self, namespace: &str) -> usize {
        let queues = self.0.lock();
        let first = ProviderKey { namespace: namespace.to_owned(), name: String::new() };
        let own = queues.of.range(first..).take_while(|(key, _)| key.namespace == namespace);
        let flows = |queue: &ProviderQueue| {
            queue.delivered_at.is_some_and(|at| at.elapsed() < FLOW_TIMEOUT)
        };
        own.filter(|(_, queue)| flows(queue)).map(|(_, queue)| queue.places.len()).sum()
    }

    /// A service accepted a notification, which is still in its queue.
    pub(super) fn delivered(&self, provider: &ProviderKey, number: u64) {
        let mut queues = self.0.lock();
        let AllQueues { of, delivered, .. } = &mut *queues;
        let Some(queue) = of.get_mut(provider) else { return };
        queue.delivered_at = Some(Instant::now());
        let order =
            queue.place_of(number).and_then(|at| queue.places.get(at)).map(|place| place.order);
        let (Some(delivered), Some(order)) = (delivered, order) else { return };
        let object = DeliveredObject::of(provider, order);
        if delivered.len() < MAX_DELIVERED_OBJECTS || delivered.contains_key(&object) {
            let last = delivered.entry(object).or_default();
            *last = number.max(*last);
        }
    }

    /// A notification has come to its end.
    pub(super) fn end(&self, provider: &ProviderKey, number: u64) {
        if let Some(StoppedPlace { queue, at }) = self.0.lock().stop(provider, number) {
            queue.places.remove(at);
        }
    }

    /// A notification was dropped to make room for others. One that is being sent stays until its end. Otherwise the queue of
    /// a service that accepts nothing would grow with all that is dropped.
    pub(super) fn remove_dropped(&self, provider: &ProviderKey, number: u64) {
        let mut queues = self.0.lock();
        let Some(queue) = queues.of.get_mut(provider) else { return };
        let Some(at) = queue.place_of(number) else { return };
        if queue.places.get(at).is_some_and(|place| !place.is_running) {
            queue.places.remove(at);
        }
    }

    /// An attempt to send a notification has failed. It waits at its place for the next one.
    pub(super) fn retry(&self, provider: &ProviderKey, number: u64) {
        self.0.lock().stop(provider, number);
    }

    /// A notification lets the others go before it, except those about the same object. Those about the same commit go before
    /// it as well, since the service may reject this one only.
    pub(super) fn step_back(&self, provider: &ProviderKey, number: u64) {
        let mut queues = self.0.lock();
        let Some(StoppedPlace { queue, at }) = queues.stop(provider, number) else { return };
        let Some(order) = queue.places.get(at).map(|place| place.order) else { return };
        let shares = |place: &QueuePlace| place.order.is_about_object_of(order);
        let (behind, before): (Vec<_>, Vec<_>) = queue.places.drain(..).partition(shares);
        queue.places.extend(before);
        queue.places.extend(behind);
    }

    /// The signals that wake the worker of a Provider's queue. `None` if the Provider has no queue.
    pub(super) fn signals(&self, provider: &ProviderKey) -> Option<QueueSignals> {
        self.0.lock().of.get(provider).map(|queue| queue.signals.clone())
    }

    /// Wakes the worker of a Provider's queue, because the Provider changed.
    pub(crate) fn ring(&self, namespace: &str, name: &str) {
        let provider = ProviderKey { namespace: namespace.to_owned(), name: name.to_owned() };
        if let Some(signals) = self.signals(&provider) {
            signals.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(name: &str) -> ProviderKey {
        ProviderKey { namespace: "apps".to_owned(), name: name.to_owned() }
    }

    /// A notification about an object at a revision.
    fn waiting(
        provider: &ProviderKey,
        number: u64,
        name: &str,
        revision: &str,
    ) -> WaitingNotification {
        let name = name.to_owned();
        let object = notify::ObjectReference { name, ..notify::ObjectReference::default() };
        let metadata = [("revision".to_owned(), revision.to_owned())].into();
        let event = notify::FluxEvent { object, metadata, ..notify::FluxEvent::default() };
        let order = DeliveryOrder::of(&event);
        WaitingNotification { number, provider: provider.clone(), order }
    }

    /// Adds notifications about objects, each with a revision of its own.
    fn push_all(queues: &ProviderQueues, provider: &ProviderKey, names: &[&str]) {
        for (number, name) in (0..).zip(names) {
            queues.push(&waiting(provider, number, name, &number.to_string()));
        }
    }

    #[test]
    fn each_queue_has_its_own_order_and_ends_when_nothing_waits() {
        let queues = ProviderQueues::default();
        let chat = provider("chat");
        let mail = provider("mail");
        assert!(queues.push(&waiting(&chat, 1, "a", "")));
        assert!(!queues.push(&waiting(&chat, 3, "a", "")));
        assert!(queues.push(&waiting(&mail, 2, "a", "")));
        let next = |provider: &ProviderKey| queues.begin(provider, false);
        assert_eq!((next(&chat), next(&mail)), (Some(1), Some(2)));
        assert_eq!(next(&chat), None, "it is about the same object");
        queues.retry(&chat, 1);
        assert_eq!(next(&chat), Some(1));
        assert!(!queues.remove_empty(&chat));
        queues.end(&chat, 1);
        assert_eq!((next(&chat), queues.waiting(&chat)), (Some(3), 1));
        queues.end(&chat, 3);
        assert_eq!((next(&chat), queues.waiting(&chat)), (None, 0));
        assert!(queues.remove_empty(&chat));
        assert!(queues.push(&waiting(&chat, 4, "a", "")), "a task is started again");
    }

    #[test]
    fn one_with_a_lower_number_goes_before_those_that_are_not_being_sent() {
        let queues = ProviderQueues::default();
        let chat = provider("chat");
        for number in [7, 8, 3, 5] {
            queues.push(&waiting(&chat, number, "a", ""));
            if number == 7 {
                assert_eq!(queues.begin(&chat, false), Some(7));
            }
        }
        for (ended, next) in [(7, Some(3)), (3, Some(5)), (5, Some(8)), (8, None)] {
            queues.end(&chat, ended);
            assert_eq!(queues.begin(&chat, false), next);
        }
    }

    #[test]
    fn other_objects_are_sent_at_once_and_each_object_in_its_order() {
        let queues = ProviderQueues::default();
        let chat = provider("chat");
        push_all(&queues, &chat, &["a", "a", "b", "a", "c", "b"]);
        let all = || std::iter::from_fn(|| queues.begin(&chat, false)).collect::<Vec<_>>();
        assert_eq!(all(), [0, 2, 4]);
        queues.end(&chat, 4);
        assert_eq!(all(), [0_u64; 0]);
        queues.end(&chat, 0);
        assert_eq!(all(), [1]);
        queues.end(&chat, 2);
        assert_eq!(all(), [5]);
        queues.end(&chat, 1);
        assert_eq!(all(), [3]);
    }

    #[test]
    fn those_about_one_commit_are_sent_one_after_the_other_where_commits_have_statuses() {
        let queues = ProviderQueues::default();
        let forge = provider("forge");
        for (number, name, revision) in
            [(0, "a", "main@sha1:1"), (1, "b", "main@sha1:1"), (2, "c", "main@sha1:2")]
        {
            queues.push(&waiting(&forge, number, name, revision));
        }
        let next = |by_commit| queues.begin(&forge, by_commit);
        assert_eq!([next(true), next(true), next(true)], [Some(0), Some(2), None]);
        assert_eq!(next(false), Some(1), "a chat has no statuses");
    }

    #[test]
    fn the_number_that_is_sent_at_once_is_bounded_and_every_queue_may_send_one() {
        let queues = ProviderQueues::default();
        let names: Vec<String> = (0..50).map(|at| at.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let [chat, mail, pager] = ["chat", "mail", "pager"].map(provider);
        let all = |provider: &ProviderKey| {
            std::iter::from_fn(|| queues.begin(provider, false)).collect::<Vec<_>>()
        };
        for provider in [&chat, &mail, &pager] {
            push_all(&queues, provider, &names);
        }
        assert_eq!(all(&chat).len(), 1 + MAX_ADDITIONAL_EACH);
        assert_eq!((all(&mail), all(&pager)), (vec![0], vec![0]));
        // What one does not use, another may.
        for number in 0..9 {
            queues.end(&chat, number);
        }
        assert_eq!(all(&mail).len(), MAX_ADDITIONAL_EACH);
        for number in 0..9 {
            queues.end(&mail, number);
        }
        queues.end(&pager, 0);
        let queues = queues.0.lock();
        assert_eq!((queues.additional, queues.additional_by_namespace.len()), (0, 0));
        assert!(queues.of.values().all(|queue| queue.running == 0));
    }

    #[test]
    fn one_that_steps_back_stays_in_the_order_of_its_object() {
        let queues = ProviderQueues::default();
        let chat = provider("chat");
        push_all(&queues, &chat, &["a", "b", "a", "c"]);
        assert_eq!(queues.begin(&chat, false), Some(0));
        queues.step_back(&chat, 0);
        let mut sent = Vec::new();
        while let Some(number) = queues.begin(&chat, false) {
            sent.push(number);
            queues.end(&chat, number);
        }
        assert_eq!(sent, [1, 3, 0, 2]);
        assert!(queues.remove_empty(&chat));
    }

    #[test]
    fn one_that_steps_back_lets_others_about_its_commit_go_in_the_order_of_their_objects() {
        let queues = ProviderQueues::default();
        let chat = provider("chat");
        for (number, name, revision) in
            [(0, "a", "main@sha1:1"), (1, "b", "main@sha1:1"), (2, "b", "main@sha1:2")]
        {
            queues.push(&waiting(&chat, number, name, revision));
        }
        assert_eq!(queues.begin(&chat, true), Some(0));
        queues.step_back(&chat, 0);
        let mut sent = Vec::new();
        while let Some(number) = queues.begin(&chat, true) {
            sent.push(number);
            queues.end(&chat, number);
        }
        assert_eq!(sent, [1, 2, 0]);
    }

    #[test]
    fn one_that_was_dropped_leaves_its_queue_unless_it_is_being_sent() {
        let queues = ProviderQueues::default();
        let chat = provider("chat");
        push_all(&queues, &chat, &["a", "b", "c"]);
        assert_eq!(queues.begin(&chat, false), Some(0));
        for number in [0, 1] {
            queues.remove_dropped(&chat, number);
        }
        assert_eq!(queues.waiting(&chat), 2);
        queues.end(&chat, 0);
        assert_eq!(queues.begin(&chat, false), Some(2));
        queues.end(&chat, 2);
        assert!(queues.remove_empty(&chat));
    }

    #[test]
    fn one_that_is_found_late_is_not_sent_after_a_later_one_about_its_object() {
        let queues = ProviderQueues::default();
        let [chat, mail] = ["chat", "mail"].map(provider);
        queues.remember_deliveries();
        for (number, name) in [(10, "delivered"), (11, "sent"), (12, "waiting")] {
            queues.push(&waiting(&chat, number, name, "main@sha1:1"));
        }
        assert_eq!(queues.begin(&chat, false), Some(10));
        queues.delivered(&chat, 10);
        queues.end(&chat, 10);
        assert_eq!(queues.begin(&chat, false), Some(11));
        let found = |provider: &ProviderKey, number, name: &str| {
            queues.push_found_late(&waiting(provider, number, name, "main@sha1:1"))
        };
        assert_eq!(["delivered", "sent"].map(|name| found(&chat, 1, name)), [None, None]);
        assert_eq!(found(&chat, 2, "waiting"), Some(false));
        assert_eq!(found(&chat, 3, "other"), Some(false), "the same commit is not enough");
        assert_eq!(found(&mail, 4, "delivered"), Some(true));
        queues.end(&chat, 11);
        assert_eq!(queues.begin(&chat, false), Some(2), "before the later one");
        // Of several that were found, none overtakes those after it.
        queues.delivered(&chat, 2);
        queues.end(&chat, 2);
        assert_eq!(found(&chat, 5, "waiting"), Some(false));
        queues.forget_deliveries();
        assert_eq!(found(&chat, 6, "delivered"), Some(false));
    }

    #[test]
    fn only_queues_whose_service_accepts_notifications_flow() {
        let queues = ProviderQueues::default();
        let other = ProviderKey { namespace: "apps-2".to_owned(), name: "chat".to_owned() };
        let [chat, mail] = ["chat", "mail"].map(provider);
        for provider in [&chat, &mail, &other] {
            push_all(&queues, provider, &["a", "b"]);
        }
        assert_eq!(queues.flowing("apps"), 0);
        queues.delivered(&chat, 0);
        queues.delivered(&other, 0);
        assert_eq!((queues.flowing("apps"), queues.flowing("app")), (2, 0));
        let long_ago = Instant::now().checked_sub(FLOW_TIMEOUT);
        queues.0.lock().of.get_mut(&chat).unwrap().delivered_at = long_ago;
        assert_eq!(queues.flowing("apps"), 0);
    }

    #[tokio::test]
    async fn a_change_of_a_provider_rings_in_its_queue_only() {
        let queues = ProviderQueues::default();
        queues.push(&waiting(&provider("chat"), 1, "a", ""));
        queues.push(&waiting(&provider("mail"), 2, "a", ""));
        let chat = queues.signals(&provider("chat")).unwrap().changed;
        let mail = queues.signals(&provider("mail")).unwrap().changed;
        queues.ring("apps", "chat");
        chat.notified().await;
        assert!(futures::FutureExt::now_or_never(mail.notified()).is_none());
    }
}
