//! Measures a push that reaches many clusters in waves, compared with the same push without a StagedRollout.
//!
//! This module has the command line, the rounds and the promised limits. `fleet` has the Kustomizations and the
//! rollout, `super::test_bed` reads the costs, and `super::raw_client_comparison` gives the verdict.
//!
//! Both sides are windlass with the same Kustomizations, one after the other in each round. A push that is measured
//! follows one that is not, so that neither side pays for what the creation or the deletion of the rollout causes.

mod fleet;

use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use e2e::cluster_with_operator::{
    BuildProfile, ObjectWatch, OperatorsToStart, WatchSelection, WatchedObject,
};
use e2e::git_server::StoryGitRepository;
use tokio::runtime::Runtime;

use self::fleet::{FLEET, StagedRolloutFleet};
use super::commit_arrivals::CommitArrivals;
use super::metrics_page::MetricsEndpoint;
use super::raw_client_comparison::{
    self, BenchComparison, BenchLimits, FigureOutputFormat, PhaseCost,
};
use super::scale::operator_activity;
use super::test_bed::{self, BenchTestbed, MeasuredProcess};
use super::{round_options, time_samples, workload};
use testbed::progress::{note, spell, step};

/// The promised limits: a tenth more time and CPU than without a rollout, and two requests more for each Kustomization.
const PROMISE: BenchLimits = BenchLimits {
    ratio: Some(1.1),
    cpu_ratio: Some(1.1),
    additional_requests: Some(2.0),
    total: None,
    cpu: None,
    peak: None,
    peak_ratio: None,
};

/// The titles of the columns.
const COLUMNS: [&str; 2] = ["none", "rollout"];

/// How much there is, and how often it is measured.
#[derive(Debug, Args)]
pub(crate) struct StagedRolloutBenchOptions {
    /// How many Kustomizations of one GitRepository, with two ConfigMaps each
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(2..=5000))]
    kustomizations: u16,
    /// In how many waves
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(2..=16))]
    waves: u16,
    /// Over how many clusters, each a Secret with a kubeconfig for the same API server
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
    clusters: u16,
    /// How often both sides are measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// How the figures are written
    #[arg(short, long, value_enum, default_value_t = FigureOutputFormat::Table)]
    output: FigureOutputFormat,
    /// Flags for `windlass serve`
    #[arg(last = true)]
    flags: Vec<String>,
}

/// Measures and prints the table.
///
/// # Errors
/// When a step did not end in time, or the rollout cost more than promised.
pub(super) fn run(options: &StagedRolloutBenchOptions) -> anyhow::Result<()> {
    let fleet = StagedRolloutFleet {
        kustomizations: usize::from(options.kustomizations),
        waves: usize::from(options.waves),
        clusters: usize::from(options.clusters),
    };
    ensure!(fleet.kustomizations >= fleet.waves, "each wave needs a Kustomization");
    ensure!(fleet.kustomizations >= fleet.clusters, "each cluster needs a Kustomization");
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let serving = OperatorsToStart::Windlass(BuildProfile::Release, &options.flags);
    let mut bed = BenchTestbed::with(&runtime, serving)?;
    let load = time_samples::load();
    let measured = measure(&runtime, &bed, fleet, options.rounds);
    let comparison = measured.map_err(|error| bed.explain(error))?;
    raw_client_comparison::print(options.output, std::slice::from_ref(&comparison), &load);
    if !comparison.passes() {
        bail!("a promise was not kept");
    }
    Ok(())
}

fn measure(
    runtime: &Runtime,
    bed: &BenchTestbed,
    fleet: StagedRolloutFleet,
    rounds: u16,
) -> anyhow::Result<BenchComparison> {
    let StagedRolloutFleet { kustomizations, waves, clusters } = fleet;
    let title =
        format!("a push to {kustomizations} Kustomizations in {clusters} clusters, {waves} waves");
    let new = || BenchComparison::new(title.clone(), fleet.kustomizations, BenchLimits::default());
    let mut without = new();
    let mut with = new();
    let mut session = step("sources, clusters and Kustomizations", || {
        runtime.block_on(StagedRolloutBenchSetup::begin(bed, fleet))
    })?;
    for round in 1..=rounds {
        // The side that is measured first changes, because the cluster grows with each push.
        let sides = if round % 2 == 1 { [false, true] } else { [true, false] };
        for is_staged in sides {
            let side = if is_staged { "in waves" } else { "without a rollout" };
            step(&format!("round {round}: {side}, a push that is not measured"), || {
                runtime.block_on(async {
                    session.set_staged(is_staged).await?;
                    session.push().await.map(drop)
                })
            })?;
            let cost = step(&format!("round {round}: {side}, the push"), || {
                runtime.block_on(session.push())
            })?;
            let of_side = if is_staged { &mut with } else { &mut without };
            of_side.add(MeasuredProcess::Operator, cost);
        }
    }
    Ok(without.against(with, COLUMNS, PROMISE))
}

