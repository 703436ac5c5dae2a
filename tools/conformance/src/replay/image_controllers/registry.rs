//! The registry of a recorded case, on loopback.
//!
//! It answers like the registry of the recording. It has tags in pages, manifests whose digest depends on their tag,
//! and a login. It can also give the same status to every request.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, LINK, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::response::Builder;
use axum::http::{Method, Request, Response, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use sources::oci::OciDigest;

use crate::replay::case::nil;

/// The media type of all manifests.
const MANIFEST_MEDIA_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// The settings of the registry.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(super) struct RegistryAnswers {
    /// The tags of every repository, in the order of the list.
    #[serde(deserialize_with = "nil")]
    tags: Vec<String>,
    /// How many tags a page has. Without it, one page has all tags.
    page_size: Option<usize>,
    /// The credentials as `user:password`.
    basic: Option<String>,
    /// The status for every request about tags and manifests.
    status: Option<u16>,
    body: String,
    delay_ms: u64,
    /// Whether responses have no digest.
    no_digest: bool,
}

impl RegistryAnswers {
    /// The tags, if a client without credentials gets all of them in one page. Otherwise `None`.
    pub(super) fn listed(&self) -> Option<&[String]> {
        let is_plain = self.basic.is_none() && self.status.is_none() && self.page_size.is_none();
        is_plain.then_some(self.tags.as_slice())
    }

    fn is_refused(&self, authorization: Option<&str>) -> bool {
        let wanted = self.basic.as_ref().map(|it| format!("Basic {}", STANDARD.encode(it)));
        wanted.is_some() && wanted.as_deref() != authorization
    }

    /// The part of the list after the tag `last`, and the header with the next page.
    fn page<'a>(&'a self, repository: &str, query: &str) -> (&'a [String], Option<String>) {
        let Some(size) = self.page_size else { return (self.tags.as_slice(), None) };
        let last = query.split('&').find_map(|it| it.strip_prefix("last="));
        let start = last.and_then(|last| self.tags.iter().position(|tag| tag == last));
        let rest = self.tags.get(start.map_or(0, |at| at + 1)..).unwrap_or_default();
        let (page, more) = rest.split_at(size.min(rest.len()));
        let next = page.last().filter(|_| !more.is_empty());
        let next = next
            .map(|last| format!("</v2/{repository}/tags/list?last={last}&n={size}>; rel=\"next\""));
        (page, next)
    }

    fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
    ) -> Result<Response<Body>, axum::http::Error> {
        let response = Response::builder();
        if path == "/v2/" {
            return response.body(Body::from("{}"));
        }
        if let Some(status) = self.status {
            return response.status(status).body(Body::from(self.body.clone()));
        }
        let rest = path.strip_prefix("/v2/").unwrap_or(path);
        if let Some(repository) = rest.strip_suffix("/tags/list") {
            let (tags, next) = self.page(repository, query);
            let response = match next {
                Some(next) => response.header(LINK, next),
                None => response,
            };
            let list = json!({"name": repository, "tags": tags});
            return response
                .header(CONTENT_TYPE, "application/json")
                .body(Body::from(list.to_string()));
        }
        match rest.rsplit_once("/manifests/") {
            Some((_, tag)) if self.tags.iter().any(|it| it == tag) => {
                self.manifest(response, method, tag)
            }
            Some(_) | None => response.status(StatusCode::NOT_FOUND).body(Body::empty()),
        }
    }

    fn manifest(
        &self,
        response: Builder,
        method: &Method,
        tag: &str,
    ) -> Result<Response<Body>, axum::http::Error> {
        let manifest = format!("manifest of {tag}");
        let response = response
            .header(CONTENT_TYPE, MANIFEST_MEDIA_TYPE)
            .header(CONTENT_LENGTH, manifest.len());
        let digest = OciDigest::of(manifest.as_bytes()).to_string();
        let response = match self.no_digest {
            true => response,
            false => response.header("Docker-Content-Digest", digest),
        };
        response.body(if method == Method::HEAD { Body::empty() } else { Body::from(manifest) })
    }
}

/// A registry that runs as long as its runtime.
pub(super) struct FakeRegistry {
    /// The host and port.
    pub(super) address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeRegistry {
    /// # Errors
    /// No port can be had.
    pub(super) async fn start(answers: RegistryAnswers) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr().context("the registry has no address")?.to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = requests.clone();
        let handler = move |request: Request<Body>| {
            let answers = answers.clone();
            let recorded = recorded.clone();
            async move {
                let parts = request.into_parts().0;
                answered(&answers, &recorded, &parts).await
            }
        };
        let router = Router::new().fallback(handler);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, requests })
    }

    /// The requests in order, as `METHOD path?query` with the credentials.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

async fn answered(
    answers: &RegistryAnswers,
    recorded: &Mutex<Vec<String>>,
    request: &Parts,
) -> Response<Body> {
    let header = request.headers.get(AUTHORIZATION).and_then(|it| it.to_str().ok());
    let credentials = header.map(|it| format!(" Authorization: {it}")).unwrap_or_default();
    recorded.lock().push(format!("{} {}{credentials}", request.method, request.uri));
    if answers.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(answers.delay_ms)).await;
    }
    let answer = if answers.is_refused(header) {
        let problem = json!({"errors":
            [{"code": "UNAUTHORIZED", "message": "authentication required"}]});
        Response::builder()
            .status(StatusCode::UNAUTHORIZED)
            .header(WWW_AUTHENTICATE, "Basic realm=\"registry\"")
            .body(Body::from(problem.to_string()))
    } else {
        let query = request.uri.query().unwrap_or_default();
        answers.answer(&request.method, request.uri.path(), query)
    };
    answer.unwrap_or_else(|error| Response::new(Body::from(error.to_string())))
}
