//! `cargo xtask soak --chaos` shows windlass a bad API server: five faults, each for a minute, with calm time after each.
//!
//! In faults and in calm time, commits and changes by hand go on. After each, windlass has to reach the desired state. Every
//! `Ready=False` has to lie in the time of a fault or shortly after it. Memory has to stay the same.
//!
//! This module has the order of the faults and the verdict. `super::soak_environment` makes the faults, and
//! `super::not_ready_statuses` notes which objects were not ready.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use e2e::random_sequence::RandomSequence;
use testbed::progress::{dim, green, spell};

use super::not_ready_statuses::{FaultInterval, UnreadyObjects};
use super::operations::{OperationCounts, SoakOperation};
use super::soak_environment::SoakEnvironment;
use super::soak_model::{OBJECTS_PER_KUSTOMIZATION, SoakModel};
use super::{SoakOptions, settle};

/// The longest time of a fault.
const LONGEST_FAULT: Duration = Duration::from_secs(60);

/// How many minutes a round of all faults takes at least, if there is time for more than two rounds.
const MINUTES_PER_ROUND: u16 = 15;

/// The fewest rounds. Memory of the first one is compared with that of the last one.
const FEWEST_ROUNDS: u16 = 2;

/// The time between two operations.
const OPERATION_INTERVAL: Duration = Duration::from_secs(1);

/// How long windlass may take after a fault to reach the desired state.
const SETTLE_LIMIT: Duration = Duration::from_secs(300);

/// How long an object may report `Ready=False` after a fault. A run that was throttled is repeated after at most 30 s, and may
/// then write the status about the fault.
const SLACK: Duration = Duration::from_secs(45);

/// The time in which allocator and caches settle before memory is read.
const REST_PERIOD: Duration = Duration::from_secs(10);

/// How much memory may grow from the end of the first round to the end of the last one, in percent.
const MAX_GROWTH_PERCENT: f64 = 10.0;

/// A fault of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChaosFault {
    /// Every request is answered with 429.
    Throttled,
    /// Each connection is closed after a second.
    ConnectionsClosed,
    /// Watches end every second.
    WatchesLost,
    /// Each answer takes five seconds longer.
    Slow,
    /// The history is compacted every few seconds, so that watches have to list again.
    Compacted,
}

impl ChaosFault {
    const ALL: [Self; 5] =
        [Self::Throttled, Self::ConnectionsClosed, Self::WatchesLost, Self::Slow, Self::Compacted];

    fn text(self) -> &'static str {
        match self {
            Self::Throttled => "429 for every request",
            Self::ConnectionsClosed => "connections closed after a second",
            Self::WatchesLost => "watches lost",
            Self::Slow => "answers 5 s later",
            Self::Compacted => "history compacted",
        }
    }
}

/// All faults in a random order.
fn shuffled(random: &mut RandomSequence) -> Vec<ChaosFault> {
    let mut left = ChaosFault::ALL.to_vec();
    let mut order = Vec::new();
    while !left.is_empty() {
        order.push(left.swap_remove(random.below(left.len())));
    }
    order
}

