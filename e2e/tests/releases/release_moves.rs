//! A release whose namespace or name changes is removed from the old place and installed in the new one.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, newest};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

fn namespace(name: &str) -> StoryObject {
    StoryObject::new("v1", "Namespace", name)
}

/// The Secret of a revision.
fn record(release: &str, revision: i64) -> StoryObject {
    StoryObject::new("v1", "Secret", &format!("sh.helm.release.v1.{release}.v{revision}"))
}

/// Installs a chart with the ConfigMap `RELEASE-config`.
async fn charts_of(story: &Story) -> Result<StoryChartRepository<'_>> {
    let charts = StoryChartRepository::of(story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    Ok(charts)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_goes_where_its_target_namespace_says() -> Result<()> {
    let story = Story::with_windlass("release-target").await?;
    let charts = charts_of(&story).await?;
    let [one, two] = ["one", "two"].map(|it| format!("{}-{it}", story.namespace));
    let none = charts.release("none", json!({"targetNamespace": one})).await?;
    let text = story.await_failure(&none, "InstallFailed").await?;
    ensure!(text.contains(&format!("namespaces \"{one}\" not found")), "{text}");
    story.delete(&none).await?;
    story.await_gone(&none, DEFAULT_WAIT_TIMEOUT).await?;
    let more = json!({"targetNamespace": one, "install": {"createNamespace": true}});
    let app = charts.release("app", more).await?;
    let object = story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(newest(&object)["name"] == format!("{one}-app"), "{}", newest(&object));
    ensure!(newest(&object)["namespace"] == one.as_str(), "{}", newest(&object));
    let config = |of: &str| StoryObject::config_map(&format!("{of}-app-config")).in_namespace(of);
    story.expect(&config(&one)).await?;
    let made = story.expect(&namespace(&one)).await?;
    ensure!(made.metadata.labels.is_some_and(|it| it.get("name") == Some(&one)));
    // The records are in the namespace of the HelmRelease.
    story.expect(&record(&format!("{one}-app"), 1)).await?;

    story.merge(&app, json!({"spec": {"targetNamespace": two}})).await?;
    let object = story.await_revision(&app, 1).await?;
    ensure!(newest(&object)["namespace"] == two.as_str(), "{}", newest(&object));
    story.expect(&config(&two)).await?;
    ensure!(story.read(&config(&one)).await?.is_none(), "it is still where it was");
    ensure!(story.read(&record(&format!("{one}-app"), 1)).await?.is_none());
    // No user asked for the deletion of the namespace, so it stays.
    story.expect(&namespace(&one)).await?;
    for name in [&one, &two] {
        story.delete(&namespace(name)).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn records_go_where_the_storage_namespace_says_and_a_new_name_is_a_new_release() -> Result<()>
{
    let story = Story::with_windlass("release-storage").await?;
    let charts = charts_of(&story).await?;
    let elsewhere = format!("{}-records", story.namespace);
    story
        .apply_value(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": elsewhere}}),
        )
        .await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    story
        .merge(&app, json!({"spec": {"storageNamespace": elsewhere, "values": {"value": "x"}}}))
        .await?;
    let moved = |it: &kube::api::DynamicObject| {
        let status = &it.data["status"];
        status["storageNamespace"] == elsewhere.as_str() && newest(it)["version"] == 1
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, moved).await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&record("app", 1).in_namespace(&elsewhere)).await?;
    ensure!(story.read(&record("app", 1)).await?.is_none(), "the former record is still there");
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(config.data["data"]["value"] == "x", "{:?}", config.data);

    story.merge(&app, json!({"spec": {"releaseName": "web"}})).await?;
    let object = story.await_revision(&app, 1).await?;
    ensure!(newest(&object)["name"] == "web", "{}", newest(&object));
    story.expect(&record("web", 1).in_namespace(&elsewhere)).await?;
    ensure!(story.read(&record("app", 1).in_namespace(&elsewhere)).await?.is_none());
    ensure!(story.read(&StoryObject::config_map("app-config")).await?.is_none());
    story.expect(&StoryObject::config_map("web-config")).await?;
    story.await_event("HelmRelease", "app", "Helm uninstall succeeded").await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(story.read(&record("web", 1).in_namespace(&elsewhere)).await?.is_none());
    story.delete(&namespace(&elsewhere)).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_of_another_name_is_installed_anew_unless_the_spec_says_otherwise() -> Result<()> {
    let story = Story::with_windlass("release-chart-name").await?;
    let charts = charts_of(&story).await?;
    let renamed = "apiVersion: v2\nname: renamed\nversion: 1.0.0\n";
    charts.publish_files(&[("Chart.yaml", renamed), ("templates/a.yaml", CONFIG)]).await?;
    let config = StoryObject::config_map("app-config");
    let named = |name: &str, more: Value| {
        let mut patch = json!({"spec": {"chart": {"spec": {"chart": name}}}});
        patch["spec"]["upgrade"] = more;
        patch
    };
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    let first = story.expect(&config).await?.metadata.uid;
    story.merge(&app, named("renamed", Value::Null)).await?;
    let is_renamed = |it: &kube::api::DynamicObject| newest(it)["chartName"] == "renamed";
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_renamed).await?;
    story.await_revision(&app, 1).await?;
    ensure!(story.expect(&config).await?.metadata.uid != first, "it was not installed anew");

    let second = story.expect(&config).await?.metadata.uid;
    story.merge(&app, named("app", json!({"chartNameChangeStrategy": "InPlaceUpdate"}))).await?;
    let object = story.await_revision(&app, 2).await?;
    ensure!(newest(&object)["chartName"] == "app", "{}", newest(&object));
    ensure!(story.expect(&config).await?.metadata.uid == second, "it was not updated in place");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_of_another_name_leaves_nothing_of_the_former_one_behind() -> Result<()> {
    let story = Story::with_windlass("release-chart-objects").await?;
    let charts = charts_of(&story).await?;
    let renamed = "apiVersion: v2\nname: renamed\nversion: 1.0.0\n";
    let other = CONFIG.replace("-config", "-renamed");
    charts.publish_files(&[("Chart.yaml", renamed), ("templates/a.yaml", &other)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    story.merge(&app, json!({"spec": {"chart": {"spec": {"chart": "renamed"}}}})).await?;
    let is_renamed = |it: &kube::api::DynamicObject| newest(it)["chartName"] == "renamed";
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_renamed).await?;
    story.await_revision(&app, 1).await?;
    story.expect(&StoryObject::config_map("app-renamed")).await?;
    ensure!(
        story.read(&StoryObject::config_map("app-config")).await?.is_none(),
        "it was left behind"
    );
    story.end().await
}
