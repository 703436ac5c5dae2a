//! A namespace that requires verified sources. Its objects apply nothing from other sources.

use anyhow::{Context as _, Result, ensure};
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::signed_commits::{verified, verify};
use super::verification_keys::{SigningKey, put_keys};

async fn require(story: &Story, value: Value) -> Result<()> {
    let namespace = StoryObject::new("v1", "Namespace", &story.namespace);
    let patch = json!({"metadata": {"annotations": {"windlass.dev/require-verified": value}}});
    story.merge(&namespace, patch).await.map(drop)
}

/// Waits until an object is refused for this reason.
async fn refused(story: &Story, target: &StoryObject, reason: &str, says: &str) -> Result<()> {
    let object = story.await_object(target, DEFAULT_WAIT_TIMEOUT, |object: &DynamicObject| {
        let ready = condition(object, "Ready");
        let message = ready["message"].as_str().unwrap_or_default();
        ready["status"] == "False" && ready["reason"] == reason && message.contains(says)
    });
    object.await.map(drop).with_context(|| format!("{target}: {reason}: {says}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_verified_is_not_applied_in_a_namespace_that_requires_it() -> Result<()> {
    let story = Story::with_windlass("verified-only").await?;
    let upstream = story.follow("app", &[("k/a.yaml", config_map("a", "1"))]).await?;
    let repository = &upstream.repository;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({"path": "k"})).await?;
    story.await_value("a", "1").await?;

    // The policy wakes its appliers. The applied objects stay, and nothing new is applied.
    require(&story, json!("true")).await?;
    refused(&story, &app, "SourceNotVerified", "it does not ask for signatures").await?;
    upstream.push(&[("k/a.yaml", config_map("a", "2"))]).await?;
    refused(&story, &app, "SourceNotVerified", "requires verified sources").await?;
    story.await_value("a", "1").await?;

    // A release of a chart in such a source is not applied either, whatever the name of the source is.
    let release = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": "chart"},
        "spec": {"interval": "1h", "chart": {"spec": {"chart": "chart", "sourceRef": {"kind": "GitRepository", "name": "app"}}}}});
    let chart = "apiVersion: v2\nname: chart\nversion: 1.0.0\n";
    upstream.push(&[("chart/Chart.yaml", chart.to_owned())]).await?;
    story.apply_value(release).await?;
    let release = StoryObject::new("helm.toolkit.fluxcd.io/v2", "HelmRelease", "chart");
    refused(&story, &release, "SourceNotVerified", "requires verified sources").await?;

    // If the source requires signatures, it refuses an unsigned commit, and a signed one is applied.
    let signer = SigningKey::ssh()?;
    put_keys(&story, &[&signer]).await?;
    let url = upstream.server.url(repository);
    story.git_repository("app", &url, verify("HEAD", &json!({"branch": "main"}))).await?;
    verified(&story, "app", "False", "unsupported signature type: empty").await?;
    refused(&story, &app, "SourceNotVerified", "unsupported signature type: empty").await?;
    signer.sign(repository)?;
    upstream.push(&[("k/a.yaml", config_map("a", "3"))]).await?;
    verified(&story, "app", "True", "with key 'SHA256:").await?;
    story.await_value("a", "3").await?;
    story.await_ready(&app).await?;

    // Another generation with the same signature settings needs no new artifact.
    let source = StoryObject::git_repository("app");
    let changed = story.merge(&source, json!({"spec": {"interval": "2h"}})).await?;
    let generation = json!(changed.metadata.generation);
    let is_seen = |it: &DynamicObject| it.data["status"]["observedGeneration"] == generation;
    story.await_object(&source, DEFAULT_WAIT_TIMEOUT, is_seen).await?;
    let token = story.request(&app).await?;
    let is_ready = |it: &DynamicObject| {
        let is_handled = it.data["status"]["lastHandledReconcileAt"] == token;
        is_handled && condition(it, "Ready")["status"] == "True"
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_ready).await?;

    // A user who may write statuses cannot present an unsigned artifact as signed. windlass does not correct the status of a
    // suspended source.
    let _forged = story.follow("forged", &[("k/b.yaml", config_map("b", "1"))]).await?;
    let source = StoryObject::git_repository("forged");
    story.await_ready(&source).await?;
    let spec = json!({"suspend": true, "verify": {"mode": "HEAD", "secretRef": {"name": "keys"}}});
    let generation = story.merge(&source, json!({"spec": spec})).await?.metadata.generation;
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "Succeeded", "message": "signed",
            "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let conditions = ["Ready", "ArtifactInStorage", "SourceVerified"].map(condition);
    let status = json!({"observedGeneration": generation, "conditions": conditions});
    story.merge_status(&source, json!({"status": status})).await?;
    story.kustomization("forged", "forged", json!({"path": "k"})).await?;
    let forged = StoryObject::kustomization("forged");
    refused(&story, &forged, "SourceNotVerified", "windlass has not verified its artifact").await?;
    ensure!(
        story.read(&StoryObject::config_map("b")).await?.is_none(),
        "an unsigned commit was applied"
    );

    // A base on another server is not signed.
    let far = GitServer::start(GitReadAccess::Open)?;
    let base = far.repository("bases")?;
    let files =
        [("kustomization.yaml", "resources: [map.yaml]\n"), ("map.yaml", &config_map("far", "1"))];
    base.commit(&files, "a base")?;
    let overlay = format!("resources: [a.yaml, \"{}?ref=main\"]\n", far.url(&base));
    upstream.push(&[("k/kustomization.yaml", overlay)]).await?;
    refused(&story, &app, "BuildFailed", "its namespace requires verified sources").await?;
    ensure!(story.read(&StoryObject::config_map("far")).await?.is_none(), "a base was applied");

    // Without the policy, it is an ordinary base.
    require(&story, Value::Null).await?;
    story.await_value("far", "1").await?;
    story.end().await
}
