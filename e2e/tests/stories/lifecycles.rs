//! Lifecycles hold a Kustomization before and after a revision is applied, and around its removal.
//!
//! Elsewhere: releases (`releases/lifecycles.rs`).

use anyhow::{Result, ensure};
use crds::operation_lifecycle::LifecyclePhase;
use crds::windlass_release::{AuditOperation, AuditOutcome};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::release_audits::await_audits;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::{Value, json};

fn subjects() -> Value {
    json!({"subjects": [{"kind": "Kustomization"}]})
}

async fn await_pending(story: &Story, apps: &StoryObject) -> Result<()> {
    let is_pending = |object: &DynamicObject| {
        let ready = condition(object, "Ready");
        ready["status"] == "Unknown" && ready["reason"] == "LifecyclePending"
    };
    story.await_object(apps, DEFAULT_WAIT_TIMEOUT, is_pending).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_phase_of_a_kustomization_waits_for_its_answer() -> Result<()> {
    let story = Story::with_windlass("lifecycle-apply").await?;
    let phases = [
        "PreInstall",
        "PostInstall",
        "PreUpgrade",
        "PostUpgrade",
        "Promote",
        "PreDelete",
        "PostDelete",
    ];
    let check = story.lifecycle("check", &phases, json!({})).await?;
    story.bind(&check, subjects()).await?;
    let upstream = story.follow("apps", &[("a.yaml", config_map("a", "one"))]).await?;
    story.kustomization("apps", "apps", json!({"wait": true})).await?;
    let apps = StoryObject::kustomization("apps");
    let event = story.await_asked(LifecyclePhase::PreInstall).await?;
    await_pending(&story, &apps).await?;
    ensure!(story.read(&StoryObject::config_map("a")).await?.is_none(), "it is applied");
    ensure!(event.spec.subject.kind == "Kustomization" && event.spec.from.is_none());
    story.answer(&event, "Succeeded", "").await?;
    for phase in [LifecyclePhase::PostInstall, LifecyclePhase::Promote] {
        // Earlier answers are kept until the end.
        let event = story
            .await_until(&format!("{phase}"), DEFAULT_WAIT_TIMEOUT, async || {
                let events = story.lifecycle_events().await?;
                Ok(events.into_iter().find(|it| it.spec.phase == phase))
            })
            .await?;
        await_pending(&story, &apps).await?;
        story.expect(&StoryObject::config_map("a")).await?;
        story.answer(&event, "Succeeded", "").await?;
    }
    story.await_ready(&apps).await?;
    story.await_no_events().await?;
    let applied = await_audits(&story, 1).await?.remove(0).spec;
    let answered: Vec<&str> = applied.lifecycles.iter().map(|it| it.phase.as_str()).collect();
    ensure!(answered == ["PreInstall", "PostInstall", "Promote"], "{answered:?}");
    ensure!(applied.changes.added == 1, "{:?}", applied.changes);

    // Drift is corrected without an answer.
    story.merge(&StoryObject::config_map("a"), json!({"data": {"value": "edited"}})).await?;
    story.await_value("a", "one").await?;
    ensure!(story.lifecycle_events().await?.is_empty());

    // A negative answer leaves the applied objects unchanged. A newer revision needs a new answer.
    let second = upstream.push(&[("a.yaml", config_map("a", "two"))]).await?;
    let event = story.await_asked(LifecyclePhase::PreUpgrade).await?;
    ensure!(event.spec.to.as_ref().is_some_and(|it| it.revision == second), "{:?}", event.spec);
    story.answer(&event, "Failed", "no quota").await?;
    let text = story.await_message(&apps, "no quota").await?;
    ensure!(text.starts_with("LifecycleFailed"), "{text}");
    story.await_value("a", "one").await?;
    upstream.push(&[("a.yaml", config_map("a", "three"))]).await?;
    story
        .await_until("the newer revision to be asked about", DEFAULT_WAIT_TIMEOUT, async || {
            let events = story.lifecycle_events().await?;
            Ok(events.into_iter().find(|it| it.spec.operation != event.spec.operation))
        })
        .await?;
    let audits = await_audits(&story, 3).await?;
    let refused = audits.iter().find(|it| it.spec.outcome == AuditOutcome::Failed);
    ensure!(refused.is_some_and(|it| it.spec.operation == AuditOperation::Apply), "{refused:?}");

    // The removal waits as well.
    story.delete(&apps).await?;
    let event = story.await_asked(LifecyclePhase::PreDelete).await?;
    story.await_value("a", "one").await?;
    story.answer(&event, "Succeeded", "").await?;
    let event = story
        .await_until("PostDelete", DEFAULT_WAIT_TIMEOUT, async || {
            let events = story.lifecycle_events().await?;
            Ok(events.into_iter().find(|it| it.spec.phase == LifecyclePhase::PostDelete))
        })
        .await?;
    ensure!(story.read(&StoryObject::config_map("a")).await?.is_none(), "it is there");
    story.expect(&apps).await?;
    story.answer(&event, "Succeeded", "").await?;
    story.await_gone(&apps, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_no_events().await?;
    story.end_lifecycles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_kustomization_waits_and_a_request_asks_again() -> Result<()> {
    let story = Story::with_windlass("lifecycle-suspend").await?;
    let check = story.lifecycle("check", &["PreInstall", "Promote"], json!({})).await?;
    story.bind(&check, subjects()).await?;
    let _upstream = story.follow("apps", &[("a.yaml", config_map("a", "one"))]).await?;
    story.kustomization("apps", "apps", json!({})).await?;
    let apps = StoryObject::kustomization("apps");
    let event = story.await_asked(LifecyclePhase::PreInstall).await?;
    story.answer(&event, "Failed", "not now").await?;
    story.await_message(&apps, "not now").await?;
    story.request(&apps).await?;
    let again = story
        .await_until("it to be asked again", DEFAULT_WAIT_TIMEOUT, async || {
            let mut events = story.lifecycle_events().await?;
            let found = events.pop().filter(|it| it.metadata.uid != event.metadata.uid);
            Ok(found)
        })
        .await?;
    story.answer(&again, "Succeeded", "").await?;
    story.await_value("a", "one").await?;
    let promote = story
        .await_until("Promote", DEFAULT_WAIT_TIMEOUT, async || {
            let events = story.lifecycle_events().await?;
            Ok(events.into_iter().find(|it| it.spec.phase == LifecyclePhase::Promote))
        })
        .await?;
    await_pending(&story, &apps).await?;
    story.answer(&promote, "Succeeded", "").await?;
    story.await_ready(&apps).await?;
    story.await_no_events().await?;
    story.end_lifecycles().await
}
