//! Asking a chart repository over HTTP: for its index, and for the archive of a chart.
//!
//! Here: addresses, redirects, who sees credentials, limits. Elsewhere: what is in an index ([`super::index`]), what is
//! remembered of one ([`super::cache`]).

use std::fmt;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use sha2::{Digest as _, Sha256};
use url::{Host, Url};

use objects::Redacted;

use super::{Credentials, MAX_CHART, MAX_INDEX};
use crate::archive::{Digesting, Sealed};
use crate::git::percent_decoded;
use crate::http::budget::SendError;
use crate::http::{self, Budgets, Busy, Egress, Trust, root_cause};

/// Redirects in one answer. Parity(go).
const MOST_REDIRECTS: usize = 10;

/// Longest text of a server's that is remembered.
const LONGEST_VALIDATOR: usize = 1024;

/// A repository, and how it is spoken to.
pub struct Repository {
    /// Ends with a slash; has no credentials in it.
    url: Url,
    basic: Option<(String, Redacted<String>)>,
    pass_credentials: bool,
    /// For the repository's own host.
    own: reqwest::Client,
    /// For others; does not show who we are.
    others: reqwest::Client,
    timeout: Duration,
    budgets: Arc<Budgets>,
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Repository({})", shown(&self.url))
    }
}

/// What a server said of an answer, to be asked with again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators {
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub modified: Option<String>,
}

/// What a repository answered when it was asked for its index.
#[derive(Debug)]
pub enum Answer {
    /// It is the one that the validators are of.
    Unchanged,
    /// It is this one.
    Index {
        /// A file without a name, at its beginning.
        file: File,
        /// Digest and size of it.
        sealed: Sealed,
        /// What to ask with the next time.
        validators: Validators,
    },
}

