//! `git-upload-pack` and `git-receive-pack` over SSH. It uses no `ssh` program, no agent and no files of a user.
//!
//! Elsewhere: which host keys are accepted (`known_hosts`), how the private key is read (`private_key`), the conversation over
//! the channel (`git_connection`).

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::mem;
use std::sync::Arc;

use gix_transport::client::blocking_io::Transport;
use gix_transport::client::git::ConnectMode;
use gix_transport::client::git::blocking_io::Connection;
use gix_transport::{Protocol, Service};
use http_client::EgressRules;
use parking_lot::{Mutex, MutexGuard};
use russh::client::{self, Handle, Msg};
use russh::keys::{Algorithm, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Preferred};
use tokio::net::TcpStream;

use super::credentials::ssh_user;
use super::known_hosts::KnownHost;
use super::operation_limits::GitOperation;
use super::private_key::parse_private_key;
use super::{Error, GitAuth, GitRemote};

/// Connects, authenticates and starts the service.
///
/// The address to which the name of the remote resolves is checked at each connection.
pub(super) fn transport(
    remote: &GitRemote,
    egress: &EgressRules,
    service: Service,
    wire: &GitOperation,
) -> Result<Box<dyn Transport>, Error> {
    let GitAuth::Ssh { identity, passphrase, known_hosts } = &remote.credentials.auth else {
        return Err(Error::BadSecret(
            "an ssh URL requires `identity` and `known_hosts` in the Secret".to_owned(),
        ));
    };
    let url = &remote.url;
    let passphrase = passphrase.as_ref().map(|passphrase| passphrase.expose().as_str());
    let key = parse_private_key(identity.expose(), passphrase)?;
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
        // The error on the wire is more exact than the one that russh made of it.
        Err(error) => {
            return Err(wire.failure().or(error).unwrap_or_else(|| Error::Protocol {
                remote: wire.remote(),
                cause: "the connection was closed".to_owned(),
            }));
        }
    };
    let end = SshTransportStream(Arc::new(Mutex::new(link)));
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

/// The handler with which russh checks the key of the host.
struct HostKeyCheck {
    known: KnownHost,
    wire: GitOperation,
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

fn no_connection(wire: &GitOperation, error: &(dyn std::error::Error + 'static)) -> Error {
    Error::Unreachable { host: wire.host(), cause: wire.quote(&http_client::root_cause(error)) }
}

async fn open(
    remote: &GitRemote,
    egress: &EgressRules,
    wire: &GitOperation,
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
    remote: &GitRemote,
    wire: &GitOperation,
) -> Result<SshGitChannel, Error> {
    let unreachable = |error: &(dyn std::error::Error + 'static)| no_connection(wire, error);
    let channel = session.channel_open_session().await.map_err(|e| unreachable(&e))?;
    // A server that does not let us set it answers in the old protocol, which is understood too.
    channel.set_env(false, "GIT_PROTOCOL", "version=2").await.map_err(|e| unreachable(&e))?;
    let command = format!("{} {}", service.as_str(), quoted(&remote.url.path()));
    channel.exec(true, command).await.map_err(|e| unreachable(&e))?;
    let (read, write) = channel.split();
    Ok(SshGitChannel {
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
struct SshGitChannel {
    wire: GitOperation,
    service: Service,
    read: ChannelReadHalf,
    write: ChannelWriteHalf<Msg>,
    outgoing: Vec<u8>,
    incoming: io::Cursor<Vec<u8>>,
    is_closed: bool,
    /// Keeps the connection open until it is dropped.
    _session: Handle<HostKeyCheck>,
}

impl SshGitChannel {
    fn send(&mut self) -> io::Result<()> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let bytes = mem::take(&mut self.outgoing);
        let sent = self.wire.wait(self.write.data_bytes(bytes))?;
        sent.map_err(|error| self.broken(&http_client::root_cause(&error)))
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

/// One of the two ends that gix holds. gix reads from one end and writes to the other.
#[derive(Clone)]
struct SshTransportStream(Arc<Mutex<SshGitChannel>>);

impl SshTransportStream {
    fn link(&self) -> MutexGuard<'_, SshGitChannel> {
        self.0.lock()
    }
}

impl Read for SshTransportStream {
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

impl Write for SshTransportStream {
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

    #[test]
    fn a_path_is_one_word_for_the_shell() {
        assert_eq!(quoted("/a b.git"), "'/a b.git'");
        assert_eq!(quoted("/x'; rm -rf /'"), r"'/x'\''; rm -rf /'\'''");
    }
}
