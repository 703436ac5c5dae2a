//! A HelmRelease writes nothing until the Helm releases that it requires are deployed, by windlass or by `helm`.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_required_and_missing_is_named_and_awaited() -> Result<()> {
    let story = Story::with_windlass("release-requires").await?;
    let other = Story::with_windlass("release-requires-target").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.5.0", &[("templates/a.yaml", CONFIG)]).await?;
    // The records of the release and of its required releases are in its own namespace. Its objects may be in another one.
    let spec = json!({"suspend": true, "targetNamespace": other.namespace, "releaseName": "app"});
    let app = charts.release("app", spec).await?;
    let requires = json!({"metadata": {"annotations": {"release.windlass.dev/requires": "db >=1.5.0"}},
        "spec": {"suspend": false}});
    story.merge(&app, requires).await?;
    let has_message = |text: &str| {
        let text = text.to_owned();
        move |object: &DynamicObject| {
            let ready = condition(object, "Ready");
            ready["reason"] == "DependencyNotReady"
                && ready["message"].as_str().is_some_and(|it| it.contains(&text))
        }
    };
    let text = format!("no records of release db in storage namespace {}", story.namespace);
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, has_message(&text)).await?;
    ensure!(other.read(&StoryObject::config_map("app-config")).await?.is_none());
    ensure!(story.history("app").is_err(), "nothing is stored");
    // The program `helm` installs the required release.
    let chart = tempfile::tempdir()?;
    std::fs::write(chart.path().join("Chart.yaml"), "apiVersion: v2\nname: db\nversion: 1.4.0\n")?;
    let folder = chart.path().display().to_string();
    story.helm_says(&["install", "db", &folder])?;
    story.request(&app).await?;
    story
        .await_object(&app, DEFAULT_WAIT_TIMEOUT, has_message("has version 1.4.0 of its chart"))
        .await?;
    std::fs::write(chart.path().join("Chart.yaml"), "apiVersion: v2\nname: db\nversion: 1.6.0\n")?;
    story.helm_says(&["upgrade", "db", &folder])?;
    story.request(&app).await?;
    story.await_revision(&app, 1).await?;
    other.expect(&StoryObject::config_map("app-config")).await?;
    other.end().await?;
    story.end().await
}
