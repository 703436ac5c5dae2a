//! One HTTP request and its response, as gix reads them: lines of headers, then a body. Each is read when gix first asks for
//! it.

use std::io::{self, BufRead, Read, Write};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Response, StatusCode};

use super::{Error, GitOperation};
use crate::operation_limits::HttpRequestOutcome;

/// The most bytes of a request that is not a push. Such a request has a few lines.
const LARGEST_QUESTION: usize = 16 << 20;
/// The most bytes of commands and a pack of new objects. The limits of a workspace are lower.
const LARGEST_PUSH: usize = 256 << 20;
/// The most bytes of an answer's rest that are read to keep its connection, and the time for it.
const LARGEST_REST: usize = 64 << 10;
const LONGEST_REST: Duration = Duration::from_secs(1);
/// Git's content type for the report on a push.
const REPORT_TYPE: &str = "application/x-git-receive-pack-result";

/// Sends a request, and once more if its connection was closed under it.
///
/// The server may close an idle connection just when it is used again. Only a request that reads may be repeated: a
/// push may have been accepted.
pub(super) fn send(wire: &GitOperation, request: RequestBuilder) -> io::Result<Response> {
    let again = request.try_clone();
    let answer = match (wire.send(request)?, again) {
        (HttpRequestOutcome::Failed(error), Some(again)) if was_closed(&error) => {
            wire.send(again)?
        }
        (answer, _) => answer,
    };
    answered(wire, answer)
}

fn answered(wire: &GitOperation, answer: HttpRequestOutcome) -> io::Result<Response> {
    match answer {
        HttpRequestOutcome::Response(response) => Ok(response),
        HttpRequestOutcome::Failed(error) => Err(broken(wire, error)),
    }
}

/// Whether the other side closed the connection before it answered anything.
fn was_closed(error: &reqwest::Error) -> bool {
    let cause = http_client::root_cause(error);
    error.is_request()
        && !error.is_connect()
        && (cause.contains("connection closed before message completed")
            || cause.contains("Connection reset by peer")
            || cause.contains("Broken pipe"))
}

fn broken(wire: &GitOperation, error: reqwest::Error) -> io::Error {
    let error = error.without_url();
    let host = wire.host();
    let cause = wire.quote(&http_client::root_cause(&error));
    wire.fail(match wire.proxy() {
        _ if http_client::is_distrust(&error) => Error::Untrusted { host, cause },
        Some(proxy) if http_client::is_refusal_of_proxy(&cause) => {
            Error::ProxyRefused { proxy, cause }
        }
        Some(proxy) => {
            Error::Unreachable { host: format!("{host} through the proxy {proxy}"), cause }
        }
        None => Error::Unreachable { host, cause },
    })
}

/// Accepts a response of Git; any other is an error.
pub(super) fn accepted(wire: &GitOperation, answer: Response) -> io::Result<Response> {
    let status = answer.status();
    let remote = wire.remote();
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        wire.check_host().map_err(|busy| wire.fail(busy))?;
    }
    let cause = format!("HTTP status {status}");
    Err(wire.fail(match status {
        StatusCode::OK => return Ok(answer),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Error::AuthenticationFailed { remote, cause }
        }
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => match wire.proxy() {
            Some(proxy) => Error::ProxyRefused { proxy, cause },
            None => Error::AuthenticationFailed { remote, cause },
        },
        StatusCode::NOT_FOUND | StatusCode::GONE => Error::RepositoryNotFound { remote },
        StatusCode::TOO_MANY_REQUESTS => Error::Unavailable { remote, cause },
        // Git's program only answers with 200. With another success status, a server accepted the request without giving it to
        // that program.
        status if status.is_success() => {
            let message = format!("it responded with {cause} instead of 200");
            Error::Refused { remote, message }
        }
        status if status.is_server_error() => Error::Unavailable { remote, cause },
        _ => Error::Refused { remote, message: cause },
    }))
}

/// One request and its answer. The written bytes are collected, and sent when the answer is first read.
#[derive(Clone)]
pub(super) struct SmartHttpExchange {
    wire: GitOperation,
    flight: Arc<Mutex<SmartHttpRequestState>>,
}

/// Whether an uploaded request only reads or pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UploadKind {
    /// A request that reads. It may be repeated.
    Question,
    /// A push, which is sent once.
    Pack,
}

impl UploadKind {
    fn largest(self) -> usize {
        match self {
            Self::Question => LARGEST_QUESTION,
            Self::Pack => LARGEST_PUSH,
        }
    }

    fn send(self, wire: &GitOperation, request: RequestBuilder) -> io::Result<Response> {
        match self {
            Self::Question => send(wire, request),
            Self::Pack => answered(wire, wire.send(request)?),
        }
    }

    /// Checks that an accepted answer to a push is a report. If it is a login page, for instance, nothing was pushed.
    ///
    /// gix checks the answers to other requests.
    fn check_type(self, wire: &GitOperation, answer: &Response) -> io::Result<()> {
        let given = answer.headers().get(CONTENT_TYPE).and_then(|given| given.to_str().ok());
        let given = given.unwrap_or_default().trim();
        if self == Self::Question || given == REPORT_TYPE {
            return Ok(());
        }
        let message =
            wire.quote(&format!("it responded with `{given}` instead of a report on the push"));
        Err(wire.fail(Error::Refused { remote: wire.remote(), message }))
    }
}

pub(super) enum SmartHttpRequestState {
    Prepared { request: Box<RequestBuilder>, body: Vec<u8>, kind: UploadKind },
    Answered(Response),
    Over,
}

