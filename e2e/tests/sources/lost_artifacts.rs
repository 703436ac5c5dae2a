//! Artifacts are lost or damaged on the disk. No status claims that they exist until they exist again.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::{Story, WindlassProcess};
use kube::api::DynamicObject;

use super::remote_servers::{RelayedUpstream, SourceFetchMethod};

/// The file of the artifact in the status.
async fn file(upstream: &RelayedUpstream, story: &Story, storage: &Path) -> Result<PathBuf> {
    let object = story.expect(&upstream.target()).await?;
    let path = object.data["status"]["artifact"]["path"].as_str().context("no artifact")?;
    let file = storage.join(path);
    ensure!(file.is_file(), "{} is not there", file.display());
    Ok(file)
}

/// Replaces the contents of a file with the same number of other bytes.
fn damage(file: &Path) -> Result<()> {
    let length = std::fs::metadata(file)?.len();
    Ok(std::fs::write(file, vec![b'x'; usize::try_from(length)?])?)
}

/// Waits until windlass has noticed the loss while the server sends nothing. Then lets the server send everything again.
async fn is_made_again(upstream: &RelayedUpstream, story: &Story) -> Result<()> {
    let promises_nothing = |object: &DynamicObject| {
        let status = &object.data["status"];
        let ready = condition(object, "Ready");
        status["artifact"].is_null()
            && status["url"].is_null()
            && ready["status"] == "Unknown"
            && condition(object, "ArtifactInStorage").is_null()
    };
    let object =
        story.await_object(&upstream.target(), DEFAULT_WAIT_TIMEOUT, promises_nothing).await?;
    let text = condition(&object, "Ready")["message"].clone();
    ensure!(text == "building artifact: disappeared from storage", "{text}");
    upstream.relay.held(DEFAULT_WAIT_TIMEOUT).await?;
    for target in [Some(upstream.target()), upstream.offered()].into_iter().flatten() {
        let object = story.expect(&target).await?;
        let status = &object.data["status"];
        let ready = condition(&object, "Ready");
        ensure!(status["artifact"].is_null() && ready["status"] != "True", "{target}: {status}");
    }
    upstream.relay.open();
    let object = upstream.await_version(story, 1).await?;
    ensure!(condition(&object, "ArtifactInStorage")["status"] == "True", "{:?}", object.data);
    if let Some(target) = upstream.offered() {
        let artifact = &object.data["status"]["artifact"];
        let is_offered = |it: &DynamicObject| it.data["status"]["artifact"] == *artifact;
        story.await_object(&target, DEFAULT_WAIT_TIMEOUT, is_offered).await?;
        story.await_ready(&target).await?;
    }
    Ok(())
}

async fn restores(way: SourceFetchMethod, name: &str) -> Result<()> {
    let story = Story::begin(name).await?;
    let upstream = RelayedUpstream::start(way, 1000).await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let storage = windlass.storage();
    upstream.publish(1).await?;
    upstream.create(&story).await?;
    upstream.await_version(&story, 1).await?;

    std::fs::remove_file(file(&upstream, &story, &storage).await?)?;
    upstream.reconcile(&story, Some(0)).await?;
    is_made_again(&upstream, &story).await.context("lost under a running process")?;

    damage(&file(&upstream, &story, &storage).await?)?;
    upstream.reconcile(&story, Some(0)).await?;
    is_made_again(&upstream, &story).await.context("damaged under a running process")?;

    windlass.operator.kill()?;
    std::fs::remove_file(file(&upstream, &story, &storage).await?)?;
    upstream.relay.hold_after(0);
    windlass.resume().await?;
    is_made_again(&upstream, &story).await.context("lost before a start")?;

    windlass.operator.kill()?;
    damage(&file(&upstream, &story, &storage).await?)?;
    upstream.relay.hold_after(0);
    windlass.resume().await?;
    is_made_again(&upstream, &story).await.context("damaged before a start")?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_over_http_is_fetched_again() -> Result<()> {
    restores(SourceFetchMethod::GitHttp, "lost-git-http").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_over_ssh_is_fetched_again() -> Result<()> {
    restores(SourceFetchMethod::GitSsh, "lost-git-ssh").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_is_fetched_again() -> Result<()> {
    restores(SourceFetchMethod::Bucket, "lost-bucket").await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_registry_has_is_fetched_again() -> Result<()> {
    restores(SourceFetchMethod::OciRepository, "lost-oci").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_charts_is_fetched_again() -> Result<()> {
    restores(SourceFetchMethod::HelmRepository, "lost-helm-repository").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_is_fetched_again() -> Result<()> {
    restores(SourceFetchMethod::HelmChart, "lost-helm-chart").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_on_a_web_server_is_fetched_again() -> Result<()> {
    restores(SourceFetchMethod::HttpArchive, "lost-http-archive").await
}
