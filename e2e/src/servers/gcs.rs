//! fake-gcs-server, a server with the API of Google Cloud Storage, which keeps everything in memory.
//!
//! It accepts any credentials. Here: running it, uploading objects, and reading its requests. Elsewhere: building it
//! (`binaries`).

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use tempfile::TempDir;

use super::s3::encoded;
use super::server_request_log::ServerRequestLog;
use crate::control_plane::{free_ports, tail};
use crate::process_reaper::ProcessReaper;
use testbed::binaries::{GO, GoBuildRecipe, ProgramSet};

const FAKE_GCS_SERVER: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain("fake-gcs-server", "github.com/fsouza/fake-gcs-server")],
    module_files: &["fake-gcs-server/go.mod", "fake-gcs-server/go.sum"],
    advice: GO,
};

/// A running server. It ends when it is dropped or when this process ends.
#[derive(Debug)]
pub struct GcsServer {
    _folder: TempDir,
    port: u16,
    client: reqwest::Client,
    log: ServerRequestLog,
    _reaper: ProcessReaper,
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
        let reaper = ProcessReaper::start(None)?;
        let log = folder.path().join("log");
        let mut child = reaper.spawn(&mut command, &log)?;
        let client = reqwest::Client::builder().no_proxy().build()?;
        let request_log =
            ServerRequestLog::new(log.clone(), format!("http://127.0.0.1:{port}"), client.clone());
        let server = Self { _folder: folder, port, client, log: request_log, _reaper: reaper };
        let deadline = Instant::now() + super::SERVER_START_TIMEOUT;
        while server.send(server.request(Method::GET, "/_internal/healthcheck")).await.is_err() {
            let ended = child.try_wait()?.is_some();
            ensure!(!ended && Instant::now() < deadline, "no GCS server: {}", tail(&log, 20));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(server)
    }

    /// The host and port of the server, for `spec.endpoint`.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Creates a bucket in the storage server.
    pub async fn bucket(&self, name: &str) -> Result<()> {
        self.send(self.request(Method::POST, "/storage/v1/b").json(&json!({"name": name}))).await
    }

    /// Uploads an object to a bucket.
    pub async fn put(&self, bucket: &str, key: &str, body: impl AsRef<[u8]>) -> Result<()> {
        let query = format!("uploadType=media&name={}", encoded(key));
        let path = format!("/upload/storage/v1/b/{bucket}/o?{query}");
        self.send(self.request(Method::POST, &path).body(body.as_ref().to_vec())).await
    }

    /// Deletes an object from a bucket.
    pub async fn delete(&self, bucket: &str, key: &str) -> Result<()> {
        let key = encoded(key);
        self.send(self.request(Method::DELETE, &format!("/storage/v1/b/{bucket}/o/{key}"))).await
    }

    /// The requests of other clients about a bucket so far, as `<method> <path and query>`.
    pub async fn requests(&self, bucket: &str) -> Result<Vec<String>> {
        let log = self.log.read().await?;
        let of = format!("GET /storage/v1/b/{bucket}/o");
        // The format of a log line: `time=… level=INFO msg="<address> - - [<time>] \"<method> <path and query> HTTP/1.1\"
        // <status> <length>\n"`
        let asked = log.lines().filter_map(|line| line.split("\\\"").nth(1));
        let asked = asked.filter_map(|asked| asked.strip_suffix(" HTTP/1.1"));
        Ok(asked.filter(|asked| asked.starts_with(&of)).map(str::to_owned).collect())
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.endpoint()))
    }

    async fn send(&self, request: RequestBuilder) -> Result<()> {
        let answer = request.send().await.context("no answer")?;
        let status = answer.status();
        let url = answer.url().clone();
        let text = answer.text().await?;
        ensure!(status.is_success(), "{url}: {status} {text}");
        Ok(())
    }
}
