//! A chart repository: files behind a web server, made by the real `helm`. Most public chart repositories work like this.
//!
//! Here: packing charts, making the index, serving both, and recording the requests. Elsewhere: building `helm`
//! ([`testbed::upstream_programs`]).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use testbed::upstream_programs::UpstreamProgram;

/// A running web server on loopback. It ends, and its files are removed, when it is dropped.
pub struct ChartServer {
    address: SocketAddr,
    folder: tempfile::TempDir,
    helm: PathBuf,
    asked: Arc<Mutex<Vec<ChartServerRequest>>>,
    /// The thread of the server ends when this sender is dropped.
    _stop: oneshot::Sender<()>,
}

/// One request and the status of its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartServerRequest {
    /// The path, with its leading slash.
    pub path: String,
    /// The status of the answer.
    pub status: u16,
}

#[derive(Clone)]
struct ChartServerBackend {
    root: PathBuf,
    /// The required value of the header `Authorization`.
    access: Option<String>,
    asked: Arc<Mutex<Vec<ChartServerRequest>>>,
}

impl ChartServer {
    /// Starts a server without charts. With `access`, clients need that user name and password.
    ///
    /// # Errors
    /// There is no `helm` and none can be built, or no port is free.
    pub fn start(access: Option<(&str, &str)>) -> Result<Self> {
        let helm = UpstreamProgram::Helm.ensure()?;
        let folder = tempfile::Builder::new().prefix("windlass-charts-").tempdir()?;
        std::fs::create_dir(folder.path().join("served"))?;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let access = access.map(|(user, password)| {
            format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
        });
        let root = folder.path().join("served");
        let backend = ChartServerBackend { root, access, asked: Arc::clone(&asked) };
        let (stop, stopped) = oneshot::channel();
        let (tell, receiver) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("chart-server".into()).spawn(move || {
            let outcome = run(backend, stopped, &tell);
            // The receiver no longer exists after the address was sent. In that case, the server has ended as intended.
            tell.send(outcome.map(|()| None)).ok();
        })?;
        let address = receiver.recv()??.context("the chart server ended before it began")?;
        Ok(Self { address, folder, helm, asked, _stop: stop })
    }

    /// The URL of the repository.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Packs a chart of these files and writes the index again. The URLs in the index are relative.
    ///
    /// # Errors
    /// `helm` fails. The error contains its output.
    pub fn publish(&self, files: &[(&str, &str)]) -> Result<()> {
        let chart = tempfile::tempdir_in(self.folder.path())?;
        for (path, text) in files {
            let path = chart.path().join(path);
            let parent = path.parent().context("a file is in a folder")?;
            std::fs::create_dir_all(parent)?;
            std::fs::write(&path, text)?;
        }
        let served = self.served();
        self.helm(&[Path::new("package"), chart.path(), Path::new("-d"), &served])?;
        self.helm(&[Path::new("repo"), Path::new("index"), &served])?;
        Ok(())
    }

    /// The folder with the files of the server.
    pub fn served(&self) -> std::path::PathBuf {
        self.folder.path().join("served")
    }

    /// Runs `helm template NAME CHART` and returns its output.
    ///
    /// # Errors
    /// `helm` fails. The error contains its output.
    pub fn render(&self, chart: &Path) -> Result<String> {
        let output = self.helm(&[Path::new("template"), Path::new("release"), chart])?;
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs `helm` with its own home folder.
    ///
    /// # Errors
    /// The command fails. The error contains its output.
    pub fn helm(&self, arguments: &[&Path]) -> Result<Output> {
        let home = self.folder.path().join("home");
        let mut command = Command::new(&self.helm);
        command.env_clear().env("HOME", &home).args(arguments);
        let output = command.output().context("cannot run helm")?;
        let message = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm {arguments:?}: {message}");
        Ok(output)
    }

    /// The requests since the start or [`ChartServer::forget`].
    pub fn asked(&self) -> Vec<ChartServerRequest> {
        self.asked.lock().clone()
    }

    /// Starts the record of requests again.
    pub fn forget(&self) {
        self.asked.lock().clear();
    }
}

type ListenResult = Result<Option<SocketAddr>>;

#[tokio::main(flavor = "current_thread")]
async fn run(
    backend: ChartServerBackend,
    stopped: oneshot::Receiver<()>,
    tell: &std::sync::mpsc::Sender<ListenResult>,
) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port on loopback")?;
    tell.send(Ok(Some(listener.local_addr()?))).ok();
    let router = Router::new().fallback(answer).with_state(backend);
    tokio::select! {
        outcome = async { axum::serve(listener, router).await } => outcome.context("the chart server failed"),
        _ = stopped => Ok(()),
    }
}

async fn answer(State(backend): State<ChartServerBackend>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let response = backend.answer(&path, request.headers());
    let status = response.status().as_u16();
    let mut asked = backend.asked.lock();
    asked.push(ChartServerRequest { path, status });
    response
}

impl ChartServerBackend {
    fn answer(&self, path: &str, headers: &HeaderMap) -> Response {
        let given = |name| headers.get(name).and_then(|it: &header::HeaderValue| it.to_str().ok());
        if self.access.is_some() && given(header::AUTHORIZATION) != self.access.as_deref() {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        let name = path.trim_start_matches('/');
        if name.contains("..") {
            return StatusCode::BAD_REQUEST.into_response();
        }
        let Ok(bytes) = std::fs::read(self.root.join(name)) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let tag: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let tag = format!("\"{tag}\"");
        if given(header::IF_NONE_MATCH) == Some(&tag) {
            return StatusCode::NOT_MODIFIED.into_response();
        }
        ([(header::ETAG, tag)], Body::from(bytes)).into_response()
    }
}
