//! One request and its response: TLS or plain HTTP, the credentials, and the redirects.

use http_client::host_budget::SendError;
use http_client::{EgressRules, is_distrust, root_cause};
use objects::RedactedValue;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, LOCATION};
use reqwest::{Method, Request, Response, StatusCode};
use url::Url;

use super::registry_response::shown;
use super::token::value;
use super::{Error, RegistrySession, auth_challenge};

/// Redirects of one question.
const MOST_REDIRECTS: usize = 5;

/// The reason why windlass sends no request to an address from a response of the registry. `None` if it may send one.
pub(super) fn is_off_limits(url: &Url, is_plain: bool) -> Option<&'static str> {
    if url.host().is_none() {
        return Some("it has no host");
    }
    match url.scheme() {
        _ if EgressRules::with_loopback().admits(url).is_err() => {
            Some("it is a link-local or cloud metadata address")
        }
        "https" => None,
        "http" if is_plain => None,
        "http" => Some("it downgrades from https to http"),
        _ => Some("it is neither http nor https"),
    }
}

impl RegistrySession<'_> {
    /// Sends a request. No other function sends requests of this protocol.
    pub(super) async fn execute(&self, request: Request) -> Result<Response, Error> {
        let host = request.url().host_str().map(str::to_owned);
        self.known.budgets().egress().admits(request.url()).map_err(|refused| {
            Error::Unreachable {
                registry: host.clone().unwrap_or_default(),
                cause: refused.to_string(),
            }
        })?;
        self.known.budgets().execute(&self.http, request).await.map_err(|error| match error {
            SendError::Busy(busy) => Error::Busy(busy),
            SendError::Transport(error) => self.failed(host, &error),
        })
    }

    /// The error for a failure while an answer was read.
    pub(super) fn unanswered(&self, error: &reqwest::Error) -> Error {
        self.failed(error.url().and_then(Url::host_str).map(str::to_owned), error)
    }

    fn failed(&self, host: Option<String>, error: &reqwest::Error) -> Error {
        let registry = match host {
            // Another server may have sent a token or a layer.
            Some(host) if !self.remote.repository.registry().starts_with(&host) => host,
            _ => self.remote.repository.registry().to_owned(),
        };
        let cause = shown(&root_cause(error));
        if is_distrust(error) {
            Error::Untrusted { registry, cause }
        } else {
            let cause = match &self.remote.proxy {
                Some(proxy) => format!("{cause}, through the proxy {proxy}"),
                None => cause,
            };
            Error::Unreachable { registry, cause }
        }
    }

    /// Sends a request about the repository. `path` may have a query. An answer with any status is returned.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
    ) -> Result<Response, Error> {
        let is_plain = self.is_plain().await?;
        let is_renewed = self.renewed.initialized();
        let mut answer = self.authorized(method.clone(), path, accept, is_plain).await;
        let is_refused = match &answer {
            Ok(answer) => {
                matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            }
            Err(error) => matches!(error, Error::Unauthorized { .. }),
        };
        // A cloud may revoke a login early. ECR answers 403 to a login that is too old.
        if is_refused && !is_renewed && self.renew_login(is_plain).await? {
            answer = self.authorized(method, path, accept, is_plain).await;
        }
        if matches!(answer, Err(Error::Unreachable { .. })) {
            // The server may have changed between HTTP and HTTPS.
            self.access().set_plain(None);
        }
        answer
    }

    /// The URL of a path in the repository, with the scheme as far as it is known.
    pub(super) fn url(&self, path: &str) -> Result<Url, Error> {
        self.url_by(self.access().is_plain() == Some(true), path)
    }

    fn url_by(&self, is_plain: bool, path: &str) -> Result<Url, Error> {
        let scheme = if is_plain { "http" } else { "https" };
        let repository = &self.remote.repository;
        let registry = repository.registry();
        let name = repository.path();
        let unusable =
            |_| Error::InvalidUrl { reason: format!("`{repository}` does not form a URL") };
        Url::parse(&format!("{scheme}://{registry}/v2/{name}/{path}")).map_err(unusable)
    }

    /// Whether the registry uses plain HTTP; found out once.
    ///
    /// Parity(flux): HTTPS is tried first, and HTTP only if that is allowed and the HTTPS connection fails.
    async fn is_plain(&self) -> Result<bool, Error> {
        if let Some(known) = self.access().is_plain() {
            return Ok(known);
        }
        let mut is_plain = false;
        if self.remote.insecure || self.remote.repository.is_near() {
            let mut probe = self.url_by(false, "")?;
            probe.set_path("/v2/");
            match self.execute(Request::new(Method::GET, probe)).await {
                Err(error @ (Error::Untrusted { .. } | Error::Busy(_))) => return Err(error),
                Err(_) => is_plain = true,
                Ok(_) => {}
            }
        }
        self.access().set_plain(Some(is_plain));
        Ok(is_plain)
    }

    async fn authorized(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        is_plain: bool,
    ) -> Result<Response, Error> {
        let url = self.url_by(is_plain, path)?;
        let header = self.access().authorization(self, is_plain).await?;
        let (answer, is_theirs) =
            self.follow(&method, &url, accept, header.as_ref(), is_plain).await?;
        // The target of a redirect that asks for credentials does not get those of the registry.
        if answer.status() != StatusCode::UNAUTHORIZED || !is_theirs {
            return Ok(answer);
        }
        let asks = auth_challenge::of(answer.headers());
        let renewed = self.access().after(self, is_plain, asks, header.as_ref()).await?;
        let Some(renewed) = renewed else { return Ok(answer) };
        Ok(self.follow(&method, &url, accept, Some(&renewed), is_plain).await?.0)
    }

    /// Sends a request and follows redirects. Credentials are only sent to the registry.
    ///
    /// Returns the answer, and whether it is from the registry itself.
    async fn follow(
        &self,
        method: &Method,
        url: &Url,
        accept: &'static str,
        header: Option<&RedactedValue<String>>,
        is_plain: bool,
    ) -> Result<(Response, bool), Error> {
        let home = url.origin();
        let asked = format!("{method} {}", bare(url));
        let mut url = url.clone();
        for _ in 0..=MOST_REDIRECTS {
            let is_theirs = url.origin() == home;
            let mut request = Request::new(method.clone(), url.clone());
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
            if let Some(header) = header.filter(|_| is_theirs) {
                request.headers_mut().insert(AUTHORIZATION, value(header)?);
            }
            let answer = self.execute(request).await?;
            if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok((answer, is_theirs));
            }
            let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let to = to.and_then(|to| url.join(to).ok());
            let Some(mut to) = to else {
                let reason = "its redirect is not a URL".to_owned();
                return Err(Error::Protocol { request: asked, reason });
            };
            // A name in a URL would be sent as a credential. Both calls only fail for URLs without a host.
            let _: Result<(), ()> = to.set_password(None);
            let _: Result<(), ()> = to.set_username("");
            if let Some(reason) = is_off_limits(&to, is_plain).filter(|_| to.origin() != home) {
                return Err(Error::Redirected { request: asked, to: shown(&bare(&to)), reason });
            }
            url = to;
        }
        let reason = format!("more than {MOST_REDIRECTS} redirects");
        Err(Error::Protocol { request: asked, reason })
    }
}

/// A URL without its query, which may be signed, and without credentials.
pub(super) fn bare(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let _: Result<(), ()> = url.set_password(None);
    let _: Result<(), ()> = url.set_username("");
    url.to_string()
}
