//! `cargo xtask fuzz template` and `overlay` change our charts and overlays at random, and give them to windlass.
//!
//! A process of its own renders or builds each changed case. It has to print a result or fail with an error, without
//! a panic or a signal, and within limits of processor time and memory. A case that breaks this rule is kept as a
//! folder. With `--against-original` the original Helm or Kustomize gets the same files, and has to give the same
//! answer.
//!
//! This module has the command line, the rounds and the verdict. `super::mutate` changes bytes, `conformance::corpus`
//! has the cases, and `e2e::rusage` measures processes.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use e2e::random_sequence::RandomSequence;

use conformance::corpus::{self, CorpusCase, CorpusKind, ProgramOutput};
use e2e::cluster_with_operator::{BuildProfile, make, program};
use e2e::rusage::{self, CommandResourceUsage};
use testbed::progress::{green, red, step};
use testbed::root;

use super::mutate;

/// How much processor time a render or a build may take, and how much time in all on a busy machine.
const CPU_TIME_LIMIT: Duration = Duration::from_secs(20);
const WALL_TIME_LIMIT: Duration = Duration::from_secs(300);

/// How much memory a render or a build may take, in MiB.
const MEMORY_LIMIT_MIB: f64 = 1024.0;

/// After how many faults the run ends.
const MAX_FAULTS: usize = 10;

/// For how long, by which numbers, and with whom.
// Groups are named after the type, and the flattened one has the same name.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct CaseFuzzOptions {
    #[command(flatten)]
    common: super::FuzzOptions,
    /// How many at most, instead of as many as there is time for
    #[arg(long)]
    most: Option<u64>,
    /// Compare each answer with that of the real program, which makes it ten times slower
    #[arg(long)]
    against_original: bool,
    /// Run the optimised build, which limits are promised for
    #[arg(long)]
    release: bool,
}

/// A changed chart or overlay.
struct MutatedChartOrOverlay {
    /// The name of the chart or overlay before the change.
    name: String,
    arguments: Vec<String>,
    files: BTreeMap<String, Vec<u8>>,
}

/// Changes cases, and renders or builds them.
///
/// # Errors
/// When a case broke the rule, or nothing could be run.
pub(super) fn run(corpus: CorpusKind, options: &CaseFuzzOptions) -> anyhow::Result<()> {
    rounds(corpus, options, options.common.time())
}

/// Changes cases for the given time, and renders or builds them without the original program.
///
/// # Errors
/// As [`run`].
pub(super) fn run_for(corpus: CorpusKind, time: Duration) -> anyhow::Result<()> {
    let common = super::FuzzOptions { minutes: 1, seed: None };
    let options = CaseFuzzOptions { common, most: None, against_original: false, release: false };
    rounds(corpus, &options, time)
}

fn rounds(corpus: CorpusKind, options: &CaseFuzzOptions, time: Duration) -> anyhow::Result<()> {
    let build = if options.release { BuildProfile::Release } else { BuildProfile::Debug };
    step("windlass itself", || make(build))?;
    let own = program(build)?;
    let original = match options.against_original {
        true => Some(step(corpus.oracle().version(), || corpus.oracle().ensure())?),
        false => None,
    };
    let cases = small(corpus)?;
    let noun = corpus.noun();
    let first = options.common.seed.unwrap_or_else(RandomSequence::seed);
    let deadline = Instant::now() + time;
    eprintln!("{noun}: seeds from {first}");
    let mut done = 0;
    let mut found = 0;
    while Instant::now() < deadline && options.most.is_none_or(|limit| done < limit) {
        let seed = first + done;
        let changed = change(&cases, seed)?;
        if let Some(fault) = judge(corpus, &own, original.as_deref(), &changed)? {
            found += 1;
            let folder = keep(corpus, seed, &changed, &fault)?;
            let shown = fault.trim_end();
            eprintln!("{} seed {seed} (from `{}`): {shown}", red("✘"), changed.name);
            eprintln!("    kept in {}", folder.display());
            ensure!(found < MAX_FAULTS, "{found} faults among {} {noun}", done + 1);
        }
        done += 1;
    }
    if found > 0 {
        bail!("{found} faults among {done} {noun}");
    }
    eprintln!("{}", green(&format!("✔ no faults in {done} changed {noun}")));
    Ok(())
}

