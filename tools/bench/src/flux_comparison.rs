//! Compares windlass with Flux's own controllers. Both run one after the other on one control plane.
//!
//! The work is many Kustomizations, many HelmReleases, a chain of dependencies, and edits by hand. Each piece of work
//! has a new process, so that the peak of memory belongs to that work. This module has the order of both and the
//! promised limits. `super::kustomizations`, `super::helm_releases` and `super::kustomization_chain` have the work.
//! `super::test_bed` reads the costs, and `testbed::upstream_programs` has the versions of Flux.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use futures::future::try_join_all;
use testbed::upstream_programs::UpstreamProgram;
use tokio::runtime::Runtime;

use super::kustomization_chain::{CHAIN_KUSTOMIZATION_COUNT, KustomizationChain};
use super::raw_client_comparison::{self, BenchComparison, BenchLimits, FigureOutputFormat};
use super::test_bed::{BenchTestbed, MeasuredProcess};
use super::{helm_releases, kustomizations, time_samples};
use e2e::cluster_with_operator::{BuildProfile, OperatorsToStart};
use testbed::progress::step;

/// The promised limits as parts of Flux's costs: all of its time, a tenth of its CPU, and a fifth of its memory.
pub(super) const PROMISE: BenchLimits = BenchLimits {
    ratio: Some(1.0),
    cpu_ratio: Some(0.1),
    peak_ratio: Some(0.2),
    total: None,
    cpu: None,
    peak: None,
    additional_requests: None,
};

/// The interval of objects that wait or are edited. After it an operator notices a change that its watches missed.
const INTERVAL: &str = "1m";

/// The time limit of each step. It is more than ten hops of Flux, which take up to 30 s each
/// (`--requeue-dependency`).
const STEP_TIMEOUT: Duration = Duration::from_secs(600);

/// The titles of the columns.
pub(super) const COLUMNS: [&str; 2] = ["Flux", "windlass"];

/// With what windlass is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ComparedOperator {
    /// Flux 2: source-, kustomize- and helm-controller, built from their Go modules
    Flux,
}

/// What is measured with how many.
#[derive(Debug, Args)]
pub(crate) struct FluxComparisonBenchOptions {
    /// With what windlass is compared
    #[arg(value_enum)]
    other: ComparedOperator,
    /// How many Kustomizations, and how many HelmReleases; repeat it
    #[arg(long, default_values_t = [100, 500], value_parser = clap::value_parser!(u16).range(1..=2000))]
    count: Vec<u16>,
    /// How the figures are written
    #[arg(short, long, value_enum, default_value_t = FigureOutputFormat::Table)]
    output: FigureOutputFormat,
}

/// One of the measured pieces of work.
#[derive(Debug, Clone, Copy)]
enum BenchWorkload {
    Kustomizations(u16),
    HelmReleases(u16),
    Chain,
    Drift,
}

/// The operator that does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ComparisonSide {
    Flux,
    Windlass,
}

/// Measures windlass and Flux with the same work, and prints tables that compare them.
///
/// # Errors
/// When an operator did not do the work, or windlass exceeded a promised limit.
pub(super) fn run(options: &FluxComparisonBenchOptions) -> anyhow::Result<()> {
    let ComparedOperator::Flux = options.other;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let flux = programs()?;
    let mut bed = BenchTestbed::with(&runtime, OperatorsToStart::Programs(&[], &[]))?;
    let load = time_samples::load();
    let mut work: Vec<BenchWorkload> =
        options.count.iter().copied().map(BenchWorkload::Kustomizations).collect();
    work.extend(options.count.iter().copied().map(BenchWorkload::HelmReleases));
    work.extend([BenchWorkload::Chain, BenchWorkload::Drift]);
    let mut all = Vec::new();
    for work in work {
        let mut sides = Vec::new();
        for side in [ComparisonSide::Windlass, ComparisonSide::Flux] {
            let measured = measure(&runtime, &mut bed, &flux, work, side);
            sides.push(measured.map_err(|error| bed.explain(error))?);
        }
        let [windlass, flux] = sides.try_into().ok().context("a side was not measured")?;
        let flux: BenchComparison = flux;
        all.push(flux.against(windlass, COLUMNS, PROMISE));
    }
    let passes = all.iter().all(BenchComparison::passes);
    raw_client_comparison::print(options.output, &all, &load);
    if !passes {
        bail!("a promise was not kept");
    }
    Ok(())
}

/// The command lines of Flux's controllers, each with free ports. The controllers are built if they are missing.
///
/// # Errors
/// When a controller cannot be built.
pub(super) fn programs() -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    // The other two controllers also need the address of the artifacts, so it is chosen here.
    let free = TcpListener::bind("127.0.0.1:0").context("no free port")?.local_addr()?;
    let all = [
        UpstreamProgram::SourceController,
        UpstreamProgram::KustomizeController,
        UpstreamProgram::HelmController,
    ];
    for oracle in all {
        let path = step(oracle.version(), || oracle.ensure())?;
        let own = match oracle {
            UpstreamProgram::SourceController => format!(
                " --storage-path={{folder}} --storage-addr={free} --storage-adv-addr={free}"
            ),
            _ => String::new(),
        };
        lines.push(format!(
            "env RUNTIME_NAMESPACE=flux-system {}{own} --metrics-addr=127.0.0.1:0 \
             --health-addr=127.0.0.1:0 --events-addr= --enable-leader-election=false",
            path.display()
        ));
    }
    Ok(lines)
}

