//! A web server on loopback for files of a story. It records the requests.
//!
//! It answers conditional requests (`ETag`). A story may require credentials, or make the server reject a number of requests
//! with 429.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, ETAG, IF_NONE_MATCH, LOCATION, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// A running web server. It ends when it is dropped.
#[derive(Debug)]
pub struct FileWebServer {
    address: SocketAddr,
    shared: Arc<Mutex<FileWebServerState>>,
    stop: AbortHandle,
}

#[derive(Debug, Default)]
struct FileWebServerState {
    files: BTreeMap<String, Vec<u8>>,
    /// The targets of redirected paths.
    redirects: BTreeMap<String, String>,
    /// How many requests contained credentials.
    with_credentials: usize,
    /// The required value of the header `Authorization`. `None` if every request is answered.
    access: Option<String>,
    /// How many further requests the server answers with 429.
    turned_away: usize,
    answers: Vec<(String, StatusCode)>,
}

impl Drop for FileWebServer {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl FileWebServer {
    /// Starts a server without files on the current runtime.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a server")?;
        let address = listener.local_addr()?;
        let shared = Arc::<Mutex<FileWebServerState>>::default();
        let router = Router::new().fallback(answer).with_state(shared.clone());
        let serving = async move { axum::serve(listener, router).await };
        let stop = tokio::spawn(serving).abort_handle();
        Ok(Self { address, shared, stop })
    }

    /// Redirects a path to another URL.
    pub fn redirect(&self, path: &str, to: &str) {
        self.shared().redirects.insert(format!("/{path}"), to.to_owned());
    }

    /// How many requests contained credentials, right or wrong.
    pub fn with_credentials(&self) -> usize {
        self.shared().with_credentials
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, answers only requests with this value of the header `Authorization`.
    pub fn protect(&self, authorization: &str) {
        self.shared().access = Some(authorization.to_owned());
    }

    fn shared(&self) -> MutexGuard<'_, FileWebServerState> {
        self.shared.lock()
    }

    /// Stores a file, or replaces it. Returns its URL.
    pub fn put(&self, path: &str, bytes: impl Into<Vec<u8>>) -> String {
        self.shared().files.insert(format!("/{path}"), bytes.into());
        format!("http://{}/{path}", self.address)
    }

    /// Answers the next `requests` requests with 429 and a `Retry-After` of one second.
    pub fn turn_away(&self, requests: usize) {
        self.shared().turned_away = requests;
    }

    /// The requested paths and the statuses of their answers since the last call.
    pub fn answers(&self) -> Vec<(String, u16)> {
        let answers = std::mem::take(&mut self.shared().answers);
        answers.into_iter().map(|(path, status)| (path, status.as_u16())).collect()
    }
}

async fn answer(
    State(shared): State<Arc<Mutex<FileWebServerState>>>,
    request: Request,
) -> Response {
    let mut shared = shared.lock();
    let path = request.uri().path().to_owned();
    let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    shared.with_credentials += usize::from(given.is_some());
    let is_admitted = shared.access.as_ref().is_none_or(|it| given == Some(it.as_bytes()));
    let response = match is_admitted {
        true => respond(&mut shared, &path, request.headers().get(IF_NONE_MATCH)),
        false => StatusCode::UNAUTHORIZED.into_response(),
    };
    shared.answers.push((path, response.status()));
    response
}

fn respond(shared: &mut FileWebServerState, path: &str, known: Option<&HeaderValue>) -> Response {
    if let Some(left) = shared.turned_away.checked_sub(1) {
        shared.turned_away = left;
        return (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")]).into_response();
    }
    if let Some(to) = shared.redirects.get(path) {
        return (StatusCode::FOUND, [(LOCATION, to.clone())]).into_response();
    }
    let Some(bytes) = shared.files.get(path) else { return StatusCode::NOT_FOUND.into_response() };
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let etag = format!("\"{digest}\"");
    if known.is_some_and(|known| known.as_bytes() == etag.as_bytes()) {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    ([(ETAG, etag)], bytes.clone()).into_response()
}
