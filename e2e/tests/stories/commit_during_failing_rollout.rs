//! A rollout that will never become ready does not delay its correction.

use std::time::Duration;

use anyhow::Result;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, revision};
use e2e::harness::manifests::{PodBehavior, deployment};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_mends_a_rollout_is_applied_while_the_broken_one_is_waited_for() -> Result<()>
{
    let story = Story::with_windlass("superseded").await?;
    let upstream =
        story.follow("app", &[("web.yaml", deployment("web", PodBehavior::Unready))]).await?;
    story.kustomization("app", "app", json!({"wait": true, "timeout": "10m"})).await?;
    story.await_waiting("app", &revision(&upstream.repository.hash("main")?)).await?;

    let mended = upstream.push(&[("web.yaml", deployment("web", PodBehavior::Ready))]).await?;
    story.await_applied_within("app", &mended, DEFAULT_WAIT_TIMEOUT).await?;
    let web = StoryObject::new("apps/v1", "Deployment", "web");
    story.await_condition(&web, "Available", "True", Duration::from_secs(1)).await?;
    story.end().await
}
