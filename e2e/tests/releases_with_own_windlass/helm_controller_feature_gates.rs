//! Feature gates of Flux's helm-controller that affect releases.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER};
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::servers::registry::{PushedLayer, RegistryServer};
use kube::api::DynamicObject;
use serde_json::json;

const SOURCES: &str = "source.toolkit.fluxcd.io/v1";
const CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

#[tokio::test(flavor = "multi_thread")]
async fn names_are_looked_up_and_digests_are_no_part_of_versions_where_gates_say_so() -> Result<()>
{
    let story = Story::begin("release-gates").await?;
    let gates = "--feature-gates=AllowDNSLookups=true,DisableChartDigestTracking=true";
    let _windlass = WindlassProcess::start_for(&story, &[gates]).await?;
    let charts = StoryChartRepository::of(&story).await?;
    let registry = RegistryServer::start().await?;
    let push = async |label: &str| {
        let found = "  found: {{ getHostByName \"localhost\" | quote }}\n";
        let text = format!("{CONFIG}  label: {label}\n{found}");
        charts.publish("1.0.0", &[("templates/a.yaml", &text)]).await?;
        let url = format!("{}/app-1.0.0.tgz", charts.server.url());
        let bytes = reqwest::get(url).await?.error_for_status()?.bytes().await?.to_vec();
        let layer = PushedLayer { media_type: CHART, bytes };
        registry.push("charts/app", "1.0.0", &[layer], json!({})).await
    };
    let first = push("one").await?;
    let selector = json!({"mediaType": CHART, "operation": "copy"});
    let spec = json!({"interval": NEVER, "url": registry.url("charts/app"), "insecure": true,
        "ref": {"tag": "1.0.0"}, "layerSelector": selector});
    let source = StoryObject::new(SOURCES, "OCIRepository", "app");
    story
        .apply_value(json!({"apiVersion": SOURCES, "kind": "OCIRepository",
            "metadata": {"name": "app"}, "spec": spec}))
        .await?;
    story
        .apply_value(json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "app"},
            "spec": {"interval": NEVER, "chartRef": {"kind": "OCIRepository", "name": "app"}}}))
        .await?;
    let app = StoryObject::helm_release("app");
    let object = story.await_revision(&app, 1).await?;
    let known = newest(&object);
    ensure!(known["chartVersion"] == "1.0.0" && known["ociDigest"] == first.as_str(), "{known}");
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    let found = config.data["data"]["found"].as_str().unwrap_or_default();
    ensure!(["127.0.0.1", "::1"].contains(&found), "{:?}", config.data);

    // A moved tag is the same version, so nothing is upgraded.
    let second = push("two").await?;
    story.request(&source).await?;
    let is_moved = |it: &DynamicObject| {
        it.data["status"]["artifact"]["revision"].as_str().is_some_and(|it| it.contains(&second))
    };
    story.await_object(&source, DEFAULT_WAIT_TIMEOUT, is_moved).await?;
    story.rerun(&app).await?;
    ensure!(story.history("app")?.len() == 1, "{:?}", story.history("app")?);
    story.end().await
}
