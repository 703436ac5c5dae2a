//! Publishes a message to a NATS server, with the five commands of the NATS protocol that this takes.
//!
//! Elsewhere: subject, payload and login (`engines/notify`), which addresses may be asked (`http_client::EgressRules`), how
//! long it may take (`delivery_attempt`).
//!
//! Source of the semantics: nats.io, "Client Protocol"; nats.go 1.4x for addresses and logins.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_client::{EgressRules, refusal};
use notify::{HttpResponse, MessageSendResult, NatsLogin, NatsMessage};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use serde::{Deserialize, Serialize};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite,
    AsyncWriteExt as _,
};
use tokio::io::{BufReader, BufStream};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

/// The port of a server whose address has none.
const DEFAULT_NATS_PORT: u16 = 4222;

/// How long connecting to one server may take, with its first line. Parity(flux): that of nats.go.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// Longest line that a server may send. Its first names all servers of a cluster.
const LONGEST_LINE: usize = 256 << 10;

/// The most lines that a server may send before the expected line.
const MOST_LINES: usize = 64;

/// Most servers that an address may name.
const MOST_SERVERS: usize = 16;

/// The reason why a message was not published, and whether another attempt may help.
struct NatsPublishError {
    text: String,
    may_help: bool,
}

impl NatsPublishError {
    fn lasting(text: impl Into<String>) -> Self {
        Self { text: text.into(), may_help: false }
    }

    fn passing(text: impl Into<String>) -> Self {
        Self { text: text.into(), may_help: true }
    }

    /// Adds to an error that the failure came before anything was published.
    fn connecting(self) -> Self {
        Self { text: format!("error connecting to server: {}", self.text), ..self }
    }
}

impl From<io::Error> for NatsPublishError {
    fn from(error: io::Error) -> Self {
        match refusal(&error) {
            Some(refused) => Self::lasting(refused.to_string()),
            None => Self::passing(error.to_string()),
        }
    }
}

/// One of the servers that an address names.
struct NatsServer {
    host: String,
    port: u16,
    is_tls: bool,
    /// The login in the address: a name with a password, or a token.
    user: Option<(String, Option<String>)>,
}

/// The first message of a server.
#[derive(Default, Deserialize)]
#[serde(default)]
struct NatsServerInfo {
    tls_required: bool,
    tls_available: bool,
    nonce: Option<String>,
    max_payload: Option<u64>,
}

/// The answer of a client.
#[derive(Serialize)]
struct NatsConnect<'c> {
    verbose: bool,
    pedantic: bool,
    tls_required: bool,
    name: &'c str,
    lang: &'c str,
    version: &'c str,
    protocol: u8,
    echo: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nkey: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sig: Option<String>,
}

/// Publishes a message, and waits until the server has it. Servers are tried in the order of the address until one can be
/// reached. A server may name further servers, but windlass does not ask these, since no spec named them.
///
/// The caller limits the time.
pub(super) async fn publish(egress: &EgressRules, message: &NatsMessage) -> MessageSendResult {
    let published = to_any(egress, message).await;
    published.map_err(|fault| (fault.text, fault.may_help))?;
    Ok(HttpResponse { status: 200, ..HttpResponse::default() })
}

async fn to_any(egress: &EgressRules, message: &NatsMessage) -> Result<(), NatsPublishError> {
    // A line break in the subject would end the line, and the rest would be a command of its own.
    if message.subject.is_empty()
        || message.subject.contains(|it: char| it.is_whitespace() || it.is_control())
    {
        return Err(NatsPublishError::lasting("nats: invalid subject"));
    }
    let mut unreachable = NatsPublishError::lasting("nats: no servers available for connection");
    for server in servers(&message.server)? {
        match tokio::time::timeout(CONNECT_LIMIT, connect(egress, &server)).await {
            Ok(Ok((stream, info))) => return to_one(stream, &info, &server, message).await,
            Ok(Err(fault)) => unreachable = fault,
            Err(_) => unreachable = NatsPublishError::passing("nats: timeout"),
        }
    }
    Err(unreachable.connecting())
}

/// The servers of an address: URLs, separated by commas.
fn servers(address: &str) -> Result<Vec<NatsServer>, NatsPublishError> {
    let parts: Vec<&str> = address.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
    if parts.len() > MOST_SERVERS {
        let text = format!("the address names more than {MOST_SERVERS} servers");
        return Err(NatsPublishError::lasting(text).connecting());
    }
    parts.into_iter().map(|part| server(part).map_err(NatsPublishError::connecting)).collect()
}

