//! CRDs in charts are handled according to the policy, and objects of their kinds are created afterwards.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, inventory};
use e2e::harness::manifests::{widget, widget_crd};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

fn crd(group: &str) -> StoryObject {
    StoryObject::new(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &format!("widgets.{group}"),
    )
}

/// The short names in the CRD.
async fn short_names(story: &Story, group: &str) -> Result<serde_json::Value> {
    Ok(story.expect(&crd(group)).await?.data["spec"]["names"]["shortNames"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_defines_kinds_as_the_policy_says() -> Result<()> {
    let story = Story::with_windlass("release-kinds").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let group = format!("{}.example.com", story.namespace);
    let named = |name: &str| {
        widget_crd(&group)
            .replace("singular: widget,", &format!("singular: widget, shortNames: [{name}],"))
    };
    let own = widget(&group, "w");
    let notes = "{apiVersion: v1, kind: ConfigMap, metadata: {name: no-crd}}";
    let publish = async |version: &str, name: &str| {
        let crd = named(name);
        let files = [
            ("crds/widget.yaml", crd.as_str()),
            ("crds/other.yaml", notes),
            ("templates/a.yaml", CONFIG),
            ("templates/w.yaml", own.as_str()),
        ];
        charts.publish(version, &files).await
    };
    publish("1.0.0", "wa").await?;
    let strategy = json!({"name": "RetryOnFailure", "retryInterval": "10m"});
    let app =
        charts.release("app", json!({"install": {"crds": "Skip", "strategy": strategy}})).await?;
    let text = story.await_failure(&app, "InstallFailed").await?;
    ensure!(
        text.contains("no matches for kind \"Widget\"") && text.contains("ensure CRDs"),
        "{text}"
    );
    ensure!(story.read(&crd(&group)).await?.is_none());

    story.merge(&app, json!({"spec": {"install": null}})).await?;
    let object = story.await_revision(&app, 1).await?;
    let live = story.expect(&crd(&group)).await?;
    let label = live.metadata.labels.as_ref().and_then(|it| it.get("helm.toolkit.fluxcd.io/name"));
    ensure!(label.is_some_and(|it| it == "app"), "{:?}", live.metadata.labels);
    let id = format!("_widgets.{group}_apiextensions.k8s.io_CustomResourceDefinition");
    ensure!(inventory(&object).contains(&id.as_str()), "{:?}", inventory(&object));
    story.expect(&StoryObject::new(&format!("{group}/v1"), "Widget", "w")).await?;
    // An object that is not a CRD is left out.
    ensure!(story.read(&StoryObject::config_map("no-crd")).await?.is_none());

    // By default, an existing CRD stays unchanged. Then the policy is to replace it, and then to skip it.
    publish("1.1.0", "wb").await?;
    story.await_revision(&app, 2).await?;
    ensure!(short_names(&story, &group).await? == json!(["wa"]));
    story
        .merge(
            &app,
            json!({"spec": {"upgrade": {"crds": "CreateReplace"}, "values": {"value": "x"}}}),
        )
        .await?;
    story.await_revision(&app, 3).await?;
    ensure!(short_names(&story, &group).await? == json!(["wb"]));
    story.merge(&app, json!({"spec": {"upgrade": {"crds": "Skip"}}})).await?;
    publish("1.2.0", "wc").await?;
    story.await_revision(&app, 4).await?;
    ensure!(short_names(&story, &group).await? == json!(["wb"]));

    // A CRD stays after its release is deleted, and so do objects of others.
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&crd(&group)).await?;
    story.delete(&crd(&group)).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_went_is_no_obstacle_to_a_chart_without_it() -> Result<()> {
    let story = Story::with_windlass("release-kind-gone").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let group = format!("{}.example.com", story.namespace);
    story.apply(&widget_crd(&group)).await?;
    let own = widget(&group, "w");
    let files = [("templates/a.yaml", CONFIG), ("templates/w.yaml", own.as_str())];
    let strategy = json!({"name": "RetryOnFailure", "retryInterval": "10m"});
    charts.publish("1.0.0", &files).await?;
    let app = charts.release("app", json!({"upgrade": {"strategy": strategy}})).await?;
    story.await_revision(&app, 1).await?;
    story.delete(&crd(&group)).await?;
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;
    story.merge(&app, json!({"spec": {"values": {"value": "x"}}})).await?;
    let text = story.await_failure(&app, "UpgradeFailed").await?;
    ensure!(
        text.contains("no matches for kind \"Widget\"") || text.contains("could not find"),
        "{text}"
    );
    let config = StoryObject::config_map("app-config");
    ensure!(story.expect(&config).await?.data["data"]["value"] == "none");
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(story.expect(&config).await?.data["data"]["value"] == "x");
    // A release with such an object can also be deleted.
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(story.read(&config).await?.is_none());
    story.end().await
}