/// The Kustomizations on the cluster.
struct StagedRolloutBenchSetup<'a> {
    bed: &'a BenchTestbed,
    fleet: StagedRolloutFleet,
    repository: StoryGitRepository,
    metrics: MetricsEndpoint,
    watch: ObjectWatch,
    /// Whether the rollout exists.
    is_staged: bool,
    /// The version of all objects. Each commit increases it.
    version: u32,
}

impl<'a> StagedRolloutBenchSetup<'a> {
    /// Creates all objects except the rollout. It waits until the first commit is applied and windlass is idle.
    async fn begin(bed: &'a BenchTestbed, fleet: StagedRolloutFleet) -> anyhow::Result<Self> {
        let installation = bed.installation()?;
        let repository = bed.git()?.repository(FLEET)?;
        // Git would otherwise pack objects in the background during the measurement.
        repository.git(&["config", "gc.auto", "0"])?;
        repository.git(&["config", "maintenance.auto", "false"])?;
        let metrics = MetricsEndpoint::at(&installation.address("metrics")?)?;
        let kinds = [test_bed::sources(), test_bed::kustomizations()];
        let watch = ObjectWatch::begin(bed.client(), &kinds).await?;
        let mut session =
            Self { bed, fleet, repository, metrics, watch, is_staged: false, version: 0 };
        let commit = session.commit()?;
        let kubeconfig = installation.plane()?.operator_kubeconfig();
        let kubeconfig = std::fs::read_to_string(&kubeconfig)
            .with_context(|| kubeconfig.display().to_string())?;
        bed.create_namespaces(&fleet.namespaces()).await?;
        bed.apply(&fleet.kubeconfigs(&kubeconfig)).await?;
        bed.apply(&[fleet.source(&bed.git()?.url(&session.repository))]).await?;
        bed.apply(&fleet.manifests()).await?;
        note("all are created");
        session.arrivals(&commit).await?;
        session.until_quiet().await?;
        Ok(session)
    }

    /// Creates or deletes the rollout, and waits until windlass has noticed that and is idle.
    async fn set_staged(&mut self, is_staged: bool) -> anyhow::Result<()> {
        if is_staged == self.is_staged {
            return Ok(());
        }
        let rollout = [self.fleet.rollout()];
        if is_staged {
            self.bed.apply(&rollout).await?;
            self.until_over(&self.repository.hash("HEAD")?).await?;
        } else {
            self.bed.raw().delete(&test_bed::prepare(&rollout)?).await?;
        }
        self.is_staged = is_staged;
        self.until_quiet().await
    }

    /// Pushes a change of every object, and waits until all Kustomizations have it and windlass is idle.
    async fn push(&mut self) -> anyhow::Result<PhaseCost> {
        let commit = self.commit()?;
        // Reading the events of earlier pushes would fall into the measurement.
        self.watch.forget();
        let before = self.bed.read(MeasuredProcess::Operator)?;
        self.bed.announce(FLEET, &commit).await?;
        let arrivals = self.arrivals(&commit).await?;
        let took = arrivals.all_since(arrivals.fetched);
        note(&format!("all have the commit after {}", spell(took)));
        if self.is_staged {
            // Otherwise the measurement would not be about a rollout.
            ensure!(self.fleet.is_in_waves(&arrivals.ready), "a wave began before its turn");
            self.until_over(&commit).await?;
        }
        self.until_quiet().await?;
        self.bed.spent(&before, arrivals.since(arrivals.fetched))
    }

    /// Commits the next version of all objects.
    fn commit(&mut self) -> anyhow::Result<String> {
        self.version += 1;
        let files = self.fleet.files(self.version);
        let files: Vec<(&str, &str)> = files.iter().map(|(path, it)| (&**path, &**it)).collect();
        let commit = self.repository.commit(&files, &format!("Version {}", self.version))?;
        self.repository.git(&["repack", "-q", "-a", "-d"])?;
        Ok(commit)
    }

    async fn arrivals(&mut self, commit: &str) -> anyhow::Result<CommitArrivals> {
        let count = self.fleet.kustomizations;
        CommitArrivals::of(commit, count, &mut self.watch, round_options::limit(count)).await
    }

    /// Waits until the rollout reports that all Kustomizations have a commit.
    async fn until_over(&self, commit: &str) -> anyhow::Result<()> {
        let rollouts = WatchSelection::of("release.windlass.dev/v1alpha1", "StagedRollout");
        let rollouts = rollouts.within(workload::NAMESPACE).named(FLEET);
        let mut watch =
            ObjectWatch::begin(self.bed.client(), std::slice::from_ref(&rollouts)).await?;
        let count = self.fleet.kustomizations;
        let is_over = |seen: &WatchedObject| {
            let revision = seen.value("/status/sources/0/revision").as_str();
            seen.is_ready()
                && seen.value("/status/members") == count
                && seen.value("/status/sources/0/wave").is_null()
                && revision.is_some_and(|it| it.ends_with(commit))
        };
        let limit = round_options::limit(count);
        watch.until("the end of the rollout", limit, is_over).await.map(drop)
    }

    async fn until_quiet(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let deadline = begun + round_options::limit(self.fleet.kustomizations);
        operator_activity::until_quiet(&self.metrics, begun, deadline, |_| true).await.map(drop)
    }
}
