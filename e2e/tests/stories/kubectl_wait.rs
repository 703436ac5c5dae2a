//! Tools that know nothing about windlass can see when its objects are done.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::harness::flux_objects::condition;
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use serde_json::json;
use testbed::binaries::TestbedBinaries;

fn kubectl_wait(story: &Story, what: &str) -> Result<()> {
    let binaries = TestbedBinaries::ensure()?;
    let output = Command::new(binaries.path("kubectl")?)
        .arg(format!("--kubeconfig={}", story.kubeconfig().display()))
        .args(["-n", &story.namespace, "wait", "--for=condition=Ready", "--timeout=30s", what])
        .output()
        .context("cannot start `kubectl`")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`kubectl wait` for {what}: {said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_wait_returns_when_the_newest_spec_is_applied() -> Result<()> {
    let story = Story::with_windlass("kubectl-wait").await?;
    let files = [
        ("first/a.yaml", config_map("a", "1")),
        ("second/a.yaml", config_map("a", "2")),
        ("second/web.yaml", deployment("web", PodBehavior::Ready)),
    ];
    let _upstream = story.follow("app", &files).await?;
    kubectl_wait(&story, "gitrepository/app")?;
    story.kustomization("app", "app", json!({"path": "first", "wait": true})).await?;
    kubectl_wait(&story, "kustomization/app")?;
    story.await_value("a", "1").await?;

    story.kustomization("app", "app", json!({"path": "second", "wait": true})).await?;
    kubectl_wait(&story, "kustomization/app")?;
    // The fields that kstatus reads, and so `flux`, Argo CD and Helm: observed generation, readiness, and no running
    // reconciliation.
    let object = story.expect(&StoryObject::kustomization("app")).await?;
    let status = &object.data["status"];
    ensure!(status["observedGeneration"].as_i64() == object.metadata.generation, "{status}");
    for kind in ["Reconciling", "Stalled"] {
        ensure!(condition(&object, kind)["status"] != "True", "{status}");
    }
    let a = story.expect(&StoryObject::config_map("a")).await?;
    ensure!(a.data["data"]["value"] == "2", "Ready came before the newest spec was applied");
    let web = story.expect(&StoryObject::new("apps/v1", "Deployment", "web")).await?;
    ensure!(web.data["status"]["readyReplicas"] == 1, "Ready came before the pods: {:?}", web.data);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_kustomization_waits_for_another_as_for_any_object() -> Result<()> {
    let story = Story::with_windlass("nested").await?;
    let child = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "child"},
        "spec": {
            "interval": "10m", "prune": true, "path": "child", "wait": true, "timeout": "10m",
            "targetNamespace": story.namespace, "sourceRef": {"kind": "GitRepository", "name": "app"},
        },
    });
    let web = |pods: PodBehavior| ("child/web.yaml", deployment("web", pods));
    let files = [("parent/child.yaml", child.to_string()), web(PodBehavior::Unready)];
    let upstream = story.follow("app", &files).await?;
    story
        .kustomization("parent", "app", json!({"path": "parent", "wait": true, "timeout": "10m"}))
        .await?;
    story.await_waiting("child", "main@sha1:").await?;
    story.await_waiting("parent", "main@sha1:").await?;
    let last = upstream.push(&[web(PodBehavior::Ready)]).await?;
    story.await_applied("child", &last).await?;
    story.await_applied("parent", &last).await?;
    story.end().await
}
