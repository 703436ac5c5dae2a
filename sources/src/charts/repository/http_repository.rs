//! A repository on a web server.
//!
//! Here: redirects, and which servers get credentials. Elsewhere: reading the response within limits ([`super`]).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use http_client::host_budget::SendError;
use http_client::{HostBudgets, TlsConfig, TlsTrust, percent_decoded, root_cause};
use objects::RedactedValue;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use url::Url;

use super::{
    ChartFetchResult, ChartIndexFetchResult, ChartRepositoryClients, ChartRepositoryCredentials,
    Error, HttpEtagAndLastModified, INDEX, ResponseChunks, in_time, receive_chart, receive_index,
    shown, validator,
};

/// Redirects in one answer. Parity(go).
const MOST_REDIRECTS: usize = 10;

/// A Helm chart repository on a web server. Other hosts get its client certificate only if the spec passes
/// credentials to them.
pub(super) struct HttpChartRepository {
    /// The URL. It ends with a slash and contains no credentials.
    url: Url,
    basic: Option<(String, RedactedValue<String>)>,
    pass_credentials: bool,
    /// The client for the repository's own host.
    own: reqwest::Client,
    /// The client for other servers, without the client certificate.
    others: reqwest::Client,
    timeout: Duration,
    budgets: Arc<HostBudgets>,
}

impl fmt::Debug for HttpChartRepository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Web({})", shown(&self.url))
    }
}

impl HttpChartRepository {
    /// Opens a repository over HTTP; see [`super::Repository::new`].
    pub(super) fn new(
        mut url: Url,
        credentials: ChartRepositoryCredentials,
        pass_credentials: bool,
        timeout: Duration,
        reach: &ChartRepositoryClients,
    ) -> Result<Self, Error> {
        let in_url = Some(percent_decoded(url.username())).filter(|user| !user.is_empty());
        let password = url.password().map(percent_decoded).unwrap_or_default();
        let in_url = in_url.map(|user| (user, RedactedValue::new(password)));
        // Both fail only for URLs without a host.
        let _: Result<(), ()> = url.set_password(None);
        let _: Result<(), ()> = url.set_username("");
        let ChartRepositoryCredentials { basic, tls, bucket: _ } = credentials;
        let basic = basic.or(in_url);
        // Parity(flux): here the authorities of a Secret are trusted beside those of the system.
        let client = |tls: &TlsConfig| reach.clients.client_trusting(tls, TlsTrust::Beside, None);
        let own = client(&tls)?;
        let others = match &tls.identity {
            Some(_) if !pass_credentials => client(&TlsConfig { identity: None, ..tls })?,
            Some(_) | None => own.clone(),
        };
        let budgets = reach.budgets.clone();
        Ok(Self { url, basic, pass_credentials, own, others, timeout, budgets })
    }

    /// The URL without credentials. It ends with a slash.
    pub(super) fn url(&self) -> String {
        shown(&self.url)
    }

    pub(super) async fn index(
        &self,
        since: Option<&HttpEtagAndLastModified>,
    ) -> Result<ChartIndexFetchResult, Error> {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{INDEX}", self.url.path()));
        let headers = conditions(since);
        let url_shown = shown(&url);
        let fetching = async {
            let answer = self.get(url, headers, since.is_some()).await?;
            if answer.status() == StatusCode::NOT_MODIFIED {
                return Ok(ChartIndexFetchResult::Unchanged);
            }
            let validators = validators(&answer);
            receive_index(&url_shown, chunks(&url_shown, answer), validators).await
        };
        in_time(&url_shown, self.timeout, fetching).await
    }

    pub(super) async fn chart(
        &self,
        reference: &str,
        digest: Option<&str>,
    ) -> Result<Vec<u8>, Error> {
        match self.chart_since(reference, digest, None).await? {
            ChartFetchResult::Archive { bytes, .. } => Ok(bytes),
            // `get` takes this status for an error where no validators were sent.
            ChartFetchResult::Unchanged => Err(Error::NoAnswer {
                url: self.url(),
                why: "the server answers that the archive is unchanged".to_owned(),
            }),
        }
    }

