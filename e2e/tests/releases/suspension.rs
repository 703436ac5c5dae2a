//! windlass leaves suspended releases unchanged, even in the middle of an operation. A newer change ends a wait.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{
    CONFIG, StoryChartRepository, by_value, hook, newest,
};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, deployment};
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::json;

/// How soon a wait ends because of a newer change. Otherwise, it would last for ten minutes.
const AT_ONCE: Duration = Duration::from_secs(60);

fn suspend(it: bool) -> serde_json::Value {
    json!({"spec": {"suspend": it}})
}

/// Waits until the newest revision says that a suspension stopped it.
async fn await_stopped(story: &Story, revision: usize) -> Result<()> {
    let line = format!(
        "{revision} | failed | app-1.1.0 | Upgrade \"app\" failed: suspended during the upgrade"
    );
    story
        .await_until("the upgrade to stop", DEFAULT_WAIT_TIMEOUT, async || {
            let history = story.history("app")?;
            Ok((history.last() == Some(&line)).then_some(()))
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_helm_release_leaves_its_release_behind() -> Result<()> {
    let story = Story::with_windlass("release-left").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    story.merge(&app, suspend(true)).await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&StoryObject::config_map("app-config")).await?;
    story.expect(&StoryObject::helm_chart(&format!("{}-app", story.namespace))).await?;
    ensure!(story.history("app")? == ["1 | deployed | app-1.0.0 | Install complete"]);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_stops_behind_the_hook_during_which_it_is_suspended() -> Result<()> {
    let story = Story::with_windlass("release-held-hook").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    let slow = hook("slow", "pre-upgrade", 0, "", PodBehavior::Unready);
    let next = hook("next", "pre-upgrade", 1, "", PodBehavior::Ready);
    let files =
        [("templates/a.yaml", CONFIG), ("templates/h.yaml", &slow), ("templates/i.yaml", &next)];
    charts.publish("1.1.0", &files).await?;
    let job = |name: &str| StoryObject::new("batch/v1", "Job", name);
    story.await_object(&job("slow"), DEFAULT_WAIT_TIMEOUT, |_| true).await?;
    story.merge(&app, suspend(true)).await?;
    // A started operation is completed, and no new one begins.
    story.let_complete("slow").await?;
    await_stopped(&story, 2).await?;
    ensure!(story.read(&job("next")).await?.is_none(), "a hook began while it was suspended");
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(config.data["data"]["chart"] == "1.0.0", "{:?}", config.data);

    story.merge(&app, suspend(false)).await?;
    let object = story
        .await_until("the upgrade to be done", DEFAULT_WAIT_TIMEOUT, async || {
            story.let_complete("slow").await?;
            let object = story.expect(&app).await?;
            let is_done =
                condition(&object, "Ready")["status"] == "True" && newest(&object)["version"] == 3;
            Ok(is_done.then_some(object))
        })
        .await?;
    let status = &object.data["status"];
    ensure!(status["upgradeFailures"].is_null(), "a suspension is no failure: {status}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_stops_when_it_is_suspended_and_the_upgrade_is_done_later() -> Result<()> {
    let story = Story::with_windlass("release-held-wait").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let web = |pods| deployment("web", pods);
    charts.publish("1.0.0", &[("templates/d.yaml", &web(PodBehavior::Ready))]).await?;
    let app = charts.release("app", json!({"timeout": "10m"})).await?;
    story.await_revision(&app, 1).await?;
    charts.publish("1.1.0", &[("templates/d.yaml", &web(PodBehavior::Unready))]).await?;
    story.await_condition(&app, "Ready", "Unknown", DEFAULT_WAIT_TIMEOUT).await?;
    // Without a record, no operation has begun that could be stopped.
    let record = StoryObject::new("v1", "Secret", "sh.helm.release.v1.app.v2");
    story.await_object(&record, DEFAULT_WAIT_TIMEOUT, |_| true).await?;
    story.merge(&app, suspend(true)).await?;
    await_stopped(&story, 2).await?;
    // The status says where the operation stopped, and that nothing is running any more.
    let is_settled = |it: &DynamicObject| {
        let ready = condition(it, "Ready");
        ready["status"] == "False" && condition(it, "Reconciling").is_null()
    };
    let object = story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_settled).await?;
    let text = condition(&object, "Ready")["message"].as_str().unwrap_or_default();
    ensure!(text.contains("suspended during the upgrade"), "{text}");
    // windlass does not notice a new version while the release is suspended.
    charts.publish("1.2.0", &[("templates/d.yaml", &web(PodBehavior::Ready))]).await?;
    let chart = StoryObject::helm_chart(&format!("{}-app", story.namespace));
    story
        .await_object(&chart, DEFAULT_WAIT_TIMEOUT, |it| {
            it.data["status"]["artifact"]["revision"] == "1.2.0"
        })
        .await?;
    ensure!(story.history("app")?.len() == 2, "{:?}", story.history("app")?);
    story.merge(&app, suspend(false)).await?;
    let object = story.await_revision(&app, 3).await?;
    ensure!(newest(&object)["chartVersion"] == "1.2.0", "{}", newest(&object));
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_when_there_is_something_newer() -> Result<()> {
    let story = Story::with_windlass("release-superseded").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let web = by_value();
    charts.publish("1.0.0", &[("templates/d.yaml", &web)]).await?;
    let more = json!({"timeout": "10m", "values": {"pods": "unready"}});
    let app = charts.release("app", more).await?;
    let deployment = StoryObject::new("apps/v1", "Deployment", "web");
    let waits = async |generation: i64| {
        story
            .await_object(&deployment, DEFAULT_WAIT_TIMEOUT, |it| {
                it.data["status"]["observedGeneration"] == generation
            })
            .await?;
        story.await_condition(&app, "Ready", "Unknown", DEFAULT_WAIT_TIMEOUT).await.map(drop)
    };
    let is_done = |version: i64| {
        move |it: &DynamicObject| {
            condition(it, "Ready")["status"] == "True" && newest(it)["version"] == version
        }
    };
    // An installation is replaced because of new values.
    waits(1).await?;
    story.merge(&app, json!({"spec": {"values": {"pods": "ready"}}})).await?;
    story.await_object(&app, AT_ONCE, is_done(2)).await?;
    // An upgrade is replaced because of a new chart.
    story.merge(&app, json!({"spec": {"values": {"pods": "unready"}}})).await?;
    waits(3).await?;
    let mended = deployment_that_is_ready();
    charts.publish("1.1.0", &[("templates/d.yaml", &mended)]).await?;
    story.await_object(&app, AT_ONCE, is_done(4)).await?;
    let history = story.history("app")?;
    ensure!(history[0].contains("failed: superseded by"), "{history:?}");
    ensure!(history[2].contains("failed: superseded by"), "{history:?}");
    story.end().await
}

fn deployment_that_is_ready() -> String {
    deployment("web", PodBehavior::Ready)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_suspended_and_moved_in_one_edit_stays_where_it_is() -> Result<()> {
    let story = Story::with_windlass("release-held-moved").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let web = by_value();
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/d.yaml", &web)]).await?;
    let app = charts.release("app", json!({"timeout": "10m"})).await?;
    story.await_revision(&app, 1).await?;
    story.merge(&app, json!({"spec": {"values": {"pods": "unready"}}})).await?;
    let record = StoryObject::new("v1", "Secret", "sh.helm.release.v1.app.v2");
    story.await_object(&record, DEFAULT_WAIT_TIMEOUT, |_| true).await?;
    let edit = json!({"suspend": true, "releaseName": "other", "storageNamespace": "default"});
    story.merge(&app, json!({"spec": edit})).await?;
    let is_settled = |it: &DynamicObject| {
        condition(it, "Ready")["status"] == "False" && condition(it, "Reconciling").is_null()
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_settled).await?;
    story.expect(&StoryObject::config_map("app-config")).await?;
    let history = story.history("app")?;
    let stopped = "2 | failed | app-1.0.0 | Upgrade \"app\" failed: suspended during the upgrade";
    ensure!(history.len() == 2 && history[1] == stopped, "{history:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_controller_said_of_its_work_opens_no_window() -> Result<()> {
    let story = Story::with_windlass("release-said-running").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    let window = json!({"annotations": {"windlass.dev/window": "0 0 1 1 * 1s"}});
    let held = json!({"suspend": true, "values": {"value": "x"}});
    story.merge(&app, json!({"metadata": window, "spec": held})).await?;
    let is_shown = |it: &DynamicObject| !condition(it, "windlass.dev/Window").is_null();
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_shown).await?;
    let said = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "Progressing", "observedGeneration": 2,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "message": "Running 'upgrade' action with timeout of 5m0s"})
    };
    let conditions = [said("Reconciling", "True"), said("Ready", "Unknown")];
    story.merge_status(&app, json!({"status": {"conditions": conditions}})).await?;
    story.merge(&app, suspend(false)).await?;
    let text = story.await_message(&app, "outside the window").await?;
    ensure!(text.starts_with("WindowClosed: "), "{text}");
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(config.data["data"]["value"] == "none", "{:?}", config.data);
    ensure!(story.history("app")?.len() == 1, "{:?}", story.history("app")?);
    story.end().await
}
