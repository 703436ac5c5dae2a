//! windlass notices a change of a release's object at once. It reports or corrects the change, unless the change is ignored.

use anyhow::{Context as _, Result, ensure};
use crds::helm::HelmRelease;
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition, ready_until};
use e2e::harness::{Story, StoryObject};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_corrected_without_waiting_for_the_interval() -> Result<()> {
    let story = Story::with_windlass("release-drift").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let ignore = json!([{"paths": ["/data/extra", "/data/chart"]}]);
    let drift = json!({"mode": "enabled", "ignore": ignore});
    let app = charts.release("app", json!({"driftDetection": drift})).await?;
    story.await_revision(&app, 1).await?;
    let config = StoryObject::config_map("app-config");
    story.merge(&config, json!({"data": {"value": "drifted"}})).await?;
    story
        .await_object(&config, DEFAULT_WAIT_TIMEOUT, |object| {
            object.data["data"]["value"] == "none"
        })
        .await?;
    story.await_event("HelmRelease", "app", "has drifted from the desired state").await?;
    story.await_event("HelmRelease", "app", "has been corrected").await?;
    story.delete(&config).await?;
    story
        .await_until("it to be there again", DEFAULT_WAIT_TIMEOUT, async || {
            story.read(&config).await
        })
        .await?;
    // An ignored field stays.
    story.merge(&config, json!({"data": {"chart": "mine"}})).await?;
    story.rerun(&app).await?;
    ensure!(story.expect(&config).await?.data["data"]["chart"] == "mine");
    // Without the ignore rule, the field gets the value of the chart again, although the manifest is unchanged.
    story.merge(&app, json!({"spec": {"driftDetection": {"ignore": null}}})).await?;
    story
        .await_object(&config, DEFAULT_WAIT_TIMEOUT, |object| {
            object.data["data"]["chart"] != "mine"
        })
        .await?;
    ensure!(story.history("app")?.len() == 1, "a correction makes no revision");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correction_that_a_namespace_rejects_is_reported_with_the_namespace() -> Result<()> {
    let story = Story::with_windlass("release-drift-leaving").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let name = format!("{}-leaving", story.namespace);
    let namespace = StoryObject::new("v1", "Namespace", &name);
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    story.apply_value(object).await?;
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held",
        "namespace": name, "finalizers": ["example.com/hold"]}});
    story.apply_value(held).await?;
    let more = json!({"targetNamespace": name, "releaseName": "app",
        "driftDetection": {"mode": "enabled"}});
    let app = charts.release("app", more).await?;
    story.await_revision(&app, 1).await?;
    story.delete(&namespace).await?;
    let text = story.await_failure(&app, "DriftCorrectionFailed").await?;
    let refused = format!("in namespace {name} because it is being terminated");
    ensure!(text.contains("app-config") && text.contains(&refused), "{text}");
    story.await_event("HelmRelease", "app", "Failed to correct cluster state of release").await?;
    let held = StoryObject::config_map("held").in_namespace(&name);
    story.merge(&held, json!({"metadata": {"finalizers": null}})).await?;
    story.await_gone(&namespace, DEFAULT_WAIT_TIMEOUT).await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_only_reported_where_that_is_asked_for() -> Result<()> {
    let story = Story::with_windlass("release-drift-told").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({"driftDetection": {"mode": "warn"}})).await?;
    story.await_revision(&app, 1).await?;
    let config = StoryObject::config_map("app-config");
    story.merge(&config, json!({"data": {"value": "drifted"}})).await?;
    let object = story
        .await_object(&app, DEFAULT_WAIT_TIMEOUT, |object| {
            condition(object, "Drifted")["status"] == "True"
        })
        .await?;
    let drifted = condition(&object, "Drifted");
    let line = format!(
        "ConfigMap/{}/app-config changed (0 additions, 1 changes, 0 removals): /data/value",
        story.namespace
    );
    ensure!(drifted["message"].as_str().is_some_and(|it| it.ends_with(&line)), "{drifted}");
    ensure!(story.expect(&config).await?.data["data"]["value"] == "drifted");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rival_of_a_release_is_named_and_left_alone_for_a_while() -> Result<()> {
    let story = Story::with_windlass("release-rival").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let drift = json!({"driftDetection": {"mode": "enabled"}});
    let app = charts.release("app", drift).await?;
    story.await_revision(&app, 1).await?;
    let config = StoryObject::config_map("app-config");
    let api = Api::<ConfigMap>::namespaced(story.client.clone(), &story.namespace);
    let rival = PatchParams { field_manager: Some("rival".to_owned()), ..PatchParams::default() };
    let mut edits = 0;
    let fight = async || {
        let object = story.expect(&app).await?;
        if condition(&object, "Ready")["reason"] == "Contested" {
            return Ok(Some(object));
        }
        if story.expect(&config).await?.data["data"]["value"] == "none" {
            let patch = json!({"data": {"value": "mine"}});
            api.patch("app-config", &rival, &Patch::Merge(patch)).await?;
            edits += 1;
        }
        Ok(None)
    };
    let contested = story.await_until("the fight to end", DEFAULT_WAIT_TIMEOUT * 2, fight).await?;
    ensure!((10..=12).contains(&edits), "it was corrected after {edits} edits");
    let ready = condition(&contested, "Ready");
    let named = format!(
        "ConfigMap/{}/app-config is contested: field manager 'rival' repeatedly sets /data/value",
        story.namespace
    );
    let message = ready["message"].as_str().unwrap_or_default();
    ensure!(ready["status"] == "False" && message.starts_with(&named), "{ready}");
    let rule = r#"or add the rule {"paths":["/data/value"],"target":{"#;
    ensure!(message.contains(rule), "{ready}");
    ensure!(message.ends_with("}} to spec.driftDetection.ignore"), "{ready}");
    story.await_event("HelmRelease", "app", "'rival'").await?;
    // A request leads to a correction at once, but the release still counts as contested.
    let version = contested.metadata.resource_version.context("it has a version")?;
    let releases = Api::<HelmRelease>::namespaced(story.client.clone(), &story.namespace);
    let is_ignored = |object: &HelmRelease| {
        object.spec.drift_detection.as_ref().is_some_and(|drift| !drift.ignore.is_empty())
    };
    let statuses = tokio::spawn(ready_until(releases, "app", version, is_ignored));
    let token = story.request(&app).await?;
    story
        .await_object(&config, DEFAULT_WAIT_TIMEOUT, |object| {
            object.data["data"]["value"] == "none"
        })
        .await?;
    story
        .await_object(&app, DEFAULT_WAIT_TIMEOUT, |object| {
            object.data["status"]["lastHandledReconcileAt"] == token
                && condition(object, "Ready")["reason"] == "Contested"
        })
        .await?;
    // The conflict ends long before the pause if the field is left to the other writer.
    let patch = json!({"data": {"value": "mine"}});
    api.patch("app-config", &rival, &Patch::Merge(patch)).await?;
    let ignore = json!([{"paths": ["/data/value"]}]);
    let drift = json!({"driftDetection": {"mode": "enabled", "ignore": ignore}});
    charts.release("app", drift).await?;
    story.await_ready(&app).await?;
    let statuses = statuses.await??;
    ensure!(!statuses.is_empty() && !statuses.iter().any(|it| it == "True"), "{statuses:?}");
    ensure!(story.expect(&config).await?.data["data"]["value"] == "mine");
    story.end().await
}
