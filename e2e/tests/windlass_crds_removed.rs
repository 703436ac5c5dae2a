//! The CRDs of windlass's own kinds are removed while windlass is running, and then created again.
//!
//! The story has its own process, because it removes the kinds from the whole control plane. Elsewhere: other faults of the
//! API server (`api_server_refusals.rs`).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess, await_until};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

/// How long a kind is missing. The watches try again and again, at growing intervals.
const ABSENCE: Duration = Duration::from_secs(5);

async fn remove(story: &Story, name: &str) -> Result<()> {
    let api = Api::<CustomResourceDefinition>::all(story.client.clone());
    api.delete(name, &DeleteParams::default()).await?;
    await_until(&format!("{name} to be gone"), DEFAULT_WAIT_TIMEOUT, async || {
        Ok(api.get_opt(name).await?.is_none().then_some(()))
    })
    .await
}

async fn restore(story: &Story, name: &str) -> Result<()> {
    let api = Api::<CustomResourceDefinition>::all(story.client.clone());
    let mut crds = crds::all().into_iter().map(|(_, crd)| crd);
    let crd = crds.find(|it| it.name_any() == name).context("no such CRD")?;
    api.patch(name, &PatchParams::apply("story").force(), &Patch::Apply(&crd)).await?;
    await_until(&format!("{name} to be served"), DEFAULT_WAIT_TIMEOUT, async || {
        let conditions = api.get(name).await?.status.and_then(|it| it.conditions);
        let mut conditions = conditions.into_iter().flatten();
        Ok(conditions.any(|it| it.type_ == "Established" && it.status == "True").then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_that_are_removed_and_come_back_are_served_again_and_what_was_applied_lives()
-> Result<()> {
    let story = Story::begin("kinds").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    // The applied objects have to stay when the Kustomization is deleted.
    let spec = json!({"deletionPolicy": "Orphan"});
    story.kustomization("app", "app", spec.clone()).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let uid = story.await_value("a", "1").await?.uid();

    remove(&story, "gitrepositories.source.toolkit.fluxcd.io").await?;
    tokio::time::sleep(ABSENCE).await;
    ensure!(windlass.operator.is_running()?, "windlass ended");
    restore(&story, "gitrepositories.source.toolkit.fluxcd.io").await?;
    let url = upstream.server.url(&upstream.repository);
    await_until("the source to be taken", DEFAULT_WAIT_TIMEOUT, async || {
        story.git_repository("app", &url, json!({})).await.map(Some)
    })
    .await?;
    let revision = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    story.await_applied("app", &revision).await?;

    remove(&story, "kustomizations.kustomize.toolkit.fluxcd.io").await?;
    tokio::time::sleep(ABSENCE).await;
    ensure!(windlass.operator.is_running()?, "windlass ended");
    restore(&story, "kustomizations.kustomize.toolkit.fluxcd.io").await?;
    await_until("the Kustomization to be taken", DEFAULT_WAIT_TIMEOUT, async || {
        story.kustomization("app", "app", spec.clone()).await.map(Some)
    })
    .await?;
    story.await_applied("app", &revision).await?;
    story.merge(&StoryObject::config_map("a"), json!({"data": {"value": "edited"}})).await?;
    let object = story.await_value("a", "2").await?;
    ensure!(object.uid() == uid, "the object was replaced");
    story.end().await
}
