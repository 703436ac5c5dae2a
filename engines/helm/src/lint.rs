//! The messages of `helm lint` about a chart: its metadata, values, templates, dependencies and CRDs.
//!
//! Here: the steps and their order. Below: `Chart.yaml` (`lint/metadata.rs`), rendered manifests (`lint/manifests.rs`),
//! names of objects (`lint/object_names.rs`), and deprecated APIs of Kubernetes (`lint/deprecated.rs`).

mod deprecated;
mod manifests;
mod metadata;
mod object_names;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use golang::GoRuntimeValue;
use golang::value::GoMap;
use gotemplate::{TemplateBudget, TemplateLimits};

use crate::chart::load::{self, ChartLoadResult};
use crate::chart::{Chart, ChartDecodeError, ChartFile, ChartLoadError, crds, shape_of};
use crate::render::{ChartTemplates, ReleaseToRender, RenderInput, RenderMode};
use crate::render_environment::RenderEnvironment;
use crate::schema;
use crate::template::Error;
use crate::values::{coalesce_until, empty, process_dependencies_until};
use crate::warning::HelmWarning;

/// The severity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LintSeverity {
    /// A suggestion.
    Info,
    /// The chart works, but differs from conventions.
    Warning,
    /// The chart fails.
    Error,
}

/// A message about a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintMessage {
    /// The severity of the message.
    pub severity: LintSeverity,
    /// The path of the file or directory in the chart.
    pub path: String,
    /// The text of the message, which may quote values.
    pub text: String,
}

/// Writes the message as Helm prints it.
impl fmt::Display for LintMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            LintSeverity::Info => "INFO",
            LintSeverity::Warning => "WARNING",
            LintSeverity::Error => "ERROR",
        };
        write!(f, "[{severity}] {}: {}", self.path, self.text)
    }
}

/// A chart to lint.
#[derive(Debug)]
pub struct LintSubject<'s> {
    /// The absolute path of the chart's directory. It only appears in messages.
    pub place: &'s str,
    /// All files of the directory, as for [`load::folder`].
    pub files: Vec<ChartFile>,
    /// The values of the user.
    pub values: &'s GoMap,
    /// The namespace of the release.
    pub namespace: &'s str,
    /// Whether to skip the validation of values against the chart's schema.
    pub skip_schema: bool,
}

/// Why a directory cannot be linted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unable to check Chart.yaml file in chart: stat {0}/Chart.yaml: no such file or directory")]
pub struct NotAChartError(String);

/// Lints a chart. Returns the messages of `helm lint` in their order, and adds the warnings that Helm would log to
/// `warnings`.
///
/// Differs(helm 4): templates see `.Release.IsInstall` as true, while in Helm neither install nor upgrade is true. A
/// directory without files does not exist here.
///
/// # Errors
/// There is no `Chart.yaml`.
///
/// # Assumes
/// The thread has a stack of [`crate::render::REQUIRED_STACK_BYTES`].
pub fn lint(
    subject: &LintSubject<'_>,
    env: &RenderEnvironment,
    warnings: &mut Vec<HelmWarning>,
) -> Result<Vec<LintMessage>, NotAChartError> {
    let described =
        subject.file("Chart.yaml").ok_or_else(|| NotAChartError(subject.place.to_owned()))?;
    let mut found = LintMessages::default();
    metadata::check(&described.data, &mut found);
    // Parity(helm 4): the version of the API was checked above, and is not here.
    let loaded =
        load::any_version(subject.files.clone()).map(|ChartLoadResult { chart, .. }| chart);
    let mut budget = TemplateBudget::with_stop(TemplateLimits::default(), env.stop.clone());
    subject.check_values(env, &mut budget, warnings, &mut found);
    subject.check_templates(&loaded, env, &mut budget, warnings, &mut found);
    subject.check_dependencies(&loaded, &mut found);
    subject.check_crds(&loaded, &mut found);
    Ok(found.0)
}

/// The first document of a values file.
fn one_table(yaml: &[u8]) -> Result<GoMap, ChartDecodeError> {
    match sprig::read_yaml(yaml)? {
        GoRuntimeValue::Map(table) => Ok(table),
        GoRuntimeValue::Nil => Ok(empty()),
        other => {
            let place = "value of type map[string]interface {}".to_owned();
            Err(ChartDecodeError::Shape { found: shape_of(&other), place })
        }
    }
}

/// The messages so far.
#[derive(Debug, Default)]
struct LintMessages(Vec<LintMessage>);

impl LintMessages {
    fn say(&mut self, severity: LintSeverity, path: &str, text: impl Into<String>) {
        self.0.push(LintMessage { severity, path: path.to_owned(), text: text.into() });
    }

    fn error(&mut self, path: &str, text: impl Into<String>) {
        self.say(LintSeverity::Error, path, text);
    }

    fn warn(&mut self, path: &str, text: impl Into<String>) {
        self.say(LintSeverity::Warning, path, text);
    }
}

/// A chart with its dependencies, and its rendered files.
type LintRenderOutput = (Chart, BTreeMap<String, Vec<u8>>);

/// A chart, or why it cannot be loaded.
type LintChartLoad = Result<Chart, ChartLoadError>;

