//! A TCP relay on loopback between the program and a server. It counts bytes and connections, and can hold back bytes or reject
//! connections.
//!
//! The relay does not read the bytes that it passes on, so they may be encrypted.
//! Elsewhere: proxies that clients address by name (`crate::forward_proxy`), faults between the program and the API server
//! (`crate::api_server_fault_proxy`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How many bytes the relay passes on at once.
const RELAY_CHUNK_BYTES: usize = 16 << 10;

/// A running relay. It ends, with its connections, when it is dropped.
#[derive(Debug)]
pub struct TcpRelay {
    address: SocketAddr,
    shared: Arc<TcpRelayState>,
    stop: AbortHandle,
}

#[derive(Debug)]
struct TcpRelayState {
    /// How many further bytes of the server may pass. `None` for no limit.
    left: Mutex<Option<u64>>,
    /// Counts the changes of this limit.
    orders: watch::Sender<u64>,
    /// Whether the relay holds back bytes at the moment.
    is_holding: watch::Sender<bool>,
    /// How many further connections the relay rejects.
    turned_away: AtomicU64,
    connections: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

/// The traffic through a relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpRelayTraffic {
    /// How many connections were made.
    pub connections: u64,
    /// How many bytes went to the server.
    pub sent: u64,
    /// How many bytes came from the server.
    pub received: u64,
}

impl Drop for TcpRelay {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl TcpRelay {
    /// Starts a relay to a server on the current runtime.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a relay")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(TcpRelayState {
            left: Mutex::new(None),
            orders: watch::Sender::new(0),
            is_holding: watch::Sender::new(false),
            turned_away: AtomicU64::default(),
            connections: AtomicU64::default(),
            sent: AtomicU64::default(),
            received: AtomicU64::default(),
        });
        let state = Arc::clone(&shared);
        let accept = async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                state.connections.fetch_add(1, Ordering::Relaxed);
                let state = Arc::clone(&state);
                // A client that disconnects early is not a failure of the relay.
                connections.spawn(async move { relay(client, server, &state).await.ok() });
                while connections.try_join_next().is_some() {}
            }
        };
        let stop = tokio::spawn(accept).abort_handle();
        Ok(Self { address, shared, stop })
    }

    /// The address on which the relay listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets `bytes` bytes of the server pass from now on, over all connections together, and holds back the rest.
    pub fn hold_after(&self, bytes: u64) {
        self.shared.order(Some(bytes));
    }

    /// Lets all bytes pass, beginning with those that were held back.
    pub fn open(&self) {
        self.shared.order(None);
    }

    /// Answers the next `requests` requests, each on its own connection, with 429 and a `Retry-After` of one second. This works
    /// only for plain HTTP.
    pub fn turn_away(&self, requests: u64) {
        self.shared.turned_away.store(requests, Ordering::Relaxed);
    }

    /// How many further requests the relay rejects.
    pub fn left_to_turn_away(&self) -> u64 {
        self.shared.turned_away.load(Ordering::Relaxed)
    }

    /// Waits until the relay holds back bytes.
    pub async fn held(&self, limit: Duration) -> Result<()> {
        let mut is_holding = self.shared.is_holding.subscribe();
        let held = is_holding.wait_for(|is_holding| *is_holding);
        let held = tokio::time::timeout(limit, held).await;
        held.with_context(|| format!("nothing was held back within {limit:?}"))??;
        Ok(())
    }

    /// The traffic since the start or [`TcpRelay::forget`].
    pub fn passed(&self) -> TcpRelayTraffic {
        let TcpRelayState { connections, sent, received, .. } = &*self.shared;
        let [connections, sent, received] =
            [connections, sent, received].map(|it| it.load(Ordering::Relaxed));
        TcpRelayTraffic { connections, sent, received }
    }

    /// Sets the counts of connections and bytes to zero.
    pub fn forget(&self) {
        let TcpRelayState { connections, sent, received, .. } = &*self.shared;
        for count in [connections, sent, received] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

impl TcpRelayState {
    fn order(&self, left: Option<u64>) {
        *self.left.lock() = left;
        self.is_holding.send_replace(false);
        self.orders.send_modify(|count| *count += 1);
    }

    /// Waits until at least one byte may pass. Returns how many of `wanted` bytes may pass.
    async fn allowance(&self, wanted: usize) -> usize {
        // Subscribes before the check, so that a later change of the limit is not missed.
        let mut orders = self.orders.subscribe();
        loop {
            if let Some(allowed) = self.take(wanted) {
                return allowed;
            }
            if orders.changed().await.is_err() {
                return 0;
            }
        }
    }

    fn take(&self, wanted: usize) -> Option<usize> {
        let mut left = self.left.lock();
        let Some(left) = &mut *left else { return Some(wanted) };
        let allowed = wanted.min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= allowed as u64;
        if allowed == 0 {
            self.is_holding.send_replace(true);
        }
        (allowed > 0).then_some(allowed)
    }
}

/// The longest head of a request, in bytes. No story sends a longer one.
const LONGEST_HEAD: usize = 64 << 10;

const BUSY_RESPONSE: &[u8] =
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Reads a request without its body, and answers 429.
async fn turn_away(mut client: TcpStream) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < LONGEST_HEAD {
        head.push(client.read_u8().await?);
    }
    Ok(client.write_all(BUSY_RESPONSE).await?)
}

