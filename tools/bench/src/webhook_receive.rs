//! Measures how soon a push is applied that only a webhook announces, and what a burst of webhooks costs.
//!
//! Every interval is ten minutes, so it cannot help. This module has the rounds and the promised limits. `repository`
//! has the repository with its Receiver and the webhooks. `e2e::cluster_with_operator` starts everything, and
//! `super::time_samples` judges the times.

mod repository;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use tokio::runtime::Runtime;

use self::repository::WebhookBenchmark;
use super::time_samples::{self, TimeSamples};
use e2e::cluster_with_operator::{BuildProfile, ClusterWithOperator};
use testbed::progress::{bold, green, red, step};

/// The promised limit for 95 of 100 pushes.
const MAX_PUSH_DELAY: Duration = Duration::from_secs(2);

/// The promised limit: how often windlass fetches for one burst. One fetch is for the webhooks before it, the other
/// one for those that come during the first fetch.
const MAX_FETCHES_PER_BURST: usize = 2;

/// How many pushes are made, and how many webhooks report the same one.
#[derive(Debug, Args)]
pub(crate) struct WebhookReceiveBenchOptions {
    /// How many commits are made, one after the other, each with its webhook
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    pushes: u16,
    /// How many webhooks come at the same time
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    burst: u16,
    /// Measure the program as it is shipped
    #[arg(long)]
    release: bool,
}

/// The results of a burst.
struct WebhookBurst {
    /// How many webhooks there were.
    webhooks: u16,
    /// How many webhooks were accepted. The others got the status 503, because too many were under way.
    accepted: usize,
    /// How often the repository was reconciled.
    fetches: usize,
    /// How many requests for its references the Git server got.
    asked: usize,
    /// The time from the first webhook until the commit was applied.
    applied: Duration,
}

/// Measures and prints the tables.
///
/// # Errors
/// When a step did not end, or was slower than promised.
pub(super) fn run(options: &WebhookReceiveBenchOptions) -> anyhow::Result<()> {
    let build = if options.release { BuildProfile::Release } else { BuildProfile::Debug };
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let mut installation =
        ClusterWithOperator::start(&runtime, build, &["--requeue-dependency=10m"])?;
    let load = time_samples::load();
    let measured = measure(&runtime, &installation, options);
    let measured = measured.and_then(|all| installation.check().map(|()| all));
    let (pushes, burst) = measured.map_err(|error| installation.explain(&error))?;
    time_samples::print(std::slice::from_ref(&pushes));
    burst.print();
    time_samples::print_machine(&load);
    if !pushes.passes() || !burst.passes() {
        bail!("a promise was not kept");
    }
    Ok(())
}

fn measure(
    runtime: &Runtime,
    installation: &ClusterWithOperator,
    options: &WebhookReceiveBenchOptions,
) -> anyhow::Result<(TimeSamples, WebhookBurst)> {
    let mut pushes =
        TimeSamples::new("commit announced by a webhook, its object applied", MAX_PUSH_DELAY);
    let mut pushed = step("a repository with a Receiver", || {
        runtime.block_on(WebhookBenchmark::install(installation))
    })?;
    step(&format!("{} pushes", options.pushes), || {
        for _ in 0..options.pushes {
            pushes.add(runtime.block_on(pushed.push())?);
        }
        Ok(())
    })?;
    let burst = step(&format!("a burst of {} webhooks", options.burst), || {
        runtime.block_on(burst(&mut pushed, options.burst))
    })?;
    Ok((pushes, burst))
}

async fn burst(pushed: &mut WebhookBenchmark<'_>, webhooks: u16) -> anyhow::Result<WebhookBurst> {
    // The runs that the pushes requested are over.
    pushed.fetches().await?;
    let commit = pushed.commit()?;
    let mut watch = pushed.watch().await?;
    let asked = pushed.asked();
    let begun = Instant::now();
    let answers = pushed.announce(&commit, webhooks);
    let (answers, applied) = tokio::join!(answers, pushed.applied(&mut watch));
    let mut accepted = 0;
    let mut refused = 0;
    for status in answers? {
        match status {
            200 => accepted += 1,
            503 => refused += 1,
            other => bail!("a webhook was answered with {other}"),
        }
    }
    ensure!(accepted + refused == usize::from(webhooks), "a webhook was not answered");
    let applied = applied?.saturating_duration_since(begun);
    let fetches = pushed.fetches().await?;
    let asked = pushed.asked() - asked;
    Ok(WebhookBurst { webhooks, accepted, fetches, asked, applied })
}

impl WebhookBurst {
    fn passes(&self) -> bool {
        self.accepted > 0 && (1..=MAX_FETCHES_PER_BURST).contains(&self.fetches)
    }

    #[expect(clippy::print_stdout, reason = "the table is what the command is for")]
    fn print(&self) {
        let Self { webhooks, accepted, fetches, asked, applied } = self;
        let verdict = if self.passes() { green("PASS") } else { red("FAIL") };
        println!("\n{}", bold(&format!("{webhooks} webhooks at the same time")));
        println!(
            "{:<52} {fetches:>5}  {verdict} (at most {MAX_FETCHES_PER_BURST})",
            "reconciliations of the repository"
        );
        println!("{:<52} {asked:>5}", "requests to the Git server");
        println!("{:<52} {accepted:>5}", "webhooks accepted (others: 503, too many under way)");
        println!("{:<52} {:>5}", "commit applied after, ms", applied.as_millis());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_fetched_and_not_often() {
        let judge = |fetches, accepted| {
            let applied = Duration::ZERO;
            WebhookBurst { webhooks: 100, accepted, fetches, asked: 0, applied }.passes()
        };
        assert!(judge(1, 100) && judge(2, 1));
        assert!(!judge(3, 100), "too often");
        assert!(!judge(0, 100) && !judge(1, 0), "nothing happened");
    }
}
