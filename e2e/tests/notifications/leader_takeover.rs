//! A new leader sends the notifications that the killed leader did not send. It has no access to the old storage, and finds
//! failures in conditions and Incidents.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, hook};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{PodBehavior, config_map};
use e2e::harness::{Story, StoryObject, WindlassProcess};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};

use super::BETA;
use super::fake_notification_service::FakeNotificationService;

/// Starts one of several windlass processes. Another process takes over a few seconds after the leader is gone.
async fn start(story: &Story, identity: &str) -> Result<WindlassProcess> {
    let identity = format!("--leader-election-identity={identity}");
    let flags = [
        "--enable-leader-election",
        "--leader-election-lease-duration=12s",
        "--leader-election-renew-deadline=10s",
        "--leader-election-retry-period=500ms",
        &identity,
    ];
    WindlassProcess::start_for(story, &flags).await
}

async fn await_leader(story: &Story, identity: &str) -> Result<()> {
    let leads = async || {
        let lease: Lease = story.get("windlass-leader-election").await?;
        let holder = lease.spec.context("a Lease without a spec")?.holder_identity;
        Ok((holder.as_deref() == Some(identity)).then_some(()))
    };
    story.await_until(&format!("{identity} to lead"), DEFAULT_WAIT_TIMEOUT, leads).await
}

/// Creates a Provider, and an Alert that sends failures of objects of some kinds to a path of the service.
async fn alert(
    story: &Story,
    service: &FakeNotificationService,
    name: &str,
    kinds: &[&str],
    annotations: Value,
) -> Result<()> {
    let sources: Vec<Value> = kinds.iter().map(|kind| json!({"kind": kind, "name": "*"})).collect();
    let address = service.url.replace("/hook", &format!("/{name}"));
    let provider = json!({"apiVersion": BETA, "kind": "Provider", "metadata": {"name": name},
        "spec": {"type": "generic", "address": address}});
    story.apply_value(provider).await?;
    let alert = json!({"apiVersion": BETA, "kind": "Alert",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"providerRef": {"name": name}, "eventSeverity": "error",
            "eventSources": sources}});
    story.apply_value(alert).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_leader_did_not_send_before_it_was_killed_its_successor_sends() -> Result<()> {
    let story = Story::begin("takeover").await?;
    let service = FakeNotificationService::start().await?;
    service.answers(503);
    let mut a = start(&story, "pod-a").await?;
    await_leader(&story, "pod-a").await?;
    let b = start(&story, "pod-b").await?;
    alert(&story, &service, "events", &["Kustomization"], json!({})).await?;
    let of_incidents = json!({"windlass.dev/incidents": "true"});
    alert(&story, &service, "incidents", &["Kustomization"], of_incidents).await?;
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    upstream.push(&[("map.yaml", "kind: [".to_owned())]).await?;
    for name in ["events", "incidents"] {
        story.await_event("Provider", name, "DeliveryFailed").await?;
    }
    a.operator.kill()?;
    service.answers(200);
    await_leader(&story, "pod-b").await?;

    // The artifact of the other process is not available yet, which is not a failure.
    let is_sent = async || Ok(service.sent_to("/events").into_iter().next());
    let event = story.await_until("the failure as an event", DEFAULT_WAIT_TIMEOUT, is_sent).await?;
    ensure!(event["reason"] == "BuildFailed" && event["severity"] == "error", "{event}");
    let is_sent = async || Ok(service.sent_to("/incidents").into_iter().next());
    let opened =
        story.await_until("the failure as an incident", DEFAULT_WAIT_TIMEOUT, is_sent).await?;
    ensure!(opened["metadata"]["incidentState"] == "Open", "{opened}");
    let known = service.sent_to("/incidents").len();
    ensure!(known == 1, "an incident was opened {known} times");

    upstream.push(&[("map.yaml", config_map("map", "2"))]).await?;
    let resolved = async || Ok(service.sent_to("/incidents").into_iter().nth(1));
    let resolved =
        story.await_until("the end of the incident", DEFAULT_WAIT_TIMEOUT, resolved).await?;
    ensure!(resolved["metadata"]["incidentState"] == "Resolved", "{resolved}");
    ensure!(resolved["metadata"]["incident"] == opened["metadata"]["incident"], "{resolved}");
    drop(b);
    story.end().await
}

/// The messages about objects of a kind.
fn sent_about(service: &FakeNotificationService, kind: &str) -> Vec<Value> {
    let sent = service.sent_to("/events").into_iter();
    sent.filter(|event| event["involvedObject"]["kind"] == kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_and_a_source_that_failed_before_a_takeover_are_announced_once() -> Result<()> {
    let story = Story::begin("takeover-kinds").await?;
    let service = FakeNotificationService::start().await?;
    service.answers(503);
    let mut a = start(&story, "pod-a").await?;
    await_leader(&story, "pod-a").await?;
    let b = start(&story, "pod-b").await?;
    alert(&story, &service, "events", &["HelmRelease", "GitRepository"], json!({})).await?;
    let upstream = story.follow("files", &[("map.yaml", config_map("map", "1"))]).await?;
    let url = upstream.server.url(&upstream.repository);
    let source = StoryObject::git_repository("files");
    story.await_ready(&source).await?;
    story.git_repository("files", &url, json!({"ref": {"branch": "missing"}})).await?;
    story.await_condition(&source, "Ready", "False", DEFAULT_WAIT_TIMEOUT).await?;
    // The release has no attempts left, so the next leader begins no action that would report the failure.
    let charts = StoryChartRepository::of(&story).await?;
    let broken = hook("migrate", "pre-install", 0, "", PodBehavior::Fail);
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &broken)]).await?;
    charts.seen().await?;
    let release = charts.release("app", json!({})).await?;
    story.await_condition(&release, "Stalled", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.await_event("Provider", "events", "DeliveryFailed").await?;
    a.operator.kill()?;
    service.answers(200);
    await_leader(&story, "pod-b").await?;

    for kind in ["GitRepository", "HelmRelease"] {
        let what = format!("the failure of a {kind}");
        let is_sent = async || Ok(sent_about(&service, kind).into_iter().next());
        let event = story.await_until(&what, DEFAULT_WAIT_TIMEOUT, is_sent).await?;
        ensure!(event["severity"] == "error", "{event}");
    }
    for object in [&source, &release] {
        story.rerun(object).await?;
    }
    // Another failure of the source is sent after all that was announced of it before.
    story.git_repository("files", &url, json!({"ref": {"branch": "another-branch"}})).await?;
    let is_sent = async || Ok(sent_about(&service, "GitRepository").into_iter().nth(1));
    let event = story.await_until("another failure", DEFAULT_WAIT_TIMEOUT, is_sent).await?;
    let text = event["message"].as_str().unwrap_or_default();
    ensure!(text.contains("another-branch"), "the same failure was announced again: {event}");
    let of_release = sent_about(&service, "HelmRelease");
    ensure!(of_release.len() == 1, "{of_release:?}");
    drop(b);
    story.end().await
}
