//! A real Kubernetes control plane on loopback: etcd, the API server, the controller manager, the scheduler, and kwok, which
//! simulates one node and its Pods.
//!
//! Here: starting the programs in order, and providing kubeconfigs and logs.
//! Elsewhere: the files of the control plane (`state_folder`), the flags of its programs (`programs`), its first objects
//! (`first_objects`), the programs themselves (`testbed::binaries`), the behaviour of Pods (`testbed/kwok/stages.yaml`).

mod first_objects;
mod kubeconfig;
mod programs;
mod state_folder;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::certificate_authority::TestCertificateAuthority;
use crate::process_reaper::ProcessReaper;
use crate::random_sequence::RandomSequence;
use crate::tls_proxy::TlsProxyListener;
use testbed::binaries::TestbedBinaries;

pub use kubeconfig::client;
pub use state_folder::ControlPlaneStateFolder;
pub(crate) use state_folder::write_private;

/// The user of the program under test. It is a service account, so RBAC and the flow control of the API server apply as in a
/// real cluster.
pub const OPERATOR: &str = "system:serviceaccount:flux-system:windlass-controller";

/// The OpenID Connect client for which the API server accepts tokens.
pub const LOGIN_CLIENT: &str = "windlass-web";

fn issuer_url(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

/// The OpenID Connect issuer that the API server trusts. The name of a user is `oidc:` and the claim `sub`. The issuer ends
/// when this is dropped.
#[derive(Debug)]
pub struct ApiServerOidcIssuer {
    /// The URL by which the issuer has to call itself.
    pub url: String,
    /// The certificate authority of the issuer's certificate.
    pub authority: PathBuf,
    _front: TlsProxyListener,
}

/// How long the whole bed may take to become ready. A busy machine with cold caches needs a while.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A running control plane. It ends when it is dropped or when this process ends, and leaves no files.
#[derive(Debug)]
pub struct ControlPlane {
    state: ControlPlaneStateFolder,
    server: String,
    issuer_port: u16,
    authority: TestCertificateAuthority,
    reaper: Option<ProcessReaper>,
    children: Vec<(&'static str, Child)>,
}

impl ControlPlane {
    /// Starts a control plane in a temporary folder.
    pub async fn start() -> Result<Self> {
        Self::start_in(ControlPlaneStateFolder::temporary, &mut |_| {}).await
    }

    /// Starts a control plane in the folder that `state` makes, and reports each step to `report`.
    ///
    /// The control plane is ready when the API server is ready, the node is Ready, and the first objects exist. These are the
    /// `default` service accounts, and the namespace `flux-system` with the service account `windlass`.
    /// If another program took one of the ports, this function calls `state` again for an empty folder, and repeats the start.
    pub async fn start_in(
        state: impl Fn() -> Result<ControlPlaneStateFolder>,
        report: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Self> {
        let binaries = tokio::task::spawn_blocking(TestbedBinaries::ensure).await??;
        let mut attempt = 1;
        loop {
            match Self::try_start(&binaries, state()?, report).await {
                Err(error)
                    if attempt < 4 && format!("{error:#}").contains("address already in") =>
                {
                    report("another program took one of the ports; trying others");
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn try_start(
        binaries: &TestbedBinaries,
        state: ControlPlaneStateFolder,
        report: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Self> {
        let start = Instant::now();
        let mut done =
            |what: &str| report(&format!("{what} ({:.1} s)", start.elapsed().as_secs_f64()));
        let reaper = ProcessReaper::start(Some(state.folder()))?;
        let ports: [u16; 5] = free_ports()?;
        let [api, .., issuer_port] = ports;
        let server = format!("https://127.0.0.1:{api}");
        let authority = TestCertificateAuthority::generate()?;
        state.write_credentials(&authority, &server)?;
        let reaper = Some(reaper);
        let children = Vec::new();
        let mut plane = Self { state, server, issuer_port, authority, reaper, children };
        let mut programs = programs::all(&plane.state, binaries, ports)?;
        let (storage, controllers) = programs.split_at_mut(2);

        plane.spawn(storage)?;
        let client = client(&plane.kubeconfig()).await?;
        plane.await_answer(|| first_objects::is_api_ready(&client)).await?;
        done("API server ready");
        plane.await_answer(|| first_objects::create(&client)).await?;
        plane.spawn(controllers)?;
        plane.await_answer(|| first_objects::are_controllers_ready(&client)).await?;
        done("controllers and node ready");
        Ok(plane)
    }

    /// The state folder, with certificates, kubeconfigs and logs.
    pub fn state(&self) -> &ControlPlaneStateFolder {
        &self.state
    }

    /// The process id of one of the programs, such as `kube-apiserver`. `None` if there is no program of that name.
    pub fn process(&self, program: &str) -> Option<u32> {
        self.children.iter().find(|(name, _)| *name == program).map(|(_, child)| child.id())
    }

    /// The URL of the API server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The kubeconfig of a cluster administrator (`system:masters`).
    pub fn kubeconfig(&self) -> PathBuf {
        self.state.kubeconfig()
    }

    /// The kubeconfig of [`OPERATOR`]. This user has the rights of an installation, and the rights to apply the objects of
    /// stories.
    pub fn operator_kubeconfig(&self) -> PathBuf {
        self.state.operator_kubeconfig()
    }

    /// Writes a kubeconfig for a user. The user has the rights that RBAC grants to the user name or to the group.
    pub fn user_kubeconfig(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let issued = self.authority.issue_user(user, group.as_slice())?;
        let path =
            self.state.folder().join(format!("{}.kubeconfig", user.replace(['/', ':'], "-")));
        let who = kubeconfig::KubeconfigCredential::Certificate(&issued);
        let text = kubeconfig::render(&self.server, self.authority.certificate(), user, &who);
        write_private(&path, &text)?;
        Ok(path)
    }

    /// Makes an HTTP server the issuer that the API server trusts. The API server notices the issuer within some seconds.
    pub async fn trusted_issuer(&self, server: SocketAddr) -> Result<ApiServerOidcIssuer> {
        let front = TlsProxyListener::start_on(self.issuer_port, server, &self.authority).await?;
        let url = issuer_url(self.issuer_port);
        Ok(ApiServerOidcIssuer { url, authority: self.state.pki().join("ca.crt"), _front: front })
    }

    /// Writes a kubeconfig for an existing service account. Its token is valid for one hour.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let client = client(&self.kubeconfig()).await?;
        let token = first_objects::request_token(&client, namespace, name).await?;
        let path = self.state.folder().join(format!("{namespace}-{name}.kubeconfig"));
        let who = kubeconfig::KubeconfigCredential::Token(&token);
        let text = kubeconfig::render(&self.server, self.authority.certificate(), name, &who);
        write_private(&path, &text)?;
        Ok(path)
    }

    /// Lets the control plane keep running when this process ends. [`ControlPlaneStateFolder::stop`] ends it.
    pub fn detach(mut self) -> Result<ControlPlaneStateFolder> {
        let mut processes = Vec::new();
        if let Some(reaper) = self.reaper.take() {
            processes.push(("keeper", reaper.id()));
            processes.extend(self.children.iter().map(|(name, child)| (*name, child.id())));
            self.state.write_processes(&self.server, &processes)?;
            reaper.detach()?;
        }
        Ok(self.state.clone())
    }

    fn spawn(&mut self, programs: &mut [programs::ProgramLaunch]) -> Result<()> {
        let reaper = self.reaper.as_ref().context("the control plane is detached")?;
        for program in programs {
            let child = reaper.spawn(&mut program.command, &self.state.log(program.name))?;
            self.children.push((program.name, child));
        }
        Ok(())
    }

    /// Repeats a check until it succeeds. Returns early with an error if a program has ended.
    async fn await_answer<Answer>(&mut self, ask: impl Fn() -> Answer) -> Result<()>
    where
        Answer: Future<Output = Result<bool>>,
    {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let answer = tokio::time::timeout(Duration::from_secs(10), ask()).await;
            if let Ok(Ok(true)) = answer {
                return Ok(());
            }
            for (name, child) in &mut self.children {
                if let Some(status) = child.try_wait()? {
                    let log = tail(&self.state.log(name), 15);
                    bail!("{name} ended during the start ({status}):\n{log}");
                }
            }
            if Instant::now() > deadline {
                let log = tail(&self.state.log("kube-apiserver"), 15);
                let last = answer.map_or("no answer".to_owned(), |answer| format!("{answer:?}"));
                bail!("the control plane is not ready: {last}; the API server's log ends:\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(reaper) = self.reaper.take() {
            drop(reaper);
            for (_, child) in &mut self.children {
                child.wait().ok();
            }
        }
    }
}

/// The range in which free ports are chosen. It is below the range that the kernel uses for outgoing connections. So no
/// connection can take the port of a program that is killed and started again.
const PORT_SEARCH_RANGE: std::ops::Range<u16> = 15_000..32_000;

/// Finds ports on which no program listens. All of them are bound before any is released, so they differ. Another program may
/// take a port before it is used, and then the start is repeated.
pub fn free_ports<const PORT_COUNT: usize>() -> Result<[u16; PORT_COUNT]> {
    let mut random =
        RandomSequence::new(RandomSequence::seed() ^ (u64::from(std::process::id()) << 32));
    let mut held = Vec::with_capacity(PORT_COUNT);
    for _ in 0..PORT_SEARCH_RANGE.len() {
        if held.len() == PORT_COUNT {
            break;
        }
        let port = PORT_SEARCH_RANGE.start + u16::try_from(random.below(PORT_SEARCH_RANGE.len()))?;
        held.extend(TcpListener::bind(("127.0.0.1", port)));
    }
    let mut ports = [0; PORT_COUNT];
    for (at, port) in ports.iter_mut().enumerate() {
        *port = held.get(at).context("no free port on loopback")?.local_addr()?.port();
    }
    Ok(ports)
}

/// The last `lines` lines of a file, or a note that the file cannot be read.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    match std::fs::read(path) {
        Ok(content) => {
            let text = String::from_utf8_lossy(&content);
            let all: Vec<&str> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        }
        Err(error) => format!("({}: {error})", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let mut ports = free_ports::<20>().expect("free ports").to_vec();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
        assert!(!ports.contains(&0));
    }

    #[test]
    fn a_tail_is_the_end_of_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        std::fs::write(&path, "a\nb\nc\n").expect("a file");
        assert_eq!(tail(&path, 2), "b\nc");
        assert_eq!(tail(&path, 9), "a\nb\nc");
        assert!(tail(&folder.path().join("none"), 2).contains("none"));
    }
}
