//! A server of a story under names of the internet: TLS with those names, and a proxy that leads every client to it.
//!
//! For programs that know the addresses of clouds and have no setting for others. Elsewhere: both parts (`tls_proxy`,
//! `forward_proxy`).

use std::net::SocketAddr;

use anyhow::Result;
use tempfile::TempDir;

use crate::certificate_authority::TestCertificateAuthority;
use crate::forward_proxy::TestForwardProxy;
use crate::tls_proxy::TlsProxyListener;

/// The names of a server. They end when dropped.
#[derive(Debug)]
pub struct ServerHostNames {
    through: String,
    trusted: String,
    _front: TlsProxyListener,
    _proxy: TestForwardProxy,
    _folder: TempDir,
}

impl ServerHostNames {
    /// Gives a server names, on the current runtime.
    pub async fn give(server: SocketAddr, names: &[&str]) -> Result<Self> {
        let authority = TestCertificateAuthority::generate()?;
        let front = TlsProxyListener::start_as(server, &authority, names).await?;
        let place = front.address().to_string();
        let proxy = TestForwardProxy::start_to("me", "me", move |_| place.clone()).await?;
        let folder = tempfile::tempdir()?;
        let trusted = folder.path().join("ca");
        std::fs::write(&trusted, authority.certificate())?;
        let through = proxy.url().replace("http://", "http://me:me@");
        let trusted = trusted.display().to_string();
        Ok(Self { through, trusted, _front: front, _proxy: proxy, _folder: folder })
    }

    /// The environment of a program that is to use and trust them.
    pub fn environment(&self) -> [(&str, &str); 3] {
        [
            ("HTTPS_PROXY", &self.through),
            ("NO_PROXY", "127.0.0.1,localhost"),
            ("SSL_CERT_FILE", &self.trusted),
        ]
    }
}
