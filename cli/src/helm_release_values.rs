//! `windlass values`: prints the Helm values of a HelmRelease, and the source that sets each value.
//!
//! Elsewhere: reading the values and their sources (`windlass_answers::helm_release_values`).

use std::path::PathBuf;

use anyhow::ensure;
use clap::{Args as ClapArgs, ValueEnum};
use windlass_answers::helm_release_values::{HelmReleaseValues, HelmValueOrigin, read};

use super::command_scope::ClusterScope;
use super::complete;
use super::kind_argument;
use super::output::{ReportFormat, report};
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{PagedTable, TableCell, TerminalScreen, cut};

/// The flags of `windlass values`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct ValuesArgs {
    /// The HelmRelease
    #[arg(required = true, num_args = 1..=2, value_name = "[hr/]NAME", add = complete::objects_of("hr"))]
    what: Vec<String>,
    #[command(flatten)]
    place: ClusterScope,
    /// Folder or archive of the chart; also show the chart's default values
    #[arg(long, value_name = "PATH")]
    chart: Option<PathBuf>,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ValuesFormat::Table, value_name = "FORMAT")]
    output: ValuesFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ValuesFormat {
    /// A line for each value: where it comes from, and what it overrides
    Table,
    /// The same as JSON
    Json,
    /// The values as a values file
    Yaml,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass values web -n apps                   which source sets which value
  windlass values hr/web --chart ./charts/web   with the chart's own values
  windlass values web -o yaml > values.yaml     the values as a file

Values of Secrets are printed as ****.

Exit status: 0; 2 if the values cannot be put together; 3 if the cluster cannot be reached.";

/// Prints values.
///
/// # Errors
/// The values cannot be read or merged.
pub(super) fn run(args: &ValuesArgs) -> anyhow::Result<ExitCode> {
    let HelmReleaseValues { origins: shown, masked } = args.place.run(async |site| {
        let words = match args.what.as_slice() {
            [name] if !name.contains('/') => vec!["helmrelease".to_owned(), name.clone()],
            words => words.to_vec(),
        };
        let target = kind_argument::one(&site.cluster, &words).await?;
        ensure!(target.resource.gvk.kind == "HelmRelease", "only a HelmRelease has values");
        let object = kind_argument::read(&site, &target).await?;
        read(&site, object, args.chart.as_deref()).await
    })?;
    match args.output {
        ValuesFormat::Json => {
            report(&shown, ReportFormat::Json)?;
        }
        ValuesFormat::Yaml => print(&goyaml::emit_with_escapes(&masked)?)?,
        ValuesFormat::Table => {
            print(&table(&shown, TerminalScreen::of_stdout()))?;
            if shown.is_empty() {
                say(ProgressGlyph::Action, "neither spec.values nor spec.valuesFrom sets a value");
            }
        }
    }
    Ok(ExitCode::Success)
}

fn table(shown: &[HelmValueOrigin], on: TerminalScreen) -> String {
    let rows = shown.iter().map(|it| {
        let value = match &it.value {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let value = cut(&value, 60);
        let [path, value, source, overrode] =
            [it.path.as_str(), &value, &it.source, &it.overrode.join(", ")].map(TableCell::new);
        vec![path, value, source.vital(), overrode]
    });
    let mut table = PagedTable::new(&["VALUE", "IS", "SET BY", "OVERRIDES"], on);
    table.page(&rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_fits_terminals_of_both_widths() {
        let leaf = |path: &str, value: serde_json::Value, source: &str, overrode: &[&str]| {
            HelmValueOrigin {
                path: path.to_owned(),
                value,
                source: source.to_owned(),
                overrode: overrode.iter().map(|it| (*it).to_owned()).collect(),
            }
        };
        let shown = [
            leaf(
                "image.tag",
                json!("1.4.0"),
                "spec.values",
                &["chart shop", "ConfigMap/defaults:values.yaml"],
            ),
            leaf("database.password", json!("****"), "Secret/shop:values.yaml", &[]),
            leaf("ingress.hosts[0]", json!("a very long name ".repeat(6)), "chart shop", &[]),
        ];
        let text = crate::golden_file_comparison::at_both_widths(|on| table(&shown, on));
        expect_test::expect_file!["goldens/values.txt"].assert_eq(&text);
    }
}
