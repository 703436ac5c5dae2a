//! `git-upload-pack` and `git-receive-pack` over SSH, spoken by ourselves: no `ssh` program, no agent, no files of a user.
//!
//! Elsewhere: which host keys are accepted (`known_hosts`), the conversation over the channel (`conversation`).

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::mem;
use std::sync::Arc;

use gix_transport::client::blocking_io::Transport;
use gix_transport::client::git::ConnectMode;
use gix_transport::client::git::blocking_io::Connection;
use gix_transport::{Protocol, Service};
use parking_lot::{Mutex, MutexGuard};
use russh::client::{self, Handle, Msg};
use russh::keys::ssh_key::Kdf;
use russh::keys::{Algorithm, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Preferred};
use tokio::net::TcpStream;

use super::credentials::ssh_user;
use super::known_hosts::KnownHost;
use super::wire::Wire;
use super::{Auth, Error, Remote};
use crate::http::{self, Egress};

/// OpenSSH's default is 24. Decryption cannot be interrupted, so its cost has to be bounded.
const MOST_KDF_ROUNDS: u32 = 1024;

/// Connects, authenticates and starts the service.
///
/// The address to which the name of the remote resolves is checked at each connection.
pub(super) fn transport(
    remote: &Remote,
    egress: &Egress,
    service: Service,
    wire: &Wire,
) -> Result<Box<dyn Transport>, Error> {
    let Auth::Ssh { identity, passphrase, known_hosts } = &remote.credentials.auth else {
        return Err(Error::BadSecret(
            "an ssh URL requires `identity` and `known_hosts` in the Secret".to_owned(),
        ));
    };
    let url = &remote.url;
    let key = private_key(identity.expose(), passphrase.as_ref().map(|p| p.expose().as_str()))?;
    let known = KnownHost::read(known_hosts, &url.host(), url.port())?;
    let opened = wire
        .wait(async {
            let session = open(remote, egress, wire, key, known).await?;
            start(session, service, remote, wire).await
        })
        .map_err(|_ended| None)
        .and_then(|opened| opened.map_err(Some));
    let link = match opened {
        Ok(link) => link,
        // What was left on the wire knows better than what russh made of it.
        Err(error) => {
            return Err(wire.failure().or(error).unwrap_or_else(|| Error::Protocol {
                remote: wire.remote(),
                cause: "the connection was closed".to_owned(),
            }));
        }
    };
    let end = End(Arc::new(Mutex::new(link)));
    let path = url.path();
    Ok(Box::new(Connection::new(
        end.clone(),
        end,
        Protocol::V2,
        path.as_str(),
        None::<(String, Option<u16>)>,
        ConnectMode::Process,
        false,
    )))
}

/// Reads `identity` and the `password` that it is encrypted with.
pub(super) fn private_key(identity: &str, passphrase: Option<&str>) -> Result<PrivateKey, Error> {
    use russh::keys::Error as KeyError;
    let bad = |text: &str| Error::BadSecret(text.to_owned());
    // Parity(flux): Go reads encrypted keys in OpenSSH's format and in the old PEM form only.
    // Besides, in PKCS#8 the author of the key decides how much memory its decryption takes.
    if identity.contains("BEGIN ENCRYPTED PRIVATE KEY") {
        return Err(bad("`identity` is an encrypted PKCS#8 key: convert it with `ssh-keygen -p`"));
    }
    if let Ok(key) = PrivateKey::from_openssh(identity)
        && let Kdf::Bcrypt { rounds, .. } = key.kdf()
        && *rounds > MOST_KDF_ROUNDS
    {
        return Err(bad("`identity` is encrypted with too many rounds: use `ssh-keygen -p -a 64`"));
    }
    // Parity(flux): a passphrase for a key that has none is not examined.
    match (russh::keys::decode_secret_key(identity, None), passphrase) {
        (Ok(key), _) => Ok(key),
        (Err(KeyError::KeyIsEncrypted), None) => {
            Err(bad("`identity` is encrypted: add its passphrase as `password`"))
        }
        (Err(_), None) => Err(bad(
            "`identity` is not a private key in PEM or OpenSSH's format (Ed25519, ECDSA or RSA)",
        )),
        (Err(_), Some(_)) => russh::keys::decode_secret_key(identity, passphrase)
            .map_err(|_undecoded| bad("`identity` is not a private key that `password` decrypts")),
    }
}

