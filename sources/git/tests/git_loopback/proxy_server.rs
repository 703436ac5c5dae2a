//! A proxy on this machine that wants a user and a password: HTTP (forwarding and `CONNECT`) and SOCKS 5.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;

pub(crate) const USER: &str = "walker";
pub(crate) const PASSWORD: &str = "hunter2hunter2";

/// The requests that the proxy accepted: the first line of an HTTP request, or the host of a SOCKS one.
type ProxyRequestLog = Arc<Mutex<Vec<String>>>;

pub(crate) struct HttpProxyServer {
    pub(crate) address: SocketAddr,
    passed: ProxyRequestLog,
}

impl HttpProxyServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let passed = ProxyRequestLog::default();
        let shared = Arc::clone(&passed);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let passed = Arc::clone(&shared);
                // A client that is refused closes the connection.
                std::thread::spawn(move || serve(client, &passed));
            }
        });
        Self { address, passed }
    }

    pub(crate) fn passed(&self) -> Vec<String> {
        self.passed.lock().clone()
    }
}

fn serve(mut client: TcpStream, passed: &ProxyRequestLog) -> io::Result<()> {
    let mut first = [0];
    client.peek(&mut first)?;
    if first == [5] { socks(client, passed) } else { http(&mut client, passed) }
}

fn read<const N: usize>(from: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).map(|()| bytes)
}

fn read_text(from: &mut TcpStream) -> io::Result<String> {
    let [length] = read(from)?;
    let mut bytes = vec![0; usize::from(length)];
    from.read_exact(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// RFC 1928 and RFC 1929, of which only what is needed.
fn socks(mut client: TcpStream, passed: &ProxyRequestLog) -> io::Result<()> {
    let [_version] = read(&mut client)?;
    read_text(&mut client)?;
    client.write_all(&[5, 2])?;
    let [_version] = read(&mut client)?;
    let is_known = [read_text(&mut client)?, read_text(&mut client)?] == [USER, PASSWORD];
    client.write_all(&[1, u8::from(!is_known)])?;
    if !is_known {
        return client.shutdown(Shutdown::Both);
    }
    let [_version, _connect, _reserved, kind] = read(&mut client)?;
    let host = match kind {
        1 => std::net::Ipv4Addr::from(read::<4>(&mut client)?).to_string(),
        _ => read_text(&mut client)?,
    };
    let port = u16::from_be_bytes(read(&mut client)?);
    let server = TcpStream::connect((host.as_str(), port))?;
    passed.lock().push(host);
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    pipe(client, server)
}

fn http(client: &mut TcpStream, passed: &ProxyRequestLog) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(read::<1>(client)?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let known = BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let authorization = |line: &&str| line.to_ascii_lowercase().starts_with("proxy-authorization:");
    if !head
        .lines()
        .find(authorization)
        .is_some_and(|line| line.ends_with(&format!("Basic {known}")))
    {
        let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"p\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        client.write_all(refusal.as_bytes())?;
        return client.shutdown(Shutdown::Both);
    }
    let line = head.lines().next().unwrap_or_default().to_owned();
    let target = line.split(' ').nth(1).unwrap_or_default();
    passed.lock().push(line.clone());
    if line.starts_with("CONNECT ") {
        let server = TcpStream::connect(target)?;
        client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
        return pipe(client.try_clone()?, server);
    }
    let (host, path) = target.trim_start_matches("http://").split_once('/').unwrap_or_default();
    let mut server = TcpStream::connect(host)?;
    let rest: Vec<&str> = head.split("\r\n").skip(1).filter(|line| !authorization(line)).collect();
    let method = line.split(' ').next().unwrap_or_default();
    server.write_all(format!("{method} /{path} HTTP/1.1\r\n{}", rest.join("\r\n")).as_bytes())?;
    pipe(client.try_clone()?, server)
}

/// Carries bytes both ways until either side ends.
fn pipe(client: TcpStream, server: TcpStream) -> io::Result<()> {
    let mut from = client.try_clone()?;
    let mut to = server.try_clone()?;
    let there = std::thread::spawn(move || io::copy(&mut from, &mut to));
    let mut from = server;
    let mut to = client;
    let _ended = io::copy(&mut from, &mut to);
    to.shutdown(Shutdown::Both)?;
    let _ended = there.join();
    Ok(())
}
