//! Notifications: windlass sends events to services, and webhooks trigger reconciliations.
//!
//! Each story has its own windlass, which watches only the namespace of the story. The service is a server on loopback that
//! records its requests (`fake_notification_service.rs`).
//! Below: verdicts about commits (`change_sets.rs`), Incidents (`incidents.rs`), each type of Receiver (`receivers.rs`).
//! Elsewhere: the requests to each type of service (`cargo xtask conformance`), events for Flux's notification-controller
//! (`restarts.rs`).

mod change_sets;
mod fake_notification_service;
mod incidents;
mod leader_takeover;
mod oidc_token_issuers;
mod receivers;

use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, revision};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use serde_json::{Value, json};

use fake_notification_service::FakeNotificationService;

const BETA: &str = "notification.toolkit.fluxcd.io/v1beta3";

async fn provider(story: &Story, url: &str, more: Value) -> Result<()> {
    let mut spec = json!({"type": "generic", "address": url, "timeout": "1s"});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object = json!({"apiVersion": BETA, "kind": "Provider", "metadata": {"name": "service"}, "spec": spec});
    story.apply_value(object).await.map(drop)
}

async fn alert(story: &Story, sources: Value, more: Value) -> Result<()> {
    let mut spec = json!({"providerRef": {"name": "service"}, "eventSources": sources});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object =
        json!({"apiVersion": BETA, "kind": "Alert", "metadata": {"name": "alert"}, "spec": spec});
    story.apply_value(object).await.map(drop)
}

/// How many notifications wait in the storage of windlass. A line of the file has a checksum, and a sign: `+` for one that
/// waits, `-` for one that has come to its end.
fn waiting(windlass: &WindlassProcess) -> Result<usize> {
    let file = std::fs::read_to_string(windlass.storage().join(".notifications/waiting.records"))?;
    let count = |sign: &str| file.lines().filter(|it| it.split(' ').nth(1) == Some(sign)).count();
    Ok(count("+").saturating_sub(count("-")))
}

/// An event that another controller posts about an ImagePolicy.
fn posted_event(namespace: &str, name: &str, message: &str) -> Value {
    json!({"involvedObject": {"apiVersion": "image.toolkit.fluxcd.io/v1", "kind": "ImagePolicy",
            "name": name, "namespace": namespace},
        "severity": "info", "timestamp": "2026-01-02T03:04:05Z", "message": message,
        "reason": "Succeeded", "reportingController": "image-reflector-controller"})
}

async fn post(windlass: &WindlassProcess, event: &Value) -> Result<()> {
    let answer = reqwest::Client::new().post(windlass.artifacts()).json(event).send().await?;
    ensure!(answer.status() == 202, "{}", answer.status());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_notified_of_a_failure_and_of_its_end() -> Result<()> {
    let story = Story::begin("alert").await?;
    let service = FakeNotificationService::start().await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    provider(&story, &service.url, json!({})).await?;
    let sources = json!([{"kind": "Kustomization", "name": "*"}]);
    let metadata = json!({"eventMetadata": {"cluster": "test-1", "summary": "the shop is down"}});
    alert(&story, sources, metadata).await?;
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let first = service.awaits(&story, "Kustomization", "ReconciliationSucceeded").await?;
    ensure!(first["severity"] == "info" && first["component"] == "kustomize-controller", "{first}");

    let broken = upstream.push(&[("map.yaml", "kind: [".to_owned())]).await?;
    let failed = service.awaits(&story, "Kustomization", "BuildFailed").await?;
    let about = &failed["involvedObject"];
    ensure!(about["name"] == "app" && about["namespace"] == story.namespace, "{failed}");
    ensure!(failed["severity"] == "error", "{failed}");
    let expected = json!({"cluster": "test-1", "summary": "the shop is down", "revision": broken});
    ensure!(failed["metadata"] == expected, "{failed}");

    let healed = upstream.push(&[("map.yaml", config_map("map", "2"))]).await?;
    story.await_applied("app", &healed).await?;
    let is_sent = async || {
        let all = service.sent("Kustomization", "ReconciliationSucceeded");
        Ok(all.into_iter().find(|it| it["metadata"]["revision"] == healed))
    };
    story.await_until("the notification of the recovery", DEFAULT_WAIT_TIMEOUT, is_sent).await?;
    ensure!(service.sent("GitRepository", "NewArtifact").is_empty(), "no Alert selects these");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_service_that_is_down_is_sent_once_after_a_kill() -> Result<()> {
    let story = Story::begin("alert-killed").await?;
    let service = FakeNotificationService::start().await?;
    service.answers(503);
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let token = "hunter2-the-token";
    story
        .apply_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "service"},
            "stringData": {"address": format!("{}?key={token}", service.url)}}))
        .await?;
    provider(&story, &service.url, json!({"secretRef": {"name": "service"}})).await?;
    alert(&story, json!([{"kind": "GitRepository", "name": "app"}]), json!({})).await?;
    let _upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    story.await_ready(&StoryObject::git_repository("app")).await?;
    story.await_event("Provider", "service", "DeliveryFailed").await?;
    let text = story.events("Provider", "service").await?.join("\n");
    ensure!(text.contains("retrying in") && !text.contains(token), "{text}");
    windlass.operator.kill()?;
    ensure!(waiting(&windlass)? == 1, "nothing is kept");

    service.answers(200);
    windlass.resume().await?;
    let artifact = service.awaits(&story, "GitRepository", "NewArtifact").await?;
    ensure!(artifact["component"] == "source-controller", "{artifact}");
    let is_sent = async || Ok((waiting(&windlass)? == 0).then_some(()));
    story.await_until("nothing to wait", DEFAULT_WAIT_TIMEOUT, is_sent).await?;
    let sent = service.sent("GitRepository", "NewArtifact");
    ensure!(sent.len() == 1, "it was sent {} times", sent.len());
    let log = windlass.operator.log()?;
    ensure!(!log.contains(token), "the log has the credentials of the service");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_notified_at_once_each_in_its_order_and_a_busy_service_gets_no_requests()
