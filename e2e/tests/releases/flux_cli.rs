//! The standard `flux` 2.9 shows HelmReleases and Kustomizations and works on them, as it does in a cluster with Flux.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::json;

use crate::cli::windlass;

/// Runs `flux` outside of the runtime, because it waits for windlass.
async fn flux(story: &Story, arguments: &[&str]) -> Result<String> {
    tokio::task::block_in_place(|| story.flux(arguments))
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds flux: cargo xtask test --thorough")]
async fn the_stock_flux_shows_releases_and_tells_them_what_to_do() -> Result<()> {
    let story = Story::with_windlass("release-flux").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    story
        .apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: own}, data: {values.yaml: 'more: 1'}}")
        .await?;
    let from = json!([{"kind": "ConfigMap", "name": "own"}]);
    let app =
        charts.release("app", json!({"values": {"value": "one"}, "valuesFrom": from})).await?;
    story.await_revision(&app, 1).await?;

    let table = flux(&story, &["get", "helmreleases"]).await?;
    let row = table.lines().find(|line| line.starts_with("app")).unwrap_or_default();
    let words: Vec<&str> = row.split_whitespace().collect();
    ensure!(words.get(1..4) == Some(&["1.0.0", "False", "True"]), "{table}");
    ensure!(row.contains("Helm install succeeded for release"), "{table}");
    let values = flux(&story, &["debug", "helmrelease", "app", "--show-values"]).await?;
    ensure!(values.contains("more: 1") && values.contains("value: one"), "{values}");
    let exported = flux(&story, &["export", "helmrelease", "app"]).await?;
    ensure!(exported.contains("kind: HelmRelease"), "{exported}");

    // First the source, which has a new version without a notification.
    charts.server.publish(&[
        ("Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.1.0\n"),
        ("templates/a.yaml", CONFIG),
    ])?;
    let text = flux(&story, &["reconcile", "helmrelease", "app", "--with-source"]).await?;
    ensure!(text.contains("applied revision 1.1.0"), "{text}");
    story.await_revision(&app, 2).await?;
    let text = flux(&story, &["reconcile", "helmrelease", "app", "--force"]).await?;
    ensure!(text.contains("applied revision 1.1.0"), "{text}");
    story.await_revision(&app, 3).await?;
    flux(&story, &["reconcile", "helmrelease", "app", "--reset"]).await?;
    ensure!(story.history("app")?.len() == 3, "{:?}", story.history("app")?);
    let object = story.expect(&app).await?;
    for key in ["lastHandledForceAt", "lastHandledResetAt"] {
        ensure!(object.data["status"][key].is_string(), "{:?}", object.data);
    }

    flux(&story, &["suspend", "helmrelease", "app"]).await?;
    story.merge(&app, json!({"spec": {"values": {"value": "two"}}})).await?;
    let table = flux(&story, &["get", "helmreleases", "app"]).await?;
    ensure!(table.split_whitespace().any(|word| word == "True"), "{table}");
    let text = flux(&story, &["resume", "helmrelease", "app"]).await?;
    ensure!(text.contains("applied revision 1.1.0"), "{text}");
    let object = story.await_revision(&app, 4).await?;
    ensure!(condition(&object, "Ready")["reason"] == "UpgradeSucceeded", "{:?}", object.data);
    let events = flux(&story, &["events", "--for", "HelmRelease/app"]).await?;
    ensure!(events.contains("InstallSucceeded") && events.contains("UpgradeSucceeded"), "{events}");

    flux(&story, &["delete", "helmrelease", "app", "--silent"]).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(story.read(&StoryObject::config_map("app-config")).await?.is_none());
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds flux: cargo xtask test --thorough")]
async fn a_hold_that_the_stock_flux_ends_does_not_end_its_next_suspension() -> Result<()> {
    let story = Story::with_windlass("flux-hold").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    windlass(&story, &["suspend", "ks/app", "--until", "25s", "--owner", "alice"])?.ended(0)?;
    flux(&story, &["resume", "kustomization", "app"]).await?;
    let is_bare =
        |object: &DynamicObject| !object.annotations().contains_key("windlass.dev/suspended-until");
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_bare).await?;
    flux(&story, &["suspend", "kustomization", "app"]).await?;
    // When this later and longer suspension ends, an earlier one would have ended, too.
    windlass(&story, &["suspend", "gitrepo/app", "--until", "26s"])?.ended(0)?;
    let has_ended = |object: &DynamicObject| object.data["spec"]["suspend"] != true;
    let source = StoryObject::git_repository("app");
    story.await_object(&source, DEFAULT_WAIT_TIMEOUT, has_ended).await?;
    let object = story.expect(&app).await?;
    ensure!(object.data["spec"]["suspend"] == true, "{:?}", object.data);
    story.end().await
}

