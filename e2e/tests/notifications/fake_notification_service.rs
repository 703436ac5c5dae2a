//! A service on loopback that receives notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use e2e::harness::Story;
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;

/// How a service answers, and how many requests it has received.
#[derive(Default)]
struct ServiceState {
    status: AtomicU16,
    /// The milliseconds until it answers.
    delay: AtomicU64,
    /// The seconds of its header `Retry-After`. Zero is no header.
    pause: AtomicU64,
    requests: AtomicUsize,
    /// How many requests it has not answered yet, and the most of them so far.
    running: AtomicUsize,
    most: AtomicUsize,
    /// The messages that it answered with success.
    kept: Mutex<Vec<Value>>,
}

impl ServiceState {
    async fn take(&self, uri: Uri, headers: HeaderMap, body: String) -> Response {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.requests.fetch_add(1, Ordering::SeqCst);
        let status = self.status.load(Ordering::SeqCst);
        if status == 200 {
            let mut body: Value = serde_json::from_str(&body).unwrap_or_default();
            let component = headers.get("gotk-component").and_then(|it| it.to_str().ok());
            body["component"] = component.into();
            body["path"] = uri.path().into();
            self.kept.lock().push(body);
        }
        tokio::time::sleep(Duration::from_millis(self.delay.load(Ordering::SeqCst))).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        let status = StatusCode::from_u16(status).unwrap_or_default();
        match self.pause.load(Ordering::SeqCst) {
            0 => status.into_response(),
            pause => (status, [(RETRY_AFTER, pause.to_string())]).into_response(),
        }
    }
}

/// A service that answers with a status, and records the requests that it answered with success.
pub(super) struct FakeNotificationService {
    pub(super) url: String,
    state: Arc<ServiceState>,
}

impl FakeNotificationService {
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let state = Arc::new(ServiceState { status: AtomicU16::new(200), ..Default::default() });
        let taking = state.clone();
        let take = async move |uri: Uri, headers: HeaderMap, body: String| {
            taking.take(uri, headers, body).await
        };
        let router = Router::new().fallback(post(take));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, state })
    }

    pub(super) fn answers(&self, status: u16) {
        self.state.status.store(status, Ordering::SeqCst);
    }

    pub(super) fn answers_after(&self, milliseconds: u64) {
        self.state.delay.store(milliseconds, Ordering::SeqCst);
    }

    /// Each answer asks for no request for some seconds.
    pub(super) fn asks_for_pause(&self, seconds: u64) {
        self.state.pause.store(seconds, Ordering::SeqCst);
    }

    /// How many requests it has received.
    pub(super) fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// The most requests that it had to answer at once.
    pub(super) fn most_at_once(&self) -> usize {
        self.state.most.load(Ordering::SeqCst)
    }

    /// The messages about an object with a reason.
    pub(super) fn sent(&self, kind: &str, reason: &str) -> Vec<Value> {
        let kept = self.state.kept.lock();
        let is_it = |it: &&Value| it["involvedObject"]["kind"] == kind && it["reason"] == reason;
        kept.iter().filter(is_it).cloned().collect()
    }

    /// All messages to a path.
    pub(super) fn sent_to(&self, path: &str) -> Vec<Value> {
        let kept = self.state.kept.lock();
        kept.iter().filter(|it| it["path"] == path).cloned().collect()
    }

    /// Waits for a message about an object with a reason.
    pub(super) async fn awaits(&self, story: &Story, kind: &str, reason: &str) -> Result<Value> {
        let what = format!("a notification of {kind} with {reason}");
        story
            .await_until(&what, DEFAULT_WAIT_TIMEOUT, async || Ok(self.sent(kind, reason).pop()))
            .await
    }
}
