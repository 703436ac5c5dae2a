//! Answers one request to the Git server: access control, holding requests, and running the CGI program.
//!
//! Here: the bridge to `git http-backend` (RFC 3875), and the record of requests.
//! Elsewhere: starting the server (`super`), the repositories (`super::repository`).

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Weak};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts};
use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD, Engine};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;
use tokio_util::io::ReaderStream;

use super::repository::isolate;
use super::{GitReadAccess, GitServerRequest};

/// The largest body of a push, in bytes.
const BODY_LIMIT: usize = 256 << 20;

/// The shared state of all requests.
#[derive(Clone)]
pub(super) struct GitHttpBackend {
    pub(super) root: PathBuf,
    pub(super) access: GitReadAccess,
    pub(super) requests: Arc<Mutex<Vec<GitServerRequest>>>,
    pub(super) stalling: watch::Receiver<bool>,
    /// Contains one entry for each unanswered request.
    pub(super) waiting: Arc<Mutex<Vec<Weak<()>>>>,
}

pub(super) fn router(backend: GitHttpBackend) -> Router {
    Router::new().fallback(answer).with_state(backend)
}

async fn answer(
    State(backend): State<GitHttpBackend>,
    request: axum::extract::Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_LIMIT).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let received = body.len() as u64;
    if !backend.access.admits(&parts.headers) {
        let response = refusal(&backend.access);
        backend.record(&parts, received, response.status());
        return response;
    }
    let path = match parts.uri.path().strip_prefix("/slow/") {
        Some(path) => {
            let mut stalling = backend.stalling.clone();
            // This is dropped with the request, whether the server answered it or the client gave up.
            let waiter = Arc::new(());
            let waiting = Arc::downgrade(&waiter);
            backend.waiting.lock().push(waiting);
            if stalling.wait_for(|is_stalling| !is_stalling).await.is_err() {
                return StatusCode::SERVICE_UNAVAILABLE.into_response();
            }
            drop(waiter);
            format!("/{path}")
        }
        None => parts.uri.path().to_owned(),
    };
    match backend.run(&parts, &path, body).await {
        Ok((status, headers, output, child)) => {
            let index = backend.record(&parts, received, status);
            let body = backend.count(output, index, child);
            (status, headers, body).into_response()
        }
        Err(error) => {
            backend.record(&parts, received, StatusCode::INTERNAL_SERVER_ERROR);
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")).into_response()
        }
    }
}

impl GitHttpBackend {
    async fn run(
        &self,
        parts: &Parts,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, HeaderMap, BufReader<ChildStdout>, Child)> {
        let mut command = Command::from(isolate("git"));
        let header = |name: HeaderName| {
            parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
        };
        command
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("GATEWAY_INTERFACE", "CGI/1.1")
            .env("SERVER_PROTOCOL", "HTTP/1.1")
            .env("REQUEST_METHOD", parts.method.as_str())
            .env("PATH_INFO", path)
            .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
            .env("REMOTE_ADDR", "127.0.0.1")
            .env("CONTENT_TYPE", header(header::CONTENT_TYPE))
            .env("CONTENT_LENGTH", body.len().to_string())
            .env("HTTP_CONTENT_ENCODING", header(header::CONTENT_ENCODING))
            .env("GIT_PROTOCOL", header(HeaderName::from_static("git-protocol")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn().context("cannot start `git http-backend`")?;
        let mut input = child.stdin.take().context("`git` has no input")?;
        tokio::spawn(async move {
            // `git` may stop reading before the end of the body.
            input.write_all(&body).await.ok();
        });
        let mut output = BufReader::new(child.stdout.take().context("`git` has no output")?);
        let (status, headers) = read_head(&mut output).await?;
        Ok((status, headers, output, child))
    }

    /// Streams the answer and counts its bytes. The process that produces the answer stays alive until the stream ends.
    fn count(&self, output: BufReader<ChildStdout>, index: usize, child: Child) -> Body {
        let requests = Arc::clone(&self.requests);
        let stream = ReaderStream::new(output).inspect(move |chunk| {
            let _alive = &child;
            let mut requests = requests.lock();
            if let (Ok(chunk), Some(request)) = (chunk, requests.get_mut(index)) {
                request.sent += chunk.len() as u64;
            }
        });
        Body::from_stream(stream)
    }

    /// Records a request, and returns its index in the list.
    fn record(&self, parts: &Parts, received: u64, status: StatusCode) -> usize {
        let mut requests = self.requests.lock();
        requests.push(GitServerRequest {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            status: status.as_u16(),
            received,
            sent: 0,
        });
        requests.len() - 1
    }
}

impl GitReadAccess {
    fn admits(&self, headers: &HeaderMap) -> bool {
        let wanted = match self {
            Self::Open => return true,
            Self::Basic { user, password } => {
                format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
            }
            Self::Bearer(token) => format!("Bearer {token}"),
        };
        headers.get(header::AUTHORIZATION).is_some_and(|value| value == wanted.as_str())
    }
}

fn refusal(access: &GitReadAccess) -> Response {
    let scheme = if matches!(access, GitReadAccess::Bearer(_)) { "Bearer" } else { "Basic" };
    let challenge = format!("{scheme} realm=\"testbed\"");
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
}

/// Reads the headers of a CGI answer. A `Status` header sets the HTTP status.
async fn read_head(output: &mut BufReader<ChildStdout>) -> Result<(StatusCode, HeaderMap)> {
    let mut status = StatusCode::OK;
    let mut headers = HeaderMap::new();
    loop {
        let mut line = String::new();
        let length = output.read_line(&mut line).await.context("`git http-backend` failed")?;
        anyhow::ensure!(length > 0, "`git http-backend` ended without an answer");
        let line = line.trim_end();
        if line.is_empty() {
            return Ok((status, headers));
        }
        let (name, value) = line.split_once(": ").context("not a CGI header")?;
        if name.eq_ignore_ascii_case("status") {
            let code = value.split(' ').next().unwrap_or_default();
            status = code.parse().context("not a status")?;
        } else {
            headers.append(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
        }
    }
}
