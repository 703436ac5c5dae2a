//! A proxy in front of the API server. Through it, tests show windlass the faults that a real cluster can have.
//!
//! Here: starting the proxy, its kubeconfig, switching faults on and off, cutting the connection at a write, wrong answers to
//! one request.
//! Elsewhere: the properties of a request (`api_request_properties`), the decision about a request (`api_request_gate`),
//! connections and TLS (`connection`).
//!
//! Requests and answers are streamed, so watches work. The proxy speaks HTTP/2 on both sides and has its own certificate
//! authority.
//! It uses the TLS settings of its own kubeconfig towards the API server. It passes on the bearer tokens of the program under
//! test.

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

/// A fault of the API server, or of the connection to it. It lasts until [`ApiServerFaultProxy::heal`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiFault {
    /// The API server is unreachable. The proxy closes open connections and new ones.
    Gone,
    /// Every answer begins later by this duration.
    Slow(Duration),
    /// The proxy answers a share of all requests with a status such as 429 or 503.
    Refusing {
        /// The HTTP status. Answers with 429 contain `Retry-After: 1`.
        status: u16,
        /// The share of these requests, in percent.
        percent: u8,
    },
    /// The API server takes only a few requests at once. The proxy answers all others with 429. Watches do not count, and every
    /// answer begins later by a duration.
    Crowded {
        /// The number of requests that are handled at the same time.
        at_once: usize,
        /// How long each of them takes at least.
        delay: Duration,
    },
    /// A kind is unavailable. Every open watch ends. The proxy answers 503 to lists and watches whose paths end with this text.
    Unavailable(String),
    /// The proxy answers every access review with a status.
    FailingReviews {
        /// The HTTP status.
        status: u16,
    },
    /// The proxy answers every request with 401.
    Unauthorized,
    /// The proxy answers requests with this bearer token with 401.
    Revoked(String),
    /// Every open watch ends. A watch that resumes from a resourceVersion below this number gets the error that the version is
    /// too old.
    Compacted(u64),
}

/// When the connection is lost, relative to the write at which the test cuts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionCutMoment {
    /// The API server never receives the write.
    Before,
    /// The API server has answered the write, but the answer never arrives.
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

/// A cut of the connection that the test has ordered.
#[derive(Debug)]
pub struct ConnectionCutHandle {
    receiver: oneshot::Receiver<String>,
    /// The write at which the connection was lost. It is kept while the API server still works on other writes.
    request: Option<String>,
    gate: Arc<ApiRequestGate>,
}

impl ConnectionCutHandle {
    /// Waits until the cut has happened and the API server has finished every write that it received before. Returns the write
    /// at which the cut happened. Returns `None` if the proxy has ended or the test ordered another cut. A test may cancel this
    /// call and repeat it until it returns.
    pub async fn wait(&mut self) -> Option<String> {
        if self.request.is_none() {
            self.request = Some((&mut self.receiver).await.ok()?);
        }
        self.gate.await_writes_under_way().await;
        self.request.take()
    }
}

/// A running proxy. It ends when it is dropped or when this process ends.
pub struct ApiServerFaultProxy {
    gate: Arc<ApiRequestGate>,
    kubeconfig: PathBuf,
    /// The thread of the proxy ends when this sender is dropped.
    _stop: oneshot::Sender<()>,
    /// Removes the folder with the kubeconfig.
    _reaper: ProcessReaper,
}

impl ApiServerFaultProxy {
    /// Starts a proxy in front of the API server of a kubeconfig.
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
            // The receiver no longer exists after the address was sent. In that case, the server has ended as intended.
            sender.send(outcome.map(|()| None)).ok();
        })?;
        let address = receiver.recv()??.context("the proxy ended before it began")?;
        let own = folder.join("kubeconfig");
        write_private(&own, &redirected(kubeconfig, address, &authority)?)?;
        Ok(Self { gate, kubeconfig: own, _stop: stop, _reaper: reaper })
    }

    /// The kubeconfig that leads through the proxy. It has the users of the kubeconfig with which the proxy was started.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The flag with which windlass connects through the proxy.
    pub fn flag(&self) -> String {
        format!("--kubeconfig={}", self.kubeconfig.display())
    }

    /// Writes a further kubeconfig through the proxy. Its user is `user`, for example `{"tokenFile": "…"}`.
    pub fn kubeconfig_of(&self, user: &Value) -> Result<PathBuf> {
        let mut config: Value = serde_json::from_slice(&std::fs::read(&self.kubeconfig)?)?;
        for entry in config["users"].as_array_mut().into_iter().flatten() {
            entry["user"] = user.clone();
        }
        let path = self.kubeconfig.with_file_name("other.kubeconfig");
        write_private(&path, &config.to_string())?;
        Ok(path)
    }

    /// Begins a fault, which replaces the previous fault.
    pub fn begin(&self, fault: ApiFault) {
        self.gate.set_fault(Some(fault));
    }

    /// Ends the fault, the cut, and the wrong answers.
    pub fn heal(&self) {
        self.gate.set_fault(None);
    }

    /// Ends every open watch, as an API server does when the time limit of a watch is reached.
    pub fn end_watches(&self) {
        self.gate.end_watches();
    }

    /// Closes every open connection. New connections are accepted.
    pub fn drop_connections(&self) {
        self.gate.drop_connections();
    }

    /// Orders a cut: the connection is lost at the `number`-th write from now on, counted from 1. After that, the proxy answers
    /// no request until [`ApiServerFaultProxy::heal`]. The count of writes starts again.
    pub fn cut_at(&self, number: usize, moment: ConnectionCutMoment) -> ConnectionCutHandle {
        ConnectionCutHandle {
            receiver: self.gate.cut_at(number, moment),
            request: None,
            gate: self.gate.clone(),
        }
    }

    /// Orders a wrong answer to the `number`-th request from now on, counted from 1, and to each repetition of that request.
    /// The order ends with [`ApiServerFaultProxy::heal`]. Watches are counted, but requests about Events, Leases, tokens and reviews are
    /// not.
    pub fn answer_wrongly(&self, number: usize, fault: ResponseFault) {
        self.gate.answer_wrongly(number, fault);
    }

    /// The requests that were counted since [`ApiServerFaultProxy::answer_wrongly`], as `METHOD path`. Empty after [`ApiServerFaultProxy::heal`].
    pub fn requests_since_order(&self) -> Vec<String> {
        self.gate.requests_since_order()
    }

    /// The request that gets wrong answers. `None` until this request arrives, and after [`ApiServerFaultProxy::heal`].
    pub fn wrong_request(&self) -> Option<String> {
        self.gate.wrong_request()
    }

    /// The writes since the start or the last [`ApiServerFaultProxy::cut_at`], as `METHOD path`, in order of arrival. Dry-runs, Events and
    /// Leases are left out. The list includes a write that a cut kept from the API server.
    pub fn writes(&self) -> Vec<String> {
        self.gate.writes()
    }
}

type ListenResult = Result<Option<SocketAddr>>;

/// The thread of the proxy. It reports its address, and then serves until it is stopped.
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

/// Replaces the server and the certificate authority of a kubeconfig. The result is JSON, which is valid YAML.
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
