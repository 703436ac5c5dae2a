//! Measures how fast windlass lists and renders helmfiles, and in how much memory. The original helmfile with Helm
//! does the same for comparison.
//!
//! This module has the helmfiles. `process_comparison` runs the processes, and has the table and the verdict.

use std::collections::BTreeMap;

use anyhow::Context as _;
use clap::Args;
use testbed::upstream_programs::UpstreamProgram;

use super::process_comparison::{self, BenchChart, ComparedPrograms, ProgramCommand};
use super::raw_client_comparison::FigureOutputFormat;
use super::time_samples;
use conformance::compare::helmfile::{HelmfileProgram, real};
use conformance::corpus::{CorpusCase, CorpusKind};
use e2e::cluster_with_operator::{BuildProfile, make, program};
use testbed::progress::step;

/// The promised limit: how many times faster than helmfile a process is.
const MIN_SPEEDUP_RATIO: f64 = 20.0;

/// How many releases the helmfiles have.
const RELEASE_COUNTS: [u16; 2] = [10, 200];

/// The chart that all releases use. It is one of the project's own charts.
const CHART: &str = "web";

/// The releases are in levels. Each level needs the previous one.
const HELMFILE: &str = r#"environments:
  default:
    values:
      - env.yaml
---
releases:
{{- range $index := until (int .Values.count) }}
  - name: app-{{ $index }}
    namespace: team-{{ mod $index 5 }}
    chart: ./chart
    labels:
      tier: {{ mod $index 3 | quote }}
    {{- if ge $index 5 }}
    needs:
      - team-{{ mod $index 5 }}/app-{{ sub $index 5 }}
    {{- end }}
    values:
      - values.yaml.gotmpl
      - replicaCount: {{ add 1 (mod $index 3) }}
{{- end }}
"#;

const VALUES: &str = r#"fullnameOverride: {{ .Release.Name }}
podLabels:
  region: {{ .Values.region }}
  namespace: {{ .Release.Namespace }}
"#;

/// What is measured how often.
#[derive(Debug, Args)]
pub(crate) struct HelmfileBenchOptions {
    /// How often each process is run
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// How the figures are written
    #[arg(long, value_enum, default_value_t = FigureOutputFormat::Table)]
    output: FigureOutputFormat,
}

/// Measures, and prints the table.
///
/// # Errors
/// When a helmfile cannot be rendered, or windlass is not as much faster or smaller as promised.
pub(super) fn run(options: &HelmfileBenchOptions) -> anyhow::Result<()> {
    let HelmfileProgram { path, tools } = real()?;
    step("windlass itself", || make(BuildProfile::Release))?;
    let own = program(BuildProfile::Release)?;
    let load = time_samples::load();
    let mut rows = Vec::new();
    for releases in RELEASE_COUNTS {
        for command in ["list", "template"] {
            let name = format!("{command}, {releases} releases");
            let subject = BenchChart::ours(
                &name,
                files(releases)?,
                "helmfile.yaml.gotmpl",
                MIN_SPEEDUP_RATIO,
            )?;
            let real = ProgramCommand { program: &path, arguments: &[command, "--file"] };
            step(&name, || {
                let own =
                    ProgramCommand { program: &own, arguments: &["helmfile", command, "--file"] };
                let pair = ComparedPrograms { real, own, tools: &tools };
                rows.extend(process_comparison::processes(&pair, &subject, options.rounds)?);
                Ok(())
            })?;
        }
    }
    process_comparison::conclude(
        "helmfiles",
        UpstreamProgram::Helmfile.name(),
        &rows,
        options.output,
        &load,
    )
}

/// The files of a helmfile with so many releases, and its chart.
fn files(releases: u16) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let charts = CorpusCase::load(CorpusKind::Charts, &[CHART.to_owned()])?;
    let mut files = charts.first().context("the chart is not there")?.files()?;
    files.insert("helmfile.yaml.gotmpl".to_owned(), HELMFILE.into());
    files.insert("values.yaml.gotmpl".to_owned(), VALUES.into());
    files.insert("env.yaml".to_owned(), format!("count: {releases}\nregion: north\n").into());
    Ok(files)
}
