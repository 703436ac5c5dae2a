//! `windlass plan facts` with a real API server: the exported facts, later differences, and their use in a plan.
//!
//! Elsewhere: the format (unit tests of `cli/plan`), users without rights (`all_commands`).

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::Story;
use e2e::operator_process;
use serde_json::{Value, json};

use crate::cli::windlass;

/// A Kustomization that names two ConfigMaps and a Secret.
fn kustomization(namespace: &str) -> Value {
    let references = json!([
        {"kind": "ConfigMap", "name": "facts-vars"},
        {"kind": "Secret", "name": "facts-db"},
        {"kind": "ConfigMap", "name": "facts-gone", "optional": true},
    ]);
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "facts", "namespace": namespace},
        "spec": {
            "interval": "10m", "prune": true, "suspend": true, "path": "./app",
            "sourceRef": {"kind": "GitRepository", "name": "flux-system", "namespace": "flux-system"},
            "postBuild": {"substituteFrom": references},
        },
    })
}

async fn apply_map(story: &Story, zone: &str) -> Result<()> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "facts-vars"},
        "data": {"zone": zone}});
    story.apply_value(map).await.map(drop)
}

/// The part of a facts file about ConfigMaps and Secrets. Other stories add kinds meanwhile, so the rest may change. `None` if
/// the file has no such part.
fn references(facts: &str) -> Option<&str> {
    let (_, rest) = facts.split_once("\nreferences:\n")?;
    Some(rest.split_once("\nscopes:")?.0)
}

/// The output of `--check` about the namespace of a story.
fn differences(story: &Story, file: &str) -> Result<Vec<String>> {
    let output = windlass(story, &["plan", "facts", "--check", "-o", file])?;
    ensure!(output.code == Some(i32::from(!output.out.is_empty())), "{output:?}");
    let own = output.out.lines().filter(|line| line.contains(&story.namespace));
    Ok(own.map(str::to_owned).collect())
}

fn git(folder: &Path, arguments: &[&str]) -> Result<()> {
    let user = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    let output = Command::new("git").args(user).args(arguments).current_dir(folder).output()?;
    ensure!(output.status.success(), "git {arguments:?}: {output:?}");
    Ok(())
}

/// The plan of a repository with this Kustomization, in which one file changes.
fn planned(namespace: &str, facts: &Path) -> Result<Value> {
    let repository = tempfile::tempdir()?;
    let at = |path: &str| repository.path().join(path);
    for folder in ["cluster", "app"] {
        fs::create_dir(at(folder))?;
    }
    let map = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": namespace},
            "data": {"url": format!("${{zone}} {value}")}})
    };
    let mut object = kustomization(namespace);
    object["spec"]["suspend"] = false.into();
    fs::write(at("cluster/facts.yaml"), object.to_string())?;
    fs::write(at("app/web.yaml"), map("1").to_string())?;
    git(repository.path(), &["init", "-q", "-b", "main"])?;
    git(repository.path(), &["add", "-A"])?;
    git(repository.path(), &["commit", "-q", "-m", "first"])?;
    fs::write(at("app/web.yaml"), map("2").to_string())?;
    let output = Command::new(operator_process::binary()?)
        .args(["plan", "--path", "cluster", "-o", "json", "--facts"])
        .arg(facts)
        .current_dir(repository.path())
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_of_a_cluster_are_exported_compared_and_known_to_a_plan() -> Result<()> {
    let story = Story::with_windlass("cli-plan-facts").await?;
    let namespace = story.namespace.clone();
    apply_map(&story, "eu").await?;
    story
        .apply_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "facts-db"},
            "stringData": {"password": "hunter2"}}))
        .await?;
    story.apply_value(kustomization(&namespace)).await?;

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("facts.yaml");
    let shown = file.display().to_string();
    windlass(&story, &["plan", "facts", "-o", &shown])?.ended(0)?;
    let plain = fs::read_to_string(&file)?;
    for expected in [
        "kind: ClusterFacts",
        "- apps/v1/Deployment",
        "Kustomization.kustomize.toolkit.fluxcd.io: Namespaced",
        &format!("ConfigMap/{namespace}/facts-vars:\n    exists: true\n    keys:\n    - zone"),
        &format!("ConfigMap/{namespace}/facts-gone:\n    exists: false"),
        &format!("Secret/{namespace}/facts-db:\n    exists: true\n    keys:\n    - password"),
    ] {
        ensure!(plain.contains(expected), "{expected} is not in {plain}");
    }
    windlass(&story, &["plan", "facts", "-o", &shown])?.ended(0)?;
    let again = fs::read_to_string(&file)?;
    ensure!(references(&again) == references(&plain), "{plain}\n{again}");

    windlass(&story, &["plan", "facts", "--with-values", "-o", &shown])?.ended(0)?;
    let valued = fs::read_to_string(&file)?;
    ensure!(valued.contains("zone: eu"), "{valued}");
    ensure!(!valued.contains("hunter2") && !valued.contains("aHVudGVyMg"), "{valued}");
    let same = differences(&story, &shown)?;
    ensure!(same.is_empty(), "{same:?}");

    let plan = planned(&namespace, &file)?;
    let app = plan["appliers"].as_array().and_then(|all| all.first()).context("no applier")?;
    let field = &app["changed"][0]["fields"][0];
    ensure!(field["old"] == "eu 1" && field["new"] == "eu 2", "{plan:#}");
    let unknown = app["unknownValues"].as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = unknown.iter().filter_map(|it| it["what"].as_str()).collect();
    ensure!(names == [format!("Secret/{namespace}/facts-db")], "{plan:#}");

    apply_map(&story, "secret-zone").await?;
    let changed = differences(&story, &shown)?;
    let line = format!("~ the value of zone of ConfigMap/{namespace}/facts-vars");
    ensure!(changed == [line], "{changed:?}");
    story.end().await
}