impl LintSubject<'_> {
    fn file(&self, name: &str) -> Option<&ChartFile> {
        self.files.iter().find(|file| file.name == name)
    }

    fn has_directory(&self, name: &str) -> bool {
        self.files
            .iter()
            .any(|file| file.name.strip_prefix(name).is_some_and(|it| it.starts_with('/')))
    }

    fn check_values(
        &self,
        env: &RenderEnvironment,
        budget: &mut TemplateBudget,
        warnings: &mut Vec<HelmWarning>,
        found: &mut LintMessages,
    ) {
        const FILE: &str = "values.yaml";
        let Some(file) = self.file(FILE) else {
            return found.say(LintSeverity::Info, FILE, "file does not exist");
        };
        let values = match one_table(&file.data) {
            Ok(values) => values,
            Err(error) => return found.error(FILE, format!("unable to parse YAML: {error}")),
        };
        let schema = self.file("values.schema.json").filter(|schema| !schema.data.is_empty());
        let Some(schema) = schema.filter(|_| !self.skip_schema) else { return };
        // Parity(helm 4): only the values of the chart itself are put together, and without its name.
        let alone = Chart { values, ..Chart::default() };
        let Ok(all) = coalesce_until(&alone, self.values, env.stop.clone()) else { return };
        let checked = schema::check_one(&schema.data, &all.values, budget.meter(), warnings);
        if let Err(problem) = checked {
            found.error(FILE, problem);
        }
    }

    fn check_templates(
        &self,
        loaded: &LintChartLoad,
        env: &RenderEnvironment,
        budget: &mut TemplateBudget,
        warnings: &mut Vec<HelmWarning>,
        found: &mut LintMessages,
    ) {
        const PATH: &str = "templates/";
        if self.file("templates").is_some() {
            return found.error(PATH, "not a directory");
        }
        if !self.has_directory("templates") {
            return found.warn(PATH, "directory does not exist");
        }
        let chart = match loaded {
            Ok(chart) => chart.clone(),
            Err(error) => return found.error(PATH, error.to_string()),
        };
        match self.rendered(chart, env, budget, warnings) {
            Ok(Some((chart, files))) => manifests::check(&chart, &files, env, found),
            // Parity(helm 4): errors of dependencies are not reported.
            Ok(None) => {}
            Err(error) => found.error(PATH, error.to_string()),
        }
    }

    /// Renders the chart; `None` if its values cannot be merged.
    fn rendered(
        &self,
        mut chart: Chart,
        env: &RenderEnvironment,
        budget: &mut TemplateBudget,
        warnings: &mut Vec<HelmWarning>,
    ) -> Result<Option<LintRenderOutput>, Error> {
        let Ok(said) = process_dependencies_until(&mut chart, self.values, env.stop.clone()) else {
            return Ok(None);
        };
        warnings.extend(said);
        let Ok(all) = coalesce_until(&chart, self.values, env.stop.clone()) else {
            return Ok(None);
        };
        warnings.extend(all.warnings);
        if !self.skip_schema {
            let checked = schema::validate_within(&chart, &all.values, budget.meter(), warnings);
            checked.map_err(Error::Schema)?;
        }
        let release = ReleaseToRender {
            name: "test-release".to_owned(),
            namespace: self.namespace.to_owned(),
            revision: 0,
            is_upgrade: false,
        };
        let mode = RenderMode { lint: true, ..RenderMode::default() };
        let templates = ChartTemplates::parse(&chart)?;
        let input = RenderInput { chart: &chart, values: &all.values, release: &release };
        let files = templates.render_within(input, env, mode, budget, warnings)?;
        Ok(Some((chart, files)))
    }

    fn check_dependencies(&self, loaded: &LintChartLoad, found: &mut LintMessages) {
        let chart = match loaded {
            Ok(chart) => chart,
            Err(error) => return found.error("", format!("unable to load chart\n\t{error}")),
        };
        let listed: Vec<_> = chart.metadata.dependencies.iter().flatten().collect();
        let present: Vec<&str> =
            chart.charts.iter().map(|chart| chart.metadata.name.as_str()).collect();
        let unlisted: Vec<&str> = present
            .iter()
            .filter(|name| !listed.iter().any(|it| it.name == **name))
            .copied()
            .collect();
        if !unlisted.is_empty() {
            let text =
                format!("chart metadata is missing these dependencies: {}", unlisted.join(","));
            found.error(self.place, text);
        }
        let key = |index: usize| {
            listed.get(index).map(|it| if it.alias.is_empty() { &it.name } else { &it.alias })
        };
        let twice: Vec<&str> = (0..listed.len())
            .filter(|index| (0..*index).any(|earlier| key(earlier) == key(*index)))
            .filter_map(|index| key(index).map(String::as_str))
            .collect();
        if !twice.is_empty() {
            let text = format!("multiple dependencies with name or alias: {}", twice.join(","));
            found.error(self.place, text);
        }
        let missing: Vec<&str> = listed
            .iter()
            .map(|it| it.name.as_str())
            .filter(|name| !present.contains(name))
            .collect();
        if !missing.is_empty() {
            let text =
                format!("chart directory is missing these dependencies: {}", missing.join(","));
            found.warn(self.place, text);
        }
    }

    fn check_crds(&self, loaded: &LintChartLoad, found: &mut LintMessages) {
        const PATH: &str = "crds/";
        if self.file("crds").is_some() {
            return found.error(PATH, "not a directory");
        }
        if !self.has_directory("crds") {
            return;
        }
        match loaded {
            Ok(chart) => {
                for crd in crds(chart) {
                    if !manifests::check_crd(&crd.file, found) {
                        return;
                    }
                }
            }
            Err(error) => found.error(PATH, error.to_string()),
        }
    }
}
