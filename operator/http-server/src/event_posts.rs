//! Receives events that other controllers post (`POST /`), as Flux's controllers post them to the notification-controller.
//!
//! Here: reading the request and answering. Elsewhere: the event sinks (`windlass_cluster::events`).
//!
//! Differs(flux): severities other than `error` are taken for `info`, which is all that controllers post; a repetition is
//! answered like any other event, since who posts makes no difference between them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::routing::post;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::sync::Semaphore;

use super::request_bodies::{BodyReader, SHORT_BODY_BYTES};
use windlass_cluster::events::{
    EventDistributor, EventObject, EventOrigin, EventRecord, EventSeverity, ObjectEvent,
};
use windlass_cluster::metrics::{MetricsRegistry, ReceivedEventOutcome};

/// Largest body that is read. Parity(flux): the notification-controller's.
const BODY_LIMIT: usize = 3 << 20;

/// Longest time that sending a body may take. Parity(flux): the notification-controller's.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// The most long bodies in memory at once. Further requests with long bodies wait, but none with a short body.
const MAX_CONCURRENT_LONG_BODIES: usize = 16;

/// The time limit for the rest of a long body, because other requests may wait for its place.
const REST_LIMIT: Duration = Duration::from_secs(5);

/// The most metadata keys of an event.
///
/// Differs(flux): it takes any number. Controllers write a few, and objects may add their annotations.
const MOST_KEYS: usize = 1_000;

/// An event of `github.com/fluxcd/pkg/apis/event/v1beta1`. As in Go, a field may be absent or null, but never of another type.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostedFluxEvent {
    involved_object: Option<InvolvedObject>,
    severity: Option<String>,
    timestamp: Option<jiff::Timestamp>,
    message: Option<String>,
    reason: Option<String>,
    metadata: Option<BoundedEventMetadata>,
    reporting_controller: Option<String>,
    reporting_instance: Option<String>,
}

