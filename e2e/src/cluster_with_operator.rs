//! Runs windlass, or another operator, on its own control plane with a Git server. The demo and the measurements use this.
//!
//! Here: starting everything with progress messages, ending it, and kubectl.
//! Elsewhere: watching objects (`watch`), the single parts (`crate`), the users of this module (`tools/demo`, `tools/bench`).

mod watch;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::control_plane::{self, ControlPlane, ControlPlaneStateFolder};
use crate::git_server::{GitReadAccess, GitServer};
use crate::operator_process::{self, OperatorProcess};
use anyhow::{Context as _, anyhow, bail, ensure};
use kube::Client;
use testbed::binaries::TestbedBinaries;
use tokio::runtime::Runtime;

use testbed::progress::{self, step};
use testbed::{machine_requirements, released, root};

pub use watch::{ObjectWatch, WatchSelection, WatchedObject};

/// How long windlass may take to become ready.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// The environment variable that names a program to use instead of building one.
const GIVEN: &str = "WINDLASS_BIN";

/// The folder of the CRDs.
const CRDS: &str = "deploy/chart/files/crds";

/// How many lines of the log a failure shows.
const LOG_LINES: usize = 25;

/// The build profile of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildProfile {
    /// The profile of development.
    Debug,
    /// The profile of releases.
    Release,
}

/// The programs that are started to serve the Flux APIs in an installation.
#[derive(Debug, Clone, Copy)]
pub enum OperatorsToStart<'a> {
    /// windlass, with flags in addition to its addresses.
    Windlass(BuildProfile, &'a [String]),
    /// Other programs, given as shell command lines that find the cluster by `$KUBECONFIG`. The second list contains their
    /// CRDs. If it is empty, the CRDs of windlass are used.
    Programs(&'a [String], &'a [PathBuf]),
}

/// With which signal a test stops the process of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorStopSignal {
    /// It is asked to end (`SIGTERM`), as a rollout does.
    Terminated,
    /// It is killed (`SIGKILL`), as by a power failure.
    Killed,
}

/// A running operator and its environment. Everything ends when this is dropped or the process ends.
pub struct ClusterWithOperator {
    // The fields are dropped in this order: first the operators, then the servers that they use.
    operators: Vec<OperatorProcess>,
    git: GitServer,
    cluster: InstallationCluster,
    client: Client,
}

/// The cluster of the installation.
struct InstallationCluster {
    /// The control plane if this process started it. `None` if the user named a cluster.
    plane: Option<ControlPlane>,
    /// The kubeconfig of the administrator.
    kubeconfig: PathBuf,
    /// The kubeconfig of windlass.
    operator_kubeconfig: PathBuf,
    kubectl: PathBuf,
}

impl InstallationCluster {
    fn ours(plane: ControlPlane, kubectl: PathBuf) -> Self {
        let kubeconfig = plane.kubeconfig();
        let operator_kubeconfig = plane.operator_kubeconfig();
        Self { plane: Some(plane), kubeconfig, operator_kubeconfig, kubectl }
    }

    /// Runs kubectl as an administrator and returns its output.
    fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.kubectl);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig);
        if let Some(plane) = &self.plane {
            // kubectl must not use the settings of the user.
            let folder = plane.state().folder();
            command.env("KUBECACHEDIR", folder.join("kubectl-cache")).env("HOME", folder);
        }
        let output = command.output().context("kubectl cannot be started")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("kubectl {} failed: {}", arguments.join(" "), said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn install_crds(&self, paths: &[PathBuf]) -> anyhow::Result<()> {
        for path in paths {
            let path = path.display().to_string();
            self.kubectl(&["apply", "--server-side", "-f", &path])?;
            let wait = ["wait", "--for=condition=Established", "--timeout=60s", "-f", &path];
            self.kubectl(&wait)?;
        }
        Ok(())
    }
}

impl ClusterWithOperator {
    /// Builds and starts everything step by step. `flags` are given to `windlass serve` in addition to its addresses.
    ///
    /// # Errors
    /// The step that failed, with the end of the log where a program ended.
    pub fn start(runtime: &Runtime, build: BuildProfile, flags: &[&str]) -> anyhow::Result<Self> {
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        Self::start_with(runtime, OperatorsToStart::Windlass(build, &flags))
    }

    /// Builds and starts everything, with an operator of the caller's choice.
    ///
    /// # Errors
    /// The same errors as those of [`ClusterWithOperator::start`].
    pub fn start_with(runtime: &Runtime, serving: OperatorsToStart<'_>) -> anyhow::Result<Self> {
        Self::start_in(runtime, serving, ControlPlaneStateFolder::temporary)
    }

