//! Tests of charts are run after each revision, filtered by name, and their failure counts or does not.

use anyhow::{Result, ensure};
use e2e::harness::Story;
use e2e::harness::flux::{SOON, condition};
use e2e::harness::manifests::Pods;
use e2e::harness::release::{CONFIG, Charts, newest, test_pod};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn tests_are_run_and_filtered() -> Result<()> {
    let story = Story::with_windlass("release-tests").await?;
    let charts = Charts::of(&story).await?;
    let (good, bad) = (test_pod("good", Pods::Ready), test_pod("bad", Pods::Fail));
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
        .await_object(&app, SOON, |it| {
            let generation = condition(it, "TestSuccess")["observedGeneration"].as_i64();
            generation == it.metadata.generation
                && condition(it, "TestSuccess")["status"] == "False"
        })
        .await?;
    ensure!(condition(&object, "Ready")["status"] == "True", "{:?}", object.data);
    story.end().await
}
