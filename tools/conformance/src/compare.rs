//! `cargo xtask compare` runs the same charts, overlays or helmfiles through windlass and through the original
//! program.
//!
//! This module has the command line, and chooses the programs and cases. `crate::corpus` has the project's own cases
//! and runs programs. `helmfile` compares helmfiles, and `crds` definitions. `report` finds the differences between
//! two answers and prints them.
#![expect(clippy::print_stderr, reason = "the command prints what it recorded")]

mod crds;
pub mod helmfile;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use e2e::operator_process;
use testbed::upstream_programs::UpstreamProgram;

use crate::corpus::{self, CorpusCase, CorpusKind, ProgramOutput, RecordedAnswer};
use e2e::cluster_with_operator::{BuildProfile, make};
use report::{AnswerDifference, ComparisonTable};
use testbed::progress::step;

/// Which program windlass is compared with.
#[derive(Debug, Subcommand)]
pub enum CompareCommand {
    /// `windlass template` beside `helm template`: exit status, both outputs and written files
    Helm(HelmOptions),
    /// `windlass helmfile` beside `helmfile`: exit status and standard output
    Helmfile(helmfile::HelmfileComparisonOptions),
    /// `windlass build` beside `kustomize build`: exit status, both outputs and written files
    Kustomize(KustomizeComparisonOptions),
    /// The verdicts of the guard on CustomResourceDefinitions of public projects beside those of an API server
    Crds(crds::CrdComparisonOptions),
}

/// Which charts are rendered and compared, and with which values.
#[derive(Debug, Args)]
pub struct HelmOptions {
    /// Charts: paths of folders or archives, or names of our own charts; all of our own by default
    charts: Vec<String>,
    /// A file of values for charts that are given by path
    #[arg(short = 'f', long = "values")]
    values: Vec<PathBuf>,
    #[command(flatten)]
    how: ComparisonOptions,
}

/// Which overlays are built and compared.
#[derive(Debug, Args)]
pub struct KustomizeComparisonOptions {
    /// Overlays: paths of folders, or names of our own overlays; all of our own by default
    overlays: Vec<String>,
    #[command(flatten)]
    how: ComparisonOptions,
}

/// What is compared with what.
#[derive(Debug, Args, Default)]
struct ComparisonOptions {
    /// Show every difference, not the first few
    #[arg(long)]
    all: bool,
    /// Compare with the recorded answers of our own corpus, which needs no Go
    #[arg(long, conflicts_with = "record")]
    recorded: bool,
    /// Do not compare: record what the real program answers about our own corpus
    #[arg(long)]
    record: bool,
    /// More arguments of the command for what is given by path
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// The cases to compare: those of the project, and other paths with arguments.
struct ProgramComparison<'a> {
    corpus: CorpusKind,
    cases: Vec<CorpusCase>,
    paths: Vec<String>,
    arguments: Vec<String>,
    how: &'a ComparisonOptions,
}

/// Compares all cases, and prints a table.
///
/// # Errors
/// When something differs, or a program cannot be built or run.
pub fn run(command: &CompareCommand) -> anyhow::Result<()> {
    let (corpus, given, how, values) = match command {
        CompareCommand::Helmfile(options) => return helmfile::run(options),
        CompareCommand::Crds(options) => return crds::run(options),
        CompareCommand::Helm(it) => (CorpusKind::Charts, &it.charts, &it.how, it.values.as_slice()),
        CompareCommand::Kustomize(it) => {
            (CorpusKind::Overlays, &it.overlays, &it.how, [].as_slice())
        }
    };
    let home = corpus.home();
    let is_path = |name: &String| !home.join(name).join("case.yaml").is_file();
    let (paths, names): (Vec<String>, Vec<String>) = given.iter().cloned().partition(is_path);
    let mut cases = Vec::new();
    if paths.is_empty() || !names.is_empty() {
        cases = CorpusCase::load(corpus, &names)?;
    }
    let mut arguments = Vec::new();
    for file in values {
        arguments.extend(["-f".to_owned(), full(file)?]);
    }
    arguments.extend(how.arguments.iter().cloned());
    ensure!(
        cases.is_empty() || arguments.is_empty(),
        "our own {} have their runs in case.yaml: values and arguments are for what is given by path",
        corpus.noun()
    );
    ProgramComparison { corpus, cases, paths, arguments, how }.run()
}

