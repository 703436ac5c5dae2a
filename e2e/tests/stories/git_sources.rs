//! Sources of commits, connections to them, and their artifacts in the storage.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, revision};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::{Value, json};

async fn secret(story: &Story, name: &str, data: Value) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    story.apply_value(object).await.map(drop)
}

/// Follows a repository with one ConfigMap, using a Secret of the same name, until the ConfigMap is applied.
async fn arrives(story: &Story, name: &str, url: &str, data: Value) -> Result<()> {
    secret(story, name, data).await?;
    story.git_repository(name, url, json!({"secretRef": {"name": name}})).await?;
    story.kustomization(name, name, json!({})).await?;
    story.await_value(name, "1").await.map(drop)
}

fn served(access: GitReadAccess, name: &str) -> Result<(GitServer, String)> {
    let server = GitServer::start_tls(access)?;
    let repository = server.repository(name)?;
    repository.commit(&[("a.yaml", &config_map(name, "1"))], "first")?;
    let url = server.url(&repository);
    Ok((server, url))
}

#[tokio::test(flavor = "multi_thread")]
async fn https_is_reached_by_password_or_token_with_an_authority_of_ones_own() -> Result<()> {
    let story = Story::with_windlass("https").await?;
    let basic = GitReadAccess::Basic { user: "bob".into(), password: "s3cret/:@".into() };
    let (server, url) = served(basic, "basic")?;
    let authority = server.authority().context("no TLS")?.certificate();
    let right = json!({"username": "bob", "password": "s3cret/:@", "ca.crt": authority});
    arrives(&story, "basic", &url, right).await?;

    let (server, token_url) = served(GitReadAccess::Bearer("t0ken".into()), "token")?;
    let authority = server.authority().context("no TLS")?.certificate();
    arrives(&story, "token", &token_url, json!({"bearerToken": "t0ken", "ca.crt": authority}))
        .await?;

    // Without the certificate authority, windlass sends nothing to the server, especially no password.
    secret(&story, "trusting", json!({"username": "bob", "password": "s3cret/:@"})).await?;
    story.git_repository("trusting", &url, json!({"secretRef": {"name": "trusting"}})).await?;
    let message =
        story.await_failure(&StoryObject::git_repository("trusting"), "GitOperationFailed").await?;
    ensure!(message.contains("certificate") && message.contains("ca.crt"), "{message}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn ssh_is_reached_by_a_key_and_known_hosts() -> Result<()> {
    let story = Story::with_windlass("ssh").await?;
    let server = GitServer::start(GitReadAccess::Open)?;
    let repository = server.repository("ssh")?;
    repository.commit(&[("a.yaml", &config_map("ssh", "1"))], "first")?;
    let ssh = server.ssh()?;
    let data = json!({"identity": ssh.identity()?, "known_hosts": ssh.known_hosts()?});
    arrives(&story, "ssh", &ssh.url(&repository), data).await?;
    ensure!(server.requests().is_empty(), "it went by HTTP: {:?}", server.requests());
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_or_a_commit_is_followed_instead_of_a_branch() -> Result<()> {
    let story = Story::with_windlass("refs").await?;
    let upstream = story.follow("branch", &[("a.yaml", config_map("a", "1"))]).await?;
    let repository = &upstream.repository;
    let first = repository.hash("main")?;
    repository.tag("v1")?;
    let last = repository.commit(&[("a.yaml", &config_map("a", "2"))], "second")?;
    let url = upstream.server.url(repository);
    let cases = [
        ("tag", json!({"tag": "v1"}), format!("v1@sha1:{first}")),
        ("commit", json!({"commit": first}), format!("sha1:{first}")),
        ("both", json!({"branch": "main", "commit": first}), revision(&first)),
        ("head", json!({"branch": "main"}), revision(&last)),
    ];
    for (name, reference, _) in &cases {
        story.git_repository(name, &url, json!({"ref": reference})).await?;
    }
    for (name, _, revision) in &cases {
        let object = story.await_ready(&StoryObject::git_repository(name)).await?;
        let found = &object.data["status"]["artifact"]["revision"];
        ensure!(found == revision, "{name}: {found} instead of {revision}");
    }
    // A moved tag is another revision.
    repository.tag("v1")?;
    story.request(&StoryObject::git_repository("tag")).await?;
    let moved = format!("v1@sha1:{last}");
    let has_moved = |object: &DynamicObject| object.data["status"]["artifact"]["revision"] == moved;
    story
        .await_object(&StoryObject::git_repository("tag"), DEFAULT_WAIT_TIMEOUT, has_moved)
        .await?;
    story.end().await
}

/// The files of the artifact in the status of a GitRepository.
async fn packed(story: &Story, name: &str) -> Result<Vec<String>> {
    let object = story.await_ready(&StoryObject::git_repository(name)).await?;
    let url = object.data["status"]["artifact"]["url"].as_str().context("no artifact")?;
    let answer = reqwest::get(url).await?.error_for_status()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("artifact.tar.gz");
    std::fs::write(&file, answer.bytes().await?)?;
    let output = Command::new("tar").arg("-tvzf").arg(&file).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listing = String::from_utf8(output.stdout)?;
    // The lines look like `-rw------- 0/0  12 1970-01-01 00:00 a.yaml`. Folders begin with a `d`.
    let files = listing.lines().filter(|line| line.starts_with('-'));
    Ok(files.filter_map(|line| line.split(' ').next_back()).map(ToOwned::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_leaves_out_what_is_ignored() -> Result<()> {
    let story = Story::with_windlass("ignore").await?;
    let text = || "text".to_owned();
    let files = [
        ("a.yaml", config_map("a", "1")),
        ("deep/b.yaml", config_map("b", "1")),
        ("deep/notes.md", text()),
        ("drafts/c.yaml", text()),
        ("picture.png", text()),
        (".github/workflows/ci.yaml", text()),
        (".gitignore", text()),
    ];
    let upstream = story.follow("app", &files).await?;
    let usual = packed(&story, "app").await?;
    ensure!(usual == ["a.yaml", "deep/b.yaml", "deep/notes.md", "drafts/c.yaml"], "{usual:?}");

    // An own `.sourceignore` replaces the default patterns.
    let own = upstream.push(&[(".sourceignore", "drafts/\n/.github/\n".to_owned())]).await?;
    let has_own = |it: &DynamicObject| it.data["status"]["artifact"]["revision"] == own;
    story.await_object(&StoryObject::git_repository("app"), DEFAULT_WAIT_TIMEOUT, has_own).await?;
    let ruled = packed(&story, "app").await?;
    let expected = [".sourceignore", "a.yaml", "deep/b.yaml", "deep/notes.md", "picture.png"];
    ensure!(ruled == expected, "{ruled:?}");

    let url = upstream.server.url(&upstream.repository);
    story.git_repository("app", &url, json!({"ignore": "/*\n!/deep/\n*.md\n"})).await?;
    let chosen = packed(&story, "app").await?;
    ensure!(chosen == ["deep/b.yaml"], "{chosen:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_that_has_not_changed_is_asked_in_passing() -> Result<()> {
    let story = Story::with_windlass("unchanged").await?;
    let big = "x".repeat(200_000);
    let upstream =
        story.follow("app", &[("a.yaml", config_map("a", "1")), ("big.txt", big)]).await?;
    let app = StoryObject::git_repository("app");
    let before = story.await_ready(&app).await?;
    let runs = 3;
    upstream.server.forget_requests();
    for _ in 0..runs {
        story.rerun(&app).await?;
    }
    let requests = upstream.server.requests();
    let sent: u64 = requests.iter().map(|it| it.sent + it.received).sum();
    // The protocol needs a greeting before the request.
    ensure!(requests.len() <= 2 * runs, "{requests:#?}");
    ensure!(sent < 2000 * runs as u64, "{requests:#?}");
    let after = story.expect(&app).await?;
    let artifact = |object: &DynamicObject| object.data["status"]["artifact"].clone();
    ensure!(artifact(&before) == artifact(&after), "the artifact was made again");
    story.end().await
}
