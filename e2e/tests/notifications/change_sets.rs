//! Verdicts about commits: windlass sends one event for everything that a commit changes, instead of events about its members.

use anyhow::{Result, ensure};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use serde_json::json;

use super::fake_notification_service::FakeNotificationService;
use super::{BETA, provider};

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_that_asks_for_verdicts_is_sent_one_event_for_a_commit() -> Result<()> {
    let story = Story::begin("alert-changes").await?;
    let service = FakeNotificationService::start().await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    provider(&story, &service.url, json!({})).await?;
    let sources = ["Kustomization", "GitRepository"].map(|kind| json!({"kind": kind, "name": "*"}));
    let annotations = json!({"windlass.dev/change-sets": "true"});
    let alert = json!({"apiVersion": BETA, "kind": "Alert",
        "metadata": {"name": "alert", "annotations": annotations},
        "spec": {"providerRef": {"name": "service"}, "eventSources": sources}});
    story.apply_value(alert).await?;
    let files = |value: &str| {
        [("a/map.yaml", config_map("a", value)), ("b/map.yaml", config_map("b", value))]
    };
    let upstream = story.follow("app", &files("1")).await?;
    for name in ["a", "b"] {
        story.kustomization(name, "app", json!({"path": format!("./{name}")})).await?;
    }
    for name in ["a", "b"] {
        story.await_ready(&StoryObject::kustomization(name)).await?;
    }
    service.awaits(&story, "GitRepository", "ChangeSucceeded").await?;
    let before = service.sent_to("/hook").len();
    let broken = [("a/map.yaml", config_map("a", "2")), ("b/map.yaml", "kind: [".to_owned())];
    let revision = upstream.push(&broken).await?;
    let failed = service.awaits(&story, "GitRepository", "ChangeFailed").await?;
    ensure!(failed["severity"] == "error", "{failed}");
    ensure!(failed["metadata"]["revision"] == revision, "{failed}");
    let message = failed["message"].as_str().unwrap_or_default();
    ensure!(message.contains("2 members: 1 failed, 1 succeeded (ks/b)"), "{message}");
    ensure!(message.contains("; ks/b failed: "), "{message}");
    let since: Vec<_> = service.sent_to("/hook").into_iter().skip(before).collect();
    ensure!(since.len() == 1, "the verdict comes in place of all others: {since:?}");
    story.end().await
}
