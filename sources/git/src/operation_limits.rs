//! The deadline, the cancellation and the size limit of one operation. Every byte of the operation is checked against them.
//!
//! gix replaces every error of a transport with an error of its own. So the transport also stores its error here, and
//! [`GitOperation::explain`] returns it in place of gix's text.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use golang::unicode::is_print;
use http_client::host_budget::{HostPermit, SendError};
use http_client::{HostBudgets, HostBusyError};
use objects::RedactedValue;
use parking_lot::Mutex;
use reqwest::{RequestBuilder, Response};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::push::PushError;
use super::{Error, GitOperationContext, GitRemote};

/// The most characters of a server's message that are quoted.
const LONGEST_QUOTE: usize = 300;

/// How many bytes of the server's other output are kept. A secret that is cut off would not be recognized in them.
const LONGEST_ASIDE: usize = 16 << 10;

/// The bytes of a handshake in which a server names the hash algorithm of its objects. It does so in the first line.
const HANDSHAKE_START_BYTES: usize = 4096;

/// The longest time limit. The clock cannot represent every longer one.
const MAX_REMOTE_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// One operation on one remote. Clones share everything.
#[derive(Clone)]
pub(super) struct GitOperation(Arc<GitOperationState>);

/// The result of a request.
pub(super) enum HttpRequestOutcome {
    Response(Response),
    /// The error of the connection.
    Failed(reqwest::Error),
}

struct GitOperationState {
    runtime: Handle,
    remote: String,
    host: String,
    proxy: Option<String>,
    timeout: Duration,
    deadline: Instant,
    cancel: CancellationToken,
    /// Set when the operation must end. gix checks it while it processes a pack.
    stop: Arc<AtomicBool>,
    watch: AbortHandle,
    received: AtomicU64,
    /// The most bytes that the operation may receive.
    most: u64,
    /// The most bytes that the operation may have received at the end of the present step.
    limit: AtomicU64,
    /// No byte of the last request over HTTP was sent.
    is_unsent: AtomicBool,
    /// The server said that its objects have hashes that gix was built without.
    is_sha256: AtomicBool,
    secrets: Mutex<Vec<RedactedValue<String>>>,
    budgets: Arc<HostBudgets>,
    /// The permit for the host. An operation has one for all its connections, because a second permit could wait for
    /// the first one forever.
    permit: Mutex<Option<Arc<HostPermit>>>,
    failure: Mutex<Option<Error>>,
    /// The refusal that the server sent within the protocol.
    refusal: Mutex<Option<String>>,
    /// The output of the server's standard error, which is outside of the protocol.
    aside: Mutex<String>,
}

impl Drop for GitOperationState {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl GitOperation {
    /// Begins an operation on `remote`. Its timeout starts to run now.
    pub(super) fn new(remote: &GitRemote, context: &GitOperationContext) -> Self {
        let timeout = remote.timeout.min(MAX_REMOTE_TIMEOUT);
        let deadline = Instant::now() + timeout;
        let stop = Arc::new(AtomicBool::new(false));
        let cancel = context.cancel.clone();
        let mut secrets = remote.credentials.auth.secrets();
        secrets.extend(remote.proxy.as_ref().map(|proxy| proxy.password().clone()));
        let watch = {
            let stop = Arc::clone(&stop);
            let cancel = cancel.clone();
            context.runtime.spawn(async move {
                tokio::select! {
                    () = cancel.cancelled() => {}
                    () = tokio::time::sleep_until(deadline) => {}
                }
                stop.store(true, Ordering::Relaxed);
            })
        };
        Self(Arc::new(GitOperationState {
            runtime: context.runtime.clone(),
            remote: remote.url.to_string(),
            host: remote.url.authority(),
            proxy: remote.proxy.as_ref().map(ToString::to_string),
            timeout,
            deadline,
            cancel,
            stop,
            watch: watch.abort_handle(),
            received: AtomicU64::new(0),
            most: remote.limits.received,
            limit: AtomicU64::new(remote.limits.received),
            is_unsent: AtomicBool::new(false),
            is_sha256: AtomicBool::new(false),
            secrets: Mutex::new(secrets),
            budgets: Arc::clone(context.known.budgets()),
            permit: Mutex::new(None),
            failure: Mutex::new(None),
            refusal: Mutex::new(None),
            aside: Mutex::new(String::new()),
        }))
    }

