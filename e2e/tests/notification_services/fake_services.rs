//! Fake services for those that cannot run here. Each accepts only requests that meet the requirements of the named
//! documentation.
//!
//! Elsewhere: services that run here (`notification_services.rs`), PagerDuty (`notifications`), all requests that Flux sends (`cargo xtask
//! conformance`).

use anyhow::{Context as _, Result, ensure};
use axum::http::{Method, StatusCode};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use serde_json::{Value, json};

use crate::notification_services::{BETA, FakeService, FakeServiceRequest, FakeServiceResponse};

const NO: FakeServiceResponse = (StatusCode::BAD_REQUEST, "");

fn body(asked: &FakeServiceRequest) -> Value {
    serde_json::from_slice(&asked.body).unwrap_or_default()
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

/// Judges by Slack's "Sending messages using incoming webhooks" and "Secondary message attachments". Mattermost's "Incoming
/// webhooks" has the same rules. The JSON has `text` or `attachments`, whose texts and fields are texts, and whose `short` is a
/// boolean.
pub(crate) fn slack(asked: &FakeServiceRequest) -> FakeServiceResponse {
    let message = body(asked);
    let attachments = message["attachments"].as_array().cloned().unwrap_or_default();
    let is_field = |field: &Value| {
        is_text(&field["title"]) && field["value"].is_string() && field["short"].is_boolean()
    };
    let is_attachment = |it: &Value| {
        let fields = it["fields"].as_array().cloned().unwrap_or_default();
        is_text(&it["text"]) && it["color"].is_string() && fields.iter().all(is_field)
    };
    let is_message = !attachments.is_empty() && attachments.iter().all(is_attachment);
    let is_json = asked.header("content-type").starts_with("application/json");
    match asked.method == Method::POST && is_json && is_message {
        true => (StatusCode::OK, "ok"),
        false => NO,
    }
}

/// Judges by Discord's "Execute Slack-compatible webhook", which has Slack's rules at the path `/slack`.
pub(crate) fn discord(asked: &FakeServiceRequest) -> FakeServiceResponse {
    match asked.uri.path().ends_with("/slack") {
        true => slack(asked),
        false => NO,
    }
}

/// Whether this is an element of an Adaptive Card.
fn is_element(it: &Value) -> bool {
    let are = |list: &Value, is_it: fn(&Value) -> bool| {
        list.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(is_it))
    };
    match it["type"].as_str() {
        Some("TextBlock") => is_text(&it["text"]),
        Some("Container") => are(&it["items"], is_element),
        Some("FactSet") => {
            are(&it["facts"], |fact| is_text(&fact["title"]) && fact["value"].is_string())
        }
        _ => false,
    }
}

/// Judges by Microsoft's "Create incoming webhooks with Workflows". A message contains Adaptive Cards, each with a type, a
/// version and a body of elements.
pub(crate) fn teams(asked: &FakeServiceRequest) -> FakeServiceResponse {
    let message = body(asked);
    let is_card = |it: &Value| {
        let card = &it["content"];
        it["contentType"] == "application/vnd.microsoft.card.adaptive"
            && card["type"] == "AdaptiveCard"
            && is_text(&card["version"])
            && card["body"].as_array().is_some_and(|it| !it.is_empty() && it.iter().all(is_element))
    };
    let cards = message["attachments"].as_array().cloned().unwrap_or_default();
    match message["type"] == "message" && !cards.is_empty() && cards.iter().all(is_card) {
        true => (StatusCode::ACCEPTED, ""),
        false => NO,
    }
}

