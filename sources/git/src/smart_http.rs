//! Git's smart HTTP, on windlass's HTTP client: which servers get credentials, which redirects are followed.
//!
//! Elsewhere: one request and its answer (`http_request`), the conversation (`git_connection`),
//! how a client is built ([`http_client`]) and how long it is kept (`server_cache`).

mod http_request;

use std::any::Any;
use std::io;

use gix_transport::client::blocking_io::Transport;
use gix_transport::client::blocking_io::http::{
    GetResponse, Http, PostBodyDataKind, PostResponse, Transport as HttpTransport,
};
use gix_transport::{Protocol, Service};
use http_client::{EgressRules, same_server};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use reqwest::{RequestBuilder, Response};
use url::Url;

use super::operation_limits::GitOperation;
use super::remote_url::without_userinfo;
use super::server_cache::GitServerCache;
use super::{Error, GitAuth, GitRemote};
use http_request::{
    RequestUpload, ResponseBodyReader, ResponseHeaderLines, SmartHttpExchange,
    SmartHttpRequestState, UploadKind, accepted, send,
};

/// Go's number.
const MOST_REDIRECTS: usize = 10;
/// Servers look for `git/` to distinguish a client of Git from a browser.
const AGENT: &str = concat!("git/2 (windlass/", env!("CARGO_PKG_VERSION"), ")");
/// The header by which gix knows the answer to a handshake.
const ADVERTISEMENT: &str = "content-type: application/x-git-upload-pack-advertisement";

/// A transport to a service of a remote. Nothing is sent yet.
///
/// If the server's answer to an earlier handshake is given, gix reads that answer, and no request is sent.
pub(super) fn transport(
    remote: &GitRemote,
    known: &GitServerCache,
    remembered: Option<Vec<u8>>,
    service: Service,
    wire: &GitOperation,
) -> Result<Box<dyn Transport>, Error> {
    let client = known
        .client(&remote.credentials.tls, remote.proxy.as_ref())
        .map_err(|error| Error::BadSecret(error.to_string()))?;
    let origin = remote.url.bare();
    let authorization = authorization(&client, &origin, &remote.credentials.auth)?;
    if let Some(value) = authorization.as_ref().and_then(|value| value.to_str().ok()) {
        wire.keep_secret(value.rsplit(' ').next().unwrap_or(value));
    }
    let url = gix::url::parse(origin.as_str()).map_err(|error| Error::InvalidUrl {
        url: origin.to_string(),
        reason: error.probable_cause().to_string(),
    })?;
    let base = None;
    let egress = known.egress().clone();
    let wire = wire.clone();
    let upload = match service {
        Service::UploadPack => UploadKind::Question,
        Service::ReceivePack => UploadKind::Pack,
    };
    let smart = SmartHttpTransport {
        client,
        authorization,
        origin,
        base,
        remembered,
        upload,
        egress,
        wire,
    };
    Ok(Box::new(HttpTransport::new_http(smart, url, Protocol::V2, false)))
}

/// The header with the credentials, marked as sensitive.
fn authorization(
    client: &reqwest::Client,
    origin: &Url,
    auth: &GitAuth,
) -> Result<Option<HeaderValue>, Error> {
    let request = client.get(origin.clone());
    let request = match auth {
        GitAuth::None => return Ok(None),
        GitAuth::Basic { username, password } => {
            request.basic_auth(username, Some(password.expose()))
        }
        GitAuth::Bearer(token) => request.bearer_auth(token.expose()),
        GitAuth::Ssh { .. } => {
            return Err(Error::BadSecret("an SSH key cannot be used with an http URL".to_owned()));
        }
    };
    let request = request.build().map_err(|_unusable| {
        Error::BadSecret("the credentials do not fit into a header".to_owned())
    })?;
    Ok(request.headers().get(AUTHORIZATION).cloned())
}

struct SmartHttpTransport {
    client: reqwest::Client,
    authorization: Option<HeaderValue>,
    /// The server to which the credentials belong.
    origin: Url,
    /// The URL to which a redirect led. All further requests go there.
    base: Option<String>,
    /// The known answer of the server to the first request.
    remembered: Option<Vec<u8>>,
    upload: UploadKind,
    egress: EgressRules,
    wire: GitOperation,
}

impl SmartHttpTransport {
    fn authorized(&self, request: RequestBuilder, to: &Url) -> RequestBuilder {
        match &self.authorization {
            Some(value) if same_server(&self.origin, to) => request.header(AUTHORIZATION, value),
            Some(_) | None => request,
        }
    }

