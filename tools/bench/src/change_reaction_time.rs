//! Measures how soon windlass acts on a change when only a wake-up can start a run, because every interval is ten
//! minutes.
//!
//! This module has the rounds and the promised limits. `super::kustomization_chain` has the chain of Kustomizations
//! and its changes. `e2e::cluster_with_operator` starts everything, and `super::time_samples` judges the times.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::runtime::Runtime;

use super::kustomization_chain::{CHAIN_KUSTOMIZATION_COUNT, KustomizationChain};
use super::time_samples::{self, TimeSamples};
use e2e::cluster_with_operator::{BuildProfile, ClusterWithOperator};
use testbed::progress::step;

/// The promised limit for 95 of 100 wake-ups.
const MAX_WAKE_DELAY: Duration = Duration::from_secs(1);

/// The promised limit for a fetch and ten hops, one after the other. Each of them may take the promised time of a
/// wake-up.
const CHAIN_PROMISE: Duration = Duration::from_secs(11);

/// The time limit of a wait. It is far below the ten minutes after which each object would run anyway.
const ROUND_TIMEOUT: Duration = Duration::from_secs(60);

/// What is measured how often, with which build.
#[derive(Debug, Args)]
pub(crate) struct ChangeReactionBenchOptions {
    /// How many objects are edited, and how many deleted, by hand
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    count: u16,
    /// How many commits are made
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    commits: u16,
    /// Measure the program as it is shipped
    #[arg(long)]
    release: bool,
}

/// Measures and prints the table.
///
/// # Errors
/// When a step did not end, or was slower than promised.
pub(super) fn run(options: &ChangeReactionBenchOptions) -> anyhow::Result<()> {
    let build = if options.release { BuildProfile::Release } else { BuildProfile::Debug };
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let mut installation =
        ClusterWithOperator::start(&runtime, build, &["--requeue-dependency=10m"])?;
    let load = time_samples::load();
    let measured = measure(&runtime, &installation, options);
    let measured = measured.and_then(|all| installation.check().map(|()| all));
    let all = measured.map_err(|error| installation.explain(&error))?;
    time_samples::print(&all);
    time_samples::print_machine(&load);
    if !all.iter().all(TimeSamples::passes) {
        bail!("a promise was not kept");
    }
    Ok(())
}

fn measure(
    runtime: &Runtime,
    installation: &ClusterWithOperator,
    options: &ChangeReactionBenchOptions,
) -> anyhow::Result<Vec<TimeSamples>> {
    let mut chain = KustomizationChain::new(installation, "chain", "10m", ROUND_TIMEOUT)?;
    let mut first =
        TimeSamples::new("next of the chain Ready after its dependency", MAX_WAKE_DELAY);
    let mut next = TimeSamples::new("the same, when a commit changes all of them", MAX_WAKE_DELAY);
    let mut edited = TimeSamples::new("object edited by hand put back", MAX_WAKE_DELAY);
    let mut deleted = TimeSamples::new("object deleted by hand created again", MAX_WAKE_DELAY);
    let mut fetched = TimeSamples::new("commit announced, its artifact there", MAX_WAKE_DELAY);
    let mut commits =
        TimeSamples::new("commit applied by all ten of the chain (a sum)", CHAIN_PROMISE);
    let what = format!("a chain of {CHAIN_KUSTOMIZATION_COUNT}");
    step(&what, || {
        let arrivals = runtime.block_on(chain.install())?;
        arrivals.hops().for_each(|hop| first.add(hop));
        Ok(())
    })?;
    step(&format!("{0} edits and {0} deletions by hand", options.count), || {
        for number in 0..usize::from(options.count) {
            edited.add(runtime.block_on(chain.edit(number))?);
            deleted.add(runtime.block_on(chain.delete(number))?);
        }
        Ok(())
    })?;
    step(&format!("{} commits", options.commits), || {
        for _ in 0..options.commits {
            let (begun, arrivals) = runtime.block_on(chain.push())?;
            arrivals.hops().for_each(|hop| next.add(hop));
            fetched.add(arrivals.fetched.saturating_duration_since(begun));
            commits.add(arrivals.all_since(begun));
        }
        Ok(())
    })?;
    Ok(vec![first, next, edited, deleted, fetched, commits])
}