-> Result<()> {
    const OBJECTS: usize = 10;
    const EVENTS_EACH: usize = 5;
    let story = Story::begin("alert-parallel").await?;
    let service = FakeNotificationService::start().await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    provider(&story, &service.url, json!({"timeout": "30s"})).await?;
    alert(&story, json!([{"kind": "ImagePolicy", "name": "*"}]), json!({})).await?;
    let count = AtomicU16::new(0);
    let is_sent = async || {
        let message = format!("a probe {}", count.fetch_add(1, Ordering::SeqCst));
        post(&windlass, &posted_event(&story.namespace, "probe", &message)).await?;
        Ok(service.sent("ImagePolicy", "Succeeded").pop())
    };
    story.await_until("the Alert to be known", DEFAULT_WAIT_TIMEOUT, is_sent).await?;
    let send_all = async |windlass: &WindlassProcess, round: &str| {
        for number in 0..EVENTS_EACH {
            for object in 0..OBJECTS {
                let [name, message] = [format!("app-{object}"), format!("{round} {number}")];
                post(windlass, &posted_event(&story.namespace, &name, &message)).await?;
            }
        }
        anyhow::Ok(())
    };
    let sent_of = |name: &str, round: &str| {
        let all = service.sent("ImagePolicy", "Succeeded").into_iter();
        let own = all.filter(|it| it["involvedObject"]["name"] == name);
        let messages = own.map(|it| it["message"].as_str().unwrap_or_default().to_owned());
        messages.filter(|it| it.starts_with(round)).collect::<Vec<_>>()
    };
    let await_all = async |round: &str| {
        let expected: Vec<String> =
            (0..EVENTS_EACH).map(|number| format!("{round} {number}")).collect();
        let is_all = async || {
            let mut names = (0..OBJECTS).map(|object| format!("app-{object}"));
            Ok(names.all(|name| sent_of(&name, round).len() >= EVENTS_EACH).then_some(()))
        };
        story.await_until("all notifications", DEFAULT_WAIT_TIMEOUT, is_all).await?;
        for object in 0..OBJECTS {
            let sent = sent_of(&format!("app-{object}"), round);
            ensure!(sent == expected, "app-{object}: {sent:?}");
        }
        anyhow::Ok(())
    };

    service.answers_after(100);
    send_all(&windlass, "slow").await?;
    await_all("slow").await?;
    let most = service.most_at_once();
    ensure!((2..=8).contains(&most), "{most} requests at once");

    // Every request in flight may be rejected, and then there is none before the service wants one.
    service.asks_for_pause(60);
    service.answers(429);
    let before = service.requests();
    send_all(&windlass, "busy").await?;
    story.await_event("Provider", "service", "DeliveryFailed").await?;
    tokio::time::sleep(std::time::Duration::from_secs(8)).await;
    let rejected = service.requests() - before;
    ensure!((1..=8).contains(&rejected), "{rejected} requests");

    // What waits survives a kill, in its order. The new process does not know of the pause.
    windlass.operator.kill()?;
    ensure!(waiting(&windlass)? == OBJECTS * EVENTS_EACH, "{} wait", waiting(&windlass)?);
    service.answers_after(0);
    service.asks_for_pause(0);
    service.answers(200);
    windlass.resume().await?;
    await_all("busy").await?;
    let is_sent = async || Ok((waiting(&windlass)? == 0).then_some(()));
    story.await_until("nothing to wait", DEFAULT_WAIT_TIMEOUT, is_sent).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_is_sent_from_the_command_line_and_shown_without_credentials() -> Result<()> {
    let story = Story::begin("alert-test").await?;
    let service = FakeNotificationService::start().await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden"},
        "stringData": {"token": "hunter2-token", "headers": "X-Key: hunter3-key"}});
    story.apply_value(secret).await?;
    provider(&story, &service.url, json!({"secretRef": {"name": "hidden"}})).await?;
    let test = ["alerts", "test", "service", "-n", story.namespace.as_str()];
    let said = story.windlass_says(&[&test[..], &["--dry-run"]].concat(), true)?;
    ensure!(said.contains("nothing was sent") && said.contains("sample event"), "{said}");
    let severe = [&test[..], &["--severity", "error", "--metadata", "team=web"]].concat();
    let said = story.windlass_says(&severe, true)?;
    ensure!(said.contains("< 200 after ") && said.contains("accepted the event"), "{said}");
    ensure!(said.contains("X-Key: ****") && !said.contains("hunter"), "{said}");
    let sent = service.sent("Kustomization", "ReconciliationFailed");
    ensure!(sent.len() == 1 && sent[0]["severity"] == "error", "{sent:?}");
    ensure!(sent[0]["metadata"]["kustomize.toolkit.fluxcd.io/team"] == "web", "{sent:?}");
    service.answers(403);
    let said = story.windlass_says(&test, false)?;
    ensure!(said.contains("< 403 after ") && said.contains("status code 403"), "{said}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_gets_no_events_of_other_namespaces_under_lockdown() -> Result<()> {
    let story = Story::begin("alert-lockdown").await?;
    let service = FakeNotificationService::start().await?;
    let windlass = WindlassProcess::start_for(&story, &["--no-cross-namespace-refs"]).await?;
    provider(&story, &service.url, json!({})).await?;
    let sources = json!([
        {"kind": "ImagePolicy", "name": "*", "namespace": "elsewhere"},
        {"kind": "ImagePolicy", "name": "*"},
    ]);
    alert(&story, sources, json!({})).await?;
    // The watch of Alerts may be slightly late.
    let post = async |namespace: &str, message: &str| {
        post(&windlass, &posted_event(namespace, "app", message)).await
    };
    let count = AtomicU16::new(0);
    let is_sent = async || {
        let count = count.fetch_add(1, Ordering::SeqCst);
        post(&story.namespace, &format!("a newer image {count}")).await?;
        Ok(service.sent("ImagePolicy", "Succeeded").pop())
    };
    story.await_until("an event of the same namespace", DEFAULT_WAIT_TIMEOUT, is_sent).await?;
    // A process that does not lead yet delivers posted events but records nothing.
    let leads = async || Ok(windlass.metrics().await?.contains("windlass_leader 1").then_some(()));
    story.await_until("windlass to lead", DEFAULT_WAIT_TIMEOUT, leads).await?;
    post("elsewhere", "a secret image").await?;
    story.await_event("Alert", "alert", "cross-namespace references have been blocked").await?;
    let sent = service.sent("ImagePolicy", "Succeeded");
    let is_own = |it: &Value| it["involvedObject"]["namespace"] == story.namespace;
    ensure!(sent.iter().all(is_own), "{sent:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_reaches_the_cluster_and_a_forged_one_does_not() -> Result<()> {
    let story = Story::begin("receiver").await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    story
        .apply_value(json!({"apiVersion": "notification.toolkit.fluxcd.io/v1", "kind": "Receiver",
            "metadata": {"name": "hook"},
            "spec": {"type": "gitlab", "events": ["Push Hook"], "secretRef": {"name": "token"},
                "resources": [{"kind": "GitRepository", "name": "app"}]}}))
        .await?;
    let hook = StoryObject::new("notification.toolkit.fluxcd.io/v1", "Receiver", "hook");
    let why = story.await_failure(&hook, "TokenNotFound").await?;
    ensure!(why.contains("token"), "{why}");
    story
        .apply_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"},
            "stringData": {"token": "secret-token"}}))
        .await?;
    let ready = story.await_ready(&hook).await?;
    let path = ready.data["status"]["webhookPath"].as_str().context("no path")?.to_owned();
    let url = format!("{}{path}", windlass.webhooks());
    let send = async |url: &str, token: &str, event: &str| {
        let request = reqwest::Client::new().post(url).body("{}");
        let request = request.header("X-Gitlab-Token", token).header("X-Gitlab-Event", event);
        anyhow::Ok(request.send().await?.status().as_u16())
    };
    let before = story.expect(&StoryObject::git_repository("app")).await?.metadata.annotations;
    ensure!(send(&url, "forged", "Push Hook").await? == 400);
    ensure!(send(&url, "secret-token", "Note Hook").await? == 400);
    ensure!(send(&format!("{url}0"), "secret-token", "Push Hook").await? == 404);
    let after = story.expect(&StoryObject::git_repository("app")).await?.metadata.annotations;
    ensure!(before == after, "a forged request had the repository reconciled");
    let large = reqwest::Client::new().post(&url).body(vec![b' '; (3 << 20) + 1]);
    // The server may answer and close the connection before it has received everything.
    ensure!(large.send().await.map_or(true, |answer| answer.status() == 413));

    let sha = upstream.repository.commit(&[("map.yaml", &config_map("map", "2"))], "second")?;
    let sent = futures::future::join_all((0..20).map(|_| send(&url, "secret-token", "Push Hook")));
    for status in sent.await {
        ensure!(status? == 200);
    }
    story.await_applied("app", &revision(&sha)).await?;
    story.await_value("map", "2").await?;
    story.merge(&hook, json!({"spec": {"suspend": true}})).await?;
    let is_closed =
        async || Ok((send(&url, "secret-token", "Push Hook").await? == 503).then_some(()));
    story.await_until("the suspension to count", DEFAULT_WAIT_TIMEOUT, is_closed).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stock_flux_creates_and_shows_alerts_providers_and_receivers() -> Result<()> {
    let story = Story::begin("flux-alerts").await?;
    let service = FakeNotificationService::start().await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let address = format!("--address={}", service.url);
    story.flux(&["create", "alert-provider", "service", "--type=generic", &address])?;
    story.flux(&[
        "create",
        "alert",
        "alert",
        "--provider-ref=service",
        "--event-severity=info",
        "--event-source=GitRepository/*",
    ])?;
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    service.awaits(&story, "GitRepository", "NewArtifact").await?;
    story
        .apply_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"},
            "stringData": {"token": "secret-token"}}))
        .await?;
    let created = story.flux(&[
        "create",
        "receiver",
        "hook",
        "--type=generic",
        "--secret-ref=token",
        "--resource=GitRepository/app",
    ])?;
    ensure!(created.contains("/hook/"), "{created}");
    let alerts = story.flux(&["get", "alerts"])?;
    ensure!(alerts.contains("alert") && alerts.contains("True"), "{alerts}");
    let providers = story.flux(&["get", "alert-providers"])?;
    ensure!(providers.contains("service"), "{providers}");
    let receivers = story.flux(&["get", "receivers"])?;
    ensure!(receivers.contains("hook") && receivers.contains("True"), "{receivers}");
    story.flux(&["reconcile", "receiver", "hook"])?;
    let url = format!("--url={}", windlass.webhooks());
    let trigger = |token: &str| story.flux(&["trigger", "receiver", "hook", token, &url]);
    ensure!(trigger("--token=another").is_err(), "another token makes another path");
    let app = StoryObject::git_repository("app");
    let requested = async || {
        let annotations = story.expect(&app).await?.metadata.annotations.unwrap_or_default();
        anyhow::Ok(annotations.get("reconcile.fluxcd.io/requestedAt").cloned())
    };
    ensure!(requested().await?.is_none(), "a forged request had the repository reconciled");
    trigger("--token=secret-token")?;
    ensure!(requested().await?.is_some(), "the webhook had no effect");
    for (kind, name, field) in [
        ("alert", "alert", "eventSources"),
        ("alert-provider", "service", "type: generic"),
        ("receiver", "hook", "resources"),
    ] {
        let exported = story.flux(&["export", kind, name])?;
        ensure!(exported.contains(field) && !exported.contains("status"), "{exported}");
    }
    for command in ["suspend", "resume"] {
        for kind in ["alert", "receiver"] {
            let name = if kind == "alert" { "alert" } else { "hook" };
            story.flux(&[command, kind, name])?;
        }
    }
    drop(upstream);
    for (kind, name) in [("receiver", "hook"), ("alert", "alert"), ("alert-provider", "service")] {
        story.flux(&["delete", kind, name, "--silent"])?;
    }
    story.end().await
}
