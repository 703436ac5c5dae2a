//! Suspensions with an owner, a reason and an end.

use anyhow::{Context, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::cli::{is_asked_for, windlass};

const HOLD: &str = "windlass.dev/Hold";

/// The annotations of a suspension that ends in some seconds, and the end as text.
fn until(seconds: i64) -> (Value, String) {
    let at = Timestamp::now() + SignedDuration::from_secs(seconds);
    let at = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let annotations = json!({
        "windlass.dev/suspended-by": "alice",
        "windlass.dev/suspended-reason": "the database is migrated",
        "windlass.dev/suspended-until": at,
    });
    (annotations, at)
}

async fn suspend(story: &Story, target: &StoryObject, annotations: &Value) -> Result<()> {
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"suspend": true}});
    story.merge(target, patch).await.map(drop)
}

/// Waits until the condition about suspensions has a status. Returns its message.
async fn await_hold(story: &Story, target: &StoryObject, status: &str) -> Result<String> {
    let object = story.await_condition(target, HOLD, status, DEFAULT_WAIT_TIMEOUT).await?;
    let message = condition(&object, HOLD)["message"].as_str().context("no message")?;
    Ok(message.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_says_who_and_why_and_ends_by_itself() -> Result<()> {
    let story = Story::with_windlass("hold").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;

    let (annotations, at) = until(15);
    suspend(&story, &app, &annotations).await?;
    let message = await_hold(&story, &app, "True").await?;
    let expected = format!("suspended by alice until {at}: the database is migrated");
    ensure!(message == expected, "{message}");
    let second = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    let source = StoryObject::git_repository("app");
    let has_second =
        |object: &DynamicObject| object.data["status"]["artifact"]["revision"] == second;
    story.await_object(&source, DEFAULT_WAIT_TIMEOUT, has_second).await?;
    story.await_value("a", "1").await?;

    let object = story.await_applied("app", &second).await?;
    story.await_value("a", "2").await?;
    ensure!(object.data["spec"]["suspend"] == false, "{:?}", object.data["spec"]);
    ensure!(object.annotations().is_empty(), "{:?}", object.annotations());
    ensure!(condition(&object, HOLD).is_null(), "{:?}", object.data["status"]);
    story.await_event("Kustomization", "app", "HoldExpired: the hold of alice expired at").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_on_alerts_and_providers_end_by_themselves() -> Result<()> {
    let story = Story::with_windlass("hold-alert").await?;
    let version = "notification.toolkit.fluxcd.io/v1beta3";
    let provider = json!({"type": "generic", "address": "http://service.test"});
    let source = json!({"kind": "Kustomization", "name": "*"});
    let alert = json!({"providerRef": {"name": "held"}, "eventSources": [source]});
    for (kind, spec) in [("Provider", provider), ("Alert", alert)] {
        let target = StoryObject::new(version, kind, "held");
        let metadata = json!({"name": "held"});
        let object =
            json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        story.apply_value(object).await?;
        let (annotations, _) = until(5);
        suspend(&story, &target, &annotations).await?;
        let has_ended = |object: &DynamicObject| {
            object.data["spec"]["suspend"] != true && object.annotations().is_empty()
        };
        story.await_object(&target, DEFAULT_WAIT_TIMEOUT, has_ended).await?;
        story.await_event(kind, "held", "HoldExpired: the hold of alice expired at").await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_on_a_receiver_ends_by_itself() -> Result<()> {
    let story = Story::with_windlass("hold-receiver").await?;
    let target = StoryObject::new("notification.toolkit.fluxcd.io/v1", "Receiver", "held");
    let token = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"},
        "stringData": {"token": "token-of-the-hook"}});
    story.apply_value(token).await?;
    let resources = json!([{"kind": "GitRepository", "name": "app"}]);
    let spec = json!({"type": "generic", "secretRef": {"name": "token"}, "resources": resources});
    let object = json!({"apiVersion": "notification.toolkit.fluxcd.io/v1", "kind": "Receiver",
        "metadata": {"name": "held"}, "spec": spec});
    story.apply_value(object).await?;
    story.await_ready(&target).await?;
    let arguments = ["suspend", "receiver/held", "--until", "8s", "--owner", "alice"];
    windlass(&story, &arguments)?.ended(0)?;
    let message = await_hold(&story, &target, "True").await?;
    ensure!(message.starts_with("suspended by alice until "), "{message}");
    let has_ended = |object: &DynamicObject| {
        object.data["spec"]["suspend"] != true && condition(object, HOLD).is_null()
    };
    let object = story.await_object(&target, DEFAULT_WAIT_TIMEOUT, has_ended).await?;
    ensure!(is_asked_for(&object), "{:?}", object.annotations());
    story.await_event("Receiver", "held", "HoldExpired: the hold of alice expired at").await?;
    story.await_ready(&target).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_a_manifest_declares_expires_without_a_fight() -> Result<()> {
    let story = Story::with_windlass("applied-hold").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    // The story applies everything server-side, like another GitOps operator.
    let (annotations, at) = until(10);
    let spec = json!({"interval": NEVER, "prune": true, "targetNamespace": story.namespace, "suspend": true,
        "sourceRef": {"kind": "GitRepository", "name": "app"}});
    let object = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "app", "annotations": annotations}, "spec": spec});
    story.apply_value(object).await?;
    await_hold(&story, &app, "True").await?;

    let object = story.await_condition(&app, HOLD, "False", DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(condition(&object, HOLD)["reason"] == "Expired", "{:?}", object.data["status"]);
    let message = condition(&object, HOLD)["message"].as_str().unwrap_or_default();
    let expected =
        format!("expired at {at}; spec.suspend is still true in the manifest applied by story");
    ensure!(message.starts_with(&expected), "{message}");
    let second = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    let object = story.await_applied("app", &second).await?;
    ensure!(object.data["spec"]["suspend"] == true, "{:?}", object.data["spec"]);
    ensure!(object.annotations().len() == 3, "{:?}", object.annotations());
    let events = story.events("Kustomization", "app").await?;
    ensure!(events.iter().filter(|it| it.contains("HoldExpired")).count() == 1, "{events:#?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_does_not_end_a_suspension_that_a_manifest_declares_without_an_end() -> Result<()> {
    let story = Story::with_windlass("declared-hold").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({"suspend": true})).await?;
    let said = windlass(&story, &["suspend", "ks/app", "--until", "1h"])?;
    ensure!(said.code == Some(2) && said.err.contains("leave out --until"), "{said:?}");
    // Everyone who may write the object may annotate it.
    let (annotations, at) = until(-60);
    suspend(&story, &app, &annotations).await?;
    let message = await_hold(&story, &app, "True").await?;
    let expected =
        format!("suspended-until {at} was not set by the field manager that set spec.suspend");
    ensure!(message.contains(&expected), "{message}");
    let table = windlass(&story, &["get", "ks"])?.ended(0)?;
    ensure!(table.contains("alice") && !table.contains("until"), "{table}");
    ensure!(story.read(&StoryObject::config_map("a")).await?.is_none(), "it was applied");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_is_held_too_and_a_time_that_cannot_be_read_holds_on() -> Result<()> {
    let story = Story::with_windlass("source-hold").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let source = StoryObject::git_repository("app");
    story.await_ready(&source).await?;
    let annotations = json!({"windlass.dev/suspended-until": "tomorrow"});
    suspend(&story, &source, &annotations).await?;
    let message = await_hold(&story, &source, "True").await?;
    ensure!(message.contains("`tomorrow` is not a time"), "{message}");
    let first = story.expect(&source).await?.data["status"]["artifact"].clone();
    upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;

    // After the annotation is corrected, the suspension ends, and the newest commit is fetched.
    let (annotations, _) = until(5);
    story.merge(&source, json!({"metadata": {"annotations": annotations}})).await?;
    let message = await_hold(&story, &source, "True").await?;
    ensure!(story.expect(&source).await?.data["status"]["artifact"] == first, "{message}");
    let is_resumed = |object: &DynamicObject| {
        object.data["spec"]["suspend"] == false
            && condition(object, HOLD).is_null()
            && object.data["status"]["artifact"] != first
    };
    story.await_object(&source, DEFAULT_WAIT_TIMEOUT, is_resumed).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_without_a_word_leaves_the_status_alone_and_a_resumed_hold_leaves_no_trace()
-> Result<()> {
    let story = Story::with_windlass("plain").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    let before = story.await_ready(&app).await?.data["status"].clone();
    story.merge(&app, json!({"spec": {"suspend": true}})).await?;
    // When the status shows the new suspension, windlass has noticed the plain one.
    let (annotations, _) = until(600);
    let plain = story.expect(&app).await?.data["status"].clone();
    ensure!(plain == before, "{plain:?}");
    suspend(&story, &app, &annotations).await?;
    await_hold(&story, &app, "True").await?;
    story.merge(&app, json!({"spec": {"suspend": false}})).await?;
    let object = story.await_ready(&app).await?;
    ensure!(condition(&object, HOLD).is_null(), "{:?}", object.data["status"]);
    let is_bare = |object: &DynamicObject| object.annotations().is_empty();
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_bare).await?;
    story.end().await
}
