//! The common part of measurements with many objects: how many objects and rounds, the raw client's side of a round,
//! and the verdict.
//!
//! `kustomizations`, `helm_releases` and `helmfile_releases` have the operator's side. `workload` makes the objects,
//! and `test_bed` reads the costs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use e2e::cluster_with_operator::WatchedObject;
use tokio::runtime::Runtime;

use super::raw_client_comparison::{self, BenchComparison, PhaseCost};
use super::test_bed::{self, BenchTarget, BenchTestbed, MeasuredProcess};
use super::time_samples;
use super::workload::{self, WorkloadApp};

/// How much is measured how often.
#[derive(Debug, Args)]
pub(crate) struct RoundCountOptions {
    /// How many objects of the kind
    #[arg(value_parser = clap::value_parser!(u16).range(1..=2000))]
    pub(super) count: u16,
    /// They wait until their Deployments are available; so does the raw client, by one watch
    #[arg(long)]
    pub(super) wait: bool,
    /// Then change every object by a commit or a new version of the chart, and measure until each is changed
    #[arg(long)]
    pub(super) update: bool,
    /// How often each of both does it
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) rounds: u16,
    /// Without the raw client, since another operator is compared with
    #[arg(skip)]
    pub(super) is_alone: bool,
    #[command(flatten)]
    pub(super) target: BenchTarget,
}

impl RoundCountOptions {
    /// The options for one install of so many objects by the operator alone. It waits until they are ready.
    pub(super) fn alone(count: u16) -> Self {
        let target = BenchTarget::default();
        Self { count, wait: true, update: false, rounds: 1, is_alone: true, target }
    }

    /// The programs that install in each round, in this order.
    pub(super) fn sides(&self) -> &'static [MeasuredProcess] {
        if self.is_alone {
            &[MeasuredProcess::Operator]
        } else {
            &[MeasuredProcess::Raw, MeasuredProcess::Operator]
        }
    }

    /// How long a piece of work may take. It is long for an operator that polls and works on few objects at once.
    pub(super) fn limit(&self) -> Duration {
        limit(self.count.into())
    }
}

/// How long a piece of work with so many objects may take.
pub(super) fn limit(count: usize) -> Duration {
    Duration::from_secs(120 + 3 * count as u64)
}

/// Measures on a test bed, and prints the tables.
///
/// # Errors
/// When a step did not end in time, or windlass exceeded a promised limit.
pub(super) fn run(
    target: &BenchTarget,
    measure: impl FnOnce(&Runtime, &BenchTestbed) -> anyhow::Result<Vec<BenchComparison>>,
) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let mut bed = BenchTestbed::open(&runtime, target)?;
    let load = time_samples::load();
    let measured = measure(&runtime, &bed);
    let comparisons = measured.map_err(|error| bed.explain(error))?;
    let passes = comparisons.iter().all(BenchComparison::passes);
    raw_client_comparison::print(target.output, &comparisons, &load);
    if !passes {
        bail!("a promise was not kept");
    }
    Ok(())
}

/// The applications of a round. It creates a namespace for each of them.
///
/// # Errors
/// A namespace cannot be created.
pub(super) async fn apps(
    bed: &BenchTestbed,
    work: &str,
    count: usize,
) -> anyhow::Result<Vec<WorkloadApp>> {
    let app = |number: usize| {
        let name = format!("{work}-{number:04}");
        WorkloadApp { namespace: name.clone(), name, work: work.to_owned(), replicas: 1 }
    };
    let apps: Vec<WorkloadApp> = (1..=count).map(app).collect();
    let names: Vec<String> = apps.iter().map(|app| app.namespace.clone()).collect();
    bed.create_namespaces(&names).await?;
    Ok(apps)
}

/// The raw client's side of a round.
pub(super) struct RawClientRound<'a> {
    /// The value of the workload label.
    pub(super) work: &'a str,
    /// How many Deployments there are.
    pub(super) deployments: usize,
    /// The version of the objects.
    pub(super) version: u32,
    pub(super) manifests: Vec<String>,
    /// Whether the client waits until the Deployments are available.
    pub(super) waits: bool,
}

impl RawClientRound<'_> {
    /// Applies the objects as fast as possible. With `waits`, it waits by one watch until they are available.
    ///
    /// # Errors
    /// An object is rejected, or is not available in time.
    pub(super) async fn apply(self, bed: &BenchTestbed) -> anyhow::Result<PhaseCost> {
        let objects = test_bed::prepare(&self.manifests)?;
        let mut watch = bed.watch_deployments(self.work).await?;
        let image = workload::image(self.version);
        let before = bed.read(MeasuredProcess::Raw)?;
        let begun = Instant::now();
        let mut times = bed.raw().apply(&objects).await?;
        if self.waits {
            let is_new = |seen: &WatchedObject| {
                seen.value("/spec/template/spec/containers/0/image") == image.as_str()
            };
            let done = test_bed::rollouts(&mut watch, self.deployments, is_new).await?;
            times = done.iter().map(|at| at.saturating_duration_since(begun)).collect();
        }
        bed.settle(self.work, self.deployments).await?;
        bed.spent(&before, times)
    }
}
