//! Another client keeps changing an applied object. The condition names the client and the field, and windlass stops correcting
//! the field for a while.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_rival_is_named_and_left_alone_for_a_while_and_nothing_else_is() -> Result<()> {
    let story = Story::with_windlass("rivals").await?;
    let files = [("a.yaml", config_map("fought", "1")), ("b.yaml", config_map("other", "1"))];
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;

    let api = Api::<ConfigMap>::namespaced(story.client.clone(), &story.namespace);
    let params = PatchParams { field_manager: Some("rival".to_owned()), ..PatchParams::default() };
    let mut edits = 0;
    let contested = story
        .await_until("the fight to end", DEFAULT_WAIT_TIMEOUT * 2, async || {
            let object = story.expect(&app).await?;
            if condition(&object, "Ready")["reason"] == "Contested" {
                return Ok(Some(object));
            }
            let value =
                story.expect(&StoryObject::config_map("fought")).await?.data["data"]["value"]
                    .clone();
            if value == "1" {
                let patch = json!({"data": {"value": "mine"}});
                api.patch("fought", &params, &Patch::Merge(patch)).await?;
                edits += 1;
            }
            Ok(None)
        })
        .await?;
    ensure!((10..=12).contains(&edits), "it was corrected after {edits} edits");
    let ready = condition(&contested, "Ready");
    let message = ready["message"].as_str().unwrap_or_default();
    let named = format!(
        "ConfigMap/{}/fought is contested: field manager 'rival' repeatedly sets /data/value",
        story.namespace
    );
    ensure!(ready["status"] == "False" && message.starts_with(&named), "{ready}");
    story.await_event("Kustomization", "app", "'rival'").await?;

    // An object without a conflict is corrected as usual. A request leads to a correction at once.
    story.merge(&StoryObject::config_map("other"), json!({"data": {"value": "edited"}})).await?;
    story.await_value("other", "1").await?;
    story.await_value("fought", "mine").await?;
    story.request(&app).await?;
    story.await_value("fought", "1").await?;

    // A result that waits for an approval is not applied, so it ends no conflict.
    let annotations = json!({"windlass.dev/plan": "Approve"});
    story.merge(&app, json!({"metadata": {"annotations": annotations}})).await?;
    let without_value = "{apiVersion: v1, kind: ConfigMap, metadata: {name: fought}}\n".to_owned();
    upstream.push(&[("a.yaml", without_value)]).await?;
    let is_pending = |object: &DynamicObject| condition(object, "Ready")["reason"] == "PlanPending";
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_pending).await?;
    let revision = upstream.push(&[("a.yaml", config_map("fought", "1"))]).await?;
    let is_contested = |object: &DynamicObject| {
        object.data["status"]["lastAttemptedRevision"] == revision
            && condition(object, "Ready")["reason"] == "Contested"
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_contested).await?;
    story.end().await
}
