//! windlass is installed, checked, upgraded and taken away by its own commands; a process with the token of the
//! installation works.
//!
//! A test binary of its own, because CRDs and ClusterRoles are of the whole cluster. Elsewhere: the manifests
//! (`src/cli/install/manifests/tests.rs`); the rights that every other story has are those of the installation, too.

use std::path::Path;

use anyhow::{Result, ensure};
use e2e::harness::flux::{SOON, condition};
use e2e::harness::installed::deployment;
use e2e::harness::manifests::config_map;
use e2e::harness::release::newest;
use e2e::harness::{Story, Target};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::json;

fn crd() -> Target {
    let name = "kustomizations.kustomize.toolkit.fluxcd.io";
    Target::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
}

/// Volumes for the replicas: the bed makes none.
async fn volumes(story: &Story) -> Result<()> {
    let api = Api::<PersistentVolume>::all(story.client.clone());
    for name in ["volume-a", "volume-b"] {
        let volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": format!("/tmp/{name}")},
            },
        }))?;
        api.create(&PostParams::default(), &volume).await?;
    }
    Ok(())
}

/// Every line about an object ends like this.
fn ensure_each(told: &str, ending: &str) -> Result<()> {
    let lines = told.lines().filter(|line| line.starts_with('✔') && line.contains('/'));
    let others: Vec<&str> = lines.filter(|line| !line.ends_with(ending)).collect();
    ensure!(others.is_empty(), "not {ending}: {others:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn windlass_is_installed_checked_upgraded_and_taken_away() -> Result<()> {
    let story = Story::begin("installation").await?;
    charted(&story).await?;
    profiles(&story).await?;
    let here = ["-n", "gitops"];
    let with = |more: &[&'static str]| [more, &here].concat();

    story.windlass_says(&with(&["check", "--pre"]), true)?;
    let text = story.windlass_says(&with(&["check"]), false)?;
    ensure!(text.contains("windlass is not in namespace gitops: run `windlass install`"), "{text}");

    let text = story.windlass_says(&with(&["install", "--dry-run"]), true)?;
    ensure!(text.contains("+kind: Deployment\n"), "{text}");
    ensure!(story.read(&deployment("gitops")).await?.is_none(), "a dry run created it");

    let text = story.windlass_says(&with(&["install"]), true)?;
    ensure!(text.contains("Deployment/gitops/windlass-controller created"), "{text}");
    let text = story.windlass_says(&with(&["install"]), true)?;
    ensure_each(&text, "unchanged")?;
    let text = story.windlass_says(&with(&["check"]), true)?;
    ensure!(text.contains("Deployment/gitops/windlass-controller ready: ghcr.io/"), "{text}");

    works(&story).await?;

    let target = Target::kustomization("app");
    let text = story.windlass_says(&with(&["uninstall", "--dry-run"]), true)?;
    ensure_each(&text, "would be deleted")?;
    story.windlass_says(&with(&["uninstall", "--silent"]), true)?;
    story.await_gone(&deployment("gitops"), SOON).await?;
    story.expect(&crd()).await?;
    story.expect(&target).await?;
    let text = story.windlass_says(&with(&["check"]), false)?;
    ensure!(text.contains("windlass is not in namespace gitops"), "{text}");

    story.windlass_says(&with(&["uninstall", "--silent", "--delete-crds"]), true)?;
    story.await_gone(&crd(), SOON).await?;
    // What it had applied is still there.
    story.await_value("map", "1").await?;
    let text = story.windlass_says(&with(&["uninstall", "--silent", "--delete-crds"]), true)?;
    ensure!(text.contains("nothing to delete"), "{text}");
    Ok(())
}

/// Each of the other profiles becomes ready in a namespace of its own, and goes again.
async fn profiles(story: &Story) -> Result<()> {
    volumes(story).await?;
    for (profile, workload) in [
        ("high-availability", "StatefulSet/high-availability/windlass-controller"),
        ("lockdown", "Deployment/lockdown/windlass-controller"),
    ] {
        let flag = format!("--profile={profile}");
        let text = story.windlass_says(&["install", &flag, "-n", profile], true)?;
        ensure!(text.contains(&format!("{workload} created")), "{text}");
        let text = story.windlass_says(&["check", "-n", profile], true)?;
        ensure!(text.contains(&format!("{workload} ready")), "{text}");
        story.windlass_says(&["uninstall", "--silent", "-n", profile], true)?;
    }
    Ok(())
}

/// The files of the chart, as a repository has them.
fn chart_files(version: &str) -> Result<Vec<(String, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart");
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&root)?.to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path)?;
            let text = match name == "Chart.yaml" {
                true => text.replace("\nversion: 0.1.0\n", &format!("\nversion: {version}\n")),
                false => text,
            };
            files.push((format!("chart/{name}"), text));
        }
    }
    Ok(files)
}

fn borrowed(files: &[(String, String)]) -> Vec<(&str, String)> {
    files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect()
}

/// The chart is installed by the stock Helm, then managed and upgraded by the windlass that it installed, and leaves its CRDs
/// when it goes.
async fn charted(story: &Story) -> Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/chart");
    // The bed has the roles already: every story needs them.
    let flags = ["--take-ownership", "--force-conflicts", "--wait"];
    story.helm_says(&[&["install", "windlass", folder][..], &flags].concat())?;
    let namespace = story.namespace.as_str();
    let mut windlass = story.installed(namespace).await?;
    let upstream = story.follow("windlass", &borrowed(&chart_files("0.1.0")?)).await?;
    let source = json!({"kind": "GitRepository", "name": "windlass"});
    let chart = json!({"spec": {"chart": "chart", "sourceRef": source, "interval": "10m"}});
    let object = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": {"name": "windlass"},
        "spec": {"interval": "10m", "chart": chart},
    });
    story.apply_value(object).await?;
    let target = Target::helm_release("windlass");
    story.await_ready(&target).await?;
    upstream.push(&borrowed(&chart_files("0.1.1")?)).await?;
    let is_new = |object: &DynamicObject| {
        newest(object)["chartVersion"] == "0.1.1" && condition(object, "Ready")["status"] == "True"
    };
    story.await_object(&target, 3 * SOON, is_new).await?;
    let status = windlass.operator.stop(SOON)?;
    ensure!(status.success(), "it ended with {status}");
    story.helm_says(&["uninstall", "windlass"])?;
    story.await_gone(&deployment(namespace), SOON).await?;
    // With them the objects of everybody would go.
    story.expect(&crd()).await?;
    story.expect(&target).await?;
    Ok(())
}

/// It applies what a source says.
async fn works(story: &Story) -> Result<()> {
    let mut windlass = story.installed("gitops").await?;
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "0"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&Target::kustomization("app")).await?;
    let revision = upstream.push(&[("map.yaml", config_map("map", "1"))]).await?;
    story.await_applied("app", &revision).await?;
    story.await_value("map", "1").await?;
    let status = windlass.operator.stop(SOON)?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}
