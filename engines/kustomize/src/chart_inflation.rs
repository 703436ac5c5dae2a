//! `helmCharts`: builds the request to render a chart, and reads the objects from the result.
//!
//! Elsewhere: rendering ([`crate::BuildFiles::inflate`]).

use std::collections::BTreeMap;

use goyaml::v3::{YamlNode, YamlNodeKind};
use serde_json::Value;

use crate::budget::BuildBudget;
use crate::build_files::ChartInflation;
use crate::error::{BuildErrorCause, Error, ErrorContext as _, Result};
use crate::field_edit;
use crate::kustomization::{HelmChart, HelmGlobals};
use crate::loader::KustomizationLoader;
use crate::manifest;
use crate::openapi_schema::OpenApiSchemas;
use crate::resource::BuildResource;
use crate::resources::BuildResources;
use crate::strategic_merge;
use crate::yaml_output;

/// The settings for rendering charts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HelmOptions {
    /// Whether charts may be rendered.
    pub is_enabled: bool,
    /// The value of `.Capabilities.KubeVersion` for all charts; empty for none.
    pub kube_version: String,
    /// `.Capabilities.APIVersions` of all charts.
    pub api_versions: Vec<String>,
    /// Helm's `--debug`.
    pub debug: bool,
}

/// A chart, ready to be rendered.
#[derive(Debug, Clone)]
pub(crate) struct InflatableChart(ChartInflation);

impl InflatableChart {
    /// Completes the settings of a chart with default values.
    ///
    /// # Errors
    /// Charts are not enabled, the chart has no name, or a setting has an unknown value.
    pub(crate) fn new(
        loader: &KustomizationLoader<'_>,
        globals: &HelmGlobals,
        mut chart: HelmChart,
        options: &HelmOptions,
    ) -> Result<Self> {
        if !options.is_enabled {
            return Err(Error::new("must specify --enable-helm"));
        }
        if chart.kube_version.is_empty() {
            chart.kube_version.clone_from(&options.kube_version);
        }
        // Differs(kustomize): it then gives versions of one chart to others, as all share the flag's list.
        if chart.api_versions.is_empty() {
            chart.api_versions.clone_from(&options.api_versions);
        }
        chart.debug |= options.debug;
        if chart.name.is_empty() {
            return Err(Error::new("chart name cannot be empty"));
        }
        let home = if globals.chart_home.is_empty() { "charts" } else { &globals.chart_home };
        let mut home = match home.starts_with('/') {
            true => home.to_owned(),
            false => golang::path::join(loader.root(), home),
        };
        if !chart.version.is_empty() && !chart.repo.is_empty() {
            home = golang::path::join(&home, &format!("{}-{}", chart.name, chart.version));
        }
        for file in &mut chart.additional_values_files {
            loader.load(file).within(|| "could not load additionalValuesFile")?;
            *file = golang::path::join(loader.root(), file);
        }
        match chart.values_merge.as_str() {
            "" => "override".clone_into(&mut chart.values_merge),
            "merge" | "override" | "replace" => {}
            _ => return Err(Error::new("valuesMerge must be one of [merge override replace]")),
        }
        Ok(Self(ChartInflation {
            chart,
            home,
            config_home: globals.config_home.clone(),
            values: Vec::new(),
        }))
    }

    /// The objects of the chart.
    ///
    /// # Errors
    /// It cannot be rendered, or its documents are not objects.
    pub(crate) fn render(
        &self,
        loader: &KustomizationLoader<'_>,
        schema: &OpenApiSchemas,
    ) -> Result<Vec<BuildResource>> {
        let mut inflation = self.0.clone();
        loader.files().prepare(&inflation)?;
        inflation.values = self.values(loader, schema)?;
        let budget = loader.budget();
        budget.steps(STEPS_PER_CHART)?;
        let manifests = loader.files().inflate(&inflation)?;
        let read = manifest::parse(&manifests, budget)
            .and_then(|list| BuildResources::of(list, schema, budget));
        // Parity(kustomize): after an error the text is read once more in another way, whose error is reported.
        let read = read.map_err(|error| match error.cause() {
            BuildErrorCause::MalformedYaml => error.within("error reading helm output"),
            _ => error.within("could not parse rnode slice into resource map"),
        });
        let mut resources = read?.into_list();
        for resource in &mut resources {
            resource.is_from_helm = true;
            resource.note();
        }
        Ok(resources)
    }

