//! What a plan is asked for.

use crate::dialect::HelmfileDialect;

/// Settings of a plan; helmfile's global flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HelmfilePlanSettings {
    /// The helmfile or directory; empty for the default ones. `-` is standard input.
    pub file: String,
    /// The environment; `default` unless another one is wanted.
    pub environment: String,
    /// For which version of helmfile the helmfiles were written.
    pub dialect: HelmfileDialect,
    /// Selectors, of which a release has to match one.
    pub selectors: Vec<String>,
    /// Overrides the namespace of all releases.
    pub namespace: String,
    /// Overrides the chart of all releases.
    pub chart: String,
    /// Overrides the context of all releases.
    pub kube_context: String,
    /// What is printed as `helmBinary`; nothing is run.
    pub helm_binary: String,
    /// What is printed as `kustomizeBinary`; nothing is run.
    pub kustomize_binary: String,
    /// Files of `--state-values-file`, relative to the helmfile.
    pub state_values_files: Vec<String>,
    /// `--state-values-set`.
    pub state_values_set: Vec<String>,
    /// `--state-values-set-string`.
    pub state_values_set_string: Vec<String>,
}
