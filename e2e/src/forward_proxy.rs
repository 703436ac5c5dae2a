//! An HTTP proxy on loopback that forwards only requests with the right user name and password.
//!
//! Here: forwarding plain requests and `CONNECT` tunnels, and recording both. Elsewhere: the servers behind the proxy
//! (`git_server`).

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// The longest head of a request, in bytes. No story sends a longer one.
const LONGEST_HEAD: usize = 64 << 10;

/// Maps the host and port that a client requests to the host and port to which the proxy connects.
type ProxyDestinations = dyn Fn(&str) -> String + Send + Sync;

/// A running proxy. It ends when it is dropped.
#[derive(Debug)]
pub struct TestForwardProxy {
    address: SocketAddr,
    passed: Arc<Mutex<Vec<String>>>,
    stop: AbortHandle,
}

impl Drop for TestForwardProxy {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl TestForwardProxy {
    /// Starts a proxy on the current runtime.
    pub async fn start(user: &str, password: &str) -> Result<Self> {
        Self::start_to(user, password, str::to_owned).await
    }

    /// Starts a proxy that connects to other servers than the clients request. `place` maps the requested host and port to the
    /// real ones.
    pub async fn start_to(
        user: &str,
        password: &str,
        place: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a proxy")?;
        let address = listener.local_addr()?;
        let passed = Arc::<Mutex<Vec<String>>>::default();
        let known = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
        let record = Arc::clone(&passed);
        let place: Arc<ProxyDestinations> = Arc::new(place);
        let accept = async move {
            while let Ok((client, _)) = listener.accept().await {
                let record = Arc::clone(&record);
                let known = known.clone();
                let place = Arc::clone(&place);
                // A client that disconnects early is not a failure of the proxy.
                tokio::spawn(async move { serve(client, &known, &*place, &record).await.ok() });
            }
        };
        let stop = tokio::spawn(accept).abort_handle();
        Ok(Self { address, passed, stop })
    }

    /// The URL of the proxy, `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The first lines of all requests that the proxy forwarded.
    pub fn passed(&self) -> Vec<String> {
        self.passed.lock().clone()
    }
}

async fn serve(
    mut client: TcpStream,
    known: &str,
    place: &ProxyDestinations,
    record: &Mutex<Vec<String>>,
) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < LONGEST_HEAD {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let is_authorization =
        |line: &&str| line.to_ascii_lowercase().starts_with("proxy-authorization:");
    if !head.lines().find(is_authorization).is_some_and(|line| line.ends_with(known)) {
        let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\n\
            Proxy-Authenticate: Basic realm=\"testbed\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        return Ok(client.write_all(refusal.as_bytes()).await?);
    }
    let line = head.lines().next().unwrap_or_default();
    let (method, rest) = line.split_once(' ').context("no request")?;
    let target = rest.split(' ').next().unwrap_or_default();
    record.lock().push(line.to_owned());
    let mut server = if method == "CONNECT" {
        let server = TcpStream::connect(place(target)).await?;
        client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
        server
    } else {
        let rest = target.strip_prefix("http://").context("not a plain URL")?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut server = TcpStream::connect(place(host)).await?;
        let headers: Vec<&str> =
            head.split("\r\n").skip(1).filter(|line| !is_authorization(line)).collect();
        let head = format!("{method} /{path} HTTP/1.1\r\n{}", headers.join("\r\n"));
        server.write_all(head.as_bytes()).await?;
        server
    };
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
