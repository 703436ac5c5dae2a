//! Checks that windlass itself answers: waiting for a time, an object, a web server or a Job, and watching the metrics of a
//! canary.
//!
//! Elsewhere: answers of other controllers (`lifecycles.rs`, `lifecycle_handlers.rs`), users (`approvals.rs`).

use anyhow::{Context as _, Result, ensure};
use crds::operation_lifecycle::{LifecycleEvent, LifecyclePhase, LifecycleState};
use crds::windlass_release::{AuditOperation, ReleaseAuditSpec};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::release_audits::await_audits;
use e2e::harness::{Story, StoryObject};
use e2e::servers::web::FileWebServer;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// The answer of a Prometheus server with one value.
fn measured(value: &str) -> String {
    json!({"status": "success", "data": {"resultType": "vector",
        "result": [{"metric": {}, "value": [1_700_000_000.5, value]}]}})
    .to_string()
}

/// Waits until a LifecycleEvent contains a text.
async fn await_said(story: &Story, event: &LifecycleEvent, text: &str) -> Result<()> {
    let name = event.metadata.name.clone().context("an event has a name")?;
    let is_said = |object: &DynamicObject| {
        object.data["status"]["message"].as_str().is_some_and(|message| message.contains(text))
    };
    story
        .await_object(&StoryObject::of::<LifecycleEvent>(&name), DEFAULT_WAIT_TIMEOUT, is_said)
        .await
        .map(drop)
}

