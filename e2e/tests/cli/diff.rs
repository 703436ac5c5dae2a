//! `diff` predicts exactly what the next reconciliation changes.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{annotated, config_map};
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::windlass;

fn secret(password: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: hidden}}, stringData: {{password: {password}}}}}\n"
    )
}

/// The rights to read the compared objects, but not to write them, and not to send dry-runs.
const READER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules:
- {apiGroups: [kustomize.toolkit.fluxcd.io], resources: [kustomizations], verbs: [get]}
- {apiGroups: [\"\"], resources: [configmaps, secrets], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
";

/// A temporary folder with these files, given as paths and texts.
fn folder(files: &[(&str, &str)]) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        fs::write(path, text)?;
    }
    Ok(folder)
}

/// A line for each object, with its changed fields.
fn lines(changes: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for change in changes.as_array().into_iter().flatten() {
        let object = &change["object"];
        let kind = text(&object["kind"]);
        let name = text(&object["name"]);
        let mut line = format!("{} {kind}/{name}", text(&change["action"]));
        for field in change["fields"].as_array().into_iter().flatten() {
            line += &format!(" {}: {} -> {}", text(&field["path"]), field["old"], field["new"]);
        }
        lines.push(line);
    }
    lines.sort();
    lines
}

async fn version(story: &Story, name: &str) -> Result<Option<String>> {
    Ok(story.expect(&StoryObject::config_map(name)).await?.metadata.resource_version)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_changes_what_the_diff_of_its_folder_said() -> Result<()> {
    let story = Story::with_windlass("diff").await?;
    let variables =
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: variables}, data: {which: one}}";
    story.apply(variables).await?;
    let same = config_map("same", "1");
    let switch = "kustomize.toolkit.fluxcd.io/reconcile";
    let skipped = annotated("skipped", "1", switch, "disabled");
    let before = [
        ("a.yaml", config_map("a", "${which}")),
        ("gone.yaml", config_map("gone", "1")),
        ("same.yaml", same.clone()),
        ("secret.yaml", secret("hunter2")),
        ("skipped.yaml", skipped.clone()),
    ];
    let upstream = story.follow("app", &before).await?;
    let from = json!({"substituteFrom": [{"kind": "ConfigMap", "name": "variables"}]});
    story.kustomization("app", "app", json!({"postBuild": from})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let diff = |path: &Path, more: &[&str]| {
        let path = path.display().to_string();
        windlass(&story, &[&["diff", "ks/app", "--path", &path], more].concat())
    };
    let now = folder(&before.each_ref().map(|(path, text)| (*path, text.as_str())))?;
    let said = diff(now.path(), &[])?.ended(0)?;
    ensure!(said == "4 unchanged, 1 skipped\n", "{said}");

    let after = [
        ("a.yaml", config_map("a", "${which} and two")),
        ("new.yaml", config_map("new", "1")),
        ("same.yaml", same),
        ("secret.yaml", secret("hunter3")),
        ("skipped.yaml", skipped),
    ];
    let after = after.each_ref().map(|(path, text)| (*path, text.as_str()));
    let next = folder(&after)?;
    let expected = [
        "changed ConfigMap/a /data/value: \"one\" -> \"one and two\"",
        "changed Secret/hidden /data/password: \"****\" -> \"****\"",
        "created ConfigMap/new",
        "removed ConfigMap/gone",
    ];
    let changes = diff(next.path(), &["-o", "json"])?.json(1)?;
    ensure!(lines(&changes) == expected, "{changes:#}");
    let text = diff(next.path(), &[])?.ended(1)?;
    ensure!(text.ends_with("1 created, 2 changed, 1 removed, 1 unchanged, 1 skipped\n"), "{text}");
    // Both values begin with the same base64 text.
    ensure!(!text.contains("hunter") && !text.contains("aHVudGVy"), "{text}");
    let refused = diff(next.path(), &["--as", "eve"])?;
    ensure!(refused.code == Some(2) && refused.err.contains("eve"), "{refused:?}");
    // If the user may not send a dry-run of an object, the object counts neither as changed nor as unchanged.
    story.apply(READER).await?;
    let may_read = async || {
        let said = diff(next.path(), &["--as", "reader"])?;
        Ok(said.out.contains("not compared").then_some(said))
    };
    let partial =
        story.await_until("the rights of the reader", DEFAULT_WAIT_TIMEOUT, may_read).await?;
    let sum = "1 removed, 1 skipped, 4 not compared\n";
    ensure!(partial.code == Some(2) && partial.out.ends_with(sum), "{partial:?}");
    ensure!(partial.err.contains("/a dry-run failed (Forbidden)"), "{partial:?}");
    story.await_value("a", "one").await?;

    let untouched = version(&story, "same").await?;
    upstream.repository.commit(&after, "what was compared")?;
    let revision = upstream.remove(&["gone.yaml"]).await?;
    story.await_applied("app", &revision).await?;
    story.await_value("a", "one and two").await?;
    story.await_value("new", "1").await?;
    ensure!(story.read(&StoryObject::config_map("gone")).await?.is_none());
    ensure!(version(&story, "same").await? == untouched);
    let said = diff(next.path(), &[])?.ended(0)?;
    ensure!(said == "4 unchanged, 1 skipped\n", "{said}");

    fs::write(next.path().join("a.yaml"), "a: [1\n")?;
    let broken = diff(next.path(), &[])?;
    ensure!(broken.code == Some(2) && broken.err.contains("a.yaml"), "{broken:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_changes_what_the_diff_of_its_chart_said() -> Result<()> {
    let story = Story::with_windlass("diff-release").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let named = |name: &str| CONFIG.replace("-config", name);
    let gone = named("-gone");
    let new = named("-new");
    let before = [("templates/a.yaml", CONFIG), ("templates/gone.yaml", gone.as_str())];
    let after = [("templates/a.yaml", CONFIG), ("templates/new.yaml", new.as_str())];
    charts.publish("1.0.0", &before).await?;
    charts.seen().await?;
    // The ways of writing objects: the API server merges them, windlass merges them, or they are replaced.
    let merged = json!({"install": {"serverSideApply": false}});
    let mut replaced = merged.clone();
    replaced["upgrade"] = json!({"force": true});
    let releases = [("app", json!({})), ("merged", merged), ("replaced", replaced)];
    for (name, mut spec) in releases.clone() {
        spec["values"] = json!({"value": "one"});
        let target = charts.release(name, spec).await?;
        story.await_revision(&target, 1).await?;
    }
    let diff = |name: &str, files: &[(&str, &str)], version: &str| {
        let about = format!("apiVersion: v2\nname: app\nversion: {version}\n");
        let chart = folder(&[&[("Chart.yaml", about.as_str())], files].concat())?;
        let path = chart.path().display().to_string();
        windlass(&story, &["diff", &format!("hr/{name}"), "--chart", &path, "-o", "json"])
    };
    let read = async |name: String| story.read(&StoryObject::config_map(&name)).await;
    for (name, _) in &releases {
        let said = diff(name, &before, "1.0.0")?.json(0)?;
        ensure!(said == json!([]), "{name}: {said:#}");
        let changes = diff(name, &after, "1.1.0")?.json(1)?;
        let expected = [
            format!("changed ConfigMap/{name}-config /data/chart: \"1.0.0\" -> \"1.1.0\""),
            format!("created ConfigMap/{name}-new"),
            format!("removed ConfigMap/{name}-gone"),
        ];
        ensure!(lines(&changes) == expected, "{name}: {changes:#}");
        ensure!(read(format!("{name}-new")).await?.is_none(), "{name}: it was written");
        let config = story.expect(&StoryObject::config_map(&format!("{name}-config"))).await?;
        ensure!(config.data["data"]["chart"] == "1.0.0", "{name}: {config:?}");
    }
    charts.publish("1.1.0", &after).await?;
    for (name, _) in &releases {
        story.await_revision(&StoryObject::helm_release(name), 2).await?;
        let config = story.expect(&StoryObject::config_map(&format!("{name}-config"))).await?;
        ensure!(config.data["data"] == json!({"value": "one", "chart": "1.1.0"}), "{config:?}");
        ensure!(read(format!("{name}-new")).await?.is_some(), "{name}");
        ensure!(read(format!("{name}-gone")).await?.is_none(), "{name}");
        let said = diff(name, &after, "1.1.0")?.json(0)?;
        ensure!(said == json!([]), "{name}: {said:#}");
    }
    let wrong = windlass(&story, &["diff", "hr/app", "--path", "."])?;
    ensure!(wrong.code == Some(2) && wrong.err.contains("--chart"), "{wrong:?}");
    story.end().await
}
