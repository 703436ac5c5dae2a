//! A user on call, with a bad commit for twelve appliers. The message of the alert contains the cause of the first failure and
//! the command that rolls all of them back. Each command that shows failures has that command, too. After the rollback, the
//! twelve are one cause, and windlass says that the commit has to be reverted.
//!
//! Elsewhere: the effect of a rollback (`change_sets`), the requests to services (`notifications::change_sets`).

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

/// The number of Kustomizations that the commit breaks.
const APPLIERS: usize = 12;

/// The text before the command in each message.
const BEFORE_COMMAND: &str = "to take it back: ";

fn name(at: usize) -> String {
    format!("app-{at:02}")
}

/// A folder for each Kustomization, with a Deployment and a ConfigMap with a value.
fn files(pods: PodBehavior, value: &str) -> Vec<(String, String)> {
    let folder = |at: usize| {
        let name = name(at);
        [
            (format!("{name}/web.yaml"), deployment(&name, pods)),
            (format!("{name}/map.yaml"), config_map(&name, value)),
        ]
    };
    (0..APPLIERS).flat_map(folder).collect()
}

fn borrowed(files: &[(String, String)]) -> Vec<(&str, String)> {
    files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect()
}

/// Creates an Alert for verdicts. No server listens at the address of its Provider, but the Kubernetes event has the same text.
async fn alert(story: &Story) -> Result<()> {
    let version = "notification.toolkit.fluxcd.io/v1beta3";
    let provider = json!({"apiVersion": version, "kind": "Provider", "metadata": {"name": "service"},
        "spec": {"type": "generic", "address": "http://127.0.0.1:1/hook", "timeout": "1s"}});
    story.apply_value(provider).await?;
    let annotations = json!({"windlass.dev/change-sets": "true"});
    let alert = json!({"apiVersion": version, "kind": "Alert",
        "metadata": {"name": "commits", "annotations": annotations},
        "spec": {"providerRef": {"name": "service"},
            "eventSources": [{"kind": "GitRepository", "name": "*"}]}});
    story.apply_value(alert).await.map(drop)
}

/// The event about the verdict that a change failed.
async fn event_of_alert(story: &Story) -> Result<String> {
    let ask = async || {
        let events = story.events("GitRepository", "app").await?;
        Ok(events.into_iter().find(|it| it.contains("ChangeFailed")))
    };
    story.await_until("the verdict about the commit", DEFAULT_WAIT_TIMEOUT * 2, ask).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_commit_over_twelve_appliers_is_taken_back_by_the_command_that_the_alert_names()
-> Result<()> {
    let story = Story::with_windlass("on-call").await?;
    alert(&story).await?;
    let good = files(PodBehavior::Ready, "1");
    let upstream = story.follow("app", &borrowed(&good)).await?;
    for at in 0..APPLIERS {
        let spec = json!({"path": format!("./{}", name(at)), "wait": true, "timeout": "15s"});
        story.kustomization(&name(at), "app", spec).await?;
    }
    for at in 0..APPLIERS {
        story.await_ready(&StoryObject::kustomization(&name(at))).await?;
    }
    story.await_event("GitRepository", "app", "ChangeSucceeded").await?;

    let bad = files(PodBehavior::CrashLoop, "2");
    let revision = upstream.push(&borrowed(&bad)).await?;
    let event = event_of_alert(&story).await?;
    let (verdict, command) = event.split_once(BEFORE_COMMAND).context("no command")?;
    ensure!(verdict.contains("; ks/app-") && verdict.contains(" failed: health check"), "{event}");
    let command = command.trim();
    let namespace = story.namespace.clone();
    ensure!(command.ends_with(&format!(" -n {namespace}")), "{command}");
    let words: Vec<&str> = command.split(' ').collect();
    let ["windlass", line @ ..] = words.as_slice() else { anyhow::bail!("no command: {command}") };

    // Each command that shows failures names the same command.
    let place = ["-n", namespace.as_str()];
    let short = revision.rsplit(':').next().and_then(|it| it.get(..8)).context("a commit")?;
    let shows: [(&[&str], bool); 5] = [
        (&["changes"], true),
        (&["changes", short], false),
        (&["incidents"], true),
        (&["why"], false),
        (&["why", "ks/app-00"], false),
    ];
    for (show, is_success) in shows {
        let said = story.windlass_says(&[show, &place].concat(), is_success)?;
        ensure!(said.contains(&format!("{BEFORE_COMMAND}{command}")), "{show:?}: {said}");
    }
    let tree = story.windlass_says(&[&["tree", "gitrepo/app"][..], &place].concat(), true)?;
    ensure!(tree.contains(command) && tree.contains("Failed"), "{tree}");

    let said = story.windlass_says(line, true)?;
    ensure!(said.contains("are pinned to what they had before"), "{said}");
    let commit = revision.rsplit(':').next().unwrap_or_default();
    let revert = format!("`git revert {commit}`");
    ensure!(said.contains(&revert), "{said}");
    for at in 0..APPLIERS {
        story.await_value(&name(at), "1").await?;
        let app = StoryObject::kustomization(&name(at));
        let message = story.await_failure(&app, "Quarantined").await?;
        ensure!(message.contains("windlass resume"), "{message}");
    }
    // Neither the next poll nor the next reconciliation undoes the rollback.
    story.rerun(&StoryObject::git_repository("app")).await?;
    for at in [0, APPLIERS - 1] {
        let object = story.rerun(&StoryObject::kustomization(&name(at))).await?;
        ensure!(condition(&object, "Ready")["reason"] == "Quarantined", "{:?}", object.data);
        story.await_value(&name(at), "1").await?;
    }
    // The Quarantines of all of them are one cause.
    let said = story.windlass_says(&[&["why"][..], &place].concat(), false)?;
    let cause = format!("GitRepository/{namespace}/app: revision {revision} is quarantined: ");
    ensure!(said.matches(&cause).count() == 1 && said.contains(&revert), "{said}");
    ensure!(said.contains(&format!("{APPLIERS} objects: Kustomization/")), "{said}");
    let said = story.windlass_says(&[&["why", "ks/app-00"][..], &place].concat(), false)?;
    ensure!(said.contains(&revert), "{said}");
    let said = story.windlass_says(&[&["changes", short][..], &place].concat(), false)?;
    ensure!(said.contains(&revert), "{said}");
    ensure!(said.contains("verdict: RolledBack") && said.contains(", carried out"), "{said}");
    ensure!(!said.contains(BEFORE_COMMAND), "it is taken back: {said}");
    story.end().await
}
