//! A small web server in front of the real `git http-backend`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use crate::repository::isolated;

/// What a server does beside serving.
#[derive(Clone, Default)]
pub(crate) struct Manners {
    /// The only value of `Authorization` that is let in.
    pub(crate) authorization: Option<String>,
    /// Every GET is sent there instead, keeping its path.
    pub(crate) redirect: Option<String>,
    /// Paths that start with this are sent to the same path without it.
    pub(crate) redirect_prefix: Option<String>,
    /// Bytes that are sent instead of any answer, after which nothing more is said.
    pub(crate) stall_after: Option<Vec<u8>>,
    /// Bytes that are sent instead of any answer.
    pub(crate) answer: Option<Vec<u8>>,
    /// One answer for each request in turn, whatever it is.
    pub(crate) script: Vec<Vec<u8>>,
    /// Git's protocol 2 is not understood.
    pub(crate) is_old: bool,
    /// Speaks TLS.
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
}

/// One request as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) authorization: Option<String>,
    pub(crate) body: Vec<u8>,
    /// The answer, headers included.
    pub(crate) answer: Vec<u8>,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    pub(crate) fn start(root: &Path, manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (root, log) = (root.to_owned(), Arc::clone(&seen));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (root, manners, log) = (root.clone(), manners.clone(), Arc::clone(&log));
                std::thread::spawn(move || {
                    // A client that goes away in the middle is part of many tests.
                    let _gone: io::Result<()> = match manners.tls.clone() {
                        None => serve(stream, &root, &manners, &log),
                        Some(config) => {
                            let session = rustls::ServerConnection::new(config).unwrap();
                            serve(rustls::StreamOwned::new(session, stream), &root, &manners, &log)
                        }
                    };
                });
            }
        });
        Self { address, seen }
    }

    /// What was asked so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/app.git", self.address)
    }
}

struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

fn read_request(stream: &mut impl Read) -> io::Result<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (method, target) = (method.to_owned(), target.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((key, value)) => headers.push((key.to_ascii_lowercase(), value.to_owned())),
            None => break,
        }
    }
    let mut request = Request { method, target, headers, body: Vec::new() };
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    request.body = vec![0; length];
    reader.read_exact(&mut request.body)?;
    Ok(request)
}

fn serve(
    mut stream: impl Read + Write + AsTcp,
    root: &Path,
    manners: &Manners,
    log: &Mutex<Vec<Seen>>,
) -> io::Result<()> {
    let request = read_request(&mut stream)?;
    let authorization = request.header("authorization").map(str::to_owned);
    let prefix = manners.redirect_prefix.as_deref();
    let answer = if let Some(bytes) = manners.stall_after.as_ref().or(manners.answer.as_ref()) {
        bytes.clone()
    } else if let Some(bytes) = manners.script.get(log.lock().unwrap().len()) {
        bytes.clone()
    } else if manners.authorization.is_some() && manners.authorization != authorization {
        b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()
    } else if let (Some(base), "GET") = (&manners.redirect, request.method.as_str()) {
        redirect(&format!("{base}{}", request.target))
    } else if let Some(target) = prefix.and_then(|prefix| request.target.strip_prefix(prefix)) {
        redirect(target)
    } else {
        http_backend(root, &request, manners.is_old)
    };
    log.lock().unwrap().push(Seen { authorization, body: request.body, answer: answer.clone() });
    stream.write_all(&answer)?;
    stream.flush()?;
    if manners.stall_after.is_some() {
        // Until the client gives up.
        let _ended: io::Result<usize> = stream.read(&mut [0]);
    }
    stream.tcp().shutdown(std::net::Shutdown::Write)
}

fn redirect(to: &str) -> Vec<u8> {
    let rest = "Content-Length: 0\r\nConnection: close\r\n\r\n";
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\n{rest}").into_bytes()
}

fn http_backend(root: &Path, request: &Request, is_old: bool) -> Vec<u8> {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let program = String::from_utf8(isolated("git").arg("--exec-path").output().unwrap().stdout);
    let program = PathBuf::from(program.unwrap().trim_end()).join("git-http-backend");
    let mut command = isolated(program.to_str().unwrap());
    command
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        // CGI gives the path decoded.
        .env("PATH_INFO", path.replace("%20", " "))
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", &request.method)
        .env("CONTENT_TYPE", request.header("content-type").unwrap_or_default())
        .env("CONTENT_LENGTH", request.body.len().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if let (Some(protocol), false) = (request.header("git-protocol"), is_old) {
        command.env("GIT_PROTOCOL", protocol).env("HTTP_GIT_PROTOCOL", protocol);
    }
    let mut child = command.spawn().expect("git http-backend is installed");
    let mut input = child.stdin.take().unwrap();
    let body = request.body.clone();
    let writer = std::thread::spawn(move || input.write_all(&body));
    let output = child.wait_with_output().unwrap().stdout;
    let _closed: io::Result<()> = writer.join().unwrap();
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(output.len());
    let (head, body) = output.split_at(end);
    let head = String::from_utf8_lossy(head);
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    let mut answer = format!("HTTP/1.1 {status}\r\n").into_bytes();
    for line in head.lines().filter(|line| !line.starts_with("Status: ")) {
        answer.extend_from_slice(format!("{line}\r\n").as_bytes());
    }
    let body = body.get(4..).unwrap_or_default();
    answer.extend_from_slice(
        format!("Content-Length: {}\r\nConnection: close\r\n\r\n", body.len()).as_bytes(),
    );
    answer.extend_from_slice(body);
    answer
}

/// The connection below a stream.
pub(crate) trait AsTcp {
    fn tcp(&self) -> &TcpStream;
}

impl AsTcp for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl AsTcp for rustls::StreamOwned<rustls::ServerConnection, TcpStream> {
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }
}
