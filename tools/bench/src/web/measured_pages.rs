//! The measured program: `windlass serve --web-only`, an issuer of logins, and the browsers of users who logged in.
//!
//! Each user has an own token, and so own watches and rows in windlass. `e2e::multi_user_web_pages` has the issuer and the flags,
//! and `super` has the order of the measurement.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use e2e::cluster_with_operator::{BuildProfile, program};
use e2e::control_plane::{ApiServerOidcIssuer, ControlPlane, free_ports};
use e2e::multi_user_web_pages::{BrowserCookies, MultiUserWebPagesSettings, OidcLoginIssuer};
use e2e::operator_process::OperatorProcess;
use e2e::process_usage;
use reqwest::header::COOKIE;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use tempfile::TempDir;

/// How long the process may take until it responds, and the API server until it trusts the issuer.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// How long a page may take. windlass itself gives up after a minute.
const PAGE_TIMEOUT: Duration = Duration::from_secs(90);

/// How long the token of a user is valid, in seconds. That is longer than any measurement.
const TOKEN_SECONDS: i64 = 8 * 3600;

/// The time after which the memory of the process is read. The allocator returns memory some seconds after it was freed.
const REST_PERIOD: Duration = Duration::from_secs(5);

/// How many lines of the log an error shows, and how many characters of a page.
const LOG_LINES: usize = 25;
const SHOWN_CHARACTERS: usize = 300;

/// How many readers the process may have while the API server does not trust the issuer yet. Each attempt is a new session
/// with a reader of its own, and windlass ends the oldest of more than four of one user.
const READERS_OF_ATTEMPTS: u16 = 8;

/// The group of all users at the API server.
pub(super) const GROUP: &str = "oidc:developers";

/// The name of a user at the issuer. The first user has the index 0.
pub(super) fn user_name(at: u16) -> String {
    format!("user{at:04}")
}

/// The issuer that the API server trusts, and the key of sessions.
pub(super) struct LoginSetup {
    issuer: Arc<OidcLoginIssuer>,
    trusted: ApiServerOidcIssuer,
    folder: TempDir,
}

impl LoginSetup {
    /// Starts the issuer.
    ///
    /// # Errors
    /// The issuer does not start.
    pub(super) async fn start(plane: &ControlPlane) -> anyhow::Result<Self> {
        let (issuer, address) = OidcLoginIssuer::start().await?;
        let trusted = plane.trusted_issuer(address).await?;
        issuer.set_url(&trusted.url);
        let setup = Self { issuer, trusted, folder: tempfile::tempdir()? };
        std::fs::write(setup.session_key(), "a key of thirty-two bytes or more")?;
        Ok(setup)
    }

    fn session_key(&self) -> PathBuf {
        self.folder.path().join("session-key")
    }

    /// Waits until the API server accepts the tokens of the issuer. The process for this is not measured.
    ///
    /// # Errors
    /// The API server does not accept them in time.
    pub(super) async fn await_trust(&self, kubeconfig: &Path) -> anyhow::Result<()> {
        let pages = MeasuredPages::start(self, kubeconfig, READERS_OF_ATTEMPTS).await?;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let browser = pages.log_in(self, &user_name(0)).await?;
            match pages.get("/objects", &browser).await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(pages.explain(&error)),
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }
}

/// A page that a browser has received.
#[derive(Debug)]
pub(super) struct ReceivedPage {
    /// The time until the headers of the response came. windlass sends them when the page is complete.
    pub(super) first_byte: Duration,
    pub(super) text: String,
}

/// A running process that serves pages.
pub(super) struct MeasuredPages {
    process: OperatorProcess,
    /// The address of the pages, without a path.
    pub(super) address: String,
    http: Client,
}

impl MeasuredPages {
    /// Starts the process for a number of users, and waits until it responds.
    ///
    /// # Errors
    /// The process ends, or does not respond in time.
    pub(super) async fn start(
        setup: &LoginSetup,
        kubeconfig: &Path,
        users: u16,
    ) -> anyhow::Result<Self> {
        let [port] = free_ports()?;
        let host = format!("127.0.0.1:{port}");
        let settings = MultiUserWebPagesSettings {
            port,
            host: &host,
            issuer: &setup.trusted,
            session_key: &setup.session_key(),
            kubeconfig,
        };
        let mut arguments = settings.arguments();
        arguments.push(format!("--web-max-users={users}"));
        let process = OperatorProcess::start_with(program(BuildProfile::Release)?, arguments, &[])?;
        let http = Client::builder().redirect(Policy::none()).no_proxy().timeout(PAGE_TIMEOUT);
        let address = format!("http://{host}");
        let mut pages = Self { process, address, http: http.build()? };
        let deadline = Instant::now() + START_LIMIT;
        while pages.send("/", &BrowserCookies::default()).await.is_err() {
            let is_running = pages.process.is_running()?;
            if !is_running || Instant::now() > deadline {
                return Err(pages.explain(&anyhow!("the pages are not served")));
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        Ok(pages)
    }

    /// Adds the end of the log of windlass to an error.
    pub(super) fn explain(&self, error: &anyhow::Error) -> anyhow::Error {
        anyhow!("{error:#}\n\nthe log of windlass ends:\n{}", self.process.tail(LOG_LINES))
    }

    /// The id of the process.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) fn id(&self) -> anyhow::Result<u32> {
        self.process.id().context("the pages are not served any more")
    }

    /// The memory of the process without files, in MiB, after a pause.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) async fn settled_mebibytes(&self) -> anyhow::Result<f64> {
        tokio::time::sleep(REST_PERIOD).await;
        process_usage::anonymous_mebibytes(self.id()?)
    }

    /// Logs a user in with a new browser.
    ///
    /// # Errors
    /// The login fails.
    pub(super) async fn log_in(
        &self,
        setup: &LoginSetup,
        user: &str,
    ) -> anyhow::Result<BrowserCookies> {
        let mut browser = BrowserCookies::default();
        let begun = self.send("/login?return=%2Fobjects", &browser).await?;
        browser.keep(&begun)?;
        let callback = setup.issuer.agree(&begun.text().await?, user, TOKEN_SECONDS)?;
        let ended = self.send(&callback, &browser).await?;
        let status = ended.status();
        browser.keep(&ended)?;
        ensure!(status == StatusCode::SEE_OTHER, "login: {status}: {}", ended.text().await?);
        Ok(browser)
    }

    /// Reads a page.
    ///
    /// # Errors
    /// windlass does not respond, or the response is not a page.
    pub(super) async fn get(
        &self,
        path: &str,
        browser: &BrowserCookies,
    ) -> anyhow::Result<ReceivedPage> {
        let begun = Instant::now();
        let reply = self.send(path, browser).await?;
        let first_byte = begun.elapsed();
        let status = reply.status();
        let text = reply.text().await.with_context(|| format!("GET {path}"))?;
        let shown: String = text.chars().take(SHOWN_CHARACTERS).collect();
        ensure!(status == StatusCode::OK, "GET {path}: {status}: {shown}");
        Ok(ReceivedPage { first_byte, text })
    }

    async fn send(&self, path: &str, browser: &BrowserCookies) -> anyhow::Result<Response> {
        let request = self.http.get(format!("{}{path}", self.address));
        let reply = request.header(COOKIE, browser.line()).send().await;
        reply.with_context(|| format!("GET {path}"))
    }
}
