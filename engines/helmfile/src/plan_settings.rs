//! The settings of a plan.

use crate::pre_v1_helmfile::HelmfileDialect;

/// The settings of a plan. They correspond to helmfile's global flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HelmfilePlanSettings {
    /// The path of the helmfile or directory; empty for the default files, and `-` for standard input.
    pub file: String,
    /// The name of the environment, by default `default`.
    pub environment: String,
    /// The version of helmfile that the helmfiles were written for.
    pub dialect: HelmfileDialect,
    /// Selectors. A release must match at least one of them.
    pub selectors: Vec<String>,
    /// Overrides the namespace of all releases.
    pub namespace: String,
    /// Overrides the chart of all releases.
    pub chart: String,
    /// Overrides the context of all releases.
    pub kube_context: String,
    /// The value to print as `helmBinary`. The program is not run.
    pub helm_binary: String,
    /// The value to print as `kustomizeBinary`. The program is not run.
    pub kustomize_binary: String,
    /// Files of `--state-values-file`, relative to the helmfile.
    pub state_values_files: Vec<String>,
    /// `--state-values-set`.
    pub state_values_set: Vec<String>,
    /// `--state-values-set-string`.
    pub state_values_set_string: Vec<String>,
}
