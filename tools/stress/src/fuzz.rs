//! `cargo xtask fuzz` changes inputs of tenants at random, and gives them to the code that reads them.
//!
//! The code has to accept or reject every input without a panic, a signal or a hang, and within a memory limit. An
//! input that breaks this rule is kept. `e2e/fuzz/<target>` has first inputs and all that broke the rule once. These
//! are read again before any new input.
//!
//! This module has the targets and the command line. A target is one file (`cel`, `yaml`, …) and a line in
//! [`TARGETS`].
//! * `rounds` reads inputs in a process of its own, which an input may kill.
//! * `mutate` changes bytes, and `cases` whole charts and overlays.
//! * `spec` changes objects on a control plane.

mod archive;
mod cel;
mod chart_repository_index;
mod chart_values_schema;
mod charts_and_overlays;
mod commit_template;
mod envsubst;
mod helmfile;
mod icalendar;
mod image_policy;
mod image_policy_markers;
mod mutate;
mod rounds;
mod signature;
mod spec;
mod yaml;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};

use conformance::corpus::CorpusKind;
use testbed::progress::red;

/// A fuzz target: code that reads an input of tenants.
pub(crate) struct FuzzTarget {
    /// The name of the target, and of the folder with its inputs.
    name: &'static str,
    /// The stack size in bytes, as large as where windlass runs the code.
    stack: usize,
    /// The words from which inputs are made.
    words: &'static mutate::LanguageWords,
    /// Files of recorded cases in `e2e/conformance` whose strings are inputs, too.
    recorded: &'static [&'static str],
    /// The function that reads an input.
    read: fn(&[u8]),
}

/// The usual stack size of a thread. It is for targets whose parser starts its own threads.
const USUAL_STACK: usize = 2 << 20;

const TARGETS: [&FuzzTarget; 12] = [
    &archive::TARGET,
    &cel::TARGET,
    &commit_template::TARGET,
    &envsubst::TARGET,
    &helmfile::TARGET,
    &icalendar::TARGET,
    &chart_repository_index::TARGET,
    &image_policy::TARGET,
    &chart_values_schema::TARGET,
    &image_policy_markers::TARGET,
    &signature::TARGET,
    &yaml::TARGET,
];

/// What is changed at random.
#[derive(Debug, Subcommand)]
pub(crate) enum FuzzCommand {
    /// Everything but `spec`, each for an equal part of the time
    All {
        /// For how long, together
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
        minutes: u16,
    },
    /// Artifacts: tar in gzip, and zip
    Archive(FuzzOptions),
    /// Expressions of health and readiness
    Cel(FuzzOptions),
    /// Templates of commit messages
    CommitTemplate(FuzzOptions),
    /// Strings with variables of a Kustomization
    Envsubst(FuzzOptions),
    /// Helmfiles with the files that they name
    Helmfile(FuzzOptions),
    /// iCalendar files of Freezes
    Icalendar(FuzzOptions),
    /// Indexes of chart repositories
    Index(FuzzOptions),
    /// Our own overlays: kustomizations, patches, manifests
    Overlay(charts_and_overlays::CaseFuzzOptions),
    /// Policies and filters of images, with tags
    Policy(FuzzOptions),
    /// Schemas of charts, and values for them
    Schema(FuzzOptions),
    /// Files in which image policies set values
    Setters(FuzzOptions),
    /// Signed commits, tags and provenance files, with their keys
    Signature(FuzzOptions),
    /// Every field of every kind, on a control plane: the story `nonsense_in_all_fields` with other seeds
    Spec(FuzzOptions),
    /// Our own charts: templates, values, CRDs, schemas
    Template(charts_and_overlays::CaseFuzzOptions),
    /// Manifests and values
    Yaml(FuzzOptions),
    /// The process that reads inputs, and may die of one
    #[command(hide = true)]
    Reader(rounds::FuzzReaderArguments),
}

/// For how long, and by which numbers.
#[derive(Debug, Args)]
pub(crate) struct FuzzOptions {
    /// For how long
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    minutes: u16,
    /// The first of the seeds, which are counted up: a seed repeats its input as long as `e2e/fuzz` is the same
    #[arg(long)]
    seed: Option<u64>,
}

impl FuzzOptions {
    /// For how long the target runs.
    fn time(&self) -> Duration {
        Duration::from_secs(u64::from(self.minutes) * 60)
    }
}

/// Runs a fuzz command.
///
/// # Errors
/// When an input broke the rule, or a target could not run.
pub(crate) fn run(command: &FuzzCommand) -> anyhow::Result<ExitCode> {
    let of = |target, options: &FuzzOptions| rounds::run(target, options.time(), options.seed);
    match command {
        FuzzCommand::All { minutes } => all(Duration::from_secs(u64::from(*minutes) * 60)),
        FuzzCommand::Archive(options) => of(&archive::TARGET, options),
        FuzzCommand::Cel(options) => of(&cel::TARGET, options),
        FuzzCommand::CommitTemplate(options) => of(&commit_template::TARGET, options),
        FuzzCommand::Envsubst(options) => of(&envsubst::TARGET, options),
        FuzzCommand::Helmfile(options) => of(&helmfile::TARGET, options),
        FuzzCommand::Icalendar(options) => of(&icalendar::TARGET, options),
        FuzzCommand::Index(options) => of(&chart_repository_index::TARGET, options),
        FuzzCommand::Overlay(options) => charts_and_overlays::run(CorpusKind::Overlays, options),
        FuzzCommand::Policy(options) => of(&image_policy::TARGET, options),
        FuzzCommand::Schema(options) => of(&chart_values_schema::TARGET, options),
        FuzzCommand::Setters(options) => of(&image_policy_markers::TARGET, options),
        FuzzCommand::Signature(options) => of(&signature::TARGET, options),
        FuzzCommand::Spec(options) => spec::run(options),
        FuzzCommand::Template(options) => charts_and_overlays::run(CorpusKind::Charts, options),
        FuzzCommand::Yaml(options) => of(&yaml::TARGET, options),
        FuzzCommand::Reader(reader) => return rounds::read(reader),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Runs all targets, which share the time. A target that finds a fault does not end the others.
///
/// # Errors
/// When an input broke the rule, or a target could not run.
pub(crate) fn all(time: Duration) -> anyhow::Result<()> {
    let corpora = [("template", CorpusKind::Charts), ("overlay", CorpusKind::Overlays)];
    let part = time / (TARGETS.len() + corpora.len()) as u32;
    let mut failed = Vec::new();
    let targets = TARGETS.iter().map(|target| (target.name, rounds::run(target, part, None)));
    let corpora = corpora
        .into_iter()
        .map(|(name, corpus)| (name, charts_and_overlays::run_for(corpus, part)));
    for (name, outcome) in targets.chain(corpora) {
        if let Err(error) = outcome {
            eprintln!("{} {name}: {error:#}", red("✘"));
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("fuzzing failed for: {}", failed.join(", "));
    }
    Ok(())
}
