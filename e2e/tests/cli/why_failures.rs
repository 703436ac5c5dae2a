//! `windlass why` for failures of credentials, digests, specs, admission webhooks, images and tests. Other failures are in
//! `incidents.rs`.

use anyhow::Result;
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::Story;
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, test_pod};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::servers::admission_webhook::{AdmissionWebhookAnswer, AdmissionWebhookServer};
use e2e::servers::web::FileWebServer;
use serde_json::json;

use crate::cli::why_causes::await_cause;
use crate::cli::windlass_ui::causes_are_first_headings;

#[tokio::test(flavor = "multi_thread")]
async fn why_names_wrong_credentials_digests_and_specs_of_sources() -> Result<()> {
    let story = Story::with_windlass("why-credentials").await?;
    let user = "git".to_owned();
    let password = "right".to_owned();
    let server = GitServer::start(GitReadAccess::Basic { user, password })?;
    let repository = server.repository("app")?;
    repository.commit(&[("a.yaml", config_map("a", "1").as_str())], "begin")?;
    let key = "{apiVersion: v1, kind: Secret, metadata: {name: wrong}, stringData: {username: git, password: hunter2}}";
    story.apply(key).await?;
    let secret = json!({"secretRef": {"name": "wrong"}});
    story.git_repository("key", &server.url(&repository), secret).await?;
    story.git_repository("stalled", "http://", json!({})).await?;
    for name in ["key", "stalled"] {
        story.kustomization(name, name, json!({})).await?;
    }
    let web = FileWebServer::start().await?;
    let url = web.put("app.yaml", config_map("a", "1").into_bytes());
    let digest = format!("sha256:{}", "0".repeat(64));
    story
        .apply_value(json!({"apiVersion": "source.windlass.dev/v1alpha1", "kind": "HTTPArchive",
            "metadata": {"name": "digest"}, "spec": {"interval": "10m", "url": url, "digest": digest}}))
        .await?;
    for (object, problem, parts) in [
        ("ks/key", "Credentials", ["GitRepository/{ns}/key", "authentication"]),
        ("ks/stalled", "Spec", ["GitRepository/{ns}/stalled", "http://"]),
        ("httparchive/digest", "Verification", ["HTTPArchive/{ns}/digest", "digest"]),
    ] {
        await_cause(&story, object, problem, &parts).await?;
    }
    let objects = ["ks/key", "ks/stalled", "httparchive/digest"];
    causes_are_first_headings(&story, &objects).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_webhooks_and_images() -> Result<()> {
    let story = Story::with_windlass("why-webhooks").await?;
    let files = [
        ("pull/a.yaml", deployment("pulling", PodBehavior::ImagePull)),
        ("webhook/a.yaml", config_map("refused", "1")),
    ];
    let _upstream = story.follow("app", &files).await?;
    let spec = json!({"path": "./pull", "wait": true, "timeout": "5m"});
    story.kustomization("pull", "app", spec).await?;
    let parts = ["Pod/{ns}/pulling-", "ImagePullBackOff"];
    await_cause(&story, "ks/pull", "Image", &parts).await?;

    let webhook = AdmissionWebhookServer::start(AdmissionWebhookAnswer::Refuse(
        "no ConfigMaps on Sundays".to_owned(),
    ))
    .await?;
    story.apply_value(webhook.configuration(&story.namespace, 10)).await?;
    let asked = async || {
        story.apply(&config_map("probe", "x")).await.ok();
        Ok((webhook.asked() > 0).then_some(()))
    };
    story.await_until("the webhook to be asked", DEFAULT_WAIT_TIMEOUT, asked).await?;
    story.kustomization("webhook", "app", json!({"path": "./webhook"})).await?;
    let parts = ["ConfigMap/{ns}/refused", "no ConfigMaps on Sundays"];
    await_cause(&story, "ks/webhook", "Apply", &parts).await?;
    causes_are_first_headings(&story, &["ks/pull", "ks/webhook"]).await?;
    webhook.set(AdmissionWebhookAnswer::Admit);
    let configuration = e2e::harness::StoryObject::new(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        &story.namespace,
    );
    story.delete(&configuration).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_a_failing_test_of_a_release() -> Result<()> {
    let story = Story::with_windlass("why-tests").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let test = test_pod("smoke", PodBehavior::Fail);
    charts
        .publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/t.yaml", test.as_str())])
        .await?;
    charts.seen().await?;
    charts.release("tested", json!({"test": {"enable": true}})).await?;
    let parts = ["HelmRelease/{ns}/tested", "smoke"];
    await_cause(&story, "hr/tested", "Test", &parts).await?;
    causes_are_first_headings(&story, &["hr/tested"]).await?;
    story.end().await
}
