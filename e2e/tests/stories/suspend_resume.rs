//! A suspended Kustomization does nothing until it is resumed.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{condition, revision};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn suspended_it_applies_no_commit_and_resumed_it_applies_the_newest() -> Result<()> {
    let story = Story::with_windlass("suspend").await?;
    let both = |value: &str| {
        [
            ("a/paused.yaml", config_map("paused", value)),
            ("b/other.yaml", config_map("other", value)),
        ]
    };
    let upstream = story.follow("app", &both("1")).await?;
    story.kustomization("paused", "app", json!({"path": "a"})).await?;
    story.kustomization("other", "app", json!({"path": "b"})).await?;
    let paused = StoryObject::kustomization("paused");
    story.await_ready(&paused).await?;
    story.await_ready(&StoryObject::kustomization("other")).await?;

    story.merge(&paused, json!({"spec": {"suspend": true}})).await?;
    upstream.push(&both("2")).await?;
    let last = upstream.push(&both("3")).await?;
    // The other Kustomization has applied both commits, so this one had enough time.
    story.await_applied("other", &last).await?;
    story.await_value("paused", "1").await?;
    let object = story.expect(&paused).await?;
    ensure!(object.data["status"]["lastAppliedRevision"] != last, "{:?}", object.data);

    story.merge(&paused, json!({"spec": {"suspend": false}})).await?;
    story.await_applied("paused", &last).await?;
    story.await_value("paused", "3").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_in_a_readiness_wait_it_stays_there_until_it_is_resumed() -> Result<()> {
    let story = Story::with_windlass("suspend-wait").await?;
    let both = |pods: PodBehavior, value: &str| {
        [("a/web.yaml", deployment("web", pods)), ("b/other.yaml", config_map("other", value))]
    };
    let upstream = story.follow("app", &both(PodBehavior::Unready, "1")).await?;
    story.kustomization("web", "app", json!({"path": "a", "wait": true, "timeout": "10m"})).await?;
    story.kustomization("other", "app", json!({"path": "b"})).await?;
    story.await_waiting("web", &revision(&upstream.repository.hash("main")?)).await?;

    let web = StoryObject::kustomization("web");
    story.merge(&web, json!({"spec": {"suspend": true}})).await?;
    let message = story.await_failure(&web, "Suspended").await?;
    ensure!(
        message.starts_with("suspended while waiting for the health of revision main@sha1:"),
        "{message}"
    );
    let last = upstream.push(&both(PodBehavior::Ready, "2")).await?;
    story.await_applied("other", &last).await?;
    let object = story.expect(&web).await?;
    for kind in ["Reconciling", "Healthy"] {
        ensure!(condition(&object, kind).is_null(), "{:?}", object.data["status"]);
    }
    ensure!(condition(&object, "Ready")["status"] == "False", "{:?}", object.data["status"]);
    let rollout = story.expect(&StoryObject::new("apps/v1", "Deployment", "web")).await?;
    let annotations = &rollout.data["spec"]["template"]["metadata"]["annotations"];
    ensure!(annotations["windlass.dev/testbed"] == "unready", "{annotations}");

    story.merge(&web, json!({"spec": {"suspend": false}})).await?;
    story.await_applied("web", &last).await?;
    story.end().await
}
