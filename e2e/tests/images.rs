//! Images of a real registry: windlass lists the tags, chooses the latest, and notices a new one.
//!
//! In the folder: commits of chosen tags (`automation`), latest tags that are not chosen (`guards`), choosing by image content
//! (`content`), failed tags that are skipped (`quarantines`), a fake server with pull requests (`forge`).
//! Elsewhere: pulling from the registry (`oci.rs`), choosing among tags (`engines/image`).

mod automation;
mod downgrades_and_too_new_tags;
mod fake_gitea;
mod quarantines;
mod verified_images;

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::{Story, StoryObject};
use e2e::servers::registry::{PASSWORD, RegistryServer};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::cli::windlass;

const GROUP_VERSION: &str = "image.toolkit.fluxcd.io/v1";

fn repository_target() -> StoryObject {
    StoryObject::new(GROUP_VERSION, "ImageRepository", "app")
}

fn policy_target(name: &str) -> StoryObject {
    StoryObject::new(GROUP_VERSION, "ImagePolicy", name)
}

async fn repository(story: &Story, image: &str, more: Value) -> Result<()> {
    let mut spec = json!({"interval": "1h", "image": image});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object = json!({"apiVersion": GROUP_VERSION, "kind": "ImageRepository",
        "metadata": {"name": "app"}, "spec": spec});
    story.apply_value(object).await.map(drop)
}