/// The commit in a path between two texts, if it is a commit.
fn is_commit(path: &str, before: &str, after: &str) -> bool {
    let commit = path.strip_prefix(before).and_then(|path| path.strip_suffix(after));
    commit.is_some_and(|it| it.len() == 40 && it.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Judges by GitHub's "REST API endpoints for commit statuses". There is a list, and a status with one of four states and a
/// description of at most 140 characters.
pub(crate) fn github(asked: &FakeServiceRequest) -> FakeServiceResponse {
    let path = asked.uri.path();
    let status = body(asked);
    if asked.header("authorization") != "Bearer git-t0ken" {
        return (StatusCode::UNAUTHORIZED, "{\"message\":\"Bad credentials\"}");
    }
    if asked.method == Method::GET {
        let is_list = is_commit(path, "/api/v3/repos/shop/app/commits/", "/statuses");
        return if is_list { (StatusCode::OK, "[]") } else { NO };
    }
    let is_state =
        ["error", "failure", "pending", "success"].iter().any(|it| status["state"] == *it);
    let is_short = status["description"].as_str().is_some_and(|it| it.chars().count() <= 140);
    let is_status = is_commit(path, "/api/v3/repos/shop/app/statuses/", "");
    match is_status && is_state && is_short && is_text(&status["context"]) {
        true => (StatusCode::CREATED, "{}"),
        false => NO,
    }
}

/// Judges by GitLab's "Commits API", "Set commit pipeline status". The project is one element of the path, and the token is in
/// a header.
pub(crate) fn gitlab(asked: &FakeServiceRequest) -> FakeServiceResponse {
    let path = asked.uri.path();
    let status = body(asked);
    if asked.header("private-token") != "git-t0ken" {
        return (StatusCode::UNAUTHORIZED, "{\"message\":\"401 Unauthorized\"}");
    }
    let project = "/api/v4/projects/shop%2Fapp";
    if asked.method == Method::GET {
        let before = format!("{project}/repository/commits/");
        return if is_commit(path, &before, "/statuses") { (StatusCode::OK, "[]") } else { NO };
    }
    let states = ["pending", "running", "success", "failed", "canceled", "skipped"];
    let is_state = states.iter().any(|it| status["state"] == *it);
    let is_short = status["description"].as_str().is_some_and(|it| it.chars().count() <= 255);
    match is_commit(path, &format!("{project}/statuses/"), "") && is_state && is_short {
        true => (StatusCode::CREATED, "{}"),
        false => NO,
    }
}

/// Judges by Gitea's Swagger document: `/version`, `repoListStatuses` and `repoCreateStatus`.
pub(crate) fn gitea(asked: &FakeServiceRequest) -> FakeServiceResponse {
    let path = asked.uri.path();
    let status = body(asked);
    if asked.header("authorization") != "token git-t0ken" {
        return (StatusCode::UNAUTHORIZED, "{\"message\":\"token is required\"}");
    }
    let statuses = is_commit(path, "/api/v1/repos/shop/app/statuses/", "")
        || is_commit(path, "/api/v1/repos/shop/app/commits/", "/statuses");
    if asked.method == Method::GET {
        return match path {
            "/api/v1/version" => (StatusCode::OK, "{\"version\":\"1.24.0\"}"),
            _ if statuses => (StatusCode::OK, "[]"),
            _ => NO,
        };
    }
    let states = ["pending", "success", "error", "failure", "warning"];
    let is_state = states.iter().any(|it| status["state"] == *it);
    match statuses && is_state && is_text(&status["context"]) {
        true => (StatusCode::CREATED, "{}"),
        false => NO,
    }
}

type FakeServiceEntry =
    (&'static str, &'static str, fn(&FakeServiceRequest) -> FakeServiceResponse);

/// The type, the path of the address, and the fake service.
const SERVICES: [FakeServiceEntry; 8] = [
    ("slack", "/services/T0/B0/x", slack),
    ("rocket", "/hooks/x", slack),
    ("discord", "/api/webhooks/1/x", discord),
    ("msteams", "/workflows/x", teams),
    ("github", "/shop/app", github),
    ("gitlab", "/shop/app", gitlab),
    ("gitea", "/shop/app", gitea),
    // Mattermost has no type of its own.
    ("slack", "/hooks/mattermost", slack),
];

#[tokio::test(flavor = "multi_thread")]
async fn services_accept_what_their_documents_demand() -> Result<()> {
    let story = Story::begin("doubles").await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"},
        "stringData": {"token": "git-t0ken"}});
    story.apply_value(secret).await?;
    let mut doubles = Vec::new();
    for (number, (kind, path, judge)) in SERVICES.into_iter().enumerate() {
        let (address, double) = FakeService::start(judge).await?;
        let name = format!("{kind}-{number}");
        let provider = json!({"apiVersion": BETA, "kind": "Provider", "metadata": {"name": name},
            "spec": {"type": kind, "address": format!("http://{address}{path}"), "channel": "ops",
                "secretRef": {"name": "token"}, "timeout": "5s"}});
        story.apply_value(provider).await?;
        let alert = json!({"apiVersion": BETA, "kind": "Alert", "metadata": {"name": name},
            "spec": {"providerRef": {"name": name}, "eventMetadata": {"cluster": "one", "summary": "the shop"},
                "eventSources": [{"kind": "Kustomization", "name": "*"}]}});
        story.apply_value(alert).await?;
        doubles.push((name, double));
    }
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    upstream.push(&[("map.yaml", "kind: [".to_owned())]).await?;
    for (name, double) in doubles {
        // One event about success, and one about a failure.
        let is_both = async || Ok((double.accepted(&Method::POST).len() >= 2).then_some(()));
        let awaited = story
            .await_until(&format!("two messages to {name}"), DEFAULT_WAIT_TIMEOUT, is_both)
            .await;
        awaited.with_context(|| double.said())?;
        ensure!(double.judged(false).is_empty(), "{name}: {}", double.said());
    }
    story.end().await
}
