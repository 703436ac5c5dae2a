//! Artifacts of an OCI registry are applied, new tags are noticed, and an OCIRepository that may not pull says so.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::servers::registry::{PASSWORD, RegistryServer};
use serde_json::{Value, json};

fn target(name: &str) -> StoryObject {
    StoryObject::new("source.toolkit.fluxcd.io/v1", "OCIRepository", name)
}

async fn repository(story: &Story, name: &str, url: &str, more: Value) -> Result<()> {
    let mut spec = json!({"interval": "1h", "url": url});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
        "metadata": {"name": name}, "spec": spec});
    story.apply_value(object).await.map(drop)
}

/// Creates a Secret with a docker config.
async fn secret(story: &Story, name: &str, config: &str) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config}});
    story.apply_value(object).await.map(drop)
}

async fn await_revision(story: &Story, name: &str, revision: &str) -> Result<()> {
    let has = |object: &kube::api::DynamicObject| {
        object.data["status"]["artifact"]["revision"] == revision
    };
    story.await_object(&target(name), DEFAULT_WAIT_TIMEOUT, has).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_is_applied_and_a_new_tag_is_picked_up() -> Result<()> {
    let story = Story::with_windlass("oci").await?;
    let registry = RegistryServer::start().await?;
    let says =
        |value: &str| [("app/a.yaml", config_map("app", value)), ("README.md", String::new())];
    let push = async |tag: &str, value: &str| {
        let files = says(value);
        let files = [(files[0].0, files[0].1.as_str()), (files[1].0, files[1].1.as_str())];
        let more = json!({"org.opencontainers.image.source": "https://git.example.com/app",
            "org.opencontainers.image.revision": format!("main@sha1:{value}")});
        registry.push_files("team/app", tag, &files, more).await
    };
    let first = push("1.0.0", "1").await?;
    let more = json!({"ref": {"semver": "1.x"}, "ignore": "*.md"});
    repository(&story, "app", &registry.url("team/app"), more).await?;
    let source = json!({"sourceRef": {"kind": "OCIRepository", "name": "app"}, "path": "./app"});
    story.kustomization("app", "app", source).await?;
    story.await_value("app", "1").await?;
    let object = story.await_ready(&target("app")).await?;
    let status = &object.data["status"];
    ensure!(status["artifact"]["revision"] == format!("1.0.0@{first}"), "{status}");
    ensure!(
        status["artifact"]["metadata"]["org.opencontainers.image.revision"] == "main@sha1:1",
        "{status}"
    );
    let own = status["artifact"]["url"].as_str();
    let latest = status["url"].as_str();
    let own = own.unwrap_or_default();
    let latest = latest.unwrap_or_default();
    ensure!(latest.ends_with("/app/latest.tar.gz"), "{status}");
    let bytes = async |url: &str| reqwest::get(url).await?.error_for_status()?.bytes().await;
    ensure!(bytes(own).await? == bytes(latest).await?);
    let text = format!(
        "stored artifact with revision '1.0.0@{first}' from '{}', origin source 'https://git.example.com/app', origin revision 'main@sha1:1'",
        registry.url("team/app")
    );
    story.await_event("OCIRepository", "app", &text).await?;
    let applied = story.await_ready(&StoryObject::kustomization("app")).await?;
    let status = &applied.data["status"];
    ensure!(status["lastAppliedOriginRevision"] == "main@sha1:1", "{status}");
    ensure!(status["history"][0]["metadata"]["originRevision"] == "main@sha1:1", "{status}");

    let second = push("1.1.0", "2").await?;
    story.request(&target("app")).await?;
    await_revision(&story, "app", &format!("1.1.0@{second}")).await?;
    story.await_value("app", "2").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_pull_is_reported_as_flux_reports_it_until_the_secret_is_right() -> Result<()> {
    let story = Story::with_windlass("oci-password").await?;
    let registry = RegistryServer::start_with_password().await?;
    registry.push_files("app", "latest", &[("a.yaml", &config_map("app", "1"))], json!({})).await?;
    let url = registry.url("app");
    secret(&story, "pull", &registry.docker_config("wr0ng-passw0rd")).await?;
    repository(&story, "app", &url, json!({"secretRef": {"name": "pull"}})).await?;
    let message = story.await_failure(&target("app"), "OCIArtifactPullFailed").await?;
    let expected = format!(
        "failed to determine artifact digest: GET http://{}/v2/app/manifests/latest: UNAUTHORIZED: authentication required",
        registry.host()
    );
    ensure!(message.starts_with(&expected), "{message}");

    // windlass watches the Secret, so no request is needed.
    secret(&story, "pull", &registry.docker_config(PASSWORD)).await?;
    story.await_condition(&target("app"), "Ready", "True", Duration::from_secs(60)).await?;

    // The same credentials come from a ServiceAccount.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "puller"},
        "imagePullSecrets": [{"name": "pull"}]});
    repository(&story, "other", &url, json!({"serviceAccountName": "puller"})).await?;
    let message = story.await_failure(&target("other"), "AuthenticationFailed").await?;
    ensure!(message.starts_with("failed to get credential: serviceaccount '"), "{message}");
    story.apply_value(account).await?;
    story.await_condition(&target("other"), "Ready", "True", Duration::from_secs(60)).await?;

    let log = story.windlass().await?.operator.log()?;
    ensure!(!log.contains(PASSWORD) && !log.contains("wr0ng-passw0rd"), "the log shows a password");
    story.end().await
}
