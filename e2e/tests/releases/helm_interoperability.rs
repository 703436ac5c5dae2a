//! The standard `helm` 4.2 and 3.22 can use the releases of windlass, and windlass takes over their releases.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, newest, test_pod};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::PodBehavior;
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

/// A packed chart, as a file that `helm` reads.
async fn packed(
    charts: &StoryChartRepository<'_>,
    version: &str,
) -> Result<(tempfile::TempDir, String)> {
    let folder = tempfile::tempdir()?;
    let url = format!("{}/app-{version}.tgz", charts.server.url());
    let bytes = reqwest::get(url).await?.error_for_status()?.bytes().await?;
    let file = folder.path().join("app.tgz");
    std::fs::write(&file, bytes)?;
    let path = file.to_str().context("a path is text")?.to_owned();
    Ok((folder, path))
}

#[tokio::test(flavor = "multi_thread")]
async fn both_helms_read_and_act_on_a_release_of_windlass() -> Result<()> {
    let story = Story::with_windlass("interop").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let test = test_pod("probe", PodBehavior::Ready);
    let files = [
        ("templates/a.yaml", CONFIG),
        ("templates/t.yaml", test.as_str()),
        ("templates/NOTES.txt", "Thank you for {{ .Release.Name }}\n"),
    ];
    charts.publish("1.0.0", &files).await?;
    let app = charts.release("app", json!({"values": {"value": "one"}})).await?;
    story.await_revision(&app, 1).await?;
    story.merge(&app, json!({"spec": {"values": {"value": "two"}}})).await?;
    story.await_revision(&app, 2).await?;
    for says in [Story::helm_says, Story::helm3] {
        let list: Value = serde_json::from_str(&says(&story, &["list", "-o", "json"])?)?;
        ensure!(list[0]["name"] == "app" && list[0]["status"] == "deployed", "{list}");
        ensure!(list[0]["chart"] == "app-1.0.0" && list[0]["app_version"] == "a1.0.0", "{list}");
        let all = says(&story, &["get", "all", "app"])?;
        for part in ["value: two", "Thank you for app", "kind: Pod", "chart: 1.0.0"] {
            ensure!(all.contains(part), "{part}: {all}");
        }
        let history: Value =
            serde_json::from_str(&says(&story, &["history", "app", "-o", "json"])?)?;
        ensure!(history[0]["status"] == "superseded" && history[1]["revision"] == 2, "{history}");
        let status = says(&story, &["status", "app"])?;
        ensure!(status.contains("STATUS: deployed"), "{status}");
    }
    let tested = story.helm_says(&["test", "app", "--timeout", "30s"])?;
    ensure!(tested.contains("Succeeded"), "{tested}");
    story.helm_says(&["rollback", "app", "1", "--force-conflicts"])?;
    let config = StoryObject::config_map("app-config");
    ensure!(story.expect(&config).await?.data["data"]["value"] == "one");
    // The next reconciliation undoes changes that a user made with `helm`.
    story.request(&app).await?;
    let object = story.await_revision(&app, 4).await?;
    ensure!(newest(&object)["status"] == "deployed", "{}", newest(&object));
    ensure!(story.expect(&config).await?.data["data"]["value"] == "two");
    story.helm_says(&["uninstall", "app", "--wait"])?;
    ensure!(story.read(&config).await?.is_none());
    story.request(&app).await?;
    story
        .await_until("the release to be installed again", DEFAULT_WAIT_TIMEOUT, async || {
            story.read(&config).await
        })
        .await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds helm 3: cargo xtask test --thorough")]
async fn releases_of_both_helms_are_taken_over_as_they_are() -> Result<()> {
    let story = Story::with_windlass("takeover").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let (_folder, chart) = packed(&charts, "1.0.0").await?;
    story.helm_says(&["install", "four", &chart, "--set", "value=by-helm"])?;
    story.helm3(&["install", "three", &chart, "--set", "value=by-helm"])?;
    for name in ["four", "three"] {
        let release = charts.release(name, json!({"values": {"value": "by-helm"}})).await?;
        let object = story.await_revision(&release, 1).await?;
        let ready = condition(&object, "Ready");
        let text = ready["message"].as_str().unwrap_or_default();
        ensure!(text.starts_with("Adopted release "), "{ready}");
        let history = story.history(name)?;
        ensure!(history == ["1 | deployed | app-1.0.0 | Install complete"], "{history:?}");
        // From now on, it is an ordinary release. A release of Helm 3 is still merged by the client.
        story.merge(&release, json!({"spec": {"values": {"value": "by-windlass"}}})).await?;
        story.await_revision(&release, 2).await?;
        let config = StoryObject::config_map(&format!("{name}-config"));
        ensure!(story.expect(&config).await?.data["data"]["value"] == "by-windlass");
        story.delete(&release).await?;
        story.await_gone(&release, DEFAULT_WAIT_TIMEOUT).await?;
        story.await_gone(&config, DEFAULT_WAIT_TIMEOUT).await?;
    }
    story.end().await
}
