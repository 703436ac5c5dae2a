//! Connections that come in: so many at once, and each only while its other side does something.

use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What a server bears.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections at once; more wait in the kernel's queue.
    pub(super) connections: usize,
    /// Time for the headers of a request, from when one may begin: also how long an idle connection stays.
    pub(super) headers: Duration,
    /// Time in which the other side has to take something of an answer.
    pub(super) stalled: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let (headers, stalled) = (Duration::from_secs(15), Duration::from_secs(30));
        Self { connections: 256, headers, stalled }
    }
}

/// Largest head of a request.
const HEAD_LIMIT: usize = 64 << 10;

/// Pause after a connection could not be taken, mostly because too many files are open.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// Serves until `stop`, and then what is under way.
pub(super) async fn serve(
    name: &'static str,
    socket: TcpListener,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let under_way = TaskTracker::new();
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
            (Ok(permit), Ok((stream, _))) => {
                let stream = Impatient { stream, limit: limits.stalled, stalled: None };
                under_way.spawn(one(stream, router.clone(), limits, stop.clone(), permit));
            }
            (_, Err(error)) => {
                tracing::info!(serves = name, error = %error, "failed to accept a connection");
                sleep(AFTER_FAILURE).await;
            }
            (Err(_), Ok(_)) => break,
        }
    }
    under_way.close();
    under_way.wait().await;
}

async fn one(
    stream: Impatient<tokio::net::TcpStream>,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        .max_buf_size(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = %error, "connection aborted");
    }
}

/// A stream that is aborted when the other side takes nothing for too long.
struct Impatient<S> {
    stream: S,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    /// Notes whether a write got on.
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

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
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

    /// A server of a short answer at `/` and of one without end at `/endless`.
    async fn server(limits: Limits) -> (std::net::SocketAddr, CancellationToken) {
        let endless = || async {
            Body::from_stream(futures::stream::repeat_with(|| Ok::<_, io::Error>(vec![7; 65_536])))
        };
        let router =
            Router::new().route("/", get(|| async { "well" })).route("/endless", get(endless));
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (socket.local_addr().unwrap(), CancellationToken::new());
        tokio::spawn(serve("a test", socket, router, limits, stop.clone()));
        (address, stop)
    }

    async fn ask(address: std::net::SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    const WHOLE: &str = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

    #[tokio::test]
    async fn who_never_ends_its_headers_is_let_go_and_its_permit_is_given_to_the_next() {
        let limits = Limits { connections: 2, headers: SHORT, stalled: LONG };
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
        let limits = Limits { connections: 1, headers: LONG, stalled: SHORT };
        let (address, stop) = server(limits).await;
        let stalled = ask(address, "GET /endless HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut answer = String::new();
        ask(address, WHOLE).await.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("well"), "{answer}");
        drop(stalled);
        stop.cancel();
    }

    #[tokio::test]
    async fn it_ends_when_it_is_told_to_although_connections_are_idle() {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (socket.local_addr().unwrap(), CancellationToken::new());
        let limits = Limits { connections: 4, headers: LONG, stalled: LONG };
        let router = Router::new().route("/", get(|| async { "well" }));
        let served = tokio::spawn(serve("a test", socket, router, limits, stop.clone()));
        let mut idle = ask(address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut byte = [0];
        idle.read_exact(&mut byte).await.unwrap();
        stop.cancel();
        served.await.unwrap();
    }
}
