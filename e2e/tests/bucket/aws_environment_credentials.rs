//! Credentials that AWS's libraries take from the environment. Each way is tested with a right answer, without a server, and
//! with a server that accepts the connection but never answers.
//!
//! Each way has its own process. Elsewhere: Google and Azure (`logins`), keys and directories (`bucket.rs`).

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::harness::run_in_subprocess;
use e2e::servers::aws_identity::{AwsIdentityServer, POD_TOKEN, WEB_IDENTITY};
use e2e::servers::s3::{ACCESS, SECRET};
use e2e::tcp_relay::TcpRelay;
use sources::bucket::{BucketClientCache, BucketCredentialSource, BucketFetchState, list};
use tempfile::TempDir;
use url::Url;

use super::{BUCKET, remote, server};

/// What a process lists that gets its credentials only from the environment.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the tests below, with an environment of its own"]
async fn as_the_environment_says() -> Result<()> {
    let sts = std::env::var("TEST_STS").ok().map(|url| Url::parse(&url)).transpose()?;
    let mut remote =
        remote(&std::env::var("TEST_ENDPOINT")?, BucketCredentialSource::Environment { sts })?;
    if let Ok(seconds) = std::env::var("TEST_TIMEOUT") {
        remote.timeout = Duration::from_secs(seconds.parse()?);
    }
    let known = BucketClientCache::default();
    for _again in 0..2 {
        let listed = list(&remote, None, &BucketFetchState::default(), &known).await;
        // The error in the form that users read, instead of its `Debug` form.
        let listed = listed.map_err(|error| anyhow::anyhow!("told: {error}"))?;
        ensure!(listed.len() == 1, "{listed:?}");
    }
    Ok(())
}

/// The right tokens.
const TOKENS: (&str, &str) = (POD_TOKEN, WEB_IDENTITY);
const WRONG: (&str, &str) = ("wr0ng-of-the-pod", "wr0ng-of-the-service-account");

type EnvironmentVariables = Vec<(&'static str, String)>;

fn file(folder: &TempDir, name: &str, text: &str) -> Result<String> {
    let path = folder.path().join(name);
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

/// The ways that request credentials from a service at `place`, with the tokens of the Pod and of the service account. Each has
/// its name, its variables, and the number of requests for a login.
fn ways(
    folder: &TempDir,
    place: &str,
    (pod_token, web_token): (&str, &str),
) -> Result<Vec<(&'static str, EnvironmentVariables, usize)>> {
    let pod = format!("{place}/v1/credentials");
    let pod_file = file(folder, "pod", pod_token)?;
    let web = [
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r".to_owned()),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file(folder, "web", web_token)?),
    ];
    let with = |name| web.iter().cloned().chain([(name, place.to_owned())]).collect();
    Ok(vec![
        ("web identity", with("AWS_ENDPOINT_URL_STS"), 1),
        ("web identity at spec.sts", with("TEST_STS"), 1),
        (
            "pod identity",
            vec![
                ("AWS_CONTAINER_CREDENTIALS_FULL_URI", pod.clone()),
                ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", pod_file),
            ],
            1,
        ),
        (
            "container",
            vec![
                ("AWS_CONTAINER_CREDENTIALS_FULL_URI", pod),
                ("AWS_CONTAINER_AUTHORIZATION_TOKEN", pod_token.to_owned()),
            ],
            1,
        ),
        // The library also requests the region, with its own token.
        ("instance", vec![("AWS_EC2_METADATA_SERVICE_ENDPOINT", place.to_owned())], 5),
    ])
}

/// Runs the test process with the variables of a way.
fn run(
    folder: &TempDir,
    endpoint: &str,
    variables: EnvironmentVariables,
) -> Result<(bool, String)> {
    let home = folder.path().display().to_string();
    let always = [("HOME", home), ("TEST_ENDPOINT", endpoint.to_owned())];
    run_in_subprocess(
        "bucket::aws_environment_credentials::as_the_environment_says",
        always.into_iter().chain(variables),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_of_the_environment_is_gone() -> Result<()> {
    let (server, _) = server().await?;
    server.put(BUCKET, "a.yaml", "1").await?;
    let identity = AwsIdentityServer::start().await?;
    let folder = tempfile::tempdir()?;
    let profile =
        format!("[profile p]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n");
    let profile = file(&folder, "profile", &profile)?;
    let mut ways = ways(&folder, &identity.url(), TOKENS)?;
    ways.extend([
        (
            "keys",
            vec![("AWS_ACCESS_KEY_ID", ACCESS.into()), ("AWS_SECRET_ACCESS_KEY", SECRET.into())],
            0,
        ),
        ("profile", vec![("AWS_CONFIG_FILE", profile), ("AWS_PROFILE", "p".into())], 0),
    ]);
    for (way, variables, requests) in ways {
        let before = identity.asked().len();
        let (is_fine, said) = run(&folder, &server.endpoint(), variables)?;
        let asked = identity.asked().split_off(before);
        // The credentials are requested once, and not in every run.
        ensure!(is_fine && asked.len() == requests, "{way}: {asked:?} {said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_gives_no_credentials_is_named() -> Result<()> {
    let (server, _) = server().await?;
    let identity = AwsIdentityServer::start().await?;
    let silent = TcpRelay::start(identity.address()).await?;
    silent.hold_after(0);
    let closed_port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let folder = tempfile::tempdir()?;
    let mut wrong = Vec::new();
    for (what, place, tokens, expected) in [
        ("unreachable", closed_port, TOKENS, ": Connection refused"),
        ("stalled", silent.address(), TOKENS, " did not respond within 2s"),
        ("wrong", identity.address(), WRONG, ""),
    ] {
        for (way, mut variables, _) in ways(&folder, &format!("http://{place}"), tokens)? {
            // Without such a server, the library concludes that this machine is not in AWS.
            let expected = match (way, what) {
                ("instance", "unreachable") => "no credentials found in chain".to_owned(),
                // The metadata service needs neither token, so neither can be wrong.
                ("instance", "wrong") => continue,
                ("web identity" | "web identity at spec.sts", "wrong") => {
                    "No such token".to_owned()
                }
                (_, "wrong") => "401".to_owned(),
                _ => format!("{place}{expected}"),
            };
            variables.push(("TEST_TIMEOUT", if what == "stalled" { "2" } else { "30" }.to_owned()));
            let start = Instant::now();
            let (is_fine, said) = run(&folder, &server.endpoint(), variables)?;
            let message = said.lines().find_map(|line| line.split_once("told: "));
            let message = message.with_context(|| format!("{way} {what}: {said}"))?.1;
            let is_right = message.starts_with("no credentials for") && message.contains(&expected);
            if is_fine || !is_right || start.elapsed() > Duration::from_secs(25) {
                wrong.push(format!("{way} {what} after {:?}: {message}", start.elapsed()));
            }
            for secret in [tokens.0, tokens.1] {
                ensure!(!said.contains(secret), "{way} {what}: {said}");
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(server.requests(BUCKET)?.is_empty(), "the store was asked without credentials");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_credentials_is_reported() -> Result<()> {
    let (server, _) = server().await?;
    let variables = vec![("AWS_EC2_METADATA_DISABLED", "true".to_owned())];
    let (is_fine, said) = run(&tempfile::tempdir()?, &server.endpoint(), variables)?;
    ensure!(!is_fine && said.contains("no credentials for 127.0.0.1"), "{said}");
    Ok(())
}
