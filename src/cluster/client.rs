//! Our own client stack: HTTP/2, a time limit on every request with an answer, few and short retries.
//!
//! kube's own stack speaks HTTP/1.1 only, waits for ever and retries fifteen times (kube-client 5.0).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use super::{Cluster, discovery};
use crate::metrics::Metrics;

/// Longest time that a request with an answer may take.
const UNARY_TIMEOUT: Duration = Duration::from_secs(40);

/// How often an idle HTTP/2 connection is asked whether it still lives.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Connects to the cluster that a kubeconfig, the environment or the Pod names. Sends nothing yet.
///
/// # Errors
/// Says which configuration cannot be used.
pub(crate) async fn connect(
    kubeconfig: Option<&Path>,
    metrics: &Metrics,
) -> anyhow::Result<Cluster> {
    let config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)
                .map_err(|e| anyhow::anyhow!("kubeconfig {}: {e}", path.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
        }
        None => Config::infer().await.map_err(|e| {
            anyhow::anyhow!("no cluster to connect to ({e}): give --kubeconfig or set $KUBECONFIG")
        })?,
    };
    let instance = std::env::var("HOSTNAME").unwrap_or_else(|_| "windlass".to_owned());
    let unary = stack(&config, Some(UNARY_TIMEOUT), metrics)?;
    let watching = stack(&config, None, metrics)?;
    let discovery = Arc::new(discovery::Discovery::default());
    Ok(Cluster { unary, watching, discovery, instance: instance.into() })
}

fn stack(config: &Config, timeout: Option<Duration>, metrics: &Metrics) -> anyhow::Result<Client> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(config.connect_timeout.unwrap_or(Duration::from_secs(15))));
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(http);
    let hyper = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .timer(hyper_util::rt::TokioTimer::new())
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_adaptive_window(true)
        .build::<_, Body>(https);
    let requests = metrics.api_requests.clone();
    let service = ServiceBuilder::new()
        .map_request(move |request: http::Request<Body>| {
            requests.count(request.method(), request.uri());
            request
        })
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(hyper);
    let client = match timeout {
        Some(limit) => Client::new(
            ServiceBuilder::new().timeout(limit).service(service),
            config.default_namespace.clone(),
        ),
        None => Client::new(service, config.default_namespace.clone()),
    };
    Ok(client)
}

impl Cluster {
    /// Waits until the API server answers, so that a start before it is not a failure.
    ///
    /// # Errors
    /// The last answer, when `limit` has passed.
    pub(crate) async fn await_answer(&self, limit: Duration) -> anyhow::Result<String> {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            match self.unary.apiserver_version().await {
                Ok(version) => return Ok(version.git_version),
                Err(error) if tokio::time::Instant::now() >= deadline => {
                    anyhow::bail!(
                        "the API server does not answer: {}",
                        super::error::chain(&error)
                    );
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
            }
        }
    }
}
