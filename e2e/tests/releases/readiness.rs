//! When objects are ready: according to expressions in the spec, or to Helm 3's list of kinds. Failing objects are named.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, by_value};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, job, widget, widget_crd};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn an_expression_says_when_an_object_is_ready_and_when_it_has_failed() -> Result<()> {
    let story = Story::with_windlass("release-checked").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let group = format!("{}.example.com", story.namespace);
    let crd = widget_crd(&group);
    let own = widget(&group, "w");
    let files = [
        ("crds/w.yaml", crd.as_str()),
        ("templates/w.yaml", own.as_str()),
        ("templates/a.yaml", CONFIG),
    ];
    charts.publish("1.0.0", &files).await?;
    let checks = json!([{"apiVersion": format!("{group}/v1"), "kind": "Widget",
        "current": "status.phase == 'Up'", "failed": "status.phase == 'Broken'"}]);
    let app = charts.release("app", json!({"healthCheckExprs": checks, "timeout": "10m"})).await?;
    let widget = StoryObject::new(&format!("{group}/v1"), "Widget", "w");
    story.await_object(&widget, DEFAULT_WAIT_TIMEOUT, |_| true).await?;
    story.await_condition(&app, "Ready", "Unknown", DEFAULT_WAIT_TIMEOUT).await?;
    story.merge_status(&widget, json!({"status": {"phase": "Up"}})).await?;
    story.await_revision(&app, 1).await?;
    story.merge_status(&widget, json!({"status": {"phase": "Starting"}})).await?;
    story.merge(&app, json!({"spec": {"values": {"value": "x"}}})).await?;
    let config = StoryObject::config_map("app-config");
    story.await_object(&config, DEFAULT_WAIT_TIMEOUT, |it| it.data["data"]["value"] == "x").await?;
    story.merge_status(&widget, json!({"status": {"phase": "Broken"}})).await?;
    let text = story.await_failure(&app, "UpgradeFailed").await?;
    ensure!(text.contains(&format!("Widget/{}/w", story.namespace)), "{text}");

    let bad = json!([{"apiVersion": "v1", "kind": "Pod", "current": "status.phase =="}]);
    story.merge(&app, json!({"spec": {"healthCheckExprs": bad}})).await?;
    let object = story.await_condition(&app, "Stalled", "True", DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(condition(&object, "Stalled")["reason"] == "InvalidCELExpression", "{:?}", object.data);
    story.merge(&app, json!({"spec": {"healthCheckExprs": null}})).await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    let name = format!("widgets.{group}");
    story
        .delete(&StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name))
        .await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_ready_while_others_were_awaited_has_to_be_ready_at_the_end() -> Result<()> {
    let story = Story::with_windlass("release-latched").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let group = format!("{}.example.com", story.namespace);
    let (crd, [a, b]) = (widget_crd(&group), ["a", "b"].map(|it| widget(&group, it)));
    let files = [
        ("crds/w.yaml", crd.as_str()),
        ("templates/v.yaml", a.as_str()),
        ("templates/w.yaml", b.as_str()),
        ("templates/z.yaml", CONFIG),
    ];
    charts.publish("1.0.0", &files).await?;
    let checks = json!([{"apiVersion": format!("{group}/v1"), "kind": "Widget",
        "current": "status.phase == 'Up'"}]);
    let timeouts =
        json!({"healthCheckExprs": checks, "timeout": "10m", "upgrade": {"timeout": "15s"}});
    let app = charts.release("app", timeouts).await?;
    let widget = |name: &str| StoryObject::new(&format!("{group}/v1"), "Widget", name);
    let is = async |name: &str, phase: &str| {
        story.merge_status(&widget(name), json!({"status": {"phase": phase}})).await.map(drop)
    };
    for name in ["a", "b"] {
        story.await_object(&widget(name), DEFAULT_WAIT_TIMEOUT, |_| true).await?;
        is(name, "Up").await?;
    }
    story.await_revision(&app, 1).await?;
    is("b", "Starting").await?;
    story.merge(&app, json!({"spec": {"values": {"value": "x"}}})).await?;
    let config = StoryObject::config_map("app-config");
    story.await_object(&config, DEFAULT_WAIT_TIMEOUT, |it| it.data["data"]["value"] == "x").await?;
    // Meanwhile, the wait observes its objects for the first time, and finds `a` ready.
    story.history("app")?;
    is("a", "Starting").await?;
    is("b", "Up").await?;
    let text = story.await_failure(&app, "UpgradeFailed").await?;
    ensure!(text.contains(&format!("Widget/{}/a", story.namespace)), "{text}");
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    let name = format!("widgets.{group}");
    story
        .delete(&StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name))
        .await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_awaited_unless_the_spec_says_otherwise() -> Result<()> {
    let story = Story::with_windlass("release-jobs").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let slow = job("{{ .Release.Name }}", PodBehavior::Unready);
    charts.publish("1.0.0", &[("templates/j.yaml", &slow)]).await?;
    let waits = charts.release("waits", json!({"install": {"timeout": "10m"}})).await?;
    let runs = charts.release("runs", json!({"install": {"disableWaitForJobs": true}})).await?;
    story.await_revision(&runs, 1).await?;
    story
        .await_object(&StoryObject::new("batch/v1", "Job", "waits"), DEFAULT_WAIT_TIMEOUT, |_| true)
        .await?;
    story.await_condition(&waits, "Ready", "Unknown", DEFAULT_WAIT_TIMEOUT).await?;
    story.let_complete("waits").await?;
    story.await_revision(&waits, 1).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_legacy_way_waits_for_the_kinds_that_helm_3_knows_and_for_nothing_else() -> Result<()> {
    let story = Story::with_windlass("release-legacy").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let group = format!("{}.example.com", story.namespace);
    let crd = widget_crd(&group);
    let own = widget(&group, "{{ .Release.Name }}");
    let files = [("crds/w.yaml", crd.as_str()), ("templates/w.yaml", own.as_str())];
    charts.publish("1.0.0", &files).await?;
    let checks = json!([{"apiVersion": format!("{group}/v1"), "kind": "Widget",
        "current": "status.phase == 'Up'"}]);
    let spec = |strategy: &str| json!({"healthCheckExprs": checks, "timeout": "10m", "waitStrategy": {"name": strategy}});
    let legacy = charts.release("legacy", spec("legacy")).await?;
    let poller = charts.release("poller", spec("poller")).await?;
    story.await_revision(&legacy, 1).await?;
    let widget = StoryObject::new(&format!("{group}/v1"), "Widget", "poller");
    story.await_object(&widget, DEFAULT_WAIT_TIMEOUT, |_| true).await?;
    story.await_condition(&poller, "Ready", "Unknown", DEFAULT_WAIT_TIMEOUT).await?;
    story.merge_status(&widget, json!({"status": {"phase": "Up"}})).await?;
    story.await_revision(&poller, 1).await?;

    // A Deployment is one of those kinds, so windlass waits for it.
    let web = by_value().replace("web", "{{ .Release.Name }}");
    charts.publish("1.1.0", &[("templates/d.yaml", &web)]).await?;
    story.await_revision(&legacy, 2).await?;
    let unready = json!({"values": {"pods": "unready"}, "upgrade": {"timeout": "2s"}});
    story.merge(&legacy, json!({"spec": unready})).await?;
    let text = story.await_failure(&legacy, "UpgradeFailed").await?;
    ensure!(text.contains(&format!("Deployment/{}/legacy", story.namespace)), "{text}");
    for app in [&legacy, &poller] {
        story.delete(app).await?;
        story.await_gone(app, DEFAULT_WAIT_TIMEOUT).await?;
    }
    let name = format!("widgets.{group}");
    story
        .delete(&StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name))
        .await?;
    story.end().await
}
