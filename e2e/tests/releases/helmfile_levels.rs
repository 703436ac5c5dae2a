//! Helmfiles with many releases in levels of needs, from Git and S3. The stories check the order of installation and removal,
//! and compare with the standard programs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::harness::charts_and_helm_releases::CONFIG;
use e2e::harness::flux_objects::NEVER;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::servers::s3::{ACCESS, S3Server, SECRET};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, ResourceExt as _, WatchEvent, WatchParams};
use serde_json::json;
use testbed::upstream_programs::UpstreamProgram;

use crate::releases::helmfiles::{CHART, applied, keep, release, releases, row, states};

const LEVELS: usize = 5;

/// The number of releases in each level.
const WIDTH: usize = 4;

fn name(prefix: &str, level: usize, at: usize) -> String {
    format!("{prefix}{level}{at}")
}

fn names(prefix: &str, level: usize) -> Vec<String> {
    (0..WIDTH).map(|at| name(prefix, level, at)).collect()
}

/// A helmfile whose releases need all releases of the level below. The top level comes first in the file.
fn file(prefix: &str, levels: usize, value_of_first: &str) -> String {
    let mut all = Vec::new();
    for level in (0..levels).rev() {
        let needs = level.checked_sub(1).map(|below| names(prefix, below)).unwrap_or_default();
        let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
        for at in 0..WIDTH {
            let value = if (level, at) == (0, 0) { value_of_first } else { "v" };
            all.push(release(&name(prefix, level, at), value, &needs));
        }
    }
    releases(&all)
}

fn files(prefix: &str, levels: usize, value_of_first: &str) -> [(&'static str, String); 3] {
    [
        ("app/Chart.yaml", CHART.to_owned()),
        ("app/templates/config.yaml", CONFIG.to_owned()),
        ("helmfile.yaml", file(prefix, levels, value_of_first)),
    ]
}

/// Checks that each level was complete before the next one began.
async fn came_in_order(story: &Story, prefix: &str) -> Result<()> {
    let mut before = 0;
    for level in 0..LEVELS {
        let mut versions = Vec::new();
        for name in names(prefix, level) {
            let config = story.expect(&StoryObject::config_map(&format!("{name}-config"))).await?;
            versions.push(config.resource_version().context("it has a version")?.parse::<u64>()?);
        }
        let first = versions.iter().min().copied().unwrap_or_default();
        ensure!(first > before, "level {level} began before the one below was there");
        before = versions.iter().max().copied().unwrap_or_default();
    }
    Ok(())
}

/// The names of `number` ConfigMaps that were deleted since a resourceVersion, in their order.
async fn gone_since(story: &Story, version: &str, number: usize) -> Result<Vec<String>> {
    let maps = Api::<ConfigMap>::namespaced(story.client.clone(), &story.namespace);
    let events = maps.watch(&WatchParams::default().timeout(60), version).await?;
    let mut events = Box::pin(events);
    let mut gone = Vec::new();
    while gone.len() < number {
        match events.try_next().await?.with_context(|| format!("only these went: {gone:?}"))? {
            WatchEvent::Deleted(map) => gone.push(map.name_any()),
            WatchEvent::Error(error) => bail!("{error:?}"),
            _ => {}
        }
    }
    Ok(gone)
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_releases_in_five_levels_come_from_git_in_order_and_leave_in_reverse() -> Result<()>
{
    let story = Story::with_windlass("helmfile-levels").await?;
    let policy = story.without_deletion_budget().await?;
    let upstream = story.follow("shop", &files("g", LEVELS, "v")).await?;
    let shop = keep(&story, "shop", json!({})).await?;
    let object = story.await_ready(&shop).await?;
    ensure!(states(&object).len() == LEVELS * WIDTH, "{:?}", states(&object));
    came_in_order(&story, "g").await?;
    // The standard `helm` reads every release.
    let listed = story.helm_says(&["list", "--short", "--max", "100"])?;
    ensure!(listed.split_whitespace().count() == LEVELS * WIDTH, "{listed}");
    for name in (0..LEVELS).flat_map(|level| names("g", level)) {
        ensure!(story.history(&name)? == ["1 | deployed | app-1.0.0 | Install complete"], "{name}");
        let all = story.helm_says(&["get", "all", &name])?;
        ensure!(all.contains(&format!("name: {name}-config")), "{all}");
    }

    let revision = upstream.push(&[("helmfile.yaml", file("g", LEVELS, "other"))]).await?;
    let object = applied(&story, &shop, &revision).await?;
    story.await_value("g00-config", "other").await?;
    for name in (0..LEVELS).flat_map(|level| names("g", level)) {
        let wanted = if name == "g00" { 2 } else { 1 };
        ensure!(row(&object, &name)?["revision"] == wanted, "{name} has another revision");
    }

    let maps = Api::<ConfigMap>::namespaced(story.client.clone(), &story.namespace);
    let now = maps.list_metadata(&ListParams::default().limit(1)).await?.metadata;
    let now = now.resource_version.context("a list has a version")?;
    let revision = upstream.push(&[("helmfile.yaml", file("g", LEVELS - 2, "other"))]).await?;
    let object = applied(&story, &shop, &revision).await?;
    ensure!(states(&object).len() == (LEVELS - 2) * WIDTH, "{:?}", states(&object));
    let gone = gone_since(&story, &now, 2 * WIDTH).await?;
    let is_of = |level: usize, name: &String| name.starts_with(&format!("g{level}"));
    let (first, then) = gone.split_at(WIDTH);
    let is_reverse =
        first.iter().all(|it| is_of(LEVELS - 1, it)) && then.iter().all(|it| is_of(LEVELS - 2, it));
    ensure!(is_reverse, "{gone:?}");
    story.delete(&policy).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_releases_in_five_levels_come_from_s3_in_order() -> Result<()> {
    let story = Story::with_windlass("helmfile-s3").await?;
    let server = S3Server::start().await?;
    server.bucket("shop").await?;
    for (path, text) in files("s", LEVELS, "v") {
        server.put("shop", path, text).await?;
    }
    story
        .apply_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shop"},
            "stringData": {"accesskey": ACCESS, "secretkey": SECRET}}))
        .await?;
    let source = "source.toolkit.fluxcd.io/v1";
    story
        .apply_value(json!({"apiVersion": source, "kind": "Bucket", "metadata": {"name": "shop"},
            "spec": {"interval": NEVER, "endpoint": server.endpoint(), "bucketName": "shop",
                "insecure": true, "secretRef": {"name": "shop"}}}))
        .await?;
    let bucket = json!({"sourceRef": {"kind": "Bucket", "name": "shop"}});
    let shop = keep(&story, "shop", bucket).await?;
    let object = story.await_ready(&shop).await?;
    ensure!(states(&object).len() == LEVELS * WIDTH, "{:?}", states(&object));
    came_in_order(&story, "s").await?;
    server.put("shop", "helmfile.yaml", file("s", LEVELS, "other")).await?;
    story.request(&StoryObject::new(source, "Bucket", "shop")).await?;
    story.await_value("s00-config", "other").await?;
    ensure!(story.history("s00")?.len() == 2 && story.history("s40")?.len() == 1);
    story.end().await
}

