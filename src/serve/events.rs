//! Events that others post, as Flux's controllers post them to the notification-controller (`POST /`).
//!
//! Here: reading and answering. Elsewhere: who is told of them (`crate::events`).
//!
//! Differs(flux): severities other than `error` are taken for `info`, which is all that controllers post; a repetition is
//! answered like any other event, since who posts makes no difference between them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request, State};
use axum::http::StatusCode;
use axum::routing::post;
use serde::Deserialize;

use crate::events::{Announcement, Event, Events, Origin, Severity, Subject};
use crate::metrics::{EventOutcome, Metrics};

/// Largest body that is read. Parity(flux): the notification-controller's.
const BODY_LIMIT: usize = 3 << 20;

/// Longest time that sending a body may take. Parity(flux): the notification-controller's.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// An event of `github.com/fluxcd/pkg/apis/event/v1beta1`. As in Go, a field may be absent or null and never of
/// another type.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Posted {
    involved_object: Option<Involved>,
    severity: Option<String>,
    timestamp: Option<jiff::Timestamp>,
    message: Option<String>,
    reason: Option<String>,
    metadata: Option<BTreeMap<String, Option<String>>>,
    reporting_controller: Option<String>,
    reporting_instance: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Involved {
    api_version: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Posted {
    fn announcement(self) -> Announcement {
        let about = self.involved_object.unwrap_or_default();
        let metadata = self.metadata.unwrap_or_default().into_iter();
        let is_error = self.severity.as_deref() == Some("error");
        Announcement {
            origin: Origin::Posted,
            about: Subject {
                api_version: about.api_version.unwrap_or_default(),
                kind: about.kind.unwrap_or_default(),
                namespace: about.namespace.unwrap_or_default(),
                name: about.name.unwrap_or_default(),
                uid: about.uid.unwrap_or_default(),
                resource_version: about.resource_version.unwrap_or_default(),
            },
            event: Event {
                severity: if is_error { Severity::Error } else { Severity::Info },
                reason: self.reason.unwrap_or_default(),
                message: self.message.unwrap_or_default(),
                metadata: metadata.map(|(key, value)| (key, value.unwrap_or_default())).collect(),
            },
            at: self.timestamp.unwrap_or_else(jiff::Timestamp::now),
            controller: self.reporting_controller.unwrap_or_default().into(),
            instance: self.reporting_instance.unwrap_or_default().into(),
        }
    }
}

/// Takes events.
pub(crate) fn events(events: Arc<Events>, metrics: Arc<Metrics>) -> Router {
    let limit = DefaultBodyLimit::max(BODY_LIMIT);
    Router::new().route("/", post(take).layer(limit)).with_state((events, metrics))
}

/// Parity(flux): 202 whatever becomes of the event, 413 for one that is too large, 400 for what is none.
async fn take(
    State((events, metrics)): State<(Arc<Events>, Arc<Metrics>)>,
    request: Request,
) -> StatusCode {
    let body = tokio::time::timeout(READ_LIMIT, Bytes::from_request(request, &()));
    let answer = match body.await {
        Ok(Ok(body)) => read(&body).map(|event| events.put(event)),
        Ok(Err(unread)) => Err(unread.status()),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
    };
    let outcome = if answer.is_ok() { EventOutcome::Accepted } else { EventOutcome::Refused };
    metrics.posted(outcome);
    answer.err().unwrap_or(StatusCode::ACCEPTED)
}

fn read(body: &[u8]) -> Result<Announcement, StatusCode> {
    let event = serde_json::from_slice::<Posted>(body).map_err(|error| {
        // The text of an event may hold anything, so only the place is told.
        let (line, column) = (error.line(), error.column());
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
    use serde_json::json;
    use tower::ServiceExt as _;

    use super::*;

    async fn answer(method: &str, body: impl Into<Body>) -> (StatusCode, String) {
        let metrics = Metrics::new();
        let request = Request::builder().method(method).uri("/").body(body.into()).unwrap();
        let told = Arc::new(Events::new("i", metrics.clone()));
        let answer = events(told, metrics.clone()).oneshot(request).await.unwrap();
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
}