/// Creates a policy for the highest version.
async fn policy(story: &Story, name: &str, more: Value) -> Result<()> {
    let mut spec =
        json!({"imageRepositoryRef": {"name": "app"}, "policy": {"semver": {"range": "*"}}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object = json!({"apiVersion": GROUP_VERSION, "kind": "ImagePolicy",
        "metadata": {"name": name}, "spec": spec});
    story.apply_value(object).await.map(drop)
}

async fn push(registry: &RegistryServer, tag: &str) -> Result<String> {
    registry.push_files("team/app", tag, &[("a.yaml", tag)], json!({})).await
}

async fn await_latest(story: &Story, name: &str, latest: &Value) -> Result<DynamicObject> {
    let has = |object: &DynamicObject| object.data["status"]["latestRef"] == *latest;
    story.await_object(&policy_target(name), DEFAULT_WAIT_TIMEOUT, has).await
}

/// Runs `flux` outside of the runtime, because it waits for windlass.
async fn flux(story: &Story, arguments: &[&str]) -> Result<String> {
    tokio::task::block_in_place(|| story.flux(arguments))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_tag_is_chosen_and_a_new_one_is_picked_up_after_a_scan() -> Result<()> {
    let story = Story::with_windlass("images").await?;
    let registry = RegistryServer::start().await?;
    let image = format!("{}/team/app", registry.host());
    for tag in ["1.0.0", "2.0.0-rc.1", "latest"] {
        push(&registry, tag).await?;
    }
    let digest = push(&registry, "1.1.0").await?;
    // Both are created at once, so the policy waits for the first scan.
    policy(&story, "app", json!({})).await?;
    repository(&story, &image, json!({})).await?;
    let object = story.await_ready(&repository_target()).await?;
    let scanned = &object.data["status"]["lastScanResult"];
    ensure!(scanned["tagCount"] == 4, "{scanned}");
    ensure!(
        scanned["latestTags"] == json!(["latest", "2.0.0-rc.1", "1.1.0", "1.0.0"]),
        "{scanned}"
    );
    ensure!(object.data["status"]["canonicalImageName"] == image.as_str(), "{:?}", object.data);
    await_latest(&story, "app", &json!({"name": image, "tag": "1.1.0"})).await?;
    let text = format!("Latest image tag for {image} resolved to 1.1.0");
    story.await_event("ImagePolicy", "app", &text).await?;
    let why = windlass(&story, &["why", "imagepolicy/app", "-o", "json"])?.json(0)?;
    let tags = why["imageTags"]["tags"].as_array().cloned().unwrap_or_default();
    let reasons: Vec<Value> = tags.iter().map(|it| json!([it["tag"], it["reason"]])).collect();
    let expected =
        json!([["2.0.0-rc.1", "OutsideRange"], ["latest", "NotAVersion"], ["1.0.0", "Lower"]]);
    ensure!(Value::from(reasons) == expected, "{why}");

    // windlass looks up a digest if the policy asks for it.
    policy(&story, "pinned", json!({"digestReflectionPolicy": "IfNotPresent"})).await?;
    await_latest(&story, "pinned", &json!({"name": image, "tag": "1.1.0", "digest": digest}))
        .await?;

    push(&registry, "1.2.0").await?;
    story.request(&repository_target()).await?;
    let object = await_latest(&story, "app", &json!({"name": image, "tag": "1.2.0"})).await?;
    let previous = &object.data["status"]["observedPreviousRef"];
    ensure!(*previous == json!({"name": image, "tag": "1.1.0"}), "{previous}");
    let text = format!("resolved to 1.2.0 (previously {image}:1.1.0)");
    story.await_event("ImagePolicy", "app", &text).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_with_a_password_is_scanned_once_the_secret_is_right() -> Result<()> {
    let story = Story::with_windlass("images-password").await?;
    let registry = RegistryServer::start_with_password().await?;
    push(&registry, "1.0.0").await?;
    let secret = async |password: &str| {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull"},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": registry.docker_config(password)}});
        story.apply_value(object).await.map(drop)
    };
    secret("wr0ng-passw0rd").await?;
    let image = format!("{}/team/app", registry.host());
    repository(&story, &image, json!({"secretRef": {"name": "pull"}})).await?;
    let message = story.await_failure(&repository_target(), "ReadOperationFailed").await?;
    let expected = format!(
        "scan failed: GET http://{}/v2/team/app/tags/list: UNAUTHORIZED: authentication required",
        registry.host()
    );
    ensure!(message.starts_with(&expected), "{message}");
    // windlass watches the Secret.
    secret(PASSWORD).await?;
    let limit = Duration::from_secs(60);
    story.await_condition(&repository_target(), "Ready", "True", limit).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_of_another_namespace_needs_the_consent_of_the_repository() -> Result<()> {
    let story = Story::with_windlass("images-shared").await?;
    let other = Story::begin("images-tenant").await?;
    let registry = RegistryServer::start().await?;
    push(&registry, "1.0.0").await?;
    let image = format!("{}/team/app", registry.host());
    repository(&story, &image, json!({})).await?;
    story.await_ready(&repository_target()).await?;
    let reference = json!({"imageRepositoryRef": {"name": "app", "namespace": story.namespace}});
    policy(&other, "app", reference).await?;
    let message = other.await_failure(&policy_target("app"), "AccessDenied").await?;
    ensure!(message.contains("due to missing ACL labels on 'accessFrom'"), "{message}");

    let access = |label: &str| json!({"accessFrom": {"namespaceSelectors": [{"matchLabels": {"windlass.dev/story": label}}]}});
    repository(&story, &image, access("nothing")).await?;
    let holds = |object: &DynamicObject| {
        object.data["status"]["conditions"].to_string().contains("due to ACL labels mismatch on")
    };
    other.await_object(&policy_target("app"), DEFAULT_WAIT_TIMEOUT, holds).await?;
    repository(&story, &image, access("images-tenant")).await?;
    await_latest(&other, "app", &json!({"name": image, "tag": "1.0.0"})).await?;
    other.end().await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds flux: cargo xtask test --thorough")]
async fn the_stock_flux_shows_images_and_has_them_scanned() -> Result<()> {
    let story = Story::with_windlass("images-flux").await?;
    let registry = RegistryServer::start().await?;
    push(&registry, "1.0.0").await?;
    let image = format!("--image={}/team/app", registry.host());
    flux(&story, &["create", "image", "repository", "app", &image, "--interval=1h"]).await?;
    let reference = "--image-ref=app";
    flux(&story, &["create", "image", "policy", "app", reference, "--select-semver=*"]).await?;
    let table = flux(&story, &["get", "image", "policy", "app"]).await?;
    ensure!(table.contains("1.0.0") && table.contains("resolved to 1.0.0"), "{table}");

    push(&registry, "1.1.0").await?;
    let text = flux(&story, &["reconcile", "image", "repository", "app"]).await?;
    ensure!(text.contains("fetched"), "{text}");
    await_latest(
        &story,
        "app",
        &json!({"name": image.trim_start_matches("--image="), "tag": "1.1.0"}),
    )
    .await?;
    let table = flux(&story, &["get", "image", "repository", "app"]).await?;
    ensure!(table.contains("found 2 tags"), "{table}");
    flux(&story, &["suspend", "image", "repository", "app"]).await?;
    flux(&story, &["resume", "image", "repository", "app"]).await?;
    story.end().await
}
