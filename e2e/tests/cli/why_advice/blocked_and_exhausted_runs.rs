//! Deleted objects, closed change windows, and exhausted retries: the command that `windlass why` prints fixes them.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, hook};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

use crate::cli::why_advice::mend;
use crate::cli::why_causes::await_cause;
use crate::cli::windlass;

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_comes_back() -> Result<()> {
    let story = Story::with_windlass("why-deleted").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    charts.seen().await?;
    let release = charts.release("app", json!({})).await?;
    story.await_ready(&release).await?;
    let config = StoryObject::config_map("app-config");
    story.delete(&config).await?;
    story.await_gone(&config, DEFAULT_WAIT_TIMEOUT).await?;
    let parts = ["ConfigMap/{ns}/app-config", "does not exist"];
    await_cause(&story, "hr/app", "Missing", &parts).await?;
    // The release is ready, but `windlass why` does not claim that all is well.
    let said = windlass(&story, &["why"])?;
    ensure!(said.code == Some(1) && said.out.contains("app-config: does not exist"), "{said:?}");
    let said = windlass(&story, &["incidents"])?;
    ensure!(said.err.contains("1 object is ready while something that it applied"), "{said:?}");
    ensure!(!said.out.contains('✔') && !said.err.contains('✔'), "{said:?}");
    mend(&story, "hr/app", &[]).await?;
    story.await_object(&config, DEFAULT_WAIT_TIMEOUT, |_| true).await?;
    let said = windlass(&story, &["why", "hr/app", "hr/absent"])?;
    ensure!(
        said.out.contains("/app is ") && said.err.contains("/absent does not exist"),
        "{said:?}"
    );
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_window_is_opened() -> Result<()> {
    let story = Story::with_windlass("why-window").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    // The window is closed before there is anything to apply.
    story.kustomization("app", "app", json!({"suspend": true})).await?;
    let window = json!({"windlass.dev/window": "0 0 29 2 * 1s"});
    let closed = json!({"metadata": {"annotations": window}, "spec": {"suspend": false}});
    story.merge(&StoryObject::kustomization("app"), closed).await?;
    await_cause(&story, "ks/app", "ClosedWindow", &["Kustomization/{ns}/app"]).await?;
    ensure!(
        story.read(&StoryObject::config_map("a")).await?.is_none(),
        "applied in a closed window"
    );
    mend(&story, "ks/app", &[]).await?;
    story.await_value("a", "1").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_retries_are_exhausted_is_reset() -> Result<()> {
    let story = Story::with_windlass("why-reset").await?;
    let charts = StoryChartRepository::of(&story).await?;
    // The hook fails until the ConfigMap `go` exists.
    let migrate = hook("migrate", "pre-install,pre-upgrade", 0, "", PodBehavior::Fail);
    let gated = format!(
        "{{{{ if not (lookup \"v1\" \"ConfigMap\" .Release.Namespace \"go\") }}}}{migrate}{{{{ end }}}}"
    );
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &gated)]).await?;
    charts.seen().await?;
    let release = charts.release("app", json!({})).await?;
    story.await_condition(&release, "Stalled", "True", DEFAULT_WAIT_TIMEOUT).await?;
    await_cause(&story, "hr/app", "Apply", &["HelmRelease/{ns}/app", "migrate"]).await?;
    // Another request alone does not lead to a new attempt.
    let said = windlass(&story, &["reconcile", "hr/app"])?;
    ensure!(said.code == Some(2) && said.err.contains("--reset`"), "{said:?}");
    story.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: go}}").await?;
    mend(&story, "hr/app", &[]).await?;
    story.await_ready(&release).await?;
    story.expect(&StoryObject::config_map("app-config")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_only_show_something_find_it() -> Result<()> {
    let story = Story::with_windlass("why-shows").await?;
    let files = [("a.yaml", deployment("pulling", PodBehavior::ImagePull))];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({"wait": true, "timeout": "5m"})).await?;
    await_cause(&story, "ks/app", "Image", &["ImagePullBackOff"]).await?;
    mend(&story, "ks/app", &[]).await?;
    let values = json!({"values": {"value": {"not": "a string"}}});
    let charts = StoryChartRepository::of(&story).await?;
    let schema = "{\"properties\": {\"value\": {\"type\": \"string\"}}}";
    let chart = [("templates/a.yaml", CONFIG), ("values.schema.json", schema)];
    charts.publish("1.0.0", &chart).await?;
    charts.seen().await?;
    charts.release("values", values).await?;
    await_cause(&story, "hr/values", "Apply", &["the specifications of the schema"]).await?;
    mend(&story, "hr/values", &[]).await?;
    story.end().await
}
