//! A real Git server for stories and demonstrations: `git http-backend` behind HTTP or HTTPS.
//!
//! Here: starting and ending the server, access control, and the record of requests.
//! Elsewhere: answering one request (`http`), TLS (`tls`), making commits (`repository`), the same repositories over SSH
//! (`ssh`).

mod http;
mod repository;
mod ssh;
mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use crate::certificate_authority::TestCertificateAuthority;
use crate::process_reaper::ProcessReaper;

pub use repository::StoryGitRepository;
pub use ssh::SshServer;
pub(crate) use tls::{LOOPBACK, acceptor};

/// The clients that may read the repositories.
#[derive(Clone, Default)]
pub enum GitReadAccess {
    /// Every client.
    #[default]
    Open,
    /// A client that sends a user name and a password.
    Basic {
        /// The user name.
        user: String,
        /// The password.
        password: String,
    },
    /// A client that sends a bearer token.
    Bearer(String),
}

/// A request to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitServerRequest {
    /// `GET` or `POST`.
    pub method: String,
    /// The path without the query, `/app.git/info/refs`.
    pub path: String,
    /// The query, without the `?`.
    pub query: String,
    /// The status of the answer.
    pub status: u16,
    /// How many bytes of the request's body the server received.
    pub received: u64,
    /// How many bytes of the answer's body the server has sent so far.
    pub sent: u64,
}

/// A Git server on loopback. It ends, and its repositories are removed, when it is dropped or when this process ends.
///
/// The server has its own thread, so a story may block while it talks to the server.
pub struct GitServer {
    address: SocketAddr,
    folder: PathBuf,
    authority: Option<TestCertificateAuthority>,
    requests: Arc<Mutex<Vec<GitServerRequest>>>,
    is_stalling: watch::Sender<bool>,
    waiting: Arc<Mutex<Vec<Weak<()>>>>,
    /// The thread of the server ends when this sender is dropped.
    _stop: oneshot::Sender<()>,
    reaper: ProcessReaper,
}

impl GitServer {
    /// Starts a server over plain HTTP.
    pub fn start(access: GitReadAccess) -> Result<Self> {
        Self::start_with(access, None, false)
    }

    /// Starts a server over HTTPS. Only [`GitServer::authority`] has signed its certificate.
    pub fn start_tls(access: GitReadAccess) -> Result<Self> {
        Self::start_with(access, Some(TestCertificateAuthority::generate()?), false)
    }

    /// Starts a server over HTTPS that accepts only clients with a certificate of [`GitServer::authority`].
    pub fn start_mutual_tls(access: GitReadAccess) -> Result<Self> {
        Self::start_with(access, Some(TestCertificateAuthority::generate()?), true)
    }

    fn start_with(
        access: GitReadAccess,
        authority: Option<TestCertificateAuthority>,
        is_mutual: bool,
    ) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("windlass-git-").tempdir()?.keep();
        let reaper = ProcessReaper::start(Some(&folder))?;
        std::fs::create_dir(folder.join("served")).context("cannot create the served folder")?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let waiting = Arc::default();
        let (is_stalling, stalling) = watch::channel(true);
        let backend = http::GitHttpBackend {
            root: folder.join("served"),
            access,
            requests: Arc::clone(&requests),
            stalling,
            waiting: Arc::clone(&waiting),
        };
        let acceptor =
            authority.as_ref().map(|it| acceptor(it, &LOOPBACK, is_mutual)).transpose()?;
        let (stop, stopped) = oneshot::channel();
        let (tell, receiver) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("git-server".into()).spawn(move || {
            let outcome = run(backend, acceptor, stopped, &tell);
            // The receiver no longer exists after the address was sent. In that case, the server has ended as intended.
            tell.send(outcome.map(|()| None)).ok();
        })?;
        let address = receiver.recv()??.context("the Git server ended before it began")?;
        Ok(Self { address, folder, authority, requests, is_stalling, waiting, _stop: stop, reaper })
    }

    /// Creates the empty repository `name`, which may contain `/`, with the branch `main`.
    pub fn repository(&self, name: &str) -> Result<StoryGitRepository> {
        StoryGitRepository::create(&self.root(), &self.folder.join("work"), name)
    }

    /// The folder of the repositories, for [`SshServer::start`].
    pub fn root(&self) -> PathBuf {
        self.folder.join("served")
    }

    /// The URL from which a repository can be cloned.
    pub fn url(&self, repository: &StoryGitRepository) -> String {
        format!("{}/{}.git", self.base_url(), repository.name())
    }

    /// The URL of a repository whose requests get no answer until [`GitServer::release`].
    pub fn slow_url(&self, repository: &StoryGitRepository) -> String {
        format!("{}/slow/{}.git", self.base_url(), repository.name())
    }

    /// How many requests to URLs of [`GitServer::slow_url`] wait at the moment.
    pub fn waiting(&self) -> usize {
        let mut waiting = self.waiting.lock();
        waiting.retain(|waiter| waiter.strong_count() > 0);
        waiting.len()
    }

    /// Answers all requests to URLs of [`GitServer::slow_url`], including later ones.
    pub fn release(&self) {
        self.is_stalling.send_replace(false);
    }

    /// All requests since the start or [`GitServer::forget_requests`], in the order of their answers.
    pub fn requests(&self) -> Vec<GitServerRequest> {
        self.requests.lock().clone()
    }

    /// Starts the record of requests again.
    pub fn forget_requests(&self) {
        self.requests.lock().clear();
    }

    /// The certificate authority of the server. `None` over plain HTTP.
    pub fn authority(&self) -> Option<&TestCertificateAuthority> {
        self.authority.as_ref()
    }

    /// Starts an SSH server for the same repositories. It ends with this server.
    pub fn ssh(&self) -> Result<SshServer> {
        SshServer::start(&self.folder.join("ssh"), &self.root(), &self.reaper)
    }

    /// The base URL: `http://127.0.0.1:PORT`, or the same with `https`.
    pub fn base_url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// A folder for files of the story about this server. It is removed with the server.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

type ListenResult = Result<Option<SocketAddr>>;

/// The thread of the server. It reports its address, and then serves until it is stopped.
#[tokio::main(flavor = "current_thread")]
async fn run(
    backend: http::GitHttpBackend,
    acceptor: Option<tokio_rustls::TlsAcceptor>,
    stopped: oneshot::Receiver<()>,
    tell: &std::sync::mpsc::Sender<ListenResult>,
) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port on loopback")?;
    tell.send(Ok(Some(listener.local_addr()?))).ok();
    let router = http::router(backend);
    let serve = async {
        match acceptor {
            Some(acceptor) => axum::serve(tls::TlsListener::new(listener, acceptor), router).await,
            None => axum::serve(listener, router).await,
        }
    };
    tokio::select! {
        outcome = serve => outcome.context("the Git server failed"),
        _ = stopped => Ok(()),
    }
}
