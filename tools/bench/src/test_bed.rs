//! What measurements of operators run on: a cluster, a Git server, the raw client, and the processes that are watched.
//!
//! Here: which operator is measured, reading its costs before and after a piece of work, preparing the cluster.
//! Elsewhere: starting everything (`e2e::installation`), the work (`super::apply`, `super::kustomizations`).

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

use super::audit::{AuditLog, AuditLogPosition, RequestCounts};
use super::measurements::{FigureOutputFormat, PhaseCost};
use super::raw_client::{self, PreparedObject, RawApiClient};
use super::workload;
use e2e::installation::{
    BuildProfile, ObjectWatch, OperatorUnderTest, TestInstallation, WatchSelection, WatchedObject,
};
use testbed::progress::step;

/// How long the cluster may take to get quiet, and new namespaces to be usable.
const QUIET_LIMIT: Duration = Duration::from_secs(600);

/// What a cluster still does when everything seems to be done is given this time.
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

/// Whose costs are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MeasuredProcess {
    /// The raw client, which is this process.
    Raw,
    /// The operator.
    Operator,
}

/// Everything that is measured with. All that was started ends when this is dropped.
pub(super) struct BenchTestbed {
    // Dropped first: it has windlass, which talks to the rest.
    installation: Option<TestInstallation>,
    given: Option<GitServer>,
    client: Client,
    raw: RawApiClient,
    operators: Vec<u32>,
    api_server: Option<u32>,
    audit: Option<AuditLog>,
    is_windlass: bool,
    /// A part of all names: what is measured on a cluster that others were measured on before.
    part: String,
    /// To be deleted at the end when the cluster is not ours.
    namespaces: RefCell<Vec<String>>,
}

/// Costs at a moment.
pub(super) struct CostReading {
    who: MeasuredProcess,
    cpu: f64,
    server_cpu: Option<f64>,
    mark: Option<AuditLogPosition>,
}

impl BenchTestbed {
    /// Starts what the target asks for.
    ///
    /// # Errors
    /// The step that failed.
    pub(super) fn open(runtime: &Runtime, target: &BenchTarget) -> anyhow::Result<Self> {
        if let Some(kubeconfig) = &target.kubeconfig {
            return Self::given(runtime, kubeconfig.clone(), target.pid.clone());
        }
        let serving = if target.operator.is_empty() {
            OperatorUnderTest::Windlass(BuildProfile::Release, &target.flags)
        } else {
            OperatorUnderTest::Programs(&target.operator, &target.definitions)
        };
        Self::with(runtime, serving)
    }

    /// Starts everything with what serves the APIs.
    ///
    /// # Errors
    /// The step that failed.
    pub(super) fn with(runtime: &Runtime, serving: OperatorUnderTest<'_>) -> anyhow::Result<Self> {
        let installation = TestInstallation::start_with(runtime, serving)?;
        Self::of(runtime, installation, matches!(serving, OperatorUnderTest::Windlass(..)))
    }

    /// The same for a large cluster, whose files are in memory where there is room for them.
    ///
    /// # Errors
    /// The step that failed.
    pub(super) fn in_memory(
        runtime: &Runtime,
        serving: OperatorUnderTest<'_>,
    ) -> anyhow::Result<Self> {
        let installation = TestInstallation::start_in_memory(runtime, serving)?;
        Self::of(runtime, installation, matches!(serving, OperatorUnderTest::Windlass(..)))
    }

