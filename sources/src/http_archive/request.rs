//! One request and its response: conditions, redirects, credentials, limits.

use std::fs::File;
use std::io::{Seek as _, Write as _};

use artifacts::archive::DigestingWriter;
use git::GitAuth;
use http_client::host_budget::{self, SendError};
use http_client::{
    EgressRules, HostBudgets, HttpClientCache, is_distrust, root_cause, same_server,
};
use objects::RedactedValue;
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    LAST_MODIFIED, LOCATION,
};
use reqwest::{RequestBuilder, StatusCode};
use url::Url;

use super::{
    ArchiveEtagAndLastModified, DownloadedFile, Error, HttpArchiveFetchResult, RemoteHttpArchive,
};

/// Go's number.
const MOST_REDIRECTS: usize = 10;
/// The longest validator that is stored.
const LONGEST_VALIDATOR: usize = 1024;

/// Requests a file. With validators, the server sends the file only if it has changed.
///
/// # Guarantees
/// Credentials are only sent to the server of the URL. Redirects stay within HTTP, never leave TLS, and are ten at most. The
/// result is complete, within the limits, and has the expected digest.
///
/// # Errors
/// The reason why there is no result. [`Error::Busy`] has the time for the next attempt.
pub async fn ask(
    remote: &RemoteHttpArchive,
    validators: Option<&ArchiveEtagAndLastModified>,
    clients: &HttpClientCache,
    budgets: &HostBudgets,
) -> Result<HttpArchiveFetchResult, Error> {
    let url = remote.url.to_string();
    let client = clients.client(&remote.tls, remote.proxy.as_ref())?;
    let asking =
        HttpArchiveRequest { remote, client, egress: clients.egress().clone(), budgets, url: &url };
    let limit = remote.limits.time;
    let answer = tokio::time::timeout(limit, asking.run(validators)).await;
    answer.unwrap_or(Err(Error::TooSlow { url, limit }))
}

struct HttpArchiveRequest<'a> {
    remote: &'a RemoteHttpArchive,
    client: reqwest::Client,
    egress: EgressRules,
    budgets: &'a HostBudgets,
    /// The URL as errors show it.
    url: &'a str,
}

