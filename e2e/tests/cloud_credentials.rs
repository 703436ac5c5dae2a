//! Sources that windlass fetches with the identity of its machine, according to its environment.
//!
//! In the folder: decryption by services of clouds and Vault (`decryption`), also for tenants (`tenants`). Elsewhere: sources
//! without a cluster, for all ways of the environment (`bucket`, `oci.rs`).

mod decryption;
mod encrypted_secrets;
mod tenant_decryption;

use anyhow::{Result, ensure};
use e2e::forward_proxy::TestForwardProxy;
use e2e::harness::flux_objects::{NEVER, condition};
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::servers::aws_identity::AwsIdentityServer;
use e2e::servers::registry::{PushedLayer, RegistryServer};
use e2e::servers::s3::{ACCESS, SECRET};
use serde_json::{Value, json};
use sources::charts::LoadedChartFiles;
use sources::oci::chart;
use tree::{MemoryTree, RelPath};

const API: &str = "source.toolkit.fluxcd.io/v1";

/// The host name of an AWS registry. The proxy in the environment leads it to the test registry.
const OF_AWS: &str = "oci://123456789012.dkr.ecr.eu-west-1.amazonaws.com";

async fn apply(story: &Story, kind: &str, name: &str, spec: Value) -> Result<StoryObject> {
    let object = json!({"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec});
    story.apply_value(object).await?;
    Ok(StoryObject::new(API, kind, name))
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_and_charts_of_a_registry_of_aws_are_pulled_with_one_login() -> Result<()> {
    let registry = RegistryServer::start_with_password().await?;
    registry.push_files("team/app", "latest", &[("a.yaml", "a: 1\n")], json!({})).await?;
    let files = [("app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n")];
    let mut packed = Vec::new();
    LoadedChartFiles::in_tree(&MemoryTree::from_files(files)?, &RelPath::parse("app")?)?
        .write(&mut packed)?;
    let layer = PushedLayer { media_type: chart::CHART, bytes: packed };
    registry.push("charts/app", "1.0.0", &[layer], json!({})).await?;
    let identity = AwsIdentityServer::start().await?;
    let story = Story::begin("ecr").await?;
    let host = registry.host().to_owned();
    let proxy = TestForwardProxy::start_to("me", "me", move |_| host.clone()).await?;
    let through = proxy.url().replace("http://", "http://me:me@");
    let environment = [
        ("AWS_ACCESS_KEY_ID", ACCESS),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_ENDPOINT_URL_ECR", &identity.url()),
        ("HTTP_PROXY", &through),
        ("HTTPS_PROXY", &through),
        ("NO_PROXY", "127.0.0.1,localhost"),
    ];
    // AWS has revoked the token early. windlass requests another one and reuses it.
    identity.give_first(&["0ld-passw0rd"]);
    let windlass = WindlassProcess::start_for_with(&story, &[], &environment).await?;

    let spec = json!({"interval": NEVER, "provider": "aws", "insecure": true, "url": format!("{OF_AWS}/team/app")});
    let app = apply(&story, "OCIRepository", "app", spec).await?;
    story.await_ready(&app).await?;
    let spec = json!({"type": "oci", "provider": "aws", "insecure": true, "url": format!("{OF_AWS}/charts")});
    apply(&story, "HelmRepository", "charts", spec).await?;
    let spec = json!({"chart": "app", "version": "1.x", "interval": NEVER,
        "sourceRef": {"kind": "HelmRepository", "name": "charts"}});
    let app = apply(&story, "HelmChart", "app", spec).await?;
    let ready = condition(&story.await_ready(&app).await?, "Ready").clone();
    ensure!(ready["message"] == "pulled 'app' chart with version '1.0.0'", "{ready}");
    ensure!(identity.asked() == ["POST /"; 2], "{:?}", identity.asked());
    ensure!(!windlass.operator.log()?.contains("0ld-passw0rd"), "the log has a password");

    // windlass recognizes another registry by its name, and sends it no credentials.
    let spec = json!({"interval": NEVER, "provider": "aws", "url": registry.url("team/app")});
    let other = apply(&story, "OCIRepository", "other", spec).await?;
    let message = story.await_failure(&other, "URLInvalid").await?;
    ensure!(message.contains("is not an AWS registry"), "{message}");
    story.end().await
}
