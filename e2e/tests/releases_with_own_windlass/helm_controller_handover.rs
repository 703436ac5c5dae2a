//! Flux's helm-controller and windlass replace each other. Each takes over the releases of the other without an upgrade. A
//! label decides which of them reconciles a HelmRelease, as with shards.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::{
    CONFIG, StoryChartRepository, hook, newest, test_pod,
};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::manifests::PodBehavior;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::operator_process::OperatorProcess;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use testbed::upstream_programs::UpstreamProgram;

const LABEL: &str = "sharding.fluxcd.io/key";

/// Starts a windlass that leaves labelled objects to Flux.
async fn windlass(story: &Story) -> Result<WindlassProcess> {
    WindlassProcess::start_for(story, &[&format!("--watch-label-selector={LABEL} notin (flux)")])
        .await
}

/// Starts Flux's controller for labelled objects.
async fn helm_controller(story: &Story) -> Result<OperatorProcess> {
    let selector = format!("--watch-label-selector={LABEL} in (flux)");
    let flags = ["--watch-all-namespaces=false", selector.as_str()];
    story.flux_controller(UpstreamProgram::HelmController, &flags).await
}

/// Labels a HelmRelease for one of them, requests a reconciliation, and waits until it is done.
async fn give(story: &Story, app: &StoryObject, to: Option<&str>) -> Result<DynamicObject> {
    story.merge(app, json!({"metadata": {"labels": {LABEL: to}}})).await?;
    let token = story.request(app).await?;
    let is_handled = |it: &DynamicObject| {
        let status = &it.data["status"];
        status["lastHandledReconcileAt"] == token
            && condition(it, "Ready")["status"] == "True"
            && condition(it, "Reconciling").is_null()
    };
    let outcome = story.await_object(app, DEFAULT_WAIT_TIMEOUT, is_handled).await;
    outcome.with_context(|| format!("{app} was not reconciled after it was given to {to:?}"))
}

/// The data that must not change when another controller takes over: the release in the status, its records, and its objects.
async fn stand(story: &Story, object: &DynamicObject, name: &str) -> Result<Value> {
    let status = &object.data["status"];
    let said = [
        "history",
        "inventory",
        "lastAttemptedRevision",
        "lastAttemptedConfigDigest",
        "lastAttemptedReleaseAction",
        "observedPostRenderersDigest",
        "observedCommonMetadataDigest",
        "storageNamespace",
        "helmChart",
        "installFailures",
        "upgradeFailures",
        "failures",
    ];
    let said: Value = said.iter().map(|key| ((*key).to_owned(), status[*key].clone())).collect();
    let version = newest(object)["version"].to_string();
    let record = format!("sh.helm.release.v1.{name}.v{version}");
    let mut versions = Vec::new();
    for target in [
        StoryObject::new("v1", "Secret", &record),
        StoryObject::config_map(&format!("{name}-config")),
    ] {
        versions.push(story.expect(&target).await?.metadata.resource_version);
    }
    Ok(json!({"status": said, "versions": versions, "helm": story.history(name)?}))
}

