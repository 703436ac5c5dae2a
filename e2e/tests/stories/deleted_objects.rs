//! An object counts as deleted only if the API server says so about the object itself. A version that is no longer served
//! proves nothing.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::widget_crd;
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

/// The CRD of Widgets with two versions, of which `v1` is stored.
fn crd(group: &str, served: [bool; 2]) -> Result<Value> {
    let mut crd: Value = serde_saphyr::from_str(&widget_crd(group))?;
    let mut old = crd["spec"]["versions"][0].clone();
    old["name"] = json!("v1alpha1");
    old["storage"] = json!(false);
    old["served"] = json!(served[0]);
    crd["spec"]["versions"][0]["served"] = json!(served[1]);
    if let Some(versions) = crd["spec"]["versions"].as_array_mut() {
        versions.push(old);
    }
    Ok(crd)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_applied_in_a_version_that_is_served_no_more_is_still_taken_along() -> Result<()> {
    let story = Story::with_windlass("gone").await?;
    let group = format!("{}.test", story.namespace);
    let of = StoryObject::new(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &format!("widgets.{group}"),
    );
    story.apply_value(crd(&group, [true, true])?).await?;
    story.await_condition(&of, "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    let text =
        format!("{{apiVersion: {group}/v1alpha1, kind: Widget, metadata: {{name: wheel}}}}\n");
    let _upstream = story.follow("app", &[("a.yaml", text)]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    let wheel = StoryObject::new(&format!("{group}/v1"), "Widget", "wheel");
    story.expect(&wheel).await?;

    // No version of the CRD is served for a while, but the object still exists.
    story.apply_value(crd(&group, [false, false])?).await?;
    story
        .await_until("the kind to be served no more", DEFAULT_WAIT_TIMEOUT, async || {
            Ok(story.read(&wheel).await.is_err().then_some(()))
        })
        .await?;
    story.delete(&app).await?;
    let object = story
        .await_object(&app, DEFAULT_WAIT_TIMEOUT, |object| {
            condition(object, "Ready")["reason"] == "PruneFailed"
        })
        .await?;
    let ready = condition(&object, "Ready");
    let message = ready["message"].as_str().unwrap_or_default();
    ensure!(message.contains("serves none of its versions"), "{ready}");

    // The version in which the object was applied is not served again.
    story.apply_value(crd(&group, [false, true])?).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT * 2).await?;
    ensure!(story.read(&wheel).await?.is_none(), "it was left behind");
    story.delete(&of).await?;
    story.end().await
}
