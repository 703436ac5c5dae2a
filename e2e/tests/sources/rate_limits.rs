//! A host answers with 429 for a while, and windlass recovers without any help of a user.

use anyhow::{Result, ensure};
use e2e::harness::{Story, WindlassProcess};

use super::remote_servers::{RelayedUpstream, SourceFetchMethod};

/// How many requests are rejected. Libraries with their own retries give up earlier.
const REQUESTS: u64 = 6;

async fn pauses_for(way: SourceFetchMethod, name: &str) -> Result<()> {
    let story = Story::begin(name).await?;
    let upstream = RelayedUpstream::start(way, 1000).await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    upstream.publish(1).await?;
    upstream.relay.turn_away(REQUESTS);
    upstream.create(&story).await?;
    upstream.await_version(&story, 1).await?;
    let left = upstream.relay.left_to_turn_away();
    ensure!(left == 0, "{left} requests were not made");
    ensure!(windlass.operator.log()?.contains("429"), "the log does not name the status 429");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_over_http_comes_later_by_itself() -> Result<()> {
    pauses_for(SourceFetchMethod::GitHttp, "busy-git-http").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_comes_later_by_itself() -> Result<()> {
    pauses_for(SourceFetchMethod::Bucket, "busy-bucket").await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_registry_has_comes_later_by_itself() -> Result<()> {
    pauses_for(SourceFetchMethod::OciRepository, "busy-oci").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_and_its_index_come_later_by_themselves() -> Result<()> {
    pauses_for(SourceFetchMethod::HelmChart, "busy-helm-chart").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_on_a_web_server_comes_later_by_itself() -> Result<()> {
    pauses_for(SourceFetchMethod::HttpArchive, "busy-http-archive").await
}
