//! A HelmRelease whose values are nested too deeply to decode. Its condition says so, and other HelmReleases are reconciled.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use http::{Method, Request};
use serde::Deserialize;
use serde_json::{Value, json};

/// The fields of an object that are read, without its spec.
#[derive(Deserialize)]
struct StatusOnlyObject {
    #[serde(default)]
    status: Value,
}

fn values(depth: usize) -> String {
    let values = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    format!(r#"{{"spec":{{"values":{values}}}}}"#)
}

/// Sends a request about a HelmRelease of the story, and returns the answer as text. No client can decode values that are so
/// deep.
async fn send(story: &Story, method: Method, name: &str, body: String) -> Result<String> {
    let namespace = &story.namespace;
    let path =
        format!("/apis/helm.toolkit.fluxcd.io/v2/namespaces/{namespace}/helmreleases/{name}");
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/merge-patch+json")
        .body(body.into_bytes())?;
    Ok(story.client.request_text(request).await?)
}

async fn await_unreadable(story: &Story, name: &str) -> Result<()> {
    let has_message = async || {
        let text = send(story, Method::GET, name, String::new()).await?;
        let status = serde_json::from_str::<StatusOnlyObject>(&text)?.status;
        let conditions = status["conditions"].as_array().context("no conditions")?;
        let has_condition = |kind: &str, is: &str| {
            conditions.iter().any(|it| {
                let text = it["message"].as_str().unwrap_or_default();
                it["type"] == kind && it["status"] == is && text.contains("levels deep")
            })
        };
        Ok((has_condition("Ready", "False") && has_condition("Stalled", "True")).then_some(()))
    };
    story
        .await_until(
            "the HelmRelease to say that it cannot be read",
            DEFAULT_WAIT_TIMEOUT,
            has_message,
        )
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn values_nested_too_deeply_are_reported_on_their_release_and_affect_no_other() -> Result<()>
{
    let story = Story::begin("deep").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let deep = charts.release("deep", json!({"values": {"value": "1"}})).await?;
    let well = charts.release("well", json!({"values": {"value": "1"}})).await?;
    story.await_revision(&deep, 1).await?;
    story.await_revision(&well, 1).await?;

    send(&story, Method::PATCH, "deep", values(300)).await?;
    await_unreadable(&story, "deep").await?;
    story.await_event("HelmRelease", "deep", "levels deep").await?;
    // A release that depends on it waits, whatever its previous state was.
    let after = charts.release("after", json!({"dependsOn": [{"name": "deep"}]})).await?;
    story.await_condition(&after, "Ready", "False", DEFAULT_WAIT_TIMEOUT).await?;
    story.merge(&well, json!({"spec": {"values": {"value": "2"}}})).await?;
    story.await_revision(&well, 2).await?;

    windlass.operator.kill()?;
    windlass.resume().await?;
    story.merge(&well, json!({"spec": {"values": {"value": "3"}}})).await?;
    story.await_revision(&well, 3).await?;

    // After the values are corrected, it is released again, and so is the waiting release.
    send(&story, Method::PATCH, "deep", r#"{"spec":{"values":{"a":null,"value":"2"}}}"#.into())
        .await?;
    story.await_revision(&deep, 2).await?;
    story.await_revision(&after, 1).await?;

    send(&story, Method::PATCH, "deep", values(5_000)).await?;
    await_unreadable(&story, "deep").await?;
    send(&story, Method::DELETE, "deep", String::new()).await?;
    let is_gone = async || {
        let answer = send(&story, Method::GET, "deep", String::new()).await;
        Ok(answer.is_err().then_some(()))
    };
    story.await_until("the HelmRelease to be gone", DEFAULT_WAIT_TIMEOUT, is_gone).await?;
    ensure!(
        story.read(&StoryObject::config_map("deep-config")).await?.is_none(),
        "it was left behind"
    );
    story.end().await
}
