//! An API server that refuses a part of all requests, conflicts among them: releases come to their end all the same,
//! and no hook runs twice.
//!
//! Elsewhere: a program that ends at every write (`cargo xtask crash`).

use anyhow::{Result, ensure};
use e2e::api_proxy::{ApiFault, ApiProxy};
use e2e::harness::flux::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{PodBehavior, deployment};
use e2e::harness::release::{CONFIG, StoryChartRepository, hook};
use e2e::harness::{Story, WindlassProcess};
use serde_json::json;

async fn refused(name: &str, status: u16) -> Result<()> {
    let story = Story::begin(name).await?;
    let proxy = ApiProxy::start(story.bed.operator_kubeconfig())?;
    let mut windlass = WindlassProcess::start_for(&story, &[&proxy.flag()]).await?;
    let charts = StoryChartRepository::of(&story).await?;
    let publish = async |number: usize| -> Result<()> {
        let before =
            hook(&format!("before-{number}"), "pre-install,pre-upgrade", 0, "", PodBehavior::Ready);
        let after = hook(
            &format!("after-{number}"),
            "post-install,post-upgrade",
            0,
            "",
            PodBehavior::Ready,
        );
        let web = deployment("web", PodBehavior::Ready);
        let files = [
            ("templates/a.yaml", CONFIG),
            ("templates/b.yaml", before.as_str()),
            ("templates/c.yaml", after.as_str()),
            ("templates/d.yaml", web.as_str()),
        ];
        charts.publish(&format!("{number}.0.0"), &files).await
    };
    publish(1).await?;
    proxy.begin(ApiFault::Refusing { status, percent: 5 });
    // What fails without a trace in storage is tried again, however often it is.
    let app = charts.release("app", json!({"install": {"remediation": {"retries": -1}}})).await?;
    let is_ready = |version: i64| {
        move |object: &kube::api::DynamicObject| {
            e2e::harness::flux::condition(object, "Ready")["status"] == "True"
                && e2e::harness::release::newest(object)["chartVersion"] == format!("{version}.0.0")
        }
    };
    story.await_object(&app, 3 * DEFAULT_WAIT_TIMEOUT, is_ready(1)).await?;
    publish(2).await?;
    story.await_object(&app, 3 * DEFAULT_WAIT_TIMEOUT, is_ready(2)).await?;
    proxy.heal();
    let counts = story.creations(&["jobs"])?;
    ensure!(counts.len() == 4 && counts.values().all(|count| *count == 1), "{counts:?}");
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(windlass.operator.is_running()?, "windlass ended");
    drop(windlass);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_fails_now_and_then_is_asked_again() -> Result<()> {
    refused("release-500", 500).await
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_are_retried() -> Result<()> {
    refused("release-409", 409).await
}
