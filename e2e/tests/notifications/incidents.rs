//! Incidents: windlass sends one message when a failure begins and one when it ends, whatever else fails because of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use crds::kustomize::Kustomization;
use crds::windlass_notification::{Incident, IncidentState, IncidentStatus, IncidentStep};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition, ready_until};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::fake_notification_service::FakeNotificationService;
use super::{BETA, provider};

const BROKEN: &str = "kind: [";

/// How long many Kustomizations may take on a busy machine.
const LONG: Duration = Duration::from_secs(180);

/// Creates the Alert `alert` with Incidents for all Kustomizations and GitRepositories. `more` are further annotations.
async fn alert(story: &Story, more: Value) -> Result<()> {
    let mut annotations = json!({"windlass.dev/incidents": "true"});
    for (key, value) in more.as_object().into_iter().flatten() {
        annotations[format!("windlass.dev/{key}")] = value.clone();
    }
    if let Some(all) = annotations.as_object_mut() {
        all.retain(|_, value| !value.is_null());
    }
    let sources = ["Kustomization", "GitRepository"].map(|kind| json!({"kind": kind, "name": "*"}));
    let object = json!({"apiVersion": BETA, "kind": "Alert",
        "metadata": {"name": "alert", "annotations": annotations},
        "spec": {"providerRef": {"name": "service"}, "eventSources": sources}});
    story.apply_value(object).await.map(drop)
}

async fn incidents(story: &Story) -> Result<Vec<Incident>> {
    let api = Api::<Incident>::namespaced(story.client.clone(), &story.namespace);
    Ok(api.list(&Default::default()).await?.items)
}

/// Waits for an Incident about an object whose status satisfies a check.
async fn await_incident(
    story: &Story,
    (kind, name): (&str, &str),
    is_desired: impl Fn(&IncidentStatus) -> bool,
) -> Result<Incident> {
    let what = format!("an incident of {kind}/{name}");
    let ask = async || {
        let all = incidents(story).await?;
        let is_it = |it: &Incident| {
            let subject = &it.spec.subject;
            subject.kind == kind
                && subject.name == name
                && it.status.as_ref().is_some_and(&is_desired)
        };
        Ok(all.into_iter().find(is_it))
    };
    story.await_until(&what, LONG, ask).await
}

fn is_open(status: &IncidentStatus) -> bool {
    status.state == Some(IncidentState::Open)
}

fn is_sent(status: &IncidentStatus, step: IncidentStep) -> bool {
    status.notifications.iter().any(|it| it.state == step)
}

