//! Events about objects, and their way to event sinks.
//!
//! Here: an event, and a queue for each event sink ([`EventSink`]), so that a slow sink delays no other sink. In the folder:
//! the sink that posts events to Flux's notification-controller (`forwarder`). Elsewhere: the sink that records Kubernetes
//! Events ([`crate::kubernetes_events`]), and the endpoint at which other controllers post events (crate
//! `windlass-http-server`).

pub mod forwarder;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::core::{Resource, ResourceExt as _};
use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

use crate::metrics::MetricsRegistry;

/// The severity of an event, as Flux has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSeverity {
    /// Something happened as expected.
    Info,
    /// Something needs attention.
    Error,
}

/// An event about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectEvent {
    /// The severity, which is info or error.
    pub severity: EventSeverity,
    /// The reason, as one CamelCase word.
    pub reason: String,
    /// What happened, in words for a user. The text is complete and may have any length.
    pub message: String,
    /// Data for programs, such as the revision.
    pub metadata: BTreeMap<String, String>,
}

/// The object that an event is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventObject {
    /// The group and version of the object.
    pub api_version: String,
    /// The kind of the object.
    pub kind: String,
    /// The namespace of the object. Empty if the object is cluster-scoped.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The uid of the object.
    pub uid: String,
    /// The resourceVersion of the object at the time of the event.
    pub resource_version: String,
}

impl EventObject {
    /// The reference to an object of a typed kind.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
        }
    }
}

/// Which process reported an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventOrigin {
    /// This process, which reconciles the object.
    Own,
    /// Another controller, which posted the event to windlass.
    Posted,
}

/// An event with the reporting controller and the time.
#[derive(Debug, Clone)]
pub struct EventRecord {
    /// Whether this process or another controller reported the event.
    pub origin: EventOrigin,
    /// The object that the event is about.
    pub about: EventObject,
    /// The severity, reason and message.
    pub event: ObjectEvent,
    /// When it happened.
    pub at: jiff::Timestamp,
    /// The reporting controller, such as `kustomize-controller`.
    pub controller: Cow<'static, str>,
    /// The reporting instance, such as the name of a Pod.
    pub instance: Arc<str>,
}

impl EventRecord {
    /// About how many bytes of memory the event takes.
    fn bytes(&self) -> usize {
        let EventObject { api_version, kind, namespace, name, uid, resource_version } = &self.about;
        let about = [api_version, kind, namespace, name, uid, resource_version];
        let metadata = self.event.metadata.iter().flat_map(|(key, value)| [key, value]);
        let all = about.into_iter().chain([&self.event.reason, &self.event.message]);
        let length = all.chain(metadata).map(String::len).sum::<usize>();
        length + self.event.metadata.len() * METADATA_ENTRY_OVERHEAD_BYTES + size_of::<Self>()
    }
}

