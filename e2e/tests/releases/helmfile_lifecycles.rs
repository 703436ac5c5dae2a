//! Lifecycles hold each release of a Helmfile separately. Releases that need a waiting one come later.
//!
//! Elsewhere: the phases and outcomes, which are the same as for a HelmRelease (`lifecycles.rs`).

use anyhow::{Result, ensure};
use crds::operation_lifecycle::{LifecycleBinding, LifecyclePhase};
use crds::windlass_release::AuditOutcome;
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::release_audits::audits;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::json;

use super::helmfiles::{applied, follow_chart, keep, release, releases, states};

#[tokio::test(flavor = "multi_thread")]
async fn releases_of_a_helmfile_wait_for_lifecycles_one_by_one() -> Result<()> {
    let story = Story::with_windlass("helmfile-lifecycle").await?;
    let check = story.lifecycle("check", &["PreInstall", "PreUpgrade"], json!({})).await?;
    let subjects = json!([{"kind": "Helmfile", "name": "shop"}]);
    story.bind(&check, json!({"subjects": subjects})).await?;
    let all = [release("web", "w1", &["db"]), release("db", "d1", &[])];
    let upstream = follow_chart(&story, &[("helmfile.yaml", releases(&all))]).await?;
    let shop = keep(&story, "shop", json!({})).await?;
    let event = story.await_asked(LifecyclePhase::PreInstall).await?;
    let of = event.spec.subject.release.as_ref().map(|it| it.name.clone());
    ensure!(event.spec.subject.kind == "Helmfile" && of.as_deref() == Some("db"), "{event:?}");
    let is_waiting = |object: &DynamicObject| {
        states(object) == ["db Progressing", "web Waiting"]
            && object.data["status"]["releases"].to_string().contains("waiting for lifecycle")
    };
    story.await_object(&shop, DEFAULT_WAIT_TIMEOUT, is_waiting).await?;
    story.answer(&event, "Succeeded", "").await?;
    let event = story
        .await_until("web to be asked about", DEFAULT_WAIT_TIMEOUT, async || {
            let mut events = story.lifecycle_events().await?;
            let event = events.pop().filter(|_| events.is_empty());
            let is_of_web = |name: &str| name == "web";
            Ok(event.filter(|it| {
                it.spec.subject.release.as_ref().is_some_and(|it| is_of_web(&it.name))
            }))
        })
        .await?;
    story.answer(&event, "Succeeded", "").await?;
    let object = story.await_ready(&shop).await?;
    ensure!(states(&object) == ["db Ready", "web Ready"], "{:?}", states(&object));
    story.await_no_events().await?;

    // A negative answer fails one release, and the other one is upgraded.
    let all = [release("web", "w2", &[]), release("db", "d2", &[])];
    let second = upstream.push(&[("helmfile.yaml", releases(&all))]).await?;
    let events = story
        .await_until("both to be asked about", DEFAULT_WAIT_TIMEOUT, async || {
            let events = story.lifecycle_events().await?;
            Ok((events.len() == 2).then_some(events))
        })
        .await?;
    for event in &events {
        let is_web = event.spec.subject.release.as_ref().is_some_and(|it| it.name == "web");
        story.answer(event, if is_web { "Failed" } else { "Succeeded" }, "no").await?;
    }
    story.await_value("db-config", "d2").await?;
    let is_failed = |object: &DynamicObject| {
        states(object).contains(&"web Failed".to_owned())
            && object.data["status"]["releases"].to_string().contains("failed at PreUpgrade")
    };
    story.await_object(&shop, DEFAULT_WAIT_TIMEOUT, is_failed).await?;
    let failed = audits(&story).await?;
    let failed = failed.iter().filter(|it| it.spec.outcome == AuditOutcome::Failed);
    ensure!(failed.count() >= 1);
    // Without the binding, the next attempt releases it.
    story.delete(&StoryObject::of::<LifecycleBinding>(&check)).await?;
    story.request(&shop).await?;
    applied(&story, &shop, &second).await?;
    story.await_value("web-config", "w2").await?;
    story.await_no_events().await?;
    story.end_lifecycles().await
}
