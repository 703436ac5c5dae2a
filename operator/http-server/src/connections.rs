//! Accepts connections within limits. There is a limit for all connections and for each address. A connection whose client is
//! idle or stalls is closed.

use std::collections::HashMap;
use std::future::Future as _;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The limits of a server's connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionLimits {
    /// The most connections at once. Further ones wait in the kernel's queue.
    pub(super) connections: usize,
    /// The most connections of one address. Further ones are closed.
    pub(super) each: usize,
    /// How long a connection may stay open. A request under way is then still answered.
    pub(super) lifetime: Duration,
    /// How long the headers of a request may take. It is also the longest time that a connection stays idle.
    pub(super) headers: Duration,
    /// How long a client may read nothing of an answer.
    pub(super) stalled: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            each: 128,
            lifetime: Duration::from_secs(600),
            headers: Duration::from_secs(15),
            stalled: Duration::from_secs(30),
        }
    }
}

impl ConnectionLimits {
    /// The limits of a server for browsers behind a proxy, because all of them have the address of the proxy.
    pub(super) fn behind_proxy() -> Self {
        Self { connections: 1024, each: 1024, ..Self::default() }
    }
}

/// The most bytes of a request's headers.
const HEAD_LIMIT: usize = 64 << 10;

/// The pause after a connection could not be accepted, mostly because too many files are open.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// The number of connections of each address.
#[derive(Clone, Default)]
struct ConnectionsByAddress(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A counted connection of one address.
struct PeerConnection(ConnectionsByAddress, IpAddr);

impl ConnectionsByAddress {
    /// Counts a connection. `None` if the address has reached its limit.
    fn enter(&self, address: IpAddr, most: usize) -> Option<PeerConnection> {
        let address = network(address);
        let mut all = self.0.lock();
        let count = all.entry(address).or_default();
        (*count < most).then(|| {
            *count += 1;
            PeerConnection(self.clone(), address)
        })
    }
}

impl Drop for PeerConnection {
    fn drop(&mut self) {
        let mut all = self.0.0.lock();
        if let Some(count) = all.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.1);
            }
        }
    }
}

