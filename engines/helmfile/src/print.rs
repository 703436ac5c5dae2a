//! The output of the commands `build`, `list`, `show-dag` and `print-env`.

use std::sync::Arc;

use golang::GoRuntimeValue as GoValue;
use serde_json::Value;

use crate::chart_reference_resolution::ChartPreparationReport;
use crate::error::{Error, PartialOutput, Result};
use crate::go_struct_field::HelmfileField;
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::load::Helmfile;
use crate::named_environment::NamedEnvironment;
use crate::plan::HelmfileProcessingPlan;
use crate::release_graph::{NeedsPolicy, groups};
use crate::release_selector::is_enabled;
use crate::secret_references;
use crate::spec::Release;
use crate::state_values_merge::ValuesMap;
use crate::template::TemplateStringRenderer;
use crate::working_directory::parent;
use crate::yaml::{self, YamlOutputValue};

/// The most bytes that a command prints.
const MAX_OUTPUT_BYTES: usize = 256 << 20;

/// A format in which `helmfile print-env` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrintEnvFormat {
    /// Documents of YAML.
    Yaml,
    /// One list of JSON.
    Json,
}

/// A format in which `helmfile list` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseListFormat {
    /// A table with a head.
    Table,
    /// One list of JSON, on a line.
    Json,
}

/// The output of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrintOutput {
    /// Standard output.
    pub text: String,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Whether any release was found. Without a release, a command fails after printing its output.
    pub has_releases: bool,
}

impl PrintOutput {
    fn take(&mut self, prepared: ChartPreparationReport) {
        // Parity(chartify): a line for each kustomization, which kustomize would fill if it did not write to a file.
        self.text.extend(std::iter::repeat_n('\n', prepared.kustomizations));
        self.warnings.extend(prepared.warnings);
    }
}

/// A release in the output of `list`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ListedRelease {
    name: String,
    namespace: String,
    enabled: bool,
    installed: bool,
    labels: String,
    chart: String,
    version: String,
}

impl HelmfileProcessingPlan {
    /// The output of `build`: every helmfile, fully rendered, merged and with inherited settings.
    ///
    /// `embeds_values` replaces names of values files by their content. `temporary` is the directory in which helmfile would
    /// create charts.
    ///
    /// # Errors
    /// A release, or a file that it names, is not valid.
    pub fn build(self, embeds_values: bool, temporary: &str) -> Result<PrintOutput> {
        self.build_until_error(embeds_values, temporary).whole()
    }

    /// Like [`HelmfileProcessingPlan::build`], but keeps the output for the helmfiles before one that fails.
    pub fn build_until_error(
        self,
        embeds_values: bool,
        temporary: &str,
    ) -> PartialOutput<PrintOutput> {
        self.print_each(|helmfile, helmfile_environment, printed| {
            helmfile.apply_lock()?;
            printed.take(helmfile.prepare_charts(helmfile_environment, temporary)?);
            if embeds_values {
                helmfile.embed_values(helmfile_environment)?;
            }
            let path = helmfile.full_path();
            let text = yaml::write(&helmfile.emit())?;
            printed.text.push_str(&format!("---\n#  Source: {path}\n\n{text}"));
            if printed.text.len() > MAX_OUTPUT_BYTES {
                return Err(format!("more than {MAX_OUTPUT_BYTES} bytes are printed").into());
            }
            Ok(())
        })
    }

    /// Does something with the selected releases of each helmfile, until that fails.
    fn print_each(
        self,
        mut print: impl FnMut(
            &mut Helmfile,
            &Arc<HelmfileHostEnvironment>,
            &mut PrintOutput,
        ) -> Result<()>,
    ) -> PartialOutput<PrintOutput> {
        let mut printed = PrintOutput::default();
        for mut helmfile in self.helmfiles {
            let done = helmfile.select(false).and_then(|()| {
                printed.has_releases |= !helmfile.spec.releases.is_empty();
                print(&mut helmfile, &self.helmfile_environment, &mut printed)
            });
            if let Err(error) = done {
                return PartialOutput {
                    made: printed,
                    error: Some(error.at(&helmfile.trail.to_string())),
                };
            }
        }
        PartialOutput { made: printed, error: None }
    }

