//! Variables from ConfigMaps and Secrets are substituted in manifests, and their changes are applied at once.
//!
//! Every interval and retry is ten minutes long.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::json;

fn secret(name: &str, key: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{{key}: {value}}}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_config_map_or_secret_is_applied_at_once() -> Result<()> {
    let story = Story::with_windlass("substitution").await?;
    story.apply(&config_map("settings", "one")).await?;
    story.apply(&secret("login", "user", "ada")).await?;
    let files = [
        ("a.yaml", config_map("from-map", "${value}-${own}")),
        ("b.yaml", config_map("from-secret", "${user}-${stage:=test}")),
    ];
    let _upstream = story.follow("app", &files).await?;
    let post_build = json!({
        "substitute": {"own": "x"},
        "substituteFrom": [
            {"kind": "ConfigMap", "name": "settings"},
            {"kind": "Secret", "name": "login"},
            {"kind": "ConfigMap", "name": "later", "optional": true},
        ],
    });
    story.kustomization("app", "app", json!({"postBuild": post_build})).await?;
    story.await_value("from-map", "one-x").await?;
    story.await_value("from-secret", "ada-test").await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;

    let settings = StoryObject::config_map("settings");
    story.merge(&settings, json!({"data": {"value": "two"}})).await?;
    story.await_value("from-map", "two-x").await?;
    let login = StoryObject::new("v1", "Secret", "login");
    story.merge(&login, json!({"stringData": {"user": "grace"}})).await?;
    story.await_value("from-secret", "grace-test").await?;
    // An optional ConfigMap that was missing has an effect as soon as it exists.
    let later = config_map("later", "three").replace("value:", "stage: live, value:");
    story.apply(&later).await?;
    story.await_value("from-secret", "grace-live").await?;
    story.await_value("from-map", "three-x").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named_and_awaited_and_no_secret_is_shown() -> Result<()> {
    let story = Story::with_windlass("substitution-missing").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "${user}-${gone}"))]).await?;
    let from = json!({"substituteFrom": [{"kind": "Secret", "name": "login"}]});
    story.kustomization("app", "app", json!({"postBuild": from})).await?;
    let app = StoryObject::kustomization("app");
    let message = story.await_failure(&app, "BuildFailed").await?;
    ensure!(message.contains("substitute from 'Secret/login' error"), "{message}");

    story.apply(&secret("login", "user", "unspeakable")).await?;
    let failure_message = |object: &DynamicObject| {
        let message = condition(object, "Ready")["message"].as_str().unwrap_or_default().to_owned();
        message.contains("gone").then_some(message)
    };
    let object = story
        .await_object(&app, DEFAULT_WAIT_TIMEOUT, |object| failure_message(object).is_some())
        .await?;
    let message = failure_message(&object).unwrap_or_default();
    ensure!(message.contains("post build failed for 'ConfigMap.v1.[noGrp]/a'"), "{message}");
    ensure!(!message.contains("unspeakable"), "{message}");

    let login = StoryObject::new("v1", "Secret", "login");
    story.merge(&login, json!({"stringData": {"gone": "found"}})).await?;
    story.await_value("a", "unspeakable-found").await?;
    story.end().await
}
