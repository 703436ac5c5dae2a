//! Whether this process may write to the API server. A layer and a connection stop its requests when it may not.
//!
//! Here: the term of a leader, the layer that refuses requests, and the connection that stops sending. Elsewhere: how a term
//! is won and renewed (`lease`), and the runs that wait for it (`windlass_runtime::object_run`).
//!
//! A term ends by the clock and not by a message. A process that was paused and continues later therefore finds its term ended
//! before it can send anything.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::future::Either;
use http::{Method, Request};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// The error of a write that was not sent, because this process is not the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this process is not the leader; write not sent")]
pub struct NotLeadingError;

#[derive(Debug, Clone, Copy)]
enum LeadershipTerm {
    /// Another process may lead.
    Standby,
    /// This process leads until this moment, unless it renews its Lease before.
    Until(Instant),
    /// There is no leader election.
    Unlimited,
    /// The term of this process has ended. It will never lead again.
    Over,
}

/// The right to write, shared by all parts of the process that write. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Leadership(Arc<LeadershipState>);

#[derive(Debug)]
struct LeadershipState {
    term: Mutex<LeadershipTerm>,
    begun: watch::Sender<bool>,
    /// Whether another process led while this one waited.
    has_waited: AtomicBool,
    /// The address from which the present leader serves artifacts.
    leader_storage: Mutex<Option<String>>,
}

impl Leadership {
    /// For a process without leader election, which may write until it ends.
    pub fn unlimited() -> Self {
        Self::new(LeadershipTerm::Unlimited)
    }

    /// For a process that has to win an election first.
    pub(crate) fn standby() -> Self {
        Self::new(LeadershipTerm::Standby)
    }

    fn new(term: LeadershipTerm) -> Self {
        let begun = watch::Sender::new(matches!(term, LeadershipTerm::Unlimited));
        let term = Mutex::new(term);
        Self(Arc::new(LeadershipState {
            term,
            begun,
            has_waited: AtomicBool::new(false),
            leader_storage: Mutex::default(),
        }))
    }

    /// The current term. This reads the clock, so a term that ran out has ended.
    fn term(&self) -> LeadershipTerm {
        let mut term = self.0.term.lock();
        if let LeadershipTerm::Until(end) = *term
            && Instant::now() >= end
        {
            *term = LeadershipTerm::Over;
        }
        *term
    }

    /// Whether a write may be sent now.
    pub fn may_act(&self) -> bool {
        matches!(self.term(), LeadershipTerm::Until(_) | LeadershipTerm::Unlimited)
    }

    /// Whether the term of this process has ended.
    fn is_over(&self) -> bool {
        matches!(self.term(), LeadershipTerm::Over)
    }

    /// Begins or prolongs the term. Returns false if the term has already run out, and then it stays ended.
    pub(super) fn extend(&self, end: Instant) -> bool {
        if Instant::now() >= end {
            self.end();
        }
        if self.is_over() {
            return false;
        }
        *self.0.term.lock() = LeadershipTerm::Until(end);
        self.0.begun.send_replace(true);
        true
    }

    /// Begins a term without an end. A term that has ended stays ended.
    pub(super) fn unlimit(&self) {
        let mut term = self.0.term.lock();
        if !matches!(*term, LeadershipTerm::Over) {
            *term = LeadershipTerm::Unlimited;
            self.0.begun.send_replace(true);
        }
    }

    /// Whether the term of this process has begun. It may have ended since.
    pub fn has_begun(&self) -> bool {
        *self.0.begun.borrow()
    }

    /// Whether another process led while this one waited. What that process had not sent when it ended is in a storage that this
    /// process may not have ([`crate::announced_failures`]).
    pub fn has_waited(&self) -> bool {
        self.0.has_waited.load(Ordering::Relaxed)
    }

    /// Notes that another process leads.
    pub(super) fn note_wait(&self) {
        self.0.has_waited.store(true, Ordering::Relaxed);
    }

    /// The address from which the leader serves artifacts, as it wrote it into windlass's own Lease. `None` if another process
    /// does not lead, or has written no address.
    pub fn leader_storage(&self) -> Option<String> {
        self.0.leader_storage.lock().clone()
    }

    /// Notes what the Lease says about the storage of the leader.
    pub(super) fn note_leader_storage(&self, address: Option<String>) {
        *self.0.leader_storage.lock() = address;
    }

    /// Ends the term for good.
    pub fn end(&self) {
        *self.0.term.lock() = LeadershipTerm::Over;
    }

