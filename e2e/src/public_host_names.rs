//! Gives a server of a story host names of the internet. A TLS proxy has these names, and an HTTP proxy leads every client to
//! it.
//!
//! Programs that know the addresses of clouds and have no setting for them need this. Elsewhere: both parts (`tls_proxy`,
//! `forward_proxy`).

use std::net::SocketAddr;

use anyhow::Result;
use tempfile::TempDir;

use crate::certificate_authority::TestCertificateAuthority;
use crate::forward_proxy::TestForwardProxy;
use crate::tls_proxy::TlsProxyListener;

/// The host names of a server. They end when this is dropped.
#[derive(Debug)]
pub struct PublicHostNames {
    through: String,
    trusted: String,
    _front: TlsProxyListener,
    _proxy: TestForwardProxy,
    _folder: TempDir,
}

impl PublicHostNames {
    /// Gives host names to a server, on the current runtime.
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

    /// The environment variables of a program that uses and trusts these host names.
    pub fn environment(&self) -> [(&str, &str); 3] {
        [
            ("HTTPS_PROXY", &self.through),
            ("NO_PROXY", "127.0.0.1,localhost"),
            ("SSL_CERT_FILE", &self.trusted),
        ]
    }
}