/// The cases that are files in the checkout. Generated cases have thousands of objects, which take long and find
/// nothing more.
fn small(corpus: CorpusKind) -> anyhow::Result<Vec<CorpusCase>> {
    let mut cases = CorpusCase::load(corpus, &[])?;
    cases.retain(|case| !case.is_generated());
    Ok(cases)
}

/// The words from which files of a corpus are made.
const fn words(corpus: CorpusKind) -> &'static mutate::LanguageWords {
    match corpus {
        CorpusKind::Charts => &mutate::TEMPLATE_FRAGMENTS,
        CorpusKind::Overlays => &mutate::KUSTOMIZATION_FRAGMENTS,
    }
}

/// Makes the changed case of a seed.
fn change(cases: &[CorpusCase], seed: u64) -> anyhow::Result<MutatedChartOrOverlay> {
    let mut random = RandomSequence::new(seed);
    let case = cases.get(random.below(cases.len())).context("there are no cases")?;
    let runs: Vec<&Vec<String>> = case.runs().values().collect();
    let arguments = runs.get(random.below(runs.len())).context("a case without runs")?;
    let mut files = case.files()?;
    mutate::files(&mut files, words(case.corpus), &mut random);
    Ok(MutatedChartOrOverlay { name: case.name.clone(), arguments: arguments.to_vec(), files })
}

/// The fault in windlass's answer to a case. It is none if there is no fault.
fn judge(
    corpus: CorpusKind,
    own: &Path,
    original: Option<&Path>,
    changed: &MutatedChartOrOverlay,
) -> anyhow::Result<Option<String>> {
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
    command.arg(corpus.command()).args(&changed.arguments);
    if let Some(fault) = survives(&command)? {
        return Ok(Some(fault));
    }
    let Some(original) = original else { return Ok(None) };
    let ask = |program: &Path| -> anyhow::Result<ProgramOutput> {
        let folder = lay_out()?;
        corpus::ask(corpus, program, folder.path(), &changed.arguments, None)
    };
    let wanted = ask(original)?;
    let got = ask(own)?;
    let difference = conformance::compare::difference(&changed.arguments, &wanted, &got);
    // A changed case may print the time, a random text, or a map in Go's random order. So a difference counts only if
    // the original program gives the same answer again.
    for _ in 0..3 {
        if difference.is_some() && ask(original)? != wanted {
            return Ok(None);
        }
    }
    Ok(difference)
}

/// Runs a command, and returns how it breaks the rule if it does.
fn survives(command: &Process) -> anyhow::Result<Option<String>> {
    let CommandResourceUsage { status, seconds, processor, peak, stderr } =
        rusage::cost(command, WALL_TIME_LIMIT)?;
    let last = stderr.lines().last().unwrap_or_default();
    Ok(match status {
        None => Some(format!("not done within {} s", WALL_TIME_LIMIT.as_secs())),
        Some(0 | 1) if stderr.contains("panicked at") => Some(format!("a panic: {last}")),
        Some(0 | 1) if peak > MEMORY_LIMIT_MIB => Some(format!("{peak:.0} MiB, in {seconds:.1} s")),
        Some(0 | 1) if processor > CPU_TIME_LIMIT.as_secs_f64() => {
            Some(format!("{processor:.1} s of a processor: {last}"))
        }
        Some(0 | 1) => None,
        Some(status) => Some(format!("exit status {status}: {last}")),
    })
}

/// Keeps a case, so that a developer can search for the fault.
fn keep(
    corpus: CorpusKind,
    seed: u64,
    changed: &MutatedChartOrOverlay,
    fault: &str,
) -> anyhow::Result<PathBuf> {
    let folder = root().join("target/fuzz").join(corpus.noun()).join(seed.to_string());
    for (path, content) in &changed.files {
        corpus::write(&folder.join(path), content)?;
    }
    let arguments = changed.arguments.join(" ");
    let note = format!("windlass {} {arguments}\n\n{fault}\n", corpus.command());
    corpus::write(&folder.join("fault.txt"), note.as_bytes())?;
    Ok(folder)
}