/// The messages that a service received about Incidents in a state.
fn about(service: &FakeNotificationService, state: &str) -> Vec<Value> {
    let all = service.sent_to("/hook").into_iter();
    all.filter(|it| it["metadata"]["incidentState"] == state).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_sent_once_and_its_end_once() -> Result<()> {
    let story = Story::begin("incident").await?;
    let service = FakeNotificationService::start().await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    provider(&story, &service.url, json!({})).await?;
    alert(&story, json!({})).await?;
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    story.kustomization("app", "app", json!({"retryInterval": "1s"})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    // An event that is not a failure is sent as usual.
    service.awaits(&story, "Kustomization", "ReconciliationSucceeded").await?;

    upstream.push(&[("map.yaml", BROKEN.to_owned())]).await?;
    let opened = service.awaits(&story, "Kustomization", "BuildFailed").await?;
    ensure!(opened["severity"] == "error", "{opened}");
    ensure!(opened["component"] == "kustomize-controller", "{opened}");
    let incident = await_incident(&story, ("Kustomization", "app"), |status| {
        is_open(status) && is_sent(status, IncidentStep::Opened)
    })
    .await?;
    let name = incident.metadata.name.clone().context("no name")?;
    ensure!(opened["metadata"]["incident"] == format!("{}/{name}", story.namespace), "{opened}");
    ensure!(incident.spec.reason == "Build", "{incident:?}");
    let said = story.windlass_says(&["incidents", "-n", &story.namespace], true)?;
    ensure!(said.contains("Kustomization/app") && said.contains("service"), "{said}");

    for attempt in 0..3 {
        let broken = format!("{BROKEN} # {attempt}");
        upstream.push(&[("map.yaml", broken)]).await?;
        story.rerun(&app).await?;
    }
    upstream.push(&[("map.yaml", config_map("map", "2"))]).await?;
    let resolved = service.awaits(&story, "Kustomization", "IncidentResolved").await?;
    ensure!(resolved["severity"] == "info", "{resolved}");
    ensure!(resolved["metadata"]["incident"] == opened["metadata"]["incident"], "{resolved}");
    await_incident(&story, ("Kustomization", "app"), |status| {
        !is_open(status) && is_sent(status, IncidentStep::Resolved)
    })
    .await?;
    ensure!(about(&service, "Open").len() == 1, "{:?}", about(&service, "Open"));
    ensure!(about(&service, "Resolved").len() == 1, "{:?}", about(&service, "Resolved"));
    ensure!(service.sent("Kustomization", "BuildFailed").len() == 1, "an error was sent as well");

    // The same failure opens the same Incident again.
    upstream.push(&[("map.yaml", BROKEN.to_owned())]).await?;
    let is_again = async || Ok((about(&service, "Open").len() == 2).then_some(()));
    story.await_until("the incident to be opened again", LONG, is_again).await?;
    ensure!(incidents(&story).await?.len() == 1, "it is the same object");
    let said = story.windlass_says(&["incidents", "-n", &story.namespace], true)?;
    ensure!(said.contains("Open"), "{said}");
    story.end().await
}

/// Checks that users silence an Incident in their own name only, that ServiceAccounts do not, and that the right to patch the
/// status does not suffice. Returns the objects that the story has to delete at its end.
async fn refuse_silences(story: &Story, incident: &str) -> Result<Vec<StoryObject>> {
    let read = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]});
    let patch = json!({"apiGroups": ["notification.windlass.dev"],
        "resources": ["incidents/status"], "verbs": ["patch"]});
    let mut made = Vec::from(story.cluster_user("bob", json!([read, patch])).await?);
    let (robot, binding) = story.robot().await?;
    made.push(binding);
    let account = format!("system:serviceaccount:{}:robot", story.namespace);
    let own_name = "users silence an Incident in their own name only";
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    for (client, user, words) in [
        (&story.client, "another-user", own_name),
        (&robot, account.as_str(), "ServiceAccounts cannot silence Incidents"),
    ] {
        let api = Api::<Incident>::namespaced(client.clone(), &story.namespace);
        let silence = json!({"silence": {"user": user, "reason": "r"}});
        let patch = Patch::Merge(json!({"status": silence}));
        let request = async || api.patch_status(incident, &dry_run, &patch).await;
        story.await_refusal(words, request).await?;
    }
    let word = format!("incident/{incident}");
    let bob = format!("--as={}-bob", story.namespace);
    let place = ["-n", story.namespace.as_str(), bob.as_str()];
    let line = [&["silence", word.as_str(), "--reason=r", "--until=1h"][..], &place].concat();
    let is_refused = async || {
        let said = story.windlass_says(&line, false)?;
        Ok(said.contains("silencing an Incident requires the verb `silence` on it").then_some(()))
    };
    story.await_until("the verb to be required", DEFAULT_WAIT_TIMEOUT, is_refused).await?;
    Ok(made)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silenced_incident_is_sent_after_the_silence() -> Result<()> {
    let story = Story::begin("incident-silence").await?;
    let mut made = story.enforce(include_str!("../../../deploy/policies/incidents.yaml")).await?;
    let service = FakeNotificationService::start().await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    provider(&story, &service.url, json!({})).await?;
    // The beginning is due only after the silence has begun, also on a busy machine.
    alert(&story, json!({"incident-after": "1h"})).await?;
    let _upstream = story.follow("app", &[("map.yaml", BROKEN.to_owned())]).await?;
    story.kustomization("app", "app", json!({"retryInterval": "1s"})).await?;
    let incident = await_incident(&story, ("Kustomization", "app"), is_open).await?;
    let name = incident.metadata.name.clone().context("no name")?;
    made.extend(refuse_silences(&story, &name).await?);
    let word = format!("incident/{name}");
    let namespace = story.namespace.as_str();
    let silence = |until: &'static str| {
        ["silence", word.as_str(), "-n", namespace, "--reason", "known", "--until", until]
    };
    story.windlass_says(&silence("169h"), false)?;
    let said = story.windlass_says(&silence("1h"), true)?;
    ensure!(said.contains("is silenced by") && said.contains("known"), "{said}");
    let said = story.windlass_says(&["incidents", "-n", namespace], true)?;
    ensure!(said.contains("silenced until"), "{said}");

    // Now the beginning is due. A shorter silence replaces the first one, and after that it is sent.
    alert(&story, json!({"incident-after": "1s"})).await?;
    story.windlass_says(&silence("5s"), true)?;
    let sent = await_incident(&story, ("Kustomization", "app"), |status| {
        is_sent(status, IncidentStep::Opened)
    })
    .await?;
    let status = sent.status.context("a status")?;
    let end = status.silence.and_then(|silence| silence.until).context("the end of the silence")?;
    let at = status.notifications.first().and_then(|it| it.at.clone()).context("a time")?;
    ensure!(at.0 >= end.0, "it was sent at {at:?}, and silenced until {end:?}");
    ensure!(about(&service, "Open").len() == 1, "{:?}", about(&service, "Open"));
    for policy in &made {
        story.delete(policy).await?;
    }
    story.end().await
}

