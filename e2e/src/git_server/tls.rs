//! HTTPS for the Git server.
//!
//! Here: a listener that shakes hands before it hands a connection on.
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

/// Names of this machine.
pub(crate) const LOOPBACK: [&str; 2] = ["127.0.0.1", "localhost"];

/// Shakes hands with a certificate for some names, issued by `authority`; with `is_mutual` only clients with a
/// certificate of the same authority are accepted.
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

/// Accepts TLS connections; those that cannot agree on TLS are dropped, as any server does.
pub(super) struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: io::Result<SocketAddr>,
}

impl TlsListener {
    /// Begins to accept, on the current runtime.
    pub(super) fn new(listener: TcpListener, acceptor: TlsAcceptor) -> Self {
        let address = listener.local_addr();
        let (send, ready) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let send = send.clone();
                // A peer that never finishes its handshake must not hold up the others.
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
            // The socket is gone; there is nothing more to accept.
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
