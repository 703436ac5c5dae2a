//! windlass runs the tests of charts after each revision, filters them by name, and may ignore their failure.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, newest, test_pod};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::PodBehavior;
use e2e::harness::{Story, StoryObject};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn tests_are_run_and_filtered() -> Result<()> {
    let story = Story::with_windlass("release-tests").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let good = test_pod("good", PodBehavior::Ready);
    let bad = test_pod("bad", PodBehavior::Fail);
    charts
        .publish(
            "1.0.0",
            &[
                ("templates/a.yaml", CONFIG),
                ("templates/g.yaml", &good),
                ("templates/b.yaml", &bad),
            ],
        )
        .await?;
    let filters = json!([{"name": "bad", "exclude": true}]);
    let app = charts.release("app", json!({"test": {"enable": true, "filters": filters}})).await?;
    let object = story.await_revision(&app, 1).await?;
    let tested = condition(&object, "TestSuccess");
    ensure!(tested["reason"] == "TestSucceeded", "{tested}");
    let text = tested["message"].as_str().unwrap_or_default();
    ensure!(text.ends_with("1 test hook completed successfully"), "{text}");
    let hooks = &newest(&object)["testHooks"];
    ensure!(hooks["good"]["phase"] == "Succeeded" && hooks["bad"].is_null(), "{hooks}");

    story
        .merge(&app, json!({"spec": {"test": {"filters": null}, "values": {"value": "x"}}}))
        .await?;
    let text = story.await_failure(&app, "TestFailed").await?;
    ensure!(text.starts_with("Helm test failed for release") && text.contains("bad"), "{text}");

    story
        .merge(&app, json!({"spec": {"test": {"ignoreFailures": true}, "values": {"value": "y"}}}))
        .await?;
    let object = story
        .await_object(&app, DEFAULT_WAIT_TIMEOUT, |it| {
            let generation = condition(it, "TestSuccess")["observedGeneration"].as_i64();
            generation == it.metadata.generation
                && condition(it, "TestSuccess")["status"] == "False"
        })
        .await?;
    ensure!(condition(&object, "Ready")["status"] == "True", "{:?}", object.data);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_test_is_undone_unless_the_remediation_ignores_it() -> Result<()> {
    let story = Story::with_windlass("release-tests-undone").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let good = test_pod("{{ .Release.Name }}-probe", PodBehavior::Ready);
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/t.yaml", &good)]).await?;
    let spec = |is_ignored: bool| {
        let remedy =
            json!({"retries": 0, "remediateLastFailure": true, "ignoreTestFailures": is_ignored});
        json!({"test": {"enable": true}, "upgrade": {"remediation": remedy}})
    };
    let strict = charts.release("strict", spec(false)).await?;
    let lenient = charts.release("lenient", spec(true)).await?;
    story.await_revision(&strict, 1).await?;
    story.await_revision(&lenient, 1).await?;
    let bad = test_pod("{{ .Release.Name }}-probe", PodBehavior::Fail);
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG), ("templates/t.yaml", &bad)]).await?;
    let object = story.await_condition(&strict, "Stalled", "True", DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(condition(&object, "Remediated")["reason"] == "RollbackSucceeded", "{:?}", object.data);
    let history = story.history("strict")?;
    ensure!(history[2] == "3 | deployed | app-1.0.0 | Rollback to 1", "{history:?}");

    // The failure is still reported.
    let text = story.await_failure(&lenient, "TestFailed").await?;
    ensure!(text.contains("lenient-probe"), "{text}");
    let object = story.expect(&lenient).await?;
    ensure!(condition(&object, "Remediated").is_null(), "{:?}", object.data);
    ensure!(object.data["status"]["upgradeFailures"].is_null(), "{:?}", object.data);
    let history = story.history("lenient")?;
    ensure!(history[1..] == ["2 | deployed | app-1.1.0 | Upgrade complete"], "{history:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_test_of_an_installation_is_removed_unless_the_remediation_ignores_it()
-> Result<()> {
    let story = Story::with_windlass("release-tests-removed").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let bad = test_pod("{{ .Release.Name }}-probe", PodBehavior::Fail);
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/t.yaml", &bad)]).await?;
    let spec = |is_ignored: bool| {
        let remedy =
            json!({"retries": 0, "remediateLastFailure": true, "ignoreTestFailures": is_ignored});
        json!({"test": {"enable": true}, "install": {"remediation": remedy}})
    };
    let strict = charts.release("strict", spec(false)).await?;
    let lenient = charts.release("lenient", spec(true)).await?;
    let object = story.await_condition(&strict, "Stalled", "True", DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(
        condition(&object, "Remediated")["reason"] == "UninstallSucceeded",
        "{:?}",
        object.data
    );
    ensure!(story.read(&StoryObject::config_map("strict-config")).await?.is_none());
    story.await_failure(&lenient, "TestFailed").await?;
    story.expect(&StoryObject::config_map("lenient-config")).await?;
    let history = story.history("lenient")?;
    ensure!(history == ["1 | deployed | app-1.0.0 | Install complete"], "{history:?}");
    story.end().await
}