/// The manifests of a release that the real helmfile renders.
fn real_template(folder: &Path, namespace: &str, name: &str) -> Result<String> {
    let mut path = Vec::new();
    for oracle in [UpstreamProgram::Helm, UpstreamProgram::Kustomize] {
        path.push(oracle.ensure()?.parent().context("a program is in a folder")?.to_owned());
    }
    let home = tempfile::tempdir()?;
    let output = Command::new(UpstreamProgram::Helmfile.ensure()?)
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", std::env::join_paths(path)?)
        .current_dir(folder)
        .args(["--quiet", "--namespace", namespace, "--selector", &format!("name={name}")])
        .args(["template", "--skip-needs"])
        .output()?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helmfile template: {message}");
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds helmfile: cargo xtask test --thorough")]
async fn what_is_installed_is_what_the_real_helmfile_renders() -> Result<()> {
    let story = Story::with_windlass("helmfile-real").await?;
    let text = "environments:\n  default: {values: [{size: 3}]}\n---\nreleases:\n\
        - {name: db, chart: ./app, labels: {tier: back}, values: [{value: d}], set: [{name: value, value: 'x,y'}]}\n\
        - name: web\n  chart: ./app\n  needs: [db]\n  values: [values.yaml.gotmpl]\n\
        - name: patched\n  chart: ./app\n  strategicMergePatches:\n  - apiVersion: v1\n    kind: ConfigMap\n    \
        metadata: {name: patched-config}\n    data: {more: patched}\n\
        - name: plain\n  namespace: NAMESPACE\n  chart: ./manifests\n  jsonPatches:\n  - target: {version: v1, kind: ConfigMap, name: plain-config}\n    \
        patch: [{op: replace, path: /data/value, value: patched}]\n";
    // Patches write the namespace of the release and that of `--namespace`, but not that of the Helmfile.
    let text = text.replace("NAMESPACE", &story.namespace);
    let files: BTreeMap<&str, String> = BTreeMap::from([
        ("app/Chart.yaml", CHART.to_owned()),
        ("app/templates/config.yaml", CONFIG.to_owned()),
        ("manifests/config.yaml", config_map("plain-config", "as it was")),
        ("values.yaml.gotmpl", "value: {{ .Values.size }}-{{ .Release.Name }}\n".to_owned()),
        ("helmfile.yaml", text),
    ]);
    let folder = tempfile::tempdir()?;
    for (path, text) in &files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().context("it has one")?)?;
        std::fs::write(path, text)?;
    }
    let files: Vec<(&str, String)> = files.into_iter().collect();
    let _upstream = story.follow("shop", &files).await?;
    let shop = keep(&story, "shop", json!({})).await?;
    story.await_ready(&shop).await?;
    for (name, part) in
        [("db", ""), ("web", ""), ("patched", "more: patched"), ("plain", "value: patched")]
    {
        let installed = story.helm_says(&["get", "manifest", name])?;
        let rendered = real_template(folder.path(), &story.namespace, name)?;
        ensure!(
            installed.contains("kind: ConfigMap") && installed.contains(part),
            "{name}\n{installed}"
        );
        ensure!(
            installed.trim_end() == rendered.trim_end(),
            "{name}\n{installed}\n----\n{rendered}"
        );
    }
    story.end().await
}