fn server(text: &str) -> Result<NatsServer, NatsPublishError> {
    let has_scheme = text.contains("://");
    let text = if has_scheme { text.to_owned() } else { format!("nats://{text}") };
    let url = Url::parse(&text)
        .map_err(|error| NatsPublishError::lasting(format!("invalid URL: {error}")))?;
    let is_tls = match url.scheme() {
        "nats" => false,
        "tls" => true,
        scheme => {
            let text = format!("the scheme `{scheme}` is not supported; use `nats` or `tls`");
            return Err(NatsPublishError::lasting(text));
        }
    };
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| NatsPublishError::lasting("the address has no host"))?.to_owned();
    let plain =
        |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let user =
        (!url.username().is_empty()).then(|| (plain(url.username()), url.password().map(plain)));
    Ok(NatsServer { host, port: url.port().unwrap_or(DEFAULT_NATS_PORT), is_tls, user })
}

/// A connection, whether it is encrypted or not.
trait NatsStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> NatsStream for T {}

/// Connects to a server and reads its first line. The connection is encrypted if the client or the server requires it.
async fn connect(
    egress: &EgressRules,
    server: &NatsServer,
) -> Result<(BufStream<Box<dyn NatsStream>>, NatsServerInfo), NatsPublishError> {
    let addresses = egress.look_up(&server.host, server.port).await?;
    let mut stream = BufReader::new(TcpStream::connect(addresses.as_slice()).await?);
    let first = line(&mut stream).await?;
    let said = first
        .strip_prefix("INFO ")
        .ok_or_else(|| NatsPublishError::lasting("the server does not speak NATS"))?;
    let info: NatsServerInfo = serde_json::from_str(said)
        .map_err(|_| NatsPublishError::lasting("the server does not speak NATS"))?;
    if !server.is_tls && !info.tls_required {
        // The buffer may contain bytes after the first line.
        return Ok((BufStream::new(Box::new(stream)), info));
    }
    if !info.tls_required && !info.tls_available {
        return Err(NatsPublishError::lasting("nats: secure connection not available"));
    }
    // Unencrypted bytes after the first line would count as part of the encrypted stream.
    if !stream.buffer().is_empty() {
        return Err(NatsPublishError::lasting(
            "the server sent more before the connection was encrypted",
        ));
    }
    let bare = server.host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(bare)
        .map_err(|_| NatsPublishError::lasting("the host is not a valid name for TLS"))?;
    let encrypted = connector()?.connect(name, stream.into_inner()).await;
    let encrypted = encrypted.map_err(|error| NatsPublishError {
        text: format!("tls: {error}"),
        // Errors of rustls have this kind. Other errors are about the connection.
        may_help: error.kind() != io::ErrorKind::InvalidData,
    })?;
    Ok((BufStream::new(Box::new(encrypted)), info))
}

/// A connector that trusts the authorities of the system, because a Provider of this type has no certificates.
fn connector() -> Result<TlsConnector, NatsPublishError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| NatsPublishError::lasting(format!("tls: {error}")))?;
    Ok(TlsConnector::from(Arc::new(config.with_no_client_auth())))
}

/// Logs in and publishes. The answer to a ping proves that the server has received the messages before it.
async fn to_one(
    mut stream: BufStream<Box<dyn NatsStream>>,
    info: &NatsServerInfo,
    server: &NatsServer,
    message: &NatsMessage,
) -> Result<(), NatsPublishError> {
    let answer = login(info, server, message).map_err(NatsPublishError::connecting)?;
    let answer = serde_json::to_string(&answer)
        .map_err(|error| NatsPublishError::lasting(error.to_string()))?;
    stream.write_all(format!("CONNECT {answer}\r\nPING\r\n").as_bytes()).await?;
    stream.flush().await?;
    pong(&mut stream).await.map_err(NatsPublishError::connecting)?;
    let len = message.data.len();
    if info.max_payload.is_some_and(|most| u64::try_from(len).is_ok_and(|len| len > most)) {
        return Err(NatsPublishError::lasting("nats: maximum payload exceeded"));
    }
    stream.write_all(format!("PUB {} {len}\r\n", message.subject).as_bytes()).await?;
    stream.write_all(&message.data).await?;
    stream.write_all(b"\r\nPING\r\n").await?;
    stream.flush().await?;
    pong(&mut stream).await
}

