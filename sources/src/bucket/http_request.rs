//! Requests of plain HTTP protocols. It sends them with the HTTP client of all sources, retries them, and reads the responses
//! within limits.
//!
//! Elsewhere: the requests and responses of each protocol (`google`, `azure`), and the errors that they share
//! (`request_context`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt as _, future};
use http_client::HostBudgets;
use http_client::host_budget::SendError;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, Request, Response, StatusCode};
use url::Url;

use super::request_context::BucketRequestContext;
use super::{BucketServerSettings, Error};

/// The most attempts of a request if the server is too busy, and the delay before the second one.
const MAX_REQUEST_ATTEMPTS: u32 = 3;
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The largest response that is not an object. A listing of a thousand keys has a megabyte.
const LARGEST_ANSWER: usize = 16 << 20;

/// The most bytes of an error response that are read.
const LARGEST_ERROR: usize = 64 << 10;

/// The characters that are not encoded in a path, besides letters and digits.
const SEGMENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: AsciiSet = SEGMENT.remove(b'/');

/// Text as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, &SEGMENT).to_string()
}

/// Text as segments of a path, by its slashes.
pub(crate) fn path(text: &str) -> String {
    utf8_percent_encode(text, &PATH).to_string()
}

/// Whether a name contains parts that URL parsers resolve as relative folders, so that a URL would not lead to the name.
pub(crate) fn is_relative(name: &str) -> bool {
    name.is_empty() || name.split('/').any(|part| part == "." || part == "..")
}

/// The HTTP of one server.
#[derive(Debug)]
pub(super) struct BucketHttpClient {
    client: reqwest::Client,
    budgets: Arc<HostBudgets>,
    base: String,
}

impl BucketHttpClient {
    pub(super) fn new(
        server: &BucketServerSettings,
        budgets: &Arc<HostBudgets>,
    ) -> Result<Self, Error> {
        let client =
            http_client::client_undecoded(&server.tls, server.proxy.as_ref(), budgets.egress())?;
        Ok(Self { client, budgets: budgets.clone(), base: server.endpoint.url(None) })
    }

    /// A URL of the server. `path` is encoded already.
    pub(super) fn url(&self, asked: &BucketRequestContext<'_>, path: &str) -> Result<Url, Error> {
        let url = Url::parse(&format!("{}{path}", self.base));
        url.map_err(|error| asked.unreachable(error.to_string()))
    }

    /// Sends a request without a body, and again while the server answers with a temporary failure.
    pub(super) async fn send(
        &self,
        asked: &BucketRequestContext<'_>,
        method: Method,
        url: Url,
        headers: reqwest::header::HeaderMap,
    ) -> Result<Response, Error> {
        let admitted = self.budgets.egress().admits(&url);
        admitted.map_err(|refused| asked.unreachable(refused.to_string()))?;
        let mut wait = FIRST_WAIT;
        for attempt in 1..=MAX_REQUEST_ATTEMPTS {
            let mut request = Request::new(method.clone(), url.clone());
            *request.headers_mut() = headers.clone();
            let is_last = attempt == MAX_REQUEST_ATTEMPTS;
            match self.budgets.execute(&self.client, request).await {
                Ok(answer) if is_last || !passes(answer.status()) => return Ok(answer),
                Err(error) if is_last || !may_pass(&error) => return Err(asked.unanswered(error)),
                Ok(_) | Err(_) => {}
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        Err(asked.unreachable("it was aborted".to_owned()))
    }

    /// The text of an answer.
    pub(super) async fn whole(
        asked: &BucketRequestContext<'_>,
        answer: Response,
    ) -> Result<Vec<u8>, Error> {
        let mut whole = Vec::new();
        let mut body = Self::body(asked, answer);
        while let Some(chunk) = body.next().await.transpose()? {
            if whole.len() + chunk.len() > LARGEST_ANSWER {
                return Err(asked.unreadable(format!("it is larger than {LARGEST_ANSWER} bytes")));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole)
    }

    /// The beginning of an error response. Parts that cannot be read are left out.
    pub(super) async fn error(answer: Response) -> Vec<u8> {
        let mut read = Vec::new();
        let mut body = answer.bytes_stream();
        while let Some(Ok(chunk)) = body.next().await {
            let left = LARGEST_ERROR - read.len();
            read.extend(chunk.iter().take(left));
            if chunk.len() >= left {
                break;
            }
        }
        read
    }

    /// The bytes of an answer, which end with the first error.
    pub(super) fn body(
        asked: &BucketRequestContext<'_>,
        answer: Response,
    ) -> BoxStream<'static, Result<Bytes, Error>> {
        let action = asked.action.clone();
        let endpoint = asked.endpoint();
        let body = answer.bytes_stream().map(move |chunk| {
            chunk.map_err(|error| Error::Unreadable {
                action: action.clone(),
                endpoint: endpoint.clone(),
                why: http_client::root_cause(&error.without_url()),
            })
        });
        let body = body.scan(false, |has_failed, chunk| {
            let is_over = std::mem::replace(has_failed, chunk.is_err());
            future::ready((!is_over).then_some(chunk))
        });
        body.boxed()
    }
}

/// Whether an answer is another one soon.
fn passes(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

/// Whether an answer may come soon.
fn may_pass(error: &SendError) -> bool {
    match error {
        SendError::Busy(_) => false,
        SendError::Transport(error) => !http_client::is_distrust(error) && !error.is_timeout(),
    }
}
