//! An admission webhook on loopback. A story decides whether it admits requests, refuses them or does not answer.

use std::future::pending;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::CONTENT_TYPE;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::certificate_authority::TestCertificateAuthority;
use crate::tls_proxy::TlsProxyListener;

/// How the webhook answers an admission review.
#[derive(Debug, Clone, Default)]
pub enum AdmissionWebhookAnswer {
    /// The webhook admits the request.
    #[default]
    Admit,
    /// The webhook refuses the request with this text.
    Refuse(String),
    /// The webhook refuses the request with this text, unless it is a dry-run.
    RefuseWrites(String),
    /// The webhook does not answer.
    Hang,
}

#[derive(Debug, Default)]
struct AdmissionWebhookServerState {
    answer: AdmissionWebhookAnswer,
    asked: usize,
}

/// A running webhook. It ends when it is dropped.
#[derive(Debug)]
pub struct AdmissionWebhookServer {
    front: TlsProxyListener,
    authority: TestCertificateAuthority,
    shared: Arc<Mutex<AdmissionWebhookServerState>>,
    stop: AbortHandle,
}

impl Drop for AdmissionWebhookServer {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl AdmissionWebhookServer {
    /// Starts a webhook on the current runtime.
    ///
    /// # Errors
    /// No port, or no certificate.
    pub async fn start(first: AdmissionWebhookAnswer) -> Result<Self> {
        let authority = TestCertificateAuthority::generate()?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a webhook")?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(AdmissionWebhookServerState { answer: first, asked: 0 }));
        let router = Router::new().fallback(review).with_state(state.clone());
        let serving = async move { axum::serve(listener, router).await };
        let stop = tokio::spawn(serving).abort_handle();
        let front = TlsProxyListener::start(address, &authority, false).await?;
        Ok(Self { front, authority, shared: state, stop })
    }

    /// Sets how the webhook answers from now on.
    pub fn set(&self, answer: AdmissionWebhookAnswer) {
        self.shared.lock().answer = answer;
    }

    /// How many reviews the webhook received.
    pub fn asked(&self) -> usize {
        self.shared.lock().asked
    }

    /// Makes a webhook configuration. The API server then asks the webhook about ConfigMap writes in a namespace, and waits
    /// `seconds` for each answer. Without an answer, it refuses the write.
    pub fn configuration(&self, namespace: &str, seconds: u32) -> Value {
        let authority = STANDARD.encode(self.authority.certificate());
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "operations": ["CREATE", "UPDATE"], "scope": "Namespaced"});
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": namespace},
            "webhooks": [{"name": "story.windlass.dev", "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "timeoutSeconds": seconds, "failurePolicy": "Fail",
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "clientConfig": {"url": format!("https://{}/", self.front.address()), "caBundle": authority},
                "rules": [rule]}]})
    }
}

async fn review(
    State(state): State<Arc<Mutex<AdmissionWebhookServerState>>>,
    body: Bytes,
) -> impl axum::response::IntoResponse {
    let answer = {
        let mut state = state.lock();
        state.asked += 1;
        state.answer.clone()
    };
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut response = json!({"uid": asked["request"]["uid"], "allowed": true});
    let is_dry_run = asked["request"]["dryRun"] == true;
    match answer {
        AdmissionWebhookAnswer::Admit => {}
        AdmissionWebhookAnswer::RefuseWrites(_) if is_dry_run => {}
        AdmissionWebhookAnswer::Refuse(text) | AdmissionWebhookAnswer::RefuseWrites(text) => {
            response["allowed"] = false.into();
            response["status"] = json!({"message": text});
        }
        AdmissionWebhookAnswer::Hang => pending().await,
    }
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    ([(CONTENT_TYPE, "application/json")], review.to_string())
}
