//! A proxy before the API server, through which a program under test sees faults that a cluster has.
//!
//! Here: starting it, its kubeconfig, switching faults, cutting at a write, wrong answers to one request.
//! Elsewhere: what a request is (`api_request_properties`), what becomes of it (`api_request_gate`), connections and TLS (`connection`).
//!
//! Requests and answers pass through as they come, so watches stream. The proxy speaks HTTP/2 on both sides, has a
//! certificate authority of its own, and shows the API server whatever its own kubeconfig says of TLS; bearer tokens
//! are those of the program.

mod api_request_gate;
mod api_request_properties;
mod connection;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::certificate_authority::TestCertificateAuthority;
use crate::control_plane::write_private;
use crate::process_reaper::ProcessReaper;
use crate::response_fault::ResponseFault;
use api_request_gate::ApiRequestGate;

/// What the API server, or the way to it, does wrong until [`ApiProxy::heal`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiFault {
    /// The API server is unreachable: open connections are closed, and so are new ones.
    Gone,
    /// Every answer begins this much later.
    Slow(Duration),
    /// This share of all requests, in percent, is answered with a status such as 429 or 503.
    Refusing {
        /// The HTTP status; 429 comes with `Retry-After: 1`.
        status: u16,
        /// How many in a hundred.
        percent: u8,
    },
    /// Every open watch ends, and requests whose paths end with this are answered with 503: those for lists and watches of a
    /// kind.
    Unavailable(String),
    /// Every request is answered with 401.
    Unauthorized,
    /// Requests with this bearer token are answered with 401.
    Revoked(String),
    /// Every open watch ends, and a watch that resumes from a resourceVersion below this one gets the error that it is too
    /// old.
    Compacted(u64),
}

/// When the connection is lost, seen from the write at which it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionCutMoment {
    /// The API server never gets the request.
    Before,
    /// The API server has answered, and the answer never arrives.
    After,
}

impl std::fmt::Display for ConnectionCutMoment {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.pad(match self {
            Self::Before => "before",
            Self::After => "after",
        })
    }
}

/// A cut that has been ordered.
#[derive(Debug)]
pub struct ConnectionCutHandle {
    receiver: oneshot::Receiver<String>,
    /// The write at which the connection was lost, while other writes are still under way.
    request: Option<String>,
    gate: Arc<ApiRequestGate>,
}

impl ConnectionCutHandle {
    /// Waits until the cut has happened and the API server has finished every write that it got before.
    /// Returns the request at which it happened; none when the proxy ended or another cut was ordered.
    /// It may be given up and called again, until it has returned.
    pub async fn wait(&mut self) -> Option<String> {
        if self.request.is_none() {
            self.request = Some((&mut self.receiver).await.ok()?);
        }
        self.gate.await_writes_under_way().await;
        self.request.take()
    }
}

/// A running proxy. Ends when dropped or when this process ends.
pub struct ApiProxy {
    gate: Arc<ApiRequestGate>,
    kubeconfig: PathBuf,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
    /// Removes the folder with the kubeconfig.
    _reaper: ProcessReaper,
}

impl ApiProxy {
    /// Starts a proxy before the API server of a kubeconfig.
    pub fn start(kubeconfig: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("windlass-api-proxy-").tempdir()?.keep();
        let reaper = ProcessReaper::start(Some(&folder))?;
        let authority = TestCertificateAuthority::generate()?;
        let acceptor = connection::acceptor(&authority)?;
        let gate = Arc::new(ApiRequestGate::default());
        let (stop, stopped) = oneshot::channel();
        let (sender, receiver) = std::sync::mpsc::channel();
        let served = gate.clone();
        let upstream = kubeconfig.to_owned();
        std::thread::Builder::new().name("api-proxy".into()).spawn(move || {
            let outcome = run(served, &upstream, acceptor, stopped, &sender);
            // The receiver is gone once the address was sent; then the server has ended as intended.
            sender.send(outcome.map(|()| None)).ok();
        })?;
        let address = receiver.recv()??.context("the proxy ended before it began")?;
        let own = folder.join("kubeconfig");
        write_private(&own, &redirected(kubeconfig, address, &authority)?)?;
        Ok(Self { gate, kubeconfig: own, _stop: stop, _reaper: reaper })
    }

    /// The kubeconfig that leads through the proxy, with the users of the one it was started with.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The flag that sends windlass through the proxy.
    pub fn flag(&self) -> String {
        format!("--kubeconfig={}", self.kubeconfig.display())
    }

