//! Freezes while windlass is killed: between the record of a FreezeBypass and its operation, and without the calendar file.
//!
//! Elsewhere: Freezes while windlass is running (`stories::freezes`), an interrupted watch and a deleted CRD
//! (`api_server_refusals`).

use anyhow::{Context as _, Result, ensure};
use crds::windlass_release::FreezeBypass;
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::freezes::calendar_of_days;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_record_of_a_bypass_it_performs_the_operation_once() -> Result<()> {
    let story = Story::begin("freeze-killed").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    let mut made = story.enforce_freezes().await?;
    made.push(story.freeze(json!({})).await?);
    let second = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    story.await_failure(&app, "Frozen").await?;

    // After the kill, there is a record without an operation.
    windlass.operator.kill()?;
    story.bypass("ks/app")?;
    let bypass = story.bypasses().await?.pop().context("it was created")?;
    let name = bypass.metadata.name.context("it has a name")?;
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let used = json!({"status": {"usedAt": now}});
    story.merge_status(&StoryObject::of::<FreezeBypass>(&name), used).await?;
    windlass.resume().await?;
    story.await_applied("app", &second).await?;
    story.await_value("a", "2").await?;
    let is_ended = |object: &DynamicObject| object.data["status"]["endedAt"].is_string();
    let target = StoryObject::of::<FreezeBypass>(&name);
    story.await_object(&target, DEFAULT_WAIT_TIMEOUT, is_ended).await?;

    // The bypass is used up, even after another kill.
    windlass.operator.kill()?;
    windlass.resume().await?;
    upstream.push(&[("a.yaml", config_map("a", "3"))]).await?;
    story.await_failure(&app, "Frozen").await?;
    story.await_value("a", "2").await?;
    for target in made {
        story.delete(&target).await?;
    }
    story.await_value("a", "3").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_calendar_counts_after_a_restart_without_its_file() -> Result<()> {
    let story = Story::begin("freeze-restart").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    story.write_calendar(&calendar_of_days(-1, 2)?).await?;
    let freeze = story.freeze_by_calendar().await?;
    let is_read = |object: &DynamicObject| object.data["status"]["calendar"].is_object();
    story.await_object(&freeze, DEFAULT_WAIT_TIMEOUT, is_read).await?;
    windlass.operator.kill()?;
    story.delete(&StoryObject::config_map("calendar")).await?;
    windlass.resume().await?;
    let second = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    let message = story.await_failure(&app, "Frozen").await?;
    ensure!(message.contains("T00:00:00Z: the sales week"), "{message}");
    story.await_value("a", "1").await?;
    story.delete(&freeze).await?;
    story.await_applied("app", &second).await?;
    story.end().await
}
