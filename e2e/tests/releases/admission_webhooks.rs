//! Admission webhooks of others. The condition contains the text with which a webhook rejects an object, and the spec decides
//! about retries. A webhook that does not answer delays no other release.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::servers::admission_webhook::{AdmissionWebhookAnswer, AdmissionWebhookServer};
use kube::api::DynamicObject;
use serde_json::json;

fn configuration(story: &Story) -> StoryObject {
    let kind = "ValidatingWebhookConfiguration";
    StoryObject::new("admissionregistration.k8s.io/v1", kind, &story.namespace)
}

/// Makes the API server call a webhook for ConfigMaps, and waits until it does.
async fn register(story: &Story, webhook: &AdmissionWebhookServer, seconds: u32) -> Result<()> {
    story.apply_value(webhook.configuration(&story.namespace, seconds)).await?;
    story
        .await_until("the webhook to be asked", DEFAULT_WAIT_TIMEOUT, async || {
            story.apply(&config_map("probe", "x")).await.ok();
            Ok((webhook.asked() > 0).then_some(()))
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_of_a_webhook_is_quoted_and_retried_as_the_spec_says() -> Result<()> {
    let story = Story::with_windlass("release-refused").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let webhook = AdmissionWebhookServer::start(AdmissionWebhookAnswer::Refuse(
        "no ConfigMaps on Sundays".to_owned(),
    ))
    .await?;
    register(&story, &webhook, 10).await?;
    let once = charts.release("once", json!({})).await?;
    let strategy = json!({"strategy": {"name": "RetryOnFailure", "retryInterval": "1s"}});
    let often = json!({"install": strategy, "upgrade": strategy});
    let often = charts.release("often", often).await?;
    for (app, name) in [(&once, "once"), (&often, "often")] {
        let text = story.await_message(app, "no ConfigMaps on Sundays").await?;
        ensure!(
            text.contains("story.windlass.dev") && text.contains(&format!("{name}-config")),
            "{text}"
        );
    }
    let again = |it: &DynamicObject| newest(it)["version"].as_i64().is_some_and(|it| it >= 2);
    story.await_object(&often, DEFAULT_WAIT_TIMEOUT, again).await?;
    let object = story.await_condition(&once, "Stalled", "True", DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(condition(&object, "Stalled")["reason"] == "RetriesExceeded", "{:?}", object.data);
    ensure!(story.history("once")?.len() == 1, "{:?}", story.history("once")?);
    webhook.set(AdmissionWebhookAnswer::Admit);
    story.await_condition(&often, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.delete(&configuration(&story)).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_does_not_answer_delays_no_other_object_and_its_return_is_enough()
-> Result<()> {
    let story = Story::with_windlass("release-hangs").await?;
    let other = Story::begin("release-beside").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let beside = StoryChartRepository::of(&other).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    beside.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let webhook = AdmissionWebhookServer::start(AdmissionWebhookAnswer::Hang).await?;
    register(&story, &webhook, 3).await?;
    let asked = webhook.asked();
    let strategy = json!({"strategy": {"name": "RetryOnFailure", "retryInterval": "1s"}});
    let held = json!({"install": strategy, "upgrade": strategy});
    let held = charts.release("held", held).await?;
    story
        .await_until("the webhook to be asked", DEFAULT_WAIT_TIMEOUT, async || {
            Ok((webhook.asked() > asked).then_some(()))
        })
        .await?;
    let free = beside.release("free", json!({})).await?;
    other.await_revision(&free, 1).await?;
    let object = story.expect(&held).await?;
    ensure!(condition(&object, "Ready")["status"] != "True", "{:?}", object.data);
    story.await_message(&held, "failed calling webhook").await?;
    webhook.set(AdmissionWebhookAnswer::Admit);
    story.await_condition(&held, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.delete(&configuration(&story)).await?;
    other.end().await?;
    story.end().await
}