/// Why a repository cannot be used. URLs are without user, password and query.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is none of a repository.
    #[error("`{url}` cannot be the address of a chart repository: {why}")]
    BadUrl {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The Secret has something that cannot be used.
    #[error(transparent)]
    Client(#[from] http::Error),
    /// The server was not reached, or stopped answering.
    #[error("cannot fetch `{url}`: {why}")]
    NoAnswer {
        /// What was asked for.
        url: String,
        /// What is at the bottom of it.
        why: String,
    },
    /// The server is left alone, since it asked for that.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The server wants to know who asks, or does not like who does.
    #[error("cannot fetch `{url}`: the server answers with status {status}; check the credentials")]
    Unauthorized {
        /// What was asked for.
        url: String,
        /// 401 or 403.
        status: u16,
    },
    /// The server has something else to say.
    #[error("cannot fetch `{url}`: the server answers with status {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// The server sends elsewhere too often, or to where nobody goes.
    #[error("`{url}` leads to {target}, which is not followed: {why}")]
    Redirect {
        /// What was asked for.
        url: String,
        /// Where it leads.
        target: String,
        /// Why it is not followed.
        why: &'static str,
    },
    /// It does not end where it should.
    #[error("`{url}` has more than {limit} bytes")]
    TooLarge {
        /// Where it is.
        url: String,
        /// The most that is read.
        limit: u64,
    },
    /// It took longer than it may.
    #[error("`{url}` could not be fetched within {limit:?}")]
    TooSlow {
        /// Where it is.
        url: String,
        /// The longest time.
        limit: Duration,
    },
    /// The archive is not the one that the index speaks of.
    #[error("`{url}` has digest `{found}`, but the index says `{expected}`")]
    Mismatch {
        /// Where it is.
        url: String,
        /// What the index says.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The disk refused to hold it meanwhile.
    #[error("cannot keep `{url}` in a temporary file: {why}")]
    Disk {
        /// Where it is.
        url: String,
        /// Why it failed.
        why: String,
    },
}

/// The address of a repository as it is compared with others: with one slash at its end.
///
/// # Errors
/// [`Error::BadUrl`]: it is none, or neither `http` nor `https`.
pub fn normalized(text: &str) -> Result<Url, Error> {
    let bad = |why: &str| Error::BadUrl { url: told(text), why: why.to_owned() };
    let mut url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("it must start with http:// or https://"));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(bad("it names no host"));
    }
    let path = format!("{}/", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url.set_fragment(None);
    Ok(url)
}

/// An address that may be shown, of a text that may be none.
fn told(text: &str) -> String {
    Url::parse(text).map_or_else(|_| "the URL".to_owned(), |url| shown(&url))
}

/// A URL without what may be a credential.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for URLs without a host.
    let _: Result<(), ()> = url.set_password(None);
    let _: Result<(), ()> = url.set_username("");
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

impl Repository {
    /// A repository at an address; user and password in it stand in for those that `credentials` lack.
    ///
    /// With `pass_credentials` they, and a client certificate, are also for other hosts that the index names.
    ///
    /// # Errors
    /// [`Error::BadUrl`], or [`Error::Client`] for certificates that cannot be used.
    pub fn new(
        url: &str,
        credentials: Credentials,
        pass_credentials: bool,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let mut url = normalized(url)?;
        let in_url = Some(percent_decoded(url.username())).filter(|user| !user.is_empty());
        let password = url.password().map(percent_decoded).unwrap_or_default();
        let in_url = in_url.map(|user| (user, Redacted::new(password)));
        // Both fail only for URLs without a host.
        let _: Result<(), ()> = url.set_password(None);
        let _: Result<(), ()> = url.set_username("");
        let Credentials { basic, mut tls } = credentials;
        // Parity(flux): here the authorities of a Secret are trusted beside those of the system.
        let own = http::client_trusting(&tls, Trust::Beside, None, Egress::BeyondLink)?;
        if !pass_credentials {
            tls.identity = None;
        }
        let others = http::client_trusting(&tls, Trust::Beside, None, Egress::BeyondLink)?;
        Ok(Self {
            url,
            basic: basic.or(in_url),
            pass_credentials,
            own,
            others,
            timeout,
            budgets: Arc::default(),
        })
    }

    /// With budgets that others use too.
    #[must_use]
    pub fn sharing(self, budgets: Arc<Budgets>) -> Self {
        Self { budgets, ..self }
    }

    /// The address, without credentials; it ends with a slash.
    pub fn url(&self) -> String {
        shown(&self.url)
    }

    /// Fetches the index, unless it is still the one that `since` is of.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn index(&self, since: Option<&Validators>) -> Result<Answer, Error> {
        let mut url = self.url.clone();
        url.set_path(&format!("{}index.yaml", self.url.path()));
        let mut headers = HeaderMap::new();
        let mut ask = |name: HeaderName, value: Option<&String>| {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(name, value);
            }
        };
        ask(header::IF_NONE_MATCH, since.and_then(|since| since.etag.as_ref()));
        ask(header::IF_MODIFIED_SINCE, since.and_then(|since| since.modified.as_ref()));
        let url_shown = shown(&url);
        let fetching = async {
            let mut answer = self.get(url, headers, since.is_some()).await?;
            if answer.status() == StatusCode::NOT_MODIFIED {
                return Ok(Answer::Unchanged);
            }
            let validator = |name: HeaderName| {
                let value = answer.headers().get(name)?.to_str().ok()?;
                (value.len() <= LONGEST_VALIDATOR).then(|| value.to_owned())
            };
            let validators = Validators {
                etag: validator(header::ETAG),
                modified: validator(header::LAST_MODIFIED),
            };
            let disk = |error: std::io::Error| Error::Disk {
                url: url_shown.clone(),
                why: error.to_string(),
            };
            let mut out = Digesting::new(tempfile::tempfile().map_err(disk)?);
            let mut left = Left { url: &url_shown, limit: MAX_INDEX, taken: 0 };
            while let Some(chunk) = left.chunk(&mut answer).await? {
                out.write_all(&chunk).map_err(disk)?;
            }
            let (mut file, sealed) = out.finish();
            file.rewind().map_err(disk)?;
            Ok(Answer::Index { file, sealed, validators })
        };
        self.in_time(&url_shown, fetching).await
    }

    /// Fetches the archive of a chart from where the index says that it is.
    ///
    /// `digest` is SHA-256 in hexadecimal digits. Differs(flux): there nobody compares it.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn chart(&self, reference: &str, digest: Option<&str>) -> Result<Vec<u8>, Error> {
        let url = self.resolve(reference)?;
        let url_shown = shown(&url);
        let fetching = async {
            // Some servers compress archives once more.
            let identity = (header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            let mut answer = self.get(url, HeaderMap::from_iter([identity]), false).await?;
            let mut left = Left { url: &url_shown, limit: MAX_CHART, taken: 0 };
            let mut archive = Vec::new();
            while let Some(chunk) = left.chunk(&mut answer).await? {
                archive.extend_from_slice(&chunk);
            }
            Ok(archive)
        };
        let archive = self.in_time(&url_shown, fetching).await?;
        let found = hex::encode(Sha256::digest(&archive));
        match digest {
            Some(expected) if !expected.eq_ignore_ascii_case(&found) => {
                Err(Error::Mismatch { url: url_shown, expected: expected.to_owned(), found })
            }
            _ => Ok(archive),
        }
    }

    /// Where a reference of the index leads: by itself, or from the repository on, with its query.
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

    async fn in_time<T>(
        &self,
        url: &str,
        fetching: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let slow = || Error::TooSlow { url: url.to_owned(), limit: self.timeout };
        tokio::time::timeout(self.timeout, fetching).await.map_err(|_| slow())?
    }

    /// Asks, and follows redirects.
    async fn get(&self, url: Url, headers: HeaderMap, known: bool) -> Result<Response, Error> {
        let first = shown(&url);
        let start = url.clone();
        let mut url = url;
        for _ in 0..=MOST_REDIRECTS {
            if is_same_host(&url, &self.url) {
                Egress::BeyondLink.admits(&url).map_err(|refused| Error::NoAnswer {
                    url: shown(&url),
                    why: refused.to_string(),
                })?;
            } else {
                self.admit(&first, &url)?;
            }
            let answer = self.send(&url, &start, headers.clone()).await?;
            let status = answer.status();
            let location = answer.headers().get(header::LOCATION);
            let location = location.filter(|_| status.is_redirection());
            match location.map(|location| location.to_str().ok().and_then(|it| url.join(it).ok())) {
                Some(Some(next)) => url = next,
                Some(None) => {
                    let target = "an address that is none".to_owned();
                    return Err(Error::Redirect { url: first, target, why: "it is no URL" });
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
        Err(Error::Redirect { url: first, target, why: "there were too many redirects before" })
    }

    /// Whether somebody else may be asked: whoever writes an index or a redirect is not whoever runs this program.
    fn admit(&self, first: &str, url: &Url) -> Result<(), Error> {
        let refused = |why| Error::Redirect {
            url: first.to_owned(),
            target: format!("`{}`", shown(url)),
            why,
        };
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused("it is neither http nor https"));
        }
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => match address.to_ipv4_mapped() {
                Some(address) => IpAddr::V4(address),
                None => IpAddr::V6(address),
            },
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        if is_link_local {
            return Err(refused("link-local addresses are not asked"));
        }
        Ok(())
    }

    /// The one place where anything is sent.
    ///
    /// Credentials go to the repository's own scheme, host and port, and with `pass_credentials` to those of the URL that
    /// the index names, but not to where a redirect leads.
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

fn is_same_host(a: &Url, b: &Url) -> bool {
    let of = |url: &Url| {
        let host = url.host_str().map(str::to_owned);
        (url.scheme().to_owned(), host, url.port_or_known_default())
    };
    of(a) == of(b)
}

/// Counts the bytes of an answer.
struct Left<'u> {
    url: &'u str,
    limit: u64,
    taken: u64,
}

impl Left<'_> {
    async fn chunk(&mut self, answer: &mut Response) -> Result<Option<bytes::Bytes>, Error> {
        let url = || self.url.to_owned();
        let chunk = answer.chunk().await.map_err(|error| Error::NoAnswer {
            url: url(),
            why: root_cause(&error.without_url()),
        })?;
        self.taken += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        if self.taken > self.limit {
            return Err(Error::TooLarge { url: url(), limit: self.limit });
        }
        Ok(chunk)
    }
}

#[cfg(test)]
mod tests;
