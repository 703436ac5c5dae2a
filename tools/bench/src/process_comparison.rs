//! Compares whole processes: windlass, and the program whose output it reproduces.
//!
//! Both programs get the same arguments in turn, so that a busy machine slows down both. This module has the rounds,
//! the table and the verdict. `template`, `build` and `helmfile` choose the arguments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;
use tempfile::TempDir;

use super::raw_client_comparison::FigureOutputFormat;
use super::time_samples;
use conformance::corpus;
use e2e::rusage;
use testbed::progress::{bold, dim, green, red};

/// The promised limit for the memory: the other program's memory divided by windlass's.
const MIN_MEMORY_RATIO: f64 = 3.0;

/// How long one process may take.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(300);

/// A chart or overlay, and how many times faster windlass has to be with it.
pub(super) struct BenchChart {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) wanted: f64,
    /// Keeps the temporary folder of generated files.
    _folder: Option<TempDir>,
}

impl BenchChart {
    /// The chart or overlay at a path.
    ///
    /// # Errors
    /// When the path does not exist.
    pub(super) fn given(path: &Path, wanted: f64) -> anyhow::Result<Self> {
        let path = path.canonicalize().with_context(|| format!("no {}", path.display()))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Self { name: name.unwrap_or_default(), path, wanted, _folder: None })
    }

    /// Writes files to a temporary folder. `place` is the chart or overlay in it.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn ours(
        name: &str,
        files: BTreeMap<String, Vec<u8>>,
        place: &str,
        wanted: f64,
    ) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("windlass-bench-").context("cannot make a folder")?;
        for (path, content) in files {
            corpus::write(&folder.path().join(path), &content)?;
        }
        let path = folder.path().join(place);
        Ok(Self { name: name.to_owned(), path, wanted, _folder: Some(folder) })
    }
}

/// The two programs with their arguments.
pub(super) struct ComparedPrograms<'a> {
    pub(super) real: ProgramCommand<'a>,
    pub(super) own: ProgramCommand<'a>,
    /// Folders with programs that the original program runs.
    pub(super) tools: &'a [PathBuf],
}

/// A program, and its arguments before the path.
#[derive(Clone, Copy)]
pub(super) struct ProgramCommand<'a> {
    pub(super) program: &'a Path,
    pub(super) arguments: &'a [&'a str],
}

impl<'a> ComparedPrograms<'a> {
    /// Both programs with the same arguments.
    pub(super) fn alike(real: &'a Path, own: &'a Path, arguments: &'a [&'a str]) -> Self {
        let asked = |program| ProgramCommand { program, arguments };
        Self { real: asked(real), own: asked(own), tools: &[] }
    }
}

/// A row of the table. The figures of the original program and of windlass have the same unit.
#[derive(Debug, Serialize)]
pub(super) struct ComparisonRow {
    subject: String,
    what: &'static str,
    real: f64,
    /// The figure of windlass. It is none if windlass cannot do this yet.
    windlass: Option<f64>,
    /// The original program's figure divided by windlass's.
    ratio: Option<f64>,
    wanted: f64,
}

impl ComparisonRow {
    pub(super) fn new(
        subject: &str,
        what: &'static str,
        real: f64,
        windlass: Option<f64>,
        wanted: f64,
    ) -> Self {
        let ratio = windlass.map(|own| real / own).filter(|ratio| ratio.is_finite());
        Self { subject: subject.to_owned(), what, real, windlass, ratio, wanted }
    }

    fn passes(&self) -> bool {
        self.ratio.is_some_and(|ratio| ratio >= self.wanted)
    }

    fn line(&self, width: usize) -> String {
        let figure = |it: Option<f64>| it.map_or("–".to_owned(), |it| format!("{it:.2}"));
        let verdict = if self.passes() { green("PASS") } else { red("FAIL") };
        let [real, own, ratio] = [Some(self.real), self.windlass, self.ratio].map(figure);
        let Self { subject, what, wanted, .. } = self;
        format!(
            "{subject:<width$} {what:<27} {real:>10} {own:>10} {ratio:>8}  {verdict} (at least {wanted:.0})"
        )
    }
}

