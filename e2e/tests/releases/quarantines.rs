//! A release that has failed as often as its spec allows is quarantined. It is not released again until its chart or values
//! change, or a user lifts the Quarantine.
//!
//! Elsewhere: the same for Kustomizations (`stories::quarantine`), remediation itself (`remediation`, `remedies`).

use anyhow::{Result, ensure};
use crds::windlass_release::QuarantineAction;
use e2e::harness::Story;
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, deployment};
use kube::api::DynamicObject;
use serde_json::json;

use super::helmfiles::{follow_chart, keep, row};

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_that_failed_is_not_released_again_until_a_user_lifts_that() -> Result<()> {
    let story = Story::with_windlass("release-quarantine").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let good = deployment("web", PodBehavior::Ready);
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/d.yaml", &good)]).await?;
    let upgrade = json!({"timeout": "3s"});
    let app = charts.release("app", json!({"upgrade": upgrade})).await?;
    story.roll_back_failures(&app).await?;
    story.await_revision(&app, 1).await?;
    let bad = deployment("web", PodBehavior::CrashLoop).replace("app:1", "app:2");
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG), ("templates/d.yaml", &bad)]).await?;
    let message = story.await_failure(&app, "Quarantined").await?;
    ensure!(message.contains("revision 1.1.0 is quarantined"), "{message}");
    ensure!(message.contains("chart app@1.0.0 is applied in its place"), "{message}");
    ensure!(message.contains("windlass resume helmrelease/app"), "{message}");
    let history = story.history("app")?;
    ensure!(history.len() == 3, "{history:?}");
    ensure!(history[2] == "3 | deployed | app-1.0.0 | Rollback to 1", "{history:?}");
    let all = story.quarantines().await?;
    let [quarantine] = &all[..] else { anyhow::bail!("{all:?}") };
    ensure!(quarantine.spec.action == QuarantineAction::RollBack, "{:?}", quarantine.spec);
    ensure!(quarantine.spec.result.images == ["example.com/app:2"], "{:?}", quarantine.spec);

    // Flux forgets failures after each change of the spec, and releases the same again.
    story.merge(&app, json!({"spec": {"interval": "30m"}})).await?;
    let token = story.request(&app).await?;
    let is_handled = |object: &DynamicObject| {
        object.data["status"]["lastHandledReconcileAt"] == token.as_str()
            && object.data["status"]["observedGeneration"].as_i64() == object.metadata.generation
    };
    let object = story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_handled).await?;
    ensure!(condition(&object, "Ready")["reason"] == "Quarantined", "{:?}", object.data["status"]);
    ensure!(story.history("app")?.len() == 3, "{:?}", story.history("app")?);

    story.lift_in_vain("hr/app", &app, "1.1.0").await?;
    let history = story.history("app")?;
    ensure!(history.last().is_some_and(|it| it.contains("app-1.0.0")), "{history:?}");

    charts.publish("1.2.0", &[("templates/a.yaml", CONFIG), ("templates/d.yaml", &good)]).await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_repeated_without_end_cannot_be_quarantined_and_says_so() -> Result<()> {
    let story = Story::with_windlass("release-quarantine-endless").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let strategy = json!({"name": "RetryOnFailure", "retryInterval": "1s"});
    let app = charts.release("app", json!({"upgrade": {"strategy": strategy}})).await?;
    story.await_revision(&app, 1).await?;
    story.roll_back_failures(&app).await?;
    let message = story.await_failure(&app, "InvalidOnFailure").await?;
    ensure!(message.contains("spec.upgrade.strategy.name"), "{message}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_a_helmfile_that_failed_stays_at_the_last_good_chart() -> Result<()> {
    let story = Story::with_windlass("helmfile-quarantine").await?;
    let chart = |version: &str, pods| {
        let chart = format!("apiVersion: v2\nname: app\nversion: {version}\n");
        [("app/Chart.yaml", chart), ("app/templates/web.yaml", deployment("web", pods))]
    };
    let helmfile = "releases:\n- name: web\n  chart: ./app\n  wait: true\n  timeout: 5\n";
    let upstream = follow_chart(&story, &[("helmfile.yaml", helmfile.to_owned())]).await?;
    upstream.push(&chart("1.0.0", PodBehavior::Ready)).await?;
    let shop = keep(&story, "shop", json!({})).await?;
    story.roll_back_failures(&shop).await?;
    story.await_ready(&shop).await?;
    upstream.push(&chart("1.1.0", PodBehavior::CrashLoop)).await?;
    let is_quarantined = |object: &DynamicObject| {
        let row = row(object, "web").ok();
        let message = row.and_then(|row| row["message"].as_str()).unwrap_or_default();
        message.contains("is quarantined")
    };
    let object = story.await_object(&shop, DEFAULT_WAIT_TIMEOUT * 2, is_quarantined).await?;
    let message = row(&object, "web")?["message"].as_str().unwrap_or_default().to_owned();
    let revision = format!("{}/web@1.1.0", story.namespace);
    ensure!(message.contains(&format!("--revision {revision}")), "{message}");
    ensure!(message.contains("chart app@1.0.0 is applied in its place"), "{message}");
    let history = story.history("web")?;
    ensure!(history.last().is_some_and(|it| it.contains("app-1.0.0")), "{history:?}");
    upstream.push(&chart("1.2.0", PodBehavior::Ready)).await?;
    story.await_condition(&shop, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}