fn login<'c>(
    info: &NatsServerInfo,
    server: &'c NatsServer,
    message: &'c NatsMessage,
) -> Result<NatsConnect<'c>, NatsPublishError> {
    let mut connect = NatsConnect {
        verbose: false,
        pedantic: false,
        tls_required: server.is_tls || info.tls_required,
        name: message.name,
        lang: "rust",
        version: env!("CARGO_PKG_VERSION"),
        protocol: 1,
        echo: false,
        user: None,
        pass: None,
        auth_token: None,
        nkey: None,
        jwt: None,
        sig: None,
    };
    match &message.login {
        NatsLogin::None => match &server.user {
            Some((name, Some(password))) => {
                (connect.user, connect.pass) = (Some(name.as_str()), Some(password.as_str()));
            }
            Some((token, None)) => connect.auth_token = Some(token),
            None => {}
        },
        NatsLogin::Password(name, password) => {
            (connect.user, connect.pass) = (Some(name.as_str()), Some(password.as_str()));
        }
        NatsLogin::Key(key) => {
            let nonce = info.nonce.as_deref().filter(|nonce| !nonce.is_empty());
            let nonce = nonce.ok_or_else(|| {
                NatsPublishError::lasting("nats: nkeys not supported by the server")
            })?;
            connect.sig = key.sign(nonce.as_bytes());
            match key.jwt() {
                Some(jwt) => connect.jwt = Some(jwt),
                None => connect.nkey = key.public(),
            }
        }
    }
    Ok(connect)
}

/// Waits for the answer to a ping.
async fn pong(stream: &mut BufStream<Box<dyn NatsStream>>) -> Result<(), NatsPublishError> {
    for _ in 0..MOST_LINES {
        let line = line(stream).await?;
        match line.split_ascii_whitespace().next().unwrap_or_default() {
            "PONG" => return Ok(()),
            "PING" => {
                stream.write_all(b"PONG\r\n").await?;
                stream.flush().await?;
            }
            "INFO" | "+OK" => {}
            "-ERR" => return Err(said(line.trim_start_matches("-ERR").trim().trim_matches('\''))),
            _ => {
                return Err(NatsPublishError::passing(
                    "the server sent an unknown protocol message",
                ));
            }
        }
    }
    Err(NatsPublishError::passing(format!("the server sent {MOST_LINES} lines and no answer")))
}

/// An error of the server. The protocol has no error codes, so the texts identify the errors.
fn said(text: &str) -> NatsPublishError {
    const LASTING: [&str; 5] = [
        "authorization violation",
        "user authentication",
        "permissions violation",
        "maximum payload",
        "invalid ",
    ];
    let lower = text.to_ascii_lowercase();
    let shown = format!("nats: {text}");
    if LASTING.iter().any(|lasting| lower.starts_with(lasting)) {
        return NatsPublishError::lasting(shown);
    }
    NatsPublishError::passing(shown)
}

