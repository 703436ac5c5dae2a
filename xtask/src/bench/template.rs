//! How fast charts are rendered, and in how much memory, beside the real Helm.
//!
//! Whole processes: `windlass template` and `helm template` with the same arguments, in turn, so that a busy machine is
//! busy for both. In one process: the same render again and again, with what both keep between two renders.
//!
//! Here: the charts, the rounds, the table, the verdict. Elsewhere: windlass's engine in this process (`in_process`).

mod in_process;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use e2e::oracle::{self, Oracle};
use serde::Serialize;
use tempfile::TempDir;

use super::figures::Output;
use super::samples;
use crate::charts::{self, Case};
use crate::installation::{Build, make, program};
use crate::measured;
use crate::progress::{bold, dim, green, red, step};

/// The promises: how many times faster than Helm a whole process is with a small chart, and with others;
/// how many times faster the engine is; what part of Helm's memory is enough.
const SMALL: f64 = 8.0;
const LARGE: f64 = 10.0;
const ENGINE: f64 = 5.0;
const MEMORY: f64 = 3.0;

/// Our own chart that stands for small ones.
const SMALL_CHART: &str = "web";

/// How long one render may take.
const LIMIT: Duration = Duration::from_secs(300);

/// What is measured how often.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Charts: paths of folders or archives; a small and a large one of our own by default
    charts: Vec<PathBuf>,
    /// How often each process is run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// How often each engine renders
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    renders: u16,
    /// How the figures are written
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// A chart that is rendered, and how many times faster a process has to be.
struct Subject {
    name: String,
    path: PathBuf,
    wanted: f64,
    /// Holds the chart if it is ours.
    _folder: Option<TempDir>,
}

/// A line of the table. Figures are of Helm and of windlass, in the same unit.
#[derive(Debug, Serialize)]
struct Row {
    chart: String,
    what: &'static str,
    helm: f64,
    /// None where there is nothing to measure yet.
    windlass: Option<f64>,
    /// How many times less windlass needs.
    ratio: Option<f64>,
    wanted: f64,
}

impl Row {
    fn new(chart: &str, what: &'static str, helm: f64, windlass: Option<f64>, wanted: f64) -> Self {
        let ratio = windlass.map(|own| helm / own).filter(|ratio| ratio.is_finite());
        Self { chart: chart.to_owned(), what, helm, windlass, ratio, wanted }
    }

    fn passes(&self) -> bool {
        self.ratio.is_some_and(|ratio| ratio >= self.wanted)
    }

    fn line(&self, width: usize) -> String {
        let figure = |it: Option<f64>| it.map_or("–".to_owned(), |it| format!("{it:.2}"));
        let verdict = if self.passes() { green("PASS") } else { red("FAIL") };
        let [helm, own, ratio] = [Some(self.helm), self.windlass, self.ratio].map(figure);
        let Self { chart, what, wanted, .. } = self;
        format!(
            "{chart:<width$} {what:<27} {helm:>10} {own:>10} {ratio:>8}  {verdict} (at least {wanted:.0})"
        )
    }
}

/// Measures, and prints the table.
///
/// # Errors
/// When a chart cannot be rendered, or windlass is not as much faster or smaller as promised.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let helm = step(Oracle::Helm.version(), || Oracle::Helm.ensure())?;
    let renders = step("Helm's engine, many times", oracle::renders)?;
    step("windlass itself", || make(Build::Release))?;
    let own = program(Build::Release)?;
    let load = samples::load();
    let mut rows = Vec::new();
    for subject in subjects(options)? {
        step(&subject.name, || {
            rows.extend(processes(&helm, &own, &subject, options.rounds)?);
            rows.push(engines(&renders, &subject, options.renders)?);
            Ok(())
        })?;
    }
    print(&rows, options.output, &load)?;
    let failed = rows.iter().filter(|row| !row.passes()).count();
    ensure!(failed == 0, "{failed} promises were not kept");
    Ok(())
}