    /// Writes a kubeconfig beside the usual one, whose user is `user`, such as `{"tokenFile": "…"}`.
    pub fn kubeconfig_of(&self, user: &Value) -> Result<PathBuf> {
        let mut config: Value = serde_json::from_slice(&std::fs::read(&self.kubeconfig)?)?;
        for entry in config["users"].as_array_mut().into_iter().flatten() {
            entry["user"] = user.clone();
        }
        let path = self.kubeconfig.with_file_name("other.kubeconfig");
        write_private(&path, &config.to_string())?;
        Ok(path)
    }

    /// Begins a fault, in place of the one before.
    pub fn begin(&self, fault: ApiFault) {
        self.gate.set_fault(Some(fault));
    }

    /// Ends the fault, a cut, and wrong answers.
    pub fn heal(&self) {
        self.gate.set_fault(None);
    }

    /// Ends every watch that is open now, as a server does when a watch's time is up.
    pub fn end_watches(&self) {
        self.gate.end_watches();
    }

    /// Closes every connection that is open now; new ones are taken.
    pub fn drop_connections(&self) {
        self.gate.drop_connections();
    }

    /// Orders that the connection is lost at the `number`-th write from now on, counted from 1. From then on no request is
    /// answered, until [`ApiProxy::heal`]. Writes are counted anew.
    pub fn cut_at(&self, number: usize, moment: ConnectionCutMoment) -> ConnectionCutHandle {
        ConnectionCutHandle {
            receiver: self.gate.cut_at(number, moment),
            request: None,
            gate: self.gate.clone(),
        }
    }

    /// Orders a wrong answer to the `number`-th request from now on, counted from 1, and to each repetition of it, until
    /// [`ApiProxy::heal`]. Watches are counted; requests about Events, Leases, tokens and reviews are not.
    pub fn answer_wrongly(&self, number: usize, fault: ResponseFault) {
        self.gate.answer_wrongly(number, fault);
    }

    /// What was counted since [`ApiProxy::answer_wrongly`], as `METHOD path`; nothing after [`ApiProxy::heal`].
    pub fn requests_since_order(&self) -> Vec<String> {
        self.gate.requests_since_order()
    }

    /// The request whose answers are wrong; none before it has come, and after [`ApiProxy::heal`].
    pub fn wrong_request(&self) -> Option<String> {
        self.gate.wrong_request()
    }

    /// The writes since the start or the last [`ApiProxy::cut_at`], as `METHOD path`, in order of arrival. Dry-runs,
    /// Events and Leases are not among them; one that a cut kept from the API server is.
    pub fn writes(&self) -> Vec<String> {
        self.gate.writes()
    }
}

type ListenResult = Result<Option<SocketAddr>>;

/// The proxy's thread: tells its address, then serves until it is stopped.
#[tokio::main(flavor = "current_thread")]
async fn run(
    gate: Arc<ApiRequestGate>,
    kubeconfig: &Path,
    acceptor: tokio_rustls::TlsAcceptor,
    stopped: oneshot::Receiver<()>,
    tell: &std::sync::mpsc::Sender<ListenResult>,
) -> Result<()> {
    let upstream = connection::ProxiedApiServerClient::of(kubeconfig).await?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port on loopback")?;
    tell.send(Ok(Some(listener.local_addr()?))).ok();
    tokio::select! {
        () = connection::serve(listener, acceptor, gate, upstream) => Ok(()),
        _ = stopped => Ok(()),
    }
}

/// A kubeconfig with another server and the authority that vouches for it, as JSON, which is YAML.
fn redirected(
    kubeconfig: &Path,
    address: SocketAddr,
    authority: &TestCertificateAuthority,
) -> Result<String> {
    let text = std::fs::read_to_string(kubeconfig)
        .with_context(|| format!("cannot read the kubeconfig {}", kubeconfig.display()))?;
    let mut config: Value = serde_saphyr::from_str(&text)
        .with_context(|| format!("{} is not a kubeconfig", kubeconfig.display()))?;
    for cluster in config["clusters"].as_array_mut().into_iter().flatten() {
        cluster["cluster"] = json!({
            "server": format!("https://{address}"),
            "certificate-authority-data": BASE64_STANDARD.encode(authority.certificate()),
        });
    }
    Ok(config.to_string())
}
