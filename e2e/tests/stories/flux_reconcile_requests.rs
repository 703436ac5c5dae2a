//! `flux reconcile` requests a reconciliation by annotation, and the status contains the answer.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, revision};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use serde_json::json;

async fn await_handled(story: &Story, target: &StoryObject, token: &str) -> Result<()> {
    let is_handled = |object: &kube::api::DynamicObject| {
        object.data["status"]["lastHandledReconcileAt"] == token
    };
    story.await_object(target, DEFAULT_WAIT_TIMEOUT, is_handled).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_run_starts_at_once_and_is_acknowledged() -> Result<()> {
    let story = Story::with_windlass("requested").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let source = StoryObject::git_repository("app");
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;

    // Only the request announces this commit.
    let sha = upstream.repository.commit(&[("a.yaml", &config_map("a", "2"))], "second")?;
    let token = story.request(&source).await?;
    await_handled(&story, &source, &token).await?;
    let object = story.await_ready(&source).await?;
    ensure!(object.data["status"]["artifact"]["revision"] == revision(&sha), "{:?}", object.data);
    story.await_applied("app", &revision(&sha)).await?;
    story.await_value("a", "2").await?;

    let token = story.request(&app).await?;
    await_handled(&story, &app, &token).await?;
    story.await_applied("app", &revision(&sha)).await?;
    story.end().await
}