    /// Waits until the term begins. If this process never leads, it waits forever.
    pub async fn begun(&self) {
        // `self` owns the sender, so it still exists.
        self.0.begun.subscribe().wait_for(|begun| *begun).await.map(drop).unwrap_or_default();
    }
}

/// An HTTP layer that refuses writes while this process may not write.
impl<S> Layer<S> for Leadership {
    type Service = LeaderOnlyHttpService<S>;

    fn layer(&self, inner: S) -> LeaderOnlyHttpService<S> {
        LeaderOnlyHttpService { inner, leadership: self.clone() }
    }
}

/// The HTTP service behind the layer of [`Leadership`], which refuses writes while this process may not write.
#[derive(Debug, Clone)]
pub struct LeaderOnlyHttpService<S> {
    inner: S,
    leadership: Leadership,
}

impl<S, B> Service<Request<B>> for LeaderOnlyHttpService<S>
where
    S: Service<Request<B>, Error = BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<S::Future, Ready<Result<S::Response, BoxError>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if reads || self.leadership.may_act() {
            Either::Left(self.inner.call(request))
        } else {
            Either::Right(ready(Err(Box::new(NotLeadingError))))
        }
    }
}

/// A connection that sends nothing once the term has ended.
///
/// The layer checks a request before the request is queued for a connection. A process that is paused in between would
/// otherwise send the queued request later, in the term of another leader.
#[derive(Debug)]
pub(super) struct LeaderOnlyConnection {
    stream: TcpStream,
    leadership: Leadership,
}

impl LeaderOnlyConnection {
    /// Wraps a new connection, so that it checks the term.
    pub(super) fn wrap(stream: TokioIo<TcpStream>, leadership: Leadership) -> TokioIo<Self> {
        TokioIo::new(Self { stream: stream.into_inner(), leadership })
    }

    fn check(&self) -> std::io::Result<()> {
        if self.leadership.is_over() { Err(std::io::Error::other(NotLeadingError)) } else { Ok(()) }
    }
}

impl Connection for LeaderOnlyConnection {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl AsyncRead for LeaderOnlyConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for LeaderOnlyConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tower::ServiceExt as _;

    use super::*;

    const TERM: Duration = Duration::from_secs(10);

    async fn is_sent(leadership: &Leadership, method: Method) -> bool {
        let server = tower::service_fn(|_: Request<()>| async {
            Ok::<_, BoxError>(http::Response::new(()))
        });
        let request = Request::builder().method(method).body(()).unwrap();
        leadership.layer(server).oneshot(request).await.is_ok()
    }

    #[tokio::test]
    async fn who_is_not_leading_reads_and_does_not_write() {
        let leadership = Leadership::standby();
        assert!(is_sent(&leadership, Method::GET).await);
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert!(!is_sent(&leadership, method.clone()).await, "{method}");
        }
        assert!(leadership.extend(Instant::now() + TERM));
        assert!(is_sent(&leadership, Method::PATCH).await);
    }

    #[tokio::test]
    async fn a_term_ends_by_the_clock_and_is_not_taken_up_again() {
        let leadership = Leadership::standby();
        assert!(leadership.extend(Instant::now() + TERM));
        leadership.extend(Instant::now() + Duration::from_millis(5));
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!leadership.may_act());
        assert!(!leadership.extend(Instant::now() + TERM));
        assert!(!is_sent(&leadership, Method::PATCH).await);
    }

    #[tokio::test]
    async fn an_answer_that_came_after_its_own_term_begins_none() {
        let leadership = Leadership::standby();
        assert!(!leadership.extend(Instant::now()));
        assert!(!leadership.may_act());
    }

    #[tokio::test]
    async fn waiting_for_a_term_ends_when_it_begins() {
        let leadership = Leadership::standby();
        let waiting = tokio::spawn({
            let leadership = leadership.clone();
            async move { leadership.begun().await }
        });
        assert!(leadership.extend(Instant::now() + TERM));
        waiting.await.unwrap();
        Leadership::unlimited().begun().await;
    }

    #[tokio::test]
    async fn what_is_queued_for_a_connection_is_not_sent_after_the_term() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        let leadership = Leadership::standby();
        let mut near =
            LeaderOnlyConnection::wrap(TokioIo::new(near), leadership.clone()).into_inner();
        near.write_all(b"list").await.unwrap();
        leadership.end();
        let refused = near.write_all(b"write").await.unwrap_err();
        assert!(refused.to_string().contains("not the leader"), "{refused}");
        drop(near);
        let mut received = String::new();
        far.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "list");
    }
}
