//! `cargo xtask soak` runs random operations at the same time, for a given time.
//!
//! The operations are pushes, edits and deletions by hand, suspensions, Kustomizations that are deleted and created
//! again, faults of the API server, and kills. After each round windlass has to reach the desired state within a
//! limit, without a request.
//!
//! At the end, every write to a managed object has to be in exactly one ReleaseAudit.
//!
//! This module has the command line, the rounds and the verdict. Submodules have the desired state (`soak_model`),
//! choose operations (`operations`), perform them (`soak_environment`) and check the audits (`audits`). With `--chaos`,
//! `chaos` has other rounds, and `not_ready_statuses` notes which objects were not ready.

mod audits;
mod chaos;
mod not_ready_statuses;
mod operations;
mod soak_environment;
mod soak_model;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use e2e::cluster_with_operator;
use e2e::random_sequence::RandomSequence;
use testbed::machine_requirements;
use testbed::progress::{dim, green, spell, step};
use tokio::runtime::Runtime;

use operations::SoakOperation;
use soak_environment::SoakEnvironment;
use soak_model::SoakModel;

/// How long, how much, and by which numbers.
#[derive(Debug, Args)]
pub(crate) struct SoakOptions {
    /// For how long things happen; waiting for the right state comes on top
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    minutes: u16,
    /// Repeats the choices of an earlier run, though not its timing
    #[arg(long)]
    seed: Option<u64>,
    /// How many Kustomizations there are
    #[arg(long, default_value_t = 50, conflicts_with = "chaos",
        value_parser = clap::value_parser!(u16).range(2..=500))]
    kustomizations: u16,
    /// Show windlass a bad API server instead: 429, closed connections, lost watches, slow answers and compaction, each for a
    /// minute; no object may report that it is not ready at other times
    #[arg(long)]
    chaos: bool,
    /// How many Kustomizations and ConfigMaps there are together
    #[arg(long, default_value_t = 2000, requires = "chaos",
        value_parser = clap::value_parser!(u32).range(10..=20_000))]
    objects: u32,
    /// Another windlass, such as that of the release before: a kill is followed by the other of the two
    #[arg(long, value_name = "PROGRAM", conflicts_with = "chaos")]
    other: Option<PathBuf>,
}

/// The least number of rounds. The first half has kills, and the second half measures memory.
const FEWEST_ROUNDS: u64 = 8;

/// The longest round. It is short, so that a fault happened not long before it is found.
const LONGEST_ROUND: Duration = Duration::from_secs(60);

/// The average time between two operations.
const OPERATION_INTERVAL: Duration = Duration::from_millis(250);

/// How long windlass may take after a round to reach the desired state.
const SETTLE_LIMIT: Duration = Duration::from_secs(90);

/// How much memory may grow: a percentage of the first sample, and a fixed amount in addition.
const GROWTH_PERCENT: u64 = 30;
const GROWTH_KIB: u64 = 10 << 10;

/// Runs the rounds, and prints the results.
///
/// # Errors
/// The differences from the desired state with the seed, or memory that grew too much.
pub(crate) fn run(options: &SoakOptions) -> anyhow::Result<()> {
    let seed = options.seed.unwrap_or_else(RandomSequence::seed);
    eprintln!("seed {seed}");
    step("what the machine needs", machine_requirements::ensure)?;
    step("windlass itself", || {
        cluster_with_operator::make(cluster_with_operator::BuildProfile::Debug)
    })?;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let outcome = match options.chaos {
        true => runtime.block_on(chaos::run(options, seed)),
        false => runtime.block_on(soak(options, seed)),
    };
    let variant = if options.chaos { "--chaos " } else { "" };
    outcome.with_context(|| {
        format!("the soak failed; repeat it with `cargo xtask soak {variant}--seed {seed}`")
    })
}

