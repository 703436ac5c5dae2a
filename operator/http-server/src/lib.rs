//! HTTP: artifacts and events, health, metrics, each on the address that Flux uses for it.
//!
//! Here: listening ([`HttpListener`]) and what the operator itself serves; connections (`connections`), the bodies of requests
//! ([`request_bodies`]). Elsewhere: the events and metrics themselves (crate `windlass-cluster`), webhooks
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

/// Whether the caches are filled and runs have begun.
#[derive(Clone, Default)]
pub struct ServerReadiness(Arc<ServerState>);

#[derive(Debug, Default)]
struct ServerState {
    is_up: AtomicBool,
    /// What else works on the same objects.
    excluded: Mutex<Option<String>>,
}

impl ServerReadiness {
    /// From now on `/readyz` says yes.
    pub fn ready(&self) {
        self.0.is_up.store(true, Ordering::Release);
    }

    /// Makes `/readyz` fail and name `by`, which works on the same objects, until it is called with `None`.
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

/// How long an address may be in use at the start: by the process before this one, which ends what is under way.
const ADDRESS_IN_USE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause before an address is tried again.
const BIND_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A bound listener and what it serves; binding comes first so that a port in use ends the start.
pub struct HttpListener {
    name: &'static str,
    socket: TcpListener,
    /// Where it listens, with the port that was chosen.
    pub address: SocketAddr,
}

impl HttpListener {
    /// Listens on an address, as soon as the process that has it releases it.
    ///
    /// # Errors
    /// Names the address and what it was wanted for.
    pub async fn bind(name: &'static str, address: SocketAddr) -> anyhow::Result<Self> {
        let socket = bound(address, ADDRESS_IN_USE_TIMEOUT)
            .await
            .map_err(|e| anyhow::anyhow!("cannot listen on {address} for {name}: {e}"))?;
        let address = socket.local_addr()?;
        tracing::info!(addr = %address, serves = name, "listening");
        Ok(Self { name, socket, address })
    }

    /// Serves until `stop`, to clients that mostly come from one address: that of a proxy in front.
    pub async fn serve_behind_proxy(self, router: Router, stop: CancellationToken) {
        let limits = ConnectionLimits::behind_proxy();
        connections::serve(self.name, self.socket, router, limits, stop).await;
    }

    /// Serves until `stop`.
    pub async fn serve(self, router: Router, stop: CancellationToken) {
        connections::serve(self.name, self.socket, router, ConnectionLimits::default(), stop).await;
    }
}

/// A socket on an address, for which is waited at most so long.
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

/// `/healthz`: the process answers. `/readyz`: it also does its work, or would if it led.
pub fn health(readiness: ServerReadiness) -> Router {
    let ready = move || {
        let answer = readiness.answer();
        async move { answer }
    };
    Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(ready))
}

/// `/metrics` in the OpenMetrics text format.
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
