//! The fields of a helmfile: its keys, in the order in which helmfile writes them.
//! Here: all fields except those of releases and of the whole helmfile. Elsewhere: reading, merging and writing fields
//! (`go_struct_field.rs`), releases (`spec/release.rs`), the whole helmfile (`spec/helmfile_yaml.rs`).

mod helmfile_yaml;
mod release;

use std::collections::BTreeMap;

use goyaml::v3::{YamlNode, YamlNodeKind};
use serde_json::Value;

use crate::error::Result;
use crate::go_struct_field::{HelmfileField, entries, spec, unknown};
use crate::yaml::YamlOutputValue;

pub(crate) use helmfile_yaml::State;
pub(crate) use release::Release;

spec! {
    /// Which errors count as a missing file.
    MissingFileHandlerConfig {
        ignore_missing_git_branch: bool = "ignoreMissingGitBranch",
    }
}

spec! {
    /// An environment as it is declared.
    EnvironmentSpec {
        values: Vec<Value> = "values",
        secrets: Vec<String> = "secrets",
        kube_context: String = "kubeContext",
        missing_file_handler: Option<String> = "missingFileHandler",
        missing_file_handler_config: Option<MissingFileHandlerConfig> = "missingFileHandlerConfig",
        merge_strategy: String = "mergeStrategy",
    }
}

spec! {
    /// A chart repository or registry.
    Repository {
        name: String = "name",
        url: String = "url",
        ca_file: String = "caFile",
        cert_file: String = "certFile",
        key_file: String = "keyFile",
        username: String = "username",
        password: String = "password",
        registry_config: String = "registryConfig",
        managed: String = "managed",
        oci: bool = "oci",
        verify: bool = "verify",
        keyring: String = "keyring",
        pass_credentials: bool = "passCredentials",
        skip_tls_verify: bool = "skipTLSVerify",
        plain_http: bool = "plainHttp",
    }
}

spec! {
    /// Defaults of releases.
    HelmDefaults {
        kube_context: String = "kubeContext",
        args: Vec<String> = "args",
        diff_args: Vec<String> = "diffArgs",
        sync_args: Vec<String> = "syncArgs",
        template_args: Vec<String> = "templateArgs",
        verify: bool = "verify" always,
        keyring: String = "keyring",
        enable_dns: bool = "enableDNS" always,
        skip_schema_validation: Option<bool> = "skipSchemaValidation",
        devel: bool = "devel" always,
        wait: bool = "wait" always,
        wait_retries: i64 = "waitRetries" always,
        wait_for_jobs: bool = "waitForJobs" always,
        timeout: i64 = "timeout" always,
        recreate_pods: bool = "recreatePods" always,
        force: bool = "force" always,
        atomic: bool = "atomic" always,
        rollback_on_failure: bool = "rollbackOnFailure" always,
        cleanup_on_fail: bool = "cleanupOnFail",
        force_conflicts: bool = "forceConflicts" always,
        history_max: Option<i64> = "historyMax",
        create_namespace: Option<bool> = "createNamespace",
        skip_crds: bool = "skipCRDs",
        skip_deps: bool = "skipDeps" always,
        skip_refresh: bool = "skipRefresh" always,
        resolve_oci_versions: Option<bool> = "resolveOCIVersions",
        reuse_values: bool = "reuseValues" always,
        post_renderer: Option<String> = "postRenderer",
        post_renderer_args: Vec<String> = "postRendererArgs",
        cascade: Option<String> = "cascade",
        suppress_output_line_regex: Vec<String> = "suppressOutputLineRegex",
        disable_auto_detected_kube_version_for_diff: Option<bool> = "disableAutoDetectedKubeVersionForDiff",
        disable_validation: Option<bool> = "disableValidation",
        disable_open_api_validation: Option<bool> = "disableOpenAPIValidation",
        insecure_skip_tls_verify: bool = "insecureSkipTLSVerify",
        plain_http: bool = "plainHttp",
        delete_wait: bool = "deleteWait",
        delete_timeout: i64 = "deleteTimeout",
        sync_release_labels: Option<bool> = "syncReleaseLabels",
        take_ownership: Option<bool> = "takeOwnership",
        server_side: Option<String> = "serverSide",
        track_mode: String = "trackMode",
        helm_stuck_grace: i64 = "helmStuckGrace",
    }
}

spec! {
    /// A command to be run at an event.
    Hook {
        name: String = "name" always,
        events: Vec<String> = "events" always,
        command: String = "command" always,
        kubectl: BTreeMap<String, String> = "kubectlApply",
        args: Vec<String> = "args" always,
        show_logs: bool = "showlogs" always,
    }
}

spec! {
    /// A value of `set`, `setString`, `setTemplate` or `env`.
    SetValue {
        name: String = "name",
        value: String = "value",
        file: String = "file",
        values: Vec<Value> = "values",
    }
}

spec! {
    /// A template that a release inherits.
    Inherit {
        template: String = "template",
        except: Vec<String> = "except",
    }
}

spec! {
    /// A chart that a release adds to its chart.
    Dependency {
        chart: String = "chart" always,
        version: String = "version" always,
        alias: String = "alias" always,
    }
}

