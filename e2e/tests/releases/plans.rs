//! If a policy requires it, an operation of a release waits for a user's approval before it writes anything.
//!
//! Elsewhere: Kustomizations (`stories::plans`), deletions beyond a budget (`deletion_budget`).

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::deletion_budget::actions;
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::helmfiles::{applied, follow_chart, keep, release, releases};

/// A value that only Secrets contain.
const CANARY: &str = "canary-71c0aa52e8";

/// The template of a Secret with a value.
const LOGIN: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData:\n  password: {{ .Values.password | quote }}\n";

/// A hook that runs before operations.
const HOOK: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: before\n  annotations:\n    helm.sh/hook: pre-install,pre-upgrade\n";

/// A spec with which the release does not wait for its objects.
fn without_wait() -> Value {
    json!({"install": {"disableWait": true}, "upgrade": {"disableWait": true}})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_and_an_upgrade_wait_until_a_user_approves_each() -> Result<()> {
    let story = Story::with_windlass("release-plan").await?;
    let policy = story.plan_mode("Approve").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let files =
        [("templates/a.yaml", CONFIG), ("templates/s.yaml", LOGIN), ("templates/h.yaml", HOOK)];
    charts.publish("1.0.0", &files).await?;
    let values = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "values"},
        "stringData": {"values.yaml": format!("password: {CANARY}\n")}});
    story.apply_value(values).await?;
    let mut spec = without_wait();
    spec["valuesFrom"] = json!([{"kind": "Secret", "name": "values"}]);
    let app = charts.release("app", spec).await?;
    let plan = story.await_pending(&app, "app@1.0.0").await?;
    ensure!(actions(&plan) == ["Added app-config", "Added login"], "{:?}", plan.spec);
    let hooks = plan.spec.changes.clone().unwrap_or_default().hooks;
    ensure!(hooks == ["pre-install: ConfigMap/before"], "{hooks:?}");
    story.ensure_unread(CANARY, &app).await?;
    // There is no record, no hook, and no object.
    let record = StoryObject::new("v1", "Secret", "sh.helm.release.v1.app.v1");
    let config = StoryObject::config_map("app-config");
    for target in [&record, &config, &StoryObject::config_map("before")] {
        ensure!(story.read(target).await?.is_none(), "{target} was written before an approval");
    }
    let said = story.approve("hr/app")?;
    ensure!(said.contains("the Plan of HelmRelease/app"), "{said}");
    story.await_revision(&app, 1).await?;
    story.await_no_plans().await?;
    let before = story.expect(&config).await?;

    // An approval of one version does not apply to another.
    charts.publish("1.1.0", &files).await?;
    let first = story.await_pending(&app, "app@1.1.0").await?;
    charts.publish("1.2.0", &files).await?;
    let second = story.await_pending(&app, "app@1.2.0").await?;
    ensure!(first.name_any() != second.name_any(), "{:?}", second.spec);
    let old = format!("plan/{}", first.name_any());
    story.windlass_says(&["approve", &old, "-n", &story.namespace], false)?;
    ensure!(actions(&second) == ["Changed app-config"], "{:?}", second.spec);
    let object = story.expect(&config).await?;
    ensure!(object.resource_version() == before.resource_version(), "it was written");
    story.approve("hr/app")?;
    story.await_revision(&app, 2).await?;
    story.await_no_plans().await?;
    ensure!(story.expect(&config).await?.data["data"]["chart"] == "1.2.0", "the approved one");
    story.delete(&policy).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_that_renders_something_else_each_time_cannot_be_approved() -> Result<()> {
    let story = Story::with_windlass("release-plan-random").await?;
    let policy = story.plan_mode("Approve").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let random = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: random}\ndata:\n  token: {{ randAlphaNum 16 }}\n";
    charts.publish("1.0.0", &[("templates/a.yaml", random)]).await?;
    let app = charts.release("app", without_wait()).await?;
    let message = story.await_message(&app, "renders something else each time").await?;
    ensure!(message.starts_with("PlanNotReproducible: "), "{message}");
    ensure!(message.contains("(/data/token)"), "{message}");
    ensure!(story.plans().await?.is_empty(), "a Plan was written");
    ensure!(story.read(&StoryObject::config_map("random")).await?.is_none(), "it was written");
    // A release whose hook contains the current time cannot be approved either.
    let hook = format!("{HOOK}data:\n  at: {{{{ now | date \"15:04:05\" | quote }}}}\n");
    charts.publish("1.1.0", &[("templates/h.yaml", hook.as_str())]).await?;
    let message = story.await_message(&app, "app@1.1.0 cannot be approved").await?;
    ensure!(message.contains("ConfigMap/before (/data/at)"), "{message}");
    ensure!(story.plans().await?.is_empty(), "a Plan was written");
    ensure!(story.read(&StoryObject::config_map("before")).await?.is_none(), "it was written");
    // Without the policy, no approval is needed, and windlass releases the chart.
    story.delete(&policy).await?;
    story.await_revision(&app, 1).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn where_destructive_changes_wait_an_upgrade_that_only_adds_does_not() -> Result<()> {
    let story = Story::with_windlass("release-plan-destructive").await?;
    let policy = story.plan_mode("ApproveDestructive").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let more = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n";
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", without_wait()).await?;
    story.await_revision(&app, 1).await?;
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG), ("templates/b.yaml", more)]).await?;
    story.await_revision(&app, 2).await?;
    charts.publish("1.2.0", &[("templates/a.yaml", CONFIG)]).await?;
    let plan = story.await_pending(&app, "app@1.2.0").await?;
    ensure!(actions(&plan) == ["Removed more", "Changed app-config"], "{:?}", plan.spec);
    story.expect(&StoryObject::config_map("more")).await?;
    story.approve(&format!("plan/{}", plan.name_any()))?;
    story.await_revision(&app, 3).await?;
    story.await_gone(&StoryObject::config_map("more"), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_no_plans().await?;
    story.delete(&policy).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_an_uninstall_would_undo_waits_as_an_uninstall_does() -> Result<()> {
    let story = Story::with_windlass("release-plan-remediation").await?;
    let policy = story.plan_mode("ApproveDestructive").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let mut spec = without_wait();
    spec["upgrade"]["remediation"] = json!({"retries": 1, "strategy": "uninstall"});
    let app = charts.release("app", spec).await?;
    story.await_revision(&app, 1).await?;
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    let plan = story.await_pending(&app, "app@1.1.0").await?;
    let hooks = plan.spec.changes.clone().unwrap_or_default().hooks;
    ensure!(hooks == ["if the upgrade fails: uninstall of the release"], "{hooks:?}");
    story.approve("hr/app")?;
    story.await_revision(&app, 2).await?;
    story.await_no_plans().await?;
    story.delete(&policy).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_of_hooks_that_change_without_their_release_wait_for_a_plan_of_their_own()
-> Result<()> {
    let story = Story::with_windlass("helmfile-plan-hooks").await?;
    let policy = story.plan_mode("Approve").await?;
    let helmfile = "releases:\n- name: app\n  chart: ./app\n  values: [{value: one}]\n  hooks:\n  \
        - events: [presync]\n    kubectlApply: {filename: hooks/app.yaml}\n";
    let upstream = follow_chart(
        &story,
        &[("hooks/app.yaml", config_map("before", "1")), ("helmfile.yaml", helmfile.to_owned())],
    )
    .await?;
    let shop = keep(&story, "shop", json!({})).await?;
    let pending = async |release: String| {
        story
            .await_until("a Plan", DEFAULT_WAIT_TIMEOUT, async || {
                let plan = story.plans().await?.pop();
                Ok(plan.filter(|it| it.spec.subject.release == release))
            })
            .await
    };
    let before = StoryObject::config_map("before");
    let plan = pending(format!("{}/app", story.namespace)).await?;
    ensure!(actions(&plan) == ["Changed before", "Added app-config"], "{:?}", plan.spec);
    ensure!(story.read(&before).await?.is_none(), "a hook was applied before an approval");
    story.approve("helmfile/shop")?;
    story.await_ready(&shop).await?;
    story.await_value("before", "1").await?;
    story.await_no_plans().await?;

    let revision = upstream.push(&[("hooks/app.yaml", config_map("before", "2"))]).await?;
    let plan = pending(format!("{}/app hooks", story.namespace)).await?;
    ensure!(actions(&plan) == ["Changed before"], "{:?}", plan.spec);
    story.await_value("before", "1").await?;
    story.approve("helmfile/shop")?;
    applied(&story, &shop, &revision).await?;
    story.await_value("before", "2").await?;
    story.await_no_plans().await?;
    ensure!(story.history("app")?.len() == 1, "the release was upgraded");
    story.delete(&policy).await?;
    story.delete(&shop).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_release_of_a_helmfile_has_a_plan_of_its_own() -> Result<()> {
    let story = Story::with_windlass("helmfile-plan").await?;
    let policy = story.plan_mode("Approve").await?;
    let all = [release("web", "w1", &[]), release("db", "d1", &[])];
    let upstream = follow_chart(&story, &[("helmfile.yaml", releases(&all))]).await?;
    let shop = keep(&story, "shop", json!({})).await?;
    let plans = story
        .await_until("a Plan of each release", DEFAULT_WAIT_TIMEOUT, async || {
            let plans = story.plans().await?;
            Ok((plans.len() == 2).then_some(plans))
        })
        .await?;
    for name in ["web-config", "db-config"] {
        let target = StoryObject::config_map(name);
        ensure!(story.read(&target).await?.is_none(), "{name} was written before an approval");
    }
    let refused =
        story.windlass_says(&["approve", "helmfile/shop", "-n", &story.namespace], false)?;
    ensure!(refused.contains("several Plans"), "{refused}");
    for plan in &plans {
        story.approve(&format!("plan/{}", plan.name_any()))?;
    }
    story.await_ready(&shop).await?;
    story.await_no_plans().await?;

    let revision = upstream.push(&[("helmfile.yaml", releases(&all[..1]))]).await?;
    let plan = story
        .await_until("a Plan of the uninstall", DEFAULT_WAIT_TIMEOUT, async || {
            Ok(story.plans().await?.pop())
        })
        .await?;
    ensure!(plan.spec.subject.release == format!("{}/db", story.namespace), "{:?}", plan.spec);
    ensure!(actions(&plan) == ["Removed db-config"], "{:?}", plan.spec);
    story.expect(&StoryObject::config_map("db-config")).await?;
    story.approve("helmfile/shop")?;
    story.await_gone(&StoryObject::config_map("db-config"), DEFAULT_WAIT_TIMEOUT).await?;
    applied(&story, &shop, &revision).await?;
    story.await_no_plans().await?;
    story.delete(&policy).await?;
    story.delete(&shop).await?;
    story.end().await
}
