//! Hooks run once each, in their order, and are deleted according to their policy. A failed hook fails its operation.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, hook};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::PodBehavior;
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

/// The hooks in the newest record of a release, with name and phase, in the order of their starts.
fn ran(story: &Story, release: &str) -> Result<Vec<(String, String)>> {
    let text = story.helm_says(&["status", release, "-o", "json"])?;
    let status: Value = serde_json::from_str(&text)?;
    let mut hooks: Vec<(String, String, String)> = status["hooks"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|hook| hook["last_run"]["started_at"].as_str().is_some_and(|it| !it.is_empty()))
        .map(|hook| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let run = &hook["last_run"];
            (text(&run["started_at"]), text(&hook["name"]), text(&run["phase"]))
        })
        .collect();
    hooks.sort();
    Ok(hooks.into_iter().map(|(_, name, phase)| (name, phase)).collect())
}

fn succeeded(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| ((*name).to_owned(), "Succeeded".to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_in_their_order_and_leave_by_their_policies() -> Result<()> {
    let story = Story::with_windlass("release-hooks").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let hooks = [
        hook("before-late", "pre-install,pre-upgrade", 5, "", PodBehavior::Ready),
        hook("before", "pre-install", -1, "hook-succeeded", PodBehavior::Ready),
        hook("after", "post-install,post-upgrade", 0, "before-hook-creation", PodBehavior::Ready),
        hook("goodbye", "pre-delete", 0, "hook-succeeded", PodBehavior::Ready),
        hook("gone", "post-delete", 0, "", PodBehavior::Ready),
    ];
    let names: Vec<String> = (0..hooks.len()).map(|at| format!("templates/h{at}.yaml")).collect();
    let mut files: Vec<(&str, &str)> = vec![("templates/a.yaml", CONFIG)];
    files.extend(names.iter().zip(&hooks).map(|(name, text)| (name.as_str(), text.as_str())));
    charts.publish("1.0.0", &files).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    ensure!(ran(&story, "app")? == succeeded(&["before", "before-late", "after"]));
    let job = |name: &str| StoryObject::new("batch/v1", "Job", name);
    ensure!(story.read(&job("before")).await?.is_none(), "its policy deletes it");
    let first = story.expect(&job("after")).await?.metadata.uid;

    story.merge(&app, json!({"spec": {"values": {"value": "two"}}})).await?;
    story.await_revision(&app, 2).await?;
    ensure!(ran(&story, "app")? == succeeded(&["before-late", "after"]));
    let second = story.expect(&job("after")).await?.metadata.uid;
    ensure!(first != second, "before a hook is created its former object is deleted");

    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(story.read(&job("goodbye")).await?.is_none());
    // Parity(helm 4): nothing deletes the object of a hook but its policy.
    story.expect(&job("gone")).await?;
    story.end().await
}

/// A hook whose Job Kubernetes deletes as soon as it has ended.
fn vanishing(name: &str, events: &str, pods: PodBehavior) -> String {
    hook(name, events, 0, "", pods).replacen(
        "  backoffLimit: 0\n",
        "  backoffLimit: 0\n  ttlSecondsAfterFinished: 0\n",
        1,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_is_gone_as_soon_as_it_has_ended_was_seen_to_end() -> Result<()> {
    let story = Story::with_windlass("release-hook-ttl").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let before = vanishing("before", "pre-install,pre-upgrade", PodBehavior::Ready);
    let after = vanishing("after", "post-install", PodBehavior::Ready);
    let mut files = vec![
        ("templates/a.yaml", CONFIG),
        ("templates/b.yaml", &before),
        ("templates/c.yaml", &after),
    ];
    charts.publish("1.0.0", &files).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    ensure!(ran(&story, "app")? == succeeded(&["before", "after"]));
    for name in ["before", "after"] {
        story.await_gone(&StoryObject::new("batch/v1", "Job", name), DEFAULT_WAIT_TIMEOUT).await?;
    }
    let broken = vanishing("broken", "pre-upgrade", PodBehavior::Fail);
    files.push(("templates/d.yaml", &broken));
    charts.publish("1.1.0", &files).await?;
    let text = story.await_failure(&app, "UpgradeFailed").await?;
    let named = format!("Job/{}/broken status: 'Failed'", story.namespace);
    ensure!(text.contains(&named), "the event does not say how the hook ended: {text}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_fails_the_installation_and_is_named() -> Result<()> {
    let story = Story::with_windlass("release-hook-fails").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let broken = hook("migrate", "pre-install", 0, "", PodBehavior::Fail);
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &broken)]).await?;
    let app = charts.release("app", json!({})).await?;
    let text = story.await_failure(&app, "InstallFailed").await?;
    let named = format!("Job/{}/migrate status: 'Failed'", story.namespace);
    ensure!(text.contains("failed pre-install: ") && text.contains(&named), "{text}");
    ensure!(text.contains("exit code"), "the deepest cause is not named: {text}");
    let printed = "last log line: this container exists on the test bed only";
    ensure!(text.contains(printed), "{text}");
    ensure!(story.read(&StoryObject::config_map("app-config")).await?.is_none());
    let object = story
        .await_object(&app, DEFAULT_WAIT_TIMEOUT, |it| {
            condition(it, "Stalled")["reason"] == "RetriesExceeded"
        })
        .await?;
    ensure!(object.data["status"]["installFailures"] == 1, "{:?}", object.data);
    let history = story.history("app")?;
    ensure!(history.len() == 1 && history[0].starts_with("1 | failed | app-1.0.0"), "{history:?}");

    // The failure is not final, because a change starts another attempt.
    let mended = hook("migrate", "pre-install,pre-upgrade", 0, "", PodBehavior::Ready);
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &mended)]).await?;
    story.await_revision(&app, 2).await?;
    story.end().await
}
