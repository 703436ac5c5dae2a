//! A NATS server, from the Debian package `nats-server`.
//!
//! Here: starting it with one user or without authentication, with and without TLS, and reading the messages of a subject.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::control_plane::free_ports;
use crate::harness::await_until;
use crate::process_reaper::ProcessReaper;

/// The user name, if the server requires authentication.
pub const USER: &str = "windlass";
/// The password of [`USER`].
pub const PASSWORD: &str = "n4ts-passw0rd";

/// A running server. It ends when it is dropped or when this process ends.
pub struct NatsServer {
    port: u16,
    _folder: TempDir,
    _reaper: ProcessReaper,
}

impl NatsServer {
    /// Starts a server for [`USER`] only.
    pub async fn start() -> Result<Self> {
        let program = super::installed(&["nats-server"], "nats-server")?;
        let folder = tempfile::Builder::new().prefix("windlass-nats-").tempdir()?;
        let [port] = free_ports()?;
        let config = json!({
            "host": "127.0.0.1",
            "port": port,
            "authorization": {"user": USER, "password": PASSWORD},
        });
        let path = folder.path().join("nats.conf");
        std::fs::write(&path, config.to_string())?;
        let reaper = ProcessReaper::start(None)?;
        let mut command = Command::new(program);
        drop(reaper.spawn(command.arg("-c").arg(&path), &folder.path().join("log"))?);
        let server = Self { port, _folder: folder, _reaper: reaper };
        let address = server.address();
        await_until("nats-server to begin", super::SERVER_START_TIMEOUT, async || {
            Ok(TcpStream::connect(&address).await.ok().map(drop))
        })
        .await?;
        Ok(server)
    }

    /// The host and port of the server.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Subscribes to a subject. Messages arrive until the receiver is dropped.
    pub async fn subscribe(&self, subject: &str) -> Result<mpsc::Receiver<Vec<u8>>> {
        let mut stream = BufReader::new(TcpStream::connect(self.address()).await?);
        let login = json!({"user": USER, "pass": PASSWORD, "verbose": false});
        let lines = format!("CONNECT {login}\r\nSUB {subject} 1\r\nPING\r\n");
        stream.write_all(lines.as_bytes()).await?;
        let mut line = String::new();
        while !line.starts_with("PONG") {
            line.clear();
            ensure!(stream.read_line(&mut line).await? > 0, "nats-server closed the connection");
            ensure!(!line.starts_with("-ERR"), "nats-server answered {line}");
        }
        let (sender, receiver) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Ok(message) = next(&mut stream).await {
                if sender.send(message).await.is_err() {
                    break;
                }
            }
        });
        Ok(receiver)
    }
}

/// Reads the next message of a subscription: a line with its size, and then its bytes.
async fn next(stream: &mut BufReader<TcpStream>) -> Result<Vec<u8>> {
    loop {
        let mut line = String::new();
        ensure!(stream.read_line(&mut line).await? > 0, "closed");
        if line.starts_with("PING") {
            stream.write_all(b"PONG\r\n").await?;
        }
        if !line.starts_with("MSG ") {
            continue;
        }
        let size = line.split_whitespace().last().context("a message has no size")?;
        let mut message = vec![0; size.parse::<usize>()? + 2];
        stream.read_exact(&mut message).await?;
        message.truncate(message.len() - 2);
        return Ok(message);
    }
}