async fn relay(mut client: TcpStream, server: SocketAddr, shared: &TcpRelayState) -> Result<()> {
    let order = Ordering::Relaxed;
    let one_less = |left: u64| left.checked_sub(1);
    if shared.turned_away.load(order) > 0 {
        let mut first = [0];
        client.peek(&mut first).await?;
        // A client that tries TLS first fails here.
        anyhow::ensure!(first[0].is_ascii_uppercase(), "it is no request over plain HTTP");
        if shared.turned_away.fetch_update(order, order, one_less).is_ok() {
            return turn_away(client).await;
        }
    }
    let mut server = TcpStream::connect(server).await?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let up = async {
        let mut chunk = vec![0; RELAY_CHUNK_BYTES];
        loop {
            let read = from_client.read(&mut chunk).await?;
            if read == 0 {
                return anyhow::Ok(());
            }
            shared.sent.fetch_add(read as u64, Ordering::Relaxed);
            to_server.write_all(&chunk[..read]).await?;
        }
    };
    let down = async {
        let mut chunk = vec![0; RELAY_CHUNK_BYTES];
        loop {
            let read = from_server.read(&mut chunk).await?;
            if read == 0 {
                return anyhow::Ok(());
            }
            let mut rest = &chunk[..read];
            while !rest.is_empty() {
                let allowed = shared.allowance(rest.len()).await;
                anyhow::ensure!(allowed > 0, "the relay ends");
                to_client.write_all(&rest[..allowed]).await?;
                shared.received.fetch_add(allowed as u64, Ordering::Relaxed);
                rest = &rest[allowed..];
            }
        }
    };
    // No protocol of the stories closes one direction of a connection and keeps using the other.
    tokio::select! { ended = up => ended, ended = down => ended }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_may_not_pass_waits_and_what_passes_is_counted() -> Result<()> {
        let server = TcpListener::bind("127.0.0.1:0").await?;
        let relay = TcpRelay::start(server.local_addr()?).await?;
        relay.hold_after(3);
        let mut client = TcpStream::connect(relay.address()).await?;
        client.write_all(b"question").await?;
        let (mut served, _) = server.accept().await?;
        let mut question = [0; 8];
        served.read_exact(&mut question).await?;
        served.write_all(b"answer").await?;
        relay.held(Duration::from_secs(10)).await?;
        let mut begun = [0; 6];
        let read = client.read(&mut begun).await?;
        assert_eq!(&begun[..read], b"ans");
        assert_eq!(relay.passed(), TcpRelayTraffic { connections: 1, sent: 8, received: 3 });
        relay.open();
        let read = client.read(&mut begun).await?;
        assert_eq!(&begun[..read], b"wer");
        relay.forget();
        assert_eq!(relay.passed(), TcpRelayTraffic::default());
        drop(served);
        assert_eq!(client.read(&mut begun).await?, 0, "the end of the server is passed on");

        relay.turn_away(1);
        let mut client = TcpStream::connect(relay.address()).await?;
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await?;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await?;
        assert_eq!((&*answer, relay.left_to_turn_away()), (BUSY_RESPONSE, 0));
        Ok(())
    }
}