/// A receiver of events. It gets them one after the other.
pub trait EventSink: Send + 'static {
    /// The name of the sink in metrics and logs.
    const NAME: &'static str;
    /// Whether the sink also receives events that other controllers post.
    const TAKES_POSTED: bool;

    /// Handles one event. The sink logs and counts its errors itself. `is_last` is true while the process shuts down.
    fn tell(&mut self, record: &EventRecord, is_last: bool) -> impl Future<Output = ()> + Send;

    /// Finishes pending work. No further events follow.
    fn end(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The most events in a queue. One commit may touch several thousand objects, with two events for each. Even with the longest
/// messages they take some twenty MiB, which the queues share.
const MAX_QUEUED_EVENTS: usize = 10_000;

/// The most bytes of events in a queue, because other controllers may post events of any length.
const WAITING_BYTES: usize = 64 << 20;

/// About how many bytes a metadata entry takes besides its texts.
const METADATA_ENTRY_OVERHEAD_BYTES: usize = 100;

/// How long the shutdown waits for the delivery of queued events.
const SETTLE_WITHIN: Duration = Duration::from_secs(2);

/// Annotations of an object that are part of every event about it. Parity(flux).
const OF_OBJECTS: &str = "event.toolkit.fluxcd.io/";

/// The queue of one sink.
struct EventSinkQueue {
    name: &'static str,
    takes_posted: bool,
    way: Sender<Arc<EventRecord>>,
    /// How many bytes of events are in the queue.
    bytes: Arc<AtomicUsize>,
    worker: JoinHandle<()>,
}

/// Copies each event to the queues of all sinks.
pub struct EventDistributor {
    /// The queues, which are closed at shutdown.
    lanes: Mutex<Vec<EventSinkQueue>>,
    instance: Arc<str>,
    metrics: Arc<MetricsRegistry>,
}

impl EventDistributor {
    /// A distributor without sinks. `instance` is the name of this process in its events.
    pub fn new(instance: &str, metrics: Arc<MetricsRegistry>) -> Self {
        Self { lanes: Mutex::default(), instance: instance.into(), metrics }
    }

    /// Adds a sink, which receives all events from now on.
    pub fn add<S: EventSink>(&self, sink: S) {
        let (way, waiting) = channel(MAX_QUEUED_EVENTS);
        let bytes = Arc::new(AtomicUsize::new(0));
        let worker = tokio::spawn(work(sink, waiting, bytes.clone()));
        let lane =
            EventSinkQueue { name: S::NAME, takes_posted: S::TAKES_POSTED, way, bytes, worker };
        self.lanes.lock().push(lane);
    }

    /// Queues an event about an object of ours for all sinks. Parity(flux): annotations of the object with the prefix
    /// for events become part of it.
    pub fn announce<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        controller: &'static str,
        mut event: ObjectEvent,
    ) {
        let annotations = object.annotations().iter();
        let meant = annotations.filter(|(key, _)| key.starts_with(OF_OBJECTS));
        event.metadata.extend(meant.map(|(key, value)| (key.clone(), value.clone())));
        self.announce_about(EventObject::of(object), controller, event);
    }

    /// As [`Self::announce`], for an object of which only the reference is known.
    pub fn announce_about(&self, about: EventObject, controller: &'static str, event: ObjectEvent) {
        self.put(EventRecord {
            origin: EventOrigin::Own,
            about,
            event,
            at: jiff::Timestamp::now(),
            controller: controller.into(),
            instance: self.instance.clone(),
        });
    }

    /// Puts an event into the queue of each sink that accepts it. If a queue is full, the event is dropped and counted.
    pub fn put(&self, record: EventRecord) {
        let record = Arc::new(record);
        let bytes = record.bytes();
        let lanes = self.lanes.lock();
        for lane in lanes.iter().filter(|it| it.takes_posted || record.origin == EventOrigin::Own) {
            let waiting = lane.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if waiting > WAITING_BYTES || lane.way.try_send(record.clone()).is_err() {
                lane.bytes.fetch_sub(bytes, Ordering::Relaxed);
                self.metrics.dropped_event(lane.name);
            }
        }
    }

    /// Waits a short time until every sink has handled its events. Later events are dropped.
    pub async fn settle(&self) {
        let lanes = std::mem::take(&mut *self.lanes.lock());
        let (ways, workers): (Vec<_>, Vec<_>) =
            lanes.into_iter().map(|lane| (lane.way, (lane.name, lane.worker))).unzip();
        drop(ways);
        let end = tokio::time::Instant::now() + SETTLE_WITHIN;
        for (sink, worker) in workers {
            if tokio::time::timeout_at(end, worker).await.is_err() {
                tracing::info!(sink, "some events were not delivered before the process exited");
            }
        }
    }
}

/// Passes events to a sink until its queue is closed.
async fn work<S: EventSink>(
    mut sink: S,
    mut waiting: Receiver<Arc<EventRecord>>,
    bytes: Arc<AtomicUsize>,
) {
    while let Some(record) = waiting.recv().await {
        bytes.fetch_sub(record.bytes(), Ordering::Relaxed);
        sink.tell(&record, waiting.is_closed()).await;
    }
    sink.end().await;
}

#[cfg(test)]
pub(crate) mod tests {
    use crds::kustomize::Kustomization;
    use serde_json::json;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;

    pub(crate) fn announcement(message: &str) -> EventRecord {
        let metadata = BTreeMap::from([(
            "kustomize.toolkit.fluxcd.io/revision".to_owned(),
            "main@sha1:1".to_owned(),
        )]);
        EventRecord {
            origin: EventOrigin::Own,
            about: EventObject {
                api_version: "kustomize.toolkit.fluxcd.io/v1".to_owned(),
                kind: "Kustomization".to_owned(),
                namespace: "apps".to_owned(),
                name: "app".to_owned(),
                uid: "u".to_owned(),
                resource_version: "7".to_owned(),
            },
            event: ObjectEvent {
                severity: EventSeverity::Error,
                reason: "BuildFailed".to_owned(),
                message: message.to_owned(),
                metadata,
            },
            at: "2026-01-02T03:04:05.678Z".parse().unwrap(),
            controller: "kustomize-controller".into(),
            instance: "windlass-0".into(),
        }
    }

    /// A sink that sends its events to a channel, or never handles any.
    struct RecordingSink<const POSTED: bool>(UnboundedSender<EventRecord>, bool);

    impl<const POSTED: bool> EventSink for RecordingSink<POSTED> {
        const NAME: &'static str = if POSTED { "all" } else { "own" };
        const TAKES_POSTED: bool = POSTED;

        async fn tell(&mut self, record: &EventRecord, _: bool) {
            if self.1 {
                std::future::pending::<()>().await;
            }
            self.0.send(record.clone()).unwrap();
        }
    }

