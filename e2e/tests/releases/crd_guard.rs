//! CRDs that come with charts: no upgrade, move, rollback or uninstallation breaks existing objects.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, deployment, widget, widget_crd};
use e2e::harness::widgets::{crd, widget as own};
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// A CRD that limits the size of Widgets.
fn narrow(group: &str, maximum: u8) -> String {
    let open = "spec: {type: object, x-kubernetes-preserve-unknown-fields: true}";
    let size = format!("size: {{type: integer, maximum: {maximum}}}");
    widget_crd(group).replace(open, &format!("spec: {{type: object, properties: {{{size}}}}}"))
}

fn sized(group: &str, name: &str, size: u8) -> String {
    widget(group, name).replace("size: 1", &format!("size: {size}"))
}

async fn value_of_chart(story: &Story) -> Result<String> {
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    Ok(config.data["data"]["chart"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_narrows_a_schema_under_live_objects_writes_nothing() -> Result<()> {
    let story = Story::with_windlass("guard-narrow").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let group = format!("{}.example.com", story.namespace);
    for folder in ["templates", "crds"] {
        let path = format!("{folder}/crd.yaml");
        let name = format!("{folder}-mine");
        let wide = narrow(&group, 20);
        let small = narrow(&group, 5);
        let version = |minor: u8| format!("{}.{minor}.0", if folder == "crds" { 2 } else { 1 });
        charts
            .publish(&version(0), &[(path.as_str(), wide.as_str()), ("templates/a.yaml", CONFIG)])
            .await?;
        let upgrade =
            json!({"upgrade": {"crds": "CreateReplace"}, "install": {"crds": "CreateReplace"}});
        let app = charts.release("app", upgrade).await?;
        story.await_ready(&app).await?;
        story
            .await_until("the chart to be released", DEFAULT_WAIT_TIMEOUT, async || {
                Ok((value_of_chart(&story).await? == version(0)).then_some(()))
            })
            .await?;
        story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
        story.apply(&sized(&group, &name, 10)).await?;
        charts
            .publish(&version(1), &[(path.as_str(), small.as_str()), ("templates/a.yaml", CONFIG)])
            .await?;
        let text = story.await_failure(&app, "CRDIncompatible").await?;
        let found = format!(
            "v1 spec.size is greater than the maximum (1 object: {}/{name})",
            story.namespace
        );
        ensure!(text.contains(&found) && text.contains("windlass.dev/crd-policy"), "{text}");
        ensure!(
            value_of_chart(&story).await? == version(0),
            "something of the release was written"
        );

        // The object is changed, and the upgrade continues.
        story.merge(&own(&group, &name), json!({"spec": {"size": 3}})).await?;
        story.request(&app).await?;
        story.await_ready(&app).await?;
        story
            .await_until("the upgrade", DEFAULT_WAIT_TIMEOUT, async || {
                Ok((value_of_chart(&story).await? == version(1)).then_some(()))
            })
            .await?;
    }
    story.delete(&crd(&group)).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_that_moves_its_definition_to_crds_loses_no_object() -> Result<()> {
    let story = Story::with_windlass("guard-move").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let group = format!("{}.example.com", story.namespace);
    let definition = widget_crd(&group);
    let publish = async |version: &str, path: &str| {
        charts.publish(version, &[(path, definition.as_str()), ("templates/a.yaml", CONFIG)]).await
    };
    publish("1.0.0", "templates/crd.yaml").await?;
    let app = charts.release("app", json!({"upgrade": {"crds": "CreateReplace"}})).await?;
    story.await_revision(&app, 1).await?;
    story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    let before = story.expect(&crd(&group)).await?.metadata.uid;
    // The CRD is not deleted and created again, even without any objects.
    publish("1.1.0", "crds/crd.yaml").await?;
    story.await_revision(&app, 2).await?;
    ensure!(story.expect(&crd(&group)).await?.metadata.uid == before, "it was created again");
    publish("1.2.0", "templates/crd.yaml").await?;
    story.await_revision(&app, 3).await?;
    story.apply(&widget(&group, "mine")).await?;
    publish("1.3.0", "crds/crd.yaml").await?;
    story.await_revision(&app, 4).await?;
    ensure!(story.expect(&crd(&group)).await?.metadata.uid == before, "it was created again");
    story.expect(&own(&group, "mine")).await?;
    story.delete(&crd(&group)).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_others_use_outlives_its_release() -> Result<()> {
    let story = Story::with_windlass("guard-uninstall").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let group = format!("{}.example.com", story.namespace);
    let definition = widget_crd(&group);
    let files = [("templates/crd.yaml", definition.as_str()), ("templates/a.yaml", CONFIG)];
    charts.publish("1.0.0", &files).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    let ours = widget(&group, "ours");
    charts.publish("1.1.0", &[&files[..], &[("templates/w.yaml", ours.as_str())]].concat()).await?;
    story.await_revision(&app, 2).await?;
    story.apply(&widget(&group, "theirs")).await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_event("HelmRelease", "app", "CRDReleased").await?;
    let used = format!("used by 1 object ({}/theirs)", story.namespace);
    story.await_event("HelmRelease", "app", &used).await?;
    story.expect(&own(&group, "theirs")).await?;
    ensure!(story.read(&own(&group, "ours")).await?.is_none(), "it was of the release");
    let live = story.expect(&crd(&group)).await?.metadata;
    let marks = [live.labels.unwrap_or_default(), live.annotations.unwrap_or_default()];
    ensure!(marks.iter().flatten().all(|(key, _)| !key.contains("helm")), "{marks:?}");

    // The user confirms the deletion of the CRD. windlass exports the objects of others, and they are restored.
    let again = charts.release("app", json!({})).await?;
    story.await_ready(&again).await?;
    let uid = story.expect(&crd(&group)).await?.metadata.uid.unwrap_or_default();
    let confirmed = json!({"metadata": {"annotations": {"windlass.dev/crd-removal": uid}}});
    story.merge(&crd(&group), confirmed).await?;
    story.delete(&again).await?;
    story.await_gone(&again, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_event("HelmRelease", "app", "CRDExported").await?;
    let said = story
        .windlass_says(&["crd", "restore", &format!("widgets.{group}"), "-o", "json"], true)?;
    let said: Value = serde_json::from_str(&said)?;
    let export = said["export"].as_str().unwrap_or_default();
    ensure!(export.starts_with(&uid), "{said}");
    story.expect(&own(&group, "theirs")).await?;
    let secret = StoryObject::new("v1", "Secret", &format!("crd-export-{export}-0"));
    story.delete(&secret.in_namespace("flux-system")).await?;

    // Without objects, the CRD is deleted with the release, which owns all its fields. The CRD had no owner.
    story.delete(&own(&group, "theirs")).await?;
    let strict = json!({"install": {"disableTakeOwnership": true}});
    let again = charts.release("app", strict).await?;
    story.await_ready(&again).await?;
    let managers = story.expect(&crd(&group)).await?.metadata.managed_fields.unwrap_or_default();
    let is_unowned = managers.iter().any(|it| it.manager.as_deref() == Some("kubectl-windlass"));
    ensure!(!is_unowned, "{managers:?}");
    story.delete(&again).await?;
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_leaves_a_definition_that_objects_need_and_says_so() -> Result<()> {
    let story = Story::with_windlass("guard-rollback").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let group = format!("{}.example.com", story.namespace);
    let small = narrow(&group, 5);
    let wide = narrow(&group, 20);
    let good = deployment("web", PodBehavior::Ready);
    charts
        .publish(
            "1.0.0",
            &[
                ("templates/crd.yaml", &small),
                ("templates/a.yaml", CONFIG),
                ("templates/d.yaml", &good),
            ],
        )
        .await?;
    let upgrade =
        json!({"timeout": "3s", "remediation": {"retries": 0, "remediateLastFailure": true}});
    let drift = json!({"upgrade": upgrade, "driftDetection": {"mode": "enabled"}});
    let app = charts.release("app", drift).await?;
    story.await_revision(&app, 1).await?;
    let bad = deployment("web", PodBehavior::CrashLoop);
    let large = sized(&group, "large", 10)
        .replace("name: large", "name: large, annotations: {helm.sh/resource-policy: keep}");
    charts
        .publish(
            "1.1.0",
            &[
                ("templates/crd.yaml", &wide),
                ("templates/a.yaml", CONFIG),
                ("templates/d.yaml", &bad),
                ("templates/w.yaml", &large),
            ],
        )
        .await?;
    let is_undone =
        |object: &DynamicObject| condition(object, "Remediated")["reason"] == "RollbackSucceeded";
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_undone).await?;
    story.await_event("HelmRelease", "app", "CRDIncompatible").await?;
    let live = story.expect(&crd(&group)).await?;
    let schema = &live.data["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    ensure!(schema["properties"]["spec"]["properties"]["size"]["maximum"] == 20, "{schema}");
    ensure!(value_of_chart(&story).await? == "1.0.0", "the rest of it was not rolled back");
    let object = story.expect(&own(&group, "large")).await?;
    ensure!(object.data["spec"]["size"] == 10, "{:?}", object.data);
    // The spec names the old chart again, to which the release was rolled back. The CRD that the rollback left unchanged does
    // not count as drift, and all other drift is corrected.
    let old = json!({"spec": {"chart": {"spec": {"version": "1.0.0"}}}});
    story.merge(&app, old).await?;
    story.await_revision(&app, 3).await?;
    story
        .merge(&StoryObject::config_map("app-config"), json!({"data": {"chart": "edited"}}))
        .await?;
    story
        .await_until("the correction", DEFAULT_WAIT_TIMEOUT, async || {
            Ok((value_of_chart(&story).await? == "1.0.0").then_some(()))
        })
        .await?;
    let events = story.events("HelmRelease", "app").await?;
    let is_of_definition =
        |it: &&String| it.contains("Drift") && it.contains("CustomResourceDefinition");
    ensure!(!events.iter().any(|it| is_of_definition(&it)), "{events:?}");
    story.delete(&crd(&group)).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_among_the_templates_is_judged_before_those_of_crds_are_written() -> Result<()>
{
    let story = Story::with_windlass("guard-first").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let group = format!("{}.example.com", story.namespace);
    let other = format!("other.{group}");
    let wide = narrow(&group, 20);
    let small = narrow(&group, 5);
    let named = |name: &str| {
        widget_crd(&other)
            .replace("singular: widget,", &format!("singular: widget, shortNames: [{name}],"))
    };
    let publish = async |version: &str, template: &str, name: &str| {
        let beside = named(name);
        let files = [
            ("templates/crd.yaml", template),
            ("templates/a.yaml", CONFIG),
            ("crds/other.yaml", beside.as_str()),
        ];
        charts.publish(version, &files).await
    };
    publish("1.0.0", &wide, "wa").await?;
    let app = charts.release("app", json!({"upgrade": {"crds": "CreateReplace"}})).await?;
    story.await_revision(&app, 1).await?;
    story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.apply(&sized(&group, "mine", 10)).await?;
    publish("1.1.0", &small, "wb").await?;
    story.await_failure(&app, "CRDIncompatible").await?;
    let beside = story.expect(&crd(&other)).await?;
    let names = &beside.data["spec"]["names"]["shortNames"];
    ensure!(*names == json!(["wa"]), "crds/ was written: {names}");
    story.delete(&own(&group, "mine")).await?;
    story.request(&app).await?;
    story.await_revision(&app, 2).await?;
    let beside = story.expect(&crd(&other)).await?;
    ensure!(beside.data["spec"]["names"]["shortNames"] == json!(["wb"]), "{:?}", beside.data);
    story.delete(&crd(&group)).await?;
    story.delete(&crd(&other)).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_is_skipped_is_no_drift_that_is_corrected() -> Result<()> {
    let story = Story::with_windlass("guard-skip").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let group = format!("{}.example.com", story.namespace);
    let files = |crd: &str| {
        [("templates/crd.yaml", crd.to_owned()), ("templates/a.yaml", CONFIG.to_owned())]
    };
    let published = async |version: &str, crd: &str| {
        let files = files(crd);
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        charts.publish(version, &files).await
    };
    published("1.0.0", &narrow(&group, 20)).await?;
    let app = charts.release("app", json!({"driftDetection": {"mode": "enabled"}})).await?;
    story.await_ready(&app).await?;
    story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.apply(&sized(&group, "mine", 10)).await?;

    let skipped = narrow(&group, 5).replace(
        &format!("metadata: {{name: widgets.{group}}}"),
        &format!(
            "metadata: {{name: widgets.{group}, annotations: {{windlass.dev/crd-policy: Skip}}}}"
        ),
    );
    published("1.1.0", &skipped).await?;
    let is_upgraded = async || Ok((value_of_chart(&story).await? == "1.1.0").then_some(()));
    story.await_until("the upgrade", DEFAULT_WAIT_TIMEOUT, is_upgraded).await?;
    story.await_ready(&app).await?;
    // windlass corrects the rest of the release twice: objects after the CRD, and everything on request.
    let edited = json!({"data": {"chart": "edited"}});
    story.merge(&StoryObject::config_map("app-config"), edited).await?;
    story.await_until("the correction", DEFAULT_WAIT_TIMEOUT, is_upgraded).await?;
    story.rerun(&app).await?;
    story.await_ready(&app).await?;
    let live = story.expect(&crd(&group)).await?;
    let schema = &live.data["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let maximum = &schema["properties"]["spec"]["properties"]["size"]["maximum"];
    ensure!(*maximum == 20, "a definition was written that is to be skipped: {schema}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_to_before_the_definition_loses_no_object() -> Result<()> {
    let story = Story::with_windlass("guard-before").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let group = format!("{}.example.com", story.namespace);
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let upgrade =
        json!({"timeout": "5s", "remediation": {"retries": 0, "remediateLastFailure": true}});
    let app = charts.release("app", json!({"upgrade": upgrade})).await?;
    story.await_revision(&app, 1).await?;
    let definition = widget_crd(&group);
    let bad = deployment("web", PodBehavior::CrashLoop);
    let files = [
        ("templates/a.yaml", CONFIG),
        ("templates/crd.yaml", definition.as_str()),
        ("templates/d.yaml", bad.as_str()),
    ];
    charts.publish("1.1.0", &files).await?;
    story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.apply(&widget(&group, "mine")).await?;
    let is_undone =
        |object: &DynamicObject| condition(object, "Remediated")["reason"] == "RollbackSucceeded";
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_undone).await?;
    story.await_event("HelmRelease", "app", "CRDReleased").await?;
    story.expect(&own(&group, "mine")).await?;
    ensure!(value_of_chart(&story).await? == "1.0.0", "the rest of it was not rolled back");

    // A first installation that fails is removed, and the CRD stays in that case, too.
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    let remediation = json!({"retries": 0, "remediateLastFailure": true});
    let install = json!({"install": {"timeout": "5s", "remediation": remediation}});
    let again = charts.release("app", install).await?;
    let is_removed =
        |object: &DynamicObject| condition(object, "Remediated")["reason"] == "UninstallSucceeded";
    story.await_object(&again, DEFAULT_WAIT_TIMEOUT, is_removed).await?;
    story.expect(&own(&group, "mine")).await?;
    ensure!(
        story.read(&StoryObject::config_map("app-config")).await?.is_none(),
        "it was not removed"
    );
    story.delete(&own(&group, "mine")).await?;
    story.delete(&crd(&group)).await?;
    story.end().await
}