/// Compares windlass with the recorded answers for the project's own charts and overlays. CI runs this.
///
/// # Errors
/// When something differs.
pub fn recorded() -> anyhow::Result<()> {
    let how = || ComparisonOptions { recorded: true, ..ComparisonOptions::default() };
    run(&CompareCommand::Helm(HelmOptions { charts: Vec::new(), values: Vec::new(), how: how() }))?;
    run(&CompareCommand::Kustomize(KustomizeComparisonOptions { overlays: Vec::new(), how: how() }))
}

/// The differences of two answers to one command, as text for people. `None` if the answers are equal.
pub fn difference(
    arguments: &[String],
    wanted: &ProgramOutput,
    got: &ProgramOutput,
) -> Option<String> {
    AnswerDifference::between("", arguments, wanted, got).map(AnswerDifference::into_text)
}

impl ProgramComparison<'_> {
    fn run(&self) -> anyhow::Result<()> {
        let noun = self.corpus.noun();
        if self.how.record || self.how.recorded {
            ensure!(self.paths.is_empty(), "only answers about our own {noun} are recorded");
        }
        if self.how.record {
            let real = self.real()?;
            return self.cases.iter().try_for_each(|case| real.record(case));
        }
        let mut table = ComparisonTable::default();
        if self.how.recorded {
            let own = windlass()?;
            step(&format!("our own {noun}, as recorded"), || {
                self.cases.iter().try_for_each(|case| replay(&own, case, &mut table))
            })?;
        } else {
            let real = self.real()?;
            let own = windlass()?;
            step(&format!("{noun}, with both"), || {
                let cases = &mut self.cases.iter();
                cases.try_for_each(|case| real.compare_case(&own, case, &mut table))?;
                let paths = &mut self.paths.iter();
                paths.try_for_each(|path| self.compare_path(&real, &own, path, &mut table))
            })?;
        }
        conclude(&table, self.how.all)
    }

    /// Builds the original program. If a case needs charts, it also builds Helm for it.
    fn real(&self) -> anyhow::Result<ReferenceProgram> {
        let ensure = |oracle: UpstreamProgram| step(oracle.version(), || oracle.ensure());
        let of_cases = self.cases.iter().flat_map(|case| case.runs().values().flatten());
        let has_charts =
            of_cases.chain(&self.arguments).any(|argument| argument == "--enable-helm");
        let helm = has_charts.then(|| ensure(UpstreamProgram::Helm)).transpose()?;
        let tools = helm.as_deref().and_then(Path::parent).map(Path::to_owned);
        Ok(ReferenceProgram { program: ensure(self.corpus.oracle())?, tools })
    }

    fn compare_path(
        &self,
        real: &ReferenceProgram,
        own: &Path,
        path: &str,
        table: &mut ComparisonTable,
    ) -> anyhow::Result<()> {
        let place = full(Path::new(path))?;
        let mut arguments = match self.corpus {
            CorpusKind::Charts => vec!["rel".to_owned(), place],
            CorpusKind::Overlays => vec![place],
        };
        arguments.extend(self.arguments.iter().cloned());
        let folder = || tempfile::tempdir().context("cannot make a folder");
        let tools = real.tools.as_deref();
        let wanted = corpus::ask(self.corpus, &real.program, folder()?.path(), &arguments, tools)?;
        let got = ask_windlass(self.corpus, own, folder()?.path(), &arguments)?;
        let differences = AnswerDifference::between("", &arguments, &wanted, &got);
        table.add(path, 1, differences.into_iter().collect());
        Ok(())
    }
}

/// Prints a table, and fails if an answer differs.
fn conclude(table: &ComparisonTable, is_whole: bool) -> anyhow::Result<()> {
    table.print(is_whole);
    let differing = table.differing();
    ensure!(differing == 0, "{differing} answers differ");
    Ok(())
}

