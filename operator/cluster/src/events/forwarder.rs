//! Forwards events to Flux's notification-controller, for clusters that keep it. Each event is a POST to `--events-addr`.
//!
//! The format is that of `github.com/fluxcd/pkg/runtime/events`, with the retries of go-retryablehttp.

use std::time::{Duration, Instant};

use http_client::TlsConfig;
use serde::Serialize;
use url::Url;

use super::{EventRecord, EventSeverity, EventSink};

/// The time limit of one attempt.
const FORWARD_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// How many attempts an event gets.
const MAX_FORWARD_ATTEMPTS: u32 = 5;

/// The pauses between attempts. Each pause is twice as long as the last one, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long the same problem is not logged again.
const LOGGED_AGAIN: Duration = Duration::from_secs(60);

/// An event sink that posts each event to Flux's notification-controller at `--events-addr`, with retries.
pub struct EventForwarder {
    http: http_client::HttpClient,
    url: Url,
    /// How many events in a row could not be delivered.
    failures: u64,
    logged: Option<Instant>,
    shortest_pause: Duration,
}

/// An event of `github.com/fluxcd/pkg/apis/event/v1beta1`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FluxEventPayload<'a> {
    involved_object: InvolvedObject<'a>,
    severity: &'static str,
    timestamp: String,
    message: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    metadata: &'a std::collections::BTreeMap<String, String>,
    reporting_controller: &'a str,
    reporting_instance: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct InvolvedObject<'a> {
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    api_version: &'a str,
    resource_version: &'a str,
}

fn posted(record: &EventRecord) -> FluxEventPayload<'_> {
    let about = &record.about;
    let event = &record.event;
    FluxEventPayload {
        involved_object: InvolvedObject {
            kind: &about.kind,
            namespace: &about.namespace,
            name: &about.name,
            uid: &about.uid,
            api_version: &about.api_version,
            resource_version: &about.resource_version,
        },
        severity: match event.severity {
            EventSeverity::Info => "info",
            EventSeverity::Error => "error",
        },
        timestamp: record.at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        message: &event.message,
        reason: &event.reason,
        metadata: &event.metadata,
        reporting_controller: &record.controller,
        reporting_instance: &record.instance,
    }
}

/// Whether an attempt delivered an event, and if not, whether to try again.
#[derive(Debug, PartialEq, Eq)]
enum EventForwardOutcome {
    Delivered,
    /// The event is worth another attempt, after the delay that the server asked for.
    Again(String, Option<Duration>),
    /// Another attempt would have the same result.
    Rejected(String),
}

impl EventForwarder {
    /// A forwarder to the server at this address.
    ///
    /// # Errors
    /// No HTTP client can be built.
    pub fn new(url: Url) -> Result<Self, http_client::Error> {
        let http = http_client::client(&TlsConfig::default(), None)?;
        Ok(Self { http, url, failures: 0, logged: None, shortest_pause: SHORTEST_PAUSE })
    }

    async fn attempt(&self, body: &str) -> EventForwardOutcome {
        let request = self.http.post(self.url.clone()).timeout(FORWARD_ATTEMPT_TIMEOUT);
        let request = request.header("content-type", "application/json").body(body.to_owned());
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => return EventForwardOutcome::Again(crate::error::chain(&error), None),
        };
        let status = answer.status();
        // Parity(flux): 429 means that it received the same event a moment ago.
        if status.is_success() || status.as_u16() == 429 {
            return EventForwardOutcome::Delivered;
        }
        let text = format!("the server responded with HTTP status {}", status.as_u16());
        if !status.is_server_error() || status.as_u16() == 501 {
            return EventForwardOutcome::Rejected(text);
        }
        let after = answer.headers().get("retry-after").and_then(|it| it.to_str().ok());
        let after = after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        EventForwardOutcome::Again(text, after)
    }

    /// Delivers an event with retries, or returns the reason why it failed.
    async fn deliver(&self, body: &str, is_last: bool) -> Result<(), String> {
        let mut pause = self.shortest_pause;
        let mut why = String::new();
        for attempt in 1..=MAX_FORWARD_ATTEMPTS {
            match self.attempt(body).await {
                EventForwardOutcome::Delivered => return Ok(()),
                EventForwardOutcome::Rejected(text) => return Err(text),
                EventForwardOutcome::Again(text, after) => {
                    why = text;
                    if attempt < MAX_FORWARD_ATTEMPTS && !is_last {
                        tokio::time::sleep(after.unwrap_or(pause).min(LONGEST_PAUSE)).await;
                        pause = pause.saturating_mul(2);
                    }
                }
            }
        }
        Err(why)
    }
}

