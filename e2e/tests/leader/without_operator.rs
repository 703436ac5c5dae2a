//! The output of commands while statuses are old and no operator is active.
//!
//! No windlass is running here. The story writes the statuses and the Lease, once like a process outside of the cluster.
//! Elsewhere: the same commands in an empty namespace, and for users who may not read (`cli/all_commands.rs`).

use anyhow::Result;
use e2e::harness::{Story, StoryObject, create_crds};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::cli::all_commands::{
    ASKS_NO_CLUSTER, CommandLineCase, CommandLineRunner, ensure_all_have_rows, row,
};

/// The remark about statuses that may be old.
const OLD: &str =
    "no operator holds Lease {ns}/windlass-leader-election since 2020-01-01T00:00:00Z";

/// The message if Pods of windlass are ready but none is the leader.
const VACANT: &str = "no process holds Lease {ns}/windlass-leader-election since 2020-01-01T00:00:00Z, so nothing is \
    reconciled";

/// The hint if a command waits without a reaction.
const SILENCE: &str = "`windlass check` shows whether it runs";

/// Words of an answer that mistakes old statuses for the current state.
const ALL_WELL: &[&str] = &[
    "all checks passed",
    "no object is failing",
    "will be reconciled",
    "✔ Kustomization/{ns}/app is ready",
];

const STATUSES: &[CommandLineCase] = &[
    row("get", 0, &["kustomization/app ", OLD], &[]),
    row("get ks/app", 0, &["True", OLD], &[]),
    row("why", 1, &["Kustomization/{ns}/new", "has not been reconciled yet", OLD], &["✔"]),
    row("why -l team=web", 1, &["⚠ none of 1 object in namespace {ns} reports", OLD], &["✔"]),
    row("why ks/app", 0, &["⚠ Kustomization/{ns}/app is ready", OLD], &["✔"]),
    row("why ks/new", 1, &["Kustomization/{ns}/new", "reconciled", OLD], &["✔"]),
    row(
        "stats",
        0,
        &["Kustomization ", "1 object reports no condition Ready: `windlass why -A` says why", OLD],
        &[],
    ),
    row(
        "incidents",
        0,
        &["no object reports that it is failing", "1 object reports no condition Ready", OLD],
        &["✔"],
    ),
    row("describe ks/app", 0, &["Kustomization/{ns}/app is ready", OLD], &[]),
    row("tree ks/app", 0, &["Kustomization/{ns}/app Ready", OLD], &[]),
    row("trace ks/app", 0, &["Kustomization/{ns}/app", OLD], &[]),
    row("history ks/app", 0, &["ReconciliationSucceeded", OLD], &[]),
    row("changes", 0, &["no changes in namespace {ns}; -A shows all", OLD], &[]),
    row("get changes", 0, &["no such objects in namespace {ns}", OLD], &[]),
    row(
        "history ks/new",
        0,
        &["the status of Kustomization/{ns}/new has no history yet", OLD],
        &[],
    ),
    row("image plan", 2, &["no ImageUpdateAutomation in namespace {ns}", OLD], &["✔"]),
    row("events", 0, &["no events"], &[]),
    row("logs", 2, &["no Pod of windlass is in namespace {ns}", "`windlass check`"], &[]),
    row("logs ks/app", 2, &["no Pod of windlass is in namespace {ns}"], &["no such lines"]),
    row(
        "check",
        1,
        &[
            "windlass is not in namespace {ns}: start windlass again where it ran as 'gone'",
            "`windlass install`",
        ],
        &[],
    ),
    row("reconcile ks/asked --timeout 12s", 2, &[SILENCE, "longer than 12 s"], &["✔"]),
    row("reconcile ks/new --timeout 12s", 2, &[SILENCE, "longer than 12 s"], &["✔"]),
    row("reconcile ks/requested --no-wait", 0, &["⚠ Kustomization/{ns}/requested", OLD], &["✔"]),
    row("resume ks/held", 0, &["Kustomization/{ns}/held is resumed", OLD], &[]),
    row(
        "resume ks/kept --wait --timeout 12s",
        2,
        &["kept is resumed", SILENCE, "longer than 12 s"],
        &[],
    ),
    row(
        "rollback hr/web --timeout 12s",
        2,
        &[
            SILENCE,
            "longer than 12 s",
            "HelmRelease/{ns}/web stays suspended until `windlass resume",
            "the rollback is requested and not yet done: windlass carries it out when it runs",
        ],
        &["has the contents of"],
    ),
    row("migrate to-flux --dry-run", 2, &["did not take over from Flux in namespace {ns}"], &[]),
];

