//! The connections of the proxy: from clients, and to the API server.
//!
//! Elsewhere: the decision about one request (`super::api_request_gate`).

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, Uri, header, uri};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use kube::Config;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::api_request_gate::{ApiRequestGate, exchange};
use crate::certificate_authority::TestCertificateAuthority;

/// Headers that apply to one connection only, and must not be forwarded to the next one.
const HOP_BY_HOP: [header::HeaderName; 4] =
    [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE];

/// Makes a TLS acceptor with a certificate for loopback. It agrees on HTTP/2 if the client supports that.
pub(super) fn acceptor(authority: &TestCertificateAuthority) -> Result<TlsAcceptor> {
    let issued = authority.issue_server(&["127.0.0.1", "localhost"])?;
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes())
        .context("the certificate is damaged")?;
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).context("the key is damaged")?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections until this future is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    gate: Arc<ApiRequestGate>,
    upstream: ProxiedApiServerClient,
) {
    let router = Router::new().fallback(exchange).with_state((gate.clone(), upstream));
    while let Ok((stream, _)) = listener.accept().await {
        // The fault says that the API server is unreachable, so the proxy closes the connection at once.
        if gate.is_gone() {
            continue;
        }
        let connection = one_connection(stream, acceptor.clone(), router.clone());
        let ended = gate.next_end_of_connections();
        tokio::spawn(async move {
            tokio::select! { () = connection => {} () = ended => {} }
        });
    }
}

async fn one_connection(stream: TcpStream, acceptor: TlsAcceptor, router: Router) {
    stream.set_nodelay(true).ok();
    // A client that cannot agree on TLS is dropped, as every server does.
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let server = auto::Builder::new(TokioExecutor::new());
    // The way in which a connection ends matters only to the side that ended it.
    server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await.ok();
}

type HttpsClient = legacy::Client<hyper_rustls::HttpsConnector<HttpConnector>, Body>;

/// The client of the real API server.
#[derive(Clone)]
pub(super) struct ProxiedApiServerClient {
    address: Uri,
    answering: HttpsClient,
    /// Watches have their own connections, so they do not use up the streams of the other connection.
    watching: HttpsClient,
}

impl ProxiedApiServerClient {
    /// Makes a client for the server of a kubeconfig.
    pub(super) async fn of(kubeconfig: &Path) -> Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("cannot read the kubeconfig {}", kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Self {
            address: config.cluster_url.clone(),
            answering: client(&config)?,
            watching: client(&config)?,
        })
    }

    /// Forwards a request. Returns the answer before its body is complete.
    pub(super) async fn forward(
        &self,
        request: Request<Body>,
        is_watch: bool,
    ) -> Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        let mut target = uri::Parts::from(parts.uri);
        target.scheme = self.address.scheme().cloned();
        target.authority = self.address.authority().cloned();
        parts.uri = Uri::from_parts(target).context("not a URI")?;
        parts.version = axum::http::Version::HTTP_2;
        for name in HOP_BY_HOP {
            parts.headers.remove(name);
        }
        let client = if is_watch { &self.watching } else { &self.answering };
        let mut answer = client.request(Request::from_parts(parts, body)).await?;
        *answer.version_mut() = axum::http::Version::default();
        Ok(answer.map(Body::new))
    }
}

fn client(config: &Config) -> Result<HttpsClient> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http()
        .enable_http2()
        .wrap_connector(http);
    Ok(legacy::Client::builder(TokioExecutor::new()).http2_only(true).build(https))
}
