//! A chart is installed, upgraded with new values and with a new version, read by the standard `helm`, and removed.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition, inventory};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_release_follows_its_chart_and_its_values() -> Result<()> {
    let story = Story::with_windlass("release").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({"values": {"value": "one"}})).await?;
    let object = story.await_revision(&app, 1).await?;
    let text = format!(
        "Helm install succeeded for release {}/app.v1 with chart app@1.0.0",
        story.namespace
    );
    for kind in ["Ready", "Released"] {
        let condition = condition(&object, kind);
        ensure!(condition["message"] == text.as_str(), "{condition}");
        ensure!(condition["reason"] == "InstallSucceeded", "{condition}");
    }
    let status = &object.data["status"];
    ensure!(status["helmChart"] == format!("{0}/{0}-app", story.namespace).as_str(), "{status}");
    ensure!(status["lastAttemptedRevision"] == "1.0.0", "{status}");
    ensure!(status["lastAttemptedReleaseAction"] == "install", "{status}");
    ensure!(status["storageNamespace"] == story.namespace.as_str(), "{status}");
    let snapshot = newest(&object);
    ensure!(snapshot["status"] == "deployed" && snapshot["appVersion"] == "a1.0.0", "{snapshot}");
    ensure!(inventory(&object) == [format!("{}_app-config__ConfigMap", story.namespace)]);
    story.await_event("HelmRelease", "app", &text).await?;
    let config = StoryObject::config_map("app-config");
    let live = story.expect(&config).await?;
    ensure!(live.data["data"]["value"] == "one", "{:?}", live.data);
    let label = |key: &str| live.metadata.labels.as_ref().and_then(|it| it.get(key)).cloned();
    ensure!(label("app.kubernetes.io/managed-by").as_deref() == Some("Helm"));
    ensure!(label("helm.toolkit.fluxcd.io/name").as_deref() == Some("app"));

    story.merge(&app, json!({"spec": {"values": {"value": "two"}}})).await?;
    story.await_revision(&app, 2).await?;
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    let object = story.await_revision(&app, 3).await?;
    ensure!(newest(&object)["chartVersion"] == "1.1.0", "{}", newest(&object));
    let live = story.expect(&config).await?;
    ensure!(live.data["data"] == json!({"value": "two", "chart": "1.1.0"}), "{:?}", live.data);
    ensure!(
        story.history("app")?
            == [
                "1 | superseded | app-1.0.0 | Install complete",
                "2 | superseded | app-1.0.0 | Upgrade complete",
                "3 | deployed | app-1.1.0 | Upgrade complete",
            ]
    );
    let values = story.helm_says(&["get", "values", "app", "-o", "json"])?;
    ensure!(values.trim() == r#"{"value":"two"}"#, "{values}");

    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&config, DEFAULT_WAIT_TIMEOUT).await?;
    story
        .await_gone(
            &StoryObject::helm_chart(&format!("{}-app", story.namespace)),
            DEFAULT_WAIT_TIMEOUT,
        )
        .await?;
    ensure!(story.helm(&["status", "app"])?.status.code() == Some(1));
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn values_wait_for_the_version_that_they_came_with() -> Result<()> {
    let story = Story::with_windlass("release-stale").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({"values": {"value": "one"}})).await?;
    story.await_revision(&app, 1).await?;
    let next = json!({"chart": {"spec": {"version": "1.1.0"}}, "values": {"value": "two"}});
    story.merge(&app, json!({"spec": next})).await?;
    // The version does not exist yet, and the artifact is still that of the old version.
    let text = story.await_message(&app, "is not ready").await?;
    ensure!(text.starts_with("SourceNotReady: "), "{text}");
    ensure!(story.history("app")?.len() == 1, "{:?}", story.history("app")?);
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    story.await_revision(&app, 2).await?;
    let live = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(live.data["data"] == json!({"value": "two", "chart": "1.1.0"}), "{:?}", live.data);
    let history = story.history("app")?;
    ensure!(
        history.len() == 2 && history[1].starts_with("2 | deployed | app-1.1.0"),
        "{history:?}"
    );
    story.end().await
}
