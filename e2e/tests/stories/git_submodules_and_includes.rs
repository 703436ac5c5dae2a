//! The contents of an artifact besides the files of a commit: submodules, sparse checkouts, includes.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::git_server::{GitReadAccess, GitServer, StoryGitRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// The files of the artifact in the status of a GitRepository.
async fn packed(story: &Story, name: &str) -> Result<Vec<String>> {
    let object = story.await_ready(&StoryObject::git_repository(name)).await?;
    let url = object.data["status"]["artifact"]["url"].as_str().context("no artifact")?;
    let answer = reqwest::get(url).await?.error_for_status()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("artifact.tar.gz");
    std::fs::write(&file, answer.bytes().await?)?;
    let output = Command::new("tar").arg("-tzf").arg(&file).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.lines().map(ToOwned::to_owned).collect())
}

fn digest(object: &DynamicObject) -> &Value {
    &object.data["status"]["artifact"]["digest"]
}

/// Commits a link to a commit of another repository.
fn link(repository: &StoryGitRepository, path: &str, sha: &str) -> Result<String> {
    let entry = format!("160000,{sha},{path}");
    repository.git(&["update-index", "--add", "--cacheinfo", &entry])?;
    repository.git(&["commit", "-q", "-m", "a link"])?;
    repository.hash("HEAD")
}

