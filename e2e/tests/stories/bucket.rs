//! Objects are applied from a bucket: from its single files, of which only changed ones are fetched, or from a bundle.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::harness::flux_objects::NEVER;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::servers::aws_identity::{AwsIdentityServer, LDAP_PASSWORD, LDAP_USER};
use e2e::servers::s3::{ACCESS, S3Server, SECRET};
use serde_json::{Value, json};

fn target(name: &str) -> StoryObject {
    StoryObject::new("source.toolkit.fluxcd.io/v1", "Bucket", name)
}

/// Creates a Bucket, and a Kustomization of the same name that applies its files.
async fn follow(story: &Story, server: &S3Server, name: &str, annotations: Value) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "stringData": {"accesskey": ACCESS, "secretkey": SECRET},
    });
    story.apply_value(secret).await?;
    let bucket = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "interval": NEVER, "endpoint": server.endpoint(), "bucketName": name, "insecure": true,
            "secretRef": {"name": name},
        },
    });
    story.apply_value(bucket).await?;
    let source = json!({"sourceRef": {"kind": "Bucket", "name": name}});
    story.kustomization(name, name, source).await
}

fn bundle(text: &str) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("a.yaml"), text)?;
    let output = Command::new("tar").arg("-czC").arg(folder.path()).arg("a.yaml").output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_changed_key_is_one_download_and_one_changed_object() -> Result<()> {
    let story = Story::with_windlass("bucket-keys").await?;
    let server = S3Server::start().await?;
    server.bucket("keys").await?;
    for name in ["one", "two", "three"] {
        server.put("keys", &format!("{name}.yaml"), config_map(name, "1")).await?;
    }
    follow(&story, &server, "keys", json!({})).await?;
    for name in ["one", "two", "three"] {
        story.await_value(name, "1").await?;
    }
    let first = story.await_ready(&target("keys")).await?;
    let revision = first.data["status"]["artifact"]["revision"].clone();
    let text = format!("stored artifact: revision '{}'", revision.as_str().unwrap_or_default());
    let ready = e2e::harness::flux_objects::condition(&first, "Ready");
    ensure!(ready["message"] == text, "{ready}");
    story
        .await_event("Bucket", "keys", "NewArtifact: stored artifact with 3 fetched files")
        .await?;
    let untouched = story.expect(&StoryObject::config_map("one")).await?.metadata.resource_version;

    // Nothing has changed, so there is one listing.
    let before = server.requests("keys")?.len();
    story.rerun(&target("keys")).await?;
    let asked = server.requests("keys")?.split_off(before);
    ensure!(asked.len() == 1 && asked[0].contains("list-type=2"), "{asked:?}");

    server.put("keys", "two.yaml", config_map("two", "2")).await?;
    let before = server.requests("keys")?.len();
    story.request(&target("keys")).await?;
    story.await_value("two", "2").await?;
    let asked = server.requests("keys")?.split_off(before);
    ensure!(asked.len() == 2 && asked[1].starts_with("GET /keys/two.yaml"), "{asked:?}");
    let one = story.expect(&StoryObject::config_map("one")).await?.metadata.resource_version;
    ensure!(one == untouched, "an object that did not change was written");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_is_pushed_becomes_objects() -> Result<()> {
    let story = Story::with_windlass("bucket-bundle").await?;
    let server = S3Server::start().await?;
    server.bucket("bundled").await?;
    server.put("bundled", "app.tar.gz", bundle(&config_map("a", "1"))?).await?;
    follow(&story, &server, "bundled", json!({"windlass.dev/bundle": "app.tar.gz"})).await?;
    story.await_value("a", "1").await?;

    let before = server.requests("bundled")?.len();
    story.rerun(&target("bundled")).await?;
    let asked = server.requests("bundled")?.split_off(before);
    ensure!(asked == ["HEAD /bundled/app.tar.gz"], "{asked:?}");

    server.put("bundled", "app.tar.gz", bundle(&config_map("a", "2"))?).await?;
    story.request(&target("bundled")).await?;
    story.await_value("a", "2").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_secret_is_reported_and_a_right_one_heals() -> Result<()> {
    let story = Story::with_windlass("bucket-secret").await?;
    let server = S3Server::start().await?;
    server.bucket("secret").await?;
    server.put("secret", "a.yaml", config_map("a", "1")).await?;
    follow(&story, &server, "secret", json!({})).await?;
    story.await_value("a", "1").await?;
    let with = |key: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"},
            "stringData": {"accesskey": ACCESS, "secretkey": key},
        })
    };
    story.apply_value(with("hunter2")).await?;
    let message = story.await_failure(&target("secret"), "BucketOperationFailed").await?;
    ensure!(message.contains("authentication failed at"), "{message}");
    let object = story.expect(&target("secret")).await?;
    ensure!(!object.data.to_string().contains("hunter2"), "the secret is in the status");
    object.data["status"]["artifact"].as_object().context("the artifact is gone")?;
    story.apply_value(with(SECRET)).await?;
    story.await_ready(&target("secret")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_a_directory_fetches_with_keys_of_the_token_service() -> Result<()> {
    let story = Story::with_windlass("bucket-ldap").await?;
    let server = S3Server::start().await?;
    let identity = AwsIdentityServer::start().await?;
    server.bucket("ldap").await?;
    server.put("ldap", "a.yaml", config_map("a", "1")).await?;
    let user = |password: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "user"},
            "stringData": {"username": LDAP_USER, "password": password},
        })
    };
    story.apply_value(user("hunter2")).await?;
    let bucket = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket", "metadata": {"name": "ldap"},
        "spec": {
            "interval": NEVER, "endpoint": server.endpoint(), "bucketName": "ldap", "insecure": true,
            "sts": {"provider": "ldap", "endpoint": identity.url(), "secretRef": {"name": "user"}},
        },
    });
    story.apply_value(bucket).await?;
    let message = story.await_failure(&target("ldap"), "AuthenticationFailed").await?;
    ensure!(message.contains("LDAP server error: no such user"), "{message}");
    ensure!(!message.contains("hunter2"), "{message}");
    story.apply_value(user(LDAP_PASSWORD)).await?;
    story.await_ready(&target("ldap")).await?;
    story.end().await
}