spec! {
    /// A resource to be tracked.
    TrackResource {
        kind: String = "kind",
        name: String = "name",
        namespace: String = "namespace",
    }
}

spec! {
    /// Options of a command that windlass does not have.
    Llm {
        base_url: String = "baseURL",
        api_key: String = "apiKey",
        model: String = "model",
        timeout: String = "timeout",
        max_tokens: i64 = "maxTokens",
        temperature: f64 = "temperature",
    }
}

/// The templates that a release inherits.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct InheritedTemplates(pub(crate) Vec<Inherit>);

impl HelmfileField for InheritedTemplates {
    fn decode(node: &YamlNode) -> Result<Self> {
        // Parity(helmfile 1.8): a single object is still taken.
        match node.kind {
            YamlNodeKind::Mapping => Ok(Self(vec![Inherit::decode(node)?])),
            _ => Vec::decode(node).map(Self),
        }
    }

    fn emit(&self) -> YamlOutputValue {
        self.0.emit()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn merge(&mut self, from: &Self, how: crate::go_struct_field::StructMergeMode) {
        self.0.merge(&from.0, how);
    }
}

/// The templates that every release inherits: one name, or several.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DefaultInheritedTemplates(pub(crate) Vec<String>);

impl HelmfileField for DefaultInheritedTemplates {
    fn decode(node: &YamlNode) -> Result<Self> {
        let names: Vec<String> = match node.kind {
            YamlNodeKind::Scalar => vec![String::decode(node)?],
            _ => Vec::decode(node)?,
        };
        let names = names.iter().map(|name| name.trim().to_owned());
        Ok(Self(names.filter(|name| !name.is_empty()).collect()))
    }

    fn emit(&self) -> YamlOutputValue {
        self.0.emit()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn merge(&mut self, from: &Self, how: crate::go_struct_field::StructMergeMode) {
        self.0.merge(&from.0, how);
    }
}

/// The keys that a sub-helmfile may inherit.
const INHERITABLE: [&str; 7] = [
    "repositories",
    "helmDefaults",
    "commonLabels",
    "apiVersions",
    "kubeVersion",
    "templates",
    "environments",
];

/// A sub-helmfile of a helmfile.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SubHelmfile {
    pub(crate) path: String,
    /// The selectors for the sub-helmfile. If unset, those of the parent apply. An empty list selects everything.
    pub(crate) selectors: Option<Vec<String>>,
    pub(crate) selectors_inherited: bool,
    pub(crate) inherits: Vec<String>,
    pub(crate) values: Vec<Value>,
}

impl SubHelmfile {
    fn check(&self) -> Result<()> {
        let selectors = self.selectors.as_deref().unwrap_or_default();
        if self.selectors.is_some() && self.path.is_empty() {
            return Err(format!("found 'selectors' definition without path: {selectors:?}").into());
        }
        if self.selectors_inherited && !selectors.is_empty() {
            return Err(format!(
                "you cannot use 'SelectorsInherited: true' along with and explicit selector for path: {}",
                self.path
            )
            .into());
        }
        if !self.inherits.is_empty() && self.path.is_empty() {
            return Err(
                format!("found 'inherits' definition without path: {:?}", self.inherits).into()
            );
        }
        match self.inherits.iter().find(|key| !INHERITABLE.contains(&key.as_str())) {
            Some(key) => Err(format!(
                "invalid inherits entry {key:?} for path {:?}: allowed values are {INHERITABLE:?}",
                self.path
            )
            .into()),
            None => Ok(()),
        }
    }
}

impl HelmfileField for SubHelmfile {
    fn decode(node: &YamlNode) -> Result<Self> {
        let mut spec = Self::default();
        match node.kind {
            YamlNodeKind::Scalar if node.tag == "!!str" => spec.path.clone_from(&node.value),
            YamlNodeKind::Mapping => {
                for (key, value) in entries(node, "SubHelmfileSpec")? {
                    match key.value.as_str() {
                        "path" => spec.path = HelmfileField::decode(value)?,
                        "selectors" => spec.selectors = HelmfileField::decode(value)?,
                        "selectorsInherited" => {
                            spec.selectors_inherited = HelmfileField::decode(value)?;
                        }
                        "inherits" => spec.inherits = HelmfileField::decode(value)?,
                        "values" => spec.values = HelmfileField::decode(value)?,
                        _ => return Err(unknown(key, "SubHelmfileSpec")),
                    }
                }
            }
            // Parity(helmfile 1.8): any other node is an entry without a path.
            _ => {}
        }
        spec.check()?;
        Ok(spec)
    }

    fn emit(&self) -> YamlOutputValue {
        let mut fields = Vec::new();
        let mut put = |key, value: YamlOutputValue, is_empty: bool| {
            if !is_empty {
                fields.push((key, value));
            }
        };
        let selectors: Vec<String> = self.selectors.clone().unwrap_or_default();
        put("path", self.path.emit(), self.path.is_empty());
        put("selectors", selectors.emit(), selectors.is_empty());
        put("selectorsInherited", self.selectors_inherited.emit(), !self.selectors_inherited);
        put("inherits", self.inherits.emit(), self.inherits.is_empty());
        put("values", self.values.emit(), self.values.is_empty());
        YamlOutputValue::Fields(fields)
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
