//! Logins at Google and Azure with settings from the environment or a Secret. Fake servers stand in for services that only the
//! clouds have.
//!
//! Each way has its own process and environment. Two cases are not tested, because both services have one fixed address. They
//! are the managed identity of an Azure machine, and a missing metadata service of Google.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use e2e::certificate_authority::TestCertificateAuthority;
use e2e::harness::run_in_subprocess;
use e2e::tcp_relay::TcpRelay;
use e2e::tls_proxy::TlsProxyListener;
use objects::RedactedValue;
use parking_lot::Mutex;
use serde_json::json;
use sources::bucket::{BucketClientCache, BucketFetchState, azure, google, list};
use tempfile::TempDir;
use tokio::net::TcpListener;
use url::Url;

use super::clouds::{service_account, to_azure, to_google};

const TOKEN: &str = "token-of-the-cloud";
const SECRET: &str = "right-client-s3cret";
const WRONG: &str = "wrong-client-s3cret";
const ASSERTION: &str = "who-the-pod-is";

/// The requests so far, by method and path.
type BucketRequestLog = Arc<Mutex<Vec<String>>>;

/// Answers like a Google metadata service, an Azure login service, and a store of each that accepts their tokens.
async fn answer(State(seen): State<BucketRequestLog>, request: Request) -> (StatusCode, String) {
    let (parts, body) = request.into_parts();
    let header =
        |name: &str| parts.headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let path = parts.uri.path();
    seen.lock().push(format!("{} {path}", parts.method));
    let form = to_bytes(body, 1 << 16).await.unwrap_or_default();
    let form = String::from_utf8_lossy(&form).into_owned();
    let token = |life: u64| json!({"access_token": TOKEN, "expires_in": life}).to_string();
    let bearer = header("authorization").strip_prefix("Bearer ").unwrap_or_default();
    let is_known = bearer == TOKEN || bearer.split('.').count() == 3;
    match path {
        "/computeMetadata/v1/instance/service-accounts/default/token" => {
            let is_asked = header("metadata-flavor") == "Google";
            (if is_asked { StatusCode::OK } else { StatusCode::FORBIDDEN }, token(3600))
        }
        "/forever/oauth2/v2.0/token" => (StatusCode::OK, token(u64::MAX)),
        "/t.example/oauth2/v2.0/token" if form.contains(SECRET) || form.contains(ASSERTION) => {
            (StatusCode::OK, token(3600))
        }
        "/t.example/oauth2/v2.0/token" => {
            let said = format!(
                "AADSTS7000215: Invalid client secret {WRONG} provided. Trace ID: 1 Timestamp: 2"
            );
            let said = json!({"error": "invalid_client", "error_description": said});
            (StatusCode::UNAUTHORIZED, said.to_string())
        }
        "/storage/v1/b/app/o" if is_known => {
            let items = json!({"items": [{"name": "a.yaml", "etag": "1", "size": "1"}]});
            (StatusCode::OK, items.to_string())
        }
        "/shop/app" if is_known => {
            let blob = "<Blob><Name>a.yaml</Name><Properties><Etag>1</Etag></Properties></Blob>";
            let text = format!(
                "<EnumerationResults><Blobs>{blob}</Blobs><NextMarker /></EnumerationResults>"
            );
            (StatusCode::OK, text)
        }
        _ => (StatusCode::FORBIDDEN, String::new()),
    }
}

