//! A commit reaches appliers in waves, and stops at the wave that fails.
//!
//! In the folder: clusters that do not respond (`offline_clusters`), the limit of a wave and the order of waves
//! (`wave_order`).
//! Here too: a Freeze during a rollout. Elsewhere: kills meanwhile (`cargo xtask crash`), which applier may use a revision
//! (engine `rollout`).

mod offline_clusters;
mod wave_order;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::{Value, json};

fn rollout(name: &str) -> StoryObject {
    StoryObject::new("release.windlass.dev/v1alpha1", "StagedRollout", name)
}

/// Two waves, selected by the labels of the appliers: `canary`, and all others.
fn two_waves(soak: &str) -> Value {
    json!({"selector": {}, "waves": [
        {"name": "canary", "values": ["canary"], "maxUnavailable": "1", "soak": soak},
        {"name": "production"},
    ]})
}

async fn create_rollout(story: &Story, name: &str, spec: Value) -> Result<()> {
    let object = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "StagedRollout",
        "metadata": {"name": name, "namespace": story.namespace}, "spec": spec});
    story.apply_value(object).await.map(drop)
}

/// Waits until `Ready` of a rollout has a reason. Returns its message.
async fn await_reason(story: &Story, name: &str, reason: &str) -> Result<String> {
    let has = |object: &DynamicObject| condition(object, "Ready")["reason"] == reason;
    let object = story.await_object(&rollout(name), DEFAULT_WAIT_TIMEOUT, has).await?;
    Ok(condition(&object, "Ready")["message"].as_str().unwrap_or_default().to_owned())
}

/// Creates the Kustomizations `a`, which is the canary, and `b`, each for a folder of the source `app`. Also creates a rollout
/// for both.
async fn canary_and_production(story: &Story, soak: &str) -> Result<()> {
    for name in ["a", "b"] {
        story.kustomization(name, "app", json!({"path": format!("./{name}")})).await?;
    }
    let canary = json!({"metadata": {"labels": {"windlass.dev/wave": "canary"}}});
    story.merge(&StoryObject::kustomization("a"), canary).await?;
    for name in ["a", "b"] {
        story.await_ready(&StoryObject::kustomization(name)).await?;
    }
    create_rollout(story, "fleet", two_waves(soak)).await?;
    await_reason(story, "fleet", "Succeeded").await?;
    // A run after the rollout was created records the artifact to which the Kustomization can be pinned.
    for name in ["a", "b"] {
        story.rerun(&StoryObject::kustomization(name)).await?;
    }
    Ok(())
}

