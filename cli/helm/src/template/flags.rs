//! The flags of `windlass template`: those of `helm template` that need neither a cluster nor a remote server.
//!
//! Elsewhere: flags without effect and refused flags (`ignored_flags.rs`), errors about wrong flags (`usage_error.rs`).

use std::time::Duration;

use clap::Args;
use golang::strconv::parse_bool;
use helm::RenderEnvironment;
use helm::warning::{HelmWarning, WarningLevel};

use super::ignored_flags::IgnoredFlagsReport;
use super::values::comma_separated;
use windlass_cli_runtime::time_limit;

/// Render the templates of a chart, as `helm template` does
///
/// CHART is a directory or an archive. No cluster is contacted: `lookup` returns nothing, and the Kubernetes version and
/// API versions are set by flags.
#[derive(Debug, Clone, Default, Args)]
#[command(args_override_self = true, disable_version_flag = true)]
pub struct HelmTemplateFlags {
    /// Release name, then the chart; with the chart alone the release name is `release-name`
    #[arg(value_name = "[NAME] CHART")]
    pub(super) arguments: Vec<String>,

    /// Namespace of the release
    #[arg(short, long, allow_hyphen_values = true)]
    pub(super) namespace: Option<String>,

    /// YAML file with values, `-` for standard input; may be repeated, later files take precedence
    #[arg(short = 'f', long, value_name = "FILES", allow_hyphen_values = true)]
    pub(super) values: Vec<String>,

    /// Set values: key1=val1,key2=val2
    #[arg(long, value_name = "VALUES", allow_hyphen_values = true)]
    pub(super) set: Vec<String>,

    /// Set strings: key1=val1,key2=val2
    #[arg(long, value_name = "VALUES", allow_hyphen_values = true)]
    pub(super) set_string: Vec<String>,

    /// Set values from files: key1=path1,key2=path2
    #[arg(long, value_name = "FILES", allow_hyphen_values = true)]
    pub(super) set_file: Vec<String>,

    /// Set JSON: key1=json1,key2=json2, or one JSON object
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(super) set_json: Vec<String>,

    /// Set a literal string: key=value
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub(super) set_literal: Vec<String>,

    /// Template for the release name
    #[arg(long, value_name = "TEMPLATE", allow_hyphen_values = true)]
    pub(super) name_template: Option<String>,

    /// Accepted for compatibility with helm
    #[arg(short = 'g', long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = truth, default_value = "false", hide_default_value = true, hide_possible_values = true)]
    pub(super) generate_name: bool,

    /// Kubernetes version for .Capabilities.KubeVersion
    #[arg(long, value_name = "VERSION", allow_hyphen_values = true)]
    pub(super) kube_version: Option<String>,

    /// Additional API versions for .Capabilities.APIVersions: apps/v1,batch/v1/Job
    #[arg(short = 'a', long, value_name = "VERSIONS", allow_hyphen_values = true)]
    api_versions: Vec<String>,

