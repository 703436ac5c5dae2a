//! A Git source is split into artifacts. Each artifact is made again when its own files change, and deleted when it is no
//! longer listed.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

const GROUP: &str = "source.extensions.fluxcd.io/v1beta1";

fn generator() -> StoryObject {
    StoryObject::new(GROUP, "ArtifactGenerator", "split")
}

fn external(name: &str) -> StoryObject {
    StoryObject::new("source.toolkit.fluxcd.io/v1", "ExternalArtifact", name)
}

fn artifact(object: &DynamicObject) -> &Value {
    &object.data["status"]["artifact"]
}

/// Makes a generator create an artifact for each of these folders of the GitRepository `app`.
async fn split(story: &Story, folders: &[&str]) -> Result<()> {
    let made = |folder: &&str| {
        let from = format!("@app/apps/{folder}/**");
        json!({"name": folder, "originRevision": "@app",
            "copy": [{"from": from, "to": "@artifact/"}]})
    };
    let artifacts: Vec<Value> = folders.iter().map(made).collect();
    let sources = json!([{"alias": "app", "kind": "GitRepository", "name": "app"}]);
    let object = json!({
        "apiVersion": GROUP, "kind": "ArtifactGenerator", "metadata": {"name": "split"},
        "spec": {"sources": sources, "artifacts": artifacts},
    });
    story.apply_value(object).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_source_is_split_and_a_commit_makes_only_what_it_changes() -> Result<()> {
    let story = Story::begin("artifact-generator").await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let files = [
        ("apps/web/web.yaml", config_map("web", "1")),
        ("apps/api/api.yaml", config_map("api", "1")),
    ];
    let upstream = story.follow("app", &files).await?;
    split(&story, &["web", "api"]).await?;
    let ready = story.await_ready(&generator()).await?;
    let inventory = ready.data["status"]["inventory"].as_array().map_or(0, Vec::len);
    ensure!(inventory == 2, "{:?}", ready.data["status"]);
    let source = json!({"sourceRef": {"kind": "ExternalArtifact", "name": "web"}});
    story.kustomization("web", "app", source).await?;
    let untouched = story.await_value("web", "1").await?.resource_version();
    let is_applied = story.read(&StoryObject::config_map("api")).await?.is_some();
    ensure!(!is_applied, "the artifact has the files of the other one");
    let web = story.await_ready(&external("web")).await?;
    let api = story.await_ready(&external("api")).await?;
    let digest = artifact(&web)["digest"].as_str().unwrap_or_default();
    ensure!(artifact(&web)["revision"] == format!("latest@{digest}"), "{:?}", web.data);

    // A commit that changes one folder makes one new artifact.
    let revision = upstream.push(&[("apps/api/api.yaml", config_map("api", "2"))]).await?;
    let is_newer = |object: &DynamicObject| artifact(object)["digest"] != artifact(&api)["digest"];
    let newer = story.await_object(&external("api"), DEFAULT_WAIT_TIMEOUT, is_newer).await?;
    let origin = artifact(&newer)["metadata"]["org.opencontainers.image.revision"].clone();
    ensure!(origin == revision, "{origin}");
    let is_settled = |object: &DynamicObject| {
        let listed = object.data["status"]["inventory"].as_array();
        listed.is_some_and(|all| all.iter().any(|it| it["digest"] == artifact(&newer)["digest"]))
    };
    story.await_object(&generator(), DEFAULT_WAIT_TIMEOUT, is_settled).await?;
    let same = story.expect(&external("web")).await?;
    ensure!(artifact(&same)["digest"] == artifact(&web)["digest"], "{:?}", same.data);
    let other = story.expect(&StoryObject::config_map("web")).await?;
    ensure!(other.resource_version() == untouched, "the ConfigMap was written");

    // A deleted artifact is created again without a request.
    story.delete(&external("web")).await?;
    let is_another = |object: &DynamicObject| {
        object.uid() != web.uid() && artifact(object)["digest"] == artifact(&web)["digest"]
    };
    story.await_object(&external("web"), DEFAULT_WAIT_TIMEOUT, is_another).await?;

    split(&story, &["web"]).await?;
    story.await_gone(&external("api"), DEFAULT_WAIT_TIMEOUT).await?;
    let folder = windlass.storage().join("externalartifact").join(&story.namespace);
    ensure!(!folder.join("api").exists(), "its files are still there");
    ensure!(folder.join("web").exists(), "the files of the other one are gone");

    story.delete(&generator()).await?;
    story.await_gone(&generator(), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&external("web"), DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(!folder.join("web").exists(), "files are left over");
    story.end().await
}