    /// Builds and starts everything, with the files of the control plane in memory. They stay on disk if the memory has no room
    /// for a large cluster.
    ///
    /// # Errors
    /// The same errors as those of [`ClusterWithOperator::start`].
    pub fn start_in_memory(
        runtime: &Runtime,
        serving: OperatorsToStart<'_>,
    ) -> anyhow::Result<Self> {
        Self::start_in(runtime, serving, ControlPlaneStateFolder::in_memory)
    }

    fn start_in(
        runtime: &Runtime,
        serving: OperatorsToStart<'_>,
        state: fn() -> anyhow::Result<ControlPlaneStateFolder>,
    ) -> anyhow::Result<Self> {
        step("what the machine needs", machine_requirements::ensure)?;
        let binaries = step("programs of the control plane", TestbedBinaries::ensure)?;
        let kubectl = binaries.path("kubectl")?.to_owned();
        if let OperatorsToStart::Windlass(build, _) = serving {
            step("windlass itself", || make(build))?;
        }
        let plane =
            step("control plane: etcd, API server, controllers, scheduler, one node", || {
                let mut report = progress::note;
                runtime.block_on(ControlPlane::start_in(state, &mut report))
            })?;
        Self::start_at(runtime, InstallationCluster::ours(plane, kubectl), serving)
    }

    /// Starts windlass and a Git server for an existing cluster. Neither needs a program built from Go.
    ///
    /// # Errors
    /// A step failed, or there is no `kubectl`.
    pub fn start_on(
        runtime: &Runtime,
        kubeconfig: &Path,
        build: BuildProfile,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        step("windlass itself", || make(build))?;
        let cluster = InstallationCluster {
            plane: None,
            kubeconfig: kubeconfig.to_owned(),
            operator_kubeconfig: kubeconfig.to_owned(),
            kubectl: "kubectl".into(),
        };
        Self::start_at(runtime, cluster, OperatorsToStart::Windlass(build, &flags))
    }

    fn start_at(
        runtime: &Runtime,
        cluster: InstallationCluster,
        serving: OperatorsToStart<'_>,
    ) -> anyhow::Result<Self> {
        let client = runtime.block_on(control_plane::client(&cluster.kubeconfig))?;
        step("CRDs of the Flux kinds", || match serving {
            OperatorsToStart::Programs(_, given) if !given.is_empty() => {
                cluster.install_crds(given)
            }
            _ => cluster.install_crds(&[root().join(CRDS)]),
        })?;
        let git = step("Git server", || GitServer::start(GitReadAccess::Open))?;
        let operators = start_operators(&cluster, serving)?;
        Ok(Self { operators, git, cluster, client })
    }

    /// Ends the operator, and starts another one on the same control plane. The CRDs stay.
    ///
    /// # Errors
    /// When something does not end, or does not start.
    pub fn serve(&mut self, serving: OperatorsToStart<'_>) -> anyhow::Result<()> {
        for mut operator in self.operators.drain(..) {
            operator.stop(READY_LIMIT)?;
        }
        self.operators = start_operators(&self.cluster, serving)?;
        Ok(())
    }

    /// The Git server from which the operator fetches repositories.
    pub fn git(&self) -> &GitServer {
        &self.git
    }

    /// A client with the rights of an administrator.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The control plane.
    ///
    /// # Errors
    /// The cluster is not ours.
    pub fn plane(&self) -> anyhow::Result<&ControlPlane> {
        self.cluster.plane.as_ref().context("this cluster is not ours")
    }

    /// The process ids of the operator.
    pub fn operators(&self) -> Vec<u32> {
        self.operators.iter().filter_map(OperatorProcess::id).collect()
    }

