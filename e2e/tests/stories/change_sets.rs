//! A commit has one ChangeSet with one verdict about all its changes, and can be rolled back as a whole.
//!
//! Elsewhere: kills meanwhile (`cargo xtask crash`), notifications (`notifications::change_sets`), the verdict itself (engine
//! `changes`).

use anyhow::{Result, ensure};
use crds::windlass_release::{ChangeSet, ChangeSetVerdict};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

/// The ChangeSets of the story, the oldest first.
async fn changes(story: &Story) -> Result<Vec<ChangeSet>> {
    let api = Api::<ChangeSet>::namespaced(story.client.clone(), &story.namespace);
    let mut all = api.list(&ListParams::default()).await?.items;
    all.sort_by_key(|it| it.spec.sequence);
    Ok(all)
}

fn verdict(change: &ChangeSet) -> ChangeSetVerdict {
    change.status.as_ref().map(|it| it.verdict).unwrap_or_default()
}

/// Waits for a verdict about the newest change of a revision.
async fn await_verdict(
    story: &Story,
    revision: &str,
    expected: ChangeSetVerdict,
) -> Result<ChangeSet> {
    let ask = async || {
        let newest =
            changes(story).await?.into_iter().rev().find(|it| it.spec.revision == revision);
        Ok(newest.filter(|it| verdict(it) == expected))
    };
    let what = format!("the verdict {expected} about {revision}");
    story.await_until(&what, DEFAULT_WAIT_TIMEOUT * 2, ask).await
}

fn members(change: &ChangeSet) -> Vec<&str> {
    let status = change.status.as_ref();
    status.map(|it| it.members.iter().map(String::as_str).collect()).unwrap_or_default()
}

/// Creates the Kustomizations `a` and `b`, each for a folder of the source `app`.
async fn two_folders(story: &Story) -> Result<()> {
    for name in ["a", "b"] {
        story.kustomization(name, "app", json!({"path": format!("./{name}")})).await?;
    }
    Ok(())
}