/// The absolute path, so that it means the same file in every folder.
fn full(path: &Path) -> anyhow::Result<String> {
    let full = path.canonicalize().with_context(|| format!("there is no {}", path.display()))?;
    full.into_os_string().into_string().map_err(|path| anyhow::anyhow!("{path:?} is no text"))
}

/// Builds windlass, and returns its path.
fn windlass() -> anyhow::Result<PathBuf> {
    step("windlass itself", || make(BuildProfile::Debug))?;
    operator_process::binary()
}

/// Runs windlass with a long time limit, because the machine may be busy.
fn ask_windlass(
    corpus: CorpusKind,
    own: &Path,
    folder: &Path,
    arguments: &[String],
) -> anyhow::Result<ProgramOutput> {
    let arguments: Vec<&str> =
        arguments.iter().map(String::as_str).chain(["--time-limit=5m"]).collect();
    corpus::ask(corpus, own, folder, &arguments, None)
}

/// The original program, and the folder of the programs that it runs.
struct ReferenceProgram {
    program: PathBuf,
    tools: Option<PathBuf>,
}

impl ReferenceProgram {
    fn ask(
        &self,
        case: &CorpusCase,
        folder: &Path,
        arguments: &[String],
    ) -> anyhow::Result<ProgramOutput> {
        corpus::ask(case.corpus, &self.program, folder, arguments, self.tools.as_deref())
    }

    fn record(&self, case: &CorpusCase) -> anyhow::Result<()> {
        let mut answers = BTreeMap::new();
        for (run, arguments) in case.runs() {
            let again = || {
                let copy = case.lay_out()?;
                self.ask(case, copy.path(), arguments).map(|answer| RecordedAnswer::of(&answer))
            };
            let answer = again()?;
            // An output that differs from run to run cannot be compared, so it is not recorded.
            for _ in 0..2 {
                if again()? != answer {
                    bail!("`{}`, run `{run}`: the answer is another one each time", case.name);
                }
            }
            answers.insert(run.clone(), answer);
        }
        corpus::write_recorded(case, &answers)?;
        eprintln!("recorded {} ({} runs)", case.name, answers.len());
        Ok(())
    }

    fn compare_case(
        &self,
        own: &Path,
        case: &CorpusCase,
        table: &mut ComparisonTable,
    ) -> anyhow::Result<()> {
        let mut differences = Vec::new();
        for (run, arguments) in case.runs() {
            let mut wanted = self.ask(case, case.lay_out()?.path(), arguments)?;
            let copy = case.lay_out()?;
            let mut got = ask_windlass(case.corpus, own, copy.path(), arguments)?;
            if !case.is_same_wording(run) {
                same_silence(&mut got, !wanted.stderr.is_empty());
                wanted.stderr.clear();
            }
            differences.extend(AnswerDifference::between(run, arguments, &wanted, &got));
        }
        table.add_case(case, differences);
        Ok(())
    }
}

fn replay(own: &Path, case: &CorpusCase, table: &mut ComparisonTable) -> anyhow::Result<()> {
    let recorded = corpus::read_recorded(case)?;
    let mut differences = Vec::new();
    for (run, arguments) in case.runs() {
        let Some(wanted) = recorded.get(run) else {
            bail!(
                "`{}`, run `{run}`: nothing is recorded; `cargo xtask compare {} --record`",
                case.name,
                case.corpus.oracle().name()
            );
        };
        let copy = case.lay_out()?;
        let mut got = ask_windlass(case.corpus, own, copy.path(), arguments)?;
        let mut wanted = wanted.clone();
        if !case.is_same_wording(run) {
            same_silence(&mut got, wanted.strings.remove("stderr").is_some());
        }
        differences.extend(AnswerDifference::from_recorded(run, arguments, &wanted, &got));
    }
    table.add_case(case, differences);
    Ok(())
}

/// Removes the text of errors that windlass words in its own way. It stays a difference if only one program prints an
/// error.
fn same_silence(got: &mut ProgramOutput, has_to_speak: bool) {
    let speaks = !got.stderr.is_empty();
    got.stderr.clear();
    if speaks != has_to_speak {
        got.stderr.extend_from_slice(if speaks { b"(speaks)\n" } else { b"(is silent)\n" });
    }
}