/// Writes a value to the ConfigMap `map` whenever windlass has corrected it, and counts the corrections.
async fn contend(maps: Api<ConfigMap>, corrections: Arc<AtomicUsize>) {
    let params = PatchParams { field_manager: Some("rival".to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"data": {"value": "mine"}}));
    loop {
        let map = maps.get("map").await.unwrap_or_default();
        let value = map.data.unwrap_or_default().remove("value");
        if value.is_some_and(|value| value != "mine")
            && maps.patch("map", &params, &patch).await.is_ok()
        {
            corrections.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until windlass has corrected the ConfigMap of [`contend`] `wanted` times since the beginning of the story.
async fn corrected(story: &Story, corrections: &AtomicUsize, wanted: usize) -> Result<()> {
    let ask = async || Ok((corrections.load(Ordering::Relaxed) >= wanted).then_some(()));
    story.await_until("further corrections", LONG, ask).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incident_is_open_while_an_object_is_contested_and_ends_when_the_field_is_ignored()
-> Result<()> {
    let story = Story::begin("incident-contest").await?;
    let service = FakeNotificationService::start().await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    provider(&story, &service.url, json!({})).await?;
    alert(&story, json!({})).await?;
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    // The pause between corrections has the same length, so both end at the same time.
    story.kustomization("app", "app", json!({"interval": "10s"})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    let corrections = Arc::new(AtomicUsize::new(0));
    let maps = Api::<ConfigMap>::namespaced(story.client.clone(), &story.namespace);
    let rival = tokio::spawn(contend(maps, corrections.clone()));
    let is_contested = |object: &DynamicObject| condition(object, "Ready")["reason"] == "Contested";
    let contested = story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_contested).await?;
    let version = contested.metadata.resource_version.context("it has a version")?;
    let kustomizations = Api::<Kustomization>::namespaced(story.client.clone(), &story.namespace);
    let is_ignored = |object: &Kustomization| !object.spec.ignore.is_empty();
    let statuses = tokio::spawn(ready_until(kustomizations, "app", version, is_ignored));
    await_incident(&story, ("Kustomization", "app"), |status| {
        is_open(status) && is_sent(status, IncidentStep::Opened)
    })
    .await?;

    // The interval, a commit and a request lead to a correction at once. None of them ends the conflict.
    let before = corrections.load(Ordering::Relaxed);
    corrected(&story, &corrections, before + 2).await?;
    let revision = upstream.push(&[("map.yaml", config_map("map", "2"))]).await?;
    let is_attempted = |object: &DynamicObject| {
        is_contested(object) && object.data["status"]["lastAttemptedRevision"] == revision
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_attempted).await?;
    let before = corrections.load(Ordering::Relaxed);
    corrected(&story, &corrections, before + 1).await?;
    let paused = json!({"interval": "10s", "retryInterval": "10m"});
    // Either the new spec or the request leads to a correction, and the other one may find the object as its manifest says.
    // The pause is ten minutes from that correction on.
    let before = corrections.load(Ordering::Relaxed);
    story.kustomization("app", "app", paused).await?;
    story.rerun(&app).await?;
    corrected(&story, &corrections, before + 1).await?;
    ensure!(about(&service, "Resolved").is_empty(), "{:?}", about(&service, "Resolved"));

    // The conflict ends long before the pause if the spec leaves the field to the other writer.
    let ignore = json!([{"paths": ["/data/value"], "target": {"kind": "ConfigMap"}}]);
    let ignored = json!({"interval": "10s", "retryInterval": "10m", "ignore": ignore});
    story.kustomization("app", "app", ignored).await?;
    story.await_ready(&app).await?;
    await_incident(&story, ("Kustomization", "app"), |status| {
        !is_open(status) && is_sent(status, IncidentStep::Resolved)
    })
    .await?;
    let statuses = statuses.await??;
    ensure!(!statuses.is_empty() && !statuses.iter().any(|it| it == "True"), "{statuses:?}");
    ensure!(about(&service, "Open").len() == 1, "{:?}", about(&service, "Open"));
    ensure!(about(&service, "Resolved").len() == 1, "{:?}", about(&service, "Resolved"));
    rival.abort();
    story.end().await
}

/// How many Kustomizations are ready.
fn ready(story: &Story) -> Result<Option<i64>> {
    let said = story.windlass_says(&["stats", "-n", &story.namespace, "-o", "json"], true)?;
    let kinds: Value = serde_json::from_str(&said)?;
    let mut rows = kinds.as_array().into_iter().flatten();
    Ok(rows.find(|it| it["kind"] == "Kustomization").and_then(|it| it["ready"].as_i64()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_under_two_hundred_kustomizations_is_one_incident() -> Result<()> {
    const COUNT: usize = 200;
    let story = Story::begin("incident-source").await?;
    let service = FakeNotificationService::start().await?;
    let _windlass = WindlassProcess::start_for(&story, &["--incident-retention-records=0"]).await?;
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    let source = StoryObject::git_repository("app");
    story.await_ready(&source).await?;
    let good = story.expect(&source).await?.data["spec"]["url"].clone();
    let url = |url: &Value| json!({"spec": {"url": url}});
    story.merge(&source, url(&json!("http://127.0.0.1:9/app"))).await?;
    story.await_failure(&source, "GitOperationFailed").await?;
    for at in 0..COUNT {
        let more = json!({"namePrefix": format!("k{at}-"), "retryInterval": "1h"});
        story.kustomization(&format!("k{at}"), "app", more).await?;
    }
    provider(&story, &service.url, json!({})).await?;
    alert(&story, json!({})).await?;
    let count = i64::try_from(COUNT)?;
    let open = await_incident(&story, ("GitRepository", "app"), |status| {
        let affected = status.affected.as_ref().map_or(0, |it| it.count);
        is_open(status) && is_sent(status, IncidentStep::Opened) && affected == count
    })
    .await?;
    ensure!(incidents(&story).await?.len() == 1, "{:?}", incidents(&story).await?);
    let named = open.status.and_then(|it| it.affected).map_or(0, |it| it.objects.len());
    ensure!((1..=20).contains(&named), "{named} are named");

    story.merge(&source, url(&good)).await?;
    service.awaits(&story, "GitRepository", "IncidentResolved").await?;
    let is_ready = async || Ok((ready(&story)? == Some(count)).then_some(()));
    story.await_until("all Kustomizations to be ready", LONG, is_ready).await?;
    ensure!(about(&service, "Open").len() == 1, "{:?}", about(&service, "Open"));
    ensure!(about(&service, "Resolved").len() == 1, "{:?}", about(&service, "Resolved"));
    let all = service.sent_to("/hook");
    let is_error = |it: &&Value| it["severity"] == "error";
    ensure!(all.iter().filter(is_error).count() == 1, "errors were sent as well: {all:?}");
    // No resolved Incident is kept.
    let is_gone = async || Ok(incidents(&story).await?.is_empty().then_some(()));
    story.await_until("the incident to be deleted", LONG, is_gone).await?;
    drop(upstream);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_nothing_is_sent_again_and_the_end_is() -> Result<()> {
    let story = Story::begin("incident-killed").await?;
    let service = FakeNotificationService::start().await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    provider(&story, &service.url, json!({})).await?;
    alert(&story, json!({})).await?;
    let upstream = story.follow("app", &[("map.yaml", BROKEN.to_owned())]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = ("Kustomization", "app");
    let has_opened = |status: &IncidentStatus| is_sent(status, IncidentStep::Opened);
    await_incident(&story, app, has_opened).await?;
    windlass.operator.kill()?;
    windlass.resume().await?;
    // The service works again, so windlass sends another failure.
    story.kustomization("other", "app", json!({})).await?;
    await_incident(&story, ("Kustomization", "other"), has_opened).await?;
    ensure!(about(&service, "Open").len() == 2, "{:?}", about(&service, "Open"));

    // A process without the files of the old one finds out again which messages were not delivered.
    service.answers(503);
    story.kustomization("third", "app", json!({})).await?;
    await_incident(&story, ("Kustomization", "third"), is_open).await?;
    story.await_event("Provider", "service", "DeliveryFailed").await?;
    windlass.operator.kill()?;
    std::fs::remove_dir_all(windlass.storage().join(".notifications"))?;
    service.answers(200);
    windlass.resume().await?;
    await_incident(&story, ("Kustomization", "third"), has_opened).await?;
    ensure!(about(&service, "Open").len() == 3, "{:?}", about(&service, "Open"));

    windlass.operator.kill()?;
    // The failure ends while no windlass is running.
    for name in ["other", "third"] {
        story.delete(&StoryObject::kustomization(name)).await?;
    }
    upstream.repository.commit(&[("map.yaml", &config_map("map", "1"))], "mended")?;
    windlass.resume().await?;
    story.request(&StoryObject::git_repository("app")).await?;
    let is_over = |status: &IncidentStatus| is_sent(status, IncidentStep::Resolved);
    for name in ["app", "other", "third"] {
        await_incident(&story, ("Kustomization", name), is_over).await?;
    }
    ensure!(about(&service, "Open").len() == 3, "{:?}", about(&service, "Open"));
    ensure!(about(&service, "Resolved").len() == 3, "{:?}", about(&service, "Resolved"));
    story.end().await
}

/// Checks the requirements of PagerDuty's Events API v2. Each event needs a routing key and an action. A trigger needs a
/// summary, a source and a severity, and a resolve names the alert by its `dedup_key`.
fn demanded_by_pagerduty(event: &Value) -> Result<()> {
    let is_text = |value: &Value| value.as_str().is_some_and(|it| !it.is_empty());
    ensure!(is_text(&event["routing_key"]) && is_text(&event["dedup_key"]), "{event}");
    match event["event_action"].as_str() {
        Some("trigger") => {
            let payload = &event["payload"];
            let severities = ["critical", "error", "warning", "info"];
            ensure!(severities.iter().any(|it| payload["severity"] == *it), "{event}");
            ensure!(is_text(&payload["summary"]) && is_text(&payload["source"]), "{event}");
        }
        Some("resolve") => {}
        _ => anyhow::bail!("no action of PagerDuty: {event}"),
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pagerduty_is_sent_a_trigger_and_a_resolve_of_the_same_key() -> Result<()> {
    let story = Story::begin("incident-pager").await?;
    let service = FakeNotificationService::start().await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    provider(&story, &service.url, json!({"type": "pagerduty", "channel": "routing-key"})).await?;
    alert(&story, json!({})).await?;
    let upstream = story.follow("app", &[("map.yaml", BROKEN.to_owned())]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = ("Kustomization", "app");
    let incident = await_incident(&story, app, |it| is_sent(it, IncidentStep::Opened)).await?;
    upstream.push(&[("map.yaml", config_map("map", "1"))]).await?;
    await_incident(&story, app, |it| is_sent(it, IncidentStep::Resolved)).await?;
    let status = incident.status.as_ref().context("no status")?;
    let key = status.notifications.first().and_then(|it| it.key.clone()).context("no key")?;
    let uid = incident.metadata.uid.as_deref().unwrap_or_default();
    ensure!(!uid.is_empty() && key.starts_with(uid), "{key}");
    let sent = service.sent_to("/v2/enqueue");
    sent.iter().try_for_each(demanded_by_pagerduty)?;
    let of_incident: Vec<&Value> =
        sent.iter().filter(|it| it["dedup_key"] == key.as_str()).collect();
    let actions: Vec<&Value> = of_incident.iter().map(|it| &it["event_action"]).collect();
    ensure!(actions == ["trigger", "resolve"], "{sent:?}");
    ensure!(
        !sent.iter().any(|it| it["event_action"] == "trigger" && it["dedup_key"] != key.as_str())
    );
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_suspended_opens_nothing_until_it_is_resumed() -> Result<()> {
    let story = Story::begin("incident-suspended").await?;
    let service = FakeNotificationService::start().await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    let _upstream = story.follow("app", &[("map.yaml", BROKEN.to_owned())]).await?;
    for name in ["held", "other"] {
        story.kustomization(name, "app", json!({})).await?;
        story.await_failure(&StoryObject::kustomization(name), "BuildFailed").await?;
    }
    let held = StoryObject::kustomization("held");
    story.merge(&held, json!({"spec": {"suspend": true}})).await?;
    provider(&story, &service.url, json!({})).await?;
    alert(&story, json!({})).await?;
    let has_opened = |status: &IncidentStatus| is_sent(status, IncidentStep::Opened);
    await_incident(&story, ("Kustomization", "other"), has_opened).await?;
    let all = incidents(&story).await?;
    ensure!(all.len() == 1, "{all:?}");
    story.merge(&held, json!({"spec": {"suspend": false}})).await?;
    await_incident(&story, ("Kustomization", "held"), has_opened).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_before_its_delay_is_not_sent() -> Result<()> {
    let story = Story::begin("incident-after").await?;
    let service = FakeNotificationService::start().await?;
    let _windlass = WindlassProcess::start_for(&story, &["--incidents"]).await?;
    provider(&story, &service.url, json!({})).await?;
    alert(&story, json!({"incidents": null, "incident-after": "1h"})).await?;
    let upstream = story.follow("app", &[("map.yaml", BROKEN.to_owned())]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = ("Kustomization", "app");
    await_incident(&story, app, is_open).await?;
    upstream.push(&[("map.yaml", config_map("map", "1"))]).await?;
    let over = await_incident(&story, app, |status| !is_open(status)).await?;
    ensure!(over.status.is_some_and(|it| it.notifications.is_empty()), "it was sent");
    service.awaits(&story, "Kustomization", "ReconciliationSucceeded").await?;
    let all = service.sent_to("/hook");
    ensure!(all.iter().all(|it| it["severity"] == "info"), "{all:?}");
    ensure!(about(&service, "Resolved").is_empty(), "{all:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_is_sent_to_who_was_sent_the_beginning_also_without_its_alert() -> Result<()> {
    let story = Story::begin("incident-told").await?;
    let first = FakeNotificationService::start().await?;
    let second = FakeNotificationService::start().await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    provider(&story, &first.url, json!({})).await?;
    let other = json!({"apiVersion": BETA, "kind": "Provider", "metadata": {"name": "second"},
        "spec": {"type": "generic", "address": second.url, "timeout": "1s"}});
    story.apply_value(other).await?;
    alert(&story, json!({})).await?;
    let upstream = story.follow("app", &[("map.yaml", BROKEN.to_owned())]).await?;
    story.kustomization("app", "app", json!({"retryInterval": "1s"})).await?;
    first.awaits(&story, "Kustomization", "BuildFailed").await?;
    let app = ("Kustomization", "app");
    let has_opened = |count: usize| {
        move |status: &IncidentStatus| {
            let opened = |it: &&crds::windlass_notification::IncidentNotification| {
                it.state == IncidentStep::Opened
            };
            status.notifications.iter().filter(opened).count() == count
        }
    };
    await_incident(&story, app, has_opened(1)).await?;
    let target = StoryObject::new(BETA, "Alert", "alert");
    story.merge(&target, json!({"spec": {"providerRef": {"name": "second"}}})).await?;
    second.awaits(&story, "Kustomization", "BuildFailed").await?;
    await_incident(&story, app, has_opened(2)).await?;
    story.delete(&target).await?;
    upstream.push(&[("map.yaml", config_map("map", "1"))]).await?;
    for service in [&first, &second] {
        service.awaits(&story, "Kustomization", "IncidentResolved").await?;
        ensure!(about(service, "Open").len() == 1, "{:?}", about(service, "Open"));
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_sent_after_all_where_its_alert_declines_the_incident() -> Result<()> {
    let story = Story::begin("incident-declined").await?;
    let service = FakeNotificationService::start().await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    let upstream = story.follow("app", &[("map.yaml", BROKEN.to_owned())]).await?;
    story.kustomization("app", "app", json!({"retryInterval": "1s"})).await?;
    let after = json!({"dependsOn": [{"name": "app"}]});
    story.kustomization("after", "app", after).await?;
    let app = StoryObject::kustomization("app");
    story.await_failure(&app, "BuildFailed").await?;
    story.await_failure(&StoryObject::kustomization("after"), "DependencyNotReady").await?;
    provider(&story, &service.url, json!({})).await?;
    let sources = json!([{"kind": "Kustomization", "name": "app"}]);
    let alert = json!({"apiVersion": BETA, "kind": "Alert",
        "metadata": {"name": "alert", "annotations": {"windlass.dev/incidents": "true"}},
        "spec": {"providerRef": {"name": "service"}, "eventSources": sources,
            "exclusionList": ["It affects"]}});
    story.apply_value(alert).await?;
    await_incident(&story, ("Kustomization", "app"), is_open).await?;
    // The same error causes no second event.
    upstream.push(&[("map.yaml", format!("a: 1\n{BROKEN}"))]).await?;
    story.rerun(&app).await?;
    let sent = service.awaits(&story, "Kustomization", "BuildFailed").await?;
    ensure!(sent["metadata"]["incident"].is_null(), "{sent}");
    ensure!(about(&service, "Open").is_empty(), "{:?}", about(&service, "Open"));
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_resolved_is_kept_as_long_as_flags_say() -> Result<()> {
    let story = Story::begin("incident-old").await?;
    let service = FakeNotificationService::start().await?;
    let flags = ["--incident-retention-records=0"];
    let _windlass = WindlassProcess::start_for(&story, &flags).await?;
    provider(&story, &service.url, json!({})).await?;
    alert(&story, json!({})).await?;
    let upstream = story.follow("app", &[("map.yaml", BROKEN.to_owned())]).await?;
    story.kustomization("app", "app", json!({})).await?;
    await_incident(&story, ("Kustomization", "app"), |it| is_sent(it, IncidentStep::Opened))
        .await?;
    upstream.push(&[("map.yaml", config_map("map", "1"))]).await?;
    service.awaits(&story, "Kustomization", "IncidentResolved").await?;
    let is_gone = async || Ok(incidents(&story).await?.is_empty().then_some(()));
    story.await_until("the incident to be deleted", LONG, is_gone).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_not_ready_from_a_discarded_notification_until_its_service_accepts_one()
-> Result<()> {
    let story = Story::begin("incident-delivery").await?;
    let service = FakeNotificationService::start().await?;
    service.answers(404);
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    provider(&story, &service.url, json!({})).await?;
    let sources = json!([{"kind": "GitRepository", "name": "*"}]);
    super::alert(&story, sources, json!({})).await?;
    let ns = story.namespace.as_str();
    let why = |object: &str, is_ready| story.windlass_says(&["why", object, "-n", ns], is_ready);
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    let of_provider = ("Provider", "service");
    let open = await_incident(&story, of_provider, is_open).await?;
    ensure!(open.spec.reason == "Delivery", "{open:?}");
    for object in ["provider/service", "alert/alert"] {
        let said = why(object, false)?;
        ensure!(said.contains("is not ready: ") && said.contains("404"), "{said}");
    }
    let said = story.windlass_says(&["get", "providers", "-n", ns], true)?;
    ensure!(said.contains("False") && said.contains("404"), "{said}");

    // Another process has no record of deliveries.
    windlass.operator.kill()?;
    windlass.resume().await?;
    ensure!(why("provider/service", false)?.contains("404"));
    service.answers(200);
    upstream.push(&[("map.yaml", config_map("map", "2"))]).await?;
    await_incident(&story, of_provider, |status| !is_open(status)).await?;
    for object in ["provider/service", "alert/alert"] {
        why(object, true)?;
    }
    ensure!(service.sent("Provider", "DeliveryFailed").is_empty(), "it is sent to no service");
    story.end().await
}
