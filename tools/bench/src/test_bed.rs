//! The test bed of measurements: a cluster, a Git server, the raw client, and the measured processes.
//!
//! This module chooses the operator, prepares the cluster, and reads costs before and after a piece of work.
//! `e2e::cluster_with_operator` starts everything. `super::apply` and `super::kustomizations` have the work.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use e2e::control_plane::{self, ControlPlaneStateFolder, OPERATOR};
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::process_usage;
use kube::Client;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::runtime::Runtime;

use super::audit_log::{AuditLog, AuditLogPosition, RequestCounts};
use super::raw_client::{self, PreparedObject, RawApiClient};
use super::raw_client_comparison::{FigureOutputFormat, PhaseCost};
use super::workload;
use e2e::cluster_with_operator::{
    BuildProfile, ClusterWithOperator, ObjectWatch, OperatorStopSignal, OperatorsToStart,
    WatchSelection, WatchedObject,
};
use testbed::progress::step;

/// How long the cluster may take to become quiet, and new namespaces to become usable.
const QUIET_LIMIT: Duration = Duration::from_secs(600);

/// A pause after the end of a piece of work, in which the cluster finishes its own work.
const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// Which operator is measured, and how the figures are written.
#[derive(Debug, Default, Args)]
#[command(after_long_help = ANOTHER)]
pub(crate) struct BenchTarget {
    /// Start this command line instead of windlass; repeat it for an operator of several programs
    #[arg(long, value_name = "COMMAND LINE")]
    operator: Vec<String>,
    /// The definitions that it needs, instead of those in `deploy/chart/files/crds`; as for `kubectl apply -f`
    #[arg(long, value_name = "PATH", requires = "operator")]
    definitions: Vec<PathBuf>,
    /// Start neither control plane nor operator: measure what runs on this cluster, which has to be on this machine
    #[arg(long, value_name = "FILE", requires = "pid", conflicts_with = "operator")]
    kubeconfig: Option<PathBuf>,
    /// A process of the operator that runs there; repeat it
    #[arg(long, requires = "kubeconfig")]
    pid: Vec<u32>,
    /// How the figures are written
    #[arg(short, long, value_enum, default_value_t = FigureOutputFormat::Table)]
    pub(super) output: FigureOutputFormat,
    /// Flags for `windlass serve`
    #[arg(last = true, conflicts_with_all = ["operator", "kubeconfig"])]
    flags: Vec<String>,
}

const ANOTHER: &str = "\
Measuring another operator of the Flux APIs:

  Everything is done through Flux objects, so any operator can stand in windlass's place. Limits are judged for windlass
  only. A command line is started in an empty folder of its own, with the cluster in $KUBECONFIG; {folder} is that folder,
  and relative paths begin there. Each is one process: end it with no `&`, and put variables before it with `env`.

    cargo xtask bench kustomizations 100 --wait --definitions FLUX/crds \\
      --operator 'env RUNTIME_NAMESPACE=flux-system FLUX/source-controller --storage-path={folder} \\
                  --storage-addr=127.0.0.1:9790 --storage-adv-addr=127.0.0.1:9790 --metrics-addr=:0 \\
                  --health-addr=:0 --events-addr= --enable-leader-election=false' \\
      --operator 'env RUNTIME_NAMESPACE=flux-system FLUX/kustomize-controller --concurrent=10 --metrics-addr=:0 \\
                  --health-addr=:0 --events-addr= --enable-leader-election=false'

  Or start it by hand on a cluster that `cargo xtask cluster up bench` printed the kubeconfigs of, with
  `operator.kubeconfig`, by whose user requests are counted:

    cargo xtask bench kustomizations 100 --wait --kubeconfig …/kubeconfig --pid 4711 --pid 4712";

/// The program whose costs are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MeasuredProcess {
    /// The raw client, which runs in this process.
    Raw,
    /// The measured operator.
    Operator,
}

