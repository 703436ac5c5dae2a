//! Which approvals of a Plan count: those of users who have the right when the operation begins, in the number that
//! PlanPolicies require. Also the effect of a rejection.
//!
//! Elsewhere: what an approval covers (`plans`), every kind and outcome (`releases_with_own_windlass/plan_matrix.rs`).

use anyhow::{Context as _, Result, ensure};
use crds::windlass_release::Plan;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Gives a user or a group the right to approve the Plans of the story's PlanPolicy, which has the name of the namespace.
/// Returns the created objects.
async fn allow(story: &Story, kind: &str, name: &str) -> Result<[StoryObject; 2]> {
    let full = format!("{}-{name}", story.namespace);
    let rule = json!({"apiGroups": ["release.windlass.dev"], "resources": ["planpolicies"],
        "resourceNames": [story.namespace], "verbs": ["approve"]});
    let group = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": full}, "rules": [rule]});
    story.apply_value(role).await?;
    let binding = json!({"apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": full},
        "subjects": [{"apiGroup": group, "kind": kind, "name": name}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": full}});
    story.apply_value(binding).await?;
    Ok(["ClusterRoleBinding", "ClusterRole"].map(|kind| StoryObject::new(RBAC, kind, &full)))
}

/// Waits until the API server knows whether a user of a group may approve.
async fn await_right(story: &Story, user: &str, group: &str, is_allowed: bool) -> Result<()> {
    let api = Api::<SubjectAccessReview>::all(story.client.clone());
    let attributes = ResourceAttributes {
        verb: Some("approve".to_owned()),
        group: Some("release.windlass.dev".to_owned()),
        resource: Some("planpolicies".to_owned()),
        name: Some(story.namespace.clone()),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: Some(user.to_owned()),
        groups: Some(vec![group.to_owned()]),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    story
        .await_until("the right to be known", DEFAULT_WAIT_TIMEOUT, async || {
            let answer = api.create(&PostParams::default(), &review).await?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            Ok((allowed == is_allowed).then_some(()))
        })
        .await
}

/// Writes approvals, as if the admission policy had allowed them.
async fn approve_as(story: &Story, plan: &Plan, approvals: Value) -> Result<()> {
    let status = json!({"status": {"approvals": approvals}});
    story.merge_status(&StoryObject::of::<Plan>(&plan.name_any()), status).await.map(drop)
}

/// The revision of the source.
async fn revision_of(story: &Story, name: &str) -> Result<String> {
    let source = story.await_ready(&StoryObject::git_repository(name)).await?;
    let revision = source.data["status"]["artifact"]["revision"].as_str();
    Ok(revision.context("a revision")?.to_owned())
}

async fn await_said(story: &Story, target: &StoryObject, text: &str) -> Result<()> {
    let is_said = |object: &DynamicObject| {
        let ready = condition(object, "Ready");
        ready["reason"] == "PlanPending" && ready["message"].to_string().contains(text)
    };
    story.await_object(target, DEFAULT_WAIT_TIMEOUT, is_said).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approver_without_the_right_when_the_operation_begins_does_not_count() -> Result<()> {
    let story = Story::with_windlass("plan-right").await?;
    let policy = story.plan_mode("Approve").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    let revision = revision_of(&story, "app").await?;
    let plan = story.await_pending(&app, &revision).await?;
    let group = format!("{}-approvers", story.namespace);
    approve_as(&story, &plan, json!([{"user": "alice", "groups": [group]}])).await?;
    let refusal = format!("alice has no right to `approve` PlanPolicy {}", story.namespace);
    await_said(&story, &app, &refusal).await?;
    ensure!(story.read(&StoryObject::config_map("a")).await?.is_none(), "it was written");
    // With the right, the same approval counts.
    let given = allow(&story, "Group", &group).await?;
    await_right(&story, "alice", &group, true).await?;
    story.request(&app).await?;
    story.await_applied("app", &revision).await?;
    story.await_no_plans().await?;

    // The user loses the right between the approval and the operation.
    let revision = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    let plan = story.await_pending(&app, &revision).await?;
    story.merge(&app, json!({"spec": {"suspend": true}})).await?;
    let is_suspended = |object: &DynamicObject| condition(object, "Ready")["status"] != "Unknown";
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_suspended).await?;
    approve_as(&story, &plan, json!([{"user": "alice", "groups": [group]}])).await?;
    for target in &given {
        story.delete(target).await?;
    }
    await_right(&story, "alice", &group, false).await?;
    story.merge(&app, json!({"spec": {"suspend": false}})).await?;
    await_said(&story, &app, &refusal).await?;
    story.await_value("a", "1").await?;
    story.delete(&policy).await?;
    story.await_applied("app", &revision).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_users_have_to_approve_as_the_policy_says() -> Result<()> {
    let story = Story::with_windlass("plan-four-eyes").await?;
    let policy = story.plan_mode("Approve").await?;
    story.merge(&policy, json!({"spec": {"approvals": 2}})).await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    let revision = revision_of(&story, "app").await?;
    // The first Plan may have been made before windlass knew the number.
    let plan = story
        .await_until("a Plan for two users", DEFAULT_WAIT_TIMEOUT, async || {
            let plan = story.await_pending(&app, &revision).await?;
            Ok((plan.spec.approvals == 2).then_some(plan))
        })
        .await?;
    let named = format!("plan/{}", plan.name_any());
    let said = story.windlass_says(&["approve", &named, "-n", &story.namespace], true)?;
    ensure!(said.contains("1 of 2 approvals"), "{said}");
    await_said(&story, &app, "; 1 of 2 approvals").await?;
    let listed = story.windlass_says(&["get", "plans", "-n", &story.namespace], true)?;
    ensure!(listed.contains("approved by admin, 1 of 2 approvals"), "{listed}");
    let shown = story.windlass_says(&["plan", "show", &named, "-n", &story.namespace], true)?;
    ensure!(shown.contains("Approved by admin, 1 of 2 approvals"), "{shown}");
    // A second approval of the same user does not count.
    story.windlass_says(&["approve", &named, "-n", &story.namespace], true)?;
    ensure!(story.read(&StoryObject::config_map("a")).await?.is_none(), "it was written");

    let given = allow(&story, "User", "alice").await?;
    await_right(&story, "alice", "none", true).await?;
    let by_admin = story.plans().await?.pop().context("the Plan")?.status.unwrap_or_default();
    let mut approvals = serde_json::to_value(by_admin.approvals)?;
    let own = json!({"user": "alice"});
    approvals.as_array_mut().context("a list of approvals")?.push(own);
    approve_as(&story, &plan, approvals).await?;
    story.await_applied("app", &revision).await?;
    story.await_no_plans().await?;
    for target in given.iter().chain([&policy]) {
        story.delete(target).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_a_user_rejected_stays_rejected_until_another_one() -> Result<()> {
    let story = Story::with_windlass("plan-rejected").await?;
    let names: Vec<String> = (0..14).map(|at| format!("m{at:02}")).collect();
    let files: Vec<(String, String)> =
        names.iter().map(|name| (format!("{name}.yaml"), config_map(name, "1"))).collect();
    let files: Vec<(&str, String)> =
        files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    let gone: Vec<&str> = files.iter().skip(2).map(|(path, _)| *path).collect();
    let revision = upstream.remove(&gone).await?;
    let plan = story.await_held("app", &revision, 12).await?;
    let named = format!("plan/{}", plan.name_any());
    let reject = [
        "approve",
        named.as_str(),
        "-n",
        story.namespace.as_str(),
        "--reject",
        "--comment",
        "in use",
    ];
    let said = story.windlass_says(&reject, true)?;
    ensure!(said.contains("is rejected by admin: the objects stay"), "{said}");
    let is_rejected = |object: &DynamicObject| {
        let held = condition(object, "DeletionHeld");
        held["message"].to_string().contains("their deletion is rejected by admin (in use)")
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_rejected).await?;
    let refused = story.windlass_says(&["approve", &named, "-n", &story.namespace], false)?;
    ensure!(refused.contains("which is final"), "{refused}");
    let taken_back = json!({"status": {"rejection": null}});
    let taken_back =
        story.merge_status(&StoryObject::of::<Plan>(&plan.name_any()), taken_back).await;
    let taken_back = format!("{:#}", taken_back.err().context("it was taken back")?);
    ensure!(taken_back.contains("a rejection is final"), "{taken_back}");
    story.ensure_config_maps(&names).await?;
    // With one object less, it is another deletion.
    let back: Vec<(&str, String)> = files.iter().skip(2).take(1).cloned().collect();
    let revision = upstream.push(&back).await?;
    let other = story.await_held("app", &revision, 11).await?;
    ensure!(other.status.is_none_or(|it| it.rejection.is_none()), "the rejection was kept");
    story.windlass_says(&["approve", "ks/app", "-n", &story.namespace], true)?;
    story.await_not_held("app").await?;
    story.ensure_config_maps(&names[..3]).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admission_policy_proves_groups_and_rejections() -> Result<()> {
    let story = Story::with_windlass("plan-proof").await?;
    let policy = story.plan_mode("Approve").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    let revision = revision_of(&story, "app").await?;
    let plan = story.await_pending(&app, &revision).await?;
    let mut made = story.enforce(include_str!("../../../deploy/policies/plans.yaml")).await?;
    made.push(policy);
    let api = Api::<Plan>::namespaced(story.client.clone(), &story.namespace);
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let tried = async |status: Value| {
        let patch = Patch::Merge(json!({"status": status}));
        let answer = api.patch_status(&plan.name_any(), &dry_run, &patch).await;
        answer.map_or_else(|error| error.to_string(), |_| String::new())
    };
    let foreign = json!({"approvals": [{"user": "admin", "groups": ["system:masters", "others"]}]});
    story
        .await_until("the policy to count", DEFAULT_WAIT_TIMEOUT, async || {
            let refused = tried(foreign.clone()).await;
            Ok(refused.contains("the groups of an approval have to be those").then_some(()))
        })
        .await?;
    let own = json!({"approvals": [{"user": "admin", "groups": ["system:masters"]}]});
    let answer = tried(own).await;
    ensure!(answer.is_empty(), "{answer}");
    let of_another = tried(json!({"rejection": {"user": "alice"}})).await;
    ensure!(of_another.contains("users reject for themselves only"), "{of_another}");
    let named = format!("plan/{}", plan.name_any());
    story.windlass_says(&["approve", &named, "-n", &story.namespace, "--reject"], true)?;
    let approval = tried(json!({"approvals": [{"user": "admin"}]})).await;
    ensure!(approval.contains("the Plan is rejected"), "{approval}");
    story.await_failure(&app, "PlanRejected").await?;
    for target in made {
        story.delete(&target).await?;
    }
    story.await_applied("app", &revision).await?;
    story.end().await
}