    fn sink<const POSTED: bool>(
        is_dead: bool,
    ) -> (RecordingSink<POSTED>, UnboundedReceiver<EventRecord>) {
        let (way, records) = unbounded_channel();
        (RecordingSink(way, is_dead), records)
    }

    #[tokio::test]
    async fn a_dead_sink_holds_up_no_other_and_what_finds_no_room_is_counted() {
        let metrics = MetricsRegistry::new();
        let events = EventDistributor::new("i", metrics.clone());
        let (dead, mut never) = sink::<false>(true);
        events.add(dead);
        let (own, mut records) = sink::<true>(false);
        events.add(own);
        for at in 0..MAX_QUEUED_EVENTS + 7 {
            events.put(announcement(&at.to_string()));
            if at % 100 == 0 {
                tokio::task::yield_now().await;
            }
        }
        for at in 0..MAX_QUEUED_EVENTS + 7 {
            assert_eq!(records.recv().await.unwrap().event.message, at.to_string());
        }
        // The sink took one event out of its queue.
        let text = metrics.text();
        assert!(text.contains("windlass_dropped_events_total{sink=\"own\"} 6"), "{text}");
        assert!(!text.contains("sink=\"all\""), "{text}");
        assert!(never.try_recv().is_err());
    }

    #[tokio::test]
    async fn long_events_take_no_more_memory_than_there_is_room_for() {
        let metrics = MetricsRegistry::new();
        let events = EventDistributor::new("i", metrics.clone());
        let (dead, _never) = sink::<true>(true);
        events.add(dead);
        let long = "x".repeat(1 << 20);
        for _ in 0..100 {
            events.put(EventRecord { origin: EventOrigin::Posted, ..announcement(&long) });
        }
        let text = metrics.text();
        assert!(text.contains("windlass_dropped_events_total{sink=\"all\"} 37"), "{text}");
    }

    #[tokio::test]
    async fn waiting_events_are_sent_before_the_end_and_none_after_it() {
        let events = EventDistributor::new("i", MetricsRegistry::new());
        let (own, mut records) = sink::<false>(false);
        events.add(own);
        events.put(announcement("first"));
        events.put(announcement("last"));
        events.settle().await;
        events.put(announcement("late"));
        let mut all = Vec::new();
        while let Some(record) = records.recv().await {
            all.push(record.event.message);
        }
        assert_eq!(all, ["first", "last"]);
    }

    #[tokio::test]
    async fn a_sink_ends_what_it_began_before_the_process_ends() {
        struct SinkEnd(UnboundedSender<&'static str>);

        impl EventSink for SinkEnd {
            const NAME: &'static str = "ending";
            const TAKES_POSTED: bool = true;

            async fn tell(&mut self, _: &EventRecord, _: bool) {
                self.0.send("told").unwrap();
            }

            async fn end(&mut self) {
                tokio::task::yield_now().await;
                self.0.send("ended").unwrap();
            }
        }

        let events = EventDistributor::new("i", MetricsRegistry::new());
        let (way, mut records) = unbounded_channel();
        events.add(SinkEnd(way));
        events.put(announcement("last"));
        events.settle().await;
        assert_eq!([records.recv().await, records.recv().await], [Some("told"), Some("ended")]);
    }

    #[tokio::test]
    async fn posted_events_go_to_those_who_take_them_only() {
        let events = EventDistributor::new("i", MetricsRegistry::new());
        let (own, mut to_own) = sink::<false>(false);
        events.add(own);
        let (all, mut to_all) = sink::<true>(false);
        events.add(all);
        events.put(EventRecord { origin: EventOrigin::Posted, ..announcement("posted") });
        events.put(announcement("own"));
        assert_eq!(to_all.recv().await.unwrap().event.message, "posted");
        assert_eq!(to_all.recv().await.unwrap().event.message, "own");
        assert_eq!(to_own.recv().await.unwrap().event.message, "own");
    }

    #[tokio::test]
    async fn annotations_for_events_are_part_of_them() {
        let events = EventDistributor::new("i", MetricsRegistry::new());
        let (own, mut records) = sink::<false>(false);
        events.add(own);
        let object: Kustomization = serde_json::from_value(json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "app", "namespace": "apps", "uid": "u", "resourceVersion": "7",
                "annotations": {"event.toolkit.fluxcd.io/env": "prod", "other/env": "dev"}},
            "spec": {"interval": "10m", "prune": true,
                "sourceRef": {"kind": "GitRepository", "name": "app"}},
        }))
        .unwrap();
        let event = announcement("").event;
        events.announce(&object, "kustomize-controller", event.clone());
        let record = records.recv().await.unwrap();
        assert_eq!(record.about, announcement("").about);
        let mut metadata = event.metadata;
        metadata.insert("event.toolkit.fluxcd.io/env".to_owned(), "prod".to_owned());
        assert_eq!(record.event.metadata, metadata);
    }
}