/// The test bed. All started programs end when it is dropped.
pub(super) struct BenchTestbed {
    // The installation is dropped first, because its windlass connects to the other servers.
    installation: Option<ClusterWithOperator>,
    given: Option<GitServer>,
    client: Client,
    raw: RawApiClient,
    operators: Vec<u32>,
    api_server: Option<u32>,
    audit: Option<AuditLog>,
    is_windlass: bool,
    /// A part of all names. It keeps measurements apart that run on the same cluster.
    part: String,
    /// The namespaces to delete at the end, if the cluster existed before.
    namespaces: RefCell<Vec<String>>,
}

/// What a program has cost until one moment: its CPU time, the CPU time of the API server, and the position in the audit log.
/// The cost of some work is the difference from a later reading.
pub(super) struct CostReading {
    who: MeasuredProcess,
    cpu: f64,
    server_cpu: Option<f64>,
    mark: Option<AuditLogPosition>,
}

impl BenchTestbed {
    /// Starts the operator of the command line, or connects to a cluster that exists.
    ///
    /// # Errors
    /// The step that failed.
    pub(super) fn open(runtime: &Runtime, target: &BenchTarget) -> anyhow::Result<Self> {
        if let Some(kubeconfig) = &target.kubeconfig {
            return Self::given(runtime, kubeconfig.clone(), target.pid.clone());
        }
        let serving = if target.operator.is_empty() {
            OperatorsToStart::Windlass(BuildProfile::Release, &target.flags)
        } else {
            OperatorsToStart::Programs(&target.operator, &target.definitions)
        };
        Self::with(runtime, serving)
    }

    /// Starts a cluster, the Git server, the raw client and an operator.
    ///
    /// # Errors
    /// The step that failed.
    pub(super) fn with(runtime: &Runtime, serving: OperatorsToStart<'_>) -> anyhow::Result<Self> {
        let installation = ClusterWithOperator::start_with(runtime, serving)?;
        Self::of(runtime, installation, matches!(serving, OperatorsToStart::Windlass(..)))
    }

    /// Does the same for a large cluster. Its files are in memory if there is enough.
    ///
    /// # Errors
    /// The step that failed.
    pub(super) fn in_memory(
        runtime: &Runtime,
        serving: OperatorsToStart<'_>,
    ) -> anyhow::Result<Self> {
        let installation = ClusterWithOperator::start_in_memory(runtime, serving)?;
        Self::of(runtime, installation, matches!(serving, OperatorsToStart::Windlass(..)))
    }

    fn of(
        runtime: &Runtime,
        installation: ClusterWithOperator,
        is_windlass: bool,
    ) -> anyhow::Result<Self> {
        let plane = installation.plane()?;
        let raw =
            step("raw client", || runtime.block_on(RawApiClient::connect(&plane.kubeconfig())))?;
        Ok(Self {
            part: String::new(),
            given: None,
            client: installation.client().clone(),
            raw,
            operators: installation.operators(),
            api_server: plane.process("kube-apiserver"),
            audit: AuditLog::at(plane.state().audit_log()),
            is_windlass,
            namespaces: RefCell::default(),
            installation: Some(installation),
        })
    }

    /// Ends the operator and starts another one on the same cluster. `part` is a part of all names in the next
    /// measurement.
    ///
    /// # Errors
    /// When the cluster existed before, or a program does not end or start.
    pub(super) fn serve(
        &mut self,
        part: &str,
        serving: OperatorsToStart<'_>,
    ) -> anyhow::Result<()> {
        let installation = self.installation.as_mut().context("the cluster is not ours")?;
        installation.serve(serving)?;
        self.operators = installation.operators();
        self.is_windlass = matches!(serving, OperatorsToStart::Windlass(..));
        part.clone_into(&mut self.part);
        Ok(())
    }

    /// Kills the operator, as a power failure would, and starts it again.
    ///
    /// # Errors
    /// When the cluster existed before, or a program does not start.
    pub(super) fn crash(&mut self) -> anyhow::Result<()> {
        let installation = self.installation.as_mut().context("the cluster is not ours")?;
        installation.crash()?;
        self.operators = installation.operators();
        Ok(())
    }

    /// Starts another windlass beside the one that runs. It has these flags.
    ///
    /// # Errors
    /// When the cluster existed before, or windlass does not start.
    pub(super) fn join(&mut self, flags: &[String]) -> anyhow::Result<()> {
        let installation = self.installation.as_mut().context("the cluster is not ours")?;
        installation.join(BuildProfile::Release, flags)?;
        self.operators = installation.operators();
        Ok(())
    }

