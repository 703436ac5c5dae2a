//! `suspend`, `resume`, `reconcile` and `values`: their changes and their output.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{StoryChartRepository, by_value};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::json;

use crate::cli::{is_asked_for, windlass};

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_has_an_owner_and_a_reason_and_ends_with_resume() -> Result<()> {
    let story = Story::with_windlass("acting").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;

    let arguments =
        ["suspend", "ks/app", "--reason", "migration", "--until", "2h", "--owner", "alice"];
    let said = windlass(&story, &arguments)?;
    ensure!(said.code == Some(0) && said.err.contains("is suspended by alice until "), "{said:?}");
    let table = windlass(&story, &["get", "ks"])?.ended(0)?;
    ensure!(table.contains("alice until "), "{table}");
    let said = windlass(&story, &["reconcile", "ks/app"])?;
    ensure!(said.code == Some(2) && said.err.contains("`windlass resume`"), "{said:?}");
    let second = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    let is_new = |object: &DynamicObject| object.data["status"]["artifact"]["revision"] == second;
    story.await_object(&StoryObject::git_repository("app"), DEFAULT_WAIT_TIMEOUT, is_new).await?;
    story.await_value("a", "1").await?;

    let said = windlass(&story, &["resume", "ks/app", "--wait"])?;
    ensure!(said.code == Some(0) && said.err.contains("Applied revision"), "{said:?}");
    story.await_value("a", "2").await?;
    let object = story.expect(&app).await?;
    ensure!(object.data["spec"]["suspend"] != true && is_asked_for(&object), "{object:?}");
    let said = windlass(&story, &["resume", "ks/app"])?;
    ensure!(said.code == Some(0) && said.err.contains("is not suspended"), "{said:?}");

    // Without `--owner`, the owner is the user. Several objects need `--all`.
    let said = windlass(&story, &["suspend", "ks"])?;
    ensure!(said.code == Some(2) && said.err.contains("--all"), "{said:?}");
    windlass(&story, &["suspend", "all", "--all"])?.ended(0)?;
    let object = story.expect(&app).await?;
    let owner = object.annotations().get("windlass.dev/suspended-by").cloned().unwrap_or_default();
    ensure!(object.data["spec"]["suspend"] == true && !owner.is_empty(), "{object:?}");
    windlass(&story, &["resume", "all", "--all"])?.ended(0)?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_depend_on_each_other_are_resumed_together() -> Result<()> {
    let story = Story::with_windlass("acting-resume").await?;
    let files = [("app/a.yaml", config_map("a", "1")), ("base/b.yaml", config_map("b", "1"))];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("base", "app", json!({"path": "base"})).await?;
    let depends = json!({"path": "app", "dependsOn": [{"name": "base"}]});
    story.kustomization("app", "app", depends).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    windlass(&story, &["suspend", "ks", "--all"])?.ended(0)?;
    // `app` comes first, but is not ready before `base`.
    windlass(&story, &["resume", "ks", "--all", "--wait", "--timeout", "1m"])?.ended(0)?;
    for name in ["app", "base"] {
        let object = story.expect(&StoryObject::kustomization(name)).await?;
        ensure!(object.data["spec"]["suspend"] != true, "{object:?}");
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciliation_begins_with_the_source_and_is_followed_to_its_end() -> Result<()> {
    let story = Story::with_windlass("acting-reconcile").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    upstream.repository.commit(&[("a.yaml", config_map("a", "2").as_str())], "a change")?;
    let said = windlass(&story, &["reconcile", "ks/app", "--with-source"])?;
    ensure!(said.code == Some(0), "{said:?}");
    story.await_value("a", "2").await?;
    upstream.repository.commit(&[("a.yaml", "a: [1\n")], "a mistake")?;
    let said = windlass(&story, &["reconcile", "ks/app", "--with-source", "--wait"])?;
    ensure!(said.code == Some(2) && said.err.contains("is not ready: "), "{said:?}");
    ensure!(said.err.contains("a.yaml"), "{said:?}");
    windlass(&story, &["suspend", "gitrepo/app"])?.ended(0)?;
    let said = windlass(&story, &["reconcile", "ks/app", "--with-source", "--no-wait"])?;
    let skipped = format!("GitRepository/{}/app is suspended and was not", story.namespace);
    ensure!(said.code == Some(0) && said.err.contains(&skipped), "{said:?}");
    let said = windlass(&story, &["reconcile", "ks/app", "--reset"])?;
    ensure!(said.code == Some(2) && said.err.contains("for HelmReleases"), "{said:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_value_of_a_release_has_a_source_and_secrets_stay_hidden() -> Result<()> {
    let story = Story::with_windlass("acting-values").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", by_value().as_str())]).await?;
    charts.seen().await?;
    let objects = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: defaults}, data: {values.yaml: 'value: low, other: 1'}}
---
{apiVersion: v1, kind: Secret, metadata: {name: hidden}, stringData: {values.yaml: 'password: hunter2'}}
";
    story.apply(&objects.replace("value: low, other: 1", "{value: low, other: 1}")).await?;
    let from =
        json!([{"kind": "ConfigMap", "name": "defaults"}, {"kind": "Secret", "name": "hidden"}]);
    charts.release("app", json!({"valuesFrom": from, "values": {"value": "high"}})).await?;
    let leaves = windlass(&story, &["values", "app", "-o", "json"])?.json(0)?;
    let expected = json!([
        {"path": "other", "value": 1, "source": "ConfigMap/defaults:values.yaml", "overrode": []},
        {"path": "password", "value": "****", "source": "Secret/hidden:values.yaml", "overrode": []},
        {"path": "value", "value": "high", "source": "spec.values",
            "overrode": ["ConfigMap/defaults:values.yaml"]},
    ]);
    ensure!(leaves == expected, "{leaves:#}");
    for format in ["table", "yaml", "json"] {
        let text = windlass(&story, &["values", "app", "-o", format])?.ended(0)?;
        ensure!(!text.contains("hunter2") && text.contains("****"), "{text}");
    }
    story.end().await
}
