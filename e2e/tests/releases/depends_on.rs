//! Objects wait for objects of other kinds, and for single releases of a Helmfile (`windlass.dev/depends-on`).

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::helmfiles::{CHART, follow_chart, keep};

const DEPENDS_ON: &str = "windlass.dev/depends-on";

fn says(object: &DynamicObject) -> String {
    condition(object, "Ready")["message"].as_str().unwrap_or_default().to_owned()
}

async fn depend(story: &Story, target: &StoryObject, on: Value) -> Result<()> {
    story.merge(target, json!({"metadata": {"annotations": {DEPENDS_ON: on}}})).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_wait_for_releases_of_a_helmfile_and_cycles_across_kinds_are_reported() -> Result<()>
{
    let story = Story::with_windlass("depends-on").await?;
    let place = story.namespace.clone();
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/config.yaml", CONFIG)]).await?;
    let front = charts.release("front", json!({"suspend": true, "values": {"value": "f"}})).await?;
    depend(&story, &front, json!(format!("Helmfile/{place}/shop#db"))).await?;
    story.merge(&front, json!({"spec": {"suspend": false}})).await?;
    let missing = format!("dependency 'Helmfile/{place}/shop#db' not found");
    story
        .await_object(&front, DEFAULT_WAIT_TIMEOUT, |object| says(object).contains(&missing))
        .await?;

    // One release exists and another fails. An object that needs the first continues, and an object that needs all waits.
    let broken = CONFIG.replace("{{ .Chart.Version }}", "{{ required \"no size\" .Values.size }}");
    let helmfile = "releases:\n- {name: db, chart: ./app}\n- {name: web, chart: ./broken}\n";
    let upstream = follow_chart(
        &story,
        &[
            ("broken/Chart.yaml", CHART.to_owned()),
            ("broken/templates/config.yaml", broken),
            ("helmfile.yaml", helmfile.to_owned()),
            ("all/map.yaml", config_map("all", "1")),
        ],
    )
    .await?;
    story.kustomization("all", "shop", json!({"path": "all", "suspend": true})).await?;
    let all = StoryObject::kustomization("all");
    depend(&story, &all, json!("Helmfile/shop, HelmRelease/front")).await?;
    story.merge(&all, json!({"spec": {"suspend": false}})).await?;
    let shop = keep(&story, "shop", json!({})).await?;
    story.await_failure(&shop, "ReleaseFailed").await?;
    story.await_ready(&front).await?;
    story.await_value("front-config", "f").await?;
    let waits = format!("dependency 'Helmfile/{place}/shop' is not ready");
    story.await_object(&all, DEFAULT_WAIT_TIMEOUT, |object| says(object).contains(&waits)).await?;
    ensure!(story.read(&StoryObject::config_map("all")).await?.is_none(), "it was applied");
    upstream.push(&[("helmfile.yaml", helmfile.replace("./broken", "./app"))]).await?;
    story.await_ready(&shop).await?;
    story.await_value("all", "1").await?;

    // The condition names the path of a dependency cycle across kinds. Changing the annotation ends the cycle.
    depend(&story, &shop, json!("HelmRelease/front")).await?;
    let text = story.await_failure(&shop, "DependencyCycle").await?;
    let path = format!("Helmfile/{place}/shop → HelmRelease/{place}/front → Helmfile/{place}/shop");
    ensure!(text.contains(&path), "{text}");
    depend(&story, &shop, Value::Null).await?;
    story.await_ready(&shop).await?;

    // The condition names a dependency that cannot be read.
    depend(&story, &all, json!("Secret/login")).await?;
    let text = story.await_failure(&all, "InvalidDependency").await?;
    ensure!(text.contains("`Secret/") && text.contains("Kustomization"), "{text}");
    story.end().await
}
