//! versitygw, a server with the S3 API over a folder. It verifies signatures.
//!
//! Here: running it, uploading objects, and reading its requests. Elsewhere: building it (`binaries`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::certificate_authority::TestCertificateAuthority;
use crate::control_plane::{free_ports, tail};
use crate::process_reaper::ProcessReaper;
use testbed::binaries::{GO, GoBuildRecipe, ProgramSet};

/// The access key of the server.
pub const ACCESS: &str = "windlass-access";
/// The secret of the access key.
pub const SECRET: &str = "windlass-secret";
/// The region of the server.
pub const REGION: &str = "us-east-1";

const VERSITYGW: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain("versitygw", "github.com/versity/versitygw/cmd/versitygw")],
    module_files: &["versitygw/go.mod", "versitygw/go.sum"],
    advice: GO,
};

/// A running server. It ends when it is dropped or when this process ends.
#[derive(Debug)]
pub struct S3Server {
    folder: TempDir,
    port: u16,
    client: reqwest::Client,
    is_tls: bool,
    _reaper: ProcessReaper,
}

impl S3Server {
    /// Starts a server over HTTP.
    pub async fn start() -> Result<Self> {
        Self::start_with(None).await
    }

    /// Starts a server. With an authority, it uses HTTPS with a certificate of that authority.
    pub async fn start_with(authority: Option<&TestCertificateAuthority>) -> Result<Self> {
        let program: PathBuf = VERSITYGW.ensure(None)?["versitygw"].clone();
        let folder = tempfile::Builder::new().prefix("windlass-s3-").tempdir()?;
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("data"))?;
        let [port] = free_ports()?;
        let mut command = Command::new(program);
        command.args(["--access", ACCESS, "--secret", SECRET, "--region", REGION]);
        command.args(["--port", &format!("127.0.0.1:{port}"), "--quiet", "--access-log"]);
        command.arg(path("access.log"));
        let mut client = reqwest::Client::builder().no_proxy();
        if let Some(authority) = authority {
            let issued = authority.issue_server(&["127.0.0.1", "localhost"])?;
            std::fs::write(path("cert.pem"), issued.certificate)?;
            std::fs::write(path("key.pem"), issued.key)?;
            command.arg("--cert").arg(path("cert.pem")).arg("--key").arg(path("key.pem"));
            let own = reqwest::Certificate::from_pem(authority.certificate().as_bytes())?;
            client = client.tls_certs_only([own]);
        }
        command.arg("posix").arg(path("data"));
        let reaper = ProcessReaper::start(None)?;
        let log = path("server.log");
        let mut child = reaper.spawn(&mut command, &log)?;
        let server = Self {
            port,
            client: client.build()?,
            is_tls: authority.is_some(),
            _reaper: reaper,
            folder,
        };
        let deadline = Instant::now() + super::SERVER_START_TIMEOUT;
        while server.send(Method::GET, "", b"").await.is_err() {
            let ended = child.try_wait()?.is_some();
            ensure!(!ended && Instant::now() < deadline, "no S3 server: {}", tail(&log, 20));
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
        self.send(Method::PUT, name, b"").await
    }

    /// Uploads an object to a bucket.
    pub async fn put(&self, bucket: &str, key: &str, body: impl AsRef<[u8]>) -> Result<()> {
        self.send(Method::PUT, &format!("{bucket}/{key}"), body.as_ref()).await
    }

    /// Deletes an object from a bucket.
    pub async fn delete(&self, bucket: &str, key: &str) -> Result<()> {
        self.send(Method::DELETE, &format!("{bucket}/{key}"), b"").await
    }

    /// The stored bytes of an object. `None` if it does not exist.
    ///
    /// # Errors
    /// The object cannot be read.
    pub fn stored(&self, bucket: &str, key: &str) -> Result<Option<Vec<u8>>> {
        match std::fs::read(self.folder.path().join("data").join(bucket).join(key)) {
            Ok(body) => Ok(Some(body)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The requests of other clients about a bucket so far, as `<method> <path and query>`.
    pub fn requests(&self, bucket: &str) -> Result<Vec<String>> {
        let log = std::fs::read_to_string(self.folder.path().join("access.log"))?;
        let of = format!("/{bucket}");
        // The format of a log line: `- <bucket> [<time>] <address> <user> <id> <operation> <key> <path and query> <status> …`
        let asked = log.lines().filter_map(|line| {
            let mut words = line.split_once("] ")?.1.split(' ').skip(3);
            let operation = words.next()?;
            let path = words.nth(1)?;
            let method = match operation {
                "s3_ListObjects" | "s3_ListObjectsV2" | "s3_GetObject" => "GET",
                "s3_HeadObject" | "s3_HeadBucket" => "HEAD",
                _ => return None,
            };
            let is_ours = path.strip_prefix(&of)?.chars().next().is_none_or(|c| "/?".contains(c));
            is_ours.then(|| format!("{method} {path}"))
        });
        Ok(asked.collect())
    }

    /// Sends a signed request to the storage server. An answer without success is an error.
    async fn send(&self, method: Method, path: &str, body: &[u8]) -> Result<()> {
        let scheme = if self.is_tls { "https" } else { "http" };
        let host = self.endpoint();
        let path = format!("/{}", path_encoded(path));
        let mut request = self.client.request(method.clone(), format!("{scheme}://{host}{path}"));
        for (name, value) in signed(method.as_str(), &host, &path, body) {
            request = request.header(name, value);
        }
        let answer = request.body(body.to_vec()).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status.is_success(), "{method} {path}: {status} {text}");
        Ok(())
    }
}

/// The characters that a signed path keeps unencoded, in addition to letters and digits.
const PATH: &AsciiSet = &VALUE.remove(b'/');
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Encodes a path as signatures require.
pub(super) fn path_encoded(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Encodes a value of a query, or one segment of a path.
pub(super) fn encoded(value: &str) -> String {
    utf8_percent_encode(value, VALUE).to_string()
}

/// The headers that sign a request (AWS Signature Version 4). It does not use windlass's library, because then both sides could
/// be wrong in the same way.
fn signed(method: &str, host: &str, path: &str, body: &[u8]) -> BTreeMap<&'static str, String> {
    let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let date = &time[..8];
    let digest = hex(&Sha256::digest(body));
    let names = "host;x-amz-content-sha256;x-amz-date";
    let canonical = format!(
        "{method}\n{path}\n\nhost:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{time}\n\n{names}\n{digest}"
    );
    let scope = format!("{date}/{REGION}/s3/aws4_request");
    let canonical = hex(&Sha256::digest(canonical));
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{canonical}");
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for part in [date, REGION, "s3", "aws4_request"] {
        key = hmac(&key, part.as_bytes());
    }
    let signature = hex(&hmac(&key, text.as_bytes()));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={names}, Signature={signature}"
    );
    BTreeMap::from([
        ("authorization", authorization),
        ("x-amz-content-sha256", digest),
        ("x-amz-date", time),
    ])
}

/// HMAC with SHA-256, for keys that are not longer than a block.
pub fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text);
    let outer = Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c));
    outer.chain_update(inner.finalize()).finalize().to_vec()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_that_of_the_standard() {
        // RFC 4231, test case 2.
        let code = hex(&hmac(b"Jefe", b"what do ya want for nothing?"));
        assert_eq!(code, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }
}
