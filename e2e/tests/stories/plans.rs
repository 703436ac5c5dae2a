//! If a policy or an annotation requires it, a Kustomization changes nothing until a user has approved exactly this change.
//!
//! Elsewhere: releases (`releases::plans`), deletions beyond a budget (`deletion_budget`), killing windlass between approval
//! and first write (`restarts`).

use anyhow::{Context as _, Result, ensure};
use crds::windlass_release::PlanAction;
use e2e::harness::deletion_budget::actions;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{config_map, widget, widget_crd};
use e2e::harness::{Story, StoryObject};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::json;

/// A value that only Secrets contain.
const CANARY: &str = "canary-4e1f9d0b7c";

fn secret(value: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
        "stringData": {"password": value}})
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_a_revision_changes_waits_until_a_user_approves_it() -> Result<()> {
    let story = Story::with_windlass("plan-approve").await?;
    let policy = story.plan_mode("Approve").await?;
    let first = [
        ("a.yaml", config_map("a", "1")),
        ("b.yaml", config_map("b", "1")),
        ("s.yaml", secret(CANARY)),
    ];
    let upstream = story.follow("app", &first).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    let source = story.await_ready(&StoryObject::git_repository("app")).await?;
    let revision = source.data["status"]["artifact"]["revision"].as_str().context("a revision")?;
    let plan = story.await_pending(&app, revision).await?;
    ensure!(actions(&plan) == ["Added a", "Added b", "Added login"], "{:?}", plan.spec);
    ensure!(plan.spec.policies == [story.namespace.clone()], "{:?}", plan.spec.policies);
    for target in [StoryObject::config_map("a"), StoryObject::new("v1", "Secret", "login")] {
        ensure!(story.read(&target).await?.is_none(), "{target} was written before an approval");
    }
    story.ensure_unread(CANARY, &app).await?;
    story.await_event("Kustomization", "app", "waits for approval: 3 added").await?;
    let shown =
        story.windlass_says(&["plan", "show", &plan.name_any(), "-n", &story.namespace], true)?;
    ensure!(shown.contains(&format!("ConfigMap/{}/a", story.namespace)), "{shown}");
    let listed = story.windlass_says(&["get", "plans", "-n", &story.namespace], true)?;
    ensure!(listed.contains("Kustomization/app: 3 added; waits for approval"), "{listed}");
    let why = story.windlass_says(&["why", "ks/app", "-n", &story.namespace], false)?;
    ensure!(why.contains("windlass approve plan/"), "{why}");
    story.approve("ks/app")?;
    story.await_applied("app", revision).await?;
    story.await_no_plans().await?;

    // An upgrade with a removal needs one Plan. Its approval also approves the deletion.
    let before = story.expect(&StoryObject::config_map("a")).await?;
    upstream.repository.delete(&["b.yaml"], "b goes")?;
    let other = format!("{CANARY}-2");
    let changed = [("a.yaml", config_map("a", "2")), ("s.yaml", secret(&other))];
    let revision = upstream.push(&changed).await?;
    let plan = story.await_pending(&app, &revision).await?;
    ensure!(actions(&plan) == ["Removed b", "Changed a", "Changed login"], "{:?}", plan.spec);
    let changes = plan.spec.changes.clone().unwrap_or_default();
    let fields = |action: PlanAction, at: usize| {
        let mut its = changes.objects.iter().filter(|it| it.action == action);
        its.nth(at).map(|it| it.fields.clone())
    };
    ensure!(fields(PlanAction::Changed, 0) == Some(vec!["/data/value".to_owned()]), "{changes:?}");
    ensure!(fields(PlanAction::Changed, 1) == Some(Vec::new()), "a field of a Secret: {changes:?}");
    story.ensure_unread(&other, &app).await?;
    let object = story.expect(&StoryObject::config_map("a")).await?;
    ensure!(object.resource_version() == before.resource_version(), "it was written");
    story.expect(&StoryObject::config_map("b")).await?;
    story.approve(&format!("plan/{}", plan.name_any()))?;
    story.await_applied("app", &revision).await?;
    story.await_value("a", "2").await?;
    story.await_gone(&StoryObject::config_map("b"), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_no_plans().await?;

    // Drift of approved objects is corrected without a question.
    story.merge(&StoryObject::config_map("a"), json!({"data": {"value": "by hand"}})).await?;
    story.await_value("a", "2").await?;
    ensure!(story.plans().await?.is_empty(), "drift was asked for");
    story.delete(&policy).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_after_an_approval_needs_another_one_and_what_is_superseded_goes() -> Result<()>
{
    let story = Story::with_windlass("plan-changed").await?;
    let policy = story.plan_mode("Approve").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    let source = story.await_ready(&StoryObject::git_repository("app")).await?;
    let revision = source.data["status"]["artifact"]["revision"].as_str().context("a revision")?;
    story.await_pending(&app, revision).await?;
    story.approve("ks/app")?;
    story.await_applied("app", revision).await?;

    let revision = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    let second = story.await_pending(&app, &revision).await?;
    // The approval comes during a suspension, and then another revision arrives.
    story.merge(&app, json!({"spec": {"suspend": true}})).await?;
    story.approve(&format!("plan/{}", second.name_any()))?;
    let revision = upstream.push(&[("a.yaml", config_map("a", "3"))]).await?;
    let is_fetched =
        |object: &DynamicObject| object.data["status"]["artifact"]["revision"] == revision.as_str();
    let source = StoryObject::git_repository("app");
    story.await_object(&source, DEFAULT_WAIT_TIMEOUT, is_fetched).await?;
    story.merge(&app, json!({"spec": {"suspend": false}})).await?;
    let third = story.await_pending(&app, &revision).await?;
    ensure!(third.name_any() != second.name_any(), "{:?}", third.spec);
    ensure!(third.status.is_none_or(|it| it.approvals.is_empty()), "the approval was kept");
    story.await_value("a", "1").await?;
    let old = format!("plan/{}", second.name_any());
    let old = story.windlass_says(&["approve", &old, "-n", &story.namespace], false)?;
    ensure!(old.contains("does not exist"), "{old}");

    // A revision that equals the applied state needs no approval, and the Plan is deleted.
    let revision = upstream.push(&[("a.yaml", config_map("a", "1"))]).await?;
    story.await_applied("app", &revision).await?;
    story.await_no_plans().await?;

    // From there, the same change needs another Plan than the one that was approved before.
    let revision = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    story.await_pending(&app, &revision).await?;
    story.await_value("a", "1").await?;
    // Without the policy, the held change is carried out.
    story.delete(&policy).await?;
    story.await_applied("app", &revision).await?;
    story.await_value("a", "2").await?;
    story.await_no_plans().await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn where_destructive_changes_wait_others_do_not() -> Result<()> {
    let story = Story::with_windlass("plan-destructive").await?;
    let policy = story.plan_mode("ApproveDestructive").await?;
    let sealed = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sealed"},
            "immutable": true, "data": {"value": value}})
        .to_string()
    };
    let first = [
        ("a.yaml", config_map("a", "1")),
        ("b.yaml", config_map("b", "1")),
        ("sealed.yaml", sealed("1")),
    ];
    let upstream = story.follow("app", &first).await?;
    story.kustomization("app", "app", json!({"force": true})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    let revision = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    story.await_applied("app", &revision).await?;

    let revision = upstream.remove(&["b.yaml"]).await?;
    let plan = story.await_pending(&app, &revision).await?;
    ensure!(actions(&plan) == ["Removed b"], "{:?}", plan.spec);
    ensure!(plan.spec.count == 1, "{:?}", plan.spec);
    story.expect(&StoryObject::config_map("b")).await?;
    story.approve("ks/app")?;
    story.await_gone(&StoryObject::config_map("b"), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_applied("app", &revision).await?;

    let before = story.expect(&StoryObject::config_map("sealed")).await?.uid();
    let changed = [("a.yaml", config_map("a", "3")), ("sealed.yaml", sealed("2"))];
    let revision = upstream.push(&changed).await?;
    let plan = story.await_pending(&app, &revision).await?;
    ensure!(actions(&plan) == ["Recreated sealed", "Changed a"], "{:?}", plan.spec);
    ensure!(story.expect(&StoryObject::config_map("sealed")).await?.uid() == before, "recreated");
    story.await_value("a", "2").await?;
    story.approve("ks/app")?;
    story.await_value("sealed", "2").await?;
    story.await_applied("app", &revision).await?;
    story.await_no_plans().await?;
    story.delete(&policy).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_only_tightens_and_stages_that_cannot_be_tried_are_unverified() -> Result<()>
{
    let story = Story::with_windlass("plan-annotation").await?;
    story.plan_mode("Automatic").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    // With a typing error in the annotation, every change needs an approval.
    let annotation = |text: &str| json!({"metadata": {"annotations": {"windlass.dev/plan": text}}});
    story.merge(&app, annotation("aprove")).await?;
    let group = format!("{}.example.com", story.namespace);
    let more = [("crd.yaml", widget_crd(&group)), ("w.yaml", widget(&group, "w"))];
    let revision = upstream.push(&more).await?;
    let plan = story.await_pending(&app, &revision).await?;
    let changes = plan.spec.changes.clone().unwrap_or_default();
    let unverified: Vec<&str> =
        changes.objects.iter().filter(|it| it.unverified).map(|it| it.id.as_str()).collect();
    ensure!(unverified.len() == 1 && unverified[0].contains("_w_"), "{changes:?}");
    ensure!(changes.unverified == 1 && changes.added == 2, "{changes:?}");
    let definition = StoryObject::new(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &format!("widgets.{group}"),
    );
    ensure!(story.read(&definition).await?.is_none(), "it was written before an approval");
    story.approve("ks/app")?;
    let object = story.await_applied("app", &revision).await?;
    ensure!(condition(&object, "Ready")["status"] == "True", "{:?}", object.data);
    story.await_no_plans().await?;

    // An annotation does not weaken a policy that requires more.
    story.merge(&app, annotation("ApproveDestructive")).await?;
    let policy = story.plan_mode("Approve").await?;
    let revision = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    story.await_pending(&app, &revision).await?;
    story.await_value("a", "1").await?;
    story.delete(&policy).await?;
    story.await_applied("app", &revision).await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}