/// The first revision that a Kustomization applied.
async fn first_revision(story: &Story) -> Result<String> {
    let mut revision = String::new();
    for name in ["a", "b"] {
        let ready = story.await_ready(&StoryObject::kustomization(name)).await?;
        let applied = &ready.data["status"]["lastAppliedRevision"];
        revision = applied.as_str().unwrap_or_default().to_owned();
    }
    Ok(revision)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_has_one_verdict_about_what_it_changes_and_nothing_else() -> Result<()> {
    let story = Story::with_windlass("change-sets").await?;
    let a = |value: &str| ("a/map.yaml", config_map("a", value));
    let b = |value: &str| ("b/map.yaml", config_map("b", value));
    let upstream = story.follow("app", &[a("1"), b("1")]).await?;
    two_folders(&story).await?;
    let first = first_revision(&story).await?;
    await_verdict(&story, &first, ChangeSetVerdict::Succeeded).await?;

    let second = upstream.push(&[a("2")]).await?;
    let change = await_verdict(&story, &second, ChangeSetVerdict::Succeeded).await?;
    ensure!(members(&change) == ["Succeeded ks/a"], "{change:?}");
    ensure!(change.status.as_ref().is_some_and(|it| it.unchanged == 1), "{change:?}");
    let subject = change.spec.commit.as_ref().map(|it| it.subject.as_str());
    ensure!(subject == Some("a change") && change.spec.sequence == 2, "{:?}", change.spec);

    let third = upstream.push(&[("b/map.yaml", "kind: [".to_owned())]).await?;
    let change = await_verdict(&story, &third, ChangeSetVerdict::Failed).await?;
    ensure!(members(&change) == ["Failed ks/b"], "{change:?}");
    let said = story.windlass_says(&["changes", &third, "-n", &story.namespace], false)?;
    ensure!(said.contains("verdict: Failed") && said.contains("ks/b"), "{said}");
    let said = story.windlass_says(&["changes", "-n", &story.namespace], true)?;
    ensure!(said.contains("a change") && said.contains("Succeeded"), "{said}");

    // A revision that returns is another change.
    upstream.repository.git(&["reset", "-q", "--hard", "HEAD~1"])?;
    story.request(&StoryObject::git_repository("app")).await?;
    let is_back = async || {
        let newest = changes(&story).await?.pop();
        Ok(newest.filter(|it| it.spec.revision == second && it.spec.sequence == 4))
    };
    story.await_until("the fourth change", DEFAULT_WAIT_TIMEOUT, is_back).await?;
    await_verdict(&story, &second, ChangeSetVerdict::Succeeded).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_applier_whose_spec_a_commit_changed_is_a_member() -> Result<()> {
    let story = Story::with_windlass("change-sets-children").await?;
    let maps = [("x/map.yaml", config_map("c", "x")), ("y/map.yaml", config_map("c", "y"))];
    let _other = story.follow("other", &maps).await?;
    let child = |path: &str| {
        let namespace = &story.namespace;
        let manifest = format!(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: child}}\nspec:\n  \
             interval: 10h\n  prune: true\n  path: ./{path}\n  targetNamespace: {namespace}\n  sourceRef: {{kind: GitRepository, name: other}}\n"
        );
        ("child.yaml", manifest)
    };
    let upstream = story.follow("app", &[child("x")]).await?;
    story.kustomization("root", "app", json!({})).await?;
    story.await_value("c", "x").await?;
    let root = story.await_ready(&StoryObject::kustomization("root")).await?;
    let first = root.data["status"]["lastAppliedRevision"].as_str().unwrap_or_default().to_owned();
    await_verdict(&story, &first, ChangeSetVerdict::Succeeded).await?;
    let second = upstream.push(&[child("y")]).await?;
    let change = await_verdict(&story, &second, ChangeSetVerdict::Succeeded).await?;
    ensure!(members(&change) == ["Succeeded ks/root", "Succeeded > ks/child"], "{change:?}");
    story.await_value("c", "y").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_rolled_back_as_a_whole_and_stays_so_until_the_source_moves_on() -> Result<()> {
    let story = Story::with_windlass("change-sets-back").await?;
    let files = |value: &str| {
        [("a/map.yaml", config_map("a", value)), ("b/map.yaml", config_map("b", value))]
    };
    let upstream = story.follow("app", &files("1")).await?;
    two_folders(&story).await?;
    let first = first_revision(&story).await?;
    await_verdict(&story, &first, ChangeSetVerdict::Succeeded).await?;
    let second = upstream.push(&files("2")).await?;
    let change = await_verdict(&story, &second, ChangeSetVerdict::Succeeded).await?;
    let named = format!("change/{}", change.name_any());
    let namespace = story.namespace.as_str();
    let line = ["rollback", named.as_str(), "-n", namespace, "--reason", "sales stopped"];
    let said = story.windlass_says(&line, true)?;
    ensure!(said.contains("are pinned to what they had before"), "{said}");
    for name in ["a", "b"] {
        story.await_value(name, "1").await?;
        let app = StoryObject::kustomization(name);
        let message = story.await_failure(&app, "Quarantined").await?;
        ensure!(message.contains("sales stopped") && message.contains(&first), "{message}");
        // The next reconciliation does not undo the rollback.
        story.rerun(&app).await?;
        let object = story.expect(&app).await?;
        ensure!(condition(&object, "Ready")["reason"] == "Quarantined", "{:?}", object.data);
        story.await_value(name, "1").await?;
    }
    let change = await_verdict(&story, &second, ChangeSetVerdict::RolledBack).await?;
    ensure!(members(&change) == ["RolledBack ks/a", "RolledBack ks/b"], "{change:?}");
    let again = story.windlass_says(&line, false)?;
    ensure!(again.contains("has asked for the rollback"), "{again}");

    let third = upstream.push(&files("3")).await?;
    await_verdict(&story, &third, ChangeSetVerdict::Succeeded).await?;
    story.await_value("a", "3").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_pushes_in_a_row_each_fetched_one_has_a_verdict_and_ten_are_kept() -> Result<()> {
    let story = Story::with_windlass("change-sets-many").await?;
    let upstream = story.follow("app", &[("map.yaml", config_map("a", "0"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let mut newest = String::new();
    for value in 1..=12 {
        newest = upstream.push(&[("map.yaml", config_map("a", &value.to_string()))]).await?;
        let has_it = async || {
            let all = changes(&story).await?;
            Ok(all.iter().any(|it| it.spec.revision == newest).then_some(()))
        };
        story.await_until("the change of a push", DEFAULT_WAIT_TIMEOUT, has_it).await?;
    }
    await_verdict(&story, &newest, ChangeSetVerdict::Succeeded).await?;
    let is_kept_short = async || {
        let all = changes(&story).await?;
        let older = all.iter().rev().skip(1);
        let mut verdicts = older.map(verdict);
        let are_over = verdicts
            .all(|it| matches!(it, ChangeSetVerdict::Succeeded | ChangeSetVerdict::Superseded));
        // The oldest ChangeSet is deleted when the next one is created.
        Ok((all.len() <= 11 && are_over).then_some(()))
    };
    story.await_until("ten changes", DEFAULT_WAIT_TIMEOUT, is_kept_short).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_users_with_the_right_roll_a_change_back_in_their_own_name() -> Result<()> {
    let story = Story::with_windlass("change-sets-policy").await?;
    let made = story.enforce(include_str!("../../../deploy/policies/change-sets.yaml")).await?;
    let source = json!({"kind": "GitRepository", "name": "n", "uid": "u"});
    let spec = json!({"source": source, "revision": "r", "digest": "d", "sequence": 1});
    let change = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "ChangeSet",
        "metadata": {"name": "c", "namespace": story.namespace}, "spec": spec});
    story.apply_value(change).await?;
    let api = Api::<ChangeSet>::namespaced(story.client.clone(), &story.namespace);
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let status = json!({"verdict": "Failed", "counts": {"members": 0}});
    let mut asked = status.clone();
    asked["rollback"] = json!({"user": "another-user"});
    let patch = Patch::Merge(json!({"status": asked}));
    let request = async || api.patch_status("c", &dry_run, &patch).await;
    story.await_refusal("in their own name only", request).await?;
    for policy in &made {
        story.delete(policy).await?;
    }
    story.end().await
}
