//! The web pages of `windlass serve`. They run on their own thread beside the operator, so neither has to wait for the other.
//! They can also run without the operator.
//!
//! Elsewhere: their flags (`windlass_serve::settings`), pages and logins (`windlass-web`).

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use objects::RedactedValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use windlass_cluster::client::{ClusterAccessOptions, connect};
use windlass_cluster::leadership::Leadership;
use windlass_cluster::metrics::MetricsRegistry;
use windlass_http_server::{self as http_server, HttpListener, ServerReadiness};
use windlass_runtime::egress_policy;
use windlass_serve::settings::{OperatorSettings, WebPageFlags};
use windlass_web::{LoginOptions, MultiUserWebServer};

use super::STOP_LIMIT;

/// The stack of the thread. It is as large as that of the main thread.
const STACK_BYTES: usize = 8 << 20;

/// The running thread of the web pages.
pub(super) struct PagesThread(oneshot::Receiver<anyhow::Result<()>>);

/// Starts the web pages if the flags ask for them, and serves until `stop`. Each user reads with an own token, so a process
/// that does not lead can serve pages, too.
///
/// # Errors
/// The address is in use, or a flag or a file that a flag names cannot be used.
pub(super) async fn start(
    settings: &OperatorSettings,
    metrics: &Arc<MetricsRegistry>,
    stop: &CancellationToken,
) -> anyhow::Result<Option<PagesThread>> {
    let flags = &settings.web_pages;
    let Some(address) = flags.web_addr else { return Ok(None) };
    let max_users = usize::from(flags.web_max_users);
    let server = MultiUserWebServer::bind(address, login_options(flags)?, max_users).await?;
    let settings = settings.clone();
    let identity = settings.identity();
    let metrics = metrics.clone();
    let stop = stop.clone();
    let (done, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("pages".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || {
        let work = async {
            let access = ClusterAccessOptions {
                kubeconfig: settings.kubeconfig.as_deref(),
                ..ClusterAccessOptions::default()
            };
            // It provides the address of the API server. The only requests over it read the Secrets of sources for plans of
            // branches, for users who may not read them.
            let cluster = connect(access, &identity, &Leadership::unlimited(), &metrics).await?;
            let egress = egress_policy::rules_of_pages(&settings).await;
            server.serve(cluster, egress, metrics.clone(), stop).await;
            anyhow::Ok(())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let worked = runtime.map_err(anyhow::Error::new).and_then(|runtime| runtime.block_on(work));
        if let Err(error) = &worked {
            tracing::error!(error = format!("{error:#}"), "pages are not served any more");
        }
        drop(done.send(worked));
    })?;
    Ok(Some(PagesThread(ended)))
}

/// Waits until the web pages have ended.
///
/// # Errors
/// The error of the web pages.
pub(super) async fn end_of(pages: Option<PagesThread>) -> anyhow::Result<()> {
    match pages {
        Some(PagesThread(ended)) => ended.await.context("the thread of pages panicked")?,
        None => Ok(()),
    }
}

/// Serves only web pages until `stop`, without the operator.
///
/// # Errors
/// An address is in use, a flag cannot be used, or no cluster is configured.
pub(super) async fn serve_alone(
    settings: &OperatorSettings,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let metrics = MetricsRegistry::new();
    let health_at = HttpListener::bind("health", settings.health_addr).await?;
    let metrics_at = HttpListener::bind("metrics", settings.metrics_addr).await?;
    let pages = start(settings, &metrics, &stop).await?;
    let readiness = ServerReadiness::default();
    readiness.ready();
    let health = http_server::health(readiness);
    let beside = [
        tokio::spawn(health_at.serve(health, stop.clone())),
        tokio::spawn(metrics_at.serve(http_server::metrics(metrics), stop.clone())),
    ];
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "windlass serves pages only");
    let limit = async {
        stop.cancelled().await;
        tokio::time::sleep(STOP_LIMIT).await;
    };
    tokio::select! {
        ended = end_of(pages) => ended?,
        () = limit => tracing::info!("shutdown timeout reached; pages that are being made are given up"),
    }
    stop.cancel();
    for server in beside {
        server.abort();
    }
    tracing::info!("windlass stopped");
    Ok(())
}

fn login_options(flags: &WebPageFlags) -> anyhow::Result<LoginOptions> {
    let secret =
        content("--web-oidc-client-secret-file", flags.web_oidc_client_secret_file.as_deref())?;
    let secret = secret.map(|bytes| {
        let text =
            String::from_utf8(bytes).context("--web-oidc-client-secret-file is not UTF-8")?;
        anyhow::Ok(RedactedValue::new(text.trim().to_owned()))
    });
    let session_key = content("--web-session-key-file", flags.web_session_key_file.as_deref())?;
    if session_key.is_none() {
        tracing::info!(
            "without --web-session-key-file, logins end with this process, and other replicas do not know them"
        );
    }
    Ok(LoginOptions {
        base_url: flags.web_url.clone().unwrap_or_default(),
        issuer: flags.web_oidc_issuer_url.clone().unwrap_or_default(),
        client_id: flags.web_oidc_client_id.clone().unwrap_or_default(),
        client_secret: secret.transpose()?,
        authorities: content("--web-oidc-ca-file", flags.web_oidc_ca_file.as_deref())?,
        scopes: flags.web_oidc_scopes.iter().filter(|it| !it.is_empty()).cloned().collect(),
        session_key: session_key.map(RedactedValue::new),
    })
}

/// The content of a file, if a flag names one.
fn content(flag: &str, path: Option<&Path>) -> anyhow::Result<Option<Vec<u8>>> {
    let read = path.map(|path| {
        std::fs::read(path).with_context(|| format!("{flag}: {} cannot be read", path.display()))
    });
    read.transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_logins_come_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let secret = file("secret", "hunter2\n");
        let key = file("key", &"k".repeat(32));
        let flags = |more: &[&str]| {
            let always = [
                "--web-addr=:0",
                "--web-url=https://windlass.example",
                "--web-oidc-issuer-url=https://issuer.example",
                "--web-oidc-client-id=windlass",
            ];
            let flags = [always.as_slice(), more].concat();
            OperatorSettings::from_flags(&flags).unwrap().web_pages
        };
        let named = [
            format!("--web-oidc-client-secret-file={secret}"),
            format!("--web-session-key-file={key}"),
        ];
        let options = login_options(&flags(&named.each_ref().map(String::as_str))).unwrap();
        assert_eq!(options.client_secret.as_ref().unwrap().expose(), "hunter2");
        assert_eq!(options.session_key.as_ref().unwrap().expose().len(), 32);
        assert_eq!(options.scopes, ["email", "groups"]);
        assert!(!format!("{options:?}").contains("hunter2"));
        let missing = login_options(&flags(&["--web-oidc-ca-file=/none/ca.crt"])).unwrap_err();
        assert_eq!(missing.to_string(), "--web-oidc-ca-file: /none/ca.crt cannot be read");
        assert!(OperatorSettings::from_flags(&["--web-only"]).is_err());
        assert!(OperatorSettings::from_flags(&["--web-addr=:8080"]).is_err());
    }
}
