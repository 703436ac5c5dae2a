//! `cargo xtask crash`: windlass is killed at every single write, and nothing is lost.
//!
//! Here: the command line, the order of runs, the verdict. Elsewhere: which cut points (`points`), one run (`attempt`),
//! what is compared (`snapshot`), the work that is cut into (`scenario`), the proxy that cuts (`e2e::api_proxy`).

mod attempt;
mod points;
mod scenario;
mod snapshot;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use futures::StreamExt as _;
use tokio::runtime::Runtime;

use attempt::{Outcome, attempt};
use e2e::installation;
use points::{Point, Sample};
use scenario::Scenario;
use testbed::machine;
use testbed::progress::{dim, green, red, spell, step};

/// How many violations of one cut are shown at once; the list at the end has all.
const SHOWN: usize = 5;

/// Which cuts are made.
#[derive(Debug, Args)]
pub(crate) struct Options {
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

/// Cuts, and prints what came of it.
///
/// # Errors
/// When a law was broken, or windlass did not even do the work without a cut.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    step("what the machine needs", machine::ensure)?;
    step("windlass itself", || installation::make(installation::Build::Debug))?;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let chosen = scenario::all().into_iter();
    let chosen: Vec<_> = chosen
        .filter(|new| options.scenario.as_deref().is_none_or(|name| name == new().name()))
        .collect();
    ensure!(!chosen.is_empty(), "there is no scenario of this name");
    let (mut points, mut violations) = (0, Vec::new());
    for new in chosen {
        let (tried, found) = runtime.block_on(explore(new, options))?;
        points += tried;
        violations.extend(found);
    }
    let count = violations.len();
    eprintln!("{points} cut points, {count} violations");
    if count > 0 {
        bail!("the crash law is broken:\n{}", violations.join("\n"));
    }
    eprintln!("{}", green("✔ nothing was lost, nothing was left behind"));
    Ok(())
}

type New = fn() -> Box<dyn Scenario>;

/// One scenario without a cut, then with each; returns the number of cut points and what went wrong.
async fn explore(new: New, options: &Options) -> anyhow::Result<(usize, Vec<String>)> {
    let begun = Instant::now();
    let name = new().name();
    let usual =
        attempt(new(), None, None).await.with_context(|| format!("{name}, without a cut"))?;
    ensure!(
        usual.violations.is_empty(),
        "{name} goes wrong without a cut:\n{}\n{}",
        usual.violations.join("\n"),
        usual.log
    );
    let writes = usual.writes.len();
    let took = spell(usual.took);
    eprintln!("{name}: {writes} writes in {} acts, {took} without a cut", usual.snapshots.len());
    let sample = options.sample.map(|count| Sample { count: count.into(), seed: options.seed });
    let mut points = points::choose(writes, sample);
    points.retain(|it| options.writes.is_empty() || options.writes.contains(&it.number));
    let total = points.len();
    let usual = &usual.snapshots;
    let runs = points
        .into_iter()
        .map(|point| async move { (point, attempt(new(), Some(point), Some(usual)).await) });
    let mut runs = futures::stream::iter(runs).buffer_unordered(options.jobs.into());
    let (mut violations, mut slowest, mut done) = (Vec::new(), Duration::ZERO, 0);
    while let Some((point, outcome)) = runs.next().await {
        done += 1;
        let found = tell(point, &outcome, &format!("{done}/{total}"), writes);
        if let Ok(outcome) = &outcome {
            slowest = slowest.max(outcome.recovery);
        }
        violations.extend(found.into_iter().map(|it| format!("{name}, {it}")));
    }
    eprintln!(
        "{name}: {total} cut points in {}, the slowest was right again {} after the restart",
        spell(begun.elapsed()),
        spell(slowest)
    );
    Ok((total, violations))
}

/// Prints one line of the table; returns what went wrong.
fn tell(
    point: Point,
    outcome: &anyhow::Result<Outcome>,
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
    let Point { number, moment } = point;
    eprintln!(
        "{sign} {progress:>9}  write {number:>3}/{writes} {moment:<6}  {request} {}",
        dim(&took)
    );
    let place = |it: &String| format!("write {number} {moment}, {request}: {it}");
    let told: Vec<String> = violations.iter().map(place).collect();
    for violation in told.iter().take(SHOWN) {
        eprintln!("  {} {violation}", red("violation:"));
    }
    if told.len() > SHOWN {
        eprintln!("  and {} more", told.len() - SHOWN);
    }
    if let Ok(outcome) = outcome
        && !outcome.log.is_empty()
    {
        eprintln!("{}", dim(&outcome.log));
    }
    told
}
