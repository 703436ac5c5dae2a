//! A helmfile.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    DefaultInheritedTemplates, EnvironmentSpec, HelmDefaults, Hook, Llm, MissingFileHandlerConfig,
    Release, Repository, SubHelmfile,
};
use crate::go_struct_field::spec;

spec! {
    /// The fields of a helmfile.
    State {
        helm_binary: String = "helmBinary",
        kustomize_binary: String = "kustomizeBinary",
        values: Vec<Value> = "values",
        environments: BTreeMap<String, EnvironmentSpec> = "environments",
        bases: Vec<String> = "bases",
        helm_defaults: HelmDefaults = "helmDefaults",
        helmfiles: Vec<SubHelmfile> = "helmfiles",
        kube_context: String = "kubeContext",
        namespace: String = "namespace",
        chart: String = "chart",
        repositories: Vec<Repository> = "repositories",
        common_labels: BTreeMap<String, String> = "commonLabels",
        releases: Vec<Release> = "releases",
        llm: Llm = "llm",
        api_versions: Vec<String> = "apiVersions",
        kube_version: String = "kubeVersion",
        hooks: Vec<Hook> = "hooks",
        templates: BTreeMap<String, Release> = "templates" always,
        default_inherit: DefaultInheritedTemplates = "defaultInherit",
        missing_file_handler: Option<String> = "missingFileHandler",
        missing_file_handler_config: Option<MissingFileHandlerConfig> = "missingFileHandlerConfig",
        lock_file_path: String = "lockFilePath",
    }
}
