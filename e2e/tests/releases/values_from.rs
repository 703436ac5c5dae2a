//! Values come from ConfigMaps and Secrets and change with them. No output shows the values of Secrets.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{StoryChartRepository, VALUES};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

async fn config(story: &Story, name: &str, data: Value) -> Result<()> {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    story.apply_value(object).await.map(drop)
}

async fn secret(story: &Story, name: &str, data: Value) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    story.apply_value(object).await.map(drop)
}

/// Waits until the release has these values.
async fn await_values(story: &Story, wanted: Value) -> Result<()> {
    let target = StoryObject::config_map("app-values");
    let has = |object: &kube::api::DynamicObject| {
        let text = object.data["data"]["all"].as_str().unwrap_or_default();
        serde_json::from_str::<Value>(text).is_ok_and(|it| it == wanted)
    };
    story.await_object(&target, DEFAULT_WAIT_TIMEOUT, has).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_put_together_in_their_order_and_follow_their_objects() -> Result<()> {
    let story = Story::with_windlass("release-values").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", VALUES)]).await?;
    config(
        &story,
        "base",
        json!({"values.yaml": "a: base\nb: base\nc: base\nlist: [1, 2]\n", "flag": "true"}),
    )
    .await?;
    secret(
        &story,
        "own",
        json!({"own.yaml": "b: s3cret-b\nlist: [3]\n", "token": "t0ken,x={odd}"}),
    )
    .await?;
    let from = json!([
        {"kind": "ConfigMap", "name": "base"},
        {"kind": "Secret", "name": "own", "valuesKey": "own.yaml"},
        {"kind": "ConfigMap", "name": "nowhere", "optional": true},
        {"kind": "ConfigMap", "name": "base", "valuesKey": "nothing", "optional": true},
        {"kind": "ConfigMap", "name": "base", "valuesKey": "flag", "targetPath": "set.flag"},
        {"kind": "Secret", "name": "own", "valuesKey": "token", "targetPath": "set.token", "literal": true},
    ]);
    let app = charts.release("app", json!({"valuesFrom": from, "values": {"c": "inline"}})).await?;
    story.await_revision(&app, 1).await?;
    let set = json!({"flag": true, "token": "t0ken,x={odd}"});
    await_values(
        &story,
        json!({"a": "base", "b": "s3cret-b", "c": "inline", "list": [3], "set": set}),
    )
    .await?;

    // Each change leads to an upgrade without a request.
    config(&story, "base", json!({"values.yaml": "a: new\nc: base\n", "flag": "off"})).await?;
    story.await_revision(&app, 2).await?;
    let set = json!({"flag": "off", "token": "t0ken,x={odd}"});
    await_values(
        &story,
        json!({"a": "new", "b": "s3cret-b", "c": "inline", "list": [3], "set": set}),
    )
    .await?;
    secret(&story, "own", json!({"own.yaml": "b: s3cret-c\n", "token": "t0ken-2"})).await?;
    story.await_revision(&app, 3).await?;
    let set = json!({"flag": "off", "token": "t0ken-2"});
    await_values(&story, json!({"a": "new", "b": "s3cret-c", "c": "inline", "set": set})).await?;
    // The optional ConfigMap now exists.
    config(&story, "nowhere", json!({"values.yaml": "d: late\n"})).await?;
    story.await_revision(&app, 4).await?;
    let messages = story.all_messages(&app, "app").await?;
    ensure!(!messages.contains("s3cret") && !messages.contains("t0ken"), "{messages}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_or_cannot_be_read_is_named_and_its_repair_is_enough() -> Result<()> {
    let story = Story::with_windlass("release-values-bad").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", VALUES)]).await?;
    let app =
        charts.release("app", json!({"valuesFrom": [{"kind": "Secret", "name": "own"}]})).await?;
    let text = story.await_failure(&app, "ValuesError").await?;
    ensure!(
        text.contains("secrets \"own\" not found") && text.contains("optional: true"),
        "{text}"
    );
    let failure = async |part: &str| {
        let has = |object: &kube::api::DynamicObject| {
            let ready = e2e::harness::flux_objects::condition(object, "Ready");
            ready["reason"] == "ValuesError" && ready["message"].to_string().contains(part)
        };
        story.await_object(&app, DEFAULT_WAIT_TIMEOUT, has).await.map(drop)
    };
    secret(&story, "own", json!({"other": "a: 1"})).await?;
    failure("values.yaml").await?;
    secret(&story, "own", json!({"values.yaml": "password: [hunter2-s3cret"})).await?;
    failure("it is not valid YAML").await?;
    secret(&story, "own", json!({"values.yaml": "password: hunter2-s3cret"})).await?;
    story.await_revision(&app, 1).await?;

    let path =
        json!([{"kind": "Secret", "name": "own", "valuesKey": "token", "targetPath": "a.b"}]);
    secret(&story, "own", json!({"token": "{hunter2-s3cret,"})).await?;
    story.merge(&app, json!({"spec": {"valuesFrom": path}})).await?;
    failure("literal: true").await?;
    let path = json!([{"kind": "Secret", "name": "own", "valuesKey": "token", "targetPath": "a.b", "literal": true}]);
    story.merge(&app, json!({"spec": {"valuesFrom": path}})).await?;
    story.await_revision(&app, 2).await?;
    await_values(&story, json!({"a": {"b": "{hunter2-s3cret,"}})).await?;
    let messages = story.all_messages(&app, "app").await?;
    ensure!(!messages.contains("hunter2"), "{messages}");
    story.end().await
}
