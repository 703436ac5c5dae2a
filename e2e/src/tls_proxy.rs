//! Terminates TLS in front of a server without TLS, like a load balancer. It uses a private certificate authority, and can
//! require client certificates.
//!
//! Elsewhere: servers that speak TLS themselves (`git_server`, `servers`).

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::certificate_authority::TestCertificateAuthority;
use crate::git_server::{LOOPBACK, acceptor};

/// A listener on loopback. It ends when it is dropped.
#[derive(Debug)]
pub struct TlsProxyListener {
    address: SocketAddr,
    stop: AbortHandle,
}

impl Drop for TlsProxyListener {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl TlsProxyListener {
    /// Starts a listener on the current runtime. With `is_mutual`, it accepts only clients with a certificate of the authority.
    pub async fn start(
        server: SocketAddr,
        authority: &TestCertificateAuthority,
        is_mutual: bool,
    ) -> Result<Self> {
        Self::start_with(0, server, acceptor(authority, &LOOPBACK, is_mutual)?).await
    }

    /// Starts a listener on a given port.
    pub async fn start_on(
        port: u16,
        server: SocketAddr,
        authority: &TestCertificateAuthority,
    ) -> Result<Self> {
        Self::start_with(port, server, acceptor(authority, &LOOPBACK, false)?).await
    }

    /// Starts a listener whose certificate has other names than those of this machine.
    pub async fn start_as(
        server: SocketAddr,
        authority: &TestCertificateAuthority,
        names: &[&str],
    ) -> Result<Self> {
        Self::start_with(0, server, acceptor(authority, names, false)?).await
    }

    /// Starts a listener. If `port` is 0, it chooses a free port.
    async fn start_with(port: u16, server: SocketAddr, acceptor: TlsAcceptor) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.context("no port for TLS")?;
        let address = listener.local_addr()?;
        let accept = async move {
            while let Ok((client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                // A client that is not trusted, or that disconnects early, is not a failure of the server.
                tokio::spawn(async move {
                    let mut client = acceptor.accept(client).await?;
                    let mut server = TcpStream::connect(server).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        };
        let stop = tokio::spawn(accept).abort_handle();
        Ok(Self { address, stop })
    }

    /// The address on which the listener accepts connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