impl HttpArchiveRequest<'_> {
    fn url(&self) -> String {
        self.url.to_owned()
    }

    fn unreachable(&self, error: &reqwest::Error) -> Error {
        let cause = root_cause(error);
        let why = match &self.remote.proxy {
            _ if is_distrust(error) => format!(
                "its certificate is not trusted: {cause}; add its CA as `ca.crt` to the Secret of spec.certSecretRef"
            ),
            Some(proxy) => format!("{cause}, through the proxy {proxy}"),
            None => cause,
        };
        Error::Unreachable { url: self.url(), why }
    }

    async fn run(
        &self,
        validators: Option<&ArchiveEtagAndLastModified>,
    ) -> Result<HttpArchiveFetchResult, Error> {
        let validators = validators.filter(|validators| !validators.is_empty());
        let answer = self.follow(validators).await?;
        let status = answer.status();
        match status {
            StatusCode::OK => self.download(answer).await.map(HttpArchiveFetchResult::Found),
            StatusCode::NOT_MODIFIED if validators.is_some() => {
                Ok(HttpArchiveFetchResult::Unchanged)
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(Error::AuthenticationFailed { url: self.url(), status: status.as_u16() })
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                answer.check()?;
                Err(Error::Status { url: self.url(), status: status.as_u16() })
            }
            status => Err(Error::Status { url: self.url(), status: status.as_u16() }),
        }
    }

    fn request(&self, at: &Url, validators: Option<&ArchiveEtagAndLastModified>) -> RequestBuilder {
        // The request disables content encoding, because a server's compression would change the bytes that the digest covers.
        let mut request = self.client.get(at.clone()).header(ACCEPT_ENCODING, "identity");
        if let Some(ArchiveEtagAndLastModified { etag, last_modified }) = validators {
            let conditions = [(IF_NONE_MATCH, etag), (IF_MODIFIED_SINCE, last_modified)];
            for (name, value) in conditions {
                if let Some(value) = value {
                    request = request.header(name, value);
                }
            }
        }
        if !same_server(&self.remote.url, at) {
            return request;
        }
        match &self.remote.auth {
            GitAuth::Basic { username, password } => {
                request.basic_auth(username, Some(password.expose()))
            }
            GitAuth::Bearer(token) => request.bearer_auth(RedactedValue::expose(token)),
            GitAuth::None | GitAuth::Ssh { .. } => request,
        }
    }

    async fn follow(
        &self,
        validators: Option<&ArchiveEtagAndLastModified>,
    ) -> Result<host_budget::ResponseWithHostPermit, Error> {
        let mut at = self.remote.url.clone();
        self.egress
            .admits(&at)
            .map_err(|refused| Error::Unreachable { url: self.url(), why: refused.to_string() })?;
        for _ in 0..=MOST_REDIRECTS {
            let sent = self.budgets.send(self.request(&at, validators)).await;
            let answer = sent.map_err(|error| match error {
                SendError::Busy(busy) => Error::Busy(busy),
                SendError::Transport(error) => self.unreachable(&error),
            })?;
            let is_redirect = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            let target = answer.headers().get(LOCATION).filter(|_| is_redirect);
            let Some(target) = target else { return Ok(answer) };
            at = self.next(&at, &String::from_utf8_lossy(target.as_bytes()))?;
        }
        Err(self.astray(&at, "too many redirects".to_owned()))
    }

    /// The target of a redirect.
    fn next(&self, at: &Url, target: &str) -> Result<Url, Error> {
        let Ok(mut to) = at.join(target) else {
            return Err(Error::Redirected {
                url: self.url(),
                to: "an invalid URL".to_owned(),
                why: "it is not a URL".to_owned(),
            });
        };
        match (at.scheme(), to.scheme()) {
            ("http" | "https", "https") | ("http", "http") => {}
            ("https", "http") => {
                return Err(self.astray(&to, "it downgrades from https to http".to_owned()));
            }
            _ => return Err(self.astray(&to, "only http:// and https:// are supported".to_owned())),
        }
        // Both fail only for URLs without a host.
        let _: Result<(), ()> = to.set_password(None);
        let _: Result<(), ()> = to.set_username("");
        self.egress.admits(&to).map_err(|refused| self.astray(&to, refused.to_string()))?;
        Ok(to)
    }

    fn astray(&self, to: &Url, why: String) -> Error {
        let to = format!("`{}://{}`", to.scheme(), to.host_str().unwrap_or_default());
        Error::Redirected { url: self.url(), to, why }
    }

    async fn download(
        &self,
        mut answer: host_budget::ResponseWithHostPermit,
    ) -> Result<DownloadedFile, Error> {
        let disk = |error: std::io::Error| Error::Disk { url: self.url(), why: error.to_string() };
        let limit = self.remote.limits.bytes;
        let validators = ArchiveEtagAndLastModified {
            etag: validator(answer.headers(), &ETAG),
            last_modified: validator(answer.headers(), &LAST_MODIFIED),
        };
        let content_type = answer.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let content_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default();
        let content_type = content_type.trim().to_ascii_lowercase();
        let is_too_large = |bytes: u64| bytes > limit;
        if answer.content_length().is_some_and(is_too_large) {
            return Err(Error::TooLarge { url: self.url(), limit });
        }
        let mut received = 0;
        let mut out = DigestingWriter::new(tempfile::tempfile().map_err(disk)?);
        loop {
            let chunk = answer.chunk().await.map_err(|e| self.unreachable(&e.without_url()))?;
            let Some(chunk) = chunk else { break };
            received += chunk.len() as u64;
            if is_too_large(received) {
                return Err(Error::TooLarge { url: self.url(), limit });
            }
            out.write_all(&chunk).map_err(disk)?;
        }
        let (mut file, sealed): (File, _) = out.finish();
        if let Some(expected) = self.remote.digest.clone().filter(|it| *it != sealed.digest) {
            return Err(Error::Mismatch { url: self.url(), expected });
        }
        file.rewind().map_err(disk)?;
        let name = self.remote.url.path_segments().and_then(|mut parts| parts.next_back());
        let name = name.unwrap_or_default().to_owned();
        let digest = sealed.digest;
        let shown = self.url();
        Ok(DownloadedFile { file, digest, validators, content_type, name, shown })
    }
}

/// The target of a redirect from `at`.
#[cfg(test)]
pub(super) fn next_for_tests(
    remote: &RemoteHttpArchive,
    client: reqwest::Client,
    budgets: &HostBudgets,
    at: &Url,
    target: &str,
) -> Result<Url, Error> {
    let url = remote.url.to_string();
    HttpArchiveRequest { remote, client, egress: EgressRules::with_loopback(), budgets, url: &url }
        .next(at, target)
}

fn validator(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    (!value.is_empty() && value.len() <= LONGEST_VALIDATOR).then(|| value.to_owned())
}
