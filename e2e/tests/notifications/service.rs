//! A service on loopback that receives notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Result;
use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::routing::post;
use e2e::harness::Story;
use e2e::harness::flux::DEFAULT_WAIT_TIMEOUT;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;

/// A service that answers with a status, and records the requests that it answered with success.
pub(super) struct FakeNotificationService {
    pub(super) url: String,
    status: Arc<AtomicU16>,
    kept: Arc<Mutex<Vec<Value>>>,
}

impl FakeNotificationService {
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let status = Arc::new(AtomicU16::new(200));
        let kept: Arc<Mutex<Vec<Value>>> = Arc::default();
        let answer = status.clone();
        let keep = kept.clone();
        let take = async move |uri: Uri, headers: HeaderMap, body: String| {
            let status = answer.load(Ordering::SeqCst);
            if status == 200 {
                let mut body: Value = serde_json::from_str(&body).unwrap_or_default();
                let component = headers.get("gotk-component").and_then(|it| it.to_str().ok());
                body["component"] = component.into();
                body["path"] = uri.path().into();
                keep.lock().push(body);
            }
            StatusCode::from_u16(status).unwrap_or_default()
        };
        let router = Router::new().fallback(post(take));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, status, kept })
    }

    pub(super) fn answers(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// The messages about an object with a reason.
    pub(super) fn sent(&self, kind: &str, reason: &str) -> Vec<Value> {
        let kept = self.kept.lock();
        let is_it = |it: &&Value| it["involvedObject"]["kind"] == kind && it["reason"] == reason;
        kept.iter().filter(is_it).cloned().collect()
    }

    /// All messages to a path.
    pub(super) fn sent_to(&self, path: &str) -> Vec<Value> {
        let kept = self.kept.lock();
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
