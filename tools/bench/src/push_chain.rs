//! Measures a long chain of Kustomizations, each of which depends on the previous one, from a push until the last is
//! Ready.
//!
//! Flux's controllers can do the same on the same control plane, after windlass. This module has the order of both
//! and the tables. `super::kustomization_chain` has the chain, `super::flux_comparison` Flux's controllers, and
//! `super::mixed_chain` a chain of mixed kinds.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::runtime::Runtime;

use super::flux_comparison;
use super::kustomization_chain::KustomizationChain;
use super::raw_client_comparison::{self, BenchComparison, BenchLimits, FigureOutputFormat};
use super::test_bed::{BenchTestbed, MeasuredProcess};
use super::time_samples::{self, TimeSamples};
use e2e::cluster_with_operator::{BuildProfile, OperatorsToStart, make};
use testbed::progress::step;

/// The promised limit for 95 of 100 hops of windlass.
const MAX_HOP_DELAY: Duration = Duration::from_millis(200);

/// The time limit for each hop of windlass. A chain that stops fails within minutes.
const LONGEST_HOP: Duration = Duration::from_secs(5);

/// The time limit for each hop of Flux. Its `--requeue-dependency` is 30 s.
const MAX_FLUX_HOP_DELAY: Duration = Duration::from_secs(60);

/// An interval that is so long that only dependencies and the source wake a Kustomization.
const INTERVAL: &str = "10m";

/// The costs of one operator.
struct PushChainResult {
    install: BenchComparison,
    push: BenchComparison,
    hops: TimeSamples,
}

/// Measures a chain of `count` and prints the tables.
///
/// # Errors
/// When the chain was not Ready in time, or windlass exceeded a promised limit.
pub(super) fn run(count: usize, is_beside_flux: bool) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    step("windlass itself", || make(BuildProfile::Release))?;
    let flux = if is_beside_flux { flux_comparison::programs()? } else { Vec::new() };
    let mut bed = BenchTestbed::with(&runtime, OperatorsToStart::Programs(&[], &[]))?;
    let load = time_samples::load();
    let serving = OperatorsToStart::Windlass(BuildProfile::Release, &[]);
    let hops = TimeSamples::new("windlass: Ready after its dependency", MAX_HOP_DELAY);
    let measured = measure(&runtime, &mut bed, serving, count, hops);
    let windlass = measured.map_err(|error| bed.explain(error))?;
    let mut hops = vec![windlass.hops];
    let mut tables = vec![windlass.install, windlass.push];
    if is_beside_flux {
        let serving = OperatorsToStart::Programs(&flux, &[]);
        let hops_of_flux = TimeSamples::new("Flux: Ready after its dependency", MAX_FLUX_HOP_DELAY);
        let measured = measure(&runtime, &mut bed, serving, count, hops_of_flux);
        let flux = measured.map_err(|error| bed.explain(error))?;
        hops.push(flux.hops);
        tables = [flux.install, flux.push]
            .into_iter()
            .zip(tables)
            .map(|(flux, windlass)| {
                flux.against(windlass, flux_comparison::COLUMNS, flux_comparison::PROMISE)
            })
            .collect();
    }
    raw_client_comparison::print(FigureOutputFormat::Table, &tables, &load);
    time_samples::print(&hops);
    // Without Flux there is nothing to compare.
    let is_ahead = !is_beside_flux || tables.iter().all(BenchComparison::passes);
    // Only windlass has a promised limit.
    if !is_ahead || !hops.first().is_some_and(TimeSamples::passes) {
        bail!("a promise was not kept");
    }
    Ok(())
}

fn measure(
    runtime: &Runtime,
    bed: &mut BenchTestbed,
    serving: OperatorsToStart<'_>,
    count: usize,
    mut hops: TimeSamples,
) -> anyhow::Result<PushChainResult> {
    let (name, longest_hop) = match serving {
        OperatorsToStart::Windlass(..) => ("windlass", LONGEST_HOP),
        OperatorsToStart::Programs(..) => ("flux", MAX_FLUX_HOP_DELAY),
    };
    bed.serve(name, serving)?;
    // The limit includes time for the source.
    let limit = longest_hop * u32::try_from(count)? + Duration::from_secs(120);
    let repository = format!("chain-{name}");
    let chain = KustomizationChain::new(bed.installation()?, &repository, INTERVAL, limit)?;
    let mut chain = chain.of_length(count);
    let title = |what: &str| format!("a chain of {count} Kustomizations, {what}");
    let new = |what: &str| BenchComparison::new(title(what), count, BenchLimits::default());
    let mut install = new("from the first artifact on");
    let mut push = new("from a push on");
    step(&format!("{name}: a chain of {count}"), || {
        let before = bed.read(MeasuredProcess::Operator)?;
        let arrivals = runtime.block_on(chain.install())?;
        let times = arrivals.since(arrivals.fetched);
        install.add(MeasuredProcess::Operator, bed.spent(&before, times)?);
        anyhow::Ok(())
    })?;
    step(&format!("{name}: a push to all of it"), || {
        let before = bed.read(MeasuredProcess::Operator)?;
        let (begun, arrivals) = runtime.block_on(chain.push())?;
        arrivals.hops().for_each(|hop| hops.add(hop));
        push.add(MeasuredProcess::Operator, bed.spent(&before, arrivals.since(begun))?);
        chain.remove()
    })?;
    Ok(PushChainResult { install, push, hops })
}