    fn of(
        runtime: &Runtime,
        installation: TestInstallation,
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

    /// Ends what serves the APIs and starts something else there, for the measurement `part`, a part of all its names.
    ///
    /// # Errors
    /// When the cluster is not ours, or a program does not end or start.
    pub(super) fn serve(
        &mut self,
        part: &str,
        serving: OperatorUnderTest<'_>,
    ) -> anyhow::Result<()> {
        let installation = self.installation.as_mut().context("the cluster is not ours")?;
        installation.serve(serving)?;
        self.operators = installation.operators();
        self.is_windlass = matches!(serving, OperatorUnderTest::Windlass(..));
        part.clone_into(&mut self.part);
        Ok(())
    }

    /// Kills what serves the APIs, as a power failure would, and starts it again.
    ///
    /// # Errors
    /// When the cluster is not ours, or a program does not start.
    pub(super) fn crash(&mut self) -> anyhow::Result<()> {
        let installation = self.installation.as_mut().context("the cluster is not ours")?;
        installation.crash()?;
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

    /// What was started.
    ///
    /// # Errors
    /// When the cluster was there before.
    pub(super) fn installation(&self) -> anyhow::Result<&TestInstallation> {
        self.installation.as_ref().context("the cluster is not ours")
    }

    /// The Git server.
    ///
    /// # Errors
    /// Never while this exists.
    pub(super) fn git(&self) -> anyhow::Result<&GitServer> {
        let own = self.installation.as_ref().map(TestInstallation::git);
        own.or(self.given.as_ref()).context("there is no Git server")
    }

    /// A client with an administrator's rights.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The raw client.
    pub(super) fn raw(&self) -> &RawApiClient {
        &self.raw
    }

    /// The processes that are measured.
    pub(super) fn operators(&self) -> &[u32] {
        &self.operators
    }

    /// Whether it is windlass, which has made promises.
    pub(super) fn is_windlass(&self) -> bool {
        self.is_windlass
    }

    /// The audit log.
    ///
    /// # Errors
    /// When the cluster has none where ours have it.
    pub(super) fn audit(&self) -> anyhow::Result<&AuditLog> {
        self.audit.as_ref().context(
            "there is no `log/audit.log` beside the kubeconfig, and requests are counted nowhere else",
        )
    }

    /// The same error with what is needed to understand it.
    pub(super) fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        match &mut self.installation {
            Some(installation) => installation.explain(&error),
            None => error,
        }
    }

    /// Costs until now.
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

    /// What was spent since a reading, on work of which each part was done after one of `times`.
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
    /// The first refusal.
    pub(super) async fn apply(&self, manifests: &[String]) -> anyhow::Result<Vec<Duration>> {
        self.raw.apply(&prepare(manifests)?).await
    }

    /// Creates namespaces, and waits until the cluster has put into them what Pods need.
    ///
    /// # Errors
    /// When it does not.
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

    /// Deletes Flux objects, Kustomizations before the source that they are from, and waits until they are gone.
    ///
    /// # Errors
    /// When they do not go.
    pub(super) async fn remove(&self, applied: &[String], source: String) -> anyhow::Result<()> {
        self.remove_all(applied, &[source], &kustomizations()).await
    }

    /// The same for objects of another kind.
    ///
    /// # Errors
    /// When they do not go.
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

    /// The name of a piece of work: on a cluster that existed before, no earlier run has used the name.
    pub(super) fn work(&self, who: MeasuredProcess, round: u16) -> String {
        let word = if who == MeasuredProcess::Raw { "raw" } else { "app" };
        match (&self.given, &*self.part) {
            (Some(_), _) => format!("{word}-{}-{round}", std::process::id()),
            (None, "") => format!("{word}-{round}"),
            (None, part) => format!("{word}-{part}-{round}"),
        }
    }

    /// Leaves a cluster that was there before without our namespaces; they go by themselves.
    ///
    /// # Errors
    /// The first refusal.
    pub(super) async fn leave(&self) -> anyhow::Result<()> {
        if self.given.is_none() {
            return Ok(());
        }
        let all = self.namespaces.take();
        let all: Vec<String> = all.iter().map(|name| workload::namespace(name)).collect();
        self.raw.delete(&prepare(&all)?).await
    }

    /// Waits until the Deployments of a piece of work are rolled out, and a moment more.
    ///
    /// # Errors
    /// When they are not.
    pub(super) async fn settle(&self, work: &str, count: usize) -> anyhow::Result<()> {
        let mut watch = self.watch_deployments(work).await?;
        rollouts(&mut watch, count, |_| true).await?;
        tokio::time::sleep(QUIET_PERIOD).await;
        Ok(())
    }

    /// Sees the Deployments of a piece of work.
    ///
    /// # Errors
    /// When the watch does not open.
    pub(super) async fn watch_deployments(&self, work: &str) -> anyhow::Result<ObjectWatch> {
        let label = format!("{}={work}", workload::LABEL);
        let deployments = WatchSelection::of("apps/v1", "Deployment").labelled(&label);
        ObjectWatch::begin(&self.client, &[deployments]).await
    }

    /// Has a GitRepository reconciled now.
    ///
    /// # Errors
    /// When it does not exist.
    pub(super) async fn announce(&self, source: &str, commit: &str) -> anyhow::Result<()> {
        self.request(&sources(), source, commit).await
    }

    /// Has a HelmRepository read its index now, and waits until it has.
    ///
    /// # Errors
    /// When it does not exist, or does not.
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

/// The objects of manifests as requests.
///
/// # Errors
/// When a manifest is none.
pub(super) fn prepare(manifests: &[String]) -> anyhow::Result<Vec<PreparedObject>> {
    let mut all = Vec::new();
    for manifest in manifests {
        all.extend(PreparedObject::all(manifest)?);
    }
    Ok(all)
}

/// The GitRepositories.
pub(super) fn sources() -> WatchSelection {
    WatchSelection::of("source.toolkit.fluxcd.io/v1", "GitRepository").within(workload::NAMESPACE)
}

/// The HelmReleases, and the chart that they release.
pub(super) fn releases() -> [WatchSelection; 2] {
    let charts = WatchSelection::of("source.toolkit.fluxcd.io/v1", "HelmChart");
    let all = WatchSelection::of("helm.toolkit.fluxcd.io/v2", "HelmRelease");
    [all, charts].map(|it| it.within(workload::NAMESPACE))
}

/// The Kustomizations.
pub(super) fn kustomizations() -> WatchSelection {
    let all = WatchSelection::of("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
    all.within(workload::NAMESPACE)
}

/// When each of `count` Deployments of different names was rolled out, as `is_it` means it.
///
/// # Errors
/// When one of them is not within ten minutes.
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