/// The address range of one host: an IPv4 address, or a 64-bit prefix of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// Serves requests until `stop`, and then finishes those under way.
pub(super) async fn serve(
    name: &'static str,
    socket: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    stop: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let under_way = TaskTracker::new();
    let peers = ConnectionsByAddress::default();
    loop {
        let next = async {
            let permit = permits.clone().acquire_owned().await;
            (permit, socket.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            next = next => next,
            () = stop.cancelled() => break,
        };
        match (permit, accepted) {
            (Ok(permit), Ok((stream, from))) => {
                let Some(peer) = peers.enter(from.ip(), limits.each) else {
                    tracing::debug!(serves = name, peer = %from, "closed a connection: its address has too many");
                    continue;
                };
                let stream = StallAbortingStream { stream, limit: limits.stalled, stalled: None };
                under_way.spawn(one(stream, router.clone(), limits, stop.clone(), permit, peer));
            }
            (_, Err(error)) => {
                tracing::info!(serves = name, error = %error, "failed to accept a connection");
                sleep(AFTER_FAILURE).await;
            }
            (Err(_), Ok(_)) => break,
        }
    }
    // The next process may use the address while the last answers are sent.
    drop(socket);
    under_way.close();
    under_way.wait().await;
}

async fn one(
    stream: StallAbortingStream<tokio::net::TcpStream>,
    router: Router,
    limits: ConnectionLimits,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
    _peer: PeerConnection,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        .max_buf_size(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = end_of_life(limits.lifetime, &stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = %error, "connection aborted");
    }
}

async fn end_of_life(lifetime: Duration, stop: &CancellationToken) {
    stop.run_until_cancelled(sleep(lifetime)).await;
}

/// A stream that is aborted when its client reads nothing for too long.
struct StallAbortingStream<S> {
    stream: S,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> StallAbortingStream<S> {
    /// Notes whether a write made progress.
    fn judge<T>(
        &mut self,
        cx: &mut Context<'_>,
        wrote: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallAbortingStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallAbortingStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, data);
        self.judge(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, data);
        self.judge(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.judge(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.judge(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(600);

    /// A server with a short answer at `/` and an endless answer at `/endless`.
    async fn server(limits: ConnectionLimits) -> (std::net::SocketAddr, CancellationToken) {
        let endless = || async {
            Body::from_stream(futures::stream::repeat_with(|| Ok::<_, io::Error>(vec![7; 65_536])))
        };
        let router =
            Router::new().route("/", get(|| async { "well" })).route("/endless", get(endless));
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(serve("a test", socket, router, limits, stop.clone()));
        (address, stop)
    }

    async fn ask(address: std::net::SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    fn limits(connections: usize) -> ConnectionLimits {
        ConnectionLimits {
            connections,
            each: connections,
            lifetime: LONG,
            headers: LONG,
            stalled: LONG,
        }
    }

    const WHOLE: &str = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

    #[tokio::test]
    async fn who_never_ends_its_headers_is_let_go_and_its_permit_is_given_to_the_next() {
        let limits = ConnectionLimits { headers: SHORT, ..limits(2) };
        let (address, stop) = server(limits).await;
        let mut slow = Vec::new();
        for _ in 0..4 {
            slow.push(ask(address, "GET / HTTP/1.1\r\nhost: a\r\n").await);
        }
        let mut answer = String::new();
        ask(address, WHOLE).await.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("well"), "{answer}");
        drop(slow);
        stop.cancel();
    }

    #[tokio::test]
    async fn who_takes_nothing_of_its_answer_is_let_go() {
        let limits = ConnectionLimits { stalled: SHORT, ..limits(1) };
        let (address, stop) = server(limits).await;
        let stalled = ask(address, "GET /endless HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut answer = String::new();
        ask(address, WHOLE).await.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("well"), "{answer}");
        drop(stalled);
        stop.cancel();
    }

    #[tokio::test]
    async fn it_ends_when_it_is_stopped_although_connections_are_idle() {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let stop = CancellationToken::new();
        let router = Router::new().route("/", get(|| async { "well" }));
        let served = tokio::spawn(serve("a test", socket, router, limits(4), stop.clone()));
        let mut idle = ask(address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut byte = [0];
        idle.read_exact(&mut byte).await.unwrap();
        stop.cancel();
        served.await.unwrap();
    }

    #[tokio::test]
    async fn an_address_has_so_many_connections_and_its_others_are_closed() {
        let (address, stop) = server(ConnectionLimits { each: 1, ..limits(4) }).await;
        let mut first = ask(address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut byte = [0];
        first.read_exact(&mut byte).await.unwrap();
        let mut answer = Vec::new();
        let second = TcpStream::connect(address).await.unwrap().read_to_end(&mut answer).await;
        assert!(second.is_err() || answer.is_empty());
        drop(first);
        // The server may notice the end of the first connection a moment later.
        loop {
            let mut answer = String::new();
            let mut next = TcpStream::connect(address).await.unwrap();
            let asked = next.write_all(WHOLE.as_bytes()).await;
            if asked.is_ok() && next.read_to_string(&mut answer).await.is_ok() && !answer.is_empty()
            {
                assert!(answer.ends_with("well"), "{answer}");
                break;
            }
        }
        stop.cancel();
    }

    #[tokio::test]
    async fn a_connection_ends_after_a_time_even_if_it_is_used() {
        let (address, stop) = server(ConnectionLimits { lifetime: SHORT, ..limits(4) }).await;
        let mut stream = ask(address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut all = String::new();
        stream.read_to_string(&mut all).await.unwrap();
        assert!(all.ends_with("well"), "{all}");
        stop.cancel();
    }

    #[test]
    fn addresses_of_one_host_count_as_one() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("10.0.0.7"), "10.0.0.7");
        assert_eq!(of("::ffff:10.0.0.7"), "10.0.0.7");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::9"));
        assert_ne!(of("2001:db8:1:2::9"), of("2001:db8:1:3::9"));
    }
}
