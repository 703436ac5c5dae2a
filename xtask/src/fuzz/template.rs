//! `cargo xtask fuzz template`: charts changed at random, given to windlass for as long as somebody likes.
//!
//! Each changed chart is rendered by a process of its own, which must say something or fail with an error: no panic, no
//! signal, no more than a few seconds, no more memory than a limit. What does otherwise is kept as a folder.
//! With `--against-helm` the real program gets the same chart, and its answer has to be the same.
//!
//! Here: the command line, the rounds, the verdict. Elsewhere: changing bytes (`super::mutate`), the charts
//! (`crate::corpus`), what a process takes (`crate::measured`).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use e2e::operator;
use e2e::oracle::Oracle;
use e2e::random::Random;

use crate::corpus::{self, Answer, Case, Corpus};
use crate::installation::{Build, make};
use crate::measured::{self, Cost};
use crate::progress::{green, red, step};
use crate::root;

use super::mutate;

/// How long a render may take on a busy machine.
const SLOWEST: Duration = Duration::from_secs(30);

/// How much memory it may take, in MiB.
const LARGEST: f64 = 512.0;

/// How many faults end the work.
const ENOUGH: usize = 10;

/// For how long, and by which numbers.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// For how long
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    minutes: u16,
    /// The first of the seeds, which are counted up: a seed repeats its chart
    #[arg(long)]
    seed: Option<u64>,
    /// How many charts at most, instead of as many as there is time for
    #[arg(long)]
    charts: Option<u64>,
    /// Compare each answer with that of the real Helm, which makes it ten times slower
    #[arg(long)]
    against_helm: bool,
}

/// A chart that was changed.
struct Changed {
    /// Our chart that it was.
    name: String,
    arguments: Vec<String>,
    files: BTreeMap<String, Vec<u8>>,
}

/// Changes and renders.
///
/// # Errors
/// When something was found, or nothing could be run.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let deadline = Duration::from_secs(u64::from(options.minutes) * 60);
    rounds(options, deadline)
}

/// The same for another time, without the real program.
///
/// # Errors
/// As [`run`].
pub(super) fn run_for(time: Duration) -> anyhow::Result<()> {
    rounds(&Options { minutes: 1, seed: None, charts: None, against_helm: false }, time)
}

fn rounds(options: &Options, time: Duration) -> anyhow::Result<()> {
    step("windlass itself", || make(Build::Debug))?;
    let own = operator::binary()?;
    let helm = match options.against_helm {
        true => Some(step(Oracle::Helm.version(), || Oracle::Helm.ensure())?),
        false => None,
    };
    let mut cases = Case::load(Corpus::Charts, &[])?;
    // Thousands of objects take their time, and show nothing that a few do not.
    cases.retain(|case| !case.is_generated());
    let first = options.seed.unwrap_or_else(Random::seed);
    let deadline = Instant::now() + time;
    eprintln!("seeds from {first}");
    let (mut done, mut found) = (0, 0);
    while Instant::now() < deadline && options.charts.is_none_or(|limit| done < limit) {
        let seed = first + done;
        let changed = change(&cases, seed)?;
        if let Some(fault) = judge(&own, helm.as_deref(), &changed)? {
            found += 1;
            let folder = keep(seed, &changed, &fault)?;
            let shown = fault.trim_end();
            eprintln!("{} seed {seed} (from `{}`): {shown}", red("✘"), changed.name);
            eprintln!("    kept in {}", folder.display());
            ensure!(found < ENOUGH, "{found} faults among {} charts", done + 1);
        }
        done += 1;
    }
    if found > 0 {
        bail!("{found} faults among {done} charts");
    }
    eprintln!("{} {done} changed charts", green("✔ nothing found in"));
    Ok(())
}

/// The changed chart of a seed.
fn change(cases: &[Case], seed: u64) -> anyhow::Result<Changed> {
    let mut random = Random::new(seed);
    let case = cases.get(random.below(cases.len())).context("there are no charts")?;
    let runs: Vec<&Vec<String>> = case.runs().values().collect();
    let arguments = runs.get(random.below(runs.len())).context("a chart without runs")?;
    let mut files = case.files()?;
    mutate::files(&mut files, &mutate::TEMPLATES, &mut random);
    Ok(Changed { name: case.name.clone(), arguments: arguments.to_vec(), files })
}

/// What is wrong with how windlass takes a chart; none when nothing is.
fn judge(own: &Path, helm: Option<&Path>, changed: &Changed) -> anyhow::Result<Option<String>> {
    let lay_out = || -> anyhow::Result<tempfile::TempDir> {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        for (path, content) in &changed.files {
            corpus::write(&folder.path().join(path), content)?;
        }
        Ok(folder)
    };
    let folder = lay_out()?;
    let scratch = tempfile::tempdir().context("cannot make a folder")?;
    let mut command = corpus::prepare(own, folder.path(), scratch.path());
    command.arg("template").args(&changed.arguments);
    if let Some(fault) = survives(&command)? {
        return Ok(Some(fault));
    }
    let Some(helm) = helm else { return Ok(None) };
    let ask = |program: &Path| -> anyhow::Result<Answer> {
        let folder = lay_out()?;
        corpus::ask(Corpus::Charts, program, folder.path(), &changed.arguments, None)
    };
    let (wanted, got) = (ask(helm)?, ask(own)?);
    let difference = crate::compare::difference(&changed.arguments, &wanted, &got);
    // A changed chart may print the time, a random text, or a map in the order in which Go happens to walk it.
    for _ in 0..3 {
        if difference.is_some() && ask(helm)? != wanted {
            return Ok(None);
        }
    }
    Ok(difference)
}

/// Runs a command; what is wrong with how it ends.
fn survives(command: &Process) -> anyhow::Result<Option<String>> {
    let Cost { status, seconds, peak, stderr } = measured::cost(command, SLOWEST)?;
    let last = stderr.lines().last().unwrap_or_default();
    Ok(match status {
        None => Some(format!("not done within {} s", SLOWEST.as_secs())),
        Some(0 | 1) if stderr.contains("panicked at") => Some(format!("a panic: {last}")),
        Some(0 | 1) if peak > LARGEST => Some(format!("{peak:.0} MiB, in {seconds:.1} s")),
        Some(0 | 1) => None,
        Some(status) => Some(format!("exit status {status}: {last}")),
    })
}

/// Keeps a chart for whoever looks for the fault.
fn keep(seed: u64, changed: &Changed, fault: &str) -> anyhow::Result<PathBuf> {
    let folder = root().join("target/fuzz").join(seed.to_string());
    for (path, content) in &changed.files {
        corpus::write(&folder.join(path), content)?;
    }
    let arguments = changed.arguments.join(" ");
    let note = format!("windlass template {arguments}\n\n{fault}\n");
    corpus::write(&folder.join("fault.txt"), note.as_bytes())?;
    Ok(folder)
}
