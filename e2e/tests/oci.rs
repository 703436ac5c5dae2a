//! Pulls from a real registry: tags, digests, passwords, certificates.
//!
//! Elsewhere: registries that lie or require tokens (`sources/src/oci/tests.rs`), OCIRepositories
//! (`stories/oci_repository.rs`).

use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::forward_proxy::TestForwardProxy;
use e2e::harness::run_in_subprocess;
use e2e::servers::aws_identity::{AwsIdentityServer, POD_TOKEN};
use e2e::servers::registry::{FLUX_LAYER, PASSWORD, PushedLayer, RegistryServer};
use e2e::servers::s3::{ACCESS, SECRET};
use futures::future::try_join_all;
use http_client::TlsConfig;
use serde_json::json;
use sources::oci::{
    Error, ManifestReference, OciRepositoryName, RegistryKeyring, RegistryLimits, RegistrySession,
    RegistrySessionCache, RemoteOciRepository, TagSelection, chart,
};

fn remote(
    registry: &RegistryServer,
    repository: &str,
    password: Option<&str>,
) -> Result<RemoteOciRepository> {
    let repository = OciRepositoryName::parse(&registry.url(repository))?;
    let mut keyring = RegistryKeyring::default();
    if let Some(password) = password {
        let config = registry.docker_config(password).into_bytes();
        keyring.add(&[(".dockerconfigjson".to_owned(), config)].into())?;
    }
    let ca = registry.authority().map(|it| it.certificate().as_bytes().to_vec());
    Ok(RemoteOciRepository {
        auth: keyring.auth(&repository),
        repository,
        tls: TlsConfig { ca, identity: None },
        proxy: None,
        insecure: false,
        timeout: Duration::from_secs(60),
        limits: RegistryLimits::default(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_is_pulled_by_its_tag_and_a_run_that_finds_nothing_new_makes_one_request()
-> Result<()> {
    let registry = RegistryServer::start().await?;
    let pushed = registry
        .push_files(
            "team/app",
            "v1",
            &[("a.yaml", "a: 1\n")],
            json!({"org.opencontainers.image.revision": "main@sha1:1"}),
        )
        .await?;
    let remote = remote(&registry, "team/app", None)?;
    let known = RegistrySessionCache::default();
    let client = RegistrySession::new(&remote, &known)?;
    let tag = ManifestReference::tag("v1")?;
    let digest = client.resolve(&tag).await?;
    ensure!(digest.to_string() == pushed, "{digest} is not {pushed}");
    let manifest = client.manifest(&digest).await?;
    ensure!(manifest.annotations["org.opencontainers.image.revision"] == "main@sha1:1");
    let layer = manifest.layer(Some(FLUX_LAYER))?;
    let mut bytes = Vec::new();
    client.layer(layer).await?.file.read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 == layer.size && bytes.starts_with(&[0x1f, 0x8b]));

    let requests = || registry.log().matches("\"HEAD /v2/team/app/manifests/v1").count();
    let all = || registry.log().lines().filter(|line| line.contains("HTTP/1.1\" ")).count();
    let before = requests();
    let before_all = all();
    RegistrySession::new(&remote, &known)?.resolve(&tag).await?;
    ensure!(requests() - before == 1 && all() - before_all == 1, "{}", registry.log());

    let missing = client.resolve(&ManifestReference::tag("v2")?).await;
    let Err(Error::NotFound { said, .. }) = &missing else { anyhow::bail!("{missing:?}") };
    ensure!(said.starts_with("MANIFEST_UNKNOWN: "), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_of_a_docker_config_is_sent_over_tls_of_ones_own_authority() -> Result<()> {
    let registry = RegistryServer::start_tls().await?;
    registry.push_files("app", "v1", &[("a.yaml", "a: 1\n")], json!({})).await?;
    let known = RegistrySessionCache::default();
    let resolve = async |remote: &RemoteOciRepository| {
        RegistrySession::new(remote, &known)?.resolve(&ManifestReference::tag("v1")?).await
    };
    let right = remote(&registry, "app", Some(PASSWORD))?;
    resolve(&right).await?;

    let refused = resolve(&remote(&registry, "app", Some("wr0ng"))?).await;
    let Err(error @ Error::Unauthorized { .. }) = refused else { anyhow::bail!("{refused:?}") };
    let text = error.to_string();
    ensure!(
        text.contains("UNAUTHORIZED: authentication required") && !text.contains("wr0ng"),
        "{text}"
    );
    let refused = resolve(&remote(&registry, "app", None)?).await;
    ensure!(matches!(refused, Err(Error::Unauthorized { .. })), "{refused:?}");

    let stranger = RemoteOciRepository { tls: TlsConfig::default(), ..right.clone() };
    let refused = resolve(&stranger).await;
    ensure!(matches!(refused, Err(Error::Untrusted { .. })), "{refused:?}");
    // Without an authority, `insecure` accepts any certificate.
    resolve(&RemoteOciRepository { insecure: true, ..stranger }).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_highest_version_is_found_among_tags_and_charts_are_known_by_their_layer() -> Result<()>
{
    let registry = RegistryServer::start_with_password().await?;
    for tag in ["1.0.0", "1.2.0", "latest", "2.0.0-rc.1"] {
        registry.push_files("app", tag, &[("a.yaml", tag)], json!({})).await?;
    }
    let known = RegistrySessionCache::default();
    let tags = remote(&registry, "app", Some(PASSWORD))?;
    let tags = RegistrySession::new(&tags, &known)?.tags().await?;
    let found = TagSelection::parse("1.x", None, false)?.choose(&tags)?;
    ensure!(found == ManifestReference::tag("1.2.0")?, "{found:?} of {tags:?}");

    let layers = [
        PushedLayer { media_type: chart::PROVENANCE, bytes: b"signed".to_vec() },
        PushedLayer { media_type: chart::CHART, bytes: b"chart".to_vec() },
    ];
    registry.push("charts/app", "1.0.0_b1", &layers, json!({})).await?;
    let remote = remote(&registry, "charts/app", Some(PASSWORD))?;
    let client = RegistrySession::new(&remote, &known)?;
    ensure!(chart::versions(&client).await? == ["1.0.0+b1"]);
    let digest = chart::resolve(&client, "1.0.0+b1").await?;
    let (_, mut layer) = chart::pull(&client, &digest).await?;
    let mut text = String::new();
    layer.file.read_to_string(&mut text).context("the chart")?;
    ensure!(text == "chart", "{text}");
    Ok(())
}

/// The address of an AWS registry. A proxy leads it to the test registry.
const OF_AWS: &str = "oci://123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/app";

/// What a process pulls that gets its credentials only from the environment.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the test below, with an environment of its own"]
async fn as_the_environment_says() -> Result<()> {
    let known = RegistrySessionCache::default();
    let limit = Duration::from_secs(30);
    let repository = OciRepositoryName::parse(OF_AWS)?;
    let many = (0..8).map(|_| known.login_to_aws(&repository, limit));
    let auth = try_join_all(many).await?.swap_remove(0);
    let proxy = [("address", "TEST_PROXY"), ("username", "TEST_USER"), ("password", "TEST_USER")];
    let proxy = proxy.iter().map(|(key, name)| {
        Ok::<_, anyhow::Error>(((*key).to_owned(), std::env::var(name)?.into_bytes()))
    });
    let remote = RemoteOciRepository {
        repository,
        auth,
        tls: TlsConfig::default(),
        proxy: Some(http_client::HttpProxy::from_secret(&proxy.collect::<Result<_>>()?)?),
        insecure: true,
        timeout: limit,
        limits: RegistryLimits::default(),
    };
    RegistrySession::new(&remote, &known)?.resolve(&ManifestReference::tag("v1")?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_logs_in_to_a_registry_of_aws_once_for_all() -> Result<()> {
    let registry = RegistryServer::start_with_password().await?;
    registry.push_files("team/app", "v1", &[("a.yaml", "a: 1\n")], json!({})).await?;
    let identity = AwsIdentityServer::start().await?;
    let host = registry.host().to_owned();
    let proxy = TestForwardProxy::start_to("me", "me", move |_| host.clone()).await?;
    let through = proxy.url();
    let service = identity.url();
    let run = |variables: &[(&str, &str)]| {
        let always =
            [("TEST_PROXY", &*through), ("TEST_USER", "me"), ("AWS_ENDPOINT_URL_ECR", &*service)];
        run_in_subprocess("oci::as_the_environment_says", always.iter().chain(variables).copied())
    };
    let keys = |secret| [("AWS_ACCESS_KEY_ID", ACCESS), ("AWS_SECRET_ACCESS_KEY", secret)];
    let (is_fine, said) = run(&keys(SECRET))?;
    let asked = identity.asked();
    ensure!(is_fine && asked == ["POST /"], "{asked:?} {said}");
    ensure!(proxy.passed().iter().any(|line| line.contains(".amazonaws.com/v2/team/app/")));

    let pod = format!("{}/v1/credentials", identity.url());
    let of_pod = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", pod.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", POD_TOKEN),
    ];
    let (is_fine, said) = run(&of_pod)?;
    let asked = identity.asked().split_off(1);
    ensure!(is_fine && asked == ["GET /v1/credentials", "POST /"], "{asked:?} {said}");

    // windlass replaces a revoked token once in each run.
    for (stale, is_mended) in [(&["0ld-passw0rd"; 1][..], true), (&["0ld-passw0rd"; 3], false)] {
        identity.give_first(stale);
        let before = identity.asked().len();
        let (is_fine, said) = run(&keys(SECRET))?;
        let asked = identity.asked().split_off(before);
        ensure!(is_fine == is_mended && asked == ["POST /"; 2], "{asked:?} {said}");
        ensure!(is_fine || said.contains("UNAUTHORIZED: authentication required"), "{said}");
        ensure!(!said.contains("0ld-passw0rd"), "{said}");
    }
    identity.give_first(&[]);

    let (is_fine, said) = run(&keys("hunter2"))?;
    ensure!(!is_fine && said.contains("InvalidSignatureException not for you"), "{said}");
    ensure!(!said.contains("hunter2"), "{said}");
    let (is_fine, said) = run(&[("AWS_EC2_METADATA_DISABLED", "true")])?;
    ensure!(!is_fine && said.contains("cannot get the credentials of windlass"), "{said}");
    Ok(())
}
