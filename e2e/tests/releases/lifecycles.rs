//! Lifecycles hold a HelmRelease at its phases. Another controller allows the operation, fails it, or does not answer.
//!
//! Elsewhere: users who approve (`approvals.rs`), killing windlass meanwhile (`e2e/tests/restarts.rs`).

use anyhow::{Context as _, Result, ensure};
use crds::operation_lifecycle::{LifecycleEvent, LifecyclePhase, LifecycleState};
use crds::windlass_release::{AuditLifecycleAnswer, AuditOperation, AuditOutcome};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::release_audits::await_audits;
use e2e::harness::{Story, StoryObject};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::json;

/// Waits until the object reports that it waits for a lifecycle.
async fn await_pending(story: &Story, app: &StoryObject, event: &LifecycleEvent) -> Result<()> {
    let name = event.name_any();
    let is_pending = |object: &DynamicObject| {
        let ready = condition(object, "Ready");
        ready["status"] == "Unknown"
            && ready["reason"] == "LifecyclePending"
            && ready["message"].as_str().is_some_and(|text| text.contains(&name))
    };
    story.await_object(app, DEFAULT_WAIT_TIMEOUT, is_pending).await.map(drop)
}

fn answered(lifecycles: &[AuditLifecycleAnswer]) -> Vec<String> {
    lifecycles.iter().map(|it| format!("{} {}", it.phase, it.outcome)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_phase_waits_for_its_answer_and_the_audit_has_them() -> Result<()> {
    let story = Story::with_windlass("lifecycle").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let phases = ["PreInstall", "PostInstall", "PreUpgrade", "PostUpgrade", "Promote"];
    let check = story.lifecycle("check", &phases, json!({})).await?;
    story.bind(&check, json!({"parameters": {"rate": "200"}})).await?;
    let app = charts.release("app", json!({})).await?;

    // Before the installation, nothing exists, not even a record.
    let event = story.await_asked(LifecyclePhase::PreInstall).await?;
    await_pending(&story, &app, &event).await?;
    ensure!(story.history("app").is_err(), "there is a record");
    ensure!(story.read(&StoryObject::config_map("app-config")).await?.is_none());
    let spec = &event.spec;
    ensure!(spec.lifecycle == check && spec.parameters["rate"] == "200", "{spec:?}");
    ensure!(event.labels()["lifecycle.windlass.dev/key"] == "check", "{:?}", event.labels());
    ensure!(spec.from.is_none() && spec.deadline.is_some(), "{spec:?}");
    let to = spec.to.as_ref().context("it is to be something")?;
    ensure!((&*to.revision, to.chart_version.as_deref()) == ("1", Some("1.0.0")), "{to:?}");
    let why = story.windlass_says(&["why", "hr/app", "-n", &story.namespace], false)?;
    ensure!(why.contains(&event.name_any()) && why.contains("lifecycle"), "{why}");
    let shown = story.windlass_says(&["get", "lifecycleevents", "-n", &story.namespace], true)?;
    ensure!(shown.contains("PreInstall of HelmRelease/app"), "{shown}");
    story.answer(&event, "Succeeded", "quota found").await?;

    // After the installation, the objects exist, but the release is not ready.
    let event = story.await_asked(LifecyclePhase::PostInstall).await?;
    await_pending(&story, &app, &event).await?;
    story.expect(&StoryObject::config_map("app-config")).await?;
    // A progress report is no answer.
    story.answer(&event, "Running", "half way").await?;
    story.answer(&event, "Succeeded", "").await?;
    let promote = story.await_asked(LifecyclePhase::Promote).await?;
    ensure!(promote.spec.operation == event.spec.operation, "{:?}", promote.spec);
    await_pending(&story, &app, &promote).await?;
    story.answer(&promote, "Succeeded", "").await?;
    story.await_revision(&app, 1).await?;
    story.await_no_events().await?;
    let install = await_audits(&story, 1).await?.remove(0).spec;
    ensure!(install.id.as_ref() == Some(&event.spec.operation), "{:?}", install.id);
    let wanted = ["PreInstall Succeeded", "PostInstall Succeeded", "Promote Succeeded"];
    ensure!(answered(&install.lifecycles) == wanted, "{:?}", install.lifecycles);
    let first = &install.lifecycles[0];
    ensure!(first.answered_by.as_deref() == Some("checker"), "{first:?}");
    ensure!(first.message.as_deref() == Some("quota found"), "{first:?}");

    // The event of an upgrade names the installed version.
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    let event = story.await_asked(LifecyclePhase::PreUpgrade).await?;
    let from = event.spec.from.as_ref().and_then(|it| it.chart_version.clone());
    ensure!(from.as_deref() == Some("1.0.0"), "{:?}", event.spec);
    story.answer(&event, "Succeeded", "").await?;
    for phase in [LifecyclePhase::PostUpgrade, LifecyclePhase::Promote] {
        let event = story.await_asked(phase).await?;
        story.answer(&event, "Succeeded", "").await?;
    }
    story.await_revision(&app, 2).await?;
    story.await_no_events().await?;
    story.end_lifecycles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_answer_before_an_upgrade_writes_nothing_and_counts_as_a_failure() -> Result<()> {
    let story = Story::with_windlass("lifecycle-refused").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    let check = story.lifecycle("check", &["PreUpgrade"], json!({})).await?;
    story.bind(&check, json!({})).await?;
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    let event = story.await_asked(LifecyclePhase::PreUpgrade).await?;
    story.answer(&event, "Failed", "no quota").await?;
    let text = story.await_message(&app, "no quota").await?;
    ensure!(text.starts_with("LifecycleFailed: Helm upgrade failed"), "{text}");
    ensure!(text.contains("failed at PreUpgrade (answered by checker): no quota"), "{text}");
    story.await_condition(&app, "Stalled", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.await_no_events().await?;
    ensure!(story.history("app")? == ["1 | deployed | app-1.0.0 | Install complete"]);
    let refused = await_audits(&story, 2).await?.remove(1).spec;
    ensure!(refused.operation == AuditOperation::Upgrade, "{refused:?}");
    ensure!(refused.outcome == AuditOutcome::Failed && refused.changes.changed == 0);
    ensure!(answered(&refused.lifecycles) == ["PreUpgrade Failed"], "{refused:?}");

    // An answer is final.
    charts.publish("1.2.0", &[("templates/a.yaml", CONFIG)]).await?;
    let event = story.await_asked(LifecyclePhase::PreUpgrade).await?;
    ensure!(event.spec.to.as_ref().is_some_and(|it| it.chart_version.as_deref() == Some("1.2.0")));
    story.merge(&app, json!({"spec": {"suspend": true}})).await?;
    story.answer(&event, "Succeeded", "").await?;
    let twice = story.answer(&event, "Failed", "").await;
    let twice = format!("{:#}", twice.err().context("it was answered twice")?);
    ensure!(twice.contains("an answer is final"), "{twice}");
    // A suspended object waits, even with an answer.
    ensure!(story.lifecycle_events().await?.len() == 1);
    story.merge(&app, json!({"spec": {"suspend": false}})).await?;
    story.await_revision(&app, 2).await?;
    story.await_no_events().await?;
    story.end_lifecycles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_answer_at_the_promotion_rolls_back() -> Result<()> {
    let story = Story::with_windlass("lifecycle-rollback").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let remediation = json!({"retries": 0, "remediateLastFailure": true});
    let app = charts.release("app", json!({"upgrade": {"remediation": remediation}})).await?;
    story.await_revision(&app, 1).await?;
    let check = story.lifecycle("check", &["Promote", "PreRollback"], json!({})).await?;
    story.bind(&check, json!({"phases": ["Promote"]})).await?;
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    let event = story.await_asked(LifecyclePhase::Promote).await?;
    await_pending(&story, &app, &event).await?;
    let map = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(map.data["data"]["chart"] == "1.1.0", "{:?}", map.data);
    story.answer(&event, "Failed", "error rate 12%").await?;
    let is_undone =
        |object: &DynamicObject| condition(object, "Remediated")["reason"] == "RollbackSucceeded";
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_undone).await?;
    let map = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(map.data["data"]["chart"] == "1.0.0", "{:?}", map.data);
    let object = story.expect(&app).await?;
    let released = condition(&object, "Released");
    ensure!(released["reason"] == "LifecycleFailed", "{released}");
    story.await_no_events().await?;
    let audits = await_audits(&story, 3).await?;
    ensure!(answered(&audits[1].spec.lifecycles) == ["Promote Failed"], "{:?}", audits[1].spec);
    ensure!(audits[2].spec.operation == AuditOperation::Rollback, "{:?}", audits[2].spec);
    story.end_lifecycles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_an_answer_fails_or_lets_the_release_continue() -> Result<()> {
    let story = Story::with_windlass("lifecycle-timeout").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let spec = json!({"timeout": "2s", "onTimeout": "Continue"});
    let check = story.lifecycle("check", &["PreInstall", "PreUpgrade"], spec).await?;
    story.bind(&check, json!({})).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    let install = await_audits(&story, 1).await?.remove(0).spec;
    ensure!(answered(&install.lifecycles) == ["PreInstall TimedOut"], "{install:?}");
    story.lifecycle("check", &["PreInstall", "PreUpgrade"], json!({"timeout": "2s"})).await?;
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    let text = story.await_message(&app, "was not answered in time at PreUpgrade").await?;
    ensure!(text.starts_with("LifecycleFailed"), "{text}");
    story.await_no_events().await?;
    ensure!(story.history("app")?.len() == 1);
    story.end_lifecycles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_revision_cancels_what_waits_and_deletion_ends_it() -> Result<()> {
    let story = Story::with_windlass("lifecycle-newer").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    let check = story.lifecycle("check", &["PreUpgrade", "Promote"], json!({})).await?;
    story.bind(&check, json!({})).await?;
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    let before = story.await_asked(LifecyclePhase::PreUpgrade).await?;
    let version = |event: &LifecycleEvent| {
        event.spec.to.as_ref().and_then(|it| it.chart_version.clone()).unwrap_or_default()
    };
    ensure!(version(&before) == "1.1.0", "{:?}", before.spec);
    charts.publish("1.2.0", &[("templates/a.yaml", CONFIG)]).await?;
    let newer = story
        .await_until("the event of the newer version", DEFAULT_WAIT_TIMEOUT, async || {
            let mut events = story.lifecycle_events().await?;
            let event = events.pop().filter(|_| events.is_empty());
            Ok(event.filter(|it| version(it) == "1.2.0"))
        })
        .await?;
    ensure!(newer.spec.operation != before.spec.operation, "{:?}", newer.spec);
    story.answer(&newer, "Succeeded", "").await?;
    let promote = story.await_asked(LifecyclePhase::Promote).await?;

    // The same happens after the upgrade, when the objects already exist.
    charts.publish("1.3.0", &[("templates/a.yaml", CONFIG)]).await?;
    let event = story.await_asked(LifecyclePhase::PreUpgrade).await?;
    ensure!(version(&event) == "1.3.0" && event.spec.operation != promote.spec.operation);
    let audits = await_audits(&story, 2).await?;
    ensure!(audits[1].spec.outcome == AuditOutcome::Stopped, "{:?}", audits[1].spec);
    ensure!(answered(&audits[1].spec.lifecycles) == ["PreUpgrade Succeeded"]);

    // Deleting the HelmRelease ends the wait.
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_no_events().await?;
    story.end_lifecycles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_requires_a_lifecycle_and_break_glass_does_not_release_it() -> Result<()> {
    let story = Story::with_windlass("lifecycle-required").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let labels = json!({"kubernetes.io/metadata.name": story.namespace});
    let required = json!({"required": {"namespaceSelector": {"matchLabels": labels}}});
    story.lifecycle("required", &["PreInstall"], required).await?;
    let own = story.lifecycle("own", &["PreInstall"], json!({})).await?;
    // Lower orders come first.
    story.bind(&own, json!({"order": -1})).await?;
    let app = charts.release("app", json!({})).await?;
    let event = story.await_asked(LifecyclePhase::PreInstall).await?;
    ensure!(event.spec.lifecycle == own, "{:?}", event.spec);
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    let glass = json!({"windlass.dev/break-glass": until.to_string()});
    story.merge(&app, json!({"metadata": {"annotations": glass}})).await?;
    let event = story
        .await_until("the required one to be asked", DEFAULT_WAIT_TIMEOUT, async || {
            let events = story.lifecycle_events().await?;
            Ok(events.into_iter().find(|it| it.spec.lifecycle != own))
        })
        .await?;
    await_pending(&story, &app, &event).await?;
    let state = event.status.as_ref().and_then(|it| it.phase).unwrap_or_default();
    ensure!(state == LifecycleState::Pending, "{state}");
    story.answer(&event, "Succeeded", "").await?;
    story.await_revision(&app, 1).await?;
    let install = await_audits(&story, 1).await?.remove(0).spec;
    let wanted = ["PreInstall Released", "PreInstall Succeeded"];
    ensure!(answered(&install.lifecycles) == wanted, "{:?}", install.lifecycles);
    story.end_lifecycles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_of_a_lifecycle_that_does_not_exist_holds_until_it_does() -> Result<()> {
    let story = Story::with_windlass("lifecycle-missing").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let binding = story.bind(&format!("{}-none", story.namespace), json!({})).await?;
    let app = charts.release("app", json!({})).await?;
    let text = story.await_message(&app, "which does not exist").await?;
    ensure!(text.starts_with("LifecyclesUnknown: LifecycleBinding"), "{text}");
    ensure!(story.history("app").is_err(), "there is a record");
    story.delete(&binding).await?;
    story.await_revision(&app, 1).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_waits_before_and_after_it() -> Result<()> {
    let story = Story::with_windlass("lifecycle-removal").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    let check = story.lifecycle("check", &["PreDelete", "PostDelete"], json!({})).await?;
    story.bind(&check, json!({})).await?;
    story.delete(&app).await?;
    let event = story.await_asked(LifecyclePhase::PreDelete).await?;
    story.expect(&StoryObject::config_map("app-config")).await?;
    story.answer(&event, "Succeeded", "").await?;
    let event = story.await_asked(LifecyclePhase::PostDelete).await?;
    ensure!(story.read(&StoryObject::config_map("app-config")).await?.is_none());
    story.expect(&app).await?;
    story.answer(&event, "Succeeded", "").await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_no_events().await?;
    let removal = await_audits(&story, 2).await?.remove(1).spec;
    let wanted = ["PreDelete Succeeded", "PostDelete Succeeded"];
    ensure!(answered(&removal.lifecycles) == wanted, "{removal:?}");
    story.end_lifecycles().await
}