fn answers(audit: &ReleaseAuditSpec) -> Vec<String> {
    let answers = audit.lifecycles.iter().map(|it| {
        let by = it.answered_by.as_deref().unwrap_or_default();
        format!(
            "{} {} by {by}: {}",
            it.phase,
            it.outcome,
            it.message.as_deref().unwrap_or_default()
        )
    });
    answers.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_whose_figures_turn_bad_is_rolled_back() -> Result<()> {
    let story = Story::with_windlass("canary").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let prometheus = FileWebServer::start().await?;
    prometheus.put("prom/api/v1/query", measured("0.01"));
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let metrics = json!({"address": format!("http://{}/prom", prometheus.address()),
        "query": "errors{app=\"${release}\",version=\"${toChartVersion}\"}",
        "max": 0.05, "duration": "3s", "interval": "1s"});
    let canary = json!({"handler": {"metrics": metrics}, "timeout": "5m"});
    let canary = story.lifecycle("canary", &["Promote"], canary).await?;
    story.bind(&canary, json!({})).await?;
    let remediation = json!({"retries": 0, "remediateLastFailure": true});
    let app = charts.release("app", json!({"upgrade": {"remediation": remediation}})).await?;
    story.await_revision(&app, 1).await?;
    let install = await_audits(&story, 1).await?.remove(0).spec;
    ensure!(answers(&install) == ["Promote Succeeded by windlass: measured 0.01"], "{install:?}");

    // While there is no measurement, nothing is decided.
    prometheus.put("prom/api/v1/query", "<html>starting</html>");
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    let event = story.await_asked(LifecyclePhase::Promote).await?;
    await_said(&story, &event, "is not JSON").await?;
    prometheus.put("prom/api/v1/query", measured("0.2"));
    let is_undone =
        |object: &DynamicObject| condition(object, "Remediated")["reason"] == "RollbackSucceeded";
    let object = story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_undone).await?;
    let released = condition(&object, "Released");
    let why = "failed at Promote (answered by windlass): 0.2 is above 0.05";
    ensure!(released["message"].as_str().is_some_and(|it| it.contains(why)), "{released}");
    let map = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(map.data["data"]["chart"] == "1.0.0", "{:?}", map.data);
    story.await_no_events().await?;
    let audits = await_audits(&story, 3).await?;
    ensure!(audits[2].spec.operation == AuditOperation::Rollback, "{:?}", audits[2].spec);
    story.end_lifecycles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_waits_for_a_time_an_object_a_server_and_a_job() -> Result<()> {
    let story = Story::with_windlass("checks").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let server = FileWebServer::start().await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let handlers = [
        ("pause", json!({"pause": {"duration": "1s"}})),
        (
            "open",
            json!({"waitFor": {"apiVersion": "v1", "kind": "ConfigMap", "name": "${subject}-gate",
            "expression": "object.data.value == event.parameters.wanted",
            "failureExpression": "object.data.value == 'never'", "interval": "1s"}}),
        ),
        (
            "ready",
            json!({"httpCheck": {"url": format!("http://{}/ready/${{toChartVersion}}", server.address()),
            "expression": "response.status == 200 && response.json.ready == true", "interval": "1s"}}),
        ),
        ("tried", json!({"job": {"template": job("ready")}})),
    ];
    for (order, (name, handler)) in handlers.into_iter().enumerate() {
        let lifecycle = story.lifecycle(name, &["PreInstall"], json!({"handler": handler})).await?;
        let parameters = json!({"wanted": "yes"});
        story.bind(&lifecycle, json!({"order": order, "parameters": parameters})).await?;
    }
    let app = charts.release("app", json!({})).await?;
    let asked = |name: &str| format!("{}-{name}", story.namespace);
    let event = story.await_event_of(&asked("open")).await?;
    await_said(&story, &event, "app-gate does not exist").await?;
    story.apply(&config_map("app-gate", "no")).await?;
    await_said(&story, &event, "the expression is not true yet").await?;
    story.apply(&config_map("app-gate", "yes")).await?;
    let event = story.await_event_of(&asked("ready")).await?;
    await_said(&story, &event, "the server answered with status 404").await?;
    server.put("ready/1.0.0", r#"{"ready": true}"#);
    story.await_revision(&app, 1).await?;
    let install = await_audits(&story, 1).await?.remove(0).spec;
    let answer_texts = answers(&install);
    ensure!(answer_texts.len() == 4, "{answer_texts:?}");
    for (answer, wanted) in
        answer_texts.iter().zip(["paused until ", "app-gate: ", "status 200", "completed"])
    {
        ensure!(answer.starts_with("PreInstall Succeeded by windlass: "), "{answer}");
        ensure!(answer.contains(wanted), "{answer}");
    }
    story.await_no_events().await?;
    story.end_lifecycles().await
}

/// The template of a Job. With `ready`, its Pod completes, and with `fail`, its Pod fails.
fn job(pods: &str) -> Value {
    let container = json!({"name": "main", "image": "example.com/app:1"});
    json!({"metadata": {"labels": {"check": "load"}}, "spec": {"backoffLimit": 0, "template": {
        "metadata": {"annotations": {"windlass.dev/testbed": pods}},
        "spec": {"restartPolicy": "Never", "containers": [container]}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_made_as_the_tenant_and_a_failed_one_stops_the_upgrade() -> Result<()> {
    let story = Story::with_windlass("check-job").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    super::tenants::account(&story).await?;
    super::tenants::allow(&story, &["secrets", "configmaps"]).await?;
    let app = charts.release("app", json!({"serviceAccountName": "tenant"})).await?;
    story.await_revision(&app, 1).await?;
    let handler = json!({"handler": {"job": {"template": job("fail")}}});
    let check = story.lifecycle("check", &["PreUpgrade"], handler).await?;
    story.bind(&check, json!({"parameters": {"rate": "200"}})).await?;
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    let event = story.await_asked(LifecyclePhase::PreUpgrade).await?;
    let user = format!("system:serviceaccount:{}:tenant", story.namespace);
    await_said(&story, &event, &user).await?;
    let phase = story.lifecycle_events().await?.remove(0).status.and_then(|it| it.phase);
    ensure!(phase == Some(LifecycleState::Running), "{phase:?}");
    // After it has the right, windlass creates the Job, and the Job fails.
    super::tenants::allow_in(&story, "batch", &["jobs"]).await?;
    let text = story.await_message(&app, "failed at PreUpgrade").await?;
    ensure!(text.contains("BackoffLimitExceeded"), "{text}");
    story.await_no_events().await?;
    ensure!(story.history("app")?.len() == 1);
    story.end_lifecycles().await
}
