//! Measures how fast windlass renders charts, and in how much memory. The original Helm does the same for comparison.
//!
//! It measures whole processes, and repeated renders in one process that keeps its state between renders. This module
//! has the charts. `process_comparison` runs the processes, and has the table and the verdict. `in_process` runs
//! windlass's engine in this process.

mod in_process;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use clap::Args;
use testbed::upstream_programs::{self, UpstreamProgram};

use super::process_comparison::{self, BenchChart, ComparedPrograms, ComparisonRow, median};
use super::raw_client_comparison::FigureOutputFormat;
use super::time_samples;
use conformance::corpus::{self, CorpusCase, CorpusKind};
use e2e::cluster_with_operator::{BuildProfile, make, program};
use testbed::progress::step;

/// The promised limits: how many times faster than Helm a process is with a small chart, a process with other charts,
/// and the engine alone.
const MIN_SMALL_CHART_SPEEDUP: f64 = 8.0;
const MIN_LARGE_CHART_SPEEDUP: f64 = 10.0;
const MIN_ENGINE_SPEEDUP: f64 = 5.0;

/// One of the project's own charts, which stands for small ones.
const SMALL_CHART: &str = "web";

/// What is measured how often.
#[derive(Debug, Args)]
pub(crate) struct TemplateBenchOptions {
    /// Charts: paths of folders or archives; a small and a large one of our own by default
    charts: Vec<PathBuf>,
    /// How often each process is run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// How often each engine renders
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    renders: u16,
    /// How the figures are written
    #[arg(long, value_enum, default_value_t = FigureOutputFormat::Table)]
    output: FigureOutputFormat,
}

/// Measures, and prints the table.
///
/// # Errors
/// When a chart cannot be rendered, or windlass is not as much faster or smaller as promised.
pub(super) fn run(options: &TemplateBenchOptions) -> anyhow::Result<()> {
    let helm = step(UpstreamProgram::Helm.version(), || UpstreamProgram::Helm.ensure())?;
    let renders = step("Helm's engine, many times", upstream_programs::renders)?;
    step("windlass itself", || make(BuildProfile::Release))?;
    let own = program(BuildProfile::Release)?;
    let load = time_samples::load();
    let pair = ComparedPrograms::alike(&helm, &own, &["template", "rel"]);
    let mut rows = Vec::new();
    for subject in subjects(options)? {
        step(&subject.name, || {
            rows.extend(process_comparison::processes(&pair, &subject, options.rounds)?);
            rows.push(engines(&renders, &subject, options.renders)?);
            Ok(())
        })?;
    }
    process_comparison::conclude(
        "charts",
        UpstreamProgram::Helm.name(),
        &rows,
        options.output,
        &load,
    )
}

fn subjects(options: &TemplateBenchOptions) -> anyhow::Result<Vec<BenchChart>> {
    if options.charts.is_empty() {
        let small = CorpusCase::load(CorpusKind::Charts, &[SMALL_CHART.to_owned()])?;
        let small = small.first().context("the small chart is not there")?;
        let large = corpus::large_chart();
        let objects = "200 templates, 600 objects";
        return Ok(vec![
            BenchChart::ours(SMALL_CHART, small.files()?, "chart", MIN_SMALL_CHART_SPEEDUP)?,
            BenchChart::ours(objects, large, "chart", MIN_LARGE_CHART_SPEEDUP)?,
        ]);
    }
    options.charts.iter().map(|path| BenchChart::given(path, MIN_LARGE_CHART_SPEEDUP)).collect()
}

/// Compares the time of a render in a process that has rendered the chart before.
fn engines(renders: &Path, subject: &BenchChart, times: u16) -> anyhow::Result<ComparisonRow> {
    let output = Command::new(renders).arg(&subject.path).arg(times.to_string()).output();
    let output = output.context("Helm's engine cannot be started")?;
    if !output.status.success() {
        bail!("Helm's engine fails: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    let seconds: Vec<f64> = serde_json::from_slice(&output.stdout).context("Helm's engine")?;
    let helm = median(&seconds).context("no renders")? * 1000.0;
    let own = in_process::seconds(&subject.path, times)?;
    let own = own.and_then(|seconds| median(&seconds)).map(|seconds| seconds * 1000.0);
    Ok(ComparisonRow::new(
        &subject.name,
        "one render in a process, ms",
        helm,
        own,
        MIN_ENGINE_SPEEDUP,
    ))
}
