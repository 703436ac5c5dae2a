//! Freezes hold operations on releases, and rollbacks that users request.
//!
//! Elsewhere: Kustomizations, and who may bypass a Freeze (`stories::freezes`).

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, newest};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::json;

use super::helmfiles::{CHART, applied, keep, release, releases};

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_and_a_requested_rollback_wait_for_the_end_of_a_freeze_or_for_a_user()
-> Result<()> {
    let story = Story::with_windlass("release-freeze").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let without_wait = json!({"install": {"disableWait": true}, "upgrade": {"disableWait": true}});
    let app = charts.release("app", without_wait).await?;
    story.await_revision(&app, 1).await?;
    let freeze = story.freeze(json!({})).await?;
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    story.await_message(&app, "Frozen: the chart's new version waits: Freeze").await?;
    ensure!(story.history("app")?.len() == 1, "{:?}", story.history("app")?);
    story.delete(&freeze).await?;
    story.await_revision(&app, 2).await?;

    story.freeze(json!({})).await?;
    let mut made = story.enforce_freezes().await?;
    made.extend(story.bypass_users().await?);
    let (robot, binding) = story.robot().await?;
    made.push(binding);
    let request = |rollback: &str| {
        json!({"spec": {"suspend": true},
            "metadata": {"annotations": {"windlass.dev/rollback": rollback}}})
    };
    story.merge(&app, request("2->1")).await?;
    story.await_message(&app, "the requested rollback waits: Freeze").await?;
    story.refuse_bypasses(&robot, &app).await?;
    ensure!(story.history("app")?.len() == 2, "{:?}", story.history("app")?);
    story.bypass("hr/app")?;
    let await_deployed = async |version: i64| {
        let is_deployed = |object: &DynamicObject| {
            newest(object)["version"] == version && newest(object)["status"] == "deployed"
        };
        story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_deployed).await
    };
    await_deployed(3).await?;
    let config = StoryObject::config_map("app-config");
    let is_old = |object: &DynamicObject| object.data["data"]["chart"] == "1.0.0";
    story.await_object(&config, DEFAULT_WAIT_TIMEOUT, is_old).await?;

    // The bypass was for that rollback only. The next one waits for the end of the Freeze.
    story.merge(&app, request("3->2")).await?;
    story.await_message(&app, "the requested rollback waits: Freeze").await?;
    ensure!(story.history("app")?.len() == 3, "{:?}", story.history("app")?);
    story.delete(&freeze).await?;
    let is_new = |object: &DynamicObject| object.data["data"]["chart"] == "1.1.0";
    story.await_object(&config, DEFAULT_WAIT_TIMEOUT, is_new).await?;
    await_deployed(4).await?;

    // A Freeze holds the next version, but not the deletion by a user.
    story.freeze(json!({})).await?;
    charts.publish("1.2.0", &[("templates/a.yaml", CONFIG)]).await?;
    charts.seen().await?;
    story.merge(&app, json!({"spec": {"suspend": false}})).await?;
    story.await_failure(&app, "Frozen").await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&config, DEFAULT_WAIT_TIMEOUT).await?;
    for target in made.iter().chain([&freeze]) {
        story.delete(target).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_of_a_helmfile_wait_for_the_end_of_a_freeze_or_for_a_user() -> Result<()> {
    let story = Story::with_windlass("helmfile-freeze").await?;
    // Otherwise, the release that is removed from the helmfile would wait for approval, too.
    let policy = story.without_deletion_budget().await?;
    let of = |value: &str, more: &[String]| {
        let web = [release("web", value, &[])];
        releases(&web.into_iter().chain(more.iter().cloned()).collect::<Vec<_>>())
    };
    let other = [release("other", "o1", &[])];
    let files = [
        ("app/Chart.yaml", CHART.to_owned()),
        ("app/templates/config.yaml", CONFIG.to_owned()),
        ("helmfile.yaml", of("w1", &other)),
    ];
    let upstream = story.follow("shop", &files).await?;
    let shop = keep(&story, "shop", json!({})).await?;
    story.await_ready(&shop).await?;
    let freeze = story.freeze(json!({"kinds": ["Helmfile"]})).await?;
    let made = story.enforce_freezes().await?;
    // One release changes, and another one is removed from the helmfile.
    let second = upstream.push(&[("helmfile.yaml", of("w2", &[]))]).await?;
    let message = story.await_failure(&shop, "Frozen").await?;
    ensure!(message.contains(&second), "{message}");
    for (name, value) in [("web-config", "w1"), ("other-config", "o1")] {
        story.await_value(name, value).await?;
    }
    story.bypass("helmfile/shop")?;
    applied(&story, &shop, &second).await?;
    story.await_value("web-config", "w2").await?;
    story.await_gone(&StoryObject::config_map("other-config"), DEFAULT_WAIT_TIMEOUT).await?;

    let third = upstream.push(&[("helmfile.yaml", of("w3", &[]))]).await?;
    story.await_failure(&shop, "Frozen").await?;
    story.delete(&freeze).await?;
    applied(&story, &shop, &third).await?;
    for target in made.iter().chain([&policy]) {
        story.delete(target).await?;
    }
    story.end().await
}