/// Runs the rounds of faults.
///
/// # Errors
/// The differences from the desired state, objects that were not ready without a fault, or memory that grew too much.
pub(super) async fn run(options: &SoakOptions, seed: u64) -> anyhow::Result<()> {
    let rounds = (options.minutes / MINUTES_PER_ROUND).max(FEWEST_ROUNDS);
    let total = Duration::from_secs(u64::from(options.minutes) * 60);
    // Each fault has a time of its own, and calm time after it.
    let phase = total / u32::from(rounds) / u32::try_from(ChaosFault::ALL.len() * 2)?;
    let mut random = RandomSequence::new(seed);
    // Each Kustomization counts, too.
    let kustomizations = usize::try_from(options.objects)? / (OBJECTS_PER_KUSTOMIZATION + 1);
    let mut model = SoakModel::independent(kustomizations.max(2));
    let mut environment = SoakEnvironment::begin(&model, None).await?;
    let took = settle(&mut environment, &mut model, SETTLE_LIMIT).await?;
    let objects = model.folders.len() + model.objects().len();
    eprintln!(
        "{objects} objects, {} of them Kustomizations, after {}",
        model.folders.len(),
        spell(took)
    );
    let unready = environment.watch_unready().await?;
    let mut intervals = Vec::new();
    let mut memory = Vec::new();
    for round in 1..=rounds {
        for fault in shuffled(&mut random) {
            let begun = Instant::now();
            let length = phase.min(LONGEST_FAULT);
            play(&mut environment, &mut model, &mut random, length, Some(fault)).await?;
            environment.heal();
            intervals.push(FaultInterval { begun, ended: Instant::now() });
            let what = || format!("round {round}, {}", fault.text());
            let took =
                settle(&mut environment, &mut model, SETTLE_LIMIT).await.with_context(what)?;
            let done = play(&mut environment, &mut model, &mut random, phase, None).await?;
            settle(&mut environment, &mut model, SETTLE_LIMIT).await.with_context(what)?;
            unready.judge(&intervals, SLACK).with_context(what)?;
            eprintln!(
                "{} round {round}/{rounds}, {}: right again after {}; {}",
                green("✔"),
                fault.text(),
                spell(took),
                dim(&format!("then {done}"))
            );
        }
        tokio::time::sleep(REST_PERIOD).await;
        let mebibytes = environment.anonymous_mebibytes()?;
        eprintln!("{mebibytes:.0} MiB of RssAnon at the end of round {round}");
        memory.push(mebibytes);
    }
    judge_memory(&memory)?;
    eprintln!("{}", green(&summary(&unready)));
    drop(unready);
    environment.end().await
}

fn summary(unready: &UnreadyObjects) -> String {
    format!(
        "✔ everything was as it should be; {} statuses had Ready=False, all within {} of a fault",
        unready.count(),
        spell(SLACK)
    )
}

/// Changes objects for a time, in which the API server may have a fault. It returns how many operations of each kind there
/// were.
async fn play(
    environment: &mut SoakEnvironment,
    model: &mut SoakModel,
    random: &mut RandomSequence,
    length: Duration,
    fault: Option<ChaosFault>,
) -> anyhow::Result<String> {
    let begun = Instant::now();
    let mut counts = OperationCounts::default();
    let mut second = 0;
    while begun.elapsed() < length {
        if let Some(fault) = fault {
            environment.disturb(fault, second).await?;
        }
        let operation = SoakOperation::choose_change(model, random);
        counts.add(&operation);
        environment.perform(&operation, model).await.with_context(|| format!("{operation:?}"))?;
        tokio::time::sleep(OPERATION_INTERVAL).await;
        second += 1;
    }
    Ok(counts.to_string())
}

/// Compares the memory at the end of the first round with that at the end of the last one.
fn judge_memory(samples: &[f64]) -> anyhow::Result<()> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return Ok(()) };
    let limit = first * (1.0 + MAX_GROWTH_PERCENT / 100.0);
    if *last > limit {
        bail!(
            "memory grew from {first:.1} MiB to {last:.1} MiB; at most {limit:.1} MiB were expected"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_comes_once_in_each_round_and_the_seed_repeats_the_order() {
        let order = |seed: u64| shuffled(&mut RandomSequence::new(seed));
        for seed in 0..20 {
            assert_eq!(order(seed), order(seed));
            for fault in ChaosFault::ALL {
                assert_eq!(order(seed).iter().filter(|it| **it == fault).count(), 1);
            }
        }
        assert!((1..20).any(|seed| order(seed) != order(0)));
    }

    #[test]
    fn memory_may_grow_by_a_tenth() {
        assert!(judge_memory(&[]).is_ok());
        assert!(judge_memory(&[100.0, 500.0, 109.0]).is_ok());
        assert!(judge_memory(&[100.0, 100.0, 111.0]).is_err());
    }
}
