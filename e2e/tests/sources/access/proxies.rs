//! Kinds with `spec.proxySecretRef`, through proxies for HTTP and SOCKS 5.
//!
//! The SOCKS proxy is another project's program (`e2e::servers::socks`), and the HTTP proxy is our own (`e2e::forward_proxy`).

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use e2e::forward_proxy::TestForwardProxy;
use e2e::servers::socks::SocksProxyServer;
use e2e::tcp_relay::TcpRelay;
use serde_json::json;

use super::{
    SourceAccessCase, SourceAccessFailure, SourceAccessKind, SourceAccessProxies, USER, WRONG,
    closed_port, plain, silent, tls,
};

const FIELD: &str = "proxySecretRef";

/// The password contains all characters with a meaning in URLs, although it is never part of a URL.
const PASSWORD: &str = "s3cret:p@ss/%2Fw?rd";

/// A proxy for HTTP, two for SOCKS, and relays in front of each that never answer.
pub(super) struct TestProxies {
    http: TestForwardProxy,
    stalled_http: TcpRelay,
    /// The SOCKS proxy without authentication.
    open: SocksProxyServer,
    closed: SocksProxyServer,
    stalled: TcpRelay,
}

impl TestProxies {
    pub(super) async fn start() -> Result<Self> {
        let http = TestForwardProxy::start(USER, PASSWORD).await?;
        let address = http.url();
        let address = address.strip_prefix("http://").context("it speaks HTTP")?.parse()?;
        let open = SocksProxyServer::start(None).await?;
        Ok(Self {
            stalled_http: silent(address).await?,
            http,
            stalled: silent(open.address()).await?,
            open,
            closed: SocksProxyServer::start(Some((USER, PASSWORD))).await?,
        })
    }

    pub(super) fn cells(
        &self,
        subject: &SourceAccessKind,
        server: SocketAddr,
        ways: &SourceAccessProxies,
    ) -> Result<Vec<SourceAccessCase>> {
        let mut cells = self.by_http(subject, server, ways)?;
        cells.extend(self.by_socks(subject, server, ways)?);
        Ok(cells)
    }

    fn by_http(
        &self,
        subject: &SourceAccessKind,
        server: SocketAddr,
        ways: &SourceAccessProxies,
    ) -> Result<Vec<SourceAccessCase>> {
        let SourceAccessKind { certificates, failures, .. } = subject;
        let way = |address: String, password: &str| json!({"address": address, "username": USER, "password": password});
        let right = way(self.http.url(), PASSWORD);
        let wrong = way(self.http.url(), WRONG);
        let closed = way(format!("http://{}", closed_port()?), PASSWORD);
        let silent = way(format!("http://{}", self.stalled_http.address()), PASSWORD);
        let ca = json!({"ca.crt": ways.authority.certificate()});
        let over_tls = tls("proxy-tls-works", ways.tls.address());
        Ok(vec![
            plain("proxy-works", server).with(FIELD, right.clone()),
            over_tls.with(certificates, ca).with(FIELD, right),
            plain("proxy-wrong", server).with(FIELD, wrong).fails(failures.proxy_refuses),
            plain("proxy-unreachable", server)
                .with(FIELD, closed)
                .fails(failures.proxy_unreachable),
            plain("proxy-stalled", server).with(FIELD, silent).fails(failures.stalled),
        ])
    }

    fn by_socks(
        &self,
        subject: &SourceAccessKind,
        server: SocketAddr,
        ways: &SourceAccessProxies,
    ) -> Result<Vec<SourceAccessCase>> {
        let SourceAccessKind { certificates, failures, .. } = subject;
        let at = |address: SocketAddr| json!({"address": format!("socks5://{address}")});
        let with = |password: &str| {
            let address = format!("socks5://{}", self.closed.address());
            json!({"address": address, "username": USER, "password": password})
        };
        let ca = json!({"ca.crt": ways.authority.certificate()});
        let over_tls = tls("socks-tls-works", ways.tls.address());
        // If a SOCKS proxy rejects the request, the reason is that of an HTTP proxy, but the message differs.
        let refuses = |says| SourceAccessFailure { reason: failures.proxy_refuses.reason, says };
        let unreachable = SourceAccessFailure {
            reason: failures.proxy_unreachable.reason,
            says: "cannot connect to the SOCKS proxy",
        };
        let name = format!("only-the-proxy-knows.test:{}", server.port());
        Ok(vec![
            plain("socks-works", server).with(FIELD, at(self.open.address())),
            plain("socks-name-works", name).with(FIELD, at(self.open.address())),
            plain("socks-password-works", server).with(FIELD, with(PASSWORD)),
            over_tls.with(certificates, ca).with(FIELD, with(PASSWORD)),
            plain("socks-wrong", server)
                .with(FIELD, with(WRONG))
                .fails(refuses("authentication failed at")),
            plain("socks-missing", server)
                .with(FIELD, at(self.closed.address()))
                .fails(refuses("requires another authentication method")),
            plain("socks-unreachable", server).with(FIELD, at(closed_port()?)).fails(unreachable),
            plain("socks-stalled", server)
                .with(FIELD, at(self.stalled.address()))
                .fails(failures.stalled),
        ])
    }

    /// Checks that every object that became Ready with a proxy used it, and that the proxy resolved the names.
    pub(super) fn ensure_used(&self, server: SocketAddr, ways: &SourceAccessProxies) -> Result<()> {
        let open = self.open.passed()?;
        let closed = self.closed.passed()?;
        let name = format!("only-the-proxy-knows.test:{}", server.port());
        for place in [server.to_string(), name] {
            ensure!(open.contains(&place), "{place} is not in {open:?}");
        }
        for place in [server, ways.tls.address()].map(|it| it.to_string()) {
            ensure!(closed.contains(&place), "{place} is not in {closed:?}");
        }
        ensure!(!self.http.passed().is_empty(), "no request passed the proxy for HTTP");
        Ok(())
    }
}
