//! A small web server in front of the real `git http-backend`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use percent_encoding::percent_decode_str;

use crate::test_repository::isolated;

/// What a server does beside serving.
#[derive(Clone, Default)]
pub(crate) struct GitHttpServerBehavior {
    /// The only value of `Authorization` that is accepted.
    pub(crate) authorization: Option<String>,
    /// Every request is sent there instead, keeping its path.
    pub(crate) redirect: Option<String>,
    /// Paths that start with this are sent to the same path without it.
    pub(crate) redirect_prefix: Option<String>,
    /// Of the server with this beginning of a URL, if not of the same.
    pub(crate) redirect_to: Option<String>,
    /// Bytes that are sent instead of any answer, after which nothing more is sent.
    pub(crate) stall_after: Option<Vec<u8>>,
    /// Bytes that are sent instead of any answer.
    pub(crate) answer: Option<Vec<u8>>,
    /// Bytes that are sent instead of the next answer.
    pub(crate) once: Option<Vec<u8>>,
    /// One answer for each request in turn, independent of the request.
    pub(crate) script: Vec<Vec<u8>>,
    /// Bytes that are sent instead of the answer to a push.
    pub(crate) push_answer: Option<Vec<u8>>,
    /// Requests with a body are done, and the connection is closed without an answer.
    pub(crate) loses_answers: bool,
    /// Git's protocol 2 is not understood.
    pub(crate) is_old: bool,
    /// Answers come in chunks, and the connection stays open after them.
    pub(crate) keeps_alive: bool,
    /// With TLS.
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
}

/// One request as it came in.
#[derive(Debug, Clone)]
pub(crate) struct GitHttpRequest {
    /// The path, with its query.
    pub(crate) target: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Vec<u8>,
    /// Bytes of the request, headers included.
    pub(crate) received: usize,
    /// The answer, headers included.
    pub(crate) answer: Vec<u8>,
    /// Which connection it came over.
    pub(crate) connection: usize,
}

pub(crate) struct GitHttpServer {
    pub(crate) address: SocketAddr,
    shared: Arc<GitHttpServerState>,
}

struct GitHttpServerState {
    root: PathBuf,
    manners: Mutex<GitHttpServerBehavior>,
    seen: Mutex<Vec<GitHttpRequest>>,
}

impl GitHttpServer {
    pub(crate) fn start(root: &Path, manners: GitHttpServerBehavior) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let tls = manners.tls.clone();
        let manners = Mutex::new(manners);
        let seen = Mutex::default();
        let shared = Arc::new(GitHttpServerState { root: root.to_owned(), manners, seen });
        let server = Self { address, shared: Arc::clone(&shared) };
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let tls = tls.clone();
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    // In many tests a client closes the connection in the middle.
                    let _gone: io::Result<()> = match tls {
                        None => serve(stream, &shared, number),
                        Some(config) => {
                            let session = rustls::ServerConnection::new(config).unwrap();
                            serve(rustls::StreamOwned::new(session, stream), &shared, number)
                        }
                    };
                });
            }
        });
        server
    }

    /// From the next request on the server behaves otherwise.
    pub(crate) fn change(&self, change: impl FnOnce(&mut GitHttpServerBehavior)) {
        change(&mut self.shared.manners.lock());
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<GitHttpRequest> {
        self.shared.seen.lock().clone()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/app.git", self.address)
    }
}

struct LoopbackRequest {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Bytes that it took.
    length: usize,
}

impl LoopbackRequest {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

fn read_request(stream: &mut impl Read) -> io::Result<LoopbackRequest> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let mut head = reader.read_line(&mut line)?;
    if head == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut words = line.split(' ');
    let method = words.next().unwrap_or_default();
    let target = words.next().unwrap_or_default();
    let method = method.to_owned();
    let target = target.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        head += reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((key, value)) => headers.push((key.to_ascii_lowercase(), value.to_owned())),
            None => break,
        }
    }
    let mut request = LoopbackRequest { method, target, headers, body: Vec::new(), length: 0 };
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    request.body = vec![0; length];
    reader.read_exact(&mut request.body)?;
    request.length = head + length;
    Ok(request)
}