/// A line without its end, no longer than allowed.
async fn line(stream: &mut (impl AsyncBufRead + Unpin)) -> Result<String, NatsPublishError> {
    let most = u64::try_from(LONGEST_LINE).unwrap_or(u64::MAX);
    let mut line = Vec::new();
    let read = stream.take(most).read_until(b'\n', &mut line).await?;
    if line.last() != Some(&b'\n') {
        let text = match read {
            LONGEST_LINE => format!("the server sent a line of more than {LONGEST_LINE} bytes"),
            _ => "the server closed the connection".to_owned(),
        };
        return Err(NatsPublishError::passing(text));
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A server that says something, and sends back all that it was sent.
    async fn server_that_says(lines: &'static str) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("nats://{}", listener.local_addr().unwrap());
        let heard = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(lines.as_bytes()).await.unwrap();
            let mut heard = String::new();
            stream.read_to_string(&mut heard).await.unwrap();
            heard
        });
        (address, heard)
    }

    fn message(server: &str, subject: &str) -> NatsMessage {
        NatsMessage {
            server: server.to_owned(),
            name: "test",
            subject: subject.to_owned(),
            data: b"hello".to_vec(),
            login: NatsLogin::None,
        }
    }

    async fn published(message: &NatsMessage) -> MessageSendResult {
        publish(&EgressRules::with_loopback(), message).await
    }

    #[tokio::test]
    async fn a_message_is_published_once_the_server_took_the_login() {
        let (address, heard) =
            server_that_says("INFO {\"max_payload\":100}\r\nPING\r\nPONG\r\n+OK\r\nPONG\r\n").await;
        assert_eq!(published(&message(&address, "a.b")).await.unwrap().status, 200);
        let heard = heard.await.unwrap();
        let lines: Vec<&str> = heard.split("\r\n").collect();
        assert!(lines[0].starts_with("CONNECT {\"verbose\":false"), "{heard}");
        assert_eq!(lines[1..], ["PING", "PONG", "PUB a.b 5", "hello", "PING", ""]);
    }

    #[tokio::test]
    async fn a_server_may_refuse_and_says_whether_for_good() {
        for (lines, text, helps) in [
            (
                "-ERR 'Authorization Violation'\r\n",
                "error connecting to server: nats: Authorization Violation",
                false,
            ),
            (
                "PONG\r\n-ERR 'Permissions Violation for Publish to \"a\"'\r\n",
                "nats: Permissions Violation for Publish to \"a\"",
                false,
            ),
            (
                "-ERR 'Server Shutdown'\r\n",
                "error connecting to server: nats: Server Shutdown",
                true,
            ),
        ] {
            let said = String::leak(format!("INFO {{}}\r\n{lines}"));
            let (address, _heard) = server_that_says(said).await;
            let refused = published(&message(&address, "a")).await.unwrap_err();
            assert_eq!(refused, (text.to_owned(), helps));
        }
        let (address, _heard) = server_that_says("INFO {\"max_payload\":4}\r\nPONG\r\n").await;
        let refused = published(&message(&address, "a")).await.unwrap_err();
        assert_eq!(refused, ("nats: maximum payload exceeded".to_owned(), false));
    }

    #[tokio::test]
    async fn a_subject_is_no_command_and_only_admitted_servers_are_asked() {
        for subject in ["", "a b", "a\r\nPUB b 0\r\n", "a\u{85}b"] {
            let refused = published(&message("nats://127.0.0.1:1", subject)).await.unwrap_err();
            assert_eq!(refused, ("nats: invalid subject".to_owned(), false), "{subject:?}");
        }
        for (server, text) in [
            ("nats://169.254.169.254", "is not allowed"),
            ("ws://127.0.0.1", "the scheme `ws` is not supported"),
            ("nats://", "has no host"),
        ] {
            let (said, helps) = published(&message(server, "a")).await.unwrap_err();
            assert!(said.contains(text) && !helps, "{server}: {said}");
        }
    }

    #[tokio::test]
    async fn the_next_server_is_asked_if_one_is_gone() {
        let (address, heard) = server_that_says("INFO {}\r\nPONG\r\nPONG\r\n").await;
        let both = format!("127.0.0.1:1, {address}");
        assert!(published(&message(&both, "a")).await.is_ok());
        assert!(heard.await.unwrap().contains("PUB a 5"));
        let (text, helps) = published(&message("127.0.0.1:1", "a")).await.unwrap_err();
        assert!(text.starts_with("error connecting to server: ") && helps, "{text}");
    }

    #[tokio::test]
    async fn hostile_servers_are_bounded() {
        let long = String::leak(format!("INFO {{}}\r\n{}", "x".repeat(LONGEST_LINE + 1)));
        let many = String::leak(format!("INFO {{}}\r\n{}", "+OK\r\n".repeat(MOST_LINES + 1)));
        for (said, text) in [
            ("SSH-2.0\r\n", "does not speak NATS"),
            ("INFO {\"tls_required\":true}\r\nPONG\r\n", "before the connection was encrypted"),
            (long, "a line of more than"),
            (many, "and no answer"),
            ("INFO {}\r\nMSG a 1 0\r\n", "an unknown protocol message"),
            ("INFO {}\r\n", "closed the connection"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let answered = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                // A client that has read enough goes away.
                drop(stream.write_all(said.as_bytes()).await);
                drop(stream.shutdown().await);
                drop(stream.read_to_end(&mut Vec::new()).await);
            });
            let (refused, _) = published(&message(&address, "a")).await.unwrap_err();
            assert!(refused.contains(text), "{said:.40}: {refused}");
            answered.await.unwrap();
        }
    }
}