/// A HelmRelease of the newest chart `app`, as users commit it.
const COMMITTED: &str = "\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: app}
spec:
  interval: 10m
  chart: {spec: {chart: app, version: '*', sourceRef: {kind: HelmRepository, name: charts}}}
";

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds flux: cargo xtask test --thorough")]
async fn the_stock_flux_follows_a_commit_down_to_the_objects_of_its_releases() -> Result<()> {
    let story = Story::with_windlass("flux-tree").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let files = [("own.yaml", config_map("own", "1")), ("app.yaml", COMMITTED.to_owned())];
    let upstream = story.follow("all", &files).await?;
    story.kustomization("all", "all", json!({"wait": true})).await?;
    let all = StoryObject::kustomization("all");
    story.await_ready(&all).await?;
    let space = story.namespace.as_str();
    let sha = upstream.repository.hash("main")?;
    let short = sha.get(..8).context("a commit has forty digits")?;

    let text = flux(&story, &["tree", "kustomization", "all"]).await?;
    let lines: Vec<&str> =
        text.lines().map(|line| line.trim_start_matches(['│', '├', '└', '─', ' '])).collect();
    let expected = [
        format!("Kustomization/{space}/all"),
        format!("ConfigMap/{space}/own"),
        format!("HelmRelease/{space}/app"),
        format!("ConfigMap/{space}/app-config"),
    ];
    ensure!(lines.iter().filter(|line| !line.is_empty()).eq(&expected), "{text}");
    let text =
        flux(&story, &["trace", "own", "--kind", "ConfigMap", "--api-version", "v1"]).await?;
    ensure!(text.contains("Kustomization:") && text.contains("GitRepository:"), "{text}");
    ensure!(text.contains(&sha), "{text}");
    let text = flux(&story, &["trace", "helmrelease", "app"]).await?;
    ensure!(text.contains("Kustomization:") && text.contains("GitRepository:"), "{text}");

    let text = flux(&story, &["get", "kustomizations"]).await?;
    ensure!(text.contains(&format!("Applied revision: main@sha1:{short}")), "{text}");
    let text = flux(&story, &["get", "sources", "git"]).await?;
    ensure!(text.contains(short) && text.contains("stored artifact"), "{text}");
    for (kind, words) in
        [("GitRepository", ["source", "git"].as_slice()), ("Kustomization", &["kustomization"])]
    {
        let text = flux(&story, &[&["export"], words, &["all"]].concat()).await?;
        ensure!(text.contains(&format!("kind: {kind}")), "{text}");
    }

    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("own.yaml"), config_map("own", "2"))?;
    std::fs::write(folder.path().join("app.yaml"), COMMITTED)?;
    let path = folder.path().to_str().context("a path of letters")?;
    let text = flux(&story, &["build", "kustomization", "all", "--path", path]).await?;
    ensure!(
        text.contains("value: \"2\"") && text.contains(&format!("namespace: {space}")),
        "{text}"
    );
    // The command exits with an error if there are differences, like `diff`.
    let text = flux(&story, &["diff", "kustomization", "all", "--path", path]).await;
    let text = text.err().context("no difference was found")?.to_string();
    ensure!(text.contains(&format!("ConfigMap/{space}/own drifted")), "{text}");
    ensure!(!text.contains(&format!("HelmRelease/{space}/app drifted")), "{text}");

    // First the repository, which has a new commit without a notification.
    let sha = upstream.repository.commit(&[("own.yaml", &config_map("own", "3"))], "a change")?;
    let text = flux(&story, &["reconcile", "kustomization", "all", "--with-source"]).await?;
    ensure!(text.contains(&format!("applied revision main@sha1:{sha}")), "{text}");
    story.await_value("own", "3").await?;

    flux(&story, &["suspend", "kustomization", "all"]).await?;
    flux(&story, &["suspend", "source", "git", "all"]).await?;
    let sha = upstream.repository.commit(&[("own.yaml", &config_map("own", "4"))], "a change")?;
    let text = flux(&story, &["resume", "source", "git", "all"]).await?;
    ensure!(text.contains(&format!("fetched revision main@sha1:{sha}")), "{text}");
    story.await_value("own", "3").await?;
    let text = flux(&story, &["resume", "kustomization", "all"]).await?;
    ensure!(text.contains(&format!("applied revision main@sha1:{sha}")), "{text}");
    story.await_value("own", "4").await?;

    flux(&story, &["delete", "kustomization", "all", "--silent"]).await?;
    flux(&story, &["delete", "source", "git", "all", "--silent"]).await?;
    story.await_gone(&all, DEFAULT_WAIT_TIMEOUT).await?;
    for target in [StoryObject::config_map("own"), StoryObject::config_map("app-config")] {
        story.await_gone(&target, DEFAULT_WAIT_TIMEOUT).await?;
    }
    story.end().await
}
