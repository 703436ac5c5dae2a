//! Charts that do not come from a chart template: from a HelmChart, from a registry, and from sources of others.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER};
use e2e::harness::{Story, StoryObject};
use e2e::servers::registry::{PushedLayer, RegistryServer};
use kube::api::DynamicObject;
use serde_json::{Value, json};

const SOURCES: &str = "source.toolkit.fluxcd.io/v1";
const CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

async fn release(story: &Story, name: &str, kind: &str) -> Result<StoryObject> {
    let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {"name": name},
        "spec": {"interval": NEVER, "chartRef": {"kind": kind, "name": name}}});
    story.apply_value(object).await?;
    Ok(StoryObject::helm_release(name))
}

/// The packed archive of a version of the chart `app`.
async fn packed(charts: &StoryChartRepository<'_>, version: &str) -> Result<Vec<u8>> {
    let url = format!("{}/app-{version}.tgz", charts.server.url());
    Ok(reqwest::get(url).await?.error_for_status()?.bytes().await?.to_vec())
}

async fn apply(story: &Story, api: &str, kind: &str, name: &str, spec: Value) -> Result<()> {
    let object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec});
    story.apply_value(object).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helm_chart_of_its_own_is_released_and_outlives_the_release() -> Result<()> {
    let story = Story::with_windlass("release-chart-ref").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = release(&story, "app", "HelmChart").await?;
    let text = story.await_failure(&app, "ArtifactFailed").await?;
    ensure!(text.contains("not found; create it or correct spec.chartRef"), "{text}");
    let source = json!({"kind": "HelmRepository", "name": "charts"});
    let spec = json!({"interval": NEVER, "chart": "app", "version": "*", "sourceRef": source});
    apply(&story, SOURCES, "HelmChart", "app", spec).await?;
    let object = story.await_revision(&app, 1).await?;
    ensure!(newest(&object)["chartVersion"] == "1.0.0", "{}", newest(&object));
    ensure!(object.data["status"]["helmChart"].is_null(), "it is not ours");
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    story.await_revision(&app, 2).await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&StoryObject::helm_chart("app")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_of_a_registry_has_the_digest_of_its_artifact_in_its_version() -> Result<()> {
    let story = Story::with_windlass("release-oci").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let registry = RegistryServer::start().await?;
    let push = async |label: &str| {
        // The same version is published twice, as if a developer moved a tag.
        let text = format!("{CONFIG}  label: {label}\n");
        charts.publish("1.0.0", &[("templates/a.yaml", &text)]).await?;
        let layer = PushedLayer { media_type: CHART, bytes: packed(&charts, "1.0.0").await? };
        registry.push("charts/app", "1.0.0", &[layer], json!({})).await
    };
    let first = push("one").await?;
    let selector = json!({"mediaType": CHART, "operation": "copy"});
    let spec = json!({"interval": NEVER, "url": registry.url("charts/app"), "insecure": true,
        "ref": {"tag": "1.0.0"}, "layerSelector": selector});
    apply(&story, SOURCES, "OCIRepository", "app", spec).await?;
    let app = release(&story, "app", "OCIRepository").await?;
    let version = |digest: &str| {
        let short: String = digest.trim_start_matches("sha256:").chars().take(12).collect();
        format!("1.0.0+{short}")
    };
    let object = story.await_revision(&app, 1).await?;
    let known = newest(&object);
    ensure!(
        known["chartVersion"] == version(&first) && known["ociDigest"] == first.as_str(),
        "{known}"
    );
    let status = &object.data["status"];
    ensure!(status["lastAttemptedRevision"] == version(&first), "{status}");
    ensure!(status["lastAttemptedRevisionDigest"] == first.as_str(), "{status}");
    let history = story.history("app")?;
    ensure!(history[0].contains(&format!("app-{}", version(&first))), "{history:?}");

    let second = push("two").await?;
    story.request(&StoryObject::new(SOURCES, "OCIRepository", "app")).await?;
    let object = story.await_revision(&app, 2).await?;
    ensure!(newest(&object)["chartVersion"] == version(&second), "{}", newest(&object));
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(config.data["data"]["label"] == "two", "{:?}", config.data);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_that_others_offer_is_released() -> Result<()> {
    let story = Story::with_windlass("release-offered").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = release(&story, "app", "ExternalArtifact").await?;
    let server = e2e::servers::web::FileWebServer::start().await?;
    let url = server.put("app.tar.gz", packed(&charts, "1.0.0").await?);
    let spec = json!({"interval": NEVER, "url": url});
    apply(&story, "source.windlass.dev/v1alpha1", "HTTPArchive", "app", spec).await?;
    let is_released = |it: &DynamicObject| {
        let version = newest(it)["chartVersion"].as_str().unwrap_or_default();
        version.len() == "1.0.0+".len() + 12 && version.starts_with("1.0.0+")
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_released).await?;
    story.await_revision(&app, 1).await?;
    story.expect(&StoryObject::config_map("app-config")).await?;
    story.end().await
}