    /// The file of values that the chart is rendered with.
    fn values(&self, loader: &KustomizationLoader<'_>, schema: &OpenApiSchemas) -> Result<Vec<u8>> {
        let ChartInflation { chart, home, .. } = &self.0;
        let file = if chart.values_file.is_empty() {
            golang::path::join(&golang::path::join(home, &chart.name), "values.yaml")
        } else {
            chart.values_file.clone()
        };
        let inline = match &chart.values_inline {
            Value::Object(values) if !values.is_empty() => &chart.values_inline,
            _ => return Ok(loader.load(&file)?.to_vec()),
        };
        if chart.values_merge == "replace" {
            return text(inline);
        }
        let budget = loader.budget();
        let mut of_file = parse(&loader.load(&file)?, budget)
            .within(|| "could not parse values file into rnode")?;
        let is_override = chart.values_merge != "merge";
        if field_edit::is_null(&of_file) {
            // Parity(kustomize): with `merge`, a values file that is null replaces the inline values.
            return if is_override { text(inline) } else { Ok(b"{}\n".to_vec()) };
        }
        let mut inline = manifest::from_value(inline, budget)?;
        let merging = || "could not merge values";
        drop_aliases(&mut of_file, &mut inline, is_override).within(merging)?;
        let of_file = manifest::without_anchors(of_file, budget).within(merging)?;
        let (patch, mut values) = if is_override { (inline, of_file) } else { (of_file, inline) };
        strategic_merge::strategic(&patch, &mut values, schema, budget)
            .map_err(|error| Error::new(error.to_string()).within(merging()))?;
        text(&yaml_output::value(&values).within(|| "could not parse merged values into map")?)
    }
}

/// The steps that a chart costs in this budget. Rendering itself has a separate budget.
const STEPS_PER_CHART: usize = 10_000_000;

/// Parses a file of Helm values. The error says that the file is malformed or empty.
fn parse(text: &[u8], budget: &BuildBudget) -> Result<YamlNode> {
    let malformed = |error: goyaml::Error| Error::new(error.to_string());
    let root = manifest::as_written(text, budget, malformed)?.ok_or_else(|| Error::new("EOF"))?;
    Ok(root)
}

/// Parity(kustomize): where values are merged, an alias in the file takes its entry with it, and with `override` that
/// of the kustomization, too; with `merge` there must not be one. In lists, which are taken as a whole, aliases stay.
fn drop_aliases(of_file: &mut YamlNode, inline: &mut YamlNode, is_override: bool) -> Result<()> {
    let mut work = vec![(of_file, Some(inline))];
    while let Some((of_file, mut inline)) = work.pop() {
        let aliases: Vec<(String, YamlNode)> = of_file
            .content
            .chunks_exact(2)
            .filter(|entry| entry[1].kind == YamlNodeKind::Alias)
            .map(|entry| (entry[0].value.clone(), entry[1].clone()))
            .collect();
        for (key, alias) in aliases {
            field_edit::clear(of_file, &key)?;
            let Some(inline) = inline.as_deref_mut() else { continue };
            let given = field_edit::at(inline, &[&key]).filter(|given| !field_edit::is_null(given));
            if let Some(given) = given.filter(|_| !is_override) {
                field_edit::check_kind(&alias, given.kind)?;
            }
            field_edit::clear(inline, &key)?;
        }
        let entries = inline.map(|inline| inline.content.chunks_exact_mut(2));
        let mut given: BTreeMap<String, &mut YamlNode> = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| match entry {
                [key, value] => Some((key.value.clone(), value)),
                _ => None,
            })
            .filter(|(_, value)| value.kind == YamlNodeKind::Mapping)
            .collect();
        for entry in of_file.content.chunks_exact_mut(2) {
            let [key, value] = entry else { continue };
            if value.kind == YamlNodeKind::Mapping {
                work.push((value, given.remove(&key.value)));
            }
        }
    }
    Ok(())
}

fn text(values: &Value) -> Result<Vec<u8>> {
    let text = goyaml::emit::emit(values).map_err(|error| Error::new(error.to_string()))?;
    Ok(text.into_bytes())
}
