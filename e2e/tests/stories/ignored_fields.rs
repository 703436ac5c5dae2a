//! windlass leaves ignored fields to others, and keeps all other fields as declared.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

fn scaled() -> Value {
    json!([{"paths": ["/spec/replicas"], "target": {"kind": "Deployment"}}])
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_an_autoscaler_set_outlive_drift_and_new_revisions() -> Result<()> {
    let story = Story::with_windlass("ignore").await?;
    let manifest = deployment("web", PodBehavior::Ready);
    let upstream = story.follow("app", &[("a.yaml", manifest.clone())]).await?;
    story.kustomization("app", "app", json!({"ignore": scaled()})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let web = StoryObject::new("apps/v1", "Deployment", "web");
    let before = story.expect(&web).await?;
    ensure!(before.data["spec"]["replicas"] == 1, "{:?}", before.data["spec"]);

    story.merge(&web, json!({"spec": {"replicas": 0}})).await?;
    // The correction of another field shows that the object was compared after the change.
    let owner = "kustomize.toolkit.fluxcd.io/name";
    story.merge(&web, json!({"metadata": {"labels": {owner: null}}})).await?;
    let is_owned = |object: &DynamicObject| object.labels().contains_key(owner);
    let corrected = story.await_object(&web, DEFAULT_WAIT_TIMEOUT, is_owned).await?;
    ensure!(corrected.data["spec"]["replicas"] == 0, "{:?}", corrected.data["spec"]);

    let more = manifest.replacen(
        "metadata: {name: web",
        "metadata: {name: web, annotations: {at: second}",
        1,
    );
    ensure!(more != manifest, "the manifest is written in another way: {manifest}");
    let second = upstream.push(&[("a.yaml", more), ("b.yaml", config_map("other", "1"))]).await?;
    story.await_applied("app", &second).await?;
    let annotated = story
        .await_object(&web, DEFAULT_WAIT_TIMEOUT, |object| {
            object.annotations().get("at").is_some_and(|at| at == "second")
        })
        .await?;
    ensure!(annotated.data["spec"]["replicas"] == 0, "{:?}", annotated.data["spec"]);

    // Without the ignore rule, the field gets the value of the manifest again, although the manifest is unchanged.
    story.merge(&StoryObject::kustomization("app"), json!({"spec": {"ignore": null}})).await?;
    let is_scaled = |object: &DynamicObject| object.data["spec"]["replicas"] == 1;
    story.await_object(&web, DEFAULT_WAIT_TIMEOUT, is_scaled).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_ignored_stays_with_kubectl() -> Result<()> {
    let story = Story::with_windlass("ignore-kubectl").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let rule = json!([{"paths": ["/data/value"], "target": {"kind": "ConfigMap"}}]);
    story.kustomization("app", "app", json!({"ignore": rule})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    let maps = Api::<ConfigMap>::namespaced(story.client.clone(), &story.namespace);
    let kubectl =
        PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
    let patch = json!({"data": {"value": "mine"}});
    let edited = maps.patch("a", &kubectl, &Patch::Merge(patch)).await?;
    story.rerun(&app).await?;
    let now = maps.get("a").await?;
    ensure!(now.resource_version() == edited.resource_version(), "it was written: {now:?}");
    story.await_ready(&app).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_cannot_be_read_is_reported_and_nothing_is_applied() -> Result<()> {
    let story = Story::with_windlass("ignore-bad").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let rule = json!([{"paths": ["/data"], "target": {"kind": "("}}]);
    story.kustomization("app", "app", json!({"ignore": rule})).await?;
    let app = StoryObject::kustomization("app");
    let stalled = story.await_condition(&app, "Stalled", "True", DEFAULT_WAIT_TIMEOUT).await?;
    let message = condition(&stalled, "Stalled")["message"].as_str().unwrap_or_default().to_owned();
    ensure!(
        message.contains("spec.ignore: target.kind is not a valid regular expression"),
        "{message}"
    );
    ensure!(story.read(&StoryObject::config_map("a")).await?.is_none(), "it was applied");
    story.end().await
}
