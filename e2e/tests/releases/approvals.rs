//! Users approve an operation with `windlass approve`. The API server rejects approvals without the right, and approvals in
//! another user's name.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use crds::operation_lifecycle::{LifecycleEvent, LifecyclePhase};
use crds::windlass_release::ReleaseAudit;
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::release_audits::await_audits;
use e2e::harness::{Story, StoryObject};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// A user with all rights in the namespace, with or without the right to approve the Lifecycle.
async fn user(story: &Story, name: &str, lifecycle: Option<(&str, &str)>) -> Result<PathBuf> {
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": story.namespace});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    story.apply_value(account).await?;
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let role = |kind: &str, name: &str, rules: Value| json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": name}, "rules": rules});
    let binding = |kind: &str, of: &str, name: &str| {
        json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": name}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": of, "name": name}})
    };
    story.apply_value(role("Role", name, all)).await?;
    story.apply_value(binding("RoleBinding", "Role", name)).await?;
    if let Some((verb, lifecycle)) = lifecycle {
        let full = format!("{}-{name}", story.namespace);
        let rules = json!([{"apiGroups": ["lifecycle.windlass.dev"], "resources": ["lifecycles"],
            "resourceNames": [lifecycle], "verbs": [verb]}]);
        story.apply_value(role("ClusterRole", &full, rules)).await?;
        story.apply_value(binding("ClusterRoleBinding", "ClusterRole", &full)).await?;
    }
    story.get::<ServiceAccount>(name).await?;
    story.bed.account_kubeconfig(&story.namespace, name).await
}

/// Runs `windlass` as a user. Returns its output, and whether it succeeded.
fn says(story: &Story, kubeconfig: &Path, arguments: &[&str]) -> Result<(bool, String)> {
    let output = Command::new(e2e::operator_process::binary()?)
        .args(arguments)
        .args(["-n", &story.namespace, "--kubeconfig"])
        .arg(kubeconfig)
        .output()
        .context("windlass cannot be started")?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

async fn clean_up(story: &Story, made: Vec<StoryObject>, users: &[&str]) -> Result<()> {
    for target in made {
        story.delete(&target).await?;
    }
    for name in users {
        let full = format!("{}-{name}", story.namespace);
        for kind in ["ClusterRoleBinding", "ClusterRole"] {
            story.delete(&StoryObject::new(RBAC, kind, &full)).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_users_approve_and_one_without_the_right_is_refused() -> Result<()> {
    let story = Story::with_windlass("approval").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let handler = json!({"handler": {"approval": {"count": 2}}});
    let lifecycle = story.lifecycle("approve", &["PreInstall", "PreUpgrade"], handler).await?;
    story.bind(&lifecycle, json!({})).await?;
    let policies = include_str!("../../../deploy/policies/lifecycles.yaml");
    let made = story.enforce(policies).await?;
    let alice = user(&story, "alice", Some(("approve", &lifecycle))).await?;
    let bob = user(&story, "bob", Some(("approve", &lifecycle))).await?;
    let mallory = user(&story, "mallory", None).await?;
    let app = charts.release("app", json!({})).await?;
    let event = story.await_asked(LifecyclePhase::PreInstall).await?;
    ensure!(event.spec.approvals == 2, "{:?}", event.spec);

    // A policy comes into force some time after its creation.
    let client = e2e::control_plane::client(&mallory).await?;
    let as_mallory = Api::<LifecycleEvent>::namespaced(client, &story.namespace);
    let forged = json!({"status": {"approvals": [{"user": "alice"}, {"user": "bob"}]}});
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let name = event.name_any();
    let request = async || as_mallory.patch_status(&name, &dry_run, &Patch::Merge(&forged)).await;
    story.await_refusal("users approve for themselves", request).await?;
    let (done, message) = says(&story, &mallory, &["approve", "hr/app"])?;
    ensure!(!done && message.contains("requires the verb `approve`"), "{message}");
    // A user with all rights in the namespace may neither answer, create nor delete events.
    let answer = json!({"status": {"phase": "Succeeded", "answeredBy": "alice"}});
    let refused = as_mallory.patch_status(&name, &dry_run, &Patch::Merge(&answer)).await;
    let refused = refused.err().context("it was answered")?.to_string();
    ensure!(refused.contains("requires the verb `handle`"), "{refused}");
    let refused = as_mallory.delete(&name, &DeleteParams::default()).await;
    let refused = refused.err().context("it was deleted")?.to_string();
    ensure!(refused.contains("only windlass creates"), "{refused}");

    // A user may not approve in the name of another user either.
    let client = e2e::control_plane::client(&alice).await?;
    let as_alice = Api::<LifecycleEvent>::namespaced(client, &story.namespace);
    let refused = as_alice.patch_status(&name, &dry_run, &Patch::Merge(&forged)).await;
    let refused = refused.err().context("alice approved for bob")?.to_string();
    ensure!(refused.contains("users approve for themselves"), "{refused}");

    let (done, message) = says(&story, &alice, &["approve", "hr/app", "--comment", "tested"])?;
    ensure!(done && message.contains("1 of 2 approvals"), "{message}");
    let (done, message) = says(&story, &alice, &["approve", &name])?;
    ensure!(done && message.contains("was approved by"), "{message}");
    let text = |object: &kube::api::DynamicObject| object.data["status"]["conditions"].to_string();
    let is_counted = |object: &kube::api::DynamicObject| text(object).contains("1 of 2 approvals");
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_counted).await?;
    ensure!(story.history("app").is_err(), "there is a record");
    let (done, message) = says(&story, &bob, &["approve", "hr/app"])?;
    ensure!(done && message.contains("2 of 2 approvals"), "{message}");
    story.await_revision(&app, 1).await?;
    story.await_no_events().await?;
    let install: ReleaseAudit = await_audits(&story, 1).await?.remove(0);
    let approvals = &install.spec.lifecycles[0].approvals;
    let users: Vec<&str> = approvals.iter().map(|it| it.user.as_str()).collect();
    let full = |name: &str| format!("system:serviceaccount:{}:{name}", story.namespace);
    ensure!(users == [full("alice"), full("bob")], "{users:?}");
    ensure!(approvals[0].comment.as_deref() == Some("tested"), "{approvals:?}");

    // One user rejects the upgrade.
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    story.await_asked(LifecyclePhase::PreUpgrade).await?;
    let (done, message) =
        says(&story, &bob, &["approve", "hr/app", "--reject", "--comment", "not before Monday"])?;
    ensure!(done && message.contains("is rejected by"), "{message}");
    let message = story.await_message(&app, "not before Monday").await?;
    ensure!(message.starts_with("LifecycleFailed") && message.contains(&full("bob")), "{message}");
    clean_up(&story, made, &["alice", "bob"]).await?;
    story.end_lifecycles().await
}
