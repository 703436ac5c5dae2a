//! Two windlass processes that divide the objects by labels.
//!
//! Elsewhere: several processes of which only one works (`leader.rs`).

use anyhow::{Result, ensure};
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::flux_objects::{NEVER, revision};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use kube::ResourceExt as _;
use serde_json::{Value, json};

const LABEL: &str = "sharding.fluxcd.io/key";

async fn start(story: &Story, identity: &str, selector: &str) -> Result<WindlassProcess> {
    let identity = format!("--leader-election-identity={identity}");
    let selector = format!("--watch-label-selector={selector}");
    WindlassProcess::start_for(story, &["--enable-leader-election", &identity, &selector]).await
}

async fn create(
    story: &Story,
    target: (&str, &str),
    name: &str,
    labels: Value,
    spec: Value,
) -> Result<()> {
    let (api_version, kind) = target;
    let metadata = json!({"name": name, "labels": labels});
    let object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
    story.apply_value(object).await.map(drop)
}

fn kustomization(story: &Story, path: &str, more: &[&str]) -> Value {
    let depends_on: Vec<Value> = more.iter().map(|name| json!({"name": name})).collect();
    json!({
        "interval": NEVER, "prune": true, "path": path, "dependsOn": depends_on,
        "sourceRef": {"kind": "GitRepository", "name": "app"},
        "targetNamespace": story.namespace,
    })
}

/// The user agents that wrote to an object of Flux or windlass, or to its status.
fn authors(story: &Story, what: &str) -> Result<Vec<String>> {
    let writes = story.writes()?.into_iter();
    let mut authors: Vec<String> =
        writes.filter(|it| it.what.contains(what)).map(|it| it.by).collect();
    authors.dedup();
    Ok(authors)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_shard_does_its_own_and_reads_what_the_other_has() -> Result<()> {
    const SOURCE: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "GitRepository");
    const APPLIER: (&str, &str) = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
    let story = Story::begin("shards").await?;
    let _one = start(&story, "one", &format!("{LABEL} in (one)")).await?;
    let _rest = start(&story, "rest", &format!("{LABEL} notin (one)")).await?;
    let server = GitServer::start(GitReadAccess::Open)?;
    let repository = server.repository("app")?;
    let files =
        [("base/base.yaml", config_map("base", "1")), ("web/web.yaml", config_map("web", "1"))];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, &**text)).collect();
    repository.commit(&files, "first")?;

    // The source and the dependencies of `web` belong to one shard, and `web` itself to the other.
    let url = server.url(&repository);
    let source = json!({"interval": NEVER, "url": url, "ref": {"branch": "main"}});
    create(&story, SOURCE, "app", json!({LABEL: "one"}), source).await?;
    let base = kustomization(&story, "./base", &[]);
    create(&story, APPLIER, "base", json!({LABEL: "one"}), base).await?;
    let web = kustomization(&story, "./web", &["base"]);
    create(&story, APPLIER, "web", json!({}), web).await?;
    for name in ["base", "web"] {
        story.await_ready(&StoryObject::kustomization(name)).await?;
    }
    let sha = repository.commit(&[("web/web.yaml", &config_map("web", "2"))], "second")?;
    story.request(&StoryObject::git_repository("app")).await?;
    story.await_applied("web", &revision(&sha)).await?;
    story.await_value("web", "2").await?;
    for (what, author) in [
        ("gitrepositories/app", "one"),
        ("kustomizations/base", "one"),
        ("configmaps/base", "one"),
        ("kustomizations/web", "rest"),
        ("configmaps/web", "rest"),
    ] {
        ensure!(authors(&story, what)? == [author], "{what}: {:?}", authors(&story, what)?);
    }

    // An object that moves to the other shard keeps its applied objects.
    let before = story.expect(&StoryObject::config_map("web")).await?;
    let label = json!({"metadata": {"labels": {LABEL: "one"}}});
    story.merge(&StoryObject::kustomization("web"), label).await?;
    story.rerun(&StoryObject::kustomization("web")).await?;
    let sha = repository.commit(&[("web/web.yaml", &config_map("web", "3"))], "third")?;
    story.request(&StoryObject::git_repository("app")).await?;
    story.await_applied("web", &revision(&sha)).await?;
    let after = story.await_value("web", "3").await?;
    ensure!(before.uid() == after.uid(), "it was made again");
    let authors = authors(&story, "web")?;
    ensure!(authors == ["rest", "one"], "{authors:?}");
    story.end().await
}
