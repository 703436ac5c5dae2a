//! Freezes, and everything that may start or end an operation: schedules, approvals of Plans and lifecycles, running
//! operations, and a FreezeBypass from a commit.
//!
//! Elsewhere: commits, drift, prunes and users (`freezes`), iCalendar files (`freeze_calendars`).

use std::time::Duration;

use anyhow::{Result, ensure};
use crds::operation_lifecycle::LifecyclePhase;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition, revision};
use e2e::harness::manifests::{config_map, widget, widget_crd};
use e2e::harness::widgets::crd;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::json;

/// How long an action may take that happens within a minute, with the following steps.
const MINUTES: Duration = Duration::from_secs(150);

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_begins_nothing_until_a_user_lets_it_or_the_freeze_ends() -> Result<()> {
    let story = Story::with_windlass("freeze-schedule").await?;
    let files = [("app/a.yaml", config_map("a", "1")), ("other/b.yaml", config_map("b", "1"))];
    let upstream = story.follow("app", &files).await?;
    for name in ["app", "other"] {
        story.kustomization(name, "app", json!({"path": format!("./{name}")})).await?;
    }
    let app = StoryObject::kustomization("app");
    let other = StoryObject::kustomization("other");
    for target in [&app, &other] {
        story.await_ready(target).await?;
    }
    let freeze = story.freeze(json!({})).await?;
    let mut made = story.enforce_freezes().await?;
    made.extend(story.bypass_users().await?);
    let (robot, binding) = story.robot().await?;
    made.push(binding);
    let each_minute = json!({"metadata": {"annotations": {"windlass.dev/schedule": "* * * * *"}}});
    for target in [&StoryObject::git_repository("app"), &app, &other] {
        story.merge(target, each_minute.clone()).await?;
    }
    // No webhook and no request announces this commit, so only the schedule finds it.
    let [a, b] = ["a", "b"].map(|name| config_map(name, "2"));
    let second = [("app/a.yaml", a.as_str()), ("other/b.yaml", b.as_str())];
    let second = upstream.repository.commit(&second, "second")?;
    let second = revision(&second);
    let waits = |object: &DynamicObject| {
        let ready = condition(object, "Ready");
        ready["reason"] == "Frozen" && ready["message"].to_string().contains(&second)
    };
    for target in [&app, &other] {
        story.await_object(target, MINUTES, waits).await?;
    }
    story.refuse_bypasses(&robot, &app).await?;
    story.await_value("a", "1").await?;
    story.bypass_as("alice", "ks/app", true)?;
    story.await_applied("app", &second).await?;
    story.await_value("a", "2").await?;

    // The bypass was for one Kustomization. The other one waits for the end of the Freeze.
    story.await_failure(&other, "Frozen").await?;
    story.await_value("b", "1").await?;
    story.delete(&freeze).await?;
    story.await_applied("other", &second).await?;
    story.await_value("b", "2").await?;
    for target in &made {
        story.delete(target).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_approval_of_a_plan_counts_once_the_freeze_has_ended() -> Result<()> {
    let story = Story::with_windlass("freeze-plan").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    let policy = story.plan_mode("Approve").await?;
    let second = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    story.await_pending(&app, &second).await?;
    let freeze = story.freeze(json!({})).await?;
    story.windlass_says(&["approve", "ks/app", "-n", &story.namespace], true)?;
    story.request(&app).await?;
    story.await_failure(&app, "Frozen").await?;
    story.await_value("a", "1").await?;
    story.delete(&freeze).await?;
    story.await_applied("app", &second).await?;
    story.await_no_plans().await?;
    story.delete(&policy).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_of_a_lifecycle_counts_once_the_freeze_has_ended() -> Result<()> {
    let story = Story::with_windlass("freeze-lifecycle").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    let check = story.lifecycle("check", &["PreUpgrade"], json!({})).await?;
    story.bind(&check, json!({"subjects": [{"kind": "Kustomization"}]})).await?;
    let second = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    let event = story.await_asked(LifecyclePhase::PreUpgrade).await?;
    let freeze = story.freeze(json!({})).await?;
    story.answer(&event, "Succeeded", "").await?;
    story.request(&app).await?;
    story.await_failure(&app, "Frozen").await?;
    story.await_value("a", "1").await?;
    story.delete(&freeze).await?;
    story.await_applied("app", &second).await?;
    story.end_lifecycles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_ends_and_what_is_newer_waits() -> Result<()> {
    let story = Story::with_windlass("freeze-overrun").await?;
    let group = format!("{}.test", story.namespace);
    story.apply(&widget_crd(&group)).await?;
    let checks = json!([{
        "apiVersion": format!("{group}/v1"),
        "kind": "Widget",
        "inProgress": "!has(status.phase)",
        "current": "status.phase == 'Done'",
    }]);
    let files = [("wheel.yaml", widget(&group, "wheel")), ("a.yaml", config_map("a", "1"))];
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({"wait": true, "healthCheckExprs": checks})).await?;
    let first = revision(&upstream.repository.hash("main")?);
    story.await_waiting("app", &first).await?;
    let freeze = story.freeze(json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.request(&app).await?;
    let overruns = |object: &DynamicObject| {
        let frozen = condition(object, "windlass.dev/Freeze");
        frozen["status"] == "True" && frozen["reason"] == "FreezeOverrun"
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, overruns).await?;
    let wheel = StoryObject::new(&format!("{group}/v1"), "Widget", "wheel");
    story.merge_status(&wheel, json!({"status": {"phase": "Done"}})).await?;
    story.await_applied("app", &first).await?;

    let second = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    story.await_failure(&app, "Frozen").await?;
    story.await_value("a", "1").await?;
    story.delete(&freeze).await?;
    story.await_applied("app", &second).await?;
    story.delete(&crd(&group)).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bypass_that_a_commit_brings_is_refused() -> Result<()> {
    let story = Story::with_windlass("freeze-git").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    // The reason is not a missing right.
    let (_, binding) = story.robot().await?;
    story.kustomization("app", "app", json!({"serviceAccountName": "robot"})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    let mut made = story.enforce_freezes().await?;
    made.push(binding);
    // The Freeze does not hold Kustomizations, so the commit is applied.
    made.push(story.freeze(json!({"kinds": ["HelmRelease"]})).await?);
    for user in ["alice".to_owned(), format!("system:serviceaccount:{}:robot", story.namespace)] {
        let bypass = serde_json::to_string(&story.forged_bypass("from-git", &user)?)?;
        upstream.push(&[("bypass.yaml", bypass)]).await?;
        story.await_message(&app, "ServiceAccounts cannot go past a Freeze").await?;
        ensure!(story.bypasses().await?.is_empty(), "it was created for {user}");
    }
    let last = upstream.remove(&["bypass.yaml"]).await?;
    story.await_applied("app", &last).await?;
    for target in made {
        story.delete(&target).await?;
    }
    story.end().await
}