    /// Ends the windlass that runs longest.
    ///
    /// # Errors
    /// When the cluster existed before, or windlass does not end.
    pub(super) fn end_leader(&mut self, end: OperatorStopSignal) -> anyhow::Result<()> {
        let installation = self.installation.as_mut().context("the cluster is not ours")?;
        installation.end_first(end)?;
        self.operators = installation.operators();
        Ok(())
    }

    fn given(runtime: &Runtime, kubeconfig: PathBuf, operators: Vec<u32>) -> anyhow::Result<Self> {
        let state = ControlPlaneStateFolder::beside(&kubeconfig);
        let record = state.record();
        let api_server = record.and_then(|it| it.processes.get("kube-apiserver").copied());
        let client = runtime.block_on(control_plane::client(&kubeconfig))?;
        let raw = step("raw client", || runtime.block_on(RawApiClient::connect(&kubeconfig)))?;
        Ok(Self {
            part: String::new(),
            installation: None,
            given: Some(step("Git server", || GitServer::start(GitReadAccess::Open))?),
            client,
            raw,
            operators,
            api_server,
            audit: AuditLog::at(state.audit_log()),
            is_windlass: false,
            namespaces: RefCell::default(),
        })
    }

    /// The started programs.
    ///
    /// # Errors
    /// When the cluster existed before.
    pub(super) fn installation(&self) -> anyhow::Result<&ClusterWithOperator> {
        self.installation.as_ref().context("the cluster is not ours")
    }

    /// The Git server.
    ///
    /// # Errors
    /// Never while the test bed exists.
    pub(super) fn git(&self) -> anyhow::Result<&GitServer> {
        let own = self.installation.as_ref().map(ClusterWithOperator::git);
        own.or(self.given.as_ref()).context("there is no Git server")
    }

    /// A client with an administrator's rights.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The client that the measurements compare with windlass.
    pub(super) fn raw(&self) -> &RawApiClient {
        &self.raw
    }

    /// The ids of the operator's processes.
    pub(super) fn operators(&self) -> &[u32] {
        &self.operators
    }

    /// Whether the operator is windlass. Only windlass has promised limits.
    pub(super) fn is_windlass(&self) -> bool {
        self.is_windlass
    }

    /// The audit log.
    ///
    /// # Errors
    /// When the cluster has no audit log at the usual path.
    pub(super) fn audit(&self) -> anyhow::Result<&AuditLog> {
        self.audit.as_ref().context(
            "there is no `log/audit.log` beside the kubeconfig, and requests are counted nowhere else",
        )
    }

