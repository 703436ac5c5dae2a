//! `windlass plan --live` with a real API server. It predicts what a commit changes in the cluster, for a user with all rights
//! and for one with few.
//!
//! Elsewhere: the two sides of a comparison (unit tests of `cli/plan`), users without any rights (`all_commands`).

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::{Story, StoryObject};
use e2e::operator_process;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::all_commands::account;

/// The namespace of an object that few users may read.
const OTHER_NAMESPACE: &str = "default";

fn kustomization(story: &Story, name: &str) -> String {
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": name, "namespace": story.namespace},
        "spec": {"interval": "1h", "prune": true, "path": format!("./{name}"),
            "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
    })
    .to_string()
}

fn map(namespace: &str, name: &str, value: &str) -> String {
    let metadata = json!({"name": name, "namespace": namespace});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}})
        .to_string()
}

/// The name of the object in the other namespace.
fn hidden(story: &Story) -> String {
    format!("{}-hidden", story.namespace)
}

/// The files of a repository whose Kustomization `root` applies `one` and `two`.
fn files(story: &Story) -> [(&'static str, String); 7] {
    let own = &story.namespace;
    [
        ("root/root.yaml", kustomization(story, "root")),
        ("root/one.yaml", kustomization(story, "one")),
        ("root/two.yaml", kustomization(story, "two")),
        ("one/changing.yaml", map(own, "changing", "1")),
        ("one/leaving.yaml", map(own, "leaving", "1")),
        ("one/hidden.yaml", map(OTHER_NAMESPACE, &hidden(story), "1")),
        ("two/last.yaml", map(own, "last", "1")),
    ]
}

fn git(folder: &Path, arguments: &[&str]) -> Result<()> {
    let output = Command::new("git").args(arguments).current_dir(folder).output()?;
    ensure!(output.status.success(), "git {arguments:?}: {output:?}");
    Ok(())
}

fn checkout(story: &Story) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    for (path, text) in files(story) {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        fs::write(path, text)?;
    }
    git(folder.path(), &["init", "-q", "-b", "main"])?;
    git(folder.path(), &["add", "-A"])?;
    let user = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    git(folder.path(), &[&user[..], &["commit", "-q", "-m", "first"]].concat())?;
    Ok(folder)
}

/// Plans the work tree with a kubeconfig. Returns the plan and the exit status.
fn planned(
    story: &Story,
    folder: &TempDir,
    kubeconfig: &Path,
    more: &[&str],
) -> Result<(Value, i32)> {
    let output = Command::new(operator_process::binary()?)
        .args(["plan", "--live", "--path", "root", "-o", "json"])
        .arg(format!("--source=GitRepository/{}/fleet", story.namespace))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(more)
        .current_dir(folder.path())
        .output()?;
    let plan = serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    Ok((plan, output.status.code().unwrap_or_default()))
}

/// The object names that an applier lists in a field.
fn names(plan: &Value, applier: &str, field: &str) -> Vec<String> {
    let appliers = plan["appliers"].as_array().into_iter().flatten();
    let found = appliers.filter(|it| it["applier"]["name"] == applier);
    let listed = found.flat_map(|it| it[field].as_array().into_iter().flatten());
    let name = |it: &Value| {
        let object = if it["object"].is_object() { &it["object"] } else { it };
        object["name"].as_str().or(it["what"].as_str()).unwrap_or_default().to_owned()
    };
    listed.map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_compared_with_the_cluster_as_the_user_sees_it() -> Result<()> {
    let story = Story::with_windlass("cli-plan-live").await?;
    let _upstream = story.follow("fleet", &files(&story)).await?;
    story.apply(&kustomization(&story, "root")).await?;
    for name in ["root", "one", "two"] {
        story.await_ready(&StoryObject::kustomization(name)).await?;
    }
    let folder = checkout(&story)?;
    let all = story.kubeconfig().to_owned();
    let (same, code) = planned(&story, &folder, &all, &["--detailed-exitcode"])?;
    ensure!(code == 0 && same["appliers"] == json!([]), "{same:#}");
    ensure!(same["summary"]["unchanged"] == 7, "{same:#}");

    let own = &story.namespace;
    let at = |path: &str| folder.path().join(path);
    fs::write(at("one/changing.yaml"), map(own, "changing", "2"))?;
    fs::write(at("one/hidden.yaml"), map(OTHER_NAMESPACE, &hidden(&story), "2"))?;
    fs::write(at("one/new.yaml"), map(own, "new", "1"))?;
    for gone in ["one/leaving.yaml", "root/two.yaml", "two/last.yaml"] {
        fs::remove_file(at(gone))?;
    }
    let (plan, code) = planned(&story, &folder, &all, &["--detailed-exitcode"])?;
    ensure!(code == 1, "{plan:#}");
    ensure!(names(&plan, "one", "added") == ["new"], "{plan:#}");
    let mut changed = names(&plan, "one", "changed");
    changed.sort();
    let mut expected = [hidden(&story), "changing".to_owned()];
    expected.sort();
    ensure!(changed == expected, "{plan:#}");
    ensure!(names(&plan, "one", "removed") == ["leaving"], "{plan:#}");
    ensure!(names(&plan, "root", "removed") == ["two"], "{plan:#}");
    ensure!(names(&plan, "two", "removed") == ["last"], "{plan:#}");
    let findings = plan["findings"].to_string();
    ensure!(findings.contains("deletion-budget"), "an applier is deleted: {plan:#}");

    let rules = json!([
        {"apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]);
    let reader = account(&story, "reader", rules).await?;
    let may_read = async || {
        let (plan, _) = planned(&story, &folder, &reader, &[])?;
        Ok((!names(&plan, "one", "changed").is_empty()).then_some(plan))
    };
    let partial =
        story.await_until("the rights of the reader", DEFAULT_WAIT_TIMEOUT, may_read).await?;
    ensure!(names(&partial, "one", "changed") == ["changing"], "{partial:#}");
    ensure!(names(&partial, "one", "added") == ["new"], "{partial:#}");
    ensure!(names(&partial, "one", "removed") == ["leaving"], "{partial:#}");
    let unknown = names(&partial, "one", "unknownValues");
    let unread = format!("ConfigMap/{OTHER_NAMESPACE}/{}", hidden(&story));
    ensure!(unknown.contains(&unread), "{partial:#}");

    // Nothing was written. The object in the other namespace will be deleted with its Kustomization.
    story.await_value("changing", "1").await?;
    let root = StoryObject::kustomization("root");
    story.delete(&root).await?;
    story.await_gone(&root, DEFAULT_WAIT_TIMEOUT).await?;
    let one = StoryObject::kustomization("one");
    story.await_gone(&one, DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}
