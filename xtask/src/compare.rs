//! `cargo xtask compare`: the same charts through windlass and through the real program.
//!
//! Here: the command line, and who is asked what. Elsewhere: our own charts and running programs (`crate::charts`),
//! what two answers differ in and how that is shown (`report`).

mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use e2e::operator;
use e2e::oracle::Oracle;

use crate::charts::{self, Answer, Case, Recorded};
use crate::installation::{Build, make};
use crate::progress::step;
use report::{Difference, Table};

/// With which program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// `windlass template` beside `helm template`: exit status, both outputs and written files
    Helm(Options),
}

/// What is rendered how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Charts: paths of folders or archives, or names of our own charts; all of our own by default
    charts: Vec<String>,
    /// A file of values for charts that are given by path
    #[arg(short = 'f', long = "values")]
    values: Vec<PathBuf>,
    /// Show every difference, not the first few
    #[arg(long)]
    all: bool,
    /// Compare with the recorded answers of our own charts, which needs no Go
    #[arg(long, conflicts_with = "record")]
    recorded: bool,
    /// Do not compare: record what the real program answers about our own charts
    #[arg(long)]
    record: bool,
    /// More arguments of `template` for charts that are given by path
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Compares, and prints a table.
///
/// # Errors
/// When something differs, or a program cannot be built or run.
pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    let Command::Helm(options) = command;
    let home = charts::home();
    let is_path = |chart: &String| !home.join(chart).join("case.yaml").is_file();
    let (paths, names): (Vec<String>, Vec<String>) =
        options.charts.iter().cloned().partition(is_path);
    let mut cases = Vec::new();
    if paths.is_empty() || !names.is_empty() {
        cases = Case::load(&names)?;
    }
    let is_about_paths = !options.values.is_empty() || !options.arguments.is_empty();
    ensure!(
        cases.is_empty() || !is_about_paths,
        "our own charts have their runs in case.yaml: values and arguments are for charts given by path"
    );
    if options.record {
        ensure!(paths.is_empty(), "only answers about our own charts are recorded");
        let helm = step(Oracle::Helm.version(), || Oracle::Helm.ensure())?;
        return cases.iter().try_for_each(|case| record(&helm, case));
    }
    let mut table = Table::default();
    if options.recorded {
        ensure!(paths.is_empty(), "only answers about our own charts are recorded");
        let own = windlass()?;
        step("our own charts, as recorded", || {
            cases.iter().try_for_each(|case| replay(&own, case, &mut table))
        })?;
    } else {
        let helm = step(Oracle::Helm.version(), || Oracle::Helm.ensure())?;
        let own = windlass()?;
        step("charts, with both", || {
            cases.iter().try_for_each(|case| compare_case(&helm, &own, case, &mut table))?;
            paths.iter().try_for_each(|path| compare_path(&helm, &own, path, options, &mut table))
        })?;
    }
    table.print(options.all);
    let differing = table.differing();
    ensure!(differing == 0, "{differing} answers differ");
    Ok(())
}

/// Our own charts against what is recorded of them: what CI runs.
///
/// # Errors
/// When something differs.
pub(crate) fn recorded() -> anyhow::Result<()> {
    run(&Command::Helm(Options {
        charts: Vec::new(),
        values: Vec::new(),
        all: false,
        recorded: true,
        record: false,
        arguments: Vec::new(),
    }))
}

/// What two answers to one command differ in, for people; none when nothing.
pub(crate) fn difference(arguments: &[String], wanted: &Answer, got: &Answer) -> Option<String> {
    Difference::between("", arguments, wanted, got).map(Difference::into_text)
}

/// The windlass that was built or given.
fn windlass() -> anyhow::Result<PathBuf> {
    step("windlass itself", || make(Build::Debug))?;
    operator::binary()
}

fn record(helm: &Path, case: &Case) -> anyhow::Result<()> {
    let mut answers = BTreeMap::new();
    for (run, arguments) in case.runs() {
        let again = || {
            let copy = case.lay_out()?;
            charts::ask(helm, copy.path(), arguments).map(|answer| Recorded::of(&answer))
        };
        let answer = again()?;
        // What changes from one time to the next is no answer to compare with.
        for _ in 0..2 {
            if again()? != answer {
                bail!("`{}`, run `{run}`: the answer is another one each time", case.name);
            }
        }
        answers.insert(run.clone(), answer);
    }
    charts::write_recorded(case, &answers)?;
    eprintln!("recorded {} ({} runs)", case.name, answers.len());
    Ok(())
}

fn replay(own: &Path, case: &Case, table: &mut Table) -> anyhow::Result<()> {
    let recorded = charts::read_recorded(case)?;
    let mut differences = Vec::new();
    for (run, arguments) in case.runs() {
        let Some(wanted) = recorded.get(run) else {
            bail!(
                "`{}`, run `{run}`: nothing is recorded; `cargo xtask compare helm --record`",
                case.name
            );
        };
        let copy = case.lay_out()?;
        let got = charts::ask(own, copy.path(), arguments)?;
        differences.extend(Difference::from_recorded(run, arguments, wanted, &got));
    }
    table.add(&case.name, case.runs().len(), differences);
    Ok(())
}

fn compare_case(helm: &Path, own: &Path, case: &Case, table: &mut Table) -> anyhow::Result<()> {
    let mut differences = Vec::new();
    for (run, arguments) in case.runs() {
        let answer = |program: &Path| -> anyhow::Result<Answer> {
            let copy = case.lay_out()?;
            charts::ask(program, copy.path(), arguments)
        };
        let (wanted, got) = (answer(helm)?, answer(own)?);
        differences.extend(Difference::between(run, arguments, &wanted, &got));
    }
    table.add(&case.name, case.runs().len(), differences);
    Ok(())
}

fn compare_path(
    helm: &Path,
    own: &Path,
    path: &str,
    options: &Options,
    table: &mut Table,
) -> anyhow::Result<()> {
    let full = |path: &Path| {
        let full =
            path.canonicalize().with_context(|| format!("there is no {}", path.display()))?;
        full.into_os_string().into_string().map_err(|path| anyhow::anyhow!("{path:?} is no text"))
    };
    let mut arguments = vec!["rel".to_owned(), full(Path::new(path))?];
    for file in &options.values {
        arguments.extend(["-f".to_owned(), full(file)?]);
    }
    arguments.extend(options.arguments.iter().cloned());
    let answer = |program: &Path| {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        charts::ask(program, folder.path(), &arguments)
    };
    let (wanted, got) = (answer(helm)?, answer(own)?);
    let differences = Difference::between("", &arguments, &wanted, &got);
    table.add(path, 1, differences.into_iter().collect());
    Ok(())
}
