//! How long ReleaseAudits are kept, and that they can be turned off.

use anyhow::{Result, ensure};
use crds::release::AuditOperation;
use e2e::harness::flux::SOON;
use e2e::harness::release::{CONFIG, Charts};
use e2e::harness::release_audits::{audits, await_audits};
use e2e::harness::{Story, Windlass};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn old_audits_are_deleted_and_audits_can_be_turned_off() -> Result<()> {
    let story = Story::begin("audit-retention").await?;
    let mut windlass = Windlass::start_for(&story, &["--audit-retention-records=1"]).await?;
    let charts = Charts::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({"values": {"value": "one"}})).await?;
    story.await_revision(&app, 1).await?;
    story.merge(&app, json!({"spec": {"values": {"value": "two"}}})).await?;
    story.await_revision(&app, 2).await?;
    await_audits(&story, 2).await?;
    // They are deleted at the start, and from time to time.
    windlass.operator.kill()?;
    windlass.resume().await?;
    let left = story
        .await_until("one audit", SOON, async || {
            let found = audits(&story).await?;
            Ok((found.len() == 1).then_some(found))
        })
        .await?;
    ensure!(left[0].spec.operation == AuditOperation::Upgrade, "{:?}", left[0].spec);
    drop(windlass);
    let _windlass = Windlass::start_for(&story, &["--release-audits=false"]).await?;
    story.merge(&app, json!({"spec": {"values": {"value": "three"}}})).await?;
    story.await_revision(&app, 3).await?;
    await_audits(&story, 1).await?;
    story.end().await
}