async fn soak(options: &SoakOptions, seed: u64) -> anyhow::Result<()> {
    let total = Duration::from_secs(u64::from(options.minutes) * 60);
    let rounds = total.as_secs().div_ceil(LONGEST_ROUND.as_secs()).max(FEWEST_ROUNDS);
    let length = total.div_f64(rounds as f64);
    let mut random = RandomSequence::new(seed);
    let mut model = SoakModel::new(options.kustomizations.into());
    let mut environment = SoakEnvironment::begin(&model, options.other.clone()).await?;
    let took = settle(&mut environment, &mut model, SETTLE_LIMIT).await?;
    eprintln!("{} Kustomizations are Ready after {}", options.kustomizations, spell(took));
    // Memory can only be compared while the same process runs, so the second half has no kills.
    let lives_until = rounds / 2;
    let mut memory = Vec::new();
    for round in 1..=rounds {
        let may_kill = round <= lives_until;
        let done = play(&mut environment, &mut model, &mut random, length, may_kill).await?;
        let took = settle(&mut environment, &mut model, SETTLE_LIMIT).await;
        let took = took.with_context(|| format!("round {round}"))?;
        let kib = environment.memory_kib()?;
        eprintln!(
            "{} round {round}/{rounds}: {done}; right again after {}, {}",
            green("✔"),
            spell(took),
            dim(&format!("{} MiB", kib >> 10))
        );
        if round > lives_until {
            memory.push(kib);
        }
    }
    judge_memory(&memory)?;
    let audits::AuditTally { audited, repeated, lost, unanswered } =
        environment.judge_audits().await?;
    eprintln!(
        "{audited} writes are each in one audit; {repeated} corrections were audited within ten minutes before; \
         {lost} writes were made shortly before a kill, and {unanswered} while the API server failed"
    );
    eprintln!("{}", green("✔ everything was as it should be, every time"));
    environment.end().await
}

/// Runs one round. It returns how many operations of each kind it performed.
async fn play(
    environment: &mut SoakEnvironment,
    model: &mut SoakModel,
    random: &mut RandomSequence,
    length: Duration,
    may_kill: bool,
) -> anyhow::Result<String> {
    let begun = Instant::now();
    let mut counts = operations::OperationCounts::default();
    while begun.elapsed() < length {
        let operation = SoakOperation::choose(model, random, may_kill);
        counts.add(&operation);
        environment.perform(&operation, model).await.with_context(|| format!("{operation:?}"))?;
        let pause = OPERATION_INTERVAL.mul_f64((random.below(200) as f64) / 100.0);
        tokio::time::sleep(pause).await;
        environment.end_fault_in_time();
    }
    Ok(counts.to_string())
}

/// Ends faults and suspensions, and waits until the cluster is in the desired state.
async fn settle(
    environment: &mut SoakEnvironment,
    model: &mut SoakModel,
    limit: Duration,
) -> anyhow::Result<Duration> {
    environment.heal();
    for name in model.resume_all() {
        environment.suspend(&name, false).await?;
    }
    let begun = Instant::now();
    loop {
        let wrong = environment.differences(model).await?;
        if wrong.is_empty() {
            environment.judge_deletions(model)?;
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > limit {
            let more = wrong.len().saturating_sub(10);
            let first = wrong.into_iter().take(10).collect::<Vec<_>>().join("\n");
            bail!(
                "after {limit:?} without faults:\n{first}\nand {more} more\n{}",
                environment.log()
            );
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Compares the first memory sample with the last.
fn judge_memory(samples: &[u64]) -> anyhow::Result<()> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return Ok(()) };
    eprintln!("memory: {} MiB after the warm-up, {} MiB at the end", first >> 10, last >> 10);
    let limit = first + first * GROWTH_PERCENT / 100 + GROWTH_KIB;
    if *last > limit {
        bail!("memory grew from {first} KiB to {last} KiB; at most {limit} KiB were expected");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_may_grow_a_little_and_not_much() {
        let mib = |it: u64| it << 10;
        assert!(judge_memory(&[]).is_ok());
        assert!(judge_memory(&[mib(50), mib(200), mib(74)]).is_ok());
        assert!(judge_memory(&[mib(50), mib(50), mib(76)]).is_err());
    }
}
