//! HTTPS for the Git server.
//!
//! Here: a listener that completes the TLS handshake before it passes a connection on.
//! Elsewhere: certificates (`crate::certificate_authority`), requests (`super::http`).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificate_authority::TestCertificateAuthority;

/// The names of this machine.
pub(crate) const LOOPBACK: [&str; 2] = ["127.0.0.1", "localhost"];

/// Makes a TLS acceptor with a certificate for some names, issued by `authority`. With `is_mutual`, it accepts only clients
/// with a certificate of the same authority.
pub(crate) fn acceptor(
    authority: &TestCertificateAuthority,
    names: &[&str],
    is_mutual: bool,
) -> Result<TlsAcceptor> {
    let issued = authority.issue_server(names)?;
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes())
        .context("the certificate is damaged")?;
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).context("the key is damaged")?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let config = if is_mutual {
        let mut roots = RootCertStore::empty();
        let own = CertificateDer::from_pem_slice(authority.certificate().as_bytes())?;
        roots.add(own)?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        config.with_client_cert_verifier(verifier)
    } else {
        config.with_no_client_auth()
    };
    let config = config.with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts TLS connections. Clients that cannot agree on TLS are dropped, as every server does.
pub(super) struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: io::Result<SocketAddr>,
}

impl TlsListener {
    /// Starts to accept connections on the current runtime.
    pub(super) fn new(listener: TcpListener, acceptor: TlsAcceptor) -> Self {
        let address = listener.local_addr();
        let (send, ready) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let send = send.clone();
                // A client that never finishes its handshake must not delay the others.
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        send.send((stream, peer)).await.ok();
                    }
                });
            }
        });
        Self { ready, address }
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The socket is closed, so no further connection can arrive.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        match &self.address {
            Ok(address) => Ok(*address),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }
}