    /// The remote without its credentials.
    pub(super) fn remote(&self) -> String {
        self.0.remote.clone()
    }

    /// The host and port of the remote, as text.
    pub(super) fn host(&self) -> String {
        self.0.host.clone()
    }

    /// The proxy between windlass and the remote, without its credentials. `None` if there is no proxy.
    pub(super) fn proxy(&self) -> Option<String> {
        self.0.proxy.clone()
    }

    /// The number of received bytes so far.
    pub(super) fn received(&self) -> u64 {
        self.0.received.load(Ordering::Relaxed)
    }

    /// Becomes true when the operation must end.
    pub(super) fn stop(&self) -> &AtomicBool {
        &self.0.stop
    }

    /// Waits for a future until the operation must end.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> io::Result<T> {
        let inner = &self.0;
        inner.runtime.block_on(async {
            tokio::select! {
                biased;
                () = inner.cancel.cancelled() => Err(self.fail(self.cancelled())),
                () = tokio::time::sleep_until(inner.deadline) => Err(self.fail(self.timed_out())),
                value = future => Ok(value),
            }
        })
    }

    /// Sends a request when it is its turn.
    ///
    /// # Errors
    /// The operation must end, or requests to the host are paused.
    pub(super) fn send(&self, request: RequestBuilder) -> io::Result<HttpRequestOutcome> {
        let is_unsent = &self.0.is_unsent;
        is_unsent.store(true, Ordering::Relaxed);
        let (client, request) = request.build_split();
        let request = match request {
            Ok(request) => request,
            Err(error) => return Ok(HttpRequestOutcome::Failed(error)),
        };
        let kept = self.0.permit.lock().take().filter(|permit| permit.is_at(request.url()));
        let permit = match kept {
            Some(permit) => permit,
            None => {
                let permit = self.wait(self.0.budgets.permit(request.url()))?;
                Arc::new(permit.map_err(|busy| self.fail(self.busy(busy)))?)
            }
        };
        *self.0.permit.lock() = Some(Arc::clone(&permit));
        is_unsent.store(false, Ordering::Relaxed);
        let sent = self.wait(permit.send(RequestBuilder::from_parts(client, request)))?;
        match sent {
            Ok(answer) => Ok(HttpRequestOutcome::Response(answer)),
            Err(SendError::Transport(error)) => {
                is_unsent.store(error.is_connect(), Ordering::Relaxed);
                Ok(HttpRequestOutcome::Failed(error))
            }
            Err(SendError::Busy(busy)) => {
                is_unsent.store(true, Ordering::Relaxed);
                Err(self.fail(self.busy(busy)))
            }
        }
    }

    /// Fails while requests to the host are paused.
    pub(super) fn check_host(&self) -> Result<(), Error> {
        let permit = self.0.permit.lock().clone();
        permit.map_or(Ok(()), |permit| permit.check()).map_err(|busy| self.busy(busy))
    }

    fn busy(&self, busy: HostBusyError) -> Error {
        Error::Busy { remote: self.remote(), busy }
    }