impl EventSink for EventForwarder {
    const NAME: &'static str = "events-addr";
    /// Other controllers post their events to the notification-controller themselves.
    const TAKES_POSTED: bool = false;

    async fn tell(&mut self, record: &EventRecord, is_last: bool) {
        let body = match serde_json::to_string(&posted(record)) {
            Ok(body) => body,
            Err(error) => return tracing::error!(error = %error, "failed to encode an event"),
        };
        match self.deliver(&body, is_last).await {
            Ok(()) => {
                if self.failures > 0 {
                    tracing::info!(url = %self.url, lost = self.failures, "events are delivered again");
                }
                (self.failures, self.logged) = (0, None);
            }
            Err(error) => {
                self.failures += 1;
                if self.logged.is_none_or(|at| at.elapsed() > LOGGED_AGAIN) {
                    let lost = self.failures;
                    tracing::error!(url = %self.url, error, lost, "failed to deliver events to --events-addr");
                    self.logged = Some(Instant::now());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use axum::Router;
    use axum::extract::State;
    use axum::http::{HeaderMap, StatusCode};
    use axum::routing::post;
    use serde_json::{Value, json};

    use super::super::tests::announcement;
    use super::*;

    #[derive(Clone, Default)]
    struct FakeEventServer {
        answers: Arc<Mutex<Vec<u16>>>,
        bodies: Arc<Mutex<Vec<Value>>>,
    }

    async fn take(
        State(server): State<FakeEventServer>,
        headers: HeaderMap,
        body: String,
    ) -> StatusCode {
        assert_eq!(headers["content-type"], "application/json");
        server.bodies.lock().push(serde_json::from_str(&body).unwrap());
        let mut answers = server.answers.lock();
        let status = if answers.is_empty() { 202 } else { answers.remove(0) };
        StatusCode::from_u16(status).unwrap()
    }

    async fn server(answers: &[u16]) -> (FakeEventServer, EventForwarder) {
        let server = FakeEventServer {
            answers: Arc::new(Mutex::new(answers.to_vec())),
            ..FakeEventServer::default()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let router = Router::new().route("/", post(take)).with_state(server.clone());
        tokio::spawn(async { axum::serve(listener, router).await });
        let forward = EventForwarder::new(url.parse().unwrap()).unwrap();
        (server, EventForwarder { shortest_pause: Duration::from_millis(1), ..forward })
    }

    #[tokio::test]
    async fn an_event_has_the_form_of_fluxs() {
        let (server, mut forward) = server(&[]).await;
        let long = "x".repeat(3000);
        forward.tell(&announcement(&long), false).await;
        let expected = json!({
            "involvedObject": {"kind": "Kustomization", "namespace": "apps", "name": "app", "uid": "u",
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "resourceVersion": "7"},
            "severity": "error", "timestamp": "2026-01-02T03:04:05Z", "message": long,
            "reason": "BuildFailed", "metadata": {"kustomize.toolkit.fluxcd.io/revision": "main@sha1:1"},
            "reportingController": "kustomize-controller", "reportingInstance": "windlass-0",
        });
        assert_eq!(*server.bodies.lock(), [expected]);
    }

    #[tokio::test]
    async fn what_may_help_is_tried_again_and_a_duplicate_is_delivered() {
        for (answers, delivered, attempts) in [
            (&[500, 503, 202][..], true, 3),
            (&[429], true, 1),
            (&[400], false, 1),
            (&[501], false, 1),
            (&[500; 9], false, 5),
        ] {
            let (server, forward) = server(answers).await;
            let outcome = forward.deliver("{}", false).await;
            assert_eq!(outcome.is_ok(), delivered, "{answers:?}: {outcome:?}");
            assert_eq!(server.bodies.lock().len(), attempts, "{answers:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_gone_costs_its_events_and_nothing_else() {
        let (_, mut forward) = server(&[400, 202]).await;
        forward.tell(&announcement("lost"), false).await;
        assert_eq!(forward.failures, 1);
        forward.tell(&announcement("told"), false).await;
        assert_eq!(forward.failures, 0);
    }
}