    /// Adds the state of the operator to an error, so that a developer can find the cause.
    pub(super) fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        match &mut self.installation {
            Some(installation) => installation.explain(&error),
            None => error,
        }
    }

    /// Reads the costs of a program until now.
    ///
    /// # Errors
    /// When a process has ended.
    pub(super) fn read(&self, who: MeasuredProcess) -> anyhow::Result<CostReading> {
        let server_cpu = self.api_server.map(|id| process_usage::cpu_seconds(&[id])).transpose()?;
        let mark = self.audit.as_ref().map(AuditLog::mark).transpose()?;
        Ok(CostReading {
            who,
            cpu: process_usage::cpu_seconds(&self.processes(who))?,
            server_cpu,
            mark,
        })
    }

    /// The costs since an earlier reading. `times` says when each part of the work was done.
    ///
    /// # Errors
    /// When a process has ended, or the audit log cannot be read.
    pub(super) fn spent(
        &self,
        since: &CostReading,
        mut times: Vec<Duration>,
    ) -> anyhow::Result<PhaseCost> {
        times.sort_unstable();
        let last = times.len().saturating_sub(1);
        let at = |index: usize| times.get(index).map_or(0.0, Duration::as_secs_f64);
        let now = self.read(since.who)?;
        Ok(PhaseCost {
            total: at(last),
            half: (last > 0).then(|| at(last / 2)),
            cpu: now.cpu - since.cpu,
            server_cpu: now.server_cpu.zip(since.server_cpu).map(|(now, before)| now - before),
            peak: process_usage::peak_mebibytes(&self.processes(since.who))?,
            requests: since.mark.map(|mark| self.requests(since.who, mark)).transpose()?,
        })
    }

    fn requests(
        &self,
        who: MeasuredProcess,
        mark: AuditLogPosition,
    ) -> anyhow::Result<RequestCounts> {
        let user = if who == MeasuredProcess::Raw { raw_client::USER } else { OPERATOR };
        self.audit()?.since(mark, user)
    }

    fn processes(&self, who: MeasuredProcess) -> Vec<u32> {
        if who == MeasuredProcess::Raw { vec![std::process::id()] } else { self.operators.clone() }
    }

    /// Applies manifests with the raw client.
    ///
    /// # Errors
    /// The first request that the API server rejected.
    pub(super) async fn apply(&self, manifests: &[String]) -> anyhow::Result<Vec<Duration>> {
        self.raw.apply(&prepare(manifests)?).await
    }

    /// Creates namespaces. It waits until the cluster has created in them what Pods need.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub(super) async fn create_namespaces(&self, names: &[String]) -> anyhow::Result<()> {
        let manifests: Vec<String> = names.iter().map(|name| workload::namespace(name)).collect();
        self.namespaces.borrow_mut().extend_from_slice(names);
        self.apply(&manifests).await?;
        let deadline = Instant::now() + QUIET_LIMIT;
        let needed = [("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")];
        for (kind, name) in needed {
            let api = WatchSelection::of("v1", kind).api(&self.client);
            let selected = ListParams::default().fields(&format!("metadata.name={name}"));
            loop {
                let found = api.list_metadata(&selected).await?;
                let found: BTreeSet<&str> =
                    found.iter().filter_map(|it| it.metadata.namespace.as_deref()).collect();
                if names.iter().all(|name| found.contains(&**name)) {
                    break;
                }
                if Instant::now() > deadline {
                    bail!("not every namespace has its {kind} `{name}`");
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        Ok(())
    }

    /// Deletes Flux objects and waits until they are gone. Kustomizations are deleted before their source.
    ///
    /// # Errors
    /// When they are not deleted in time.
    pub(super) async fn remove(&self, applied: &[String], source: String) -> anyhow::Result<()> {
        self.remove_all(applied, &[source], &kustomizations()).await
    }

    /// Deletes objects of any kinds and waits until they are gone.
    ///
    /// # Errors
    /// When they are not deleted in time.
    pub(super) async fn remove_all(
        &self,
        applied: &[String],
        sources: &[String],
        kind: &WatchSelection,
    ) -> anyhow::Result<()> {
        self.raw.delete(&prepare(applied)?).await?;
        let deadline = Instant::now() + QUIET_LIMIT;
        let api = kind.api(&self.client);
        loop {
            let left = api.list_metadata(&ListParams::default()).await?.items.len();
            if left == 0 {
                break;
            }
            ensure!(Instant::now() < deadline, "{left} objects do not go");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        self.raw.delete(&prepare(sources)?).await
    }

    /// The name of a piece of work. On a cluster that existed before, no earlier run has used this name.
    pub(super) fn work(&self, who: MeasuredProcess, round: u16) -> String {
        let word = if who == MeasuredProcess::Raw { "raw" } else { "app" };
        match (&self.given, &*self.part) {
            (Some(_), _) => format!("{word}-{}-{round}", std::process::id()),
            (None, "") => format!("{word}-{round}"),
            (None, part) => format!("{word}-{part}-{round}"),
        }
    }

    /// Deletes the namespaces of the measurement from a cluster that existed before. It does not wait until they are
    /// gone.
    ///
    /// # Errors
    /// The first request that the API server rejected.
    pub(super) async fn leave(&self) -> anyhow::Result<()> {
        if self.given.is_none() {
            return Ok(());
        }
        let all = self.namespaces.take();
        let all: Vec<String> = all.iter().map(|name| workload::namespace(name)).collect();
        self.raw.delete(&prepare(&all)?).await
    }

    /// Waits until the Deployments of a piece of work are rolled out, and then for a short pause.
    ///
    /// # Errors
    /// When they are not rolled out in time.
    pub(super) async fn settle(&self, work: &str, count: usize) -> anyhow::Result<()> {
        let mut watch = self.watch_deployments(work).await?;
        rollouts(&mut watch, count, |_| true).await?;
        tokio::time::sleep(QUIET_PERIOD).await;
        Ok(())
    }

    /// Watches the Deployments of a piece of work.
    ///
    /// # Errors
    /// When the watch does not open.
    pub(super) async fn watch_deployments(&self, work: &str) -> anyhow::Result<ObjectWatch> {
        let label = format!("{}={work}", workload::LABEL);
        let deployments = WatchSelection::of("apps/v1", "Deployment").labelled(&label);
        ObjectWatch::begin(&self.client, &[deployments]).await
    }

    /// Requests a reconciliation of a GitRepository now.
    ///
    /// # Errors
    /// When the GitRepository does not exist.
    pub(super) async fn announce(&self, source: &str, commit: &str) -> anyhow::Result<()> {
        self.request(&sources(), source, commit).await
    }

    /// Requests that a HelmRepository reads its index now, and waits until that is done.
    ///
    /// # Errors
    /// When the HelmRepository does not exist, or does not finish in time.
    pub(super) async fn announce_repository(&self, name: &str) -> anyhow::Result<()> {
        let all = WatchSelection::of("source.toolkit.fluxcd.io/v1", "HelmRepository")
            .within(workload::NAMESPACE);
        let mut watch = ObjectWatch::begin(&self.client, std::slice::from_ref(&all)).await?;
        let moment = "update";
        self.request(&all, name, moment).await?;
        let is_done = |seen: &WatchedObject| {
            seen.name == name && seen.value("/status/lastHandledReconcileAt") == moment
        };
        watch.until("the index", QUIET_LIMIT, is_done).await.map(drop)
    }

    async fn request(&self, of: &WatchSelection, name: &str, at: &str) -> anyhow::Result<()> {
        let annotations = json!({"reconcile.fluxcd.io/requestedAt": at});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        of.api(&self.client).patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// Prepares a request for each object of the manifests.
///
/// # Errors
/// When a text is not a manifest.
pub(super) fn prepare(manifests: &[String]) -> anyhow::Result<Vec<PreparedObject>> {
    let mut all = Vec::new();
    for manifest in manifests {
        all.extend(PreparedObject::all(manifest)?);
    }
    Ok(all)
}

/// Selects the GitRepositories of the test bed for a watch.
pub(super) fn sources() -> WatchSelection {
    WatchSelection::of("source.toolkit.fluxcd.io/v1", "GitRepository").within(workload::NAMESPACE)
}

/// Selects the HelmReleases, and the HelmCharts that they release.
pub(super) fn releases() -> [WatchSelection; 2] {
    let charts = WatchSelection::of("source.toolkit.fluxcd.io/v1", "HelmChart");
    let all = WatchSelection::of("helm.toolkit.fluxcd.io/v2", "HelmRelease");
    [all, charts].map(|it| it.within(workload::NAMESPACE))
}

/// Selects the Kustomizations of the test bed for a watch.
pub(super) fn kustomizations() -> WatchSelection {
    let all = WatchSelection::of("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
    all.within(workload::NAMESPACE)
}

/// Waits until `count` Deployments are rolled out and `is_it` holds for each. It returns the times.
///
/// # Errors
/// When one of them is not rolled out within ten minutes.
pub(super) async fn rollouts(
    watch: &mut ObjectWatch,
    count: usize,
    is_it: impl Fn(&WatchedObject) -> bool,
) -> anyhow::Result<Vec<Instant>> {
    let deadline = Instant::now() + QUIET_LIMIT;
    let mut done = BTreeMap::new();
    while done.len() < count {
        let what = format!("{count} Deployments to be rolled out ({} are)", done.len());
        let seen = watch.next(&what, deadline).await?;
        if seen.exists && seen.is_rolled_out() && is_it(&seen) {
            done.entry(seen.name.clone()).or_insert(seen.at);
        }
    }
    Ok(done.into_values().collect())
}