fn serve(
    mut stream: impl Read + Write + TcpStreamAccess,
    shared: &GitHttpServerState,
    connection: usize,
) -> io::Result<()> {
    loop {
        let request = read_request(&mut stream)?;
        let authorization = request.header("authorization").map(str::to_owned);
        let mut manners = shared.manners.lock().clone();
        manners.once = shared.manners.lock().once.take();
        let number = shared.seen.lock().len();
        let answer = answer(&request, &shared.root, &manners, number);
        let target = request.target;
        let body = request.body;
        let received = request.length;
        let seen = GitHttpRequest {
            target,
            authorization,
            body,
            received,
            answer: answer.clone(),
            connection,
        };
        shared.seen.lock().push(seen);
        if manners.loses_answers && request.method == "POST" {
            return stream.tcp().shutdown(std::net::Shutdown::Both);
        }
        if manners.keeps_alive {
            write_in_chunks(&mut stream, &answer)?;
            continue;
        }
        stream.write_all(&answer)?;
        stream.flush()?;
        if manners.stall_after.is_some() {
            // Until the client gives up.
            let _ended: io::Result<usize> = stream.read(&mut [0]);
        }
        return stream.tcp().shutdown(std::net::Shutdown::Write);
    }
}

fn answer(
    request: &LoopbackRequest,
    root: &Path,
    manners: &GitHttpServerBehavior,
    number: usize,
) -> Vec<u8> {
    let is_let_in = manners.authorization.is_none()
        || manners.authorization.as_deref() == request.header("authorization");
    let prefix = manners.redirect_prefix.as_deref();
    let is_push = request.method == "POST" && request.target.ends_with("/git-receive-pack");
    let pushed = manners.push_answer.as_ref().filter(|_| is_push);
    let fixed = manners.once.as_ref().or(manners.stall_after.as_ref()).or(manners.answer.as_ref());
    if let Some(bytes) = fixed.or(pushed).or(manners.script.get(number)) {
        bytes.clone()
    } else if !is_let_in {
        b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()
    } else if let Some(base) = &manners.redirect {
        redirect(&format!("{base}{}", request.target))
    } else if let Some(target) = prefix.and_then(|prefix| request.target.strip_prefix(prefix)) {
        redirect(&format!("{}{target}", manners.redirect_to.as_deref().unwrap_or_default()))
    } else {
        http_backend(root, request, manners.is_old)
    }
}

/// Sends the end of an answer a little after everything that Git reads.
fn write_in_chunks(stream: &mut impl Write, answer: &[u8]) -> io::Result<()> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]);
    let body = &answer[end + 4..];
    for line in head.lines() {
        if !line.starts_with("Content-Length") && !line.starts_with("Connection") {
            write!(stream, "{line}\r\n")?;
        }
    }
    write!(stream, "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len())?;
    stream.write_all(body)?;
    stream.flush()?;
    std::thread::sleep(Duration::from_millis(20));
    stream.write_all(b"\r\n0\r\n\r\n")?;
    stream.flush()
}

fn redirect(to: &str) -> Vec<u8> {
    let rest = "Content-Length: 0\r\nConnection: close\r\n\r\n";
    format!("HTTP/1.1 301 Moved Permanently\r\nLocation: {to}\r\n{rest}").into_bytes()
}

fn http_backend(root: &Path, request: &LoopbackRequest, is_old: bool) -> Vec<u8> {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let program = String::from_utf8(isolated("git").arg("--exec-path").output().unwrap().stdout);
    let program = PathBuf::from(program.unwrap().trim_end()).join("git-http-backend");
    let mut command = isolated(program.to_str().unwrap());
    command
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        // CGI gives the path decoded.
        .env("PATH_INFO", &*percent_decode_str(path).decode_utf8_lossy())
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
pub(crate) trait TcpStreamAccess {
    fn tcp(&self) -> &TcpStream;
}

impl TcpStreamAccess for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl TcpStreamAccess for rustls::StreamOwned<rustls::ServerConnection, TcpStream> {
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }
}
