//! An operation of a release that would delete more than the budget allows waits until a user approves it.
//!
//! Elsewhere: Kustomizations, PlanPolicies and the right to approve (`stories::deletion_budget`), killing windlass between
//! approval and upgrade (`restarts`).

use anyhow::{Result, ensure};
use crds::windlass_release::Plan;
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::{Story, StoryObject};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::helmfiles::{CHART, applied, follow_chart, keep, release, releases, states};

/// The template of a StatefulSet with volume claims.
fn database() -> String {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"replicas": 0, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "db", "image": "db"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}]}})
    .to_string()
}

fn stateful_set() -> StoryObject {
    StoryObject::new("apps/v1", "StatefulSet", "db")
}

/// A spec with which the release does not wait for its objects.
fn without_wait() -> Value {
    json!({"install": {"disableWait": true}, "upgrade": {"disableWait": true}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_that_drops_a_stateful_set_with_claims_deletes_nothing_before_a_user_approves()
-> Result<()> {
    let story = Story::with_windlass("release-budget").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let database = database();
    let hook = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: before\n  annotations:\n    helm.sh/hook: pre-upgrade\n";
    let with = |name: &'static str| [("templates/a.yaml", CONFIG), (name, database.as_str())];
    charts.publish("1.0.0", &with("templates/db.yaml")).await?;
    let app = charts.release("app", without_wait()).await?;
    story.await_revision(&app, 1).await?;
    let before = story.expect(&stateful_set()).await?.metadata.uid;

    let without = [("templates/a.yaml", CONFIG), ("templates/hook.yaml", hook)];
    charts.publish("1.1.0", &without).await?;
    let first = story.await_held_release(&app, 1).await?;
    ensure!(first.spec.revision == "app@1.1.0", "{:?}", first.spec);
    ensure!(first.spec.rules.join(" ").contains("StatefulSet/"), "{:?}", first.spec.rules);
    let object = story.expect(&app).await?;
    let ready = condition(&object, "Ready");
    ensure!(ready["status"] == "Unknown" && ready["reason"] == "DeletionBudgetExceeded", "{ready}");
    ensure!(condition(&object, "Released")["status"] == "True", "the former revision is there");
    story.await_event("HelmRelease", "app", "would delete 1 object").await?;
    // The release is not Ready, so `windlass why` exits with 1.
    let why = story.windlass_says(&["why", "hr/app", "-n", &story.namespace], false)?;
    ensure!(why.contains("windlass approve plan/"), "{why}");
    let shown = story.windlass_says(&["get", "plans", "-n", &story.namespace], true)?;
    ensure!(shown.contains("1 deletion of HelmRelease/app wait for approval"), "{shown}");
    // There is no new record, no hook, and no new object.
    ensure!(story.history("app")?.len() == 1, "{:?}", story.history("app")?);
    ensure!(story.read(&StoryObject::config_map("before")).await?.is_none(), "a hook has run");
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(config.data["data"]["chart"] == "1.0.0", "{:?}", config.data);

    // An approval of one version does not apply to another.
    let plan = format!("plan/{}", first.name_any());
    charts.publish("1.2.0", &without).await?;
    let is_newer = |object: &DynamicObject| {
        condition(object, "DeletionHeld")["message"].to_string().contains("app@1.2.0")
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_newer).await?;
    let second = story.await_held_release(&app, 1).await?;
    ensure!(second.name_any() != first.name_any(), "{:?}", second.spec);
    story.windlass_says(&["approve", &plan, "-n", &story.namespace], false)?;
    ensure!(story.expect(&stateful_set()).await?.metadata.uid == before, "it was created again");

    let said = story.approve("hr/app")?;
    ensure!(said.contains("the deletion of 1 object by HelmRelease/app is approved"), "{said}");
    story.await_revision(&app, 2).await?;
    story.await_gone(&stateful_set(), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_free(&app).await?;
    story.expect(&StoryObject::config_map("before")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_that_has_the_objects_again_or_keeps_them_is_not_held() -> Result<()> {
    let story = Story::with_windlass("release-budget-again").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let database = database();
    let with = [("templates/a.yaml", CONFIG), ("templates/db.yaml", database.as_str())];
    charts.publish("1.0.0", &with).await?;
    let app = charts.release("app", without_wait()).await?;
    story.await_revision(&app, 1).await?;
    charts.publish("1.1.0", &with[..1]).await?;
    story.await_held_release(&app, 1).await?;
    charts.publish("1.2.0", &with).await?;
    story.await_revision(&app, 2).await?;
    story.await_free(&app).await?;

    // An object with the keep annotation is not deleted.
    let kept = json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
    story.merge(&stateful_set(), kept).await?;
    charts.publish("1.3.0", &with[..1]).await?;
    story.await_revision(&app, 3).await?;
    story.expect(&stateful_set()).await?;

    // A larger budget allows the held operation.
    charts.publish("1.4.0", &with).await?;
    story.await_revision(&app, 4).await?;
    let removed = json!({"metadata": {"annotations": {"helm.sh/resource-policy": null}}});
    story.merge(&stateful_set(), removed).await?;
    charts.publish("1.5.0", &with[..1]).await?;
    story.await_held_release(&app, 1).await?;
    let policy = story.without_deletion_budget().await?;
    story.await_revision(&app, 5).await?;
    story.await_gone(&stateful_set(), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_free(&app).await?;
    story.delete(&policy).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_an_approval_keeps_stays_in_the_cluster_without_the_release() -> Result<()> {
    let story = Story::with_windlass("release-budget-keep").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let database = database();
    let left = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: left\n";
    let with = [
        ("templates/a.yaml", CONFIG),
        ("templates/db.yaml", database.as_str()),
        ("templates/left.yaml", left),
    ];
    charts.publish("1.0.0", &with).await?;
    let app = charts.release("app", without_wait()).await?;
    story.await_revision(&app, 1).await?;
    let before = story.expect(&stateful_set()).await?.metadata.uid;
    charts.publish("1.1.0", &with[..1]).await?;
    story.await_held_release(&app, 2).await?;

    let named = format!("StatefulSet/{}/db", story.namespace);
    let namespace = story.namespace.as_str();
    let keeping = ["approve", "hr/app", "--keep", named.as_str(), "-n", namespace];
    let said = story.windlass_says(&keeping, true)?;
    ensure!(said.contains("except for 1 that stay in the cluster"), "{said}");
    story.await_revision(&app, 2).await?;
    story.await_gone(&StoryObject::config_map("left"), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_free(&app).await?;
    let kept = story.expect(&stateful_set()).await?.metadata;
    ensure!(kept.uid == before && kept.deletion_timestamp.is_none(), "{kept:?}");
    let policy = kept.annotations.as_ref().and_then(|it| it.get("helm.sh/resource-policy"));
    ensure!(policy.is_some_and(|it| it == "keep"), "{:?}", kept.annotations);
    // If a chart contains the object again, the release takes it over. So its next removal is held again.
    charts.publish("1.2.0", &with).await?;
    story.await_revision(&app, 3).await?;
    let again = story.expect(&stateful_set()).await?.metadata;
    ensure!(again.uid == before, "it was created anew");
    let policy = again.annotations.as_ref().and_then(|it| it.get("helm.sh/resource-policy"));
    ensure!(policy.is_none(), "{:?}", again.annotations);
    charts.publish("1.3.0", &with[..1]).await?;
    story.await_held_release(&app, 2).await?;
    story.windlass_says(&keeping, true)?;
    story.await_revision(&app, 4).await?;
    story.await_free(&app).await?;
    // The object no longer belongs to the release.
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&stateful_set()).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_leaves_a_helmfile_stays_until_a_user_approves_and_the_others_go_on()
-> Result<()> {
    let story = Story::with_windlass("helmfile-budget").await?;
    let all = [release("web", "w1", &[]), release("db", "d1", &[])];
    let upstream = follow_chart(&story, &[("helmfile.yaml", releases(&all))]).await?;
    let shop = keep(&story, "shop", json!({})).await?;
    story.await_ready(&shop).await?;

    upstream.push(&[("helmfile.yaml", releases(&all[..1]))]).await?;
    let plan = story.await_held_release(&shop, 1).await?;
    let of = format!("{}/db", story.namespace);
    ensure!(plan.spec.subject.kind == "Helmfile" && plan.spec.subject.release == of, "{plan:?}");
    ensure!(plan.spec.rules == ["a release is uninstalled"], "{:?}", plan.spec.rules);
    story.await_event("Helmfile", "shop", "the uninstall of release db waits").await?;
    // The other releases continue, and the Plan stays.
    let last = [release("web", "w2", &[])];
    let revision = upstream.push(&[("helmfile.yaml", releases(&last))]).await?;
    story.await_value("web-config", "w2").await?;
    let again = story.await_held_release(&shop, 1).await?;
    ensure!(again.name_any() == plan.name_any(), "{:?}", again.spec);
    story.expect(&StoryObject::config_map("db-config")).await?;
    ensure!(
        story.history("db")? == ["1 | deployed | app-1.0.0 | Install complete"],
        "{:?}",
        story.history("db")?
    );

    let said = story.approve("helmfile/shop")?;
    ensure!(said.contains(&format!("by Helmfile/shop, release {of} is approved")), "{said}");
    story.await_gone(&StoryObject::config_map("db-config"), DEFAULT_WAIT_TIMEOUT).await?;
    let object = applied(&story, &shop, &revision).await?;
    ensure!(states(&object) == ["web Ready"], "{:?}", states(&object));
    story.await_free(&shop).await?;
    // Deleting the Helmfile deletes all other releases.
    story.delete(&shop).await?;
    story.await_gone(&shop, DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_a_helmfile_that_is_deleted_by_hand_is_created_again_and_can_be_approved()
-> Result<()> {
    let story = Story::with_windlass("helmfile-budget-plan").await?;
    let upstream = follow_chart(
        &story,
        &[
            ("app/templates/db.yaml", database()),
            ("helmfile.yaml", releases(&[release("web", "w1", &[])])),
        ],
    )
    .await?;
    let shop = keep(&story, "shop", json!({})).await?;
    story.await_ready(&shop).await?;
    let newer = CHART.replace("1.0.0", "1.1.0");
    upstream.push(&[("app/Chart.yaml", newer), ("app/templates/db.yaml", String::new())]).await?;
    let first = story.await_held_release(&shop, 1).await?;
    ensure!(first.spec.subject.release == format!("{}/web", story.namespace), "{first:?}");
    story.delete(&StoryObject::of::<Plan>(&first.name_any())).await?;
    story
        .await_until("another Plan", DEFAULT_WAIT_TIMEOUT, async || {
            let plans = story.plans().await?;
            Ok(plans.iter().any(|it| it.metadata.uid != first.metadata.uid).then_some(()))
        })
        .await?;
    story.expect(&stateful_set()).await?;
    story.approve("helmfile/shop")?;
    story.await_gone(&stateful_set(), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_free(&shop).await?;
    story.delete(&shop).await?;
    story.await_gone(&shop, DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}