    /// Sends the first request and follows redirects. Returns the answer and its URL.
    fn get_following(&self, url: &str, headers: &HeaderMap) -> io::Result<(Response, Url)> {
        let mut at = Url::parse(url).map_err(io::Error::other)?;
        for _ in 0..=MOST_REDIRECTS {
            self.egress.admits(&at).map_err(|refused| {
                let host = self.wire.host();
                let cause = refused.to_string();
                self.wire.fail(Error::Unreachable { host, cause })
            })?;
            let request = self.client.get(at.clone()).headers(headers.clone());
            let answer = send(&self.wire, self.authorized(request, &at))?;
            if !answer.status().is_redirection() {
                return Ok((accepted(&self.wire, answer)?, at));
            }
            let target = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let to = target.and_then(|to| at.join(to).ok()).map(without_userinfo);
            at = match to {
                Some(to)
                    if to.scheme() == "https"
                        || (to.scheme() == "http" && at.scheme() == "http") =>
                {
                    to
                }
                Some(to) if to.scheme() == "http" => {
                    return Err(self.refuse(&to, "it downgrades from https to http"));
                }
                Some(to) => return Err(self.refuse(&to, "it is neither http nor https")),
                None => return Err(self.refuse(&at, "it has no target")),
            };
        }
        Err(self.refuse(&at, "too many redirects"))
    }

    fn refuse(&self, to: &Url, reason: &'static str) -> io::Error {
        let to = self.wire.quote(to.as_str());
        self.wire.fail(Error::Redirected { remote: self.wire.remote(), to, reason })
    }
}

/// Header lines as gix writes them. Its `User-Agent` does not name windlass.
fn header_map(lines: impl IntoIterator<Item = impl AsRef<str>>) -> HeaderMap {
    let mut map: HeaderMap = lines
        .into_iter()
        .filter_map(|line| {
            let (name, value) = line.as_ref().split_once(':')?;
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        })
        .collect();
    map.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    map
}

impl Http for SmartHttpTransport {
    type Headers = ResponseHeaderLines;
    type ResponseBody = ResponseBodyReader;
    type PostBody = RequestUpload;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<ResponseHeaderLines, ResponseBodyReader>> {
        if let Some(advertisement) = self.remembered.take() {
            let headers = ResponseHeaderLines::remembered(ADVERTISEMENT);
            return Ok(GetResponse {
                headers,
                body: ResponseBodyReader::remembered(&self.wire, advertisement),
            });
        }
        let (answer, at) =
            self.get_following(url, &header_map(headers)).map_err(gix::Error::from_error)?;
        if at.as_str() != url {
            let tail = url.strip_prefix(base_url).unwrap_or(url);
            let base = at.as_str().strip_suffix(tail).ok_or_else(|| {
                gix::Error::from_error(self.refuse(&at, "it leaves the repository"))
            })?;
            self.base = Some(base.to_owned());
        }
        let exchange = SmartHttpExchange::new(&self.wire, SmartHttpRequestState::Answered(answer));
        Ok(GetResponse {
            headers: ResponseHeaderLines::new(&exchange),
            body: ResponseBodyReader::new(exchange),
        })
    }

    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _kind: PostBodyDataKind,
    ) -> gix::Result<PostResponse<ResponseHeaderLines, ResponseBodyReader, RequestUpload>> {
        let to = Url::parse(url).map_err(gix::Error::from_error)?;
        let request = self.client.post(to.clone()).headers(header_map(headers));
        let request = Box::new(self.authorized(request, &to));
        let prepared =
            SmartHttpRequestState::Prepared { request, body: Vec::new(), kind: self.upload };
        let exchange = SmartHttpExchange::new(&self.wire, prepared);
        Ok(PostResponse {
            post_body: RequestUpload(exchange.clone()),
            headers: ResponseHeaderLines::new(&exchange),
            body: ResponseBodyReader::new(exchange),
        })
    }

    fn configure(&mut self, _config: &dyn Any) -> gix::Result {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.base.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_stay_with_their_server() {
        let same = |a: &str, b: &str| same_server(&Url::parse(a).unwrap(), &Url::parse(b).unwrap());
        assert!(same("https://h/a", "https://h/b"));
        assert!(same("https://h/a", "https://h:443/b"));
        assert!(same("http://h/a", "https://h/a"));
        assert!(!same("https://h/a", "http://h/a"));
        assert!(!same("https://h/a", "https://h:8443/a"));
        assert!(!same("https://h/a", "https://evil.h/a"));
        assert!(!same("http://h:8080/a", "https://h:8443/a"));
    }
}
