//! windlass is installed, checked, upgraded and taken away by its own commands; a process with the token of the
//! installation works.
//!
//! A test binary of its own, because CRDs and ClusterRoles are of the whole cluster. Elsewhere: the manifests
//! (`src/cli/install/manifests/tests.rs`); the rights that every other story has are those of the installation, too.

use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux::SOON;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, Target, Windlass};
use e2e::operator;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

/// A command of windlass.
fn windlass(story: &Story, arguments: &[&str]) -> Result<Output> {
    Command::new(operator::binary()?)
        .args(arguments)
        .arg(format!("--kubeconfig={}", story.kubeconfig().display()))
        .output()
        .context("windlass cannot be started")
}

/// What a command prints, which must succeed or fail.
fn told(story: &Story, arguments: &[&str], is_success: bool) -> Result<String> {
    let output = windlass(story, arguments)?;
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told).into_owned();
    ensure!(output.status.success() == is_success, "windlass {arguments:?}: {told}");
    Ok(told)
}

fn crd() -> Target {
    let name = "kustomizations.kustomize.toolkit.fluxcd.io";
    Target::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
}

fn deployment(namespace: &str) -> Target {
    Target::new("apps/v1", "Deployment", "windlass-controller").in_namespace(namespace)
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
    profiles(&story).await?;
    let here = ["-n", "gitops"];
    let with = |more: &[&'static str]| [more, &here].concat();

    told(&story, &with(&["check", "--pre"]), true)?;
    let text = told(&story, &with(&["check"]), false)?;
    ensure!(text.contains("windlass is not in namespace gitops: run `windlass install`"), "{text}");

    let text = told(&story, &with(&["install", "--dry-run"]), true)?;
    ensure!(text.contains("+kind: Deployment\n"), "{text}");
    ensure!(story.read(&deployment("gitops")).await?.is_none(), "a dry run created it");

    let text = told(&story, &with(&["install"]), true)?;
    ensure!(text.contains("Deployment/gitops/windlass-controller created"), "{text}");
    let text = told(&story, &with(&["install"]), true)?;
    ensure_each(&text, "unchanged")?;
    let text = told(&story, &with(&["check"]), true)?;
    ensure!(text.contains("Deployment/gitops/windlass-controller ready: ghcr.io/"), "{text}");

    works(&story).await?;

    let target = Target::kustomization("app");
    let text = told(&story, &with(&["uninstall", "--dry-run"]), true)?;
    ensure_each(&text, "would be deleted")?;
    told(&story, &with(&["uninstall", "--silent"]), true)?;
    story.await_gone(&deployment("gitops"), SOON).await?;
    story.expect(&crd()).await?;
    story.expect(&target).await?;
    let text = told(&story, &with(&["check"]), false)?;
    ensure!(text.contains("windlass is not in namespace gitops"), "{text}");

    told(&story, &with(&["uninstall", "--silent", "--delete-crds"]), true)?;
    story.await_gone(&crd(), SOON).await?;
    // What it had applied is still there.
    story.await_value("map", "1").await?;
    let text = told(&story, &with(&["uninstall", "--silent", "--delete-crds"]), true)?;
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
        let text = told(story, &["install", &flag, "-n", profile], true)?;
        ensure!(text.contains(&format!("{workload} created")), "{text}");
        let text = told(story, &["check", "-n", profile], true)?;
        ensure!(text.contains(&format!("{workload} ready")), "{text}");
        told(story, &["uninstall", "--silent", "-n", profile], true)?;
    }
    Ok(())
}

/// A process with the token of the installation's ServiceAccount, and its arguments, applies what a source says.
async fn works(story: &Story) -> Result<()> {
    let kubeconfig = story.bed.account_kubeconfig("gitops", "windlass-controller").await?;
    let installed = story.expect(&deployment("gitops")).await?;
    let container = &installed.data["spec"]["template"]["spec"]["containers"][0];
    let given = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // Those that name what a Pod has: its volume and its address.
    let is_of_pod = |flag: &&str| flag.starts_with("--storage");
    let mut flags: Vec<String> =
        given.skip(1).filter(|flag| !is_of_pod(flag)).map(str::to_owned).collect();
    flags.push(format!("--kubeconfig={}", kubeconfig.display()));
    flags.push("--runtime-namespace=gitops".to_owned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut windlass = Windlass::start(story.bed, &flags).await?;
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