/// The handler with which russh checks the key of the host.
struct HostKeyCheck {
    known: KnownHost,
    wire: Wire,
}

impl client::Handler for HostKeyCheck {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        offered: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        // Certificates were not asked for.
        let PublicKeyOrCertificate::PublicKey { key, .. } = offered else { return Ok(false) };
        Ok(match self.known.check(key) {
            Ok(()) => true,
            Err(error) => {
                let _recorded: io::Error = self.wire.fail(error);
                false
            }
        })
    }
}

fn no_connection(wire: &Wire, error: &(dyn std::error::Error + 'static)) -> Error {
    Error::Unreachable { host: wire.host(), cause: wire.quote(&http::root_cause(error)) }
}

async fn open(
    remote: &Remote,
    egress: &Egress,
    wire: &Wire,
    key: PrivateKey,
    known: KnownHost,
) -> Result<Handle<HostKeyCheck>, Error> {
    let unreachable = |error: &(dyn std::error::Error + 'static)| no_connection(wire, error);
    let url = &remote.url;
    let found = egress.look_up(&url.host(), url.port()).await.map_err(|e| unreachable(&e))?;
    let tcp = TcpStream::connect(&*found).await.map_err(|e| unreachable(&e))?;
    tcp.set_nodelay(true).map_err(|e| unreachable(&e))?;
    let usual = Preferred::DEFAULT;
    let preferred = Preferred { key: Cow::Owned(known.preferred(&usual.key)), ..usual };
    let config = Arc::new(client::Config { preferred, ..client::Config::default() });
    let check = HostKeyCheck { known, wire: wire.clone() };
    let mut session =
        client::connect_stream(config, tcp, check).await.map_err(|e| unreachable(&e))?;

    // Only RSA keys have a choice, and the server may take a second to name its preference.
    let hash = match key.algorithm() {
        Algorithm::Rsa { .. } => {
            session.best_supported_rsa_hash().await.map_err(|e| unreachable(&e))?.flatten()
        }
        _ => None,
    };
    let user = ssh_user(url);
    let kind = key.algorithm();
    let answer = session
        .authenticate_publickey(user.as_str(), PrivateKeyWithHashAlg::new(Arc::new(key), hash))
        .await
        .map_err(|e| unreachable(&e))?;
    if !answer.success() {
        let cause = format!("the {kind} key in `identity` was rejected for user `{user}`");
        return Err(Error::AuthenticationFailed { remote: wire.remote(), cause });
    }
    Ok(session)
}

/// Starts a service on a session.
async fn start(
    session: Handle<HostKeyCheck>,
    service: Service,
    remote: &Remote,
    wire: &Wire,
) -> Result<Link, Error> {
    let unreachable = |error: &(dyn std::error::Error + 'static)| no_connection(wire, error);
    let channel = session.channel_open_session().await.map_err(|e| unreachable(&e))?;
    // A server that does not let us set it answers in the old protocol, which is understood too.
    channel.set_env(false, "GIT_PROTOCOL", "version=2").await.map_err(|e| unreachable(&e))?;
    let command = format!("{} {}", service.as_str(), quoted(&remote.url.path()));
    channel.exec(true, command).await.map_err(|e| unreachable(&e))?;
    let (read, write) = channel.split();
    Ok(Link {
        wire: wire.clone(),
        service,
        read,
        write,
        outgoing: Vec::new(),
        incoming: io::Cursor::default(),
        is_closed: false,
        _session: session,
    })
}

/// One word for the shell at the far end.
fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''"))
}

/// The channel to the service at the server.
struct Link {
    wire: Wire,
    service: Service,
    read: ChannelReadHalf,
    write: ChannelWriteHalf<Msg>,
    outgoing: Vec<u8>,
    incoming: io::Cursor<Vec<u8>>,
    is_closed: bool,
    /// Keeps the connection open until it is dropped.
    _session: Handle<HostKeyCheck>,
}

impl Link {
    fn send(&mut self) -> io::Result<()> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let bytes = mem::take(&mut self.outgoing);
        let sent = self.wire.wait(self.write.data_bytes(bytes))?;
        sent.map_err(|error| self.broken(&http::root_cause(&error)))
    }

    /// Waits for more data, or for the end of the channel.
    fn receive(&mut self) -> io::Result<()> {
        match self.wire.wait(self.read.wait())? {
            Some(ChannelMsg::Data { data }) => {
                self.wire.receive(&data)?;
                self.incoming = io::Cursor::new(data.to_vec());
            }
            Some(ChannelMsg::ExtendedData { data, .. }) => {
                self.wire.receive(&data)?;
                self.wire.overhear(&data);
            }
            Some(ChannelMsg::Failure) => {
                let message = format!("it does not allow `{}`", self.service.as_str());
                let remote = self.wire.remote();
                return Err(self.wire.fail(Error::Refused { remote, message }));
            }
            Some(ChannelMsg::Close) | None => self.is_closed = true,
            // After the end of the output only the exit status and messages of the program follow.
            Some(_) => {}
        }
        Ok(())
    }

    fn broken(&self, cause: &str) -> io::Error {
        let cause = self.wire.quote(cause);
        self.wire.fail(Error::Unreachable { host: self.wire.host(), cause })
    }
}

/// One of the two ends that gix holds: it reads from one and writes to the other.
#[derive(Clone)]
struct End(Arc<Mutex<Link>>);

impl End {
    fn link(&self) -> MutexGuard<'_, Link> {
        self.0.lock()
    }
}

