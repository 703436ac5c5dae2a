//! A tenant can delay the platform's deletions only for a limited time.
//!
//! The story has its own process, because its windlass has its own flags. Elsewhere: deletion in order
//! (`stories/reverse_deletion.rs`).

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use kube::api::DynamicObject;
use serde_json::json;

/// A ConfigMap whose deletion waits for the finalizer of another controller.
const HELD: &str =
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: slow, finalizers: [example.com/held]}}\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_dependent_of_another_namespace_is_awaited_and_not_for_ever() -> Result<()> {
    let platform = Story::begin("platform").await?;
    let tenant = Story::begin("tenant-that-stays").await?;
    let _windlass = WindlassProcess::start(platform.bed, &["--reverse-delete-timeout=20s"]).await?;
    let _base = platform.follow("files", &[("map.yaml", config_map("base", "1"))]).await?;
    let _slow = tenant.follow("files", &[("map.yaml", HELD.to_owned())]).await?;
    let base = StoryObject::kustomization("base");
    let slow = StoryObject::kustomization("slow");
    platform.kustomization("base", "files", json!({})).await?;
    let on_base = json!([{"name": "base", "namespace": platform.namespace}]);
    let spec =
        json!({"deletionPolicy": "WaitForTermination", "timeout": NEVER, "dependsOn": on_base});
    tenant.kustomization("slow", "files", spec).await?;
    tenant.await_ready(&slow).await?;

    tenant.delete(&slow).await?;
    platform.delete(&base).await?;
    let name = format!("Kustomization/{}/slow", tenant.namespace);
    let is_waiting = |object: &DynamicObject| {
        condition(object, "Ready")["message"].as_str().is_some_and(|text| text.contains(&name))
    };
    platform.await_object(&base, DEFAULT_WAIT_TIMEOUT, is_waiting).await?;
    platform.await_value("base", "1").await?;
    platform.await_gone(&base, DEFAULT_WAIT_TIMEOUT).await?;
    platform.await_gone(&StoryObject::config_map("base"), DEFAULT_WAIT_TIMEOUT).await?;
    platform.await_event("Kustomization", "base", "--reverse-delete-timeout").await?;
    // The data from which an Incident is made.
    let object = tenant.expect(&slow).await?;
    let marks = object.metadata.annotations.unwrap_or_default();
    let held = format!("Kustomization/{}/base", platform.namespace);
    ensure!(marks.get("windlass.dev/deletion-overdue") == Some(&held), "{marks:?}");

    let released = json!({"metadata": {"finalizers": null}});
    tenant.merge(&StoryObject::config_map("slow"), released).await?;
    tenant.await_gone(&slow, DEFAULT_WAIT_TIMEOUT).await?;
    tenant.end().await?;
    platform.end().await
}