/// Creates a chart with a hook and a test, and two HelmReleases for it. One is plain, and the other uses all fields with a
/// digest.
async fn begin(
    story: &Story,
    charts: &StoryChartRepository<'_>,
    of: Option<&str>,
) -> Result<[StoryObject; 2]> {
    let name = "{{ .Release.Name }}";
    let migrate =
        hook(&format!("{name}-migrate"), "pre-install,pre-upgrade", 0, "", PodBehavior::Ready);
    let probe = test_pod(&format!("{name}-probe"), PodBehavior::Ready);
    let files = [
        ("templates/a.yaml", CONFIG),
        ("templates/h.yaml", migrate.as_str()),
        ("templates/t.yaml", probe.as_str()),
        ("templates/NOTES.txt", "Thank you for {{ .Release.Name }}\n"),
        ("values.yaml", "value: default\nnumber: 1.50\nnothing: null\n"),
    ];
    charts.publish("1.0.0", &files).await?;
    story
        .apply_value(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"},
            "data": {"values.yaml": "list: [1, two, 3.0]\nbig: 12345678901\n"}}))
        .await?;
    let chart = json!({"spec": {"chart": "app", "version": "*",
        "sourceRef": {"kind": "HelmRepository", "name": "charts"}}});
    let patch = "- {op: add, path: /data/patched, value: \"yes\"}";
    let plain = json!({"interval": NEVER, "chart": chart, "values": {"value": "one"},
        "test": {"enable": true}});
    let dressed = json!({"interval": NEVER, "chart": chart, "values": {"value": "one"},
        "valuesFrom": [{"kind": "ConfigMap", "name": "own"}],
        "commonMetadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
        "postRenderers": [{"kustomize": {"patches": [
            {"target": {"kind": "ConfigMap"}, "patch": patch}]}}],
        "driftDetection": {"mode": "enabled"}, "maxHistory": 3});
    let labels = of.map_or_else(|| json!({}), |of| json!({LABEL: of}));
    for (name, spec) in [("plain", plain), ("dressed", dressed)] {
        let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": name, "labels": labels}, "spec": spec});
        story.apply_value(object).await?;
    }
    Ok([StoryObject::helm_release("plain"), StoryObject::helm_release("dressed")])
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "builds helm-controller: cargo xtask test --thorough"
)]
async fn what_flux_released_is_taken_over_as_it_is_and_can_be_given_back() -> Result<()> {
    let story = Story::begin("release-of-flux").await?;
    let _windlass = windlass(&story).await?;
    let charts = StoryChartRepository::of(&story).await?;
    let mut flux = helm_controller(&story).await?;
    let apps = begin(&story, &charts, Some("flux")).await?;
    for (app, name) in apps.iter().zip(["plain", "dressed"]) {
        let object = story.await_revision(app, 1).await?;
        let before = stand(&story, &object, name).await?;
        let after = stand(&story, &give(&story, app, None).await?, name).await?;
        let record = format!("secrets/sh.helm.release.v1.{name}.v1");
        let writes = story.writes()?;
        ensure!(!writes.iter().any(|it| it.what.ends_with(&record)), "{writes:#?}");
        ensure!(before == after, "windlass changed {name}:\n{before:#}\n{after:#}");
        // From now on, it is an ordinary release.
        story.merge(app, json!({"spec": {"values": {"value": "two"}}})).await?;
        let object = story.await_revision(app, 2).await?;
        ensure!(object.data["status"]["history"][1]["status"] == "superseded", "{:?}", object.data);
        let before = stand(&story, &object, name).await?;
        let after = stand(&story, &give(&story, app, Some("flux")).await?, name).await?;
        ensure!(before == after, "helm-controller changed {name}:\n{before:#}\n{after:#}");
        story.merge(app, json!({"spec": {"values": {"value": "three"}}})).await?;
        story.await_revision(app, 3).await?;
        give(&story, app, None).await?;
        ensure!(story.history(name)?.len() == 3, "{:?}", story.history(name)?);
        story.delete(app).await?;
        story.await_gone(app, DEFAULT_WAIT_TIMEOUT).await?;
        story
            .await_gone(&StoryObject::config_map(&format!("{name}-config")), DEFAULT_WAIT_TIMEOUT)
            .await?;
    }
    ensure!(flux.is_running()?, "helm-controller ended:\n{}", flux.tail(30));
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "builds helm-controller: cargo xtask test --thorough"
)]
async fn what_windlass_released_is_taken_over_by_flux_as_it_is() -> Result<()> {
    let story = Story::begin("release-to-flux").await?;
    let mut own = windlass(&story).await?;
    let charts = StoryChartRepository::of(&story).await?;
    let apps = begin(&story, &charts, None).await?;
    for app in &apps {
        story.await_revision(app, 1).await?;
        story.merge(app, json!({"spec": {"values": {"value": "two"}}})).await?;
        story.await_revision(app, 2).await?;
    }
    let mut flux = helm_controller(&story).await?;
    for (app, name) in apps.iter().zip(["plain", "dressed"]) {
        let before = stand(&story, &story.expect(app).await?, name).await?;
        let after = stand(&story, &give(&story, app, Some("flux")).await?, name).await?;
        ensure!(before == after, "helm-controller changed {name}:\n{before:#}\n{after:#}");
        // Flux removes the release. Only the sources of windlass still run.
        story.delete(app).await?;
        story.await_gone(app, DEFAULT_WAIT_TIMEOUT).await?;
        story
            .await_gone(&StoryObject::config_map(&format!("{name}-config")), DEFAULT_WAIT_TIMEOUT)
            .await?;
    }
    ensure!(flux.is_running()?, "helm-controller ended:\n{}", flux.tail(30));
    ensure!(own.operator.is_running()?, "windlass ended");
    story.end().await
}
