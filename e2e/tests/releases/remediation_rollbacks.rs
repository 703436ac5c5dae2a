//! Rollbacks: the hooks that they run, the revision that they restore, and what happens if there is no such revision.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, hook, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::PodBehavior;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::{Value, json};

fn undone() -> Value {
    json!({"remediation": {"retries": 0, "remediateLastFailure": true}})
}

fn is_stalled(reason: &str) -> impl Fn(&DynamicObject) -> bool {
    move |object| condition(object, "Stalled")["reason"] == reason
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_runs_the_hooks_of_the_revision_to_which_it_goes() -> Result<()> {
    let story = Story::with_windlass("release-back").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let before = hook("before-back", "pre-rollback", 0, "", PodBehavior::Ready);
    let after = hook("after-back", "post-rollback", 0, "hook-succeeded", PodBehavior::Ready);
    let files =
        [("templates/a.yaml", CONFIG), ("templates/h.yaml", &before), ("templates/i.yaml", &after)];
    charts.publish("1.0.0", &files).await?;
    let app = charts.release("app", json!({"upgrade": undone()})).await?;
    story.await_revision(&app, 1).await?;
    let job = |name: &str| StoryObject::new("batch/v1", "Job", name);
    ensure!(story.read(&job("before-back")).await?.is_none(), "it ran without a rollback");
    let broken = hook("migrate", "post-upgrade", 0, "hook-failed", PodBehavior::Fail);
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &broken)]).await?;
    let object =
        story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_stalled("RetriesExceeded")).await?;
    ensure!(condition(&object, "Remediated")["reason"] == "RollbackSucceeded", "{:?}", object.data);
    story.expect(&job("before-back")).await?;
    for name in ["after-back", "migrate"] {
        ensure!(story.read(&job(name)).await?.is_none(), "{name} stayed in spite of its policy");
    }
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(config.data["data"]["chart"] == "1.0.0", "{:?}", config.data);
    let history = story.history("app")?;
    ensure!(history[2] == "3 | deployed | app-1.0.0 | Rollback to 1", "{history:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_revision_of_ours_nothing_is_rolled_back_and_that_is_reported() -> Result<()> {
    let story = Story::with_windlass("release-no-back").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let chart = format!("{}/app-1.0.0.tgz", charts.server.url());
    story.helm_says(&["install", "app", &chart])?;
    let broken = hook("migrate", "pre-upgrade", 0, "", PodBehavior::Fail);
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &broken)]).await?;
    charts.seen().await?;
    let app = charts.release("app", json!({"upgrade": undone()})).await?;
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_stalled("MissingRollbackTarget")).await?;
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(config.data["data"]["chart"] == "1.0.0", "{:?}", config.data);
    ensure!(story.history("app")?.len() == 2, "{:?}", story.history("app")?);
    // A better version is a new attempt.
    charts.publish("1.2.0", &[("templates/a.yaml", CONFIG)]).await?;
    let object = story.await_revision(&app, 3).await?;
    ensure!(condition(&object, "Stalled").is_null(), "{:?}", object.data);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_installation_is_retried_as_an_upgrade_until_it_works() -> Result<()> {
    let story = Story::with_windlass("release-retry").await?;
    let charts = StoryChartRepository::of(&story).await?;
    // The hook fails until the ConfigMap that the template looks up exists.
    let text = "{{ if not (lookup \"v1\" \"ConfigMap\" .Release.Namespace \"go\") }}".to_owned()
        + &hook("migrate", "pre-install,pre-upgrade", 0, "", PodBehavior::Fail)
        + "{{ end }}";
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &text)]).await?;
    let strategy = json!({"strategy": {"name": "RetryOnFailure", "retryInterval": "1s"}});
    let app = charts.release("app", json!({"install": strategy, "upgrade": strategy})).await?;
    let twice = |it: &DynamicObject| newest(it)["version"].as_i64().is_some_and(|it| it >= 2);
    let object = story.await_object(&app, DEFAULT_WAIT_TIMEOUT, twice).await?;
    ensure!(condition(&object, "Stalled").is_null(), "{:?}", object.data);
    ensure!(story.history("app")?[0].starts_with("1 | failed"), "{:?}", story.history("app")?);
    story.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: go}}").await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&StoryObject::config_map("app-config")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_was_deleted_by_hand_is_no_target_and_no_end() -> Result<()> {
    let story = Story::with_windlass("release-back-gone").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({"upgrade": undone()})).await?;
    story.await_revision(&app, 1).await?;
    let slow = hook("slow", "pre-upgrade", 0, "", PodBehavior::Unready);
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &slow)]).await?;
    let job = StoryObject::new("batch/v1", "Job", "slow");
    story.await_object(&job, DEFAULT_WAIT_TIMEOUT, |_| true).await?;
    story.delete(&StoryObject::new("v1", "Secret", "sh.helm.release.v1.app.v1")).await?;
    // The hook is deleted before it has ended, so its upgrade failed.
    story.delete(&job).await?;
    let again = |it: &DynamicObject| newest(it)["version"] == 3;
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, again).await?;
    charts.publish("1.2.0", &[("templates/a.yaml", CONFIG)]).await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(config.data["data"]["chart"] == "1.2.0", "{:?}", config.data);
    story.end().await
}
