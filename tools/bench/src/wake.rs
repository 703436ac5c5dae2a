//! How soon windlass acts when nothing but a wake-up can make it act: every interval is ten minutes.
//!
//! Here: what is done how often, and the promises. Elsewhere: the chain of Kustomizations and what is done to it
//! (`super::chain`), starting everything (`e2e::installation`), judging the times (`super::samples`).

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::runtime::Runtime;

use super::chain::{CHAIN_KUSTOMIZATION_COUNT, Chain};
use super::samples::{self, Samples};
use e2e::installation::{Build, Installation};
use testbed::progress::step;

/// The promise: 95 of 100 wake-ups take less than this.
const MAX_WAKE_DELAY: Duration = Duration::from_secs(1);

/// A fetch and ten hops, one after the other: each of them may take what it was promised.
const CHAIN_PROMISE: Duration = Duration::from_secs(11);

/// When waiting for something ends in failure. Far below the ten minutes after which it would happen by itself.
const ROUND_TIMEOUT: Duration = Duration::from_secs(60);

/// What is measured how often, with which build.
#[derive(Debug, Args)]
pub(crate) struct Options {
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
/// When something did not happen, or was slower than promised.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let build = if options.release { Build::Release } else { Build::Debug };
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let mut installation = Installation::start(&runtime, build, &["--requeue-dependency=10m"])?;
    let load = samples::load();
    let measured = measure(&runtime, &installation, options);
    let measured = measured.and_then(|all| installation.check().map(|()| all));
    let all = measured.map_err(|error| installation.explain(&error))?;
    samples::print(&all);
    samples::print_machine(&load);
    if !all.iter().all(Samples::passes) {
        bail!("a promise was not kept");
    }
    Ok(())
}

fn measure(
    runtime: &Runtime,
    installation: &Installation,
    options: &Options,
) -> anyhow::Result<Vec<Samples>> {
    let mut chain = Chain::new(installation, "chain", "10m", ROUND_TIMEOUT)?;
    let mut first = Samples::new("next of the chain Ready after its dependency", MAX_WAKE_DELAY);
    let mut next = Samples::new("the same, when a commit changes all of them", MAX_WAKE_DELAY);
    let mut edited = Samples::new("object edited by hand put back", MAX_WAKE_DELAY);
    let mut deleted = Samples::new("object deleted by hand created again", MAX_WAKE_DELAY);
    let mut fetched = Samples::new("commit announced, its artifact there", MAX_WAKE_DELAY);
    let mut commits = Samples::new("commit applied by all ten of the chain (a sum)", CHAIN_PROMISE);
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
