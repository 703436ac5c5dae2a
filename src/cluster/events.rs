//! Kubernetes Events, as Flux's controllers record them (core/v1, so that `flux events` finds them).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, PostParams};
use kube::core::ResourceExt as _;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::Cluster;
use super::status::OurKind;

/// Longest message that the API server takes.
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
pub(crate) struct News {
    /// How loud it is.
    pub(crate) severity: Severity,
    /// One CamelCase word.
    pub(crate) reason: String,
    /// What happened, for a person.
    pub(crate) message: String,
    /// Machine-readable facts, such as the revision.
    pub(crate) metadata: BTreeMap<String, String>,
}

/// How many events are recorded at once.
const AT_ONCE: usize = 1;

/// Pause after each, so that telling of many changes does not slow down the changes that follow.
const PAUSE: Duration = Duration::from_millis(20);

/// Events on their way to the API server.
#[derive(Clone)]
pub(super) struct Outbox {
    tasks: TaskTracker,
    places: Arc<Semaphore>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { tasks: TaskTracker::new(), places: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Cluster {
    /// Waits until every event that was announced is recorded.
    pub(crate) async fn settle_events(&self) {
        self.events.tasks.close();
        self.events.tasks.wait().await;
    }

    /// Has an event about one of our objects recorded, soon; failing to is logged and nothing more.
    pub(crate) fn announce<K: OurKind>(&self, object: &K, controller: &'static str, news: News) {
        let namespace = object.namespace().unwrap_or_default();
        let now = jiff::Timestamp::now();
        let name = format!("{}.{:x}", object.name_any(), now.as_nanosecond());
        let severity = match news.severity {
            Severity::Info => "Normal",
            Severity::Error => "Warning",
        };
        let mut message = news.message;
        if message.len() > MESSAGE_LIMIT {
            let mut end = MESSAGE_LIMIT - 4;
            while !message.is_char_boundary(end) {
                end -= 1;
            }
            message.truncate(end);
            message.push_str(" ...");
        }
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.clone()),
                annotations: Some(news.metadata).filter(|m| !m.is_empty()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some(K::api_version(&()).into_owned()),
                kind: Some(K::kind(&()).into_owned()),
                name: Some(object.name_any()),
                namespace: Some(namespace.clone()),
                resource_version: object.resource_version(),
                uid: object.uid(),
                ..ObjectReference::default()
            },
            reason: Some(news.reason),
            message: Some(message),
            type_: Some(severity.to_owned()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            source: Some(EventSource { component: Some(controller.to_owned()), host: None }),
            reporting_component: Some(controller.to_owned()),
            reporting_instance: Some(self.instance.to_string()),
            ..Event::default()
        };
        let api: Api<Event> = Api::namespaced(self.unary.clone(), &namespace);
        let (name, places) = (object.name_any(), self.events.places.clone());
        let tasks = self.events.tasks.clone();
        self.events.tasks.spawn(async move {
            // A closed door means that the process ends.
            let _place = places.acquire_owned().await.ok();
            if let Err(error) = api.create(&PostParams::default(), &event).await {
                tracing::info!(name, namespace, error = %error, "event not recorded");
            }
            if !tasks.is_closed() {
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
}
