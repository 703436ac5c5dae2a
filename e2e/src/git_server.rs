//! A real Git server for stories and demonstrations: `git http-backend` behind HTTP or HTTPS.
//!
//! Here: starting and ending it, who may read, what was asked of it.
//! Elsewhere: answering one request (`http`), TLS (`tls`), making commits (`repository`), the
//! same repositories over SSH (`ssh`).

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

/// Who may read.
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

/// One request as the server saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitServerRequest {
    /// `GET` or `POST`.
    pub method: String,
    /// The path without the query, `/app.git/info/refs`.
    pub path: String,
    /// What follows the `?`.
    pub query: String,
    /// The status that was answered.
    pub status: u16,
    /// How many bytes of body were received.
    pub received: u64,
    /// How many bytes of body have been sent so far.
    pub sent: u64,
}

/// A Git server on loopback. Ends, with its repositories, when dropped or when this process ends.
///
/// It serves from a thread of its own, so a story may block while it talks to the server.
pub struct GitServer {
    address: SocketAddr,
    folder: PathBuf,
    authority: Option<TestCertificateAuthority>,
    requests: Arc<Mutex<Vec<GitServerRequest>>>,
    is_stalling: watch::Sender<bool>,
    waiting: Arc<Mutex<Vec<Weak<()>>>>,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
    reaper: ProcessReaper,
}

impl GitServer {
    /// Starts a server over plain HTTP.
    pub fn start(access: GitReadAccess) -> Result<Self> {
        Self::start_with(access, None, false)
    }

    /// Starts a server over HTTPS, with a certificate that only [`GitServer::authority`] vouches
    /// for.
    pub fn start_tls(access: GitReadAccess) -> Result<Self> {
        Self::start_with(access, Some(TestCertificateAuthority::generate()?), false)
    }

    /// [`GitServer::start_tls`], which accepts only clients with a certificate of [`GitServer::authority`].
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
            // The receiver is gone once the address was sent; then the server has ended as intended.
            tell.send(outcome.map(|()| None)).ok();
        })?;
        let address = receiver.recv()??.context("the Git server ended before it began")?;
        Ok(Self { address, folder, authority, requests, is_stalling, waiting, _stop: stop, reaper })
    }

    /// Creates the empty repository `name`, which may contain `/`, with the branch `main`.
    pub fn repository(&self, name: &str) -> Result<StoryGitRepository> {
        StoryGitRepository::create(&self.root(), &self.folder.join("work"), name)
    }

    /// The folder of the served repositories, for [`SshServer::start`].
    pub fn root(&self) -> PathBuf {
        self.folder.join("served")
    }

    /// The URL to clone from.
    pub fn url(&self, repository: &StoryGitRepository) -> String {
        format!("{}/{}.git", self.base_url(), repository.name())
    }

    /// The same repository behind a server that does not answer until [`GitServer::release`].
    pub fn slow_url(&self, repository: &StoryGitRepository) -> String {
        format!("{}/slow/{}.git", self.base_url(), repository.name())
    }

    /// How many requests below `/slow/` wait at the moment.
    pub fn waiting(&self) -> usize {
        let mut waiting = self.waiting.lock();
        waiting.retain(|waiter| waiter.strong_count() > 0);
        waiting.len()
    }

    /// Lets all requests below `/slow/` go on, those that wait and those to come.
    pub fn release(&self) {
        self.is_stalling.send_replace(false);
    }

    /// All requests since the start or [`GitServer::forget_requests`], in order of arrival of
    /// their answers.
    pub fn requests(&self) -> Vec<GitServerRequest> {
        self.requests.lock().clone()
    }

    /// Begins counting anew.
    pub fn forget_requests(&self) {
        self.requests.lock().clear();
    }

    /// Who vouches for the server's certificate; none over plain HTTP.
    pub fn authority(&self) -> Option<&TestCertificateAuthority> {
        self.authority.as_ref()
    }

    /// Starts an SSH server over the same repositories; it ends with this one.
    pub fn ssh(&self) -> Result<SshServer> {
        SshServer::start(&self.folder.join("ssh"), &self.root(), &self.reaper)
    }

    /// `http://127.0.0.1:PORT`, or with `https`.
    pub fn base_url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// A folder for the story's own files about this server; it goes with the server.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

type ListenResult = Result<Option<SocketAddr>>;

/// The server's thread: tells its address, then serves until it is stopped.
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
