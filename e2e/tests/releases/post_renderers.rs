//! The spec changes rendered manifests: which manifests change, and that a new spec makes a new revision.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, hook};
use e2e::harness::manifests::{PodBehavior, deployment};
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::{Value, json};

fn renderers(tag: &str) -> Value {
    let patch = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: any}\ndata: {value: patched}\n";
    let patches = json!([{"patch": patch, "target": {"kind": "ConfigMap"}}]);
    let images =
        json!([{"name": "example.com/app", "newName": "example.com/mirror", "newTag": tag}]);
    json!([{"kustomize": {"patches": patches}}, {"kustomize": {"images": images}}])
}

fn label(object: &DynamicObject, key: &str) -> Option<String> {
    object.metadata.labels.as_ref()?.get(key).cloned()
}

fn image(object: &DynamicObject) -> &Value {
    &object.data["spec"]["template"]["spec"]["containers"][0]["image"]
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_and_images_reach_what_the_strategy_says() -> Result<()> {
    let story = Story::with_windlass("release-rendered").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let web = deployment("{{ .Release.Name }}", PodBehavior::Ready);
    let after =
        hook("{{ .Release.Name }}-hook", "post-install,post-upgrade", 0, "", PodBehavior::Ready);
    let files =
        [("templates/a.yaml", CONFIG), ("templates/d.yaml", &web), ("templates/h.yaml", &after)];
    charts.publish("1.0.0", &files).await?;
    let plain = "example.com/app:1";
    let changed = "example.com/mirror:7";
    for (strategy, of_hook) in [("combined", changed), ("separate", changed), ("nohooks", plain)] {
        let metadata = json!({"labels": {"team": "blue"}, "annotations": {"note": "x"}});
        let more = json!({"postRenderers": renderers("7"), "postRenderStrategy": strategy,
            "commonMetadata": metadata});
        let app = charts.release(strategy, more).await?;
        story.await_revision(&app, 1).await?;
        let config = story.expect(&StoryObject::config_map(&format!("{strategy}-config"))).await?;
        ensure!(config.data["data"]["value"] == "patched", "{strategy}: {:?}", config.data);
        ensure!(label(&config, "team").as_deref() == Some("blue"), "{strategy}");
        ensure!(config.metadata.annotations.as_ref().is_some_and(|it| it.contains_key("note")));
        let web = story.expect(&StoryObject::new("apps/v1", "Deployment", strategy)).await?;
        ensure!(image(&web) == changed, "{strategy}: {}", image(&web));
        let hook =
            story.expect(&StoryObject::new("batch/v1", "Job", &format!("{strategy}-hook"))).await?;
        ensure!(image(&hook) == of_hook, "{strategy}: {}", image(&hook));
        let is_dressed = of_hook == changed;
        for key in ["team", "helm.toolkit.fluxcd.io/name"] {
            ensure!(label(&hook, key).is_some() == is_dressed, "{strategy}: {key}");
        }
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn other_post_renderers_or_metadata_are_another_revision() -> Result<()> {
    let story = Story::with_windlass("release-rerendered").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let web = deployment("web", PodBehavior::Ready);
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/d.yaml", &web)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    story.merge(&app, json!({"spec": {"postRenderers": renderers("7")}})).await?;
    story.await_revision(&app, 2).await?;
    let web = StoryObject::new("apps/v1", "Deployment", "web");
    ensure!(image(&story.expect(&web).await?) == "example.com/mirror:7");
    story.merge(&app, json!({"spec": {"postRenderers": renderers("8")}})).await?;
    story.await_revision(&app, 3).await?;
    ensure!(image(&story.expect(&web).await?) == "example.com/mirror:8");
    story.merge(&app, json!({"spec": {"commonMetadata": {"labels": {"team": "blue"}}}})).await?;
    story.await_revision(&app, 4).await?;
    ensure!(label(&story.expect(&web).await?, "team").as_deref() == Some("blue"));
    story.merge(&app, json!({"spec": {"commonMetadata": null, "postRenderers": null}})).await?;
    story.await_revision(&app, 5).await?;
    let live = story.expect(&web).await?;
    ensure!(image(&live) == "example.com/app:1" && label(&live, "team").is_none());

    // A post-renderer that cannot be built is named by its position.
    let bad = json!([{"kustomize": {}}, {"kustomize": {"patches": [{"patch": "kind: [", "target": {"kind": "ConfigMap"}}]}}]);
    story.merge(&app, json!({"spec": {"postRenderers": bad}})).await?;
    let text = story.await_failure(&app, "UpgradeFailed").await?;
    ensure!(text.contains("spec.postRenderers[1]"), "{text}");
    story.rerun(&app).await?;
    story.await_failure(&app, "UpgradeFailed").await.context("at the next run")?;
    ensure!(story.history("app")?.len() == 5, "{:?}", story.history("app")?);
    story.end().await
}
