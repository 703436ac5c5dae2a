//! While a Freeze denies changes, no operation of a Kustomization begins. A user with the right can allow one revision.
//!
//! Elsewhere: other triggers (`freeze_triggers`), iCalendar files (`freeze_calendars`), releases (`releases::freezes`), commits
//! of images (`images::automation`).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use crds::windlass_release::{Freeze, FreezeBypass, ReleaseAudit};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::release_audits::await_audits;
use e2e::harness::{Story, StoryObject};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::json;

/// How long an action may take that happens within a minute, with the following steps.
const MINUTES: Duration = Duration::from_secs(150);

#[tokio::test(flavor = "multi_thread")]
async fn what_a_freeze_holds_continues_once_the_freeze_is_deleted() -> Result<()> {
    let story = Story::with_windlass("freeze").await?;
    let files = [("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))];
    let upstream = story.follow("app", &files).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    let freeze = story.freeze(json!({})).await?;

    // Without a change, the Kustomization stays Ready, and drift is corrected.
    let object = story.rerun(&app).await?;
    ensure!(condition(&object, "Ready")["status"] == "True", "{:?}", object.data["status"]);
    story.merge(&StoryObject::config_map("a"), json!({"data": {"value": "drifted"}})).await?;
    story.await_value("a", "1").await?;

    let second = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    let message = story.await_failure(&app, "Frozen").await?;
    ensure!(message.starts_with(&format!("revision {second} waits: Freeze ")), "{message}");
    ensure!(message.contains("the sales week") && message.contains("windlass bypass"), "{message}");
    story.await_value("a", "1").await?;
    let why = story.windlass_says(&["why", "ks/app", "-n", &story.namespace], false)?;
    ensure!(why.contains(&format!("Freeze {}", story.namespace)), "{why}");
    let shown = story.windlass_says(&["get", "freezes"], true)?;
    ensure!(shown.contains("denies without a known end: the sales week"), "{shown}");
    // The break-glass annotation applies to change windows only.
    let glass = (Timestamp::now() + SignedDuration::from_hours(1)).to_string();
    let annotations = json!({"windlass.dev/break-glass": glass});
    story.merge(&app, json!({"metadata": {"annotations": annotations}})).await?;
    story.await_failure(&app, "Frozen").await?;

    // A prune waits, too.
    let third = upstream.remove(&["b.yaml"]).await?;
    story.await_message(&app, &format!("Frozen: revision {third} waits")).await?;
    story.await_value("b", "1").await?;
    story.delete(&freeze).await?;
    story.await_applied("app", &third).await?;
    story.await_value("a", "2").await?;
    story.await_gone(&StoryObject::config_map("b"), DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_continues_by_itself_at_the_end_of_a_freeze() -> Result<()> {
    let story = Story::with_windlass("freeze-end").await?;
    let files = [("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))];
    let upstream = story.follow("app", &files).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    let end = Timestamp::now() + SignedDuration::from_secs(45);
    let to = end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let periods = json!([{"from": "2026-01-01", "to": to}]);
    let freeze = story.freeze(json!({"periods": periods, "driftCorrection": "Deny"})).await?;
    // Nothing is corrected, and the status says so.
    story.request(&app).await?;
    let frozen = "windlass.dev/Freeze";
    story.await_condition(&app, frozen, "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.merge(&StoryObject::config_map("b"), json!({"data": {"value": "drifted"}})).await?;
    story.rerun(&app).await?;
    story.await_value("b", "drifted").await?;
    let second = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    let message = story.await_failure(&app, "Frozen").await?;
    ensure!(message.contains(&format!("until {to}")), "{message}");
    story.await_applied_within("app", &second, MINUTES).await?;
    story.await_value("b", "1").await?;
    let is_free = |object: &DynamicObject| condition(object, frozen).is_null();
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_free).await?;
    story.delete(&freeze).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_that_cannot_be_read_denies() -> Result<()> {
    let story = Story::with_windlass("freeze-broken").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    let periods = json!([{"from": "Christmas", "to": "2026-12-26"}]);
    let freeze = story.freeze(json!({"periods": periods})).await?;
    upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    let message = story.await_failure(&app, "Frozen").await?;
    ensure!(message.contains("cannot be read") && message.contains("`Christmas`"), "{message}");
    // After the period is corrected, the Freeze is over.
    story.freeze(json!({"periods": [{"from": "2020-12-24", "to": "2020-12-26"}]})).await?;
    story.await_value("a", "2").await?;
    story.delete(&freeze).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commit_that_brings_a_freeze_is_applied_and_the_next_one_waits() -> Result<()> {
    let story = Story::with_windlass("freeze-commit").await?;
    let files = [("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))];
    let upstream = story.follow("app", &files).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    let labels = json!({"kubernetes.io/metadata.name": story.namespace});
    let freeze = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Freeze",
        "metadata": {"name": story.namespace},
        "spec": {"reason": "from Git", "namespaceSelector": {"matchLabels": labels}}});
    let second = [("a.yaml", config_map("a", "2")), ("freeze.yaml", freeze.to_string())];
    let second = upstream.push(&second).await?;
    story.await_applied("app", &second).await?;
    story.await_value("a", "2").await?;

    // Prunes wait, and so does the removal of the Freeze by a commit.
    upstream.remove(&["b.yaml", "freeze.yaml"]).await?;
    story.await_failure(&app, "Frozen").await?;
    story.await_value("b", "1").await?;
    ensure!(
        story.read(&StoryObject::of::<Freeze>(&story.namespace)).await?.is_some(),
        "it is gone"
    );

    // Users may delete objects.
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    for name in ["a", "b"] {
        story.await_gone(&StoryObject::config_map(name), DEFAULT_WAIT_TIMEOUT).await?;
    }
    let freeze = StoryObject::of::<Freeze>(&story.namespace);
    story.await_gone(&freeze, DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_right_lets_one_revision_begin_and_others_are_refused() -> Result<()> {
    let story = Story::with_windlass("freeze-bypass").await?;
    let paths = [("a", "a.yaml"), ("b", "b.yaml"), ("c", "c.yaml")];
    let files = paths.map(|(name, path)| (path, config_map(name, "1")));
    let upstream = story.follow("app", &files).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    let freeze = story.freeze(json!({"driftCorrection": "Deny"})).await?;
    upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    // The revision changes an object and prunes another one.
    let second = upstream.remove(&["b.yaml"]).await?;
    story.await_message(&app, &format!("Frozen: revision {second} waits")).await?;

    // Without the admission policy, the user's name is not proved.
    story.bypass("ks/app")?;
    let message = story.await_message(&app, "does not count").await?;
    ensure!(message.contains("deploy/policies/freezes.yaml"), "{message}");
    let bypasses = Api::<FreezeBypass>::namespaced(story.client.clone(), &story.namespace);
    for bypass in story.bypasses().await? {
        ensure!(bypass.status.unwrap_or_default().used_at.is_none(), "it was used");
        let name = bypass.metadata.name.context("it has a name")?;
        bypasses.delete(&name, &DeleteParams::default()).await?;
    }

    let mut made = story.enforce_freezes().await?;
    made.extend(story.bypass_users().await?);
    let (robot, binding) = story.robot().await?;
    made.push(binding);
    story.refuse_bypasses(&robot, &app).await?;
    let still = story.expect(&app).await?;
    ensure!(condition(&still, "Ready")["reason"] == "Frozen", "{:?}", still.data["status"]);
    story.await_value("b", "1").await?;

    story.bypass_as("alice", "ks/app", true)?;
    story.await_applied("app", &second).await?;
    story.await_value("a", "2").await?;
    story.await_gone(&StoryObject::config_map("b"), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_event("Kustomization", "app", "although Freeze").await?;
    let used = story.bypasses().await?;
    let used = used.first().context("it is kept")?;
    ensure!(used.status.clone().unwrap_or_default().used_at.is_some(), "{used:?}");
    ensure!(used.spec.user == format!("{}-alice", story.namespace), "{used:?}");
    let named =
        |it: &ReleaseAudit| it.spec.freeze_bypasses.iter().map(|it| it.user.clone()).collect();
    let named: Vec<Vec<String>> = await_audits(&story, 2).await?.iter().map(named).collect();
    ensure!(named == [vec![], vec![used.spec.user.clone()]], "{named:?}");

    // The bypass is used up, even if the Kustomization fails later.
    story
        .await_until("the end of the bypass", DEFAULT_WAIT_TIMEOUT, async || {
            let is_ended = |it: &FreezeBypass| {
                it.status.as_ref().is_some_and(|status| status.ended_at.is_some())
            };
            Ok(story.bypasses().await?.iter().any(is_ended).then_some(()))
        })
        .await?;

    // A bypass is for a new operation, and the correction of drift alone is none.
    story.merge(&StoryObject::config_map("c"), json!({"data": {"value": "drifted"}})).await?;
    story.refuse_bypasses(&robot, &app).await?;
    story.bypass_as("alice", "ks/app", true)?;
    story.rerun(&app).await?;
    story.await_value("c", "drifted").await?;

    // Both bypasses were for that revision only. The next one corrects the drift, too.
    let third = upstream.push(&[("a.yaml", config_map("a", "3"))]).await?;
    story.await_message(&app, &format!("Frozen: revision {third} waits")).await?;
    story.await_value("a", "2").await?;
    story.await_value("c", "drifted").await?;
    story.bypass_as("alice", "ks/app", true)?;
    story.await_applied("app", &third).await?;
    story.await_value("a", "3").await?;
    story.await_value("c", "1").await?;
    made.push(freeze);
    for target in made {
        story.delete(&target).await?;
    }
    story.end().await
}
