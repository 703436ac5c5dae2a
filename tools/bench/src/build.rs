//! Measures how fast windlass builds overlays, and in how much memory. The original Kustomize does the same for
//! comparison.
//!
//! This module has the overlays. `process_comparison` runs the processes, and has the table and the verdict.

use std::path::PathBuf;

use clap::Args;
use testbed::upstream_programs::UpstreamProgram;

use super::process_comparison::{self, BenchChart, ComparedPrograms};
use super::raw_client_comparison::FigureOutputFormat;
use super::time_samples;
use conformance::corpus;
use e2e::cluster_with_operator::{BuildProfile, make, program};
use testbed::progress::step;

/// The promised limits: how many times faster than Kustomize a process is with two objects, and with many. With two
/// objects, a process takes nearly all of its time to start.
const MIN_SPEEDUP_SMALL: f64 = 4.0;
const MIN_SPEEDUP_LARGE: f64 = 10.0;

/// What is measured how often.
#[derive(Debug, Args)]
pub(crate) struct BuildBenchOptions {
    /// Overlays: paths of folders; small and large ones of our own by default
    overlays: Vec<PathBuf>,
    /// How often each process is run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// How the figures are written
    #[arg(long, value_enum, default_value_t = FigureOutputFormat::Table)]
    output: FigureOutputFormat,
}

/// Measures, and prints the table.
///
/// # Errors
/// When an overlay cannot be built, or windlass is not as much faster or smaller as promised.
pub(super) fn run(options: &BuildBenchOptions) -> anyhow::Result<()> {
    let real = step(UpstreamProgram::Kustomize.version(), || UpstreamProgram::Kustomize.ensure())?;
    step("windlass itself", || make(BuildProfile::Release))?;
    let own = program(BuildProfile::Release)?;
    let load = time_samples::load();
    let pair = ComparedPrograms::alike(&real, &own, &["build"]);
    let mut rows = Vec::new();
    for subject in subjects(options)? {
        step(&subject.name, || {
            rows.extend(process_comparison::processes(&pair, &subject, options.rounds)?);
            Ok(())
        })?;
    }
    process_comparison::conclude(
        "overlays",
        UpstreamProgram::Kustomize.name(),
        &rows,
        options.output,
        &load,
    )
}

fn subjects(options: &BuildBenchOptions) -> anyhow::Result<Vec<BenchChart>> {
    if !options.overlays.is_empty() {
        return options
            .overlays
            .iter()
            .map(|path| BenchChart::given(path, MIN_SPEEDUP_LARGE))
            .collect();
    }
    let ours = |name, objects, is_plain, wanted| {
        BenchChart::ours(name, corpus::overlay(objects, is_plain), "overlay", wanted)
    };
    Ok(vec![
        ours("2 objects", 2, false, MIN_SPEEDUP_SMALL)?,
        ours("200 objects, only listed", 200, true, MIN_SPEEDUP_LARGE)?,
        ours("200 objects", 200, false, MIN_SPEEDUP_LARGE)?,
        ours("1000 objects", 1000, false, MIN_SPEEDUP_LARGE)?,
    ])
}
