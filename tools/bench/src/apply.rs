//! Measures one Kustomization of many objects, from the artifact to Ready. The raw client applies the same objects
//! for comparison.
//!
//! This module has the rounds. `super::workload` makes the objects, `super::test_bed` reads the costs, and
//! `super::raw_client_comparison` gives the verdict.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::runtime::Runtime;

use super::commit_arrivals::CommitArrivals;
use super::raw_client_comparison::{BenchComparison, BenchLimits, PhaseCost};
use super::round_options;
use super::test_bed::{self, BenchTarget, BenchTestbed, MeasuredProcess};
use super::workload::{self, WorkloadApp};
use e2e::cluster_with_operator::{ObjectWatch, WatchedObject};
use testbed::progress::step;

/// The promised limit: windlass takes at most this many times the raw client's time.
pub(super) const MAX_TIME_RATIO: f64 = 1.5;

/// How long one round may take.
const ROUND_TIMEOUT: Duration = Duration::from_secs(600);

/// How much is measured how often.
#[derive(Debug, Args)]
pub(crate) struct ApplyBenchOptions {
    /// How many objects, half of them ConfigMaps and half Deployments without Pods
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(2..))]
    objects: u16,
    /// How often each of both does it
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    #[command(flatten)]
    target: BenchTarget,
}

/// Measures and prints the table.
///
/// # Errors
/// When something was not applied, or windlass was slower than promised.
pub(super) fn run(options: &ApplyBenchOptions) -> anyhow::Result<()> {
    round_options::run(&options.target, |runtime, bed| Ok(vec![measure(runtime, bed, options)?]))
}

fn measure(
    runtime: &Runtime,
    bed: &BenchTestbed,
    options: &ApplyBenchOptions,
) -> anyhow::Result<BenchComparison> {
    let pairs = options.objects / 2;
    let objects = usize::from(pairs) * 2;
    let limits = BenchLimits {
        ratio: bed.is_windlass().then_some(MAX_TIME_RATIO),
        ..BenchLimits::default()
    };
    let title = format!("one Kustomization of {objects} objects, from artifact to Ready");
    let mut comparison = BenchComparison::new(title, objects, limits);
    // The first request of a client costs more, because the client opens connections and reads kinds and schemas.
    step("both once with two objects", || {
        runtime.block_on(raw_round(bed, &apps(&bed.work(MeasuredProcess::Raw, 0), 1)))?;
        runtime
            .block_on(operator_round(bed, &apps(&bed.work(MeasuredProcess::Operator, 0), 1)))
            .map(drop)
    })?;
    for round in 1..=options.rounds {
        let [raw, own] = [MeasuredProcess::Raw, MeasuredProcess::Operator]
            .map(|who| apps(&bed.work(who, round), pairs));
        step(&format!("round {round}: raw client"), || {
            comparison.add(MeasuredProcess::Raw, runtime.block_on(raw_round(bed, &raw))?);
            Ok(())
        })?;
        step(&format!("round {round}: operator"), || {
            let phase = runtime.block_on(operator_round(bed, &own))?;
            comparison.add(MeasuredProcess::Operator, phase);
            Ok(())
        })?;
    }
    runtime.block_on(bed.leave())?;
    Ok(comparison)
}

/// The applications of a round. All are in one namespace with the name of the round.
fn apps(work: &str, pairs: u16) -> Vec<WorkloadApp> {
    let app = |number: u16| WorkloadApp {
        name: format!("app-{number:04}"),
        namespace: work.to_owned(),
        work: work.to_owned(),
        replicas: 0,
    };
    (1..=pairs).map(app).collect()
}

async fn raw_round(bed: &BenchTestbed, apps: &[WorkloadApp]) -> anyhow::Result<PhaseCost> {
    let work = &apps.first().context("nothing to apply")?.work;
    bed.create_namespaces(std::slice::from_ref(work)).await?;
    let manifests: Vec<String> = apps.iter().map(|app| app.manifest(1)).collect();
    let prepared = test_bed::prepare(&manifests)?;
    let before = bed.read(MeasuredProcess::Raw)?;
    let times = bed.raw().apply(&prepared).await?;
    bed.settle(work, apps.len()).await?;
    bed.spent(&before, times)
}

async fn operator_round(bed: &BenchTestbed, apps: &[WorkloadApp]) -> anyhow::Result<PhaseCost> {
    let work = &apps.first().context("nothing to apply")?.work;
    bed.create_namespaces(std::slice::from_ref(work)).await?;
    let repository = bed.git()?.repository(work)?;
    let files: Vec<(String, String)> =
        apps.iter().map(|app| (format!("apps/{}.yaml", app.name), app.manifest(1))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
    let commit = repository.commit(&files, work)?;
    let mut watch =
        ObjectWatch::begin(bed.client(), &[test_bed::sources(), test_bed::kustomizations()])
            .await?;
    let kustomization = workload::kustomization(work, work, "apps", "10m", false);
    let source = workload::source(work, &bed.git()?.url(&repository), "10m");
    bed.apply(std::slice::from_ref(&kustomization)).await?;
    // The status says that the source is missing. From then on the Kustomization waits for the artifact.
    let is_waiting = |seen: &WatchedObject| seen.name == *work && !seen.message().is_empty();
    watch.until("the Kustomization to wait for its source", ROUND_TIMEOUT, is_waiting).await?;
    let before = bed.read(MeasuredProcess::Operator)?;
    bed.apply(std::slice::from_ref(&source)).await?;
    let arrivals = CommitArrivals::of(&commit, 1, &mut watch, ROUND_TIMEOUT).await?;
    bed.settle(work, apps.len()).await?;
    let phase = bed.spent(&before, arrivals.since(arrivals.fetched))?;
    // The objects of a round are removed, because the next round would count them as memory.
    bed.remove(&[kustomization], source).await?;
    Ok(phase)
}
