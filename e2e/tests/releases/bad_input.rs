//! A HelmRelease that cannot be released explains why, changes nothing, and continues after it is corrected.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, hook, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, deployment, job};
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::json;

use crate::releases::helmfiles::{CHART, keep};

#[tokio::test(flavor = "multi_thread")]
async fn values_that_the_schema_forbids_are_named() -> Result<()> {
    let story = Story::with_windlass("release-schema").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let schema = r#"{"properties": {"replicas": {"type": "integer"}}}"#;
    charts
        .publish("1.0.0", &[("templates/a.yaml", CONFIG), ("values.schema.json", schema)])
        .await?;
    let app = charts.release("app", json!({"values": {"replicas": "three"}})).await?;
    let text = story.await_failure(&app, "InstallFailed").await?;
    ensure!(text.contains("/replicas") && text.contains("integer"), "{text}");
    ensure!(story.helm(&["status", "app"])?.status.code() == Some(1), "there is a release");
    story.merge(&app, json!({"spec": {"values": {"replicas": 3}}})).await?;
    story.await_revision(&app, 1).await?;
    story.merge(&app, json!({"spec": {"values": {"replicas": "four"}}})).await?;
    let text = story.await_failure(&app, "UpgradeFailed").await?;
    ensure!(text.contains("/replicas"), "{text}");
    ensure!(story.history("app")?.len() == 1);
    let skipped = json!({"spec": {"upgrade": {"disableSchemaValidation": true}}});
    story.merge(&app, skipped).await?;
    story.await_revision(&app, 2).await?;
    story.end().await
}

/// The API server answers with 500, as if this was its own fault.
#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_not_declared_fails_the_release_and_a_corrected_chart_mends_it()
-> Result<()> {
    let story = Story::with_windlass("release-undeclared").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let misspelt = deployment("web", PodBehavior::Ready).replace("replicas:", "replicaz:");
    charts.publish("1.0.0", &[("templates/a.yaml", &misspelt)]).await?;
    charts.seen().await?;
    let app = charts.release("app", json!({})).await?;
    let text = story.await_failure(&app, "InstallFailed").await?;
    ensure!(text.contains(".spec.replicaz: field not declared in schema"), "{text}");
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    story.await_ready(&app).await?;
    // The same happens in an upgrade, and the release can be deleted while it fails.
    let both = [("templates/a.yaml", CONFIG), ("templates/b.yaml", &misspelt)];
    charts.publish("1.2.0", &both).await?;
    story.await_failure(&app, "UpgradeFailed").await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(story.read(&StoryObject::config_map("app-config")).await?.is_none(), "it was kept");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_fails_is_named_without_the_secrets_that_it_quotes() -> Result<()> {
    let story = Story::with_windlass("release-template").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let failing = "{{ if .Values.password }}{{ fail (printf \"bad password %s!\" .Values.password) }}{{ end }}";
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/f.yaml", failing)]).await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own"},
        "stringData": {"values.yaml": "password: hunter2-s3cret"}});
    story.apply_value(secret).await?;
    let app =
        charts.release("app", json!({"valuesFrom": [{"kind": "Secret", "name": "own"}]})).await?;
    let text = story.await_failure(&app, "InstallFailed").await?;
    ensure!(text.contains("app/templates/f.yaml") && text.contains("bad password ****!"), "{text}");
    story.await_event("HelmRelease", "app", "bad password ****!").await?;
    let messages = story.all_messages(&app, "app").await?;
    ensure!(!messages.contains("hunter2"), "{messages}");
    // The API server may also quote the values that it rejects.
    let refused = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  \
                   type: {{ .Values.password }}\n  ports: [{port: 80}]\n";
    let odd = json!({"stringData": {"values.yaml": "password: Hunter2_S3cret"}});
    story.merge(&StoryObject::new("v1", "Secret", "own"), odd).await?;
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG), ("templates/f.yaml", refused)]).await?;
    story.await_message(&app, "InstallFailed: Helm install failed for release").await?;
    let is_refused = |it: &kube::api::DynamicObject| {
        let text = condition(it, "Released")["message"].to_string();
        text.contains("app@1.1.0") && text.contains("spec.type")
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_refused).await?;
    let messages = story.all_messages(&app, "app").await?;
    ensure!(!messages.contains("Hunter2"), "{messages}");
    charts.publish("1.2.0", &[("templates/a.yaml", CONFIG)]).await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_not_there_is_awaited() -> Result<()> {
    let story = Story::with_windlass("release-version").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let chart = json!({"spec": {"chart": "app", "version": "9.x",
        "sourceRef": {"kind": "HelmRepository", "name": "charts"}}});
    let app = charts.release("app", json!({"chart": chart})).await?;
    let text = story.await_failure(&app, "SourceNotReady").await?;
    ensure!(text.contains(&format!("HelmChart/{0}/{0}-app", story.namespace)), "{text}");
    charts.publish("9.9.9", &[("templates/a.yaml", CONFIG)]).await?;
    let object = story.await_revision(&app, 1).await?;
    ensure!(newest(&object)["chartVersion"] == "9.9.9", "{}", newest(&object));
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_never_ends_ends_its_operation_when_the_time_is_over() -> Result<()> {
    let story = Story::with_windlass("release-endless").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let endless = hook("endless", "pre-install", 0, "hook-failed", PodBehavior::Unready);
    charts
        .publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &endless)])
        .await?;
    let app = charts.release("app", json!({"install": {"timeout": "2s"}})).await?;
    let text = story.await_failure(&app, "InstallFailed").await?;
    let named = format!(
        "failed pre-install: timeout waiting for: [Job/{}/endless status: 'InProgress']",
        story.namespace
    );
    ensure!(text.contains(&named), "{text}");
    ensure!(story.read(&StoryObject::config_map("app-config")).await?.is_none());
    // The deletion policy of the hook removes it.
    story.await_gone(&StoryObject::new("batch/v1", "Job", "endless"), DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_may_not_change_is_reported_with_its_object() -> Result<()> {
    let story = Story::with_windlass("release-immutable").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let once = job("once", PodBehavior::Ready);
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/j.yaml", &once)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    let before = story.expect(&StoryObject::new("batch/v1", "Job", "once")).await?.metadata.uid;
    let other = once.replace("app:1", "app:2");
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG), ("templates/j.yaml", &other)]).await?;
    let text = story.await_failure(&app, "UpgradeFailed").await?;
    ensure!(
        text.contains("/once batch/v1, Kind=Job") && text.contains("field is immutable"),
        "{text}"
    );
    let live = story.expect(&StoryObject::new("batch/v1", "Job", "once")).await?;
    ensure!(live.metadata.uid == before, "a Job was deleted without a request");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_being_deleted_is_reported_and_a_new_one_is_enough() -> Result<()> {
    let story = Story::with_windlass("release-leaving").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let name = format!("{}-leaving", story.namespace);
    let namespace = StoryObject::new("v1", "Namespace", &name);
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    story.apply_value(object.clone()).await?;
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held",
        "namespace": name, "finalizers": ["example.com/hold"]}});
    story.apply_value(held).await?;
    story.delete(&namespace).await?;
    let more = json!({"targetNamespace": name, "releaseName": "app"});
    let app = charts.release("app", more).await?;
    let text = story.await_failure(&app, "InstallFailed").await?;
    ensure!(text.contains("app-config") && text.contains("is being terminated"), "{text}");
    let held = StoryObject::config_map("held").in_namespace(&name);
    story.merge(&held, json!({"metadata": {"finalizers": null}})).await?;
    story.await_gone(&namespace, DEFAULT_WAIT_TIMEOUT).await?;
    story.apply_value(object).await?;
    story.merge(&app, json!({"spec": {"values": {"value": "x"}}})).await?;
    story.await_condition(&app, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&StoryObject::config_map("app-config").in_namespace(&name)).await?;
    // If the namespace is deleted with everything in it, the release can be deleted without problems.
    story.delete(&namespace).await?;
    story.await_gone(&namespace, DEFAULT_WAIT_TIMEOUT).await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

