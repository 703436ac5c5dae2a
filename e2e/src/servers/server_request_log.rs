//! Reads the request log of a server that writes the log some time after its answers.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// The request log of a test server, which the server writes some time after it has answered.
/// A read first sends a request of its own and waits until the log has it.
#[derive(Debug)]
pub(super) struct ServerRequestLog {
    path: PathBuf,
    /// A base URL. The reader requests a path below it that does not exist on the server.
    base: String,
    client: reqwest::Client,
    marks: AtomicUsize,
}

impl ServerRequestLog {
    pub(super) fn new(path: PathBuf, base: String, client: reqwest::Client) -> Self {
        Self { path, base, client, marks: AtomicUsize::new(0) }
    }

    /// Reads the log up to now. To know that the log is complete, this function sends its own request and waits until the log
    /// contains it.
    pub(super) async fn read(&self) -> Result<String> {
        let mark = format!("/mark-{}", self.marks.fetch_add(1, Ordering::Relaxed));
        self.client.get(format!("{}{mark}", self.base)).send().await?;
        let asked = format!("GET {mark} ");
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let log = std::fs::read_to_string(&self.path)?;
            if log.contains(&asked) {
                return Ok(log);
            }
            ensure!(Instant::now() < deadline, "{mark} is not logged: {log}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
