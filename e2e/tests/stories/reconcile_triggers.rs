//! Every relevant change wakes windlass at once, without waiting for an interval, a retry or a poll.
//!
//! Every interval and retry is ten minutes long here, and so is the operator's `--requeue-dependency`.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, revision};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_ten_dependencies_comes_up_and_follows_a_commit() -> Result<()> {
    let story = Story::with_windlass("chain").await?;
    let names: Vec<String> = (0..10).map(|at| format!("link-{at}")).collect();
    let paths: Vec<String> = names.iter().map(|name| format!("{name}/a.yaml")).collect();
    let all = |value: &str| -> Vec<(&str, String)> {
        names.iter().zip(&paths).map(|(name, path)| (&**path, config_map(name, value))).collect()
    };
    let upstream = story.follow("app", &all("1")).await?;
    // The last Kustomization is created first, so each finds its dependency missing.
    for (at, name) in names.iter().enumerate().rev() {
        let before = at.checked_sub(1).map(|at| json!([{"name": names[at]}]));
        story.kustomization(name, "app", json!({"path": name, "dependsOn": before})).await?;
    }
    let first = revision(&upstream.repository.hash("main")?);
    story.await_applied(&names[9], &first).await?;
    let second = upstream.push(&all("2")).await?;
    story.await_applied(&names[9], &second).await?;
    for name in &names {
        story.await_value(name, "2").await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_drifts_is_put_back() -> Result<()> {
    let story = Story::with_windlass("drift").await?;
    let labelled = config_map("labelled", "1")
        .replace("{name: labelled}", "{name: labelled, labels: {kept: as-is}}");
    let files = [
        ("a.yaml", config_map("edited", "1")),
        ("b.yaml", config_map("deleted", "1")),
        ("c.yaml", config_map("stripped", "1")),
        ("d.yaml", labelled),
        ("e.yaml", deployment("web", PodBehavior::Ready)),
    ];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let deleted = StoryObject::config_map("deleted");
    let uid = story.expect(&deleted).await?.uid();
    let web = StoryObject::new("apps/v1", "Deployment", "web");

    let owner = "kustomize.toolkit.fluxcd.io/name";
    story.merge(&StoryObject::config_map("edited"), json!({"data": {"value": "edited"}})).await?;
    story.delete(&deleted).await?;
    let without = json!({"metadata": {"labels": {owner: null}}, "data": {"value": "edited"}});
    story.merge(&StoryObject::config_map("stripped"), without).await?;
    story
        .merge(
            &StoryObject::config_map("labelled"),
            json!({"metadata": {"labels": {"kept": "not"}}}),
        )
        .await?;
    story.merge(&web, json!({"spec": {"replicas": 7}})).await?;

    story.await_value("edited", "1").await?;
    story.await_object(&deleted, DEFAULT_WAIT_TIMEOUT, |object| object.uid() != uid).await?;
    story.await_value("stripped", "1").await?;
    let is_labelled = |key: &'static str, value: &'static str| {
        move |object: &kube::api::DynamicObject| {
            object.labels().get(key).is_some_and(|found| found == value)
        }
    };
    story
        .await_object(
            &StoryObject::config_map("stripped"),
            DEFAULT_WAIT_TIMEOUT,
            is_labelled(owner, "app"),
        )
        .await?;
    story
        .await_object(
            &StoryObject::config_map("labelled"),
            DEFAULT_WAIT_TIMEOUT,
            is_labelled("kept", "as-is"),
        )
        .await?;
    story
        .await_object(&web, DEFAULT_WAIT_TIMEOUT, |object| object.data["spec"]["replicas"] == 1)
        .await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependency_that_recovers_or_appears_wakes_those_that_need_it() -> Result<()> {
    let story = Story::with_windlass("dependency").await?;
    let files =
        [("base/a.yaml", config_map("Not_A_Name", "1")), ("app/a.yaml", config_map("app", "1"))];
    let upstream = story.follow("app", &files).await?;
    story
        .kustomization("app", "app", json!({"path": "app", "dependsOn": [{"name": "base"}]}))
        .await?;
    let app = StoryObject::kustomization("app");
    let message = story.await_failure(&app, "DependencyNotReady").await?;
    ensure!(message.contains("not found"), "{message}");
    story.kustomization("base", "app", json!({"path": "base"})).await?;
    story.await_failure(&StoryObject::kustomization("base"), "ReconciliationFailed").await?;
    ensure!(story.read(&StoryObject::config_map("app")).await?.is_none(), "it did not wait");

    let mended = upstream.push(&[("base/a.yaml", config_map("base", "1"))]).await?;
    story.await_applied("app", &mended).await?;
    story.await_value("app", "1").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_or_a_kind_that_appears_wakes_those_that_need_it() -> Result<()> {
    let story = Story::with_windlass("appears").await?;
    let group = format!("{}.test", story.namespace);
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    let message = story.await_failure(&app, "ArtifactFailed").await?;
    ensure!(message.contains("not found"), "{message}");
    let widget = e2e::harness::manifests::widget(&group, "wheel");
    let _upstream = story.follow("app", &[("a.yaml", widget)]).await?;
    let message = story.await_failure(&app, "ReconciliationFailed").await?;
    ensure!(message.contains("Widget"), "{message}");
    story.apply(&e2e::harness::manifests::widget_crd(&group)).await?;
    story.await_ready(&app).await?;
    let crd = format!("widgets.{group}");
    story
        .delete(&StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", &crd))
        .await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_in_our_own_name_is_put_back_at_the_interval() -> Result<()> {
    let story = Story::with_windlass("own-name").await?;
    let _upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    story.kustomization("app", "app", json!({"interval": "2s"})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    // The same manager owns the same fields, so a watch of metadata cannot notice that the values differ.
    let map = story.expect(&StoryObject::config_map("map")).await?;
    let edit = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "map", "labels": map.labels()}, "data": {"value": "edited"}});
    let maps = Api::<ConfigMap>::namespaced(story.client.clone(), &story.namespace);
    let ours = PatchParams::apply("kustomize-controller");
    maps.patch("map", &ours, &Patch::Apply(edit)).await?;
    story.await_value("map", "edited").await?;
    story.await_value("map", "1").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_spells_a_value_differently_changes_nothing() -> Result<()> {
    let story = Story::with_windlass("spelling").await?;
    let quota = |cpu: &str| {
        format!(
            "{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: q}}, spec: {{hard: {{cpu: {cpu:?}}}}}}}"
        )
    };
    let upstream = story.follow("app", &[("q.yaml", quota("1000m"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let revision = upstream.push(&[("q.yaml", quota("1"))]).await?;
    story.await_applied("app", &revision).await?;
    let events = story.events("Kustomization", "app").await?;
    ensure!(!events.iter().any(|event| event.contains("configured")), "{events:#?}");
    // A service that shows the state of commits needs an event about each commit. The events of all stories are recorded one
    // after the other, and one story has 200 Kustomizations.
    let limit = Duration::from_secs(180);
    story
        .await_until("events about both commits", limit, async || {
            let events = story.events("Kustomization", "app").await?;
            let finished =
                events.iter().filter(|event| event.contains("Reconciliation finished in "));
            if finished.count() == 2 {
                return Ok(Some(()));
            }
            Err(anyhow!("its events are {events:#?}"))
        })
        .await?;
    // A commit that changes an object causes an event.
    upstream.push(&[("q.yaml", quota("2"))]).await?;
    story.await_event("Kustomization", "app", "ResourceQuota").await?;
    story.await_event("Kustomization", "app", "configured").await?;
    story.end().await
}