    /// Fails if the operation must end.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.0.cancel.is_cancelled() {
            Err(self.cancelled())
        } else if Instant::now() >= self.0.deadline {
            Err(self.timed_out())
        } else {
            Ok(())
        }
    }

    fn cancelled(&self) -> Error {
        Error::Cancelled { remote: self.remote() }
    }

    fn timed_out(&self) -> Error {
        Error::TimedOut { remote: self.remote(), timeout: self.0.timeout }
    }

    /// Counts received bytes, and remembers an `ERR` line near their start.
    pub(super) fn receive(&self, bytes: &[u8]) -> io::Result<()> {
        let is_handshake = self.received() < HANDSHAKE_START_BYTES as u64;
        if !self.count(bytes.len()) {
            let remote = self.remote();
            let limit = format!("{} bytes", self.0.limit.load(Ordering::Relaxed));
            let what = "the received data".to_owned();
            return Err(self.fail(Error::TooLarge { remote, what, limit }));
        }
        if let Some(said) = refusal(bytes) {
            self.0.refusal.lock().get_or_insert(said);
        }
        if is_handshake && is_of_sha256(bytes) {
            self.0.is_sha256.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Counts received bytes, including discarded ones. Returns `false` if they exceed the limit.
    pub(super) fn count(&self, length: usize) -> bool {
        let length = length as u64;
        let before = self.0.received.fetch_add(length, Ordering::Relaxed);
        before.saturating_add(length) <= self.0.limit.load(Ordering::Relaxed)
    }

    /// Takes no more than so many further bytes, until [`widen`](Self::widen).
    pub(super) fn narrow(&self, bytes: u64) {
        let limit = self.received().saturating_add(bytes).min(self.0.most);
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    /// Restores the receive limit of the whole operation.
    pub(super) fn widen(&self) {
        self.0.limit.store(self.0.most, Ordering::Relaxed);
    }

    /// Runs code of gix on data from a server. Some of this code panics on data that no Git server sends.
    pub(super) fn contain<T, E>(
        &self,
        work: impl FnOnce() -> Result<T, E>,
        failed: impl FnOnce(Error) -> E,
    ) -> Result<T, E> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_panic| {
            let cause = "it cannot be parsed".to_owned();
            Err(failed(Error::Protocol { remote: self.remote(), cause }))
        })
    }

    /// Remembers the first error of the operation. Returns an error that gix passes on to the caller.
    pub(super) fn fail(&self, error: Error) -> io::Error {
        let text = error.to_string();
        self.0.failure.lock().get_or_insert(error);
        io::Error::other(text)
    }

    /// Takes the error that [`fail`](Self::fail) remembered. `None` if there is none.
    pub(super) fn failure(&self) -> Option<Error> {
        self.0.failure.lock().take()
    }

    /// Forgets the last error before another attempt. The attempt has only the remaining time.
    pub(super) fn start_over(&self) {
        *self.0.failure.lock() = None;
        *self.0.refusal.lock() = None;
        self.0.aside.lock().clear();
        self.widen();
    }

    /// One more text that must not be repeated.
    pub(super) fn keep_secret(&self, text: &str) {
        self.0.secrets.lock().push(RedactedValue::new(text.to_owned()));
    }

    /// A message of a server on one line. It is shortened, and contains no secrets.
    pub(super) fn quote(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.0.secrets.lock().iter().map(RedactedValue::expose) {
            if !secret.is_empty() {
                text = text.replace(secret.as_str(), "****");
            }
        }
        // Invisible characters count as separators. Otherwise the parts of a secret could be joined.
        let words: Vec<&str> =
            text.split(|c: char| c == ' ' || !is_print(c)).filter(|w| !w.is_empty()).collect();
        let line = words.join(" ");
        match line.char_indices().nth(LONGEST_QUOTE) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }

    /// Remembers output of the server outside of the protocol.
    pub(super) fn overhear(&self, bytes: &[u8]) {
        let mut aside = self.0.aside.lock();
        if aside.len() < LONGEST_ASIDE {
            let room = LONGEST_ASIDE - aside.len();
            aside.push_str(&String::from_utf8_lossy(&bytes[..bytes.len().min(room)]));
        }
    }

    /// The output of the server outside of the protocol, as [`Self::quote`] shows it.
    pub(super) fn overheard(&self) -> String {
        self.quote(&self.0.aside.lock())
    }

    /// The result of a push whose answer could not be read.
    ///
    /// Only two kinds of errors prove that the server did nothing: errors that report this, and errors before the request was
    /// sent. Any other error may have occurred after the server accepted the push.
    pub(super) fn unanswered(&self, error: io::Error) -> PushError {
        match self.failure() {
            Some(unsent) if self.0.is_unsent.load(Ordering::Relaxed) => PushError::Failed(unsent),
            Some(
                refused @ (Error::AuthenticationFailed { .. }
                | Error::ProxyRefused { .. }
                | Error::Redirected { .. }
                | Error::Refused { .. }
                | Error::RepositoryNotFound { .. }
                | Error::Untrusted { .. }),
            ) => PushError::Failed(refused),
            Some(known) => PushError::Unanswered(known),
            None => PushError::Unanswered(self.explain(&gix::Error::from_error(error))),
        }
    }

    /// The cause of an error that gix reports.
    pub(super) fn explain(&self, error: &gix::Error) -> Error {
        if let Some(known) = self.failure() {
            return known;
        }
        if let Err(ended) = self.check() {
            return ended;
        }
        let remote = self.remote();
        if let Some(said) = self.0.refusal.lock().take() {
            return Error::Refused { remote, message: self.quote(&said) };
        }
        if self.0.is_sha256.load(Ordering::Relaxed) {
            return Error::UnsupportedHash { remote, format: "sha256".to_owned() };
        }
        if error.is_resource_exhausted() {
            return Error::TooLarge {
                remote,
                what: "an object".to_owned(),
                limit: "the maximum file size".to_owned(),
            };
        }
        let aside = self.overheard();
        if !aside.is_empty() {
            return Error::Refused { remote, message: aside };
        }
        let cause = error.probable_cause().to_string();
        Error::Protocol { remote, cause: self.quote(&cause) }
    }
}