impl Read for End {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut link = self.link();
        link.send()?;
        loop {
            let read = link.incoming.read(into)?;
            if read > 0 || into.is_empty() || link.is_closed {
                return Ok(read);
            }
            link.receive()?;
        }
    }
}

impl Write for End {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.link().outgoing.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.link().send()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    #[test]
    fn a_path_is_one_word_for_the_shell() {
        assert_eq!(quoted("/a b.git"), "'/a b.git'");
        assert_eq!(quoted("/x'; rm -rf /'"), r"'/x'\''; rm -rf /'\'''");
    }

    #[test]
    fn a_key_that_would_take_for_ever_to_decrypt_is_refused() {
        // The header of a key in OpenSSH's format, up to its public part, with the highest number of rounds.
        let mut bytes = b"openssh-key-v1\0".to_vec();
        let mut push = |field: &[u8]| {
            bytes.extend_from_slice(&u32::try_from(field.len()).unwrap().to_be_bytes());
            bytes.extend_from_slice(field);
        };
        push(b"aes256-ctr");
        push(b"bcrypt");
        push(&[&[0, 0, 0, 16][..], &[7; 16], &[0xff; 4]].concat());
        bytes.extend_from_slice(&1_u32.to_be_bytes());
        let public = [&[0, 0, 0, 11][..], b"ssh-ed25519", &[0, 0, 0, 32], &[9; 32]].concat();
        for field in [public, vec![0; 64]] {
            bytes.extend_from_slice(&u32::try_from(field.len()).unwrap().to_be_bytes());
            bytes.extend_from_slice(&field);
        }
        let text = BASE64_STANDARD.encode(bytes);
        let lines: Vec<_> = text.as_bytes().chunks(70).map(String::from_utf8_lossy).collect();
        let key = format!(
            "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
            lines.join("\n")
        );
        let error = private_key(&key, Some("x")).unwrap_err();
        assert!(error.to_string().contains("too many rounds"), "{error}");
    }

    #[test]
    fn a_key_that_is_none_is_not_repeated() {
        for passphrase in [None, Some("hunter2")] {
            let error = private_key("-----BEGIN hunter2-----", passphrase).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }
}
