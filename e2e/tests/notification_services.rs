//! Services that Providers use: real NATS and Alertmanager, and fake Event Hubs and Pub/Sub that verify the requirements of
//! their documentation.
//!
//! In the folder: fake chats and Git services (`fake_services`), a real Gitea (`gitea`), posting checks of plans there
//! (`plan_check`), approving deletions by reviews there (`pull_request_approval`).
//! Elsewhere: deliveries in general (`notifications.rs`), the requests to each type (`cargo xtask conformance`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::certificate_authority::TestCertificateAuthority;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, FollowedGitRepository};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::servers::alertmanager::AlertmanagerServer;
use e2e::servers::nats::{NatsServer, PASSWORD, USER};
use e2e::tls_proxy::TlsProxyListener;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

mod fake_services;
mod gitea;
mod plan_check;
mod pull_request_approval;

const BETA: &str = "notification.toolkit.fluxcd.io/v1beta3";

/// Creates a Provider with the keys of its Secret, and an Alert for all Kustomizations.
async fn provider(story: &Story, spec: Value, keys: &[(&str, &str)]) -> Result<()> {
    let data: BTreeMap<_, _> = keys.iter().copied().collect();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "service"}, "stringData": data});
    story.apply_value(secret).await?;
    let mut spec = spec;
    spec["secretRef"] = json!({"name": "service"});
    spec["timeout"] = json!("5s");
    let object = json!({
        "apiVersion": BETA, "kind": "Provider", "metadata": {"name": "service"}, "spec": spec});
    story.apply_value(object).await?;
    let alert = json!({
        "apiVersion": BETA, "kind": "Alert", "metadata": {"name": "alert"},
        "spec": {
            "providerRef": {"name": "service"},
            "eventSources": [{"kind": "Kustomization", "name": "*"}],
        },
    });
    story.apply_value(alert).await.map(drop)
}

/// Applies a ConfigMap with a Kustomization, so that there is an event.
async fn reconciled(story: &Story) -> Result<FollowedGitRepository<'_>> {
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    // Without an artifact, the first event would report the missing artifact.
    story.await_ready(&StoryObject::git_repository("app")).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    Ok(upstream)
}

/// Checks that this is an event of the reconciled Kustomization.
fn check(event: &Value, story: &Story) -> Result<()> {
    let object = &event["involvedObject"];
    ensure!(event["severity"] == "info" && event["metadata"]["revision"].is_string(), "{event}");
    ensure!(object["name"] == "app" && object["namespace"] == story.namespace, "{event}");
    Ok(())
}

