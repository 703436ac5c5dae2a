//! What somebody changes in a release is seen at once: told, or put right, but for what is ignored.

use anyhow::{Result, ensure};
use e2e::harness::flux::{SOON, condition};
use e2e::harness::release::{CONFIG, Charts};
use e2e::harness::{Story, Target};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_corrected_without_waiting_for_the_interval() -> Result<()> {
    let story = Story::with_windlass("release-drift").await?;
    let charts = Charts::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let ignore = json!([{"paths": ["/data/extra", "/data/chart"]}]);
    let drift = json!({"mode": "enabled", "ignore": ignore});
    let app = charts.release("app", json!({"driftDetection": drift})).await?;
    story.await_revision(&app, 1).await?;
    let config = Target::config_map("app-config");
    story.merge(&config, json!({"data": {"value": "drifted"}})).await?;
    story.await_object(&config, SOON, |object| object.data["data"]["value"] == "none").await?;
    story.await_event("HelmRelease", "app", "has drifted from the desired state").await?;
    story.await_event("HelmRelease", "app", "has been corrected").await?;
    story.delete(&config).await?;
    story.await_until("it to be there again", SOON, async || story.read(&config).await).await?;
    // What is ignored stays.
    story.merge(&config, json!({"data": {"chart": "mine"}})).await?;
    let token = story.request(&app).await?;
    story
        .await_object(&app, SOON, |it| it.data["status"]["lastHandledReconcileAt"] == token)
        .await?;
    ensure!(story.expect(&config).await?.data["data"]["chart"] == "mine");
    ensure!(story.history("app")?.len() == 1, "a correction makes no revision");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_only_told_where_that_is_asked_for() -> Result<()> {
    let story = Story::with_windlass("release-drift-told").await?;
    let charts = Charts::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({"driftDetection": {"mode": "warn"}})).await?;
    story.await_revision(&app, 1).await?;
    let config = Target::config_map("app-config");
    story.merge(&config, json!({"data": {"value": "drifted"}})).await?;
    let object = story
        .await_object(&app, SOON, |object| condition(object, "Drifted")["status"] == "True")
        .await?;
    let drifted = condition(&object, "Drifted");
    let line = format!(
        "ConfigMap/{}/app-config changed (0 additions, 1 changes, 0 removals): /data/value",
        story.namespace
    );
    ensure!(drifted["message"].as_str().is_some_and(|it| it.ends_with(&line)), "{drifted}");
    ensure!(story.expect(&config).await?.data["data"]["value"] == "drifted");
    story.end().await
}