    pub(super) async fn chart_since(
        &self,
        reference: &str,
        digest: Option<&str>,
        since: Option<&HttpEtagAndLastModified>,
    ) -> Result<ChartFetchResult, Error> {
        let url = self.resolve(reference)?;
        let url_shown = shown(&url);
        let mut headers = conditions(since);
        // Some servers compress archives once more.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let fetching = async {
            let answer = self.get(url, headers, since.is_some()).await?;
            if answer.status() == StatusCode::NOT_MODIFIED {
                return Ok(ChartFetchResult::Unchanged);
            }
            let validators = validators(&answer);
            let bytes = receive_chart(&url_shown, chunks(&url_shown, answer), digest).await?;
            Ok(ChartFetchResult::Archive { bytes, validators })
        };
        in_time(&url_shown, self.timeout, fetching).await
    }

    /// Resolves a reference of the index. An absolute URL stays, and others are relative to the repository, with its query.
    fn resolve(&self, reference: &str) -> Result<Url, Error> {
        let bad = |error: url::ParseError| Error::BadUrl {
            url: "the chart's URL in the index".to_owned(),
            why: error.to_string(),
        };
        let mut url = match Url::parse(reference) {
            Ok(absolute) => return Ok(absolute),
            Err(url::ParseError::RelativeUrlWithoutBase) => {
                self.url.join(reference).map_err(bad)?
            }
            Err(error) => return Err(bad(error)),
        };
        url.set_query(self.url.query());
        Ok(url)
    }

    /// Sends a request, follows redirects and returns the response.
    async fn get(&self, url: Url, headers: HeaderMap, known: bool) -> Result<Response, Error> {
        let first = shown(&url);
        let start = url.clone();
        let mut url = url;
        for _ in 0..=MOST_REDIRECTS {
            if !is_same_host(&url, &self.url) {
                self.admit(&first, &url)?;
            }
            self.budgets.egress().admits(&url).map_err(|refused| Error::NoAnswer {
                url: shown(&url),
                why: refused.to_string(),
            })?;
            let answer = self.send(&url, &start, headers.clone()).await?;
            let status = answer.status();
            let location = answer.headers().get(header::LOCATION);
            let location = location.filter(|_| status.is_redirection());
            match location.map(|location| location.to_str().ok().and_then(|it| url.join(it).ok())) {
                Some(Some(next)) => url = next,
                Some(None) => {
                    let target = "an invalid URL".to_owned();
                    return Err(Error::Redirect { url: first, target, why: "it is not a URL" });
                }
                None if status.is_success() => return Ok(answer),
                None if known && status == StatusCode::NOT_MODIFIED => return Ok(answer),
                None if matches!(status.as_u16(), 401 | 403) => {
                    return Err(Error::Unauthorized { url: shown(&url), status: status.as_u16() });
                }
                None => {
                    if matches!(status.as_u16(), 429 | 503) {
                        self.budgets.check(&url)?;
                    }
                    return Err(Error::Status { url: shown(&url), status: status.as_u16() });
                }
            }
        }
        let target = format!("`{}`", shown(&url));
        Err(Error::Redirect { url: first, target, why: "too many redirects" })
    }

    /// Checks whether a redirect or a URL of an index may be followed. Their author is not the administrator of this program.
    fn admit(&self, first: &str, url: &Url) -> Result<(), Error> {
        let refused = |why| Error::Redirect {
            url: first.to_owned(),
            target: format!("`{}`", shown(url)),
            why,
        };
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused("it is neither http nor https"));
        }
        Ok(())
    }

    /// Sends a request. No other function sends requests to the repository.
    ///
    /// Credentials are sent to the repository's own scheme, host and port. With `pass_credentials` they are also sent to the
    /// server of a URL in the index. They are not sent to the target of a redirect.
    async fn send(&self, url: &Url, start: &Url, headers: HeaderMap) -> Result<Response, Error> {
        let is_own = is_same_host(url, &self.url);
        let is_trusted = is_own || (self.pass_credentials && is_same_host(url, start));
        let client = if is_trusted { &self.own } else { &self.others };
        let unanswered = |error: reqwest::Error| Error::NoAnswer {
            url: shown(url),
            why: root_cause(&error.without_url()),
        };
        let mut request = client.request(Method::GET, url.clone()).headers(headers);
        if let Some((username, password)) = self.basic.as_ref().filter(|_| is_trusted) {
            request = request.basic_auth(username, Some(password.expose()));
        }
        let request = request.build().map_err(unanswered)?;
        self.budgets.execute(client, request).await.map_err(|error| match error {
            SendError::Busy(busy) => Error::Busy(busy),
            SendError::Transport(error) => unanswered(error),
        })
    }
}

/// The headers of a conditional request with these validators.
fn conditions(since: Option<&HttpEtagAndLastModified>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut ask = |name: HeaderName, value: Option<&String>| {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    };
    ask(header::IF_NONE_MATCH, since.and_then(|since| since.etag.as_ref()));
    ask(header::IF_MODIFIED_SINCE, since.and_then(|since| since.modified.as_ref()));
    headers
}

/// The validators for the next request.
fn validators(answer: &Response) -> HttpEtagAndLastModified {
    let said = |name: HeaderName| validator(answer.headers().get(name)?.to_str().ok()?);
    HttpEtagAndLastModified { etag: said(header::ETAG), modified: said(header::LAST_MODIFIED) }
}

fn is_same_host(a: &Url, b: &Url) -> bool {
    let of = |url: &Url| {
        let host = url.host_str().map(str::to_owned);
        (url.scheme().to_owned(), host, url.port_or_known_default())
    };
    of(a) == of(b)
}

/// The bytes of an answer.
fn chunks(url: &str, answer: Response) -> ResponseChunks<'_> {
    let broken = move |error: reqwest::Error| Error::NoAnswer {
        url: url.to_owned(),
        why: root_cause(&error.without_url()),
    };
    answer.bytes_stream().map_err(broken).boxed()
}