    /// The output of `list`: releases sorted by namespace and name.
    ///
    /// # Errors
    /// A condition is malformed, or a lock file lacks a release.
    pub fn list(self, form: ReleaseListFormat) -> Result<PrintOutput> {
        let mut listed = Vec::new();
        let printed = self.print_each(|helmfile, helmfile_environment, printed| {
            for event in ["prepare", "cleanup"] {
                let hooks = &helmfile.spec.hooks;
                let said =
                    helmfile.skipped_hooks(helmfile_environment, hooks, event, &helmfile.path)?;
                printed.warnings.extend(said);
            }
            helmfile.apply_lock()?;
            for release in &helmfile.spec.releases {
                listed.push(listed_release(release, &helmfile.values)?);
            }
            Ok(())
        });
        let mut printed = printed.whole()?;
        listed.sort_by(|one, other| {
            (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
        });
        if printed.has_releases {
            printed.text = match form {
                ReleaseListFormat::Table => as_table(&listed),
                ReleaseListFormat::Json => as_json(&listed)?,
            };
        }
        Ok(printed)
    }

    /// The output of `show-dag`: the groups of releases in each helmfile. Needed releases come first.
    ///
    /// # Errors
    /// A needed release does not exist, or releases need each other in a cycle.
    pub fn show_dag(self) -> Result<PrintOutput> {
        self.show_dag_until_error().whole()
    }

    /// Like [`HelmfileProcessingPlan::show_dag`], but keeps the output for the helmfiles before one that fails.
    pub fn show_dag_until_error(self) -> PartialOutput<PrintOutput> {
        self.print_each(|helmfile, helmfile_environment, printed| {
            helmfile.apply_lock()?;
            // Differs(helmfile 1.8): what is wrong with charts does not hide the groups.
            if let Ok(prepared) = helmfile.prepare_charts(helmfile_environment, "") {
                printed.take(prepared);
            }
            printed.text.push_str(&helmfile.dag()?);
            Ok(())
        })
    }

    /// The output of `print-env`: the environment of each helmfile with its values.
    ///
    /// # Errors
    /// A value cannot be written.
    pub fn print_env(self, format: PrintEnvFormat) -> Result<String> {
        let mut strings = Vec::new();
        for helmfile in &self.helmfiles {
            let document = environment(&helmfile.environment, &helmfile.full_path());
            strings.push(match format {
                PrintEnvFormat::Yaml => yaml::write_plain(&document)?,
                PrintEnvFormat::Json => format!("  {}", json(&document)?),
            });
        }
        Ok(match format {
            PrintEnvFormat::Yaml => strings.join("---\n"),
            PrintEnvFormat::Json => format!("[\n{}\n]\n", strings.join(",\n")),
        })
    }
}

fn environment(environment: &NamedEnvironment, path: &str) -> Value {
    let mut document = ValuesMap::new();
    document.insert("filePath".to_owned(), path.into());
    document.insert("name".to_owned(), environment.name.as_str().into());
    document.insert("values".to_owned(), Value::Object(environment.merged()));
    if !environment.kube_context.is_empty() {
        document.insert("kubeContext".to_owned(), environment.kube_context.as_str().into());
    }
    Value::Object(document)
}

/// Go's `json.MarshalIndent` with two blanks before each line.
fn json(value: &Value) -> Result<String> {
    let form = golang::json::JsonLayout { escapes_html: true, indent: Some("  ") };
    let text = golang::json::encode(&GoValue::from_json(value), form, MAX_OUTPUT_BYTES)
        .map_err(|error| Error::from(error.to_string()))?;
    Ok(text.replace('\n', "\n  "))
}

fn listed_release(release: &Release, values: &ValuesMap) -> Result<ListedRelease> {
    let labels: Vec<String> =
        release.labels.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    Ok(ListedRelease {
        name: release.name.clone(),
        namespace: release.namespace.clone(),
        enabled: is_enabled(release, values)?,
        installed: release.is_desired(),
        labels: labels.join(",").trim_matches(',').to_owned(),
        chart: release.chart.clone(),
        version: release.version.clone(),
    })
}

fn as_json(listed: &[ListedRelease]) -> Result<String> {
    let form = golang::json::JsonLayout::default();
    let mut objects = Vec::new();
    for release in listed {
        let mut fields = Vec::new();
        for (key, value) in [
            ("name", Value::from(release.name.as_str())),
            ("namespace", release.namespace.as_str().into()),
            ("enabled", release.enabled.into()),
            ("installed", release.installed.into()),
            ("labels", release.labels.as_str().into()),
            ("chart", release.chart.as_str().into()),
            ("version", release.version.as_str().into()),
        ] {
            let text = golang::json::encode(&GoValue::from_json(&value), form, MAX_OUTPUT_BYTES)
                .map_err(|error| Error::from(error.to_string()))?;
            fields.push(format!("\"{key}\":{text}"));
        }
        objects.push(format!("{{{}}}", fields.join(",")));
    }
    Ok(format!("[{}]\n", objects.join(",")))
}

fn as_table(listed: &[ListedRelease]) -> String {
    let head = ["NAME", "NAMESPACE", "ENABLED", "INSTALLED", "LABELS", "CHART", "VERSION"];
    let mut rows = vec![head.map(str::to_owned)];
    for release in listed {
        rows.push([
            release.name.clone(),
            release.namespace.clone(),
            release.enabled.to_string(),
            release.installed.to_string(),
            release.labels.clone(),
            release.chart.clone(),
            release.version.clone(),
        ]);
    }
    table(&rows, "\t", 0)
}

/// Rows of cells, each as wide as the widest of its column and `space`, without blanks at the ends.
fn table<const COLUMN_COUNT: usize>(
    rows: &[[String; COLUMN_COUNT]],
    separator: &str,
    space: usize,
) -> String {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..COLUMN_COUNT).map(|column| width(column) + space).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join(separator).trim_end_matches([' ', '\t']));
        text.push('\n');
    }
    text
}

