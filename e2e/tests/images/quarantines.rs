//! A policy skips a tag with which an applier of its namespace failed. So no automation commits it again.
//!
//! Elsewhere: lasting rollbacks (`stories::quarantine`), policies that refuse lower versions (`downgrades_and_too_new_tags.rs`).

use anyhow::{Result, ensure};
use e2e::harness::Story;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, deployment};
use e2e::servers::registry::RegistryServer;
use kube::api::DynamicObject;
use serde_json::json;

use super::{await_latest, policy, push, repository, repository_target};

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_failed_is_skipped_until_there_is_a_newer_one() -> Result<()> {
    let story = Story::with_windlass("image-quarantine").await?;
    let registry = RegistryServer::start().await?;
    let image = format!("{}/team/app", registry.host());
    push(&registry, "1.0.0").await?;
    repository(&story, &image, json!({})).await?;
    policy(&story, "app", json!({})).await?;
    let latest = |tag: &str| json!({"name": image, "tag": tag});
    await_latest(&story, "app", &latest("1.0.0")).await?;
    let web = |tag: &str, pods| {
        let web = deployment("web", pods).replace("example.com/app:1", &format!("{image}:{tag}"));
        ("web.yaml", web)
    };
    let upstream = story.follow("app", &[web("1.0.0", PodBehavior::Ready)]).await?;
    let app = story.rolling_back_app(json!({"timeout": "30s"})).await?;
    let is_recorded = |object: &DynamicObject| {
        let metadata = &object.data["status"]["history"][0]["metadata"];
        metadata["windlass.dev/Images"].as_str().is_some_and(|it| it.ends_with(":1.0.0"))
            && condition(object, "Ready")["status"] == "True"
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_recorded).await?;

    push(&registry, "1.1.0").await?;
    story.request(&repository_target()).await?;
    await_latest(&story, "app", &latest("1.1.0")).await?;
    upstream.push(&[web("1.1.0", PodBehavior::CrashLoop)]).await?;
    story.await_failure(&app, "Quarantined").await?;
    let object = await_latest(&story, "app", &latest("1.0.0")).await?;
    let ready = condition(&object, "Ready");
    ensure!(ready["status"] == "True", "{ready}");
    let message = ready["message"].as_str().unwrap_or_default();
    ensure!(message.contains("skipped as quarantined: 1.1.0 (Quarantine app-"), "{message}");

    push(&registry, "1.2.0").await?;
    story.request(&repository_target()).await?;
    await_latest(&story, "app", &latest("1.2.0")).await?;
    story.end().await
}