/// The text of an `ERR` line near the start of a response. `None` if there is no such line. gix does not search for
/// such a line everywhere, and reports a protocol error instead.
fn refusal(bytes: &[u8]) -> Option<String> {
    const ERROR_SEARCH_BYTES: usize = 1024;
    let start = &bytes[..bytes.len().min(ERROR_SEARCH_BYTES)];
    start
        .windows(8)
        .enumerate()
        .find_map(|(at, window)| {
            let (length, tag) = window.split_at(4);
            let length = usize::from_str_radix(std::str::from_utf8(length).ok()?, 16).ok()?;
            let end = at.saturating_add(length).min(bytes.len());
            (tag == b"ERR ").then(|| bytes.get(at + 8..end)).flatten()
        })
        .map(|said| String::from_utf8_lossy(said).into_owned())
}

/// Whether a handshake says that the hash algorithm of objects is SHA-256.
fn is_of_sha256(bytes: &[u8]) -> bool {
    const FORMAT_CAPABILITY: &[u8] = b"object-format=sha256";
    let start = bytes.get(..HANDSHAKE_START_BYTES).unwrap_or(bytes);
    start.windows(FORMAT_CAPABILITY.len()).any(|window| window == FORMAT_CAPABILITY)
}

#[cfg(test)]
mod tests {
    use super::refusal;

    #[test]
    fn a_refusal_is_found_wherever_a_line_can_start() {
        let said = |bytes: &[u8]| refusal(bytes);
        assert_eq!(said(b"000bERR no\n").as_deref(), Some("no\n"));
        assert_eq!(
            said(b"001e# service=git-upload-pack\n0000000bERR no\nmore").as_deref(),
            Some("no\n")
        );
        assert_eq!(said(b"ffffERR cut").as_deref(), Some("cut"));
        assert_eq!(said(b"0000ERR short"), None);
        assert_eq!(said(b"an ERR in words"), None);
        assert_eq!(said(b""), None);
    }
}