/// Event metadata of at most [`MOST_KEYS`] keys. With more keys, reading stops early.
#[derive(Debug, Default)]
struct BoundedEventMetadata(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for BoundedEventMetadata {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct MetadataKeyLimit;
        impl<'de> Visitor<'de> for MetadataKeyLimit {
            type Value = BoundedEventMetadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("metadata")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
                let mut read = BoundedEventMetadata::default();
                while let Some((key, value)) = from.next_entry::<String, Option<String>>()? {
                    read.0.insert(key, value.unwrap_or_default());
                    if read.0.len() > MOST_KEYS {
                        return Err(de::Error::custom("too many keys"));
                    }
                }
                Ok(read)
            }
        }
        from.deserialize_map(MetadataKeyLimit)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InvolvedObject {
    api_version: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl PostedFluxEvent {
    fn announcement(self) -> EventRecord {
        let about = self.involved_object.unwrap_or_default();
        let is_error = self.severity.as_deref() == Some("error");
        EventRecord {
            origin: EventOrigin::Posted,
            about: EventObject {
                api_version: about.api_version.unwrap_or_default(),
                kind: about.kind.unwrap_or_default(),
                namespace: about.namespace.unwrap_or_default(),
                name: about.name.unwrap_or_default(),
                uid: about.uid.unwrap_or_default(),
                resource_version: about.resource_version.unwrap_or_default(),
            },
            event: ObjectEvent {
                severity: if is_error { EventSeverity::Error } else { EventSeverity::Info },
                reason: self.reason.unwrap_or_default(),
                message: self.message.unwrap_or_default(),
                metadata: self.metadata.unwrap_or_default().0,
            },
            at: self.timestamp.unwrap_or_else(jiff::Timestamp::now),
            controller: self.reporting_controller.unwrap_or_default().into(),
            instance: self.reporting_instance.unwrap_or_default().into(),
        }
    }
}

/// The state of the event endpoint.
#[derive(Clone)]
struct EventPostHandler {
    events: Arc<EventDistributor>,
    metrics: Arc<MetricsRegistry>,
    long: Arc<Semaphore>,
    rest: Duration,
}

/// A router that receives events.
pub fn events(events: Arc<EventDistributor>, metrics: Arc<MetricsRegistry>) -> Router {
    router(EventPostHandler {
        events,
        metrics,
        long: Arc::new(Semaphore::new(MAX_CONCURRENT_LONG_BODIES)),
        rest: REST_LIMIT,
    })
}

fn router(taking: EventPostHandler) -> Router {
    Router::new().route("/", post(take)).with_state(taking)
}

/// Parity(flux): 202 for every event, even if it is dropped later, 413 for a body that is too large, 400 for one that
/// is not an event.
///
/// Differs(flux): 503 where too many others are sent at the same time.
async fn take(State(taking): State<EventPostHandler>, request: Request) -> StatusCode {
    let answer = body(&taking, request).await;
    let EventPostHandler { events, metrics, .. } = taking;
    let answer = answer.and_then(|body| read(&body)).map(|event| events.put(event));
    let outcome =
        if answer.is_ok() { ReceivedEventOutcome::Accepted } else { ReceivedEventOutcome::Refused };
    metrics.posted(outcome);
    answer.err().unwrap_or(StatusCode::ACCEPTED)
}

/// Reads the body of a request. A slow sender takes no place of other requests.
async fn body(taking: &EventPostHandler, request: Request) -> Result<Vec<u8>, StatusCode> {
    let mut reader = BodyReader::new(request.into_body(), BODY_LIMIT);
    let slow = |_| StatusCode::REQUEST_TIMEOUT;
    let is_short =
        tokio::time::timeout(READ_LIMIT, reader.up_to(SHORT_BODY_BYTES)).await.map_err(slow)??;
    if !is_short {
        let turn = tokio::time::timeout(READ_LIMIT, taking.long.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(StatusCode::SERVICE_UNAVAILABLE) };
        tokio::time::timeout(taking.rest, reader.rest()).await.map_err(slow)??;
    }
    Ok(reader.into_bytes())
}

fn read(body: &[u8]) -> Result<EventRecord, StatusCode> {
    let event = serde_json::from_slice::<PostedFluxEvent>(body).map_err(|error| {
        // An event may contain secrets, so only the position of the error is logged.
        let line = error.line();
        let column = error.column();
        tracing::info!(line, column, "received a malformed event");
        StatusCode::BAD_REQUEST
    })?;
    let event = event.announcement();
    tracing::debug!(
        controller_kind = event.about.kind,
        name = event.about.name,
        namespace = event.about.namespace,
        reporter = %event.controller,
        reason = event.event.reason,
        message = event.event.message,
        "event received"
    );
    Ok(event)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures::StreamExt as _;
    use serde_json::json;
    use tower::ServiceExt as _;

    use super::*;

    async fn answer(method: &str, body: impl Into<Body>) -> (StatusCode, String) {
        let metrics = MetricsRegistry::new();
        let request = Request::builder().method(method).uri("/").body(body.into()).unwrap();
        let sink = Arc::new(EventDistributor::new("i", metrics.clone()));
        let answer = events(sink, metrics.clone()).oneshot(request).await.unwrap();
        (answer.status(), metrics.text())
    }

    #[tokio::test]
    async fn an_event_as_flux_posts_it_is_accepted_and_counted() {
        let event = json!({
            "involvedObject": {"kind": "GitRepository", "namespace": "flux-system", "name": "app",
                "apiVersion": "source.toolkit.fluxcd.io/v1", "uid": "1"},
            "severity": "info", "timestamp": "2026-01-02T03:04:05Z", "message": "stored",
            "reason": "NewArtifact", "metadata": {"source.toolkit.fluxcd.io/revision": "main@sha1:1"},
            "reportingController": "source-controller", "reportingInstance": "source-controller-1",
        });
        let (status, metrics) = answer("POST", event.to_string()).await;
        assert_eq!(status, StatusCode::ACCEPTED);
        assert!(metrics.contains("windlass_events_total{outcome=\"Accepted\"} 1"), "{metrics}");
        assert_eq!(answer("POST", "{}").await.0, StatusCode::ACCEPTED);
        assert_eq!(answer("POST", "{\"involvedObject\": null}").await.0, StatusCode::ACCEPTED);
    }

    #[tokio::test]
    async fn what_is_no_event_is_refused_and_counted() {
        for body in ["", "[]", "{", "{\"message\": 1}", "{\"timestamp\": \"yesterday\"}"] {
            let (status, metrics) = answer("POST", body).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
            assert!(metrics.contains("windlass_events_total{outcome=\"Refused\"} 1"), "{metrics}");
        }
        let large = vec![b' '; BODY_LIMIT + 1];
        assert_eq!(answer("POST", large).await.0, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(answer("PUT", "{}").await.0, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[tokio::test]
    async fn metadata_has_at_most_so_many_keys() {
        for (keys, expected) in
            [(MOST_KEYS, StatusCode::ACCEPTED), (MOST_KEYS + 1, StatusCode::BAD_REQUEST)]
        {
            let metadata: BTreeMap<String, String> =
                (0..keys).map(|key| (key.to_string(), String::new())).collect();
            let event = json!({"metadata": metadata});
            assert_eq!(answer("POST", event.to_string()).await.0, expected, "{keys}");
        }
        assert_eq!(answer("POST", "{\"metadata\": {\"a\": null}}").await.0, StatusCode::ACCEPTED);
        assert_eq!(answer("POST", "{\"metadata\": null}").await.0, StatusCode::ACCEPTED);
    }

    #[tokio::test]
    async fn a_long_event_waits_until_there_is_room_for_its_body_and_a_short_one_does_not() {
        let metrics = MetricsRegistry::new();
        let sink = Arc::new(EventDistributor::new("i", metrics.clone()));
        let long = Arc::new(Semaphore::new(1));
        let taking =
            EventPostHandler { events: sink, metrics, long, rest: Duration::from_millis(100) };
        let post = |body: Body| {
            let request = Request::builder().method("POST").uri("/").body(body).unwrap();
            router(taking.clone()).oneshot(request)
        };
        let begin =
            futures::stream::iter([Ok::<_, std::io::Error>(vec![b' '; SHORT_BODY_BYTES + 1])]);
        let endless = Body::from_stream(begin.chain(futures::stream::pending()));
        let mut endless = Box::pin(post(endless));
        assert!(futures::poll!(&mut endless).is_pending());
        let long = format!("{}{{}}", " ".repeat(SHORT_BODY_BYTES));
        let mut next = Box::pin(post(Body::from(long)));
        assert!(futures::poll!(&mut next).is_pending());
        assert_eq!(post(Body::from("{}")).await.unwrap().status(), StatusCode::ACCEPTED);
        let (endless, next) = futures::join!(endless, next);
        assert_eq!(endless.unwrap().status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(next.unwrap().status(), StatusCode::ACCEPTED);
    }
}
