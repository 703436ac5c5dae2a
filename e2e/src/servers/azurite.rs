//! Azurite, a server with the API of Azure Blob Storage. It verifies keys and signatures, and keeps everything in memory.
//!
//! Here: running it, uploading objects, making shared access signatures, and reading its requests. Elsewhere: installing it
//! (`binaries`).

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{Timestamp, ToSpan as _};
use reqwest::Method;
use tempfile::TempDir;

use super::s3::{encoded, hmac, path_encoded};
use super::server_request_log::ServerRequestLog;
use crate::control_plane::{free_ports, tail};
use crate::process_reaper::ProcessReaper;
use testbed::binaries::packages;

/// The account that the server knows.
pub const ACCOUNT: &str = "shop";

/// The key of [`ACCOUNT`].
pub const KEY: &str = "d2luZGxhc3Mga25vd3MgYSBrZXkgb2YgMzIgYnl0ZXM=";

/// The version of the API.
const VERSION: &str = "2021-12-02";

/// A running server. It ends when it is dropped or when this process ends.
#[derive(Debug)]
pub struct AzuriteServer {
    _folder: TempDir,
    port: u16,
    client: reqwest::Client,
    log: ServerRequestLog,
    _reaper: ProcessReaper,
}

impl AzuriteServer {
    /// Starts a server over HTTP.
    pub async fn start() -> Result<Self> {
        let program = tokio::task::block_in_place(|| packages("azurite"))?;
        let folder = tempfile::Builder::new().prefix("windlass-azurite-").tempdir()?;
        let [port] = free_ports()?;
        let mut command = Command::new("node");
        command.arg(program.join("azurite/dist/src/blob/main.js"));
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
        command.args(["--inMemoryPersistence", "--disableProductStyleUrl"]);
        command.env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{KEY}")).current_dir(folder.path());
        let reaper = ProcessReaper::start(None)?;
        let log = folder.path().join("log");
        let mut child = reaper.spawn(&mut command, &log)?;
        let client = reqwest::Client::builder().no_proxy().build()?;
        let request_log =
            ServerRequestLog::new(log.clone(), format!("http://127.0.0.1:{port}"), client.clone());
        let server = Self { _folder: folder, port, client, log: request_log, _reaper: reaper };
        let deadline = Instant::now() + super::SERVER_START_TIMEOUT;
        while server.client.get(server.url()).send().await.is_err() {
            let ended = child.try_wait()?.is_some();
            ensure!(!ended && Instant::now() < deadline, "no Azurite: {}", tail(&log, 20));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(server)
    }

    /// The host and port of the server.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The URL of the account, for `spec.endpoint`.
    pub fn url(&self) -> String {
        format!("http://{}/{ACCOUNT}", self.address())
    }

    /// Creates a container for blobs in the storage account.
    pub async fn bucket(&self, name: &str) -> Result<()> {
        self.send(Method::PUT, name, Some(("restype", "container")), b"").await
    }

    /// Uploads an object to a container.
    pub async fn put(&self, bucket: &str, key: &str, body: impl AsRef<[u8]>) -> Result<()> {
        self.send(Method::PUT, &format!("{bucket}/{key}"), None, body.as_ref()).await
    }

    /// Deletes an object from a container.
    pub async fn delete(&self, bucket: &str, key: &str) -> Result<()> {
        self.send(Method::DELETE, &format!("{bucket}/{key}"), None, b"").await
    }

    /// A shared access signature with which a client may list and read a container for an hour.
    pub fn signature(&self, bucket: &str) -> Result<String> {
        let end =
            Timestamp::now().checked_add(1.hour())?.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let version = "2018-11-09";
        let resource = format!("/blob/{ACCOUNT}/{bucket}");
        // The fields are: permissions, start, end, resource; policy, addresses, protocol; version, resource type; snapshot, and
        // five headers.
        let text = format!("rl\n\n{end}\n{resource}\n\n\n\n{version}\nc\n\n\n\n\n\n");
        let signature = STANDARD.encode(hmac(&STANDARD.decode(KEY)?, text.as_bytes()));
        let signature = encoded(&signature);
        Ok(format!("sv={version}&sr=c&sp=rl&se={}&sig={signature}", encoded(&end)))
    }

    /// The requests of other clients about a container so far, as `<method> <path and query>`.
    pub async fn requests(&self, bucket: &str) -> Result<Vec<String>> {
        let log = self.log.read().await?;
        let of = format!("/{ACCOUNT}/{bucket}");
        // The format of a log line: `<address> - - [<time>] "<method> <path and query> HTTP/1.1" <status> <length>`
        let asked = log.lines().filter_map(|line| line.split('"').nth(1));
        let asked = asked.filter_map(|asked| asked.strip_suffix(" HTTP/1.1"));
        let is_ours = |asked: &&str| {
            let path = asked.strip_prefix("GET ").or_else(|| asked.strip_prefix("HEAD "));
            path.is_some_and(|path| path.starts_with(&of))
        };
        Ok(asked.filter(is_ours).map(str::to_owned).collect())
    }

    /// Sends a request that is signed with the key. It does not use windlass's library, because then both sides could be wrong
    /// in the same way.
    async fn send(
        &self,
        method: Method,
        path: &str,
        query: Option<(&str, &str)>,
        body: &[u8],
    ) -> Result<()> {
        let path = format!("/{ACCOUNT}/{}", path_encoded(path));
        let (asked, signed) = match query {
            Some((name, value)) => (format!("?{name}={value}"), format!("\n{name}:{value}")),
            None => Default::default(),
        };
        let date = Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let mut headers = vec![("x-ms-date", date.as_str()), ("x-ms-version", VERSION)];
        if method == Method::PUT && query.is_none() {
            headers.insert(0, ("x-ms-blob-type", "BlockBlob"));
        }
        let length = if body.is_empty() { String::new() } else { body.len().to_string() };
        let named: String =
            headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        // The empty lines stand for headers that are not sent.
        let text =
            format!("{method}\n\n\n{length}\n\n\n\n\n\n\n\n\n{named}/{ACCOUNT}{path}{signed}");
        let signature = STANDARD.encode(hmac(&STANDARD.decode(KEY)?, text.as_bytes()));
        let url = format!("http://{}{path}{asked}", self.address());
        let mut request = self.client.request(method.clone(), url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request = request.header("authorization", format!("SharedKey {ACCOUNT}:{signature}"));
        let answer = request.body(body.to_vec()).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status.is_success(), "{method} {path}: {status} {text}");
        Ok(())
    }
}
