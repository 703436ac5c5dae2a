//! `helmCharts`, `helmGlobals`, and the deprecated `helmChartInflationGenerator`.

use serde_json::{Map, Value};

use super::list_entries::add_text;
use crate::json_struct_decode::decode_struct;

/// The folders of charts and of Helm's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HelmGlobals {
    /// The folder of charts, relative to the kustomization. If it is empty, `charts`.
    pub chart_home: String,
    /// Helm's configuration.
    pub config_home: String,
}

decode_struct!(HelmGlobals, "types", "HelmGlobals", {
    "chartHome" => chart_home,
    "configHome" => config_home,
});

/// An entry of `helmCharts`: the settings for `helm template`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HelmChart {
    /// The name of the chart, which is also the name of its folder.
    pub name: String,
    /// The version of the chart.
    pub version: String,
    /// The repository from which the chart is fetched if its folder does not exist.
    pub repo: String,
    /// The name of the release. If it is empty, Helm generates one.
    pub release_name: String,
    /// The namespace of the release.
    pub namespace: String,
    /// Files of values that come after `values_file`.
    pub additional_values_files: Vec<String>,
    /// The file of values in place of the chart's own.
    pub values_file: String,
    /// Values, an object or null.
    pub values_inline: Value,
    /// How `values_inline` is combined with `values_file`: `override`, `merge` or `replace`.
    pub values_merge: String,
    /// Whether the chart's CRDs are part of the result.
    pub include_crds: bool,
    /// Whether its hooks are left out.
    pub skip_hooks: bool,
    /// `.Capabilities.APIVersions`.
    pub api_versions: Vec<String>,
    /// `.Capabilities.KubeVersion`.
    pub kube_version: String,
    /// A template of the release's name.
    pub name_template: String,
    /// Whether its tests are left out.
    pub skip_tests: bool,
    /// Helm's `--debug`.
    pub debug: bool,
    /// Whether versions that are not stable count.
    pub devel: bool,
}

decode_struct!(HelmChart, "types", "HelmChart", {
    "name" => name,
    "version" => version,
    "repo" => repo,
    "releaseName" => release_name,
    "namespace" => namespace,
    "additionalValuesFiles" => additional_values_files,
    "valuesFile" => values_file,
    "valuesInline" => values_inline,
    "valuesMerge" => values_merge,
    "includeCRDs" => include_crds,
    "skipHooks" => skip_hooks,
    "apiVersions" => api_versions,
    "kubeVersion" => kube_version,
    "nameTemplate" => name_template,
    "skipTests" => skip_tests,
    "debug" => debug,
    "devel" => devel,
});

/// An entry of `helmChartInflationGenerator` in a kustomization file.
#[derive(Debug, Clone, Default)]
pub(crate) struct HelmChartArgs {
    chart_name: String,
    chart_version: String,
    chart_repo_url: String,
    chart_home: String,
    chart_repo_name: String,
    helm_bin: String,
    helm_home: String,
    values: String,
    values_local: Value,
    values_merge: String,
    release_name: String,
    release_namespace: String,
    extra_args: Vec<String>,
}

decode_struct!(HelmChartArgs, "types", "HelmChartArgs", {
    "chartName" => chart_name,
    "chartVersion" => chart_version,
    "chartRepoUrl" => chart_repo_url,
    "chartHome" => chart_home,
    "chartRepoName" => chart_repo_name,
    "helmBin" => helm_bin,
    "helmHome" => helm_home,
    "values" => values,
    "valuesLocal" => values_local,
    "valuesMerge" => values_merge,
    "releaseName" => release_name,
    "releaseNamespace" => release_namespace,
    "extraArgs" => extra_args,
});

impl HelmChart {
    /// The configuration that kustomize passes to its own generator. Errors show it.
    pub(crate) fn to_config(&self, globals: &HelmGlobals) -> Value {
        let strings = [
            ("chartHome", &globals.chart_home),
            ("configHome", &globals.config_home),
            ("name", &self.name),
            ("version", &self.version),
            ("repo", &self.repo),
            ("releaseName", &self.release_name),
            ("namespace", &self.namespace),
            ("valuesFile", &self.values_file),
            ("valuesMerge", &self.values_merge),
            ("kubeVersion", &self.kube_version),
            ("nameTemplate", &self.name_template),
        ];
        let claims = [
            ("includeCRDs", self.include_crds),
            ("skipHooks", self.skip_hooks),
            ("skipTests", self.skip_tests),
            ("debug", self.debug),
            ("devel", self.devel),
        ];
        let lists = [
            ("additionalValuesFiles", &self.additional_values_files),
            ("apiVersions", &self.api_versions),
        ];
        let mut config = Map::new();
        strings.into_iter().for_each(|(name, text)| add_text(&mut config, name, text));
        for (name, _) in claims.into_iter().filter(|(_, is_set)| *is_set) {
            config.insert(name.to_owned(), true.into());
        }
        for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            config.insert(name.to_owned(), list.as_slice().into());
        }
        if self.values_inline.as_object().is_some_and(|values| !values.is_empty()) {
            config.insert("valuesInline".to_owned(), self.values_inline.clone());
        }
        config.into()
    }
}

impl HelmChartArgs {
    /// Converts old entries to the present form. Several old fields have no effect any more.
    pub(crate) fn modernize(old: Vec<Self>) -> (Vec<HelmChart>, HelmGlobals) {
        let mut globals = HelmGlobals::default();
        let mut charts = Vec::new();
        for args in old {
            if !args.helm_home.is_empty() {
                globals.config_home = args.helm_home;
            }
            if !args.chart_home.is_empty() {
                globals.chart_home = args.chart_home;
            }
            charts.push(HelmChart {
                name: args.chart_name,
                version: args.chart_version,
                repo: args.chart_repo_url,
                values_file: args.values,
                values_inline: args.values_local,
                values_merge: args.values_merge,
                release_name: args.release_name,
                ..HelmChart::default()
            });
        }
        (charts, globals)
    }
}
