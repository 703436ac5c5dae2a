//! An object with immutable fields is recreated if the spec allows it, and only if a new object would be accepted.

use anyhow::{Context, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, config_map, job};
use e2e::harness::{Story, StoryObject};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::json;

fn sealed(name: &str, value: &str, more: &str) -> String {
    format!(
        "
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  {more}
immutable: true
data:
  value: \"{value}\"
"
    )
}

async fn uid(story: &Story, target: &StoryObject) -> Result<String> {
    story.expect(target).await?.uid().context("an object without uid")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_immutable_field_is_refused_by_name_until_force_is_allowed() -> Result<()> {
    let story = Story::with_windlass("force").await?;
    let upstream = story
        .follow(
            "app",
            &[("a.yaml", sealed("sealed", "1", "")), ("b.yaml", job("work", PodBehavior::Ready))],
        )
        .await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    let sealed_map = StoryObject::config_map("sealed");
    let work = StoryObject::new("batch/v1", "Job", "work");
    let before = [uid(&story, &sealed_map).await?, uid(&story, &work).await?];

    let changed = job("work", PodBehavior::Ready).replace("app:1", "app:2");
    let last = upstream.push(&[("a.yaml", sealed("sealed", "2", "")), ("b.yaml", changed)]).await?;
    let message = story.await_failure(&app, "ReconciliationFailed").await?;
    for subject in ["ConfigMap", "Job"] {
        let name = if subject == "Job" { "work" } else { "sealed" };
        let subject = format!("{subject}/{}/{name}", story.namespace);
        ensure!(message.contains(&subject), "{message}");
    }
    ensure!(message.contains("immutable"), "{message}");
    ensure!(uid(&story, &sealed_map).await? == before[0], "recreated without being asked to");

    story.kustomization("app", "app", json!({"force": true})).await?;
    story.await_applied("app", &last).await?;
    story.await_value("sealed", "2").await?;
    ensure!(uid(&story, &sealed_map).await? != before[0], "the same object");
    ensure!(uid(&story, &work).await? != before[1], "the same object");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_may_allow_its_own_recreation() -> Result<()> {
    let story = Story::with_windlass("force-one").await?;
    let force = "annotations: {kustomize.toolkit.fluxcd.io/force: enabled}";
    let upstream = story.follow("app", &[("a.yaml", sealed("sealed", "1", force))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_value("sealed", "1").await?;
    let last = upstream.push(&[("a.yaml", sealed("sealed", "2", force))]).await?;
    story.await_applied("app", &last).await?;
    story.await_value("sealed", "2").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn force_deletes_nothing_for_a_manifest_that_is_plainly_wrong() -> Result<()> {
    let story = Story::with_windlass("force-wrong").await?;
    let service = |port: u32| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: web}}, \
             spec: {{selector: {{app: web}}, ports: [{{port: {port}}}]}}}}\n"
        )
    };
    let upstream = story.follow("app", &[("a.yaml", service(80))]).await?;
    story.kustomization("app", "app", json!({"force": true})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    let web = StoryObject::new("v1", "Service", "web");
    let before = uid(&story, &web).await?;

    upstream.push(&[("a.yaml", service(99_999))]).await?;
    let message = story.await_failure(&app, "ReconciliationFailed").await?;
    ensure!(message.contains(&format!("Service/{}/web", story.namespace)), "{message}");
    ensure!(message.contains("99999"), "{message}");
    ensure!(uid(&story, &web).await? == before, "a good object was deleted for a wrong manifest");
    story.end().await
}

/// How many objects windlass writes at once (`--concurrent-ssa`).
const AT_ONCE: usize = 16;

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_keeps_what_is_still_to_be_recreated() -> Result<()> {
    let story = Story::with_windlass("force-suspended").await?;
    let names: Vec<String> = (0..=AT_ONCE).map(|at| format!("sealed{at}")).collect();
    let files = |value: &str| {
        let all: Vec<String> = names.iter().map(|name| sealed(name, value, "")).collect();
        [("app/a.yaml", all.join("---")), ("other/a.yaml", config_map("other", "1"))]
    };
    let upstream = story.follow("app", &files("1")).await?;
    story.kustomization("app", "app", json!({"path": "app", "force": true})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    // Each deletion lasts until the story ends it.
    let all: Vec<StoryObject> = names.iter().map(|name| StoryObject::config_map(name)).collect();
    let mut before = Vec::new();
    for target in &all {
        let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
        story.merge(target, held).await?;
        before.push(uid(&story, target).await?);
    }
    upstream.push(&files("2")).await?;
    let leaving = async || {
        let mut leaving = 0;
        for target in &all {
            let object = story.expect(target).await?;
            leaving += usize::from(object.metadata.deletion_timestamp.is_some());
        }
        Ok((leaving == AT_ONCE).then_some(()))
    };
    story.await_until("objects to be deleted", DEFAULT_WAIT_TIMEOUT, leaving).await?;
    story.merge(&app, json!({"spec": {"suspend": true}})).await?;
    // After another object is reconciled, windlass has certainly noticed this change.
    story.kustomization("other", "app", json!({"path": "other"})).await?;
    story.await_ready(&StoryObject::kustomization("other")).await?;
    for target in &all {
        story.merge(target, json!({"metadata": {"finalizers": null}})).await?;
    }
    let is_stopped = |object: &DynamicObject| condition(object, "Ready")["reason"] == "Suspended";
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_stopped).await?;
    let mut kept = 0;
    for (target, before) in all.iter().zip(&before) {
        kept += usize::from(uid(&story, target).await? == *before);
    }
    ensure!(kept == 1, "{kept} of {} objects are the same", all.len());
    story.merge(&app, json!({"spec": {"suspend": false}})).await?;
    for name in &names {
        story.await_value(name, "2").await?;
    }
    story.end().await
}