    /// The kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.cluster.kubeconfig.clone()
    }

    /// The folder that contains kubectl.
    pub fn programs(&self) -> &Path {
        self.cluster.kubectl.parent().unwrap_or_else(|| Path::new("."))
    }

    /// The log of windlass, or of the first program in its place.
    pub fn log(&self) -> PathBuf {
        let first = self.operators.first();
        first.map_or_else(PathBuf::new, |operator| operator.folder().join("operator.log"))
    }

    /// Runs kubectl as an administrator and returns its output.
    ///
    /// # Errors
    /// The command fails. The error contains its standard error.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.cluster.kubectl(arguments)
    }

    /// Ends windlass, starts it again and waits until it is ready.
    ///
    /// # Errors
    /// windlass does not end, or does not start again.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.operators.iter_mut().try_for_each(|operator| {
            operator.stop(READY_LIMIT)?;
            resume(operator)
        })
    }

    /// Kills windlass as a power failure would, starts it again and waits until it is ready.
    ///
    /// # Errors
    /// windlass does not start again.
    pub fn crash(&mut self) -> anyhow::Result<()> {
        self.operators.iter_mut().try_for_each(|operator| {
            operator.kill()?;
            resume(operator)
        })
    }

    /// Starts another windlass beside those that run, with these flags, and waits until it is ready. It has a storage folder of
    /// its own.
    ///
    /// # Errors
    /// windlass does not start.
    pub fn join(&mut self, build: BuildProfile, flags: &[String]) -> anyhow::Result<()> {
        let mut operator = start_operator(build, &self.cluster, flags)?;
        await_ready(&mut operator, 0)?;
        self.operators.push(operator);
        Ok(())
    }

    /// Ends the first of several processes of windlass for good, and waits for its end. Addresses and logs are those of the next
    /// one from then on.
    ///
    /// # Errors
    /// There is only one process, or it does not end.
    pub fn end_first(&mut self, end: OperatorStopSignal) -> anyhow::Result<()> {
        ensure!(self.operators.len() > 1, "no other windlass runs");
        let mut operator = self.operators.remove(0);
        match end {
            OperatorStopSignal::Terminated => operator.stop(READY_LIMIT).map(drop),
            OperatorStopSignal::Killed => operator.kill(),
        }
    }

    /// Waits until `/readyz` of windlass answers that it is ready.
    ///
    /// # Errors
    /// windlass ends, or is not ready in time.
    pub fn await_ready(&mut self) -> anyhow::Result<()> {
        self.operators.iter_mut().try_for_each(|operator| await_ready(operator, 0))
    }

    /// The metrics page of windlass.
    ///
    /// # Errors
    /// windlass does not answer.
    pub fn metrics(&self) -> anyhow::Result<String> {
        let address = self.address("metrics")?;
        get(&address, "/metrics").with_context(|| format!("http://{address}/metrics"))
    }

    /// The address of a service of windlass according to its log, for example of `webhooks`.
    ///
    /// # Errors
    /// windlass has no address for this service.
    pub fn address(&self, serves: &str) -> anyhow::Result<String> {
        let operator = self.operators.first().context("there is no operator")?;
        let address = listening(&operator.log()?, serves);
        address.with_context(|| format!("windlass names no address of {serves}"))
    }

    /// Checks that windlass, or the program in its place, still runs.
    ///
    /// # Errors
    /// A program has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for operator in &mut self.operators {
            ensure!(operator.is_running()?, "the operator has ended");
        }
        Ok(())
    }

    /// Adds to an error what a person needs to understand it: the state of the objects and the end of the log.
    pub fn explain(&mut self, error: &anyhow::Error) -> anyhow::Error {
        let ended = if self.check().is_err() { "the operator has ended\n\n" } else { "" };
        let state = self
            .kubectl(&["-n", "flux-system", "get", "gitrepositories,kustomizations", "-o", "wide"])
            .unwrap_or_else(|error| format!("{error:#}"));
        let logs: Vec<String> = self.operators.iter().map(|it| it.tail(LOG_LINES)).collect();
        let log = logs.join("\n\n");
        anyhow!(
            "{error:#}\n\n{ended}objects:\n{}\n\nthe operator's log ends:\n{log}",
            state.trim_end()
        )
    }
}

/// Builds the program, unless the environment names another one.
///
/// # Errors
/// The program cannot be built. The compiler has printed why.
pub fn make(build: BuildProfile) -> anyhow::Result<()> {
    if std::env::var_os(GIVEN).is_some() { Ok(()) } else { make_packages(build, &["windlass"]) }
}

/// Builds packages of the workspace.
///
/// # Errors
/// The packages cannot be built. The compiler has printed why.
pub fn make_packages(build: BuildProfile, packages: &[&str]) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.arg("build").current_dir(root());
    for package in packages {
        command.args(["--package", package]);
    }
    if build == BuildProfile::Release {
        command.arg("--release");
    }
    let status = command.status().context("cargo cannot be started")?;
    ensure!(status.success(), "{} does not build", packages.join(", "));
    Ok(())
}

/// The path of the program that was built or that the environment names.
///
/// # Errors
/// The program does not exist.
pub fn program(build: BuildProfile) -> anyhow::Result<PathBuf> {
    if build == BuildProfile::Debug || std::env::var_os(GIVEN).is_some() {
        return operator_process::binary();
    }
    let path = released("windlass")?;
    ensure!(path.is_file(), "{} is not there; set {GIVEN}", path.display());
    Ok(path)
}

