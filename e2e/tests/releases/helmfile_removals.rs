//! What uninstalls releases of a Helmfile and what does not: narrower selectors, suspensions, and lifecycles of hooks.

use anyhow::{Result, ensure};
use crds::operation_lifecycle::LifecyclePhase;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::json;

use super::helmfiles::{applied, follow_chart, keep, release, releases, row, states};

fn tier(name: &str, tier: &str) -> String {
    format!("{}  labels: {{tier: {tier}}}\n", release(name, "v", &[]))
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_that_selectors_leave_out_stay_until_another_helmfile_selects_them() -> Result<()>
{
    let story = Story::with_windlass("helmfile-selectors").await?;
    let _upstream = follow_chart(
        &story,
        &[("helmfile.yaml", releases(&[tier("web", "front"), tier("db", "back")]))],
    )
    .await?;
    let shop = keep(&story, "shop", json!({})).await?;
    story.await_ready(&shop).await?;
    keep(&story, "shop", json!({"selectors": ["tier=front"]})).await?;
    let is_narrowed = |object: &DynamicObject| states(object) == ["web Ready", "db LeftOut"];
    story.await_object(&shop, DEFAULT_WAIT_TIMEOUT, is_narrowed).await?;
    story.await_event("Helmfile", "shop", "selectors or its condition leave it out").await?;
    story.expect(&StoryObject::config_map("db-config")).await?;
    // The other Helmfile takes the release over unchanged.
    let back = keep(&story, "back", json!({"selectors": ["tier=back"]})).await?;
    let object = story.await_ready(&back).await?;
    ensure!(states(&object) == ["db Ready"], "{:?}", states(&object));
    ensure!(row(&object, "db")?["revision"] == 1, "{:?}", row(&object, "db")?);
    ensure!(story.history("db")?.len() == 1, "{:?}", story.history("db")?);
    // Deleting the first Helmfile deletes only its own releases.
    story.delete(&shop).await?;
    story.await_gone(&shop, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&StoryObject::config_map("web-config"), DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&StoryObject::config_map("db-config")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_release_is_uninstalled_by_nothing() -> Result<()> {
    let story = Story::with_windlass("helmfile-suspended-removal").await?;
    let all = |off: bool| {
        let db = format!("{}  installed: {}\n", release("db", "v", &[]), !off);
        [release("web", "v", &[]), db]
    };
    let upstream = follow_chart(&story, &[("helmfile.yaml", releases(&all(false)))]).await?;
    let suspended =
        json!({"suspendedReleases": [{"name": "db", "reason": "the database is migrated"}]});
    let shop = keep(&story, "shop", json!({})).await?;
    story.await_ready(&shop).await?;
    keep(&story, "shop", suspended).await?;
    let is_suspended = |object: &DynamicObject| {
        let states = states(object);
        states.len() == 2 && states.contains(&"db Suspended".to_owned())
    };
    story.await_object(&shop, DEFAULT_WAIT_TIMEOUT, is_suspended).await?;
    for files in [releases(&all(true)), releases(&all(false)[..1])] {
        let revision = upstream.push(&[("helmfile.yaml", files)]).await?;
        let object = applied(&story, &shop, &revision).await?;
        ensure!(is_suspended(&object), "{:?}", states(&object));
        story.expect(&StoryObject::config_map("db-config")).await?;
    }
    story.delete(&shop).await?;
    story.await_gone(&shop, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&StoryObject::config_map("web-config"), DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&StoryObject::config_map("db-config")).await?;
    ensure!(story.history("db")?.len() == 1, "{:?}", story.history("db")?);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_on_which_no_operation_begins_wait_for_lifecycles() -> Result<()> {
    let story = Story::with_windlass("helmfile-hook-lifecycle").await?;
    let helmfile = "releases:\n- name: app\n  chart: ./app\n  values: [{value: one}]\n  hooks:\n  \
        - events: [presync]\n    kubectlApply: {filename: hooks/app.yaml}\n";
    let upstream = follow_chart(
        &story,
        &[("hooks/app.yaml", config_map("before", "1")), ("helmfile.yaml", helmfile.to_owned())],
    )
    .await?;
    let shop = keep(&story, "shop", json!({})).await?;
    story.await_ready(&shop).await?;
    let check = story.lifecycle("check", &["PreInstall", "PreUpgrade"], json!({})).await?;
    story.bind(&check, json!({"subjects": [{"kind": "Helmfile", "name": "shop"}]})).await?;
    let revision = upstream.push(&[("hooks/app.yaml", config_map("before", "2"))]).await?;
    let event = story.await_asked(LifecyclePhase::PreUpgrade).await?;
    let is_waiting = |object: &DynamicObject| {
        condition(object, "Ready")["status"] == "Unknown"
            && object.data["status"]["releases"].to_string().contains("waiting for lifecycle")
    };
    story.await_object(&shop, DEFAULT_WAIT_TIMEOUT, is_waiting).await?;
    let before = story.expect(&StoryObject::config_map("before")).await?;
    ensure!(before.data["data"]["value"] == "1", "{:?}", before.data);
    story.answer(&event, "Succeeded", "").await?;
    applied(&story, &shop, &revision).await?;
    story.await_value("before", "2").await?;
    ensure!(story.history("app")?.len() == 1, "{:?}", story.history("app")?);
    story.await_no_events().await?;
    story.end_lifecycles().await
}
