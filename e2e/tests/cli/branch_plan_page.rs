//! The page of the plan of a branch, over HTTP with `windlass ui`, for a user who may plan the source and for one who may not.
//! `windlass plan --live --branch` prints the same.
//!
//! Elsewhere: the limits, the markup and forged forms (unit tests of `web`), what a plan covers (`plan_live.rs`).

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::all_commands::account;
use super::windlass;
use super::windlass_ui::UiBrowserClient;

/// The branch that is planned.
const PLANNED_BRANCH: &str = "retry-budget";

/// The kubeconfig of a user who may read the namespace and change its ConfigMaps, and who has these verbs on sources.
async fn user(story: &Story, name: &str, verbs: &[&str]) -> Result<PathBuf> {
    let rules = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]},
        {"apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["gitrepositories"],
            "verbs": verbs},
    ]);
    account(story, name, rules).await
}

/// The names of the objects that the only applier of a plan lists in a field.
fn names(plan: &Value, field: &str) -> Vec<String> {
    let listed = plan["appliers"][0][field].as_array().into_iter().flatten();
    let name = |it: &Value| {
        let object = if it["object"].is_object() { &it["object"] } else { it };
        object["name"].as_str().unwrap_or_default().to_owned()
    };
    listed.map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_verb_plans_a_branch_on_a_page() -> Result<()> {
    let story = Story::with_windlass("pages-plan").await?;
    let files = [
        ("changing.yaml", config_map("changing", "1")),
        ("leaving.yaml", config_map("leaving", "1")),
        ("staying.yaml", config_map("staying", "1")),
    ];
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let repository = &upstream.repository;
    repository.branch(PLANNED_BRANCH)?;
    let changed = config_map("changing", "<script>alert(2)</script>");
    repository.commit(&[("changing.yaml", &*changed)], "a change")?;
    let commit = repository.delete(&["leaving.yaml"], "a deletion")?;
    repository.switch("main")?;

    let planner = user(&story, "planner", &["plan"]).await?;
    let server = UiBrowserClient::start(&story, &planner).await?;
    let source = format!("/o/gitrepository/{}/app", story.namespace);
    // The rights of the user are known to the API server after a moment.
    let form = story
        .await_until("the form of the plan", DEFAULT_WAIT_TIMEOUT, async || {
            Ok(server.form(&source, "plan").await.ok())
        })
        .await?;
    let page = format!("/plan/GitRepository/{}/app?branch={PLANNED_BRANCH}", story.namespace);
    // Reading the page starts nothing.
    server.page(&page, &["was not planned in this session"]).await?;
    let invalid = server.send(&format!("{form}&branch=a..b"), &server.process.base).await?;
    ensure!(invalid.status == StatusCode::UNPROCESSABLE_ENTITY, "{}", invalid.text);
    let sent =
        server.send(&format!("{form}&branch={PLANNED_BRANCH}"), &server.process.base).await?;
    ensure!(sent.status == StatusCode::SEE_OTHER && sent.text == page, "{}", sent.text);
    let soon = server.send(&format!("{form}&branch=main"), &server.process.base).await?;
    ensure!(soon.status == StatusCode::TOO_MANY_REQUESTS, "{}", soon.text);
    let html = story
        .await_until("the plan on the page", DEFAULT_WAIT_TIMEOUT, async || {
            let html = server.page(&page, &[]).await?;
            ensure!(!html.contains("could not be made"), "{html}");
            Ok(html.contains("1 changed, 1 deleted").then_some(html))
        })
        .await?;
    for part in [
        "- deleted <a href=\"/o/configmap/",
        "~ changed <a href=\"/o/configmap/",
        "&lt;script&gt;alert(2)&lt;/script&gt;",
        &*commit,
        "windlass plan --live --branch retry-budget --source GitRepository/",
    ] {
        ensure!(html.contains(part), "{part}\n{html}");
    }
    let plan = server.json(&page).await?;
    ensure!(plan["headRevision"] == *commit, "{plan:#}");
    ensure!(names(&plan, "changed") == ["changing"], "{plan:#}");
    ensure!(names(&plan, "removed") == ["leaving"], "{plan:#}");
    ensure!(names(&plan, "added").is_empty(), "{plan:#}");
    is_what_the_command_prints(&story)?;
    story.await_value("changing", "1").await?;

    let viewer = user(&story, "viewer", &["get"]).await?;
    let server = UiBrowserClient::start(&story, &viewer).await?;
    let refused = story
        .await_until("the page of the source for a viewer", DEFAULT_WAIT_TIMEOUT, async || {
            let read = server.read(&source, "text/html").await?;
            ensure!(!read.text.contains("value=\"plan\""), "{}", read.text);
            if read.status != StatusCode::OK {
                return Ok(None);
            }
            Ok(Some(server.read(&page, "text/html").await?))
        })
        .await?;
    ensure!(refused.status == StatusCode::FORBIDDEN, "{}", refused.text);
    ensure!(refused.text.contains("you lack the verb `plan`"), "{}", refused.text);
    story.end().await
}

/// The command, with all rights, names the same objects.
fn is_what_the_command_prints(story: &Story) -> Result<()> {
    let source = format!("--source=GitRepository/{}/app", story.namespace);
    let command = ["plan", "--live", "--branch", PLANNED_BRANCH, source.as_str(), "-o", "json"];
    let printed = windlass(story, &command)?.json(0).context("the plan of the command")?;
    ensure!(names(&printed, "changed") == ["changing"], "{printed:#}");
    ensure!(names(&printed, "removed") == ["leaving"], "{printed:#}");
    ensure!(printed["baseIncomplete"].is_null(), "{printed:#}");
    Ok(())
}