fn subjects(options: &Options) -> anyhow::Result<Vec<Subject>> {
    if options.charts.is_empty() {
        let small = Case::load(&[SMALL_CHART.to_owned()])?;
        let small = small.first().context("the small chart is not there")?;
        let large = charts::large();
        let objects = "200 templates, 600 objects";
        return Ok(vec![ours(SMALL_CHART, small.files()?, SMALL)?, ours(objects, large, LARGE)?]);
    }
    let given = |path: &PathBuf| {
        let path = path.canonicalize().with_context(|| format!("no {}", path.display()))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Subject { name: name.unwrap_or_default(), path, wanted: LARGE, _folder: None })
    };
    options.charts.iter().map(given).collect()
}

/// A chart of ours, written to a folder of its own.
fn ours(name: &str, files: BTreeMap<String, Vec<u8>>, wanted: f64) -> anyhow::Result<Subject> {
    let folder = TempDir::with_prefix("windlass-bench-").context("cannot make a folder")?;
    for (path, content) in files {
        charts::write(&folder.path().join(path), &content)?;
    }
    let path = folder.path().join("chart");
    Ok(Subject { name: name.to_owned(), path, wanted, _folder: Some(folder) })
}

/// Times and peaks of whole processes.
fn processes(helm: &Path, own: &Path, subject: &Subject, rounds: u16) -> anyhow::Result<Vec<Row>> {
    let home = tempfile::tempdir().context("cannot make a folder")?;
    let command = |program: &Path| {
        let mut command = charts::prepare(program, home.path(), home.path());
        command.args(["template", "rel"]).arg(&subject.path);
        command
    };
    let mut peaks = Vec::new();
    for program in [helm, own] {
        // Also the first time, which reads the program from the disk.
        let cost = measured::cost(&command(program), LIMIT)?;
        let name = program.display();
        match cost.status {
            Some(0) => peaks.push(cost.peak),
            Some(_) => bail!("{name} fails on {}:\n{}", subject.name, cost.stderr.trim_end()),
            None => bail!("{name} takes longer than {} s", LIMIT.as_secs()),
        }
    }
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (times, program) in times.iter_mut().zip([helm, own]) {
            let mut command = command(program);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let begun = Instant::now();
            command.status().with_context(|| program.display().to_string())?;
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
    }
    let [helm, own] = times.map(|times| median(&times));
    let name = &subject.name;
    let peak = |index: usize| peaks.get(index).copied();
    Ok(vec![
        Row::new(name, "whole process, ms", helm.context("no rounds")?, own, subject.wanted),
        Row::new(name, "peak memory, MiB", peak(0).context("no peak")?, peak(1), MEMORY),
    ])
}

/// Times of a render in a process that has rendered the chart before.
fn engines(renders: &Path, subject: &Subject, times: u16) -> anyhow::Result<Row> {
    let output = Command::new(renders).arg(&subject.path).arg(times.to_string()).output();
    let output = output.context("Helm's engine cannot be started")?;
    if !output.status.success() {
        bail!("Helm's engine fails: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    let seconds: Vec<f64> = serde_json::from_slice(&output.stdout).context("Helm's engine")?;
    let helm = median(&seconds).context("no renders")? * 1000.0;
    let own = in_process::seconds(&subject.path, times)?;
    let own = own.and_then(|seconds| median(&seconds)).map(|seconds| seconds * 1000.0);
    Ok(Row::new(&subject.name, "one render in a process, ms", helm, own, ENGINE))
}

/// The figure in the middle, the mean of two when there is none.
fn median(all: &[f64]) -> Option<f64> {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) =
        (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn print(rows: &[Row], output: Output, load: &str) -> anyhow::Result<()> {
    if output == Output::Json {
        let all = serde_json::json!({"load": load, "figures": rows});
        println!("{}", serde_json::to_string(&all).context("the figures are no JSON")?);
        return Ok(());
    }
    let width = rows.iter().map(|row| row.chart.chars().count()).max().unwrap_or_default();
    let heading = format!(
        "{:<width$} {:<27} {:>10} {:>10} {:>8}",
        "chart", "medians", "helm", "windlass", "ratio"
    );
    println!("\n{}", bold(&heading));
    rows.iter().for_each(|row| println!("{}", row.line(width)));
    if rows.iter().any(|row| row.windlass.is_none()) {
        println!("{}", dim("–: not measured, there is no such engine in this program yet"));
    }
    samples::print_machine(load);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_how_many_times_less_and_has_to_be_reached() {
        let row = |own| Row::new("web", "whole process, ms", 48.0, own, 8.0);
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
