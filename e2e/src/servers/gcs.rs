//! A server that speaks the interfaces of Google Cloud Storage: fake-gcs-server, with everything in memory.
//!
//! It believes everybody. Here: running it, putting objects into it, what it was asked. Elsewhere: how it is built (`binaries`).

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use tempfile::TempDir;

use super::s3::encoded;
use crate::binaries::{Recipe, STRIP, Set};
use crate::control_plane::{free_ports, tail};
use crate::keeper::Keeper;

const FAKE_GCS_SERVER: Set = Set {
    recipes: &[Recipe {
        name: "fake-gcs-server",
        module: "fake-gcs-server",
        package: "github.com/fsouza/fake-gcs-server",
        link_flags: STRIP,
        lacks: None,
    }],
    module_files: &["fake-gcs-server/go.mod", "fake-gcs-server/go.sum"],
    advice: "install Go 1.26 (https://go.dev/dl)",
};

/// A running server. Ends with this process, or when dropped.
#[derive(Debug)]
pub struct GcsServer {
    folder: TempDir,
    port: u16,
    client: reqwest::Client,
    marks: AtomicUsize,
    _keeper: Keeper,
}

impl GcsServer {
    /// Starts a server over HTTP.
    pub async fn start() -> Result<Self> {
        let program: PathBuf = FAKE_GCS_SERVER.ensure(None)?["fake-gcs-server"].clone();
        let folder = tempfile::Builder::new().prefix("windlass-gcs-").tempdir()?;
        let [port] = free_ports()?;
        let mut command = Command::new(program);
        command.args(["-scheme", "http", "-host", "127.0.0.1", "-backend", "memory"]);
        command.args(["-port", &port.to_string(), "-public-host", &format!("127.0.0.1:{port}")]);
        let keeper = Keeper::start(None)?;
        let log = folder.path().join("log");
        let mut child = keeper.spawn(&mut command, &log)?;
        let client = reqwest::Client::builder().no_proxy().build()?;
        let server = Self { folder, port, client, marks: AtomicUsize::new(0), _keeper: keeper };
        let deadline = Instant::now() + Duration::from_secs(30);
        while server.send(server.request(Method::GET, "/_internal/healthcheck")).await.is_err() {
            let ended = child.try_wait()?.is_some();
            ensure!(!ended && Instant::now() < deadline, "no GCS server: {}", tail(&log, 20));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(server)
    }

    /// The host and port, as `spec.endpoint` names them.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Creates a bucket.
    pub async fn bucket(&self, name: &str) -> Result<()> {
        self.send(self.request(Method::POST, "/storage/v1/b").json(&json!({"name": name}))).await
    }

    /// Puts an object into a bucket.
    pub async fn put(&self, bucket: &str, key: &str, body: impl AsRef<[u8]>) -> Result<()> {
        let query = format!("uploadType=media&name={}", encoded(key));
        let path = format!("/upload/storage/v1/b/{bucket}/o?{query}");
        self.send(self.request(Method::POST, &path).body(body.as_ref().to_vec())).await
    }

    /// Takes an object out of a bucket.
    pub async fn delete(&self, bucket: &str, key: &str) -> Result<()> {
        let key = encoded(key).replace('/', "%2F");
        self.send(self.request(Method::DELETE, &format!("/storage/v1/b/{bucket}/o/{key}"))).await
    }

    /// What was asked so far about a bucket by others: `<method> <path and query>`.
    pub async fn requests(&self, bucket: &str) -> Result<Vec<String>> {
        let log = self.log().await?;
        let of = format!("GET /storage/v1/b/{bucket}/o");
        // `time=… level=INFO msg="<address> - - [<time>] \"<method> <path and query> HTTP/1.1\" <status> <length>\n"`
        let asked = log.lines().filter_map(|line| line.split("\\\"").nth(1));
        let asked = asked.filter_map(|asked| asked.strip_suffix(" HTTP/1.1"));
        Ok(asked.filter(|asked| asked.starts_with(&of)).map(str::to_owned).collect())
    }

    /// The log, up to now: an answer may be read before it is logged, so a request of one's own is waited for.
    async fn log(&self) -> Result<String> {
        let mark = format!("/mark-{}", self.marks.fetch_add(1, Ordering::Relaxed));
        self.client.get(format!("http://{}{mark}", self.endpoint())).send().await?;
        let asked = format!("GET {mark} ");
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let log = std::fs::read_to_string(self.folder.path().join("log"))?;
            if log.contains(&asked) {
                return Ok(log);
            }
            ensure!(Instant::now() < deadline, "{mark} is not logged: {log}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.endpoint()))
    }

    async fn send(&self, request: RequestBuilder) -> Result<()> {
        let answer = request.send().await.context("no answer")?;
        let (status, url) = (answer.status(), answer.url().clone());
        let text = answer.text().await?;
        ensure!(status.is_success(), "{url}: {status} {text}");
        Ok(())
    }
}
