//! Kubernetes Events, as Flux's controllers record them (core/v1, so that `flux events` finds them).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, PostParams};
use kube::core::ResourceExt as _;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

use super::Cluster;
use super::kind::OurKind;

/// Longest message of a core/v1 Event.
const MESSAGE_LIMIT: usize = 1024;

/// How loud an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Something happened as it should.
    Info,
    /// Somebody should look.
    Error,
}

/// Something that happened to one of our objects, worth telling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// How loud it is.
    pub(crate) severity: Severity,
    /// One CamelCase word.
    pub(crate) reason: String,
    /// What happened, for a person; in full, of any length.
    pub(crate) message: String,
    /// Machine-readable facts, such as the revision.
    pub(crate) metadata: BTreeMap<String, String>,
}

/// How many events wait at most: two for each of several thousand objects that one commit touches. With their longest
/// messages that is some twenty MiB, usually a tenth of it.
const WAITING: usize = 10_000;

/// Longest time for recording what waits when the process ends.
const SETTLE_WITHIN: Duration = Duration::from_secs(2);

/// Pause after each, so that telling of many changes does not slow down the changes that follow.
const PAUSE: Duration = Duration::from_millis(4);

/// Events on their way to the API server, one after the other.
#[derive(Clone)]
pub(super) struct Outbox {
    queue: Arc<Mutex<Queue>>,
    dropped: Counter,
}

/// The way in, and who records what comes out of it; begun by the first event.
#[derive(Default)]
enum Queue {
    #[default]
    Unused,
    Open(Sender<Box<CoreEvent>>, JoinHandle<()>),
    /// The process ends.
    Closed,
}

impl Outbox {
    /// An outbox that counts what finds no room in it.
    pub(super) fn counting(dropped: Counter) -> Self {
        Self { queue: Arc::default(), dropped }
    }

    fn put(
        &self,
        event: CoreEvent,
        recorder: impl FnOnce(Receiver<Box<CoreEvent>>) -> JoinHandle<()>,
    ) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*queue, Queue::Unused) {
            let (way, events) = channel(WAITING);
            *queue = Queue::Open(way, recorder(events));
        }
        let Queue::Open(way, _) = &*queue else { return };
        if way.try_send(Box::new(event)).is_err() {
            self.dropped.inc();
        }
    }
}

/// Records events until no more can come, the last of them without a pause.
async fn record(client: kube::Client, mut events: Receiver<Box<CoreEvent>>) {
    while let Some(event) = events.recv().await {
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<CoreEvent> = Api::namespaced(client.clone(), &namespace);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            let name = event.involved_object.name.clone().unwrap_or_default();
            tracing::info!(name, namespace, error = %error, "failed to record event");
        }
        if !events.is_closed() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Cluster {
    /// Waits until every event that was announced is recorded, for a short time.
    pub(crate) async fn settle_events(&self) {
        let queue = {
            let mut queue = self.events.queue.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *queue, Queue::Closed)
        };
        if let Queue::Open(way, recorder) = queue {
            drop(way);
            if tokio::time::timeout(SETTLE_WITHIN, recorder).await.is_err() {
                tracing::info!("some events were not recorded before the process exited");
            }
        }
    }

    /// Has an event about one of our objects recorded, soon; failing to is logged and nothing more.
    pub(crate) fn announce<K: OurKind>(&self, object: &K, controller: &'static str, event: Event) {
        let about = ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: Some(object.name_any()),
            namespace: object.namespace(),
            resource_version: object.resource_version(),
            uid: object.uid(),
            ..ObjectReference::default()
        };
        self.announce_about(about, controller, event);
    }

    /// The same, about an object that is known by what it is called.
    pub(crate) fn announce_about(
        &self,
        about: ObjectReference,
        controller: &'static str,
        event: Event,
    ) {
        let namespace = about.namespace.clone().unwrap_or_default();
        let now = jiff::Timestamp::now();
        let of = about.name.as_deref().unwrap_or_default();
        let name = format!("{of}.{:x}", now.as_nanosecond());
        let severity = match event.severity {
            Severity::Info => "Normal",
            Severity::Error => "Warning",
        };
        let event = CoreEvent {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace),
                annotations: Some(event.metadata).filter(|m| !m.is_empty()),
                ..ObjectMeta::default()
            },
            involved_object: about,
            reason: Some(event.reason),
            message: Some(shortened(event.message)),
            type_: Some(severity.to_owned()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            source: Some(EventSource { component: Some(controller.to_owned()), host: None }),
            reporting_component: Some(controller.to_owned()),
            reporting_instance: Some(self.instance.to_string()),
            ..CoreEvent::default()
        };
        let client = self.unary.clone();
        self.events.put(event, |events| tokio::spawn(record(client, events)));
    }
}

/// A message as a core/v1 Event takes it. Nobody else has to do with less than the whole.
fn shortened(mut message: String) -> String {
    const CUT: &str = " ...";
    if message.len() > MESSAGE_LIMIT {
        message.truncate(message.floor_char_boundary(MESSAGE_LIMIT - CUT.len()));
        message.push_str(CUT);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_finds_no_room_among_the_waiting_events_is_counted_and_dropped() {
        let outbox = Outbox::counting(Counter::default());
        let (ended, mut end) = channel::<usize>(1);
        let slow = |mut events: Receiver<Box<CoreEvent>>| {
            tokio::spawn(async move {
                // It begins when all were put in.
                let mut recorded = 0;
                while events.recv().await.is_some() {
                    recorded += 1;
                }
                ended.send(recorded).await.unwrap();
            })
        };
        let mut slow = Some(slow);
        for _ in 0..WAITING + 7 {
            outbox.put(CoreEvent::default(), |events| slow.take().unwrap()(events));
        }
        assert_eq!(outbox.dropped.get(), 7);
        *outbox.queue.lock().unwrap() = Queue::Closed;
        assert_eq!(end.recv().await, Some(WAITING));
    }

    #[test]
    fn a_message_is_cut_for_a_core_event_between_characters_and_no_other_is() {
        let fits = "ä".repeat(MESSAGE_LIMIT / 2);
        assert_eq!(shortened(fits.clone()), fits);
        let cut = shortened(format!("x{fits}"));
        assert!(cut.len() <= MESSAGE_LIMIT && cut.ends_with("ä ..."), "{cut}");
    }
}