impl Helmfile {
    /// The whole helmfile, in the order in which helmfile writes it.
    pub(crate) fn emit(&self) -> YamlOutputValue {
        let mut fields = vec![("filepath", YamlOutputValue::Plain(self.path.as_str().into()))];
        if let YamlOutputValue::Fields(own) = self.spec.emit() {
            fields.extend(own);
        }
        fields.push(("renderedvalues", YamlOutputValue::Plain(Value::Object(self.values.clone()))));
        YamlOutputValue::Fields(fields)
    }

    fn dag(&self) -> Result<String> {
        let releases = &self.spec.releases;
        let mut enabled = Vec::new();
        for release in releases {
            self.is_selected(release)?;
            enabled.push(release.clone());
        }
        let mut rows = vec![["GROUP", "RELEASE", "DEPENDENCIES"].map(str::to_owned)];
        for (index, group) in groups(&enabled, &enabled, NeedsPolicy::Include)?.iter().enumerate() {
            for release in group {
                rows.push([(index + 1).to_string(), release.id(), release.needs.join(", ")]);
            }
        }
        Ok(table(&rows, "", 1))
    }

    /// Replaces names of values files by the content of the files.
    fn embed_values(&mut self, helmfile_environment: &Arc<HelmfileHostEnvironment>) -> Result<()> {
        let mut embedded = Vec::new();
        for release in &self.spec.releases {
            let values = self.embedded(helmfile_environment, release, &release.values)?;
            let secrets = self.embedded(helmfile_environment, release, &release.secrets)?;
            embedded.push((values, secrets));
        }
        for (release, (values, secrets)) in self.spec.releases.iter_mut().zip(embedded) {
            release.values = values;
            release.secrets = secrets;
        }
        Ok(())
    }

    fn embedded(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        entries: &[Value],
    ) -> Result<Vec<Value>> {
        let mut result = Vec::new();
        for entry in entries {
            let Value::String(path) = entry else {
                result.push(entry.clone());
                continue;
            };
            // Parity(helmfile 1.8): the handler of the helmfile has no effect here.
            let handler = release.missing_file_handler.as_deref();
            let path = format!("{}{path}", release.values_path_prefix);
            let Some(text) = self.values_file(helmfile_environment, release, handler, &path)?
            else {
                continue;
            };
            result.push(Value::Object(yaml::read_map(&text)?));
        }
        Ok(result)
    }

    /// Reads and renders a values file of a release; `None` if the file is missing and optional.
    pub(crate) fn values_file(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        handler: Option<&str>,
        path: &str,
    ) -> Result<Option<Vec<u8>>> {
        let files = self.storage().resolve(handler, "values", path)?;
        let file = match files.as_slice() {
            [] => return Ok(None),
            [file] => file,
            _ => {
                return Err("glob patterns in release values and secrets is not supported yet. please submit a \
                            feature request if necessary"
                    .into());
            }
        };
        let data = self.release_data(release, &self.values);
        let renderer =
            TemplateStringRenderer::new(helmfile_environment, &self.place, &parent(file), data);
        let text = renderer.file(file).map_err(|error| {
            Error::from(format!("failed to render values files \"{path}\": {error}"))
        })?;
        secret_references::expand_file(helmfile_environment, &self.place, text).map(Some)
    }
}
