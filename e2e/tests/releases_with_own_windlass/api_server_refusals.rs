//! An API server that refuses a part of all requests, including with conflicts. Releases still complete, and no hook runs
//! twice. Also an API server that stops answering during many writes: each write is audited once.
//!
//! Elsewhere: a program that ends at every write (`cargo xtask crash`).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use crds::windlass_release::{AuditChangeKind, AuditOperation};
use e2e::api_server_fault_proxy::{ApiFault, ApiServerFaultProxy, ConnectionCutMoment};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, hook};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::release_audits::audits;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use serde_json::json;

/// How long the API server does not answer. In this time, a running request is repeated without success.
const SILENCE: Duration = Duration::from_secs(10);

/// How many objects are written one after the other.
const COUNT: usize = 40;

fn map_name(at: usize) -> String {
    format!("map-{at:02}")
}

/// The manifests of all objects with a value.
fn config_maps(value: &str) -> String {
    let maps: Vec<String> = (0..COUNT).map(|at| config_map(&map_name(at), value)).collect();
    maps.join("---\n")
}

/// Makes the API server stop answering after a write of one of the objects. It carries out the write without an answer. By
/// then, statuses were written. `begin` starts the writes of the objects.
async fn silenced(
    proxy: &ApiServerFaultProxy,
    begin: impl Future<Output = Result<()>>,
) -> Result<()> {
    let mut cut = proxy.cut_at(COUNT / 2, ConnectionCutMoment::After);
    begin.await?;
    let lost = tokio::time::timeout(DEFAULT_WAIT_TIMEOUT, cut.wait()).await?;
    let lost = lost.context("another cut was ordered")?;
    ensure!(lost.contains("/configmaps/"), "{lost}");
    tokio::time::sleep(SILENCE).await;
    proxy.heal();
    Ok(())
}

/// Waits until all objects have a value, and each change is in an audit of the operation. Checks that no change is in two
/// audits.
async fn await_audited_once(story: &Story, value: &str, operation: AuditOperation) -> Result<()> {
    for at in 0..COUNT {
        story.await_value(&map_name(at), value).await?;
    }
    let are_audited = async || {
        let mut counts = BTreeMap::<String, usize>::new();
        let all = audits(story).await?;
        for audit in all.into_iter().filter(|it| it.spec.operation == operation) {
            let changes = audit.spec.changes.objects.into_iter();
            for change in changes.filter(|it| it.change == AuditChangeKind::Changed) {
                *counts.entry(change.name).or_default() += 1;
            }
        }
        ensure!(counts.values().all(|count| *count == 1), "{counts:?}");
        Ok((counts.len() == COUNT).then_some(()))
    };
    story.await_until("all changes to be in audits", DEFAULT_WAIT_TIMEOUT, are_audited).await
}

async fn refused(name: &str, status: u16) -> Result<()> {
    let story = Story::begin(name).await?;
    let proxy = ApiServerFaultProxy::start(story.bed.operator_kubeconfig())?;
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
    // A failure without a trace in the storage is always retried.
    let app = charts.release("app", json!({"install": {"remediation": {"retries": -1}}})).await?;
    let is_ready = |version: i64| {
        move |object: &kube::api::DynamicObject| {
            e2e::harness::flux_objects::condition(object, "Ready")["status"] == "True"
                && e2e::harness::charts_and_helm_releases::newest(object)["chartVersion"]
                    == format!("{version}.0.0")
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

#[tokio::test(flavor = "multi_thread")]
async fn a_correction_of_drift_whose_answer_is_lost_is_audited_once() -> Result<()> {
    let story = Story::begin("release-silent").await?;
    let proxy = ApiServerFaultProxy::start(story.bed.operator_kubeconfig())?;
    let mut windlass = WindlassProcess::start_for(&story, &[&proxy.flag()]).await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", config_maps("1").as_str())]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    // All objects have drifted before the first one is corrected.
    for at in 0..COUNT {
        let map = StoryObject::config_map(&map_name(at));
        story.merge(&map, json!({"data": {"value": "edited"}})).await?;
    }
    let begin = async {
        let spec = json!({"driftDetection": {"mode": "enabled"}});
        story.merge(&app, json!({"spec": spec})).await.map(drop)
    };
    silenced(&proxy, begin).await?;
    await_audited_once(&story, "1", AuditOperation::CorrectDrift).await?;
    ensure!(story.history("app")?.len() == 1, "a correction makes no revision");
    ensure!(windlass.operator.is_running()?, "windlass ended");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_of_a_hook_whose_answer_is_lost_is_audited_once() -> Result<()> {
    let story = Story::begin("hook-silent").await?;
    let proxy = ApiServerFaultProxy::start(story.bed.operator_kubeconfig())?;
    let mut windlass = WindlassProcess::start_for(&story, &[&proxy.flag()]).await?;
    let helmfile = "releases:\n- name: app\n  chart: ./app\n  hooks:\n  \
        - {events: [presync], kubectlApply: {filename: hooks/maps.yaml}}\n";
    let chart = "apiVersion: v2\nname: app\nversion: 1.0.0\n";
    let files = [
        ("app/Chart.yaml", chart.to_owned()),
        ("app/templates/config.yaml", CONFIG.to_owned()),
        ("hooks/maps.yaml", config_maps("1")),
        ("helmfile.yaml", helmfile.to_owned()),
    ];
    let upstream = story.follow("shop", &files).await?;
    let version = "helmfile.windlass.dev/v1alpha1";
    let spec = json!({"interval": NEVER, "retryInterval": "1s", "prune": true,
        "sourceRef": {"kind": "GitRepository", "name": "shop"}});
    let object = json!({"apiVersion": version, "kind": "Helmfile", "metadata": {"name": "shop"},
        "spec": spec});
    story.apply_value(object).await?;
    story.await_ready(&StoryObject::new(version, "Helmfile", "shop")).await?;
    let begin = async { upstream.push(&[("hooks/maps.yaml", config_maps("2"))]).await.map(drop) };
    silenced(&proxy, begin).await?;
    await_audited_once(&story, "2", AuditOperation::Apply).await?;
    ensure!(story.history("app")?.len() == 1, "the release was upgraded");
    ensure!(windlass.operator.is_running()?, "windlass ended");
    story.end().await
}
