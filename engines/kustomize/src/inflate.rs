//! `helmCharts`: what is asked of Helm, and what becomes of its answer.
//!
//! Elsewhere: rendering ([`crate::Files::inflate`]).

use goyaml::v3::Node;
use serde_json::Value;

use crate::error::{Error, Result, Within as _};
use crate::files::Inflation;
use crate::kustomization::{HelmChart, HelmGlobals};
use crate::loader::Loader;
use crate::manifest;
use crate::merge;
use crate::output;
use crate::path_text;
use crate::resource::Resource;
use crate::schema::Schema;

/// How charts are rendered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HelmOptions {
    /// Whether they are at all.
    pub is_enabled: bool,
    /// `.Capabilities.KubeVersion` of all charts; empty for none.
    pub kube_version: String,
    /// `.Capabilities.APIVersions` of all charts.
    pub api_versions: Vec<String>,
    /// Helm's `--debug`.
    pub debug: bool,
}

/// A chart, ready to be rendered.
#[derive(Debug, Clone)]
pub(crate) struct Chart(Inflation);

impl Chart {
    /// Fills in what a chart leaves open.
    ///
    /// # Errors
    /// Charts are not enabled, the chart has no name, or it asks for something unknown.
    pub(crate) fn new(
        loader: &Loader<'_>,
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
            false => path_text::join(loader.root(), home),
        };
        if !chart.version.is_empty() && !chart.repo.is_empty() {
            home = path_text::join(&home, &format!("{}-{}", chart.name, chart.version));
        }
        for file in &mut chart.additional_values_files {
            loader.load(file).within(|| "could not load additionalValuesFile")?;
            *file = path_text::join(loader.root(), file);
        }
        match chart.values_merge.as_str() {
            "" => "override".clone_into(&mut chart.values_merge),
            "merge" | "override" | "replace" => {}
            _ => return Err(Error::new("valuesMerge must be one of [merge override replace]")),
        }
        Ok(Self(Inflation {
            chart,
            home,
            config_home: globals.config_home.clone(),
            values: Vec::new(),
        }))
    }

    /// The objects of the chart.
    ///
    /// # Errors
    /// It cannot be rendered, or what it gives are no objects.
    pub(crate) fn render(&self, loader: &Loader<'_>, schema: &Schema) -> Result<Vec<Resource>> {
        let mut inflation = self.0.clone();
        loader.files().prepare(&inflation)?;
        inflation.values = self.values(loader, schema)?;
        let manifests = loader.files().inflate(&inflation)?;
        let mut resources =
            manifest::parse(&manifests).within(|| "could not parse bytes into resource map")?;
        for resource in &mut resources {
            resource.is_from_helm = true;
            resource.note();
        }
        Ok(resources)
    }

    /// The file of values that the chart is rendered with.
    fn values(&self, loader: &Loader<'_>, schema: &Schema) -> Result<Vec<u8>> {
        let Inflation { chart, home, .. } = &self.0;
        let file = if chart.values_file.is_empty() {
            path_text::join(&path_text::join(home, &chart.name), "values.yaml")
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
        let of_file = manifest::first_document(&loader.load(&file)?)
            .within(|| "could not parse values file into rnode")?;
        let of_file = of_file.unwrap_or_else(|| Node::mapping([]));
        let inline = manifest::from_value(inline)?;
        let (patch, mut values) = match chart.values_merge.as_str() {
            "merge" => (of_file, inline),
            _ => (inline, of_file),
        };
        merge::strategic(&patch, &mut values, schema)
            .map_err(|error| Error::new(error.to_string()).within("could not merge values"))?;
        text(&output::value(&values).within(|| "could not parse merged values into map")?)
    }
}

fn text(values: &Value) -> Result<Vec<u8>> {
    let text = goyaml::emit::emit(values).map_err(|error| Error::new(error.to_string()))?;
    Ok(text.into_bytes())
}
