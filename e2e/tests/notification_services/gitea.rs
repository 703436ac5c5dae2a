//! A real Gitea: windlass sets commit statuses and comments on pull requests, and webhooks of Gitea trigger reconciliations.
//!
//! Elsewhere: a fake Gitea that runs every time (`fake_services`), `windlass bootstrap` with Gitea (`bootstrap_at_gitea.rs`).

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, REQUESTED_AT, revision};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::servers::gitea::{GiteaRepository, GiteaServer, USER};
use reqwest::Method;
use serde_json::{Value, json};

use crate::notification_services::{await_given_up, provider};

const RECEIVER: &str = "notification.toolkit.fluxcd.io/v1";

/// A list in an answer of the API.
async fn list(gitea: &GiteaServer, path: &str) -> Result<Vec<Value>> {
    gitea.get(path).await?.as_array().cloned().with_context(|| format!("{path} is no list"))
}

/// Makes windlass fetch the pushed commit.
async fn fetched(story: &Story) -> Result<()> {
    story.request(&StoryObject::git_repository("app")).await.map(drop)
}

/// Creates a GitRepository for the branch `main`.
async fn follow(story: &Story, hosted: &GiteaRepository) -> Result<()> {
    story.git_repository("app", &format!("{}.git", hosted.url), json!({})).await?;
    story.kustomization("app", "app", json!({})).await
}

/// Waits until a commit has exactly one status, and checks its content.
async fn await_status(
    story: &Story,
    gitea: &GiteaServer,
    (hosted, commit): (&GiteaRepository, &str),
    (state, description): (&str, &str),
) -> Result<()> {
    let path = format!("{}/commits/{commit}/statuses", hosted.path);
    let what = format!("the status {state} of {commit}");
    let statuses = story
        .await_until(&what, DEFAULT_WAIT_TIMEOUT, async || {
            Ok(Some(list(gitea, &path).await?).filter(|it| !it.is_empty()))
        })
        .await?;
    let [status] = &statuses[..] else { anyhow::bail!("{statuses:?}") };
    ensure!(status["status"] == state && status["description"] == description, "{status}");
    let context = status["context"].as_str().unwrap_or_default();
    ensure!(context.starts_with("kustomization/app/"), "{status}");
    ensure!(status["creator"]["login"] == USER, "{status}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds gitea: cargo xtask test --thorough")]
async fn gitea_has_the_status_of_each_commit_and_a_revoked_token_is_reported() -> Result<()> {
    let story = Story::begin("gitea").await?;
    let gitea = GiteaServer::start().await?;
    let hosted = gitea.repository("app").await?;
    let token = gitea.token("first").await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    let spec = json!({"type": "gitea", "address": hosted.url});
    provider(&story, spec.clone(), &[("token", &token)]).await?;
    let good = hosted.push(&[("map.yaml", config_map("map", "1"))])?;
    follow(&story, &hosted).await?;
    story.await_applied("app", &revision(&good)).await?;
    let success = ("success", "reconciliation succeeded");
    await_status(&story, &gitea, (&hosted, &good), success).await?;

    // The same event again makes no second status.
    story.request(&StoryObject::kustomization("app")).await?;
    let bad = hosted.push(&[("map.yaml", "kind: [".to_owned())])?;
    fetched(&story).await?;
    await_status(&story, &gitea, (&hosted, &bad), ("failure", "build failed")).await?;
    await_status(&story, &gitea, (&hosted, &good), success).await?;

    gitea.revoke("first").await?;
    let unseen = hosted.push(&[("map.yaml", config_map("map", "2"))])?;
    fetched(&story).await?;
    let why = "failed creating Gitea client: invalid username, password or token";
    await_given_up(&story, why, &token).await?;
    story.await_event("Provider", "service", "DeliveryFailed").await?;
    let events = story.events("Provider", "service").await?.join("\n");
    ensure!(events.contains(why) && !events.contains(&token), "{events}");

    provider(&story, spec, &[("token", &gitea.token("second").await?)]).await?;
    let healed = hosted.push(&[("map.yaml", config_map("map", "3"))])?;
    fetched(&story).await?;
    await_status(&story, &gitea, (&hosted, &healed), success).await?;
    let none = list(&gitea, &format!("{}/commits/{unseen}/statuses", hosted.path)).await?;
    ensure!(none.is_empty(), "{none:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds gitea: cargo xtask test --thorough")]
