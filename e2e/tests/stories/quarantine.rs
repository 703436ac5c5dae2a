//! A revision that fails is quarantined. windlass applies the last good one and keeps it until the source has a new revision or
//! a user lifts the Quarantine.
//!
//! Elsewhere: the same across a restart (`restarts`), the action for each failure (engine `quarantine`).

use anyhow::{Context as _, Result, ensure};
use crds::windlass_release::{Quarantine, QuarantineAction};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, UNBOUND_CLAIM, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_fails_is_rolled_back_and_stays_so_until_a_user_lifts_that() -> Result<()> {
    let story = Story::with_windlass("quarantine").await?;
    let web = |pods| ("web.yaml", deployment("web", pods));
    let first = [
        web(PodBehavior::Ready),
        ("a.yaml", config_map("a", "1")),
        ("old.yaml", config_map("old", "1")),
    ];
    let upstream = story.follow("app", &first).await?;
    let app = story.rolling_back_app(json!({})).await?;
    story.await_good_result(&app).await?;
    let old = story.expect(&StoryObject::config_map("old")).await?;

    upstream.repository.delete(&["old.yaml"], "a removal")?;
    let second = [
        web(PodBehavior::CrashLoop),
        ("a.yaml", config_map("a", "2")),
        ("claim.yaml", UNBOUND_CLAIM.to_owned()),
        ("new.yaml", config_map("new", "1")),
    ];
    let second = upstream.push(&second).await?;
    let message = story.await_failure(&app, "Quarantined").await?;
    ensure!(message.contains(&second) && message.contains("windlass resume"), "{message}");
    story.await_value("a", "1").await?;
    story.await_gone(&StoryObject::config_map("new"), DEFAULT_WAIT_TIMEOUT).await?;
    // The object was never pruned, and an object with data is not deleted by the rollback.
    let kept = story.expect(&StoryObject::config_map("old")).await?;
    ensure!(kept.uid() == old.uid(), "it was deleted and created again");
    story.expect(&StoryObject::new("v1", "PersistentVolumeClaim", "claim")).await?;
    let all = story.quarantines().await?;
    let [quarantine] = &all[..] else { anyhow::bail!("{all:?}") };
    ensure!(quarantine.spec.action == QuarantineAction::RollBack, "{:?}", quarantine.spec);
    ensure!(quarantine.spec.result.revision == second, "{:?}", quarantine.spec);

    // A request does not apply the revision again, and drift from the last good revision is corrected.
    let token = story.request(&app).await?;
    let is_handled =
        |object: &DynamicObject| object.data["status"]["lastHandledReconcileAt"] == token.as_str();
    let object = story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_handled).await?;
    ensure!(condition(&object, "Ready")["reason"] == "Quarantined", "{:?}", object.data["status"]);
    story.merge(&StoryObject::config_map("a"), json!({"data": {"value": "drifted"}})).await?;
    story.await_value("a", "1").await?;
    let shown = story.windlass_says(&["get", "quarantines", "-n", &story.namespace], true)?;
    ensure!(shown.contains("is applied in its place"), "{shown}");
    let why = story.windlass_says(&["why", "ks/app", "-n", &story.namespace], false)?;
    ensure!(why.contains("windlass resume"), "{why}");
    let commit = second.rsplit(':').next().unwrap_or_default();
    ensure!(why.contains(&format!("`git revert {commit}`")), "{why}");

    // After the Quarantine is lifted, the revision is applied, fails, and is quarantined again.
    story.lift_in_vain("ks/app", &app, &second).await?;
    story.await_value("a", "1").await?;

    // The source has a new revision.
    let third = upstream.push(&[web(PodBehavior::Ready), ("a.yaml", config_map("a", "3"))]).await?;
    story.await_applied("app", &third).await?;
    story.await_value("a", "3").await?;
    story.await_gone(&StoryObject::config_map("old"), DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_or_a_config_map_that_is_the_cause_is_named_and_nothing_goes_back() -> Result<()> {
    let story = Story::with_windlass("quarantine-cause").await?;
    let web = deployment("web", PodBehavior::Ready).replace("ready}", "\"${pods}\"}");
    ensure!(web.contains("${pods}"), "{web}");
    let variables = |pods: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "variables", "namespace": story.namespace}, "data": {"pods": pods}})
    };
    story.apply_value(variables("ready")).await?;
    let _upstream =
        story.follow("app", &[("web.yaml", web), ("a.yaml", config_map("a", "1"))]).await?;
    let substitute = json!({"substituteFrom": [{"kind": "ConfigMap", "name": "variables"}]});
    let app = story.rolling_back_app(json!({"postBuild": substitute})).await?;
    story.await_good_result(&app).await?;
    story.apply_value(variables("crash-loop")).await?;
    story.request(&app).await?;
    let message = story.await_failure(&app, "Quarantined").await?;
    let named = format!("ConfigMap/{}/variables", story.namespace);
    ensure!(message.contains("nothing is rolled back") && message.contains(&named), "{message}");
    let all = story.quarantines().await?;
    let held = all.first().context("no Quarantine")?;
    ensure!(held.spec.action == QuarantineAction::Hold, "{:?}", held.spec);
    story.apply_value(variables("ready")).await?;
    story.await_ready(&app).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_revision_that_ever_was_is_held_and_goes_back_once_there_was_another() -> Result<()>
{
    let story = Story::with_windlass("quarantine-first").await?;
    let web = |pods| [("web.yaml", deployment("web", pods))];
    let upstream = story.follow("app", &web(PodBehavior::CrashLoop)).await?;
    let app = story.rolling_back_app(json!({})).await?;
    let message = story.await_failure(&app, "Quarantined").await?;
    ensure!(message.contains("nothing is rolled back"), "{message}");
    upstream.push(&web(PodBehavior::Ready)).await?;
    story.await_good_result(&app).await?;
    // The same files give the same result, whatever the commit is.
    upstream.push(&web(PodBehavior::CrashLoop)).await?;
    story.await_failure(&app, "Quarantined").await?;
    let all = story.quarantines().await?;
    let [held] = &all[..] else { anyhow::bail!("{all:?}") };
    let first = held.spec.result.revision.clone();
    let namespace = story.namespace.as_str();
    let line = ["resume", "ks/app", "--revision", first.as_str(), "-n", namespace];
    story.windlass_says(&line, true)?;
    let is_rolled_back = async || {
        let all = story.quarantines().await?;
        let mut actions = all.iter().map(|it| it.spec.action);
        Ok(actions.any(|it| it == QuarantineAction::RollBack).then_some(()))
    };
    story.await_until("a rollback", DEFAULT_WAIT_TIMEOUT * 2, is_rolled_back).await?;
    let message = story.await_failure(&app, "Quarantined").await?;
    ensure!(message.contains("is applied in its place"), "{message}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_users_with_the_right_lift_a_quarantine_in_their_own_name() -> Result<()> {
    let story = Story::with_windlass("quarantine-policy").await?;
    let made = story.enforce(include_str!("../../../deploy/policies/quarantines.yaml")).await?;
    let subject = json!({"group": "g", "kind": "K", "name": "n", "uid": "u"});
    let spec = json!({"subject": subject, "result": {"digest": "d", "revision": "r"}, "reason": "R",
        "message": "m", "action": "Hold"});
    let quarantine = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Quarantine",
        "metadata": {"name": "q", "namespace": story.namespace}, "spec": spec});
    story.apply_value(quarantine).await?;
    let api = Api::<Quarantine>::namespaced(story.client.clone(), &story.namespace);
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({"status": {"lift": {"user": "another-user"}}}));
    let request = async || api.patch_status("q", &dry_run, &patch).await;
    story.await_refusal("in their own name only", request).await?;
    for policy in &made {
        story.delete(policy).await?;
    }
    story.end().await
}
