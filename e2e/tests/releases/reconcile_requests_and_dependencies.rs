//! Requests of users by annotations, and releases that wait for others.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, hook, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, REQUESTED_AT, condition};
use e2e::harness::manifests::PodBehavior;
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

const FORCE_AT: &str = "reconcile.fluxcd.io/forceAt";
const RESET_AT: &str = "reconcile.fluxcd.io/resetAt";

fn asked(more: &str, token: &str) -> Value {
    json!({"metadata": {"annotations": {REQUESTED_AT: token, more: token}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_can_be_forced_and_failures_be_forgotten() -> Result<()> {
    let story = Story::with_windlass("release-asked").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    story.merge(&app, asked(FORCE_AT, "one")).await?;
    let object = story.await_revision(&app, 2).await?;
    ensure!(object.data["status"]["lastHandledForceAt"] == "one", "{:?}", object.data);
    story.rerun(&app).await?;
    ensure!(story.history("app")?.len() == 2, "it was forced twice");

    let broken = hook("migrate", "pre-upgrade", 0, "", PodBehavior::Fail);
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &broken)]).await?;
    let stalled = async |revisions: usize| {
        let object = story.await_condition(&app, "Stalled", "True", DEFAULT_WAIT_TIMEOUT).await?;
        ensure!(condition(&object, "Stalled")["reason"] == "RetriesExceeded", "{:?}", object.data);
        ensure!(story.history("app")?.len() == revisions, "{:?}", story.history("app")?);
        Ok(object)
    };
    stalled(3).await?;
    // A request to reconcile starts no further attempt, but a reset does.
    story.rerun(&app).await?;
    stalled(3).await?;
    story.merge(&app, asked(RESET_AT, "two")).await?;
    let reset = |it: &kube::api::DynamicObject| {
        it.data["status"]["lastHandledResetAt"] == "two"
            && newest(it)["version"] == 4
            && condition(it, "Stalled")["status"] == "True"
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, reset).await?;
    let object = stalled(4).await?;
    ensure!(object.data["status"]["upgradeFailures"] == 1, "{:?}", object.data);
    // A forced request also starts an attempt, whatever the failure count is.
    story.merge(&app, asked(FORCE_AT, "three")).await?;
    let forced = |it: &kube::api::DynamicObject| {
        it.data["status"]["lastHandledForceAt"] == "three"
            && newest(it)["version"] == 5
            && condition(it, "Stalled")["status"] == "True"
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, forced).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_waits_for_those_it_depends_on() -> Result<()> {
    let story = Story::with_windlass("release-depends").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let slow = hook("{{ .Release.Name }}-slow", "pre-install", 0, "", PodBehavior::Unready);
    let slow = format!("{{{{ if .Values.slow }}}}{slow}{{{{ end }}}}");
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &slow)]).await?;
    let app = charts.release("app", json!({"dependsOn": [{"name": "base"}]})).await?;
    let expression = "dep.status.lastAttemptedRevision == '1.1.0'";
    let late = json!({"dependsOn": [{"name": "base", "readyExpr": expression}],
        "chart": {"spec": {"chart": "app", "version": "1.0.0", "sourceRef": {"kind": "HelmRepository", "name": "charts"}}}});
    let late = charts.release("late", late).await?;
    let text = story.await_failure(&app, "DependencyNotReady").await?;
    ensure!(text.contains(&format!("{}/base", story.namespace)), "{text}");
    // The dependency exists but is suspended. Later it is being reconciled.
    let base = charts.release("base", json!({"suspend": true, "values": {"slow": true}})).await?;
    story.rerun(&app).await?;
    story.await_failure(&app, "DependencyNotReady").await?;
    story.merge(&base, json!({"spec": {"suspend": false}})).await?;
    story
        .await_object(
            &StoryObject::new("batch/v1", "Job", "base-slow"),
            DEFAULT_WAIT_TIMEOUT,
            |_| true,
        )
        .await?;
    story.await_failure(&app, "DependencyNotReady").await?;
    story.let_complete("base-slow").await?;
    story.await_revision(&base, 1).await?;
    story.await_revision(&app, 1).await?;
    story.await_failure(&late, "DependencyNotReady").await?;
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    story.await_revision(&base, 2).await?;
    story.await_revision(&late, 1).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_ten_is_ready_within_a_minute_whatever_the_intervals() -> Result<()> {
    let story = Story::with_windlass("release-chain").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    // The last release is created first, so each one has to wait.
    for at in (0..10).rev() {
        let depends = match at {
            0 => json!([]),
            _ => json!([{"name": format!("link-{}", at - 1)}]),
        };
        charts.release(&format!("link-{at}"), json!({"dependsOn": depends})).await?;
    }
    let last = StoryObject::helm_release("link-9");
    story.await_condition(&last, "Ready", "True", Duration::from_secs(60)).await?;
    for at in 0..10 {
        ensure!(story.history(&format!("link-{at}"))?.len() == 1, "link {at} was released twice");
    }
    story.end().await
}