/// Commands that use no statuses. They print specs, results from files, or records of the past.
const READS_NO_STATUS: &[&str] = &[
    "alerts test",
    "approve",
    "audit",
    "bootstrap",
    "build",
    "bypass",
    "crd",
    "diff",
    "export",
    "install",
    "migrate from-argocd",
    "migrate from-flux",
    "migrate from-helm-operator",
    "migrate from-helmfile-operator",
    "silence",
    "suspend",
    // The pages of `ui` say how old statuses may be (`cli::windlass_ui`).
    "ui",
    "uninstall",
    "values",
];

/// The output for a rollback that was requested meanwhile.
const REQUESTED: &[CommandLineCase] = &[row(
    "why hr/web",
    1,
    &["the rollback from revision 2 to 1 is requested and not yet done", "windlass check", OLD],
    &["it was rolled back"],
)];

/// The output while a process outside of the Pods holds the Lease.
const OUTSIDE: &[CommandLineCase] = &[
    row("logs", 2, &["windlass runs outside of the cluster as 'laptop'"], &["`windlass check`"]),
    row(
        "reconcile ks/asked --timeout 12s",
        2,
        &["'laptop' holds Lease {ns}/windlass-leader-election (renewed at ", SILENCE],
        &["has not reacted", "✔"],
    ),
    row("history hr/web", 0, &["v3", "pending-upgrade", "v2", "deployed"], &[OLD]),
];

/// A process outside of the cluster holds the Lease, and has begun to upgrade the release.
async fn acting_outside(story: &Story, sweep: &CommandLineRunner<'_>) -> Result<()> {
    let metadata = json!({"name": "sh.helm.release.v1.web.v3",
        "labels": {"owner": "helm", "name": "web", "version": "3", "status": "pending-upgrade"}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
        "type": "helm.sh/release.v1", "stringData": {"release": "none"}});
    story.apply_value(secret).await?;
    let lease = StoryObject::new("coordination.k8s.io/v1", "Lease", "windlass-leader-election");
    let now = jiff::Timestamp::now();
    let held = json!({"holderIdentity": "laptop", "renewTime": format!("{now:.6}")});
    story.merge(&lease, json!({"spec": held})).await?;
    sweep.check(OUTSIDE, ALL_WELL).await?;
    let gone = json!({"holderIdentity": "gone", "renewTime": "2020-01-01T00:00:00.000000Z"});
    story.merge(&lease, json!({"spec": gone})).await.map(drop)
}

/// The Lease of a windlass that ended long ago.
async fn lapsed(story: &Story) -> Result<()> {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "windlass-leader-election"},
        "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 35, "renewTime": "2020-01-01T00:00:00.000000Z"},
    }))?;
    let leases = Api::<Lease>::namespaced(story.client.clone(), &story.namespace);
    leases.create(&PostParams::default(), &lease).await?;
    Ok(())
}

fn ready(more: Value) -> Value {
    let condition = json!({"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded",
        "message": "Applied revision: main@sha1:1", "observedGeneration": 1,
        "lastTransitionTime": "2020-01-01T00:00:00Z"});
    let mut status = json!({"observedGeneration": 1, "conditions": [condition]});
    for (key, value) in more.as_object().into_iter().flatten() {
        status[key] = value.clone();
    }
    json!({"status": status})
}

