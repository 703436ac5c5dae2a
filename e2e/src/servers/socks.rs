//! A SOCKS 5 proxy, which is a small program around armon's go-socks5. It accepts every client, or only clients with a user
//! name and a password.
//!
//! Here: running it, and reading the requested destinations. Elsewhere: building it (`binaries`), HTTP proxies
//! (`crate::forward_proxy`).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::control_plane::{free_ports, tail};
use crate::process_reaper::ProcessReaper;
use testbed::binaries::{GO, GoBuildRecipe, ProgramSet};

const SOCKS: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain("socks", ".")],
    module_files: &["socks/go.mod", "socks/go.sum", "socks/main.go"],
    advice: GO,
};

/// A running proxy. It ends when it is dropped or when this process ends.
#[derive(Debug)]
pub struct SocksProxyServer {
    address: SocketAddr,
    folder: TempDir,
    _reaper: ProcessReaper,
}

impl SocksProxyServer {
    /// Starts a proxy. With `user`, it accepts only clients that send that user name and password.
    pub async fn start(user: Option<(&str, &str)>) -> Result<Self> {
        let program: PathBuf = SOCKS.ensure(None)?["socks"].clone();
        let folder = tempfile::Builder::new().prefix("windlass-socks-").tempdir()?;
        let [port] = free_ports()?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut command = Command::new(program);
        command.arg(address.to_string());
        if let Some((user, password)) = user {
            command.arg(user).env("SOCKS_PASSWORD", password);
        }
        let reaper = ProcessReaper::start(None)?;
        let log = folder.path().join("log");
        let mut child = reaper.spawn(&mut command, &log)?;
        let deadline = Instant::now() + super::SERVER_START_TIMEOUT;
        while TcpStream::connect(address).await.is_err() {
            let ended = child.try_wait()?.is_some();
            ensure!(!ended && Instant::now() < deadline, "no SOCKS proxy: {}", tail(&log, 20));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(Self { address, folder, _reaper: reaper })
    }

    /// The address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The destinations of the accepted requests, with unresolved host names. The proxy resolves them itself, and all names
    /// that end in `.test` lead to this machine.
    pub fn passed(&self) -> Result<Vec<String>> {
        let log = std::fs::read_to_string(self.folder.path().join("log"))?;
        Ok(log.lines().filter_map(|line| line.strip_prefix("to ")).map(str::to_owned).collect())
    }
}
