//! How long windlass keeps ReleaseAudits, where it archives them, and how to turn them off.

use anyhow::{Context as _, Result, ensure};
use crds::windlass_release::{AuditOperation, ReleaseAudit};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::release_audits::{audits, await_audits};
use e2e::harness::{Story, WindlassProcess};
use e2e::servers::s3::{ACCESS, S3Server, SECRET};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn old_audits_are_deleted_and_audits_can_be_turned_off() -> Result<()> {
    let story = Story::begin("audit-retention").await?;
    let mut windlass = WindlassProcess::start_for(&story, &["--audit-retention-records=1"]).await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({"values": {"value": "one"}})).await?;
    story.await_revision(&app, 1).await?;
    story.merge(&app, json!({"spec": {"values": {"value": "two"}}})).await?;
    story.await_revision(&app, 2).await?;
    await_audits(&story, 2).await?;
    // windlass deletes old audits at its start, and from time to time.
    windlass.operator.kill()?;
    windlass.resume().await?;
    let left = story
        .await_until("one audit", DEFAULT_WAIT_TIMEOUT, async || {
            let found = audits(&story).await?;
            Ok((found.len() == 1).then_some(found))
        })
        .await?;
    ensure!(left[0].spec.operation == AuditOperation::Upgrade, "{:?}", left[0].spec);
    drop(windlass);
    let _windlass = WindlassProcess::start_for(&story, &["--release-audits=false"]).await?;
    story.merge(&app, json!({"spec": {"values": {"value": "three"}}})).await?;
    story.await_revision(&app, 3).await?;
    await_audits(&story, 1).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn audits_are_archived_before_they_are_deleted() -> Result<()> {
    let story = Story::begin("audit-archive").await?;
    let server = S3Server::start().await?;
    let flags = [
        "--audit-retention-records=1".to_owned(),
        "--audit-archive=s3://audits/cluster".to_owned(),
        format!("--audit-archive-endpoint=http://{}", server.endpoint()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let environment = [("AWS_ACCESS_KEY_ID", ACCESS), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    let mut windlass = WindlassProcess::start_for_with(&story, &flags, &environment).await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({"values": {"value": "one"}})).await?;
    story.await_revision(&app, 1).await?;
    story.merge(&app, json!({"spec": {"values": {"value": "two"}}})).await?;
    story.await_revision(&app, 2).await?;
    let before = await_audits(&story, 2).await?;
    // Without the bucket, windlass deletes no audit.
    windlass.operator.kill()?;
    windlass.resume().await?;
    story
        .await_until("the report of the missing bucket", DEFAULT_WAIT_TIMEOUT, async || {
            let log = windlass.operator.tail(200);
            Ok(log.contains("failed to archive ReleaseAudit").then_some(()))
        })
        .await
        .with_context(|| windlass.operator.tail(200))?;
    await_audits(&story, 2).await?;
    server.bucket("audits").await?;
    windlass.operator.kill()?;
    windlass.resume().await?;
    story
        .await_until("one audit", DEFAULT_WAIT_TIMEOUT, async || {
            Ok((audits(&story).await?.len() == 1).then_some(()))
        })
        .await?;
    let gone = before[0].metadata.clone();
    let day = gone.creation_timestamp.context("it has a time")?.0.strftime("%Y/%m/%d").to_string();
    let name = gone.name.unwrap_or_default();
    let key = format!("cluster/{}/{day}/{name}.json", story.namespace);
    let kept = server.stored("audits", &key)?.with_context(|| format!("{key} is not there"))?;
    let kept: ReleaseAudit = serde_json::from_slice(&kept)?;
    ensure!(kept.spec == before[0].spec, "{kept:?}");
    story.end().await
}
