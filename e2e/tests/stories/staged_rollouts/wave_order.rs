//! The limit of a wave, also of the first one, and the order of waves where an applier is Ready with an older revision.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Result, ensure};
use e2e::cluster_with_operator::{ObjectWatch, WatchSelection};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use serde_json::json;

use super::{
    applied, await_reason, await_waiting, canary_and_production, create_rollout, rollout, two_waves,
};

/// The Kustomizations of the first wave, each with its file.
const FIRST_WAVE: [(&str, &str); 4] =
    [("a", "a/app.yaml"), ("b", "b/app.yaml"), ("c", "c/app.yaml"), ("d", "d/app.yaml")];

fn files(content: impl Fn(&str) -> String) -> [(&'static str, String); 4] {
    FIRST_WAVE.map(|(name, path)| (path, content(name)))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_wave_honours_its_limit() -> Result<()> {
    let story = Story::with_windlass("rollout-limit").await?;
    let upstream = story.follow("app", &files(|name| config_map(name, "1"))).await?;
    for (name, _) in FIRST_WAVE {
        let more = json!({"path": format!("./{name}"), "wait": true});
        story.kustomization(name, "app", more).await?;
        let canary = json!({"metadata": {"labels": {"windlass.dev/wave": "canary"}}});
        story.merge(&StoryObject::kustomization(name), canary).await?;
    }
    for (name, _) in FIRST_WAVE {
        story.await_ready(&StoryObject::kustomization(name)).await?;
    }
    // One applier of the wave `canary` may be unavailable.
    create_rollout(&story, "fleet", two_waves("1s")).await?;
    await_reason(&story, "fleet", "Succeeded").await?;
    // A run after the rollout was created records the artifact to which the Kustomization can be pinned.
    for (name, _) in FIRST_WAVE {
        story.rerun(&StoryObject::kustomization(name)).await?;
    }

    // Only one attempts a revision that fails.
    let second = upstream.push(&files(|_| "kind: [".to_owned())).await?;
    let message = await_reason(&story, "fleet", "WaveFailed").await?;
    ensure!(message.contains("0 of 4 updated, 1 failed"), "{message}");
    let mut attempts = Vec::new();
    for (name, _) in FIRST_WAVE {
        let object = story.rerun(&StoryObject::kustomization(name)).await?;
        if object.data["status"]["lastAttemptedRevision"] == second.as_str() {
            attempts.push(name);
        }
    }
    ensure!(attempts.len() == 1, "{attempts:?} attempted the revision");

    // All take one that is good, and each waits until the one before is healthy.
    let kustomizations = WatchSelection::of("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
    let kustomizations = [kustomizations.within(&story.namespace)];
    let mut watch = ObjectWatch::begin(&story.client, &kustomizations).await?;
    let good = |name: &str| {
        format!("{}---{}", config_map(name, "3"), deployment(name, PodBehavior::Ready))
    };
    let third = upstream.push(&files(good)).await?;
    let mut under_way = BTreeSet::new();
    let mut began = BTreeSet::new();
    let mut done = BTreeSet::new();
    // Four rollouts of a Deployment, one after the other.
    let deadline = Instant::now() + 2 * DEFAULT_WAIT_TIMEOUT;
    while done.len() < FIRST_WAVE.len() {
        let seen = watch.next("all to have the good revision", deadline).await?;
        if seen.has_applied(&third) {
            under_way.remove(&seen.name);
            done.insert(seen.name);
        } else if seen.value("/status/lastAttemptedRevision") == third.as_str()
            && !done.contains(&seen.name)
        {
            began.insert(seen.name.clone());
            under_way.insert(seen.name);
        }
        ensure!(under_way.len() <= 1, "{under_way:?} take the revision at the same time");
    }
    ensure!(began == done, "only {began:?} were seen while they took the revision");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_that_is_ready_with_an_older_revision_opens_no_wave() -> Result<()> {
    let story = Story::with_windlass("rollout-stale").await?;
    let upstream = story.follow("app", &super::files("1")).await?;
    canary_and_production(&story, "1s").await?;
    let first = applied(&story, "b").await?;
    // Outside its window, the canary takes no revision. It stays Ready, because the revision changes nothing in its folder.
    let canary = StoryObject::kustomization("a");
    let opened = Timestamp::now() - SignedDuration::from_hours(3);
    let window = opened.strftime("%M %H * * * 1h").to_string();
    let annotations = json!({"metadata": {"annotations": {"windlass.dev/window": window}}});
    story.merge(&canary, annotations).await?;
    story.await_condition(&canary, "windlass.dev/Window", "False", DEFAULT_WAIT_TIMEOUT).await?;

    let second = upstream.push(&[("b/map.yaml", config_map("b", "2"))]).await?;
    let waits_for_canary = |object: &DynamicObject| {
        let source = &object.data["status"]["sources"][0];
        source["revision"] == second.as_str() && source["wave"] == "canary"
    };
    story.await_object(&rollout("fleet"), DEFAULT_WAIT_TIMEOUT, waits_for_canary).await?;
    await_waiting(&story, "b").await?;
    story.rerun(&canary).await?;
    story.rerun(&StoryObject::kustomization("b")).await?;
    let stale = story.expect(&canary).await?;
    ensure!(condition(&stale, "Ready")["status"] == "True", "{:?}", stale.data["status"]);
    ensure!(applied(&story, "a").await? == first, "the canary took the revision");
    ensure!(applied(&story, "b").await? == first, "production took the revision first");
    story.await_value("b", "1").await?;

    let annotations = json!({"metadata": {"annotations": {"windlass.dev/window": null}}});
    story.merge(&canary, annotations).await?;
    story.await_value("b", "2").await?;
    ensure!(applied(&story, "a").await? == second, "production took the revision first");
    story.end().await
}
