//! Records that are too large for a Secret are stored in several parts. They can be read again, and no part is left behind.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::{Story, StoryObject};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::json;

const PART_OF: &str = "windlass.dev/release-part-of";
const OWNER: &str = "windlass.dev/release-owner";

/// A text that does not get shorter by compression.
fn noise(length: usize) -> String {
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + u8::try_from((seed >> 33) % 94).unwrap_or_default())
    };
    (0..length).map(|_| next()).collect()
}

/// The revisions to which further parts of existing records belong.
async fn parts(story: &Story) -> Result<Vec<String>> {
    let secrets = Api::<Secret>::namespaced(story.client.clone(), &story.namespace);
    let found = secrets.list_metadata(&ListParams::default().labels(PART_OF)).await?;
    let mut of: Vec<String> =
        found.iter().filter_map(|it| it.labels().get(PART_OF).cloned()).collect();
    of.sort();
    Ok(of)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_record_is_in_parts_and_what_a_crash_left_of_one_goes_later() -> Result<()> {
    let story = Story::with_windlass("release-parts").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let noise = noise(1_200_000);
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("noise.txt", &noise)]).await?;
    let app = charts.release("app", json!({"maxHistory": 2})).await?;
    let object = story.await_revision(&app, 1).await?;
    let record = StoryObject::new("v1", "Secret", "sh.helm.release.v1.app.v1");
    let first = story.expect(&record).await?;
    let count = first.annotations().get("windlass.dev/release-parts").cloned();
    ensure!(count.as_deref() == Some("2"), "{count:?}");
    let now = parts(&story).await?;
    ensure!(now == ["app.v1"], "{now:?}");

    // A part that windlass left when it ended between two writes, a part of another owner, and a part of another release.
    let own = object.uid().unwrap_or_default();
    for (name, owner, of) in [
        ("left", own.as_str(), "app.v9"),
        ("theirs", "another", "app.v8"),
        ("other", &own, "web.v1"),
    ] {
        let labels = json!({PART_OF: of, OWNER: owner});
        let part = json!({"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
            "metadata": {"name": name, "labels": labels}});
        story.apply_value(part).await?;
    }
    story.merge(&app, json!({"spec": {"values": {"value": "two"}}})).await?;
    story.await_revision(&app, 2).await?;
    let now = parts(&story).await?;
    ensure!(now == ["app.v1", "app.v2", "app.v8", "web.v1"], "{now:?}");
    // windlass reads the record again, and nothing more happens.
    story.rerun(&app).await?;
    story.await_revision(&app, 2).await?;

    // A revision that fits into one Secret has no parts. An old revision is deleted with its parts.
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    story.await_revision(&app, 3).await?;
    let now = parts(&story).await?;
    ensure!(now == ["app.v2", "app.v8", "web.v1"], "{now:?}");
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    let now = parts(&story).await?;
    ensure!(now == ["app.v8", "web.v1"], "{now:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_read_keeps_the_helm_release() -> Result<()> {
    let story = Story::with_windlass("release-unreadable").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    let record = StoryObject::new("v1", "Secret", "sh.helm.release.v1.app.v1");
    let whole = story.expect(&record).await?.data["data"].clone();
    story.merge(&record, json!({"data": {"release": "b2Rk"}})).await?;
    story.delete(&app).await?;
    let name = format!("Secret {}/sh.helm.release.v1.app.v1 cannot be decoded", story.namespace);
    story.await_message(&app, &name).await?;
    story.expect(&StoryObject::config_map("app-config")).await?;
    story.merge(&record, json!({"data": whole})).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(story.read(&StoryObject::config_map("app-config")).await?.is_none());
    ensure!(story.read(&record).await?.is_none());
    story.end().await
}
