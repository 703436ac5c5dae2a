//! The stock `flux` 2.9 shows HelmReleases and does with them what it does where Flux keeps them.

use anyhow::{Result, ensure};
use e2e::harness::flux::{SOON, condition};
use e2e::harness::release::{CONFIG, Charts};
use e2e::harness::{Story, Target};
use serde_json::json;

/// Runs `flux` beside the runtime: it waits for windlass.
async fn flux(story: &Story, arguments: &[&str]) -> Result<String> {
    tokio::task::block_in_place(|| story.flux(arguments))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stock_flux_shows_releases_and_tells_them_what_to_do() -> Result<()> {
    let story = Story::with_windlass("release-flux").await?;
    let charts = Charts::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    story
        .apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: own}, data: {values.yaml: 'more: 1'}}")
        .await?;
    let from = json!([{"kind": "ConfigMap", "name": "own"}]);
    let app =
        charts.release("app", json!({"values": {"value": "one"}, "valuesFrom": from})).await?;
    story.await_revision(&app, 1).await?;

    let table = flux(&story, &["get", "helmreleases"]).await?;
    let row = table.lines().find(|line| line.starts_with("app")).unwrap_or_default();
    let words: Vec<&str> = row.split_whitespace().collect();
    ensure!(words.get(1..4) == Some(&["1.0.0", "False", "True"]), "{table}");
    ensure!(row.contains("Helm install succeeded for release"), "{table}");
    let values = flux(&story, &["debug", "helmrelease", "app", "--show-values"]).await?;
    ensure!(values.contains("more: 1") && values.contains("value: one"), "{values}");
    let exported = flux(&story, &["export", "helmrelease", "app"]).await?;
    ensure!(exported.contains("kind: HelmRelease"), "{exported}");

    // The source first, where there is something new that nobody was told of.
    charts.server.publish(&[
        ("Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.1.0\n"),
        ("templates/a.yaml", CONFIG),
    ])?;
    let told = flux(&story, &["reconcile", "helmrelease", "app", "--with-source"]).await?;
    ensure!(told.contains("applied revision 1.1.0"), "{told}");
    story.await_revision(&app, 2).await?;
    let told = flux(&story, &["reconcile", "helmrelease", "app", "--force"]).await?;
    ensure!(told.contains("applied revision 1.1.0"), "{told}");
    story.await_revision(&app, 3).await?;
    flux(&story, &["reconcile", "helmrelease", "app", "--reset"]).await?;
    ensure!(story.history("app")?.len() == 3, "{:?}", story.history("app")?);
    let object = story.expect(&app).await?;
    for key in ["lastHandledForceAt", "lastHandledResetAt"] {
        ensure!(object.data["status"][key].is_string(), "{:?}", object.data);
    }

    flux(&story, &["suspend", "helmrelease", "app"]).await?;
    story.merge(&app, json!({"spec": {"values": {"value": "two"}}})).await?;
    let table = flux(&story, &["get", "helmreleases", "app"]).await?;
    ensure!(table.split_whitespace().any(|word| word == "True"), "{table}");
    let told = flux(&story, &["resume", "helmrelease", "app"]).await?;
    ensure!(told.contains("applied revision 1.1.0"), "{told}");
    let object = story.await_revision(&app, 4).await?;
    ensure!(condition(&object, "Ready")["reason"] == "UpgradeSucceeded", "{:?}", object.data);
    let events = flux(&story, &["events", "--for", "HelmRelease/app"]).await?;
    ensure!(events.contains("InstallSucceeded") && events.contains("UpgradeSucceeded"), "{events}");

    flux(&story, &["delete", "helmrelease", "app", "--silent"]).await?;
    story.await_gone(&app, SOON).await?;
    ensure!(story.read(&Target::config_map("app-config")).await?.is_none());
    story.end().await
}