impl SmartHttpExchange {
    pub(super) fn new(wire: &GitOperation, flight: SmartHttpRequestState) -> Self {
        Self { wire: wire.clone(), flight: Arc::new(Mutex::new(flight)) }
    }

    /// Does something with the answer, after the request was sent.
    fn with_answer<T>(
        &self,
        act: impl FnOnce(&GitOperation, &mut Response) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut flight = self.flight.lock();
        let mut answer = match mem::replace(&mut *flight, SmartHttpRequestState::Over) {
            SmartHttpRequestState::Prepared { request, body, kind } => {
                let answer = accepted(&self.wire, kind.send(&self.wire, request.body(body))?)?;
                kind.check_type(&self.wire, &answer)?;
                answer
            }
            SmartHttpRequestState::Answered(answer) => answer,
            SmartHttpRequestState::Over => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        let done = act(&self.wire, &mut answer)?;
        *flight = SmartHttpRequestState::Answered(answer);
        Ok(done)
    }

    /// Reads the rest of an answer, if it is short. Only then can its connection be used again.
    fn read_out(&self) {
        let mut flight = self.flight.lock();
        let SmartHttpRequestState::Answered(mut answer) =
            mem::replace(&mut *flight, SmartHttpRequestState::Over)
        else {
            return;
        };
        if self.wire.check().is_err() {
            return;
        }
        let rest = async {
            let mut left = LARGEST_REST;
            while let Ok(Some(chunk)) = answer.chunk().await {
                if !self.wire.count(chunk.len()) {
                    break;
                }
                match left.checked_sub(chunk.len()) {
                    Some(less) => left = less,
                    None => break,
                }
            }
        };
        // If it takes too long, the connection is closed, with no other effect.
        let _kept_or_not = self.wire.wait(async { tokio::time::timeout(LONGEST_REST, rest).await });
    }
}

/// The upload of a request, as gix writes it.
pub(super) struct RequestUpload(pub(super) SmartHttpExchange);

impl Write for RequestUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut flight = self.0.flight.lock();
        match &mut *flight {
            SmartHttpRequestState::Prepared { body, kind, .. }
                if body.len() + bytes.len() <= kind.largest() =>
            {
                body.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            SmartHttpRequestState::Prepared { .. }
            | SmartHttpRequestState::Answered(_)
            | SmartHttpRequestState::Over => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The headers of an answer, one a line.
pub(super) struct ResponseHeaderLines {
    exchange: Option<SmartHttpExchange>,
    text: io::Cursor<Vec<u8>>,
}

impl ResponseHeaderLines {
    pub(super) fn new(exchange: &SmartHttpExchange) -> Self {
        Self { exchange: Some(exchange.clone()), text: io::Cursor::default() }
    }

    /// Remembered headers, without a request.
    pub(super) fn remembered(text: &str) -> Self {
        Self { exchange: None, text: io::Cursor::new(text.as_bytes().to_vec()) }
    }
}

impl BufRead for ResponseHeaderLines {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if let Some(exchange) = self.exchange.take() {
            self.text = exchange.with_answer(|_, answer| {
                let mut text = Vec::new();
                for (name, value) in answer.headers() {
                    text.extend_from_slice(name.as_str().as_bytes());
                    text.extend_from_slice(b": ");
                    // gix reads the lines as UTF-8, and needs no header that is not UTF-8.
                    text.extend_from_slice(value.to_str().unwrap_or_default().as_bytes());
                    text.push(b'\n');
                }
                Ok(io::Cursor::new(text))
            })?;
        }
        self.text.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.text.consume(amount);
    }
}

impl Read for ResponseHeaderLines {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        read_buffered(self, into)
    }
}

/// The body of an answer as it comes in.
pub(super) struct ResponseBodyReader {
    exchange: SmartHttpExchange,
    chunk: io::Cursor<Vec<u8>>,
    is_finished: bool,
}

impl ResponseBodyReader {
    pub(super) fn new(exchange: SmartHttpExchange) -> Self {
        Self { exchange, chunk: io::Cursor::default(), is_finished: false }
    }

    /// A remembered body, without a request.
    pub(super) fn remembered(wire: &GitOperation, bytes: Vec<u8>) -> Self {
        let exchange = SmartHttpExchange::new(wire, SmartHttpRequestState::Over);
        Self { exchange, chunk: io::Cursor::new(bytes), is_finished: true }
    }
}

impl Drop for ResponseBodyReader {
    fn drop(&mut self) {
        // gix stops at the end of the data that it understands, which is before the end of the body.
        if !self.is_finished {
            self.exchange.read_out();
        }
    }
}

impl BufRead for ResponseBodyReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while !self.is_finished && self.chunk.fill_buf()?.is_empty() {
            let next = self.exchange.with_answer(|wire, answer| {
                let chunk = wire.wait(answer.chunk())?.map_err(|error| broken(wire, error))?;
                wire.receive(chunk.as_deref().unwrap_or_default())?;
                Ok(chunk.map(|chunk| chunk.to_vec()))
            })?;
            self.is_finished = next.is_none();
            self.chunk = io::Cursor::new(next.unwrap_or_default());
        }
        self.chunk.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.chunk.consume(amount);
    }
}

impl Read for ResponseBodyReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        read_buffered(self, into)
    }
}

fn read_buffered(from: &mut impl BufRead, into: &mut [u8]) -> io::Result<usize> {
    let read = from.fill_buf()?.read(into)?;
    from.consume(read);
    Ok(read)
}