fn start_operators(
    cluster: &InstallationCluster,
    serving: OperatorsToStart<'_>,
) -> anyhow::Result<Vec<OperatorProcess>> {
    match serving {
        OperatorsToStart::Windlass(build, flags) => step("windlass serve", || {
            let mut operator = start_operator(build, cluster, flags)?;
            await_ready(&mut operator, 0)?;
            Ok(vec![operator])
        }),
        OperatorsToStart::Programs(lines, _) => {
            lines.iter().map(|line| step(line, || start_program(line, cluster))).collect()
        }
    }
}

/// Starts a program that needs only the address of the cluster. `{folder}` becomes a folder of its own.
fn start_program(line: &str, cluster: &InstallationCluster) -> anyhow::Result<OperatorProcess> {
    let kubeconfig = cluster.operator_kubeconfig.display().to_string();
    // The shell replaces itself with the program, so the process id is that of the program.
    let arguments = vec!["-c".into(), format!("exec {line}")];
    OperatorProcess::start_with("/bin/sh".into(), arguments, &[("KUBECONFIG", &kubeconfig)])
}

fn start_operator(
    build: BuildProfile,
    cluster: &InstallationCluster,
    flags: &[String],
) -> anyhow::Result<OperatorProcess> {
    let mut arguments: Vec<String> = vec![
        "serve".into(),
        format!("--kubeconfig={}", cluster.operator_kubeconfig.display()),
        "--storage-path={folder}/storage".into(),
        // The servers from which windlass fetches are on this machine.
        "--allow-loopback-sources".into(),
    ];
    // With port 0, windlass chooses a free port, and its log contains the port.
    arguments.extend(["storage", "metrics", "health"].map(|it| format!("--{it}-addr=127.0.0.1:0")));
    arguments.push("--receiverAddr=127.0.0.1:0".into());
    arguments.extend(flags.iter().cloned());
    OperatorProcess::start_with(program(build)?, arguments, &[])
}

/// Starts a program again, and waits until it is ready.
fn resume(operator: &mut OperatorProcess) -> anyhow::Result<()> {
    let said = operator.log_length()?;
    operator.resume()?;
    await_ready(operator, said)
}

/// Waits until `/readyz` answers that the program is ready. The address is read from the log after its first `said` bytes.
fn await_ready(operator: &mut OperatorProcess, said: u64) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let new = operator.log_from(said)?;
        if listening(&new, "health").is_some_and(|address| is_ready(&address)) {
            return Ok(());
        }
        if !operator.is_running()? {
            bail!("windlass ended before it was ready; it said:\n{}", operator.tail(LOG_LINES));
        }
        if Instant::now() > deadline {
            let log = operator.tail(LOG_LINES);
            bail!("windlass is not ready after {}:\n{log}", progress::spell(READY_LIMIT));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The last address in the log at which windlass listens for a service. `None` if the log contains none.
fn listening(log: &str, serves: &str) -> Option<String> {
    log.lines().rev().find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = line["serves"] == serves && line["msg"] == "listening";
        is_it.then(|| line["addr"].as_str().map(str::to_owned))?
    })
}

fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    // The request is sent in one write. A server that answers the first part and closes would reset the connection for the
    // second part.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn is_ready(address: &str) -> bool {
    get(address, "/readyz").is_ok_and(|answer| answer.split(' ').nth(1) == Some("200"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_health_address_is_found_in_the_log() {
        let log = "not json\n\
            {\"msg\":\"listening\",\"serves\":\"metrics\",\"addr\":\"127.0.0.1:1\"}\n\
            {\"msg\":\"listening\",\"serves\":\"health\",\"addr\":\"127.0.0.1:2\"}\n";
        assert_eq!(listening(log, "health").as_deref(), Some("127.0.0.1:2"));
        assert_eq!(listening(log, "metrics").as_deref(), Some("127.0.0.1:1"));
        assert_eq!(listening("not json\n", "health"), None);
    }

    #[test]
    fn only_a_yes_is_ready() {
        for (answer, expected) in [("200 OK", true), ("503 Service Unavailable", false)] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") {
                    stream.read_exact(&mut byte).unwrap();
                    request.extend(byte);
                }
                write!(stream, "HTTP/1.0 {answer}\r\n\r\n").unwrap();
            });
            assert_eq!(is_ready(&address), expected, "{answer}");
            server.join().unwrap();
        }
        assert!(!is_ready("127.0.0.1:1"));
    }
}
