//! The original programs encrypt and sign during a story, with newly made keys.
//!
//! Here: running such a program, pushing a chart to a registry. In the folder: SOPS with age and OpenPGP (`sops`), commits and
//! tags (`git`), images and charts by cosign (`cosign`) and by Notation (`notation`), provenance of charts (`provenance`).
//! Elsewhere: verdicts about many more files and keys (`e2e/conformance/trust`), their use by windlass over time (the stories
//! `decryption`, `verification`, `image_signatures`, `verified_charts`).

mod cosign;
mod git;
mod notation;
mod provenance;
mod sops;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::{NEVER, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::servers::charts::ChartServer;
use e2e::servers::registry::RegistryServer;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::helm_chart::{publish, repository};

/// Runs a program in a folder that is also its home. Returns its output.
fn run(
    program: &Path,
    home: &Path,
    environment: &[(&str, &Path)],
    arguments: &[&str],
) -> Result<Vec<u8>> {
    let output = Command::new(program)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .envs(environment.iter().copied())
        .current_dir(home)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} {arguments:?}: {said}", program.display());
    Ok(output.stdout)
}

/// Pushes a version of the chart `app` to a registry with `helm push`. Returns the digest of its manifest.
fn push_chart(server: &ChartServer, registry: &RegistryServer, version: &str) -> Result<String> {
    publish(server, version)?;
    let file = server.served().join(format!("app-{version}.tgz"));
    let to = registry.url("charts");
    let said = server.helm(&["push".as_ref(), &file, to.as_ref(), "--plain-http".as_ref()])?;
    let said = String::from_utf8([said.stdout, said.stderr].concat())?;
    let digest = said.lines().find_map(|line| line.strip_prefix("Digest: "));
    Ok(digest.context("helm names no digest")?.trim().to_owned())
}

/// Pushes an image with a ConfigMap, both with the same name. Returns the digest of its manifest.
async fn push_image(registry: &RegistryServer, name: &str) -> Result<String> {
    registry.push_files("app", name, &[("a.yaml", &config_map(name, "1"))], json!({})).await
}

fn oci_repository(name: &str) -> StoryObject {
    StoryObject::new("source.toolkit.fluxcd.io/v1", "OCIRepository", name)
}

/// Creates an OCIRepository that follows the image with its name and verifies it.
async fn follow(
    story: &Story,
    registry: &RegistryServer,
    name: &str,
    verify: Value,
) -> Result<StoryObject> {
    let object = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
        "metadata": {"name": name},
        "spec": {"interval": NEVER, "url": registry.url("app"), "ref": {"tag": name}, "verify": verify}});
    story.apply_value(object).await?;
    Ok(oci_repository(name))
}

/// Creates the HelmRepository `charts` for a registry.
async fn charts(story: &Story, registry: &RegistryServer) -> Result<()> {
    let more = json!({"type": "oci", "insecure": true});
    repository(story, "charts", &registry.url("charts"), more).await.map(drop)
}

/// The message of the condition `SourceVerified`. It is an error if the condition is not true.
fn verified(object: &DynamicObject) -> Result<&str> {
    let verified = condition(object, "SourceVerified");
    ensure!(verified["status"] == "True" && verified["reason"] == "Succeeded", "{verified}");
    verified["message"].as_str().context("no message")
}

/// Copies the signatures of one image to the place of another image's signatures. They are under tags with `suffix`.
async fn replay(registry: &RegistryServer, from: &str, to: &str, suffix: &str) -> Result<()> {
    let tag = |digest: &str| format!("{}{suffix}", digest.replace(':', "-"));
    let manifest = registry.manifest("app", &tag(from)).await?;
    registry.push_manifest("app", &tag(to), &manifest).await.map(drop)
}