/// windlass may write these objects. So a commit or a chart could otherwise forge a failure, or the Plan that users approve.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_windlass_writes_is_refused_by_all_that_applies() -> Result<()> {
    const HELMFILE: &str = "releases:\n- name: tool\n  chart: ./app\n  hooks:\n  \
        - {events: [presync], kubectlApply: {filename: hook.yaml}}\n";
    let story = Story::with_windlass("release-records").await?;
    let records = [
        ("Quarantine", "spec: {subject: {kind: Kustomization, name: shop}, reason: r, message: m}"),
        ("Plan", "spec: {revision: r, digest: d, count: 0, objects: [], rules: []}"),
    ];
    let record = |at: usize, more: &str| {
        let (kind, spec) = records[at];
        format!(
            "apiVersion: release.windlass.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: forged{more}}}\n{spec}\n"
        )
    };
    let as_hook = ", annotations: {helm.sh/hook: pre-install}";
    let charts = StoryChartRepository::of(&story).await?;
    charts
        .publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/r.yaml", &record(1, ""))])
        .await?;
    let release = charts.release("app", json!({})).await?;
    let files = [
        ("ks/map.yaml", record(0, "")),
        ("app/Chart.yaml", CHART.to_owned()),
        ("app/templates/config.yaml", CONFIG.to_owned()),
        ("hook.yaml", record(0, "")),
        ("helmfile.yaml", HELMFILE.to_owned()),
    ];
    let _shop = story.follow("shop", &files).await?;
    story.kustomization("app", "shop", json!({"path": "./ks"})).await?;
    let helmfile = keep(&story, "shop", json!({})).await?;
    let is_refused = |object: &DynamicObject, kind: &str| {
        let mut conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
        condition(object, "Ready")["status"] == "False"
            && conditions.any(|it| {
                let message = it["message"].as_str().unwrap_or_default();
                message.contains(&format!("{kind}/"))
                    && message.contains("forged: only windlass writes objects of this kind")
            })
    };
    let app = StoryObject::kustomization("app");
    for (target, kind) in [(&release, "Plan"), (&app, "Quarantine"), (&helmfile, "Quarantine")] {
        let says = |object: &DynamicObject| is_refused(object, kind);
        story.await_object(target, DEFAULT_WAIT_TIMEOUT, says).await?;
    }
    ensure!(story.helm(&["status", "app"])?.status.code() == Some(1), "there is a revision");
    charts
        .publish(
            "1.1.0",
            &[("templates/a.yaml", CONFIG), ("templates/r.yaml", &record(0, as_hook))],
        )
        .await?;
    let says = |object: &DynamicObject| is_refused(object, "Quarantine");
    story.await_object(&release, DEFAULT_WAIT_TIMEOUT, says).await?;
    for (kind, _) in records {
        let forged = StoryObject::new("release.windlass.dev/v1alpha1", kind, "forged");
        ensure!(story.read(&forged).await?.is_none(), "{kind} was written");
    }
    story.end().await
}
