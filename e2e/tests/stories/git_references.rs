//! The commit of a repository that windlass follows: the highest tag in a version range, or any reference by its full name.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::json;

fn revision(object: &DynamicObject) -> &str {
    object.data["status"]["artifact"]["revision"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_of_versions_follows_a_new_tag() -> Result<()> {
    let story = Story::with_windlass("semver").await?;
    let upstream = story.follow("branch", &[("a.yaml", config_map("a", "1"))]).await?;
    let repository = &upstream.repository;
    let first = repository.hash("main")?;
    repository.tag("v1.0.0")?;
    let url = upstream.server.url(repository);
    story.git_repository("range", &url, json!({"ref": {"semver": ">=1.0.0"}})).await?;
    story.kustomization("range", "range", json!({})).await?;
    story.await_applied("range", &format!("v1.0.0@sha1:{first}")).await?;

    // The range contains neither a commit without a tag nor a pre-release.
    repository.commit(&[("a.yaml", &config_map("a", "2"))], "second")?;
    repository.tag("v2.0.0-rc.1")?;
    repository.tag("latest")?;
    let same = story.rerun(&StoryObject::git_repository("range")).await?;
    ensure!(revision(&same) == format!("v1.0.0@sha1:{first}"), "{}", revision(&same));

    let third = repository.commit(&[("a.yaml", &config_map("a", "3"))], "third")?;
    repository.tag("v1.10.0")?;
    repository.tag("v1.9.0")?;
    story.rerun(&StoryObject::git_repository("range")).await?;
    story.await_applied("range", &format!("v1.10.0@sha1:{third}")).await?;
    story.await_value("a", "3").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_without_a_tag_waits_for_one_and_no_range_at_all_stalls() -> Result<()> {
    let story = Story::with_windlass("semver-none").await?;
    let upstream = story.follow("branch", &[("a.yaml", config_map("a", "1"))]).await?;
    upstream.repository.tag("v1.0.0")?;
    let url = upstream.server.url(&upstream.repository);
    story.git_repository("none", &url, json!({"ref": {"semver": "9.x"}})).await?;
    let none = StoryObject::git_repository("none");
    let message = story.await_failure(&none, "GitOperationFailed").await?;
    ensure!(message.contains("no match found for semver: 9.x"), "{message}");
    upstream.repository.tag("v9.1.0")?;
    story.request(&none).await?;
    let object = story.await_ready(&none).await?;
    ensure!(revision(&object).starts_with("v9.1.0@sha1:"), "{}", revision(&object));

    story.git_repository("wrong", &url, json!({"ref": {"semver": "latest"}})).await?;
    let object = story
        .await_condition(
            &StoryObject::git_repository("wrong"),
            "Stalled",
            "True",
            DEFAULT_WAIT_TIMEOUT,
        )
        .await?;
    let message = condition(&object, "Ready")["message"].as_str().unwrap_or_default();
    ensure!(message.contains("`latest`"), "{message}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_name_follows_what_is_no_branch() -> Result<()> {
    let story = Story::with_windlass("refname").await?;
    let upstream = story.follow("branch", &[("a.yaml", config_map("a", "1"))]).await?;
    let repository = &upstream.repository;
    let proposal = |value: &str| {
        let sha = repository.commit(&[("a.yaml", &config_map("a", value))], "a proposal")?;
        repository.git(&["update-ref", "refs/pull/1/head", &sha])?;
        anyhow::Ok(format!("refs/pull/1/head@sha1:{sha}"))
    };
    let first = proposal("2")?;
    let url = upstream.server.url(repository);
    // The full name has precedence over all other fields except the commit.
    let reference = json!({"name": "refs/pull/1/head", "tag": "none", "branch": "main"});
    story.git_repository("pull", &url, json!({"ref": reference})).await?;
    story.kustomization("pull", "pull", json!({})).await?;
    story.await_applied("pull", &first).await?;
    let second = proposal("3")?;
    story.rerun(&StoryObject::git_repository("pull")).await?;
    story.await_applied("pull", &second).await?;
    story.await_value("a", "3").await?;
    story.end().await
}
