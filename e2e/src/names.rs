//! A server of a story under names of the internet: TLS with those names, and a proxy that leads every client to it.
//!
//! For programs that know the addresses of clouds and have no setting for others. Elsewhere: both parts (`tls_front`, `proxy`).

use std::net::SocketAddr;

use anyhow::Result;
use tempfile::TempDir;

use crate::authority::Authority;
use crate::proxy::Proxy;
use crate::tls_front::TlsFront;

/// The names of a server. They end when dropped.
#[derive(Debug)]
pub struct Names {
    through: String,
    trusted: String,
    _front: TlsFront,
    _proxy: Proxy,
    _folder: TempDir,
}

impl Names {
    /// Gives a server names, on the current runtime.
    pub async fn give(server: SocketAddr, names: &[&str]) -> Result<Self> {
        let authority = Authority::generate()?;
        let front = TlsFront::start_as(server, &authority, names).await?;
        let place = front.address().to_string();
        let proxy = Proxy::start_to("me", "me", move |_| place.clone()).await?;
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