    /// Include the CRDs of the chart in the output
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = truth, default_value = "false", hide_default_value = true)]
    pub(super) include_crds: bool,

    /// Only print the output of these templates: templates/a.yaml, templates/*.yaml
    #[arg(short = 's', long, value_name = "TEMPLATE", allow_hyphen_values = true)]
    pub(super) show_only: Vec<String>,

    /// Skip test hooks
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = truth, default_value = "false", hide_default_value = true)]
    pub(super) skip_tests: bool,

    /// Skip hooks
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = truth, default_value = "false", hide_default_value = true)]
    pub(super) no_hooks: bool,

    /// Set .Release.IsUpgrade instead of .Release.IsInstall
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = truth, default_value = "false", hide_default_value = true)]
    pub(super) is_upgrade: bool,

    /// Write one file per template to this directory
    #[arg(long, value_name = "FOLDER", allow_hyphen_values = true)]
    pub(super) output_dir: Option<String>,

    /// Use the release name in the paths below --output-dir
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = truth, default_value = "false", hide_default_value = true)]
    pub(super) release_name: bool,

    /// Skip validation of values against the chart's schema
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = truth, default_value = "false", hide_default_value = true)]
    pub(super) skip_schema_validation: bool,

    /// Enable DNS lookups in templates
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = truth, default_value = "false", hide_default_value = true)]
    pub(super) enable_dns: bool,

    /// Maximum duration of the rendering, such as 2m; 0 for no limit
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = time_limit::parse)]
    pub(super) time_limit: Duration,

    /// Verbose output; prints rendered templates that are not valid YAML
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = truth, default_value = "false", hide_default_value = true)]
    pub(super) debug: bool,

    /// Accepted for compatibility with helm; a directory or archive has one version
    #[arg(long, value_name = "VERSION", hide = true, allow_hyphen_values = true)]
    pub(super) version: Option<String>,

    /// Context of the kubeconfig from which to take the namespace
    #[arg(long, value_name = "NAME", hide = true, allow_hyphen_values = true)]
    pub(super) kube_context: Option<String>,

    /// Path to the kubeconfig from which to take the namespace
    #[arg(long, value_name = "FILE", hide = true, allow_hyphen_values = true)]
    pub(super) kubeconfig: Option<String>,

    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "unset")]
    dry_run: Option<String>,

    #[command(flatten)]
    pub(super) other: IgnoredFlagsReport,
}

/// Parses a boolean like Go's flag parser.
fn truth(text: &str) -> Result<bool, String> {
    parse_bool(text).map_err(|error| error.to_string())
}

impl HelmTemplateFlags {
    /// The warnings about the given flags.
    ///
    /// # Errors
    /// A flag needs a feature that this command does not have.
    pub(super) fn said(&self) -> Result<Vec<HelmWarning>, String> {
        if let Some(refusal) = &self.other.refusal {
            return Err(refusal.clone());
        }
        let warn = |text: String| Ok(vec![HelmWarning::new(WarningLevel::Warn, text)]);
        match self.dry_run.as_deref() {
            None | Some("client") => Ok(Vec::new()),
            Some("unset") => warn(
                "--dry-run is deprecated and should be replaced with '--dry-run=client'".to_owned(),
            ),
            Some("server") => {
                Err("`--dry-run=server` is not supported: it requires a cluster".to_owned())
            }
            Some(text) if parse_bool(text) == Ok(true) => warn(format!(
                "boolean '--dry-run={text}' flag is deprecated and must be replaced with '--dry-run=client'"
            )),
            Some(text) => {
                let choice = match text == "none" || parse_bool(text).is_ok() {
                    true => "\"server\" or \"client\"",
                    false => "\"none\", \"server\", or \"client\"",
                };
                Err(format!("invalid dry-run value ({text:?}). Must be {choice}"))
            }
        }
    }

    /// The API versions that the user gave.
    pub(super) fn api_versions(&self) -> impl Iterator<Item = String> {
        self.api_versions.iter().flat_map(|list| comma_separated(list))
    }

    /// The name of the release, and the reference to the chart.
    ///
    /// # Errors
    /// The error text of Helm.
    pub(super) fn name_and_chart(
        &self,
        env: &RenderEnvironment,
    ) -> Result<(String, String), String> {
        let template = self.name_template.as_deref().unwrap_or_default();
        match self.arguments.as_slice() {
            [] => Err("\"windlass template\" requires at least 1 argument\n\nUsage:  windlass template [NAME] [CHART] [flags]".to_owned()),
            // Parity(helm 4): the name is preset, so `--generate-name` generates nothing.
            [chart] if template.is_empty() => Ok(("release-name".to_owned(), chart.clone())),
            [chart] => Ok((helm::template::name(template, env)?, chart.clone())),
            [_, _] if self.generate_name => {
                Err("cannot set --generate-name and also specify a name".to_owned())
            }
            [_, _] if !template.is_empty() => {
                Err("cannot set --name-template and also specify a name".to_owned())
            }
            [name, chart] => Ok((name.clone(), chart.clone())),
            [_, _, more @ ..] => Err(format!(
                "expected at most two arguments, unexpected arguments: {}",
                more.join(", ")
            )),
        }
    }
}