async fn a_pull_request_at_gitea_has_one_comment_which_later_events_edit() -> Result<()> {
    let story = Story::begin("gitea-comment").await?;
    let gitea = GiteaServer::start().await?;
    let hosted = gitea.repository("app").await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    hosted.push(&[("README.md", "the app".to_owned())])?;
    hosted.local.branch("change")?;
    let first = hosted.push(&[("map.yaml", config_map("map", "1"))])?;
    let number = gitea.open_pull_request(&hosted, "change").await?;
    let spec = json!({"type": "giteapullrequestcomment", "address": hosted.url});
    provider(&story, spec, &[("token", &gitea.token("comments").await?)]).await?;
    let branch = json!({"ref": {"branch": "change"}});
    story.git_repository("app", &format!("{}.git", hosted.url), branch).await?;
    story.kustomization("app", "app", json!({"suspend": true})).await?;
    // The annotation that a ResourceSet sets for the pull request of a preview.
    let annotations = json!({"event.toolkit.fluxcd.io/change_request": number});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"suspend": false}});
    story.merge(&StoryObject::kustomization("app"), patch).await?;

    let path = format!("{}/issues/{number}/comments", hosted.path);
    let comment = async |commit: &str, change: &str| {
        let what = format!("a comment about {commit}");
        let comments = story.await_until(&what, DEFAULT_WAIT_TIMEOUT, async || {
            let comments = list(&gitea, &path).await?;
            let is_about = |it: &Value| it["body"].as_str().is_some_and(|it| it.contains(commit));
            Ok(comments.iter().any(is_about).then_some(comments))
        });
        let comments = comments.await?;
        let [comment] = &comments[..] else { anyhow::bail!("{comments:?}") };
        let change = format!("ConfigMap/{}/map {change}", story.namespace);
        let body = comment["body"].as_str().unwrap_or_default();
        ensure!(body.contains(&change) && comment["user"]["login"] == USER, "{comment}");
        comment["id"].as_i64().context("a comment has no id")
    };
    let id = comment(&first, "created").await?;
    let second = hosted.push(&[("map.yaml", config_map("map", "2"))])?;
    fetched(&story).await?;
    ensure!(comment(&second, "configured").await? == id, "there is another comment");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds gitea: cargo xtask test --thorough")]
#[expect(clippy::print_stderr, reason = "how long a push takes depends on the machine")]
async fn a_webhook_of_gitea_has_a_push_applied_and_one_with_another_secret_does_not() -> Result<()>
{
    let story = Story::begin("gitea-hook").await?;
    let gitea = GiteaServer::start().await?;
    let hosted = gitea.repository("app").await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let first = hosted.push(&[("map.yaml", config_map("map", "1"))])?;
    follow(&story, &hosted).await?;
    story.await_applied("app", &revision(&first)).await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"},
        "stringData": {"token": "secret-token"}});
    story.apply_value(secret).await?;
    // Gitea uses the signatures and event names of GitHub.
    let receiver = json!({"apiVersion": RECEIVER, "kind": "Receiver", "metadata": {"name": "hook"},
        "spec": {"type": "github", "events": ["push"], "secretRef": {"name": "token"},
            "resources": [{"kind": "GitRepository", "name": "app"}]}});
    story.apply_value(receiver).await?;
    let ready = story.await_ready(&StoryObject::new(RECEIVER, "Receiver", "hook")).await?;
    let path = ready.data["status"]["webhookPath"].as_str().context("no path")?;
    let url = format!("{}{path}", windlass.webhooks());
    let hooks = format!("{}/hooks", hosted.path);
    let create = async |secret: &str| {
        let config = json!({"url": url, "content_type": "json", "secret": secret});
        let hook = json!({"type": "gitea", "active": true, "events": ["push"], "config": config});
        gitea.ask(Method::POST, &hooks, hook).await
    };

    let hook = create("secret-token").await?;
    let begun = Instant::now();
    let second = hosted.push(&[("map.yaml", config_map("map", "2"))])?;
    let pushed = begun.elapsed();
    story.await_applied("app", &revision(&second)).await?;
    eprintln!("gitea: `git push` took {pushed:?}, and was applied after {:?}", begun.elapsed());
    story.await_value("map", "2").await?;

    gitea.ask(Method::DELETE, &format!("{hooks}/{}", hook["id"]), Value::Null).await?;
    create("another-token").await?;
    let asked = async || {
        let object = story.expect(&StoryObject::git_repository("app")).await?;
        let asked = object.metadata.annotations.unwrap_or_default().remove(REQUESTED_AT);
        asked.context("the webhook did not request a reconciliation")
    };
    let before = asked().await?;
    ensure!(!gitea.log()?.contains("Hook delivery failed"), "an earlier delivery failed");
    hosted.push(&[("map.yaml", config_map("map", "3"))])?;
    story
        .await_until("the answer to the delivery", DEFAULT_WAIT_TIMEOUT, async || {
            Ok(gitea.log()?.contains("Hook delivery failed").then_some(()))
        })
        .await?;
    let log = windlass.operator.log()?;
    let rejected = log.lines().find(|line| line.contains("webhook rejected"));
    let rejected = rejected.context("windlass rejected no webhook")?;
    ensure!(rejected.contains("400") && !rejected.contains("another-token"), "{rejected}");
    ensure!(asked().await? == before, "a forged webhook requested a reconciliation");
    story.await_value("map", "2").await?;
    story.end().await
}
