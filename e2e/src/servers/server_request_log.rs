//! The log of a server that writes what it was asked some time after it answered.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// The request log of a test server, which the server writes some time after it has answered.
/// A read first sends a request of its own and waits until the log has it.
#[derive(Debug)]
pub(super) struct ServerRequestLog {
    path: PathBuf,
    /// The URL below which a path is requested that the server does not have.
    base: String,
    client: reqwest::Client,
    marks: AtomicUsize,
}

impl ServerRequestLog {
    pub(super) fn new(path: PathBuf, base: String, client: reqwest::Client) -> Self {
        Self { path, base, client, marks: AtomicUsize::new(0) }
    }

    /// The log, up to now: a request of one's own is waited for.
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
