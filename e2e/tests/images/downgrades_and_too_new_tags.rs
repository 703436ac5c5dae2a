//! Versions that are not chosen although their tags are the latest: lower ones, and those that are too new.
//!
//! Elsewhere: the order of tags and times (`engines/image`), each rule (`operator/image`).

use anyhow::{Result, ensure};
use e2e::harness::Story;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::servers::registry::RegistryServer;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{await_latest, policy, policy_target, push, repository, repository_target};
use crate::cli::windlass;

async fn annotate(story: &Story, annotations: Value) -> Result<()> {
    let patch = json!({"metadata": {"annotations": annotations}});
    story.merge(&policy_target("app"), patch).await.map(drop)
}

fn message(object: &DynamicObject) -> String {
    condition(object, "Ready")["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_goes_to_a_lower_version_only_if_that_is_allowed() -> Result<()> {
    let story = Story::with_windlass("images-downgrade").await?;
    let registry = RegistryServer::start().await?;
    let image = format!("{}/team/app", registry.host());
    for tag in ["1.0.0", "1.1.0"] {
        push(&registry, tag).await?;
    }
    repository(&story, &image, json!({})).await?;
    policy(&story, "app", json!({})).await?;
    await_latest(&story, "app", &json!({"name": image, "tag": "1.1.0"})).await?;

    // The test pretends that the registry has lost the tag.
    repository(&story, &image, json!({"exclusionList": ["^1\\.1\\.0$"]})).await?;
    let message = story.await_failure(&policy_target("app"), "DowngradeRefused").await?;
    let expected = format!(
        "the latest of the tags of {image} is 1.0.0, which is lower than 1.1.0; {image}:1.1.0 stays"
    );
    ensure!(message.starts_with(&expected), "{message}");
    await_latest(&story, "app", &json!({"name": image, "tag": "1.1.0"})).await?;
    let why = windlass(&story, &["why", "imagepolicy/app"])?.ended(1)?;
    ensure!(why.contains("1.0.0  would be a downgrade from 1.1.0"), "{why}");

    annotate(&story, json!({"windlass.dev/allow-downgrade": "true"})).await?;
    await_latest(&story, "app", &json!({"name": image, "tag": "1.0.0"})).await?;
    story.await_ready(&policy_target("app")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_counts_once_its_digest_is_known_for_some_time() -> Result<()> {
    let story = Story::with_windlass("images-min-age").await?;
    let registry = RegistryServer::start().await?;
    let image = format!("{}/team/app", registry.host());
    push(&registry, "1.0.0").await?;
    repository(&story, &image, json!({})).await?;
    policy(&story, "app", json!({})).await?;
    await_latest(&story, "app", &json!({"name": image, "tag": "1.0.0"})).await?;

    annotate(&story, json!({"windlass.dev/min-age": "720h"})).await?;
    push(&registry, "1.1.0").await?;
    story.request(&repository_target()).await?;
    let waits = |object: &DynamicObject| message(object).contains("1.1.0 until ");
    let object = story.await_object(&policy_target("app"), DEFAULT_WAIT_TIMEOUT, waits).await?;
    ensure!(condition(&object, "Ready")["status"] == "True", "{:?}", object.data);
    let latest = &object.data["status"]["latestRef"];
    ensure!(*latest == json!({"name": image, "tag": "1.0.0"}), "{latest}");

    annotate(&story, json!({"windlass.dev/min-age": "soon"})).await?;
    let text = story.await_failure(&policy_target("app"), "InvalidDuration").await?;
    ensure!(text.starts_with("annotation windlass.dev/min-age: "), "{text}");

    // The tag was seen before, and the required age is reached without another event.
    annotate(&story, json!({"windlass.dev/min-age": "5s"})).await?;
    let object = await_latest(&story, "app", &json!({"name": image, "tag": "1.1.0"})).await?;
    ensure!(!message(&object).contains("waiting"), "{:?}", object.data);
    story.end().await
}
