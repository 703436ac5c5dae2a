//! `cargo xtask fuzz`: what tenants write, changed at random and given to what reads it.
//!
//! Every input is read or refused: no panic, no signal, no hang, no more memory than a limit. An input that breaks this is
//! kept. Inputs that did so once, and some to begin with, are in `e2e/fuzz/<target>`, and are read again before anything
//! new is tried.
//!
//! Here: the targets and the command line. A target is one file (`cel`, `yaml`, …) and a line in [`TARGETS`]. Elsewhere:
//! reading inputs in a process that may die of it (`rounds`), changing bytes (`mutate`), whole charts and overlays
//! (`cases`), objects on a control plane (`spec`).

mod archive;
mod cases;
mod cel;
mod commit_template;
mod envsubst;
mod helmfile;
mod icalendar;
mod index;
mod mutate;
mod policy;
mod rounds;
mod schema;
mod setters;
mod signature;
mod spec;
mod yaml;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};

use conformance::corpus::CorpusKind;
use testbed::progress::red;

/// What reads something that tenants write.
pub(crate) struct FuzzTarget {
    /// Its name, and that of the folder with its inputs.
    name: &'static str,
    /// Bytes of stack that it has where it is used.
    stack: usize,
    /// What its inputs are made of.
    words: &'static mutate::LanguageWords,
    /// Recorded cases of `e2e/conformance` whose strings are inputs too.
    recorded: &'static [&'static str],
    /// Reads an input.
    read: fn(&[u8]),
}

/// The stack of a target whose parser has threads of its own: that of any thread.
const USUAL_STACK: usize = 2 << 20;

const TARGETS: [&FuzzTarget; 12] = [
    &archive::TARGET,
    &cel::TARGET,
    &commit_template::TARGET,
    &envsubst::TARGET,
    &helmfile::TARGET,
    &icalendar::TARGET,
    &index::TARGET,
    &policy::TARGET,
    &schema::TARGET,
    &setters::TARGET,
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
    Overlay(cases::CaseFuzzOptions),
    /// Policies and filters of images, with tags
    Policy(FuzzOptions),
    /// Schemas of charts, and values for them
    Schema(FuzzOptions),
    /// Files in which image policies set values
    Setters(FuzzOptions),
    /// Signed commits, tags and provenance files, with their keys
    Signature(FuzzOptions),
    /// Every field of every kind, on a control plane: the story `poison` with other seeds
    Spec(FuzzOptions),
    /// Our own charts: templates, values, CRDs, schemas
    Template(cases::CaseFuzzOptions),
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
    /// How long it takes.
    fn time(&self) -> Duration {
        Duration::from_secs(u64::from(self.minutes) * 60)
    }
}

/// Changes and reads.
///
/// # Errors
/// When something was found, or nothing could be run.
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
        FuzzCommand::Index(options) => of(&index::TARGET, options),
        FuzzCommand::Overlay(options) => cases::run(CorpusKind::Overlays, options),
        FuzzCommand::Policy(options) => of(&policy::TARGET, options),
        FuzzCommand::Schema(options) => of(&schema::TARGET, options),
        FuzzCommand::Setters(options) => of(&setters::TARGET, options),
        FuzzCommand::Signature(options) => of(&signature::TARGET, options),
        FuzzCommand::Spec(options) => spec::run(options),
        FuzzCommand::Template(options) => cases::run(CorpusKind::Charts, options),
        FuzzCommand::Yaml(options) => of(&yaml::TARGET, options),
        FuzzCommand::Reader(reader) => return rounds::read(reader),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// All targets, for a time together; one that finds something does not end the others.
///
/// # Errors
/// When something was found, or nothing could be run.
pub(crate) fn all(time: Duration) -> anyhow::Result<()> {
    let corpora = [("template", CorpusKind::Charts), ("overlay", CorpusKind::Overlays)];
    let part = time / (TARGETS.len() + corpora.len()) as u32;
    let mut failed = Vec::new();
    let targets = TARGETS.iter().map(|target| (target.name, rounds::run(target, part, None)));
    let corpora = corpora.into_iter().map(|(name, corpus)| (name, cases::run_for(corpus, part)));
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
