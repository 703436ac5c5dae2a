//! `cargo xtask crash` kills windlass at every single write to the API server, and verifies that nothing is lost.
//!
//! This module has the command line, the order of runs and the verdict. Submodules choose the writes
//! (`crash_points`), play one run (`attempt`), compare the results (`snapshot`) and describe the work (`scenario`).
//! The proxy that cuts connections is `e2e::api_server_fault_proxy`.

mod crash_points;
mod scenario;
mod scenario_run;
mod snapshot;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use futures::future::LocalBoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use tokio::runtime::Runtime;

use crash_points::{CrashPoint, CrashPointSample};
use e2e::cluster_with_operator;
use scenario::CrashScenario;
use scenario::change_set::ChangeSetScenario;
use scenario::crds::CrdScenario;
use scenario::helm_release::HelmReleaseScenario;
use scenario::helmfile::HelmfileScenario;
use scenario::images::Images;
use scenario::kustomization::KustomizationScenario;
use scenario::lifecycle::LifecycleScenario;
use scenario::plan::{PlanReleaseScenario, PlanScenario};
use scenario::quarantine::QuarantineScenario;
use scenario::reverse_delete::ReverseDeleteScenario;
use scenario::staged_rollout::StagedRolloutScenario;
use scenario_run::{CrashRunReport, attempt};
use testbed::machine_requirements;
use testbed::progress::{dim, green, red, spell, step};

/// How many violations of one cut are shown during the run. The list at the end shows all.
const MAX_VIOLATIONS_SHOWN: usize = 5;

/// At which writes of a scenario the crash test cuts windlass off.
#[derive(Debug, Args)]
pub(crate) struct CrashTestOptions {
    /// Cut at this many writes of each scenario, evenly spread, the first and the last among them
    #[arg(long, value_name = "N", conflicts_with = "all", value_parser = clap::value_parser!(u16).range(2..))]
    sample: Option<u16>,
    /// Cut at every write, which is the default
    #[arg(long)]
    all: bool,
    /// Cut only at the writes of these numbers, such as those that a violation names
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with_all = ["sample", "all"])]
    writes: Vec<usize>,
    /// Chooses which writes a sample takes between the first and the last
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many runs there are at once
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    jobs: u16,
    /// Only the scenario of this name
    #[arg(long)]
    scenario: Option<String>,
}

/// Runs all scenarios with their cuts, and prints a table of the results.
///
/// # Errors
/// When a law was broken, or windlass did not finish a scenario without any cut.
pub(crate) fn run(options: &CrashTestOptions) -> anyhow::Result<()> {
    step("what the machine needs", machine_requirements::ensure)?;
    step("windlass itself", || {
        cluster_with_operator::make(cluster_with_operator::BuildProfile::Debug)
    })?;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let is_wanted =
        |it: &ScenarioEntry| options.scenario.as_deref().is_none_or(|name| name == it.name);
    let chosen: Vec<ScenarioEntry> = entries().into_iter().filter(is_wanted).collect();
    ensure!(!chosen.is_empty(), "there is no scenario of this name");
    let mut points = 0;
    let mut violations = Vec::new();
    for entry in chosen {
        let explored = runtime.block_on((entry.explore)(options))?;
        points += explored.points;
        violations.extend(explored.violations);
    }
    let count = violations.len();
    eprintln!("{points} cut points, {count} violations");
    if count > 0 {
        bail!("windlass lost objects, or left some behind:\n{}", violations.join("\n"));
    }
    eprintln!("{}", green("✔ nothing was lost, nothing was left behind"));
    Ok(())
}

/// A scenario, and the function that runs it.
struct ScenarioEntry {
    name: &'static str,
    explore:
        for<'a> fn(&'a CrashTestOptions) -> LocalBoxFuture<'a, anyhow::Result<CrashTestReport>>,
}

/// The result of a scenario with all of its cuts.
struct CrashTestReport {
    /// How many cuts were made.
    points: usize,
    violations: Vec<String>,
}