/// What a process lists that gets its credentials only from the cloud.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the tests below, with an environment of its own"]
async fn as_the_cloud_says() -> Result<()> {
    let given = |name: &str| std::env::var(name).with_context(|| format!("there is no {name}"));
    let store = given("TEST_ENDPOINT")?;
    let mut remote = match given("TEST_IDENTITY")?.as_str() {
        "google" => to_google(&store, google::GoogleCredentialSource::Environment)?,
        "azure" => to_azure(
            &format!("http://{store}/shop"),
            azure::AzureCredentialSource::Environment { client: None },
        )?,
        "application" => {
            let identity = azure::AzureCredentialSource::Application {
                tenant: given("TEST_TENANT")?,
                client: "c".to_owned(),
                secret: RedactedValue::new(given("TEST_SECRET")?),
                authority: Some(Url::parse(&given("TEST_AUTHORITY")?)?),
            };
            to_azure(&format!("http://{store}/shop"), identity)?
        }
        other => bail!("who is {other}?"),
    };
    if let Ok(seconds) = given("TEST_TIMEOUT") {
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

type EnvironmentVariables = Vec<(&'static str, String)>;

/// The fake server, over HTTP and TLS.
struct FakeCloudLogins {
    address: SocketAddr,
    seen: BucketRequestLog,
    front: TlsProxyListener,
    folder: TempDir,
    /// The certificate authority for TLS.
    trusted: String,
}

impl FakeCloudLogins {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = BucketRequestLog::default();
        let router = Router::new().fallback(answer).with_state(seen.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let authority = TestCertificateAuthority::generate()?;
        let front = TlsProxyListener::start(address, &authority, false).await?;
        let folder = tempfile::tempdir()?;
        let trusted = String::new();
        let mut clouds = Self { address, seen, front, folder, trusted };
        clouds.trusted = clouds.file("ca", authority.certificate())?;
        Ok(clouds)
    }

    fn file(&self, name: &str, text: &str) -> Result<String> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// Runs the test `as_the_cloud_says` with the identity `who`. Returns the requests that arrived meanwhile last.
    fn run(
        &self,
        who: &str,
        variables: &EnvironmentVariables,
    ) -> Result<(bool, String, Vec<String>)> {
        let seen = || self.seen.lock();
        seen().clear();
        let always = [
            ("HOME", self.folder.path().display().to_string()),
            ("SSL_CERT_FILE", self.trusted.clone()),
            ("TEST_ENDPOINT", self.address.to_string()),
            ("TEST_IDENTITY", who.to_owned()),
        ];
        let variables = always.iter().chain(variables).cloned();
        let (is_fine, said) = run_in_subprocess(
            "bucket::google_and_azure_credentials::as_the_cloud_says",
            variables,
        )?;
        let asked = seen().clone();
        Ok((is_fine, said, asked))
    }
}

fn in_azure(login: SocketAddr, more: (&'static str, &str)) -> EnvironmentVariables {
    vec![
        ("AZURE_TENANT_ID", "t.example".to_owned()),
        ("AZURE_CLIENT_ID", "c".to_owned()),
        ("AZURE_AUTHORITY_HOST", format!("https://{login}/")),
        (more.0, more.1.to_owned()),
    ]
}

fn application(login: SocketAddr, tenant: &str, secret: &str) -> EnvironmentVariables {
    vec![
        ("TEST_TENANT", tenant.to_owned()),
        ("TEST_SECRET", secret.to_owned()),
        ("TEST_AUTHORITY", format!("https://{login}/")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_login_is_made_once_and_reported_when_it_fails() -> Result<()> {
    let clouds = FakeCloudLogins::start().await?;
    let key = clouds.file("key", &service_account()?)?;
    let assertion = clouds.file("assertion", ASSERTION)?;
    let unread = clouds.file("unread", "s3cret")?;
    let address = clouds.address;
    let login = clouds.front.address();
    // The identity, its variables, the number of requests for a login, and a part of the expected error.
    type CloudLoginCase = (&'static str, EnvironmentVariables, usize, Option<&'static str>);
    let application = |tenant: &str, secret: &str| application(login, tenant, secret);
    let ways: [CloudLoginCase; 8] = [
        ("google", vec![("GCE_METADATA_HOST", address.to_string())], 1, None),
        ("google", vec![("GOOGLE_APPLICATION_CREDENTIALS", key)], 0, None),
        (
            "google",
            vec![("GOOGLE_APPLICATION_CREDENTIALS", unread)],
            0,
            Some("has neither a service account key"),
        ),
        ("azure", in_azure(login, ("AZURE_CLIENT_SECRET", SECRET)), 1, None),
        ("azure", in_azure(login, ("AZURE_FEDERATED_TOKEN_FILE", &assertion)), 1, None),
        ("application", application("t.example", SECRET), 1, None),
        ("application", application("t.example", WRONG), 1, Some("AADSTS7000215: Invalid client")),
        ("application", application("forever", SECRET), 1, Some("would never expire")),
    ];
    for (who, variables, requests, failure) in ways {
        let way = format!("{who} {:?}", variables.first());
        let (is_fine, said, asked) = clouds.run(who, &variables)?;
        let logins = asked.iter().filter(|asked| asked.ends_with("/token")).count();
        ensure!(logins == requests, "{way}: {asked:?} {said}");
        match failure {
            None => {
                ensure!(is_fine && asked.len() == requests + 2, "{way}: {said}");
            }
            Some(text) => {
                ensure!(!is_fine && said.contains(text), "{way}: {said}");
                ensure!(!said.contains("s3cret") && !said.contains("Trace ID"), "{way}: {said}");
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_gives_no_token_is_named_by_its_own_address() -> Result<()> {
    let clouds = FakeCloudLogins::start().await?;
    let assertion = clouds.file("assertion", ASSERTION)?;
    let closed_port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let plain = TcpRelay::start(clouds.address).await?;
    let over_tls = TcpRelay::start(clouds.front.address()).await?;
    for relay in [&plain, &over_tls] {
        relay.hold_after(0);
    }
    let mut wrong = Vec::new();
    for (metadata, login, timeout, expected) in [
        (closed_port, closed_port, "30", "Connection refused"),
        (plain.address(), over_tls.address(), "2", "did not respond within 2s"),
    ] {
        // If Google's metadata are not at the named place, the library tries the real address, which is not ours.
        let google = [("google", vec![("GCE_METADATA_HOST", metadata.to_string())], metadata)];
        let google = google.into_iter().filter(|_| metadata != closed_port);
        let others = [
            ("azure", in_azure(login, ("AZURE_CLIENT_SECRET", SECRET)), login),
            ("azure", in_azure(login, ("AZURE_FEDERATED_TOKEN_FILE", &assertion)), login),
            ("application", application(login, "t.example", SECRET), login),
        ];
        for (who, mut variables, place) in google.chain(others) {
            variables.push(("TEST_TIMEOUT", timeout.to_owned()));
            let (is_fine, said, _) = clouds.run(who, &variables)?;
            let message = said.lines().find_map(|line| line.split_once("told: "));
            let message = message.map_or("nothing", |(_, message)| message);
            let begins = format!("no credentials for {}", clouds.address);
            let is_right = message.starts_with(&begins)
                && message.contains(&place.to_string())
                && message.contains(expected);
            if is_fine || !is_right {
                wrong.push(format!("{who} at {place}: {message}"));
            }
            ensure!(!said.contains(SECRET) && !said.contains(ASSERTION), "{said}");
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