/// Measures the time and the memory peak of whole processes.
///
/// # Errors
/// When a program cannot be run, or fails on the subject.
pub(super) fn processes(
    pair: &ComparedPrograms<'_>,
    subject: &BenchChart,
    rounds: u16,
) -> anyhow::Result<Vec<ComparisonRow>> {
    let programs = [pair.real, pair.own];
    let home = tempfile::tempdir().context("cannot make a folder")?;
    let known = std::env::var_os("PATH").unwrap_or_default();
    let folders = pair.tools.iter().cloned().chain(std::env::split_paths(&known));
    let path = std::env::join_paths(folders).context("no PATH can be made")?;
    let command = |asked: ProgramCommand<'_>| {
        let mut command = corpus::prepare(asked.program, home.path(), home.path());
        command.env("PATH", &path).args(asked.arguments).arg(&subject.path);
        command
    };
    let mut peaks = Vec::new();
    for program in programs {
        // The first run is measured, too. It reads the program from the disk.
        let cost = rusage::cost(&command(program), PROCESS_TIMEOUT)?;
        let name = program.program.display();
        match cost.status {
            Some(0) => peaks.push(cost.peak),
            Some(_) => bail!("{name} fails on {}:\n{}", subject.name, cost.stderr.trim_end()),
            None => bail!("{name} takes longer than {} s", PROCESS_TIMEOUT.as_secs()),
        }
    }
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (times, program) in times.iter_mut().zip(programs) {
            let mut command = command(program);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let begun = Instant::now();
            command.status().with_context(|| program.program.display().to_string())?;
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
    }
    let [real, own] = times.map(|times| median(&times));
    let name = &subject.name;
    let peak = |index: usize| peaks.get(index).copied();
    Ok(vec![
        ComparisonRow::new(
            name,
            "whole process, ms",
            real.context("no rounds")?,
            own,
            subject.wanted,
        ),
        ComparisonRow::new(
            name,
            "peak memory, MiB",
            peak(0).context("no peak")?,
            peak(1),
            MIN_MEMORY_RATIO,
        ),
    ])
}

/// The median of figures. With an even number of figures it is the mean of the middle two. `None` without any figure.
pub(super) fn median(all: &[f64]) -> Option<f64> {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    let low = sorted.get(sorted.len().checked_sub(1)? / 2)?;
    let high = sorted.get(sorted.len() / 2)?;
    Some((low + high) / 2.0)
}

/// Prints the table and judges it. `real` is the name of the original program.
///
/// # Errors
/// When windlass is not as much faster or smaller as promised.
pub(super) fn conclude(
    subjects: &str,
    real: &str,
    rows: &[ComparisonRow],
    output: FigureOutputFormat,
    load: &str,
) -> anyhow::Result<()> {
    print(subjects, real, rows, output, load)?;
    let failed = rows.iter().filter(|row| !row.passes()).count();
    ensure!(failed == 0, "{failed} promises were not kept");
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn print(
    subjects: &str,
    real: &str,
    rows: &[ComparisonRow],
    output: FigureOutputFormat,
    load: &str,
) -> anyhow::Result<()> {
    if output == FigureOutputFormat::Json {
        let all = serde_json::json!({"load": load, "figures": rows});
        println!("{}", serde_json::to_string(&all).context("the figures are no JSON")?);
        return Ok(());
    }
    let width = rows.iter().map(|row| row.subject.chars().count()).max().unwrap_or_default();
    let heading = format!(
        "{:<width$} {:<27} {:>10} {:>10} {:>8}",
        subjects, "medians", real, "windlass", "ratio"
    );
    println!("\n{}", bold(&heading));
    rows.iter().for_each(|row| println!("{}", row.line(width)));
    if rows.iter().any(|row| row.windlass.is_none()) {
        println!("{}", dim("–: not measured, there is no such engine in this program yet"));
    }
    time_samples::print_machine(load);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_how_many_times_less_and_has_to_be_reached() {
        let row = |own| ComparisonRow::new("web", "whole process, ms", 48.0, own, 8.0);
        assert!(row(Some(6.0)).passes(), "the promise itself is kept");
        assert!(!row(Some(6.1)).passes());
        assert!(!row(None).passes(), "nothing measured is not a pass");
        assert!(!row(Some(0.0)).passes());
        assert!(row(Some(6.0)).line(3).contains("8.00  PASS (at least 8)"));
    }

    #[test]
    fn a_median_is_the_middle_one_or_between_two() {
        assert_eq!(
            (median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0]), median(&[])),
            (Some(2.0), Some(2.5), None)
        );
    }
}