fn files(value: &str) -> [(&'static str, String); 2] {
    [("a/map.yaml", config_map("a", value)), ("b/map.yaml", config_map("b", value))]
}

/// The last revision that a Kustomization applied.
async fn applied(story: &Story, name: &str) -> Result<String> {
    let object = story.expect(&StoryObject::kustomization(name)).await?;
    Ok(object.data["status"]["lastAppliedRevision"].as_str().unwrap_or_default().to_owned())
}

/// Waits until a Kustomization reports that it waits for its wave.
async fn await_waiting(story: &Story, name: &str) -> Result<DynamicObject> {
    let waits = |object: &DynamicObject| condition(object, "windlass.dev/Wave")["status"] == "True";
    story.await_object(&StoryObject::kustomization(name), DEFAULT_WAIT_TIMEOUT, waits).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_wave_begins_when_the_first_one_was_healthy_for_the_soak_time() -> Result<()> {
    let story = Story::with_windlass("rollout-waves").await?;
    let upstream = story.follow("app", &files("1")).await?;
    canary_and_production(&story, "1h").await?;
    let first = applied(&story, "b").await?;

    let second = upstream.push(&files("2")).await?;
    story.await_value("a", "2").await?;
    let waiting = await_waiting(&story, "b").await?;
    let ready = condition(&waiting, "Ready");
    ensure!(ready["status"] == "True", "{ready}");
    let message = ready["message"].as_str().unwrap_or_default();
    for part in [first.as_str(), second.as_str(), "wave 2 of 2 (production)", "fleet"] {
        ensure!(message.contains(part), "{part}: {message}");
    }
    let shown = story.windlass_says(&["get", "ks", "-n", &story.namespace], true)?;
    ensure!(shown.contains("waits for wave 2 of 2"), "{shown}");
    let why = story.windlass_says(&["why", "ks/b", "-n", &story.namespace], true)?;
    ensure!(why.contains("waits for wave 2 of 2"), "{why}");
    let line = format!("StagedRollout/{}/fleet: wave canary: 1 of 1 updated", story.namespace);
    let names_the_wave = async || {
        let changes = ["changes", second.as_str(), "-n", story.namespace.as_str()];
        let said = story.windlass_says(&changes, true).ok();
        Ok(said.filter(|it| it.contains(&line)).map(drop))
    };
    story.await_until("the change to name its wave", DEFAULT_WAIT_TIMEOUT, names_the_wave).await?;
    ensure!(applied(&story, "b").await? == first, "production took the revision");

    // The soak time starts again after a change of the spec, so the commands above may take any time.
    let began = Instant::now();
    create_rollout(&story, "fleet", two_waves("5s")).await?;
    story.await_value("b", "2").await?;
    ensure!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
    await_reason(&story, "fleet", "Succeeded").await?;
    let object = story.expect(&StoryObject::kustomization("b")).await?;
    ensure!(condition(&object, "windlass.dev/Wave").is_null(), "{:?}", object.data["status"]);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_commit_stops_at_the_first_wave_and_production_is_kept_as_it_is() -> Result<()> {
    let story = Story::with_windlass("rollout-bad").await?;
    let upstream = story.follow("app", &files("1")).await?;
    canary_and_production(&story, "1s").await?;
    let first = applied(&story, "b").await?;

    let bad = [("a/map.yaml", "kind: [".to_owned()), ("b/map.yaml", config_map("b", "2"))];
    upstream.push(&bad).await?;
    let message = await_reason(&story, "fleet", "WaveFailed").await?;
    ensure!(message.contains("wave 1 of 2 (canary)") && message.contains("/a"), "{message}");
    await_waiting(&story, "b").await?;
    // Drift in production is corrected, and no request skips the wave.
    story.merge(&StoryObject::config_map("b"), json!({"data": {"value": "drifted"}})).await?;
    story.await_value("b", "1").await?;
    story.rerun(&StoryObject::kustomization("b")).await?;
    story.await_value("b", "1").await?;
    ensure!(applied(&story, "b").await? == first, "production took the revision");

    let third = upstream.push(&files("3")).await?;
    story.await_value("b", "3").await?;
    ensure!(applied(&story, "a").await? == third, "the canary was left behind");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_holds_a_wave_until_a_user_lets_it_begin_or_the_freeze_ends() -> Result<()> {
    let story = Story::with_windlass("rollout-freeze").await?;
    let upstream = story.follow("app", &files("1")).await?;
    canary_and_production(&story, "1h").await?;
    let second = upstream.push(&files("2")).await?;
    story.await_value("a", "2").await?;
    await_waiting(&story, "b").await?;
    let freeze = story.freeze(json!({"driftCorrection": "Deny"})).await?;
    let mut made = story.enforce_freezes().await?;
    made.extend(story.bypass_users().await?);
    let (robot, binding) = story.robot().await?;
    made.push(binding);
    // The canary has no change. Its condition shows that windlass has noticed the Freeze.
    let canary = StoryObject::kustomization("a");
    story.request(&canary).await?;
    story.await_condition(&canary, "windlass.dev/Freeze", "True", DEFAULT_WAIT_TIMEOUT).await?;
    create_rollout(&story, "fleet", two_waves("1s")).await?;
    let production = StoryObject::kustomization("b");
    story.await_message(&production, &format!("Frozen: revision {second} waits")).await?;
    story.refuse_bypasses(&robot, &production).await?;
    story.await_value("b", "1").await?;
    story.bypass("ks/b")?;
    story.await_applied("b", &second).await?;
    await_reason(&story, "fleet", "Succeeded").await?;

    // The Freeze holds the first wave of the next commit, so the second one does not begin either.
    let third = upstream.push(&files("3")).await?;
    story.await_message(&canary, &format!("Frozen: revision {third} waits")).await?;
    for name in ["a", "b"] {
        story.await_value(name, "2").await?;
    }
    story.delete(&freeze).await?;
    for name in ["a", "b"] {
        story.await_applied(name, &third).await?;
        story.await_value(name, "3").await?;
    }
    for target in &made {
        story.delete(target).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_supersedes_another_begins_with_the_first_wave_and_hangs_nowhere()
-> Result<()> {
    let story = Story::with_windlass("rollout-superseded").await?;
    let upstream = story.follow("app", &files("1")).await?;
    canary_and_production(&story, "1h").await?;
    let first = applied(&story, "b").await?;
    upstream.push(&files("2")).await?;
    story.await_value("a", "2").await?;
    await_waiting(&story, "b").await?;

    let third = upstream.push(&files("3")).await?;
    story.await_value("a", "3").await?;
    let says = |object: &DynamicObject| {
        let message = condition(object, "windlass.dev/Wave")["message"].as_str().map(str::to_owned);
        message.is_some_and(|it| it.contains(&third))
    };
    story.await_object(&StoryObject::kustomization("b"), DEFAULT_WAIT_TIMEOUT, says).await?;
    ensure!(applied(&story, "b").await? == first, "production took a revision");

    create_rollout(&story, "fleet", two_waves("1s")).await?;
    story.await_value("b", "3").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_applier_is_left_out_and_counted() -> Result<()> {
    let story = Story::with_windlass("rollout-suspended").await?;
    let upstream = story.follow("app", &files("1")).await?;
    canary_and_production(&story, "1s").await?;
    let canary = StoryObject::kustomization("a");
    story.merge(&canary, json!({"spec": {"suspend": true}})).await?;
    upstream.push(&files("2")).await?;
    story.await_value("b", "2").await?;
    story.await_value("a", "1").await?;
    let skips =
        |object: &DynamicObject| object.data["status"]["sources"][0]["waves"][0]["skipped"] == 1;
    story.await_object(&rollout("fleet"), DEFAULT_WAIT_TIMEOUT, skips).await?;
    story.merge(&canary, json!({"spec": {"suspend": false}})).await?;
    story.await_value("a", "2").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_rollouts_about_one_applier_the_second_says_whose_it_is() -> Result<()> {
    let story = Story::with_windlass("rollout-overlap").await?;
    let _upstream = story.follow("app", &files("1")).await?;
    canary_and_production(&story, "1s").await?;
    // Two rollouts were created in the same second, so the name decides.
    create_rollout(&story, "later", two_waves("1s")).await?;
    let message = await_reason(&story, "later", "Overlapping").await?;
    let first = format!("StagedRollout {}/fleet", story.namespace);
    ensure!(message.contains(&first) && message.contains("/a"), "{message}");
    let none = json!({"matchLabels": {"team": "other"}});
    let spec = json!({"selector": none, "waves": [{"name": "all"}]});
    create_rollout(&story, "nothing", spec).await?;
    await_reason(&story, "nothing", "SelectsNothing").await?;
    // An unusable rollout would hold all objects that it selects.
    let spec = json!({"selector": {}, "waves": [{"name": "canary"}, {"name": "rest"}]});
    let refusal = create_rollout(&story, "unusable", spec).await.err().map(|it| format!("{it:#}"));
    let says = |it: &String| it.contains("all waves but the last one need values or percent");
    ensure!(refusal.as_ref().is_some_and(says), "{refusal:?}");

    // A user with rights in one namespace cannot avoid a rollout of the cluster.
    let own = json!({"matchLabels": {"kubernetes.io/metadata.name": story.namespace}});
    let spec = json!({"namespaceSelector": own, "selector": {}, "waves": [{"name": "all"}]});
    let of_cluster = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "ClusterStagedRollout",
        "metadata": {"name": story.namespace}, "spec": spec});
    story.apply_value(of_cluster).await?;
    let message = await_reason(&story, "fleet", "Overlapping").await?;
    ensure!(message.contains("ClusterStagedRollout"), "{message}");
    let api_version = "release.windlass.dev/v1alpha1";
    story.delete(&StoryObject::new(api_version, "ClusterStagedRollout", &story.namespace)).await?;
    await_reason(&story, "fleet", "Succeeded").await?;
    story.end().await
}
