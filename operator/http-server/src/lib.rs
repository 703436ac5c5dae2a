//! The HTTP servers of the operator: artifacts and events, health, and metrics. Each has the address that Flux uses for it.
//!
//! Here: listening ([`HttpListener`]) and the operator's own endpoints. Below: connections (`connections`), and request bodies
//! ([`request_bodies`]). Elsewhere: events and metrics (crate `windlass-cluster`), and webhooks
//! (`notification_controller::receiver`).

mod artifacts;
mod connections;
mod event_posts;
pub mod request_bodies;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::connections::ConnectionLimits;
use windlass_cluster::metrics::MetricsRegistry;

/// Whether the caches are filled and runs have begun, for `/readyz`.
#[derive(Clone, Default)]
pub struct ServerReadiness(Arc<ServerState>);

#[derive(Debug, Default)]
struct ServerState {
    is_up: AtomicBool,
    /// The controller that works on the same objects, if there is one.
    excluded: Mutex<Option<String>>,
}

impl ServerReadiness {
    /// Makes `/readyz` succeed from now on.
    pub fn ready(&self) {
        self.0.is_up.store(true, Ordering::Release);
    }

    /// Makes `/readyz` fail with the name of the controller `by`, which works on the same objects. `None` ends that.
    pub fn exclude(&self, by: Option<String>) {
        *self.0.excluded.lock() = by;
    }

    fn answer(&self) -> (StatusCode, String) {
        if let Some(by) = &*self.0.excluded.lock() {
            let text = format!("not acting beside a controller of Flux: {by}\n");
            return (StatusCode::SERVICE_UNAVAILABLE, text);
        }
        match self.0.is_up.load(Ordering::Acquire) {
            true => (StatusCode::OK, "ok".to_owned()),
            false => (StatusCode::SERVICE_UNAVAILABLE, "starting".to_owned()),
        }
    }
}

/// How long the start waits for an address that the earlier process still uses.
const ADDRESS_IN_USE_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before another attempt to listen on an address.
const BIND_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A bound listener with its name. The program binds all addresses first, so that an occupied port ends the start.
pub struct HttpListener {
    name: &'static str,
    socket: TcpListener,
    /// The address on which it listens, with the chosen port.
    pub address: SocketAddr,
}

impl HttpListener {
    /// Listens on an address, once an earlier process releases it.
    ///
    /// # Errors
    /// Names the address and its purpose.
    pub async fn bind(name: &'static str, address: SocketAddr) -> anyhow::Result<Self> {
        let socket = bound(address, ADDRESS_IN_USE_TIMEOUT)
            .await
            .map_err(|e| anyhow::anyhow!("cannot listen on {address} for {name}: {e}"))?;
        let address = socket.local_addr()?;
        tracing::info!(addr = %address, serves = name, "listening");
        Ok(Self { name, socket, address })
    }

    /// Serves requests until `stop`, for clients behind a proxy, which all have its address.
    pub async fn serve_behind_proxy(self, router: Router, stop: CancellationToken) {
        let limits = ConnectionLimits::behind_proxy();
        connections::serve(self.name, self.socket, router, limits, stop).await;
    }

    /// Serves HTTP requests with this router until `stop`.
    pub async fn serve(self, router: Router, stop: CancellationToken) {
        connections::serve(self.name, self.socket, router, ConnectionLimits::default(), stop).await;
    }
}

/// Binds a socket to an address, and retries for at most `limit` while the address is in use.
async fn bound(address: SocketAddr, limit: Duration) -> std::io::Result<TcpListener> {
    let deadline = Instant::now() + limit;
    let mut is_logged = false;
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                if !is_logged {
                    tracing::info!(addr = %address, "address is in use, waiting until it is free");
                }
                is_logged = true;
                tokio::time::sleep(BIND_RETRY_DELAY).await;
            }
            ended => return ended,
        }
    }
}

/// A router for health checks. `/healthz` succeeds if the process answers. `/readyz` succeeds if it also does its work, or
/// would if it led.
pub fn health(readiness: ServerReadiness) -> Router {
    let ready = move || {
        let answer = readiness.answer();
        async move { answer }
    };
    Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(ready))
}

/// A router for `/metrics` in the OpenMetrics text format.
pub fn metrics(metrics: Arc<MetricsRegistry>) -> Router {
    let text = move || {
        let text = metrics.text();
        async move {
            ([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
        }
    };
    Router::new().route("/metrics", get(text))
}

pub use self::artifacts::artifacts;
pub use event_posts::events;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_restart_waits_for_the_address_of_the_process_before_it() {
        let before = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = before.local_addr().unwrap();
        let error = bound(address, Duration::ZERO).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let (waits, ends) = tokio::join!(bound(address, ADDRESS_IN_USE_TIMEOUT), async {
            tokio::time::sleep(BIND_RETRY_DELAY).await;
            drop(before);
        });
        let () = ends;
        assert_eq!(waits.unwrap().local_addr().unwrap(), address);
    }
}
