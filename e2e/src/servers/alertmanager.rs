//! Prometheus's Alertmanager, from the Debian package `prometheus-alertmanager`.
//!
//! Here: running it without receivers, and reading its alerts.

use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::control_plane::free_ports;
use crate::harness::await_until;
use crate::process_reaper::ProcessReaper;

/// A running server. It ends when it is dropped or when this process ends.
pub struct AlertmanagerServer {
    port: u16,
    client: reqwest::Client,
    _folder: TempDir,
    _reaper: ProcessReaper,
}

impl AlertmanagerServer {
    /// Starts an Alertmanager on a free port of this machine.
    pub async fn start() -> Result<Self> {
        let package = "prometheus-alertmanager";
        let program = super::installed(&[package, "alertmanager"], package)?;
        let folder = tempfile::Builder::new().prefix("windlass-alertmanager-").tempdir()?;
        let [port] = free_ports()?;
        let config = folder.path().join("config.yml");
        let none = json!({"route": {"receiver": "none"}, "receivers": [{"name": "none"}]});
        std::fs::write(&config, none.to_string())?;
        let reaper = ProcessReaper::start(None)?;
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.path={}", folder.path().join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        command.arg("--cluster.listen-address=");
        drop(reaper.spawn(&mut command, &folder.path().join("log"))?);
        let client = reqwest::Client::builder().no_proxy().build()?;
        let server = Self { port, client, _folder: folder, _reaper: reaper };
        await_until("Alertmanager to begin", super::SERVER_START_TIMEOUT, async || {
            Ok(server.alerts().await.ok().map(drop))
        })
        .await?;
        Ok(server)
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The alerts that are active.
    pub async fn alerts(&self) -> Result<Vec<Value>> {
        let answer = self.client.get(format!("{}/api/v2/alerts", self.url())).send().await?;
        let alerts: Value = answer.error_for_status()?.json().await?;
        alerts.as_array().cloned().context("Alertmanager answered with no list")
    }
}