/// Waits until the Alert says that windlass gave up a notification, with a reason and without a secret.
async fn await_given_up(story: &Story, reason: &str, secret: &str) -> Result<()> {
    story.await_event("Alert", "alert", reason).await?;
    let events = story.events("Alert", "alert").await?;
    ensure!(!events.iter().any(|event| event.contains(secret)), "{events:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_has_the_event_on_its_subject_and_a_wrong_password_is_reported() -> Result<()> {
    let story = Story::begin("nats").await?;
    let server = NatsServer::start().await?;
    let mut messages = server.subscribe("flux.>").await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    let address = format!("nats://{}", server.address());
    let spec = json!({"type": "nats", "address": address, "channel": "flux.events"});
    provider(&story, spec.clone(), &[("username", USER), ("password", "wr0ng-passw0rd")]).await?;
    let upstream = reconciled(&story).await?;
    await_given_up(&story, "Authorization Violation", "wr0ng").await?;

    provider(&story, spec, &[("username", USER), ("password", PASSWORD)]).await?;
    upstream.push(&[("map.yaml", config_map("map", "2"))]).await?;
    let received = tokio::time::timeout(DEFAULT_WAIT_TIMEOUT, messages.recv()).await;
    let received = received.context("NATS was sent nothing")?.context("NATS is gone")?;
    let event: Value = serde_json::from_slice(&received)?;
    check(&event, &story)?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn alertmanager_has_an_alert_of_a_failure() -> Result<()> {
    let story = Story::begin("alertmanager").await?;
    let server = AlertmanagerServer::start().await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    let address = format!("{}/api/v2/alerts/", server.url());
    provider(&story, json!({"type": "alertmanager", "address": address}), &[]).await?;
    let _upstream = story.follow("app", &[("map.yaml", "kind: [".to_owned())]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let alert = story
        .await_until("an alert of the failure", DEFAULT_WAIT_TIMEOUT, async || {
            let alerts = server.alerts().await?;
            Ok(alerts.into_iter().find(|alert| alert["labels"]["reason"] == "BuildFailed"))
        })
        .await?;
    let labels = &alert["labels"];
    ensure!(labels["alertname"] == "FluxKustomizationBuildfailed", "{alert}");
    ensure!(labels["severity"] == "error" && labels["name"] == "app", "{alert}");
    ensure!(labels["namespace"] == story.namespace, "{alert}");
    story.end().await
}

/// A request to a fake service.
#[derive(Clone)]
struct FakeServiceRequest {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl FakeServiceRequest {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default()
    }
}

/// The answer of a fake service.
type FakeServiceResponse = (StatusCode, &'static str);

/// A service that records requests. A function of the request decides its status and body.
#[derive(Clone)]
struct FakeService {
    asked: Arc<Mutex<Vec<FakeServiceRequest>>>,
    judge: fn(&FakeServiceRequest) -> FakeServiceResponse,
}

impl FakeService {
    async fn start(
        judge: fn(&FakeServiceRequest) -> FakeServiceResponse,
    ) -> Result<(SocketAddr, Self)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let double = Self { asked: Arc::default(), judge };
        let router = Router::new().fallback(take).with_state(double.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok((address, double))
    }

    /// The requests that were accepted, or those that were rejected.
    fn judged(&self, is_accepted: bool) -> Vec<FakeServiceRequest> {
        let asked = self.asked.lock();
        let is_so = |asked: &&FakeServiceRequest| (self.judge)(asked).0.is_success() == is_accepted;
        asked.iter().filter(is_so).cloned().collect()
    }

    /// The bodies of accepted requests with a method.
    fn accepted(&self, method: &Method) -> Vec<Vec<u8>> {
        let accepted = self.judged(true).into_iter().filter(|asked| asked.method == *method);
        accepted.map(|asked| asked.body).collect()
    }

    /// The requests that the fake service has received, as text.
    fn said(&self) -> String {
        let asked = self.asked.lock();
        let line = |it: &FakeServiceRequest| {
            let body = String::from_utf8_lossy(&it.body);
            format!("{} {} {:?} {body}", it.method, it.uri, it.headers)
        };
        asked.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Waits for the body of an accepted request.
    async fn await_body(&self, story: &Story) -> Result<Vec<u8>> {
        story
            .await_until("a message", DEFAULT_WAIT_TIMEOUT, async || {
                Ok(self.accepted(&Method::POST).pop())
            })
            .await
            .with_context(|| self.said())
    }
}

async fn take(
    State(double): State<FakeService>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> FakeServiceResponse {
    let asked = FakeServiceRequest { method, uri, headers, body: body.to_vec() };
    let answer = (double.judge)(&asked);
    double.asked.lock().push(asked);
    answer
}

/// Judges "Send event" in the REST API of Event Hubs: `POST /{hub}/messages` with a shared access signature of the hub.
fn judge_event_hub(asked: &FakeServiceRequest) -> FakeServiceResponse {
    let header = |name: &str| asked.header(name);
    if asked.method != Method::POST || asked.uri.path() != "/events/messages" {
        return (StatusCode::NOT_FOUND, "");
    }
    let signed = || -> Option<bool> {
        let pairs = header("authorization").strip_prefix("SharedAccessSignature ")?;
        let pairs: Vec<(&str, &str)> =
            pairs.split('&').filter_map(|it| it.split_once('=')).collect();
        let of = |key: &str| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
        let resource = of("sr")?;
        let until = of("se")?;
        let plain = percent_encoding::percent_decode_str(resource).decode_utf8().ok()?;
        let is_hub = plain == format!("https://{}/events", header("host"));
        let tag = e2e::servers::s3::hmac(b"hub-k3y", format!("{resource}\n{until}").as_bytes());
        let shown = percent_encoding::percent_decode_str(of("sig")?).decode_utf8().ok()?;
        let is_valid = until.parse::<i64>().ok()? > jiff::Timestamp::now().as_second();
        Some(is_hub && is_valid && of("skn")? == "send" && shown == STANDARD.encode(tag))
    };
    let is_signed = signed() == Some(true);
    (if is_signed { StatusCode::CREATED } else { StatusCode::UNAUTHORIZED }, "")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_hub_takes_a_message_that_its_key_signed() -> Result<()> {
    let story = Story::begin("eventhub").await?;
    let (address, hub) = FakeService::start(judge_event_hub).await?;
    let authority = TestCertificateAuthority::generate()?;
    let front = TlsProxyListener::start(address, &authority, false).await?;
    let trusted = tempfile::NamedTempFile::new()?;
    std::fs::write(trusted.path(), authority.certificate())?;
    let trusted = trusted.path().to_string_lossy().into_owned();
    let _windlass =
        WindlassProcess::start_for_with(&story, &[], &[("SSL_CERT_FILE", &trusted)]).await?;
    let connection = |key: &str| {
        let host = front.address();
        format!(
            "Endpoint=sb://{host}/;SharedAccessKeyName=send;SharedAccessKey={key};EntityPath=events"
        )
    };
    let spec = json!({"type": "azureeventhub"});
    provider(&story, spec.clone(), &[("address", &connection("wr0ng"))]).await?;
    let upstream = reconciled(&story).await?;
    await_given_up(&story, "failed to send msg: the service answered with status 401", "wr0ng")
        .await?;

    provider(&story, spec, &[("address", &connection("hub-k3y"))]).await?;
    upstream.push(&[("map.yaml", config_map("map", "2"))]).await?;
    let event: Value = serde_json::from_slice(&hub.await_body(&story).await?)?;
    check(&event, &story)?;
    story.end().await
}

/// Judges "projects.topics.publish" of Pub/Sub, without a login, like the Pub/Sub emulator.
fn judge_pubsub(asked: &FakeServiceRequest) -> FakeServiceResponse {
    let path = asked.uri.path();
    if asked.method != Method::POST || path != "/v1/projects/shop/topics/events:publish" {
        return (StatusCode::NOT_FOUND, "");
    }
    let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let is_message =
        body["messages"][0]["data"].as_str().is_some_and(|it| STANDARD.decode(it).is_ok());
    (if is_message { StatusCode::OK } else { StatusCode::BAD_REQUEST }, "{}")
}

#[tokio::test(flavor = "multi_thread")]
async fn pub_sub_has_the_event_with_the_headers_of_the_secret_as_attributes() -> Result<()> {
    let story = Story::begin("pubsub").await?;
    let (address, service) = FakeService::start(judge_pubsub).await?;
    let address = address.to_string();
    let environment = [("PUBSUB_EMULATOR_HOST", address.as_str())];
    let _windlass = WindlassProcess::start_for_with(&story, &[], &environment).await?;
    let spec = json!({"type": "googlepubsub", "address": "shop", "channel": "events"});
    provider(&story, spec, &[("headers", "team: checkout\n")]).await?;
    reconciled(&story).await?;
    let body: Value = serde_json::from_slice(&service.await_body(&story).await?)?;
    let message = &body["messages"][0];
    ensure!(message["attributes"] == json!({"team": "checkout"}), "{body}");
    let event = STANDARD.decode(message["data"].as_str().unwrap_or_default())?;
    check(&serde_json::from_slice(&event)?, &story)?;
    story.end().await
}
