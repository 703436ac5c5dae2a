//! Compares `windlass helmfile` with the original helmfile. The cases are those of the project that are also recorded
//! (`crate::replay`).

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, anyhow};
use clap::Args;
use testbed::upstream_programs::UpstreamProgram;

use super::report::{AnswerDifference, ComparisonTable};
use super::{conclude, windlass};
use crate::corpus::ProgramOutput;
use crate::replay::helmfile::{HelmfileCase, HelmfileCommandLine, own};
use testbed::progress::step;

/// Which recorded cases of helmfile are compared, and how many differences are shown.
#[derive(Debug, Args)]
pub struct HelmfileComparisonOptions {
    /// Cases whose names begin like this; all by default
    names: Vec<String>,
    /// Show every difference, not the first few
    #[arg(long)]
    all: bool,
}

/// The path of helmfile, and the folders of the programs that it runs.
pub struct HelmfileProgram {
    /// The path of helmfile.
    pub path: PathBuf,
    /// The folders of the programs that helmfile runs.
    pub tools: Vec<PathBuf>,
}

/// Builds helmfile, Helm and Kustomize if they are not there.
///
/// # Errors
/// When a program cannot be built.
pub fn real() -> anyhow::Result<HelmfileProgram> {
    let ensure = |oracle: UpstreamProgram| step(oracle.version(), || oracle.ensure());
    let tools = [UpstreamProgram::Helm, UpstreamProgram::Kustomize].map(|oracle| {
        let path = ensure(oracle)?;
        path.parent().map(Path::to_owned).context("a program is in a folder")
    });
    Ok(HelmfileProgram {
        path: ensure(UpstreamProgram::Helmfile)?,
        tools: tools.into_iter().collect::<anyhow::Result<_>>()?,
    })
}

/// Compares all cases, and prints a table.
///
/// # Errors
/// When something differs, or a program cannot be built or run.
pub(super) fn run(options: &HelmfileComparisonOptions) -> anyhow::Result<()> {
    let real = real()?;
    let own_path = windlass()?;
    let is_chosen = |name: &str| {
        options.names.is_empty() || options.names.iter().any(|start| name.starts_with(start))
    };
    let cases: Vec<_> = own()?.into_iter().filter(|(name, _)| is_chosen(name)).collect();
    let real = HelmfileCommandLine { path: &real.path, command: &[], tools: &real.tools };
    let ours = HelmfileCommandLine { path: &own_path, command: &["helmfile"], tools: &[] };
    let mut table = ComparisonTable::default();
    for ((name, case), differences) in
        step("helmfiles, with both", || differences(&cases, real, ours))?
    {
        table.add(name, case.runs().len(), differences);
    }
    conclude(&table, options.all)
}

type CaseDifferences<'c> = (&'c (String, HelmfileCase), Vec<AnswerDifference>);

/// Runs both programs with all cases. As many cases run at once as there are processors.
fn differences<'c>(
    cases: &'c [(String, HelmfileCase)],
    real: HelmfileCommandLine<'_>,
    ours: HelmfileCommandLine<'_>,
) -> anyhow::Result<Vec<CaseDifferences<'c>>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = compare(&case.1, real, ours).with_context(|| case.0.clone())?;
            done.push((case, found));
        }
        anyhow::Ok(done)
    };
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let count = std::thread::available_parallelism().map_or(1, NonZero::get);
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            all.extend(worker.join().map_err(|_| anyhow!("a comparison panicked"))??);
        }
        anyhow::Ok(())
    })?;
    all.sort_by(|a, b| a.0.0.cmp(&b.0.0));
    Ok(all)
}

fn compare(
    case: &HelmfileCase,
    real: HelmfileCommandLine<'_>,
    ours: HelmfileCommandLine<'_>,
) -> anyhow::Result<Vec<AnswerDifference>> {
    let mut found = Vec::new();
    for run in case.runs() {
        let [mut wanted, mut got] = [case.ask(real, run)?, case.ask(ours, run)?];
        // Errors and warnings have windlass's own words. So of an error only its presence is compared, and of a
        // warning nothing.
        for answer in [&mut wanted, &mut got] {
            if answer.status.is_some_and(|status| status != 0) {
                *answer = ProgramOutput { status: Some(1), ..ProgramOutput::default() };
            }
            answer.stderr.clear();
        }
        found.extend(AnswerDifference::between("", &run.args, &wanted, &got));
    }
    Ok(found)
}