fn measure(
    runtime: &Runtime,
    bed: &mut BenchTestbed,
    flux: &[String],
    work: BenchWorkload,
    side: ComparisonSide,
) -> anyhow::Result<BenchComparison> {
    let (name, serving) = match side {
        ComparisonSide::Windlass => {
            ("windlass", OperatorsToStart::Windlass(BuildProfile::Release, &[]))
        }
        ComparisonSide::Flux => ("flux", OperatorsToStart::Programs(flux, &[])),
    };
    let count = match work {
        BenchWorkload::Kustomizations(count) | BenchWorkload::HelmReleases(count) => count,
        BenchWorkload::Chain | BenchWorkload::Drift => 0,
    };
    bed.serve(&format!("{name}-{count}"), serving)?;
    let mut measured = match work {
        BenchWorkload::Kustomizations(count) => kustomizations::measure(
            runtime,
            bed,
            &kustomizations::KustomizationBenchOptions::alone(count),
        )?,
        BenchWorkload::HelmReleases(count) => helm_releases::measure(
            runtime,
            bed,
            &helm_releases::HelmReleaseBenchOptions::alone(count),
        )?,
        BenchWorkload::Chain => vec![chain(runtime, bed, name)?],
        BenchWorkload::Drift => vec![drift(runtime, bed, name)?],
    };
    measured.pop().context("nothing was measured")
}

/// Measures the time from the artifact until the last Kustomization of the chain is Ready.
fn chain(runtime: &Runtime, bed: &BenchTestbed, name: &str) -> anyhow::Result<BenchComparison> {
    let title =
        format!("a chain of {CHAIN_KUSTOMIZATION_COUNT} Kustomizations, from the artifact on");
    let mut comparison =
        BenchComparison::new(title, CHAIN_KUSTOMIZATION_COUNT, BenchLimits::default());
    let repository = format!("chain-{name}");
    let mut chain =
        KustomizationChain::new(bed.installation()?, &repository, INTERVAL, STEP_TIMEOUT)?;
    step(&format!("{name}: a chain of {CHAIN_KUSTOMIZATION_COUNT}"), || {
        let before = bed.read(MeasuredProcess::Operator)?;
        let arrivals = runtime.block_on(chain.install())?;
        comparison
            .add(MeasuredProcess::Operator, bed.spent(&before, arrivals.since(arrivals.fetched))?);
        chain.remove()
    })?;
    Ok(comparison)
}

/// Edits every object of the chain at the same time, and waits until all are corrected.
fn drift(runtime: &Runtime, bed: &BenchTestbed, name: &str) -> anyhow::Result<BenchComparison> {
    let title = format!(
        "{CHAIN_KUSTOMIZATION_COUNT} objects edited by hand, until put back, interval {INTERVAL}"
    );
    let mut comparison =
        BenchComparison::new(title, CHAIN_KUSTOMIZATION_COUNT, BenchLimits::default());
    let repository = format!("drift-{name}");
    let mut chain =
        KustomizationChain::new(bed.installation()?, &repository, INTERVAL, STEP_TIMEOUT)?;
    step(&format!("{name}: {CHAIN_KUSTOMIZATION_COUNT} edits by hand"), || {
        runtime.block_on(chain.install())?;
        let before = bed.read(MeasuredProcess::Operator)?;
        let edits = (0..CHAIN_KUSTOMIZATION_COUNT).map(|hop| chain.edit(hop));
        let times = runtime.block_on(try_join_all(edits))?;
        comparison.add(MeasuredProcess::Operator, bed.spent(&before, times)?);
        chain.remove()
    })?;
    Ok(comparison)
}

#[cfg(test)]
mod tests {
    use super::super::raw_client_comparison::PhaseCost;
    use super::*;

    fn done(total: f64, cpu: f64, peak: f64) -> BenchComparison {
        let mut all = BenchComparison::new("work".into(), 1, BenchLimits::default());
        all.add(MeasuredProcess::Operator, PhaseCost { total, cpu, peak, ..PhaseCost::default() });
        all
    }

    #[test]
    fn each_promise_is_a_share_of_what_flux_takes() {
        let judge = |windlass: BenchComparison| {
            done(10.0, 10.0, 100.0).against(windlass, COLUMNS, PROMISE).passes()
        };
        assert!(judge(done(10.0, 1.0, 20.0)), "the promises themselves are kept");
        assert!(!judge(done(10.1, 1.0, 20.0)), "slower");
        assert!(!judge(done(10.0, 1.1, 20.0)), "more CPU");
        assert!(!judge(done(10.0, 1.0, 20.1)), "more memory");
    }
}
