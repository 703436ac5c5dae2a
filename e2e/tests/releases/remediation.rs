//! A failed operation is undone by a rollback or a removal, or it is retried. The history shows it.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, hook, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, deployment};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_upgrade_is_rolled_back() -> Result<()> {
    let story = Story::with_windlass("release-rollback").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let good = deployment("web", PodBehavior::Ready);
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/d.yaml", &good)]).await?;
    let upgrade =
        json!({"timeout": "3s", "remediation": {"retries": 0, "remediateLastFailure": true}});
    let app = charts.release("app", json!({"upgrade": upgrade})).await?;
    story.await_revision(&app, 1).await?;
    let bad = deployment("web", PodBehavior::CrashLoop).replace("app:1", "app:2");
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG), ("templates/d.yaml", &bad)]).await?;
    let is_undone = |object: &kube::api::DynamicObject| {
        condition(object, "Remediated")["reason"] == "RollbackSucceeded"
    };
    let object = story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_undone).await?;
    let released = condition(&object, "Released");
    let text = released["message"].as_str().unwrap_or_default();
    ensure!(text.starts_with("Helm upgrade failed for release"), "{released}");
    ensure!(
        text.contains("Deployment/") && text.contains("web"),
        "the culprit is named: {released}"
    );
    let stalled =
        |object: &kube::api::DynamicObject| condition(object, "Stalled")["status"] == "True";
    let object = story.await_object(&app, DEFAULT_WAIT_TIMEOUT, stalled).await?;
    ensure!(condition(&object, "Stalled")["reason"] == "RetriesExceeded", "{:?}", object.data);
    ensure!(newest(&object)["chartVersion"] == "1.0.0", "{}", newest(&object));
    let live = story.expect(&StoryObject::new("apps/v1", "Deployment", "web")).await?;
    let image = &live.data["spec"]["template"]["spec"]["containers"][0]["image"];
    ensure!(*image == "example.com/app:1", "{image}");
    let history = story.history("app")?;
    ensure!(history.len() == 3, "{history:?}");
    ensure!(
        history[1].starts_with("2 | failed | app-1.1.0 | Upgrade \"app\" failed: "),
        "{history:?}"
    );
    ensure!(history[2] == "3 | deployed | app-1.0.0 | Rollback to 1", "{history:?}");

    // Another version is a new attempt.
    charts.publish("1.2.0", &[("templates/a.yaml", CONFIG), ("templates/d.yaml", &good)]).await?;
    let object = story.await_revision(&app, 4).await?;
    ensure!(condition(&object, "Remediated").is_null(), "{:?}", object.data);
    ensure!(object.data["status"]["upgradeFailures"].is_null(), "{:?}", object.data);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_installation_is_removed_and_tried_again() -> Result<()> {
    let story = Story::with_windlass("release-reinstall").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let bad = deployment("web", PodBehavior::Unready);
    charts.publish("1.0.0", &[("templates/d.yaml", &bad)]).await?;
    let install =
        json!({"timeout": "1s", "remediation": {"retries": 1, "remediateLastFailure": true}});
    let app = charts.release("app", json!({"install": install})).await?;
    let stalled =
        |object: &kube::api::DynamicObject| condition(object, "Stalled")["status"] == "True";
    let object = story.await_object(&app, 2 * DEFAULT_WAIT_TIMEOUT, stalled).await?;
    ensure!(object.data["status"]["installFailures"] == 2, "{:?}", object.data);
    ensure!(
        condition(&object, "Remediated")["reason"] == "UninstallSucceeded",
        "{:?}",
        object.data
    );
    ensure!(story.read(&StoryObject::new("apps/v1", "Deployment", "web")).await?.is_none());
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_upgrade_is_removed_where_that_is_the_remedy() -> Result<()> {
    let story = Story::with_windlass("release-removed").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let upgrade = json!({"timeout": "1s",
        "remediation": {"retries": 0, "remediateLastFailure": true, "strategy": "uninstall"}});
    let app = charts.release("app", json!({"upgrade": upgrade})).await?;
    story.await_revision(&app, 1).await?;
    let bad = deployment("web", PodBehavior::Unready);
    charts.publish("1.1.0", &[("templates/d.yaml", &bad)]).await?;
    let is_undone = |object: &kube::api::DynamicObject| {
        condition(object, "Remediated")["reason"] == "UninstallSucceeded"
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_undone).await?;
    story
        .await_gone(&StoryObject::new("apps/v1", "Deployment", "web"), DEFAULT_WAIT_TIMEOUT)
        .await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_upgrade_is_retried_after_its_time() -> Result<()> {
    let story = Story::with_windlass("release-retried").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let strategy = json!({"name": "RetryOnFailure", "retryInterval": "1s"});
    let app =
        charts.release("app", json!({"upgrade": {"timeout": "1s", "strategy": strategy}})).await?;
    story.await_revision(&app, 1).await?;
    let bad = deployment("web", PodBehavior::Unready);
    charts.publish("1.1.0", &[("templates/d.yaml", &bad)]).await?;
    let tried = |object: &kube::api::DynamicObject| {
        object.data["status"]["upgradeFailures"].as_i64().is_some_and(|count| count >= 2)
    };
    let object = story.await_object(&app, DEFAULT_WAIT_TIMEOUT, tried).await?;
    ensure!(condition(&object, "Remediated").is_null(), "{:?}", object.data);
    ensure!(condition(&object, "Stalled").is_null(), "{:?}", object.data);
    charts.publish("1.2.0", &[("templates/a.yaml", CONFIG)]).await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_without_end_go_on_until_it_works() -> Result<()> {
    let story = Story::with_windlass("release-endless").await?;
    let charts = StoryChartRepository::of(&story).await?;
    // The hook fails until the ConfigMap that the template looks up exists.
    let text = "{{ if not (lookup \"v1\" \"ConfigMap\" .Release.Namespace \"go\") }}".to_owned()
        + &hook("migrate", "pre-install,pre-upgrade", 0, "", PodBehavior::Fail)
        + "{{ end }}";
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &text)]).await?;
    let endless = json!({"remediation": {"retries": -1}});
    let app = charts.release("app", json!({"install": endless, "upgrade": endless})).await?;
    let undone = |count: i64, counter: &'static str, how: &'static str| {
        move |it: &kube::api::DynamicObject| {
            let failures = it.data["status"][counter].as_i64();
            failures.is_some_and(|it| it >= count)
                && condition(it, "Remediated")["reason"] == how
                && condition(it, "Stalled").is_null()
        }
    };
    story
        .await_object(
            &app,
            DEFAULT_WAIT_TIMEOUT,
            undone(3, "installFailures", "UninstallSucceeded"),
        )
        .await?;
    story.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: go}}").await?;
    story.await_revision(&app, 1).await?;

    story.delete(&StoryObject::config_map("go")).await?;
    story.merge(&app, json!({"spec": {"values": {"value": "two"}}})).await?;
    story
        .await_object(&app, DEFAULT_WAIT_TIMEOUT, undone(2, "upgradeFailures", "RollbackSucceeded"))
        .await?;
    story.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: go}}").await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(config.data["data"]["value"] == "two", "{:?}", config.data);
    story.end().await
}