/// Kustomizations that were reconciled once, and one that was never reconciled.
async fn kustomizations(story: &Story) -> Result<()> {
    story.git_repository("app", "https://127.0.0.1:1/app.git", json!({})).await?;
    story.merge_status(&StoryObject::git_repository("app"), ready(json!({}))).await?;
    let run = json!({"lastReconciledStatus": "ReconciliationSucceeded", "digest": "sha256:1",
        "firstReconciled": "2020-01-01T00:00:00Z", "lastReconciled": "2020-01-01T00:00:00Z",
        "lastReconciledDuration": "1s", "totalReconciliations": 1});
    let applied = ready(json!({"history": [run], "lastAppliedRevision": "main@sha1:1"}));
    for (name, is_suspended) in
        [("app", false), ("asked", false), ("requested", false), ("held", true), ("kept", true)]
    {
        story.kustomization(name, "app", json!({"suspend": is_suspended})).await?;
        story.merge_status(&StoryObject::kustomization(name), applied.clone()).await?;
    }
    let labels = json!({"metadata": {"labels": {"team": "web"}}});
    story.merge(&StoryObject::kustomization("app"), labels).await?;
    story.kustomization("new", "app", json!({})).await
}

/// A release with two revisions.
async fn release(story: &Story) -> Result<()> {
    let reference = json!({"kind": "OCIRepository", "name": "web"});
    let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {"name": "web"}, "spec": {"interval": "10h", "chartRef": reference}});
    story.apply_value(object).await?;
    let revision = |version: i64, status: &str| {
        json!({"name": "web", "namespace": story.namespace, "version": version, "status": status,
            "chartName": "web", "chartVersion": "1.0.0", "configDigest": "sha256:1", "digest": "sha256:1",
            "firstDeployed": "2020-01-01T00:00:00Z", "lastDeployed": "2020-01-01T00:00:00Z"})
    };
    let history = [revision(2, "deployed"), revision(1, "superseded")];
    let status = ready(json!({"storageNamespace": story.namespace, "history": history}));
    story
        .merge_status(&StoryObject::new("helm.toolkit.fluxcd.io/v2", "HelmRelease", "web"), status)
        .await?;
    for version in ["1", "2"] {
        let metadata = json!({"name": format!("sh.helm.release.v1.web.v{version}"),
            "labels": {"owner": "helm", "name": "web", "version": version}});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
            "type": "helm.sh/release.v1", "stringData": {"release": "none"}});
        story.apply_value(secret).await?;
    }
    Ok(())
}

/// A windlass whose Pods exist but whose processes are not active.
fn workload(replicas: i64) -> Value {
    let labels = json!({"app.kubernetes.io/name": "windlass"});
    let container =
        json!({"name": "manager", "image": "none", "args": ["serve", "--enable-leader-election"]});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "windlass-controller", "labels": labels},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_takes_what_a_vanished_windlass_left_for_what_is() -> Result<()> {
    let story = Story::begin("without-operator").await?;
    create_crds(&story.client).await?;
    lapsed(&story).await?;
    kustomizations(&story).await?;
    release(&story).await?;
    let others = [&ASKS_NO_CLUSTER, READS_NO_STATUS].concat();
    ensure_all_have_rows(STATUSES, &others).await?;
    let sweep = CommandLineRunner::of(&story, story.kubeconfig())?;
    sweep.check(STATUSES, ALL_WELL).await?;
    sweep.check(REQUESTED, ALL_WELL).await?;

    story.apply_value(workload(0)).await?;
    let zero = [row("check", 1, &["is scaled to zero, so nothing is reconciled"], &[])];
    sweep.check(&zero, ALL_WELL).await?;
    acting_outside(&story, &sweep).await?;
    story.apply_value(workload(1)).await?;
    let deployment = StoryObject::new("apps/v1", "Deployment", "windlass-controller");
    story
        .await_condition(
            &deployment,
            "Available",
            "True",
            e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT,
        )
        .await?;
    let ready = [row("check", 1, &["windlass-controller ready", VACANT], &[])];
    sweep.check(&ready, ALL_WELL).await?;
    story.end().await
}
