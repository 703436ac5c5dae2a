//! What happens to the applied objects when their Kustomization is deleted.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

/// A ConfigMap whose deletion waits for the finalizer of another controller.
fn held(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, finalizers: [example.com/held]}}}}\n"
    )
}

async fn let_go(story: &Story, name: &str) -> Result<()> {
    story.merge(&StoryObject::config_map(name), json!({"metadata": {"finalizers": null}})).await?;
    story.await_gone(&StoryObject::config_map(name), DEFAULT_WAIT_TIMEOUT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_says_whether_objects_go_with_their_kustomization() -> Result<()> {
    let story = Story::with_windlass("policies").await?;
    let cases: [(&str, Value, bool); 6] = [
        ("default-prune", json!({"prune": true}), true),
        ("default-keep", json!({"prune": false}), false),
        ("mirror-keep", json!({"prune": false, "deletionPolicy": "MirrorPrune"}), false),
        ("delete", json!({"prune": false, "deletionPolicy": "Delete"}), true),
        ("terminate", json!({"prune": false, "deletionPolicy": "WaitForTermination"}), true),
        ("orphan", json!({"prune": true, "deletionPolicy": "Orphan"}), false),
    ];
    let paths = cases.each_ref().map(|(name, ..)| format!("{name}/object.yaml"));
    let files: Vec<_> = cases
        .iter()
        .zip(&paths)
        .map(|((name, ..), path)| (&**path, config_map(name, "1")))
        .collect();
    let _upstream = story.follow("all", &files).await?;
    for (name, more, _) in &cases {
        let mut more = more.clone();
        more["path"] = (*name).into();
        story.kustomization(name, "all", more).await?;
    }
    for (name, ..) in &cases {
        story.await_ready(&StoryObject::kustomization(name)).await?;
        story.delete(&StoryObject::kustomization(name)).await?;
    }
    for (name, _, goes) in &cases {
        story.await_gone(&StoryObject::kustomization(name), DEFAULT_WAIT_TIMEOUT).await?;
        let is_there = story.read(&StoryObject::config_map(name)).await?.is_some();
        ensure!(is_there != *goes, "{name}: the object is there: {is_there}");
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_wait_for_termination_outlasts_its_objects() -> Result<()> {
    let story = Story::with_windlass("termination").await?;
    let files = [("waits/object.yaml", held("waits")), ("leaves/object.yaml", held("leaves"))];
    let _upstream = story.follow("all", &files).await?;
    for (name, policy) in [("waits", "WaitForTermination"), ("leaves", "Delete")] {
        let more = json!({"path": name, "deletionPolicy": policy, "timeout": "10m"});
        story.kustomization(name, "all", more).await?;
        story.await_ready(&StoryObject::kustomization(name)).await?;
        story.delete(&StoryObject::kustomization(name)).await?;
    }
    let waits = StoryObject::kustomization("waits");
    let says = |object: &kube::api::DynamicObject| {
        let message = condition(object, "Ready")["message"].as_str().unwrap_or_default();
        message.contains("termination")
    };
    story.await_object(&waits, DEFAULT_WAIT_TIMEOUT, says).await?;
    story.await_gone(&StoryObject::kustomization("leaves"), DEFAULT_WAIT_TIMEOUT).await?;
    for name in ["waits", "leaves"] {
        let object = story.expect(&StoryObject::config_map(name)).await?;
        ensure!(object.metadata.deletion_timestamp.is_some(), "{name} was not deleted");
    }
    story.expect(&waits).await?;

    let_go(&story, "waits").await?;
    story.await_gone(&waits, DEFAULT_WAIT_TIMEOUT).await?;
    let_go(&story, "leaves").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_kustomization_leaves_its_objects_behind() -> Result<()> {
    let story = Story::with_windlass("objects-left").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({"deletionPolicy": "Delete"})).await?;
    story.await_ready(&app).await?;
    story.merge(&app, json!({"spec": {"suspend": true}})).await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_value("a", "1").await?;
    story.end().await
}