/// The list of all scenarios.
fn entries() -> [ScenarioEntry; 12] {
    [
        entry::<KustomizationScenario>(),
        entry::<HelmReleaseScenario>(),
        entry::<HelmfileScenario>(),
        entry::<LifecycleScenario>(),
        entry::<QuarantineScenario>(),
        entry::<ChangeSetScenario>(),
        entry::<StagedRolloutScenario>(),
        entry::<CrdScenario>(),
        entry::<PlanScenario>(),
        entry::<PlanReleaseScenario>(),
        entry::<ReverseDeleteScenario>(),
        entry::<Images>(),
    ]
}

fn entry<S: CrashScenario + 'static>() -> ScenarioEntry {
    ScenarioEntry { name: S::NAME, explore: |options| explore::<S>(options).boxed_local() }
}

/// Runs one scenario without a cut, and then once for each cut.
async fn explore<S: CrashScenario>(options: &CrashTestOptions) -> anyhow::Result<CrashTestReport> {
    let begun = Instant::now();
    let name = S::NAME;
    let usual = attempt::<S>(None, None).await.with_context(|| format!("{name}, without a cut"))?;
    ensure!(
        usual.violations.is_empty(),
        "{name} fails even without a kill:\n{}\n{}",
        usual.violations.join("\n"),
        usual.log
    );
    let writes = usual.writes.len();
    let took = spell(usual.took);
    eprintln!("{name}: {writes} writes in {} acts, {took} without a cut", usual.snapshots.len());
    let sample =
        options.sample.map(|count| CrashPointSample { count: count.into(), seed: options.seed });
    let mut points = crash_points::choose(writes, sample);
    points.retain(|it| options.writes.is_empty() || options.writes.contains(&it.number));
    let total = points.len();
    let usual = &usual.snapshots;
    let runs = points
        .into_iter()
        .map(|point| async move { (point, attempt::<S>(Some(point), Some(usual)).await) });
    let mut runs = futures::stream::iter(runs).buffer_unordered(options.jobs.into());
    let mut violations = Vec::new();
    let mut slowest = Duration::ZERO;
    let mut done = 0;
    while let Some((point, outcome)) = runs.next().await {
        done += 1;
        let found = report(point, &outcome, &format!("{done}/{total}"), writes);
        if let Ok(outcome) = &outcome {
            slowest = slowest.max(outcome.recovery);
        }
        violations.extend(found.into_iter().map(|it| format!("{name}, {it}")));
    }
    eprintln!(
        "{name}: {total} cut points in {}, the slowest had recovered {} after the restart",
        spell(begun.elapsed()),
        spell(slowest)
    );
    Ok(CrashTestReport { points: total, violations })
}

/// Prints one line of the table, and returns the violations.
fn report(
    point: CrashPoint,
    outcome: &anyhow::Result<CrashRunReport>,
    progress: &str,
    writes: usize,
) -> Vec<String> {
    let (violations, request, took) = match outcome {
        Ok(outcome) => (
            outcome.violations.clone(),
            outcome.request.clone().unwrap_or_else(|| "(there were fewer writes)".to_owned()),
            spell(outcome.took),
        ),
        Err(error) => {
            (vec![format!("{error:#}")], "(the run was interrupted)".to_owned(), String::new())
        }
    };
    let sign = if violations.is_empty() { green("✔") } else { red("✘") };
    let CrashPoint { number, moment } = point;
    eprintln!(
        "{sign} {progress:>9}  write {number:>3}/{writes} {moment:<6}  {request} {}",
        dim(&took)
    );
    let place = |it: &String| format!("write {number} {moment}, {request}: {it}");
    let lines: Vec<String> = violations.iter().map(place).collect();
    for violation in lines.iter().take(MAX_VIOLATIONS_SHOWN) {
        eprintln!("  {} {violation}", red("violation:"));
    }
    if lines.len() > MAX_VIOLATIONS_SHOWN {
        eprintln!("  and {} more", lines.len() - MAX_VIOLATIONS_SHOWN);
    }
    if let Ok(outcome) = outcome
        && !outcome.log.is_empty()
    {
        eprintln!("{}", dim(&outcome.log));
    }
    lines
}