#[tokio::test(flavor = "multi_thread")]
async fn submodules_are_applied_with_the_repository() -> Result<()> {
    let story = Story::with_windlass("submodules").await?;
    let access = GitReadAccess::Basic { user: "bob".into(), password: "s3cret-s3cret".into() };
    let server = GitServer::start(access)?;
    let app = server.repository("team/app")?;
    let lib = server.repository("team/lib")?;
    let elsewhere = GitServer::start(GitReadAccess::Open)?;
    let other = elsewhere.repository("other")?;
    let first = lib.commit(&[("b.yaml", &config_map("lib", "1"))], "first")?;
    let foreign = other.commit(&[("c.yaml", &config_map("other", "1"))], "first")?;
    let said = format!(
        "[submodule \"lib\"]\n\tpath = vendor/lib\n\turl = ../lib.git\n\
         [submodule \"other\"]\n\tpath = vendor/other\n\turl = {}\n",
        elsewhere.url(&other)
    );
    app.commit(&[("a.yaml", &config_map("app", "1")), (".gitmodules", &said)], "first")?;
    link(&app, "vendor/lib", &first)?;
    link(&app, "vendor/other", &foreign)?;
    let secret = json!({"username": "bob", "password": "s3cret-s3cret"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bob"}, "stringData": secret});
    story.apply_value(secret).await?;
    let more = |recurse: bool| json!({"secretRef": {"name": "bob"}, "recurseSubmodules": recurse});
    story.git_repository("app", &server.url(&app), more(false)).await?;
    ensure!(
        packed(&story, "app").await? == [".", "a.yaml", "vendor", "vendor/lib", "vendor/other"]
    );

    story.git_repository("app", &server.url(&app), more(true)).await?;
    story.kustomization("app", "app", json!({})).await?;
    for name in ["app", "lib", "other"] {
        story.await_value(name, "1").await?;
    }
    let object = story.expect(&StoryObject::git_repository("app")).await?;
    ensure!(object.data["status"]["observedRecurseSubmodules"] == true);
    let log = story.windlass().await?.operator.log()?;
    ensure!(!log.contains("s3cret-s3cret") && !log.contains("czNjcmV0"), "the log shows a secret");

    // A new commit in the submodule has an effect only when the repository refers to it.
    let second = lib.commit(&[("b.yaml", &config_map("lib", "2"))], "second")?;
    link(&app, "vendor/lib", &second)?;
    story.request(&StoryObject::git_repository("app")).await?;
    story.await_value("lib", "2").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_checkout_holds_its_folders_and_changes_with_them() -> Result<()> {
    let story = Story::with_windlass("sparse").await?;
    let files = [
        ("root.yaml", config_map("root", "1")),
        ("apps/a/a.yaml", config_map("a", "1")),
        ("apps/b/b.yaml", config_map("b", "1")),
        ("infra/i.yaml", config_map("i", "1")),
    ];
    let upstream = story.follow("app", &files).await?;
    let url = upstream.server.url(&upstream.repository);
    let app = StoryObject::git_repository("app");
    let whole = story.await_ready(&app).await?;

    story.git_repository("app", &url, json!({"sparseCheckout": ["./apps/a", "infra/"]})).await?;
    let found = packed(&story, "app").await?;
    ensure!(
        found == [".", "apps", "apps/a", "apps/a/a.yaml", "infra", "infra/i.yaml"],
        "{found:?}"
    );
    let part = story.expect(&app).await?;
    let status = &part.data["status"];
    ensure!(status["observedSparseCheckout"] == json!(["./apps/a", "infra/"]), "{status}");
    ensure!(status["artifact"]["revision"] == whole.data["status"]["artifact"]["revision"]);
    ensure!(digest(&part) != digest(&whole), "the artifact is the same");
    story.kustomization("app", "app", json!({})).await?;
    story.await_value("a", "1").await?;
    ensure!(story.read(&StoryObject::config_map("root")).await?.is_none(), "root.yaml was applied");

    story.git_repository("app", &url, json!({"sparseCheckout": ["infra", "none"]})).await?;
    let message = story.await_failure(&app, "GitOperationFailed").await?;
    ensure!(message.contains("`none` does not exist"), "{message}");
    ensure!(digest(&story.expect(&app).await?) == digest(&part), "the artifact is gone");

    story.git_repository("app", &url, json!({"sparseCheckout": ["../etc"]})).await?;
    let message = story.await_failure(&app, "InvalidPath").await?;
    ensure!(message.contains("leaves the tree"), "{message}");

    story.git_repository("app", &url, json!({})).await?;
    story.await_value("root", "1").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_included_artifact_is_waited_for_copied_and_followed() -> Result<()> {
    let story = Story::with_windlass("include").await?;
    let server = GitServer::start(GitReadAccess::Open)?;
    let main = server.repository("main")?;
    let lib = server.repository("lib")?;
    main.commit(&[("a.yaml", &config_map("a", "1"))], "first")?;
    lib.commit(&[("deploy/b.yaml", &config_map("b", "1")), ("other.yaml", "x: y\n")], "first")?;
    let include = json!([
        {"repository": {"name": "lib"}, "fromPath": "deploy", "toPath": "vendor/lib"},
        {"repository": {"name": "lib"}, "fromPath": "/other.yaml", "toPath": "docs/other.txt"},
    ]);
    let app = StoryObject::git_repository("app");
    story.git_repository("app", &server.url(&main), json!({"include": include})).await?;
    let message = story.await_failure(&app, "NotFound").await?;
    ensure!(message.contains("include 'lib'"), "{message}");
    let object = story.expect(&app).await?;
    ensure!(condition(&object, "IncludeUnavailable")["status"] == "True", "{:?}", object.data);

    // The object continues by itself when the included source exists, and again when it changes.
    story.git_repository("lib", &server.url(&lib), json!({})).await?;
    let found = packed(&story, "app").await?;
    let expected =
        [".", "a.yaml", "docs", "docs/other.txt", "vendor", "vendor/lib", "vendor/lib/b.yaml"];
    ensure!(found == expected, "{found:?}");
    let first = story.expect(&app).await?;
    ensure!(condition(&first, "IncludeUnavailable").is_null(), "{:?}", first.data["status"]);
    ensure!(first.data["status"]["observedInclude"] == include, "{:?}", first.data["status"]);
    story.kustomization("app", "app", json!({})).await?;
    story.await_value("b", "1").await?;
    let second = lib.commit(&[("deploy/b.yaml", &config_map("b", "2"))], "second")?;
    story.request(&StoryObject::git_repository("lib")).await?;
    story.await_value("b", "2").await?;
    let object = story.await_ready(&app).await?;
    let included = &object.data["status"]["includedArtifacts"];
    for at in [0, 1] {
        ensure!(included[at]["revision"] == format!("main@sha1:{second}"), "{included}");
    }
    ensure!(
        object.data["status"]["artifact"]["revision"]
            == first.data["status"]["artifact"]["revision"]
    );
    ensure!(digest(&object) != digest(&first), "the artifact is the same");

    let taken = json!([{"repository": {"name": "lib"}, "fromPath": "deploy", "toPath": "a.yaml"}]);
    story.git_repository("app", &server.url(&main), json!({"include": taken})).await?;
    let message = story.await_failure(&app, "CopyFailure").await?;
    ensure!(message.contains("`a.yaml`"), "{message}");
    let missing = json!([{"repository": {"name": "lib"}, "fromPath": "nowhere"}]);
    story.git_repository("app", &server.url(&main), json!({"include": missing})).await?;
    story
        .await_until("the missing path to be named", DEFAULT_WAIT_TIMEOUT, async || {
            let message = story.await_failure(&app, "CopyFailure").await?;
            Ok(message.contains("`nowhere`").then_some(()))
        })
        .await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_of_includes_is_reported_and_ends_with_one_of_them() -> Result<()> {
    let story = Story::with_windlass("include-cycle").await?;
    let server = GitServer::start(GitReadAccess::Open)?;
    let repository = server.repository("app")?;
    repository.commit(&[("a.yaml", &config_map("a", "1"))], "first")?;
    let url = server.url(&repository);
    let including = |name: &str| json!({"include": [{"repository": {"name": name}}]});
    story.git_repository("self", &url, including("self")).await?;
    let object = story
        .await_condition(
            &StoryObject::git_repository("self"),
            "Stalled",
            "True",
            DEFAULT_WAIT_TIMEOUT,
        )
        .await?;
    ensure!(condition(&object, "Ready")["reason"] == "IncludeCycle", "{:?}", object.data["status"]);

    story.git_repository("one", &url, including("two")).await?;
    story.git_repository("two", &url, including("one")).await?;
    let one = StoryObject::git_repository("one");
    let two = StoryObject::git_repository("two");
    let message = story.await_failure(&two, "IncludeCycle").await?;
    ensure!(message.contains("two → one → two"), "{message}");

    story.git_repository("two", &url, json!({})).await?;
    story.await_ready(&two).await?;
    story.await_ready(&one).await?;
    ensure!(packed(&story, "one").await? == [".", "a.yaml", "two", "two/a.yaml"]);
    story.end().await
}
