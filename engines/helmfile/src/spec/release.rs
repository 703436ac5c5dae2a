//! A release, and a template of releases.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    Dependency, Hook, InheritedTemplates, MissingFileHandlerConfig, SetValue, TrackResource,
};
use crate::go_struct_field::spec;

spec! {
    /// A release, or a template of releases.
    Release {
        chart: String = "chart",
        chart_path: String = "chartPath",
        directory: String = "directory",
        version: String = "version",
        verify: Option<bool> = "verify",
        keyring: String = "keyring",
        enable_dns: Option<bool> = "enableDNS",
        devel: Option<bool> = "devel",
        wait: Option<bool> = "wait",
        wait_retries: Option<i64> = "waitRetries",
        wait_for_jobs: Option<bool> = "waitForJobs",
        timeout: Option<i64> = "timeout",
        recreate_pods: Option<bool> = "recreatePods",
        force: Option<bool> = "force",
        installed: Option<bool> = "installed",
        update_strategy: String = "updateStrategy",
        atomic: Option<bool> = "atomic",
        rollback_on_failure: Option<bool> = "rollbackOnFailure",
        cleanup_on_fail: Option<bool> = "cleanupOnFail",
        force_conflicts: Option<bool> = "forceConflicts",
        history_max: Option<i64> = "historyMax",
        condition: String = "condition",
        create_namespace: Option<bool> = "createNamespace",
        reuse_values: Option<bool> = "reuseValues",
        disable_open_api_validation: Option<bool> = "disableOpenAPIValidation",
        disable_validation: Option<bool> = "disableValidation",
        disable_validation_on_install: Option<bool> = "disableValidationOnInstall",
        missing_file_handler: Option<String> = "missingFileHandler",
        missing_file_handler_config: Option<MissingFileHandlerConfig> = "missingFileHandlerConfig",
        needs: Vec<String> = "needs",
        hooks: Vec<Hook> = "hooks",
        unit_tests: Vec<String> = "unitTests",
        name: String = "name",
        description: String = "description",
        namespace: String = "namespace",
        labels: BTreeMap<String, String> = "labels",
        values: Vec<Value> = "values",
        secrets: Vec<Value> = "secrets",
        set: Vec<SetValue> = "set",
        set_string: Vec<SetValue> = "setString",
        values_template: Vec<Value> = "valuesTemplate",
        set_template: Vec<SetValue> = "setTemplate",
        api_versions: Vec<String> = "apiVersions",
        kube_version: String = "kubeVersion",
        env: Vec<SetValue> = "env",
        values_path_prefix: String = "valuesPathPrefix",
        kube_context: String = "kubeContext",
        insecure_skip_tls_verify: bool = "insecureSkipTLSVerify",
        plain_http: bool = "plainHttp",
        verify_template: Option<String> = "verifyTemplate",
        wait_template: Option<String> = "waitTemplate",
        installed_template: Option<String> = "installedTemplate",
        condition_template: Option<String> = "conditionTemplate",
        dependencies: Vec<Dependency> = "dependencies",
        json_patches: Vec<Value> = "jsonPatches",
        strategic_merge_patches: Vec<Value> = "strategicMergePatches",
        transformers: Vec<Value> = "transformers",
        adopt: Vec<String> = "adopt",
        force_go_getter: bool = "forceGoGetter",
        force_namespace: String = "forceNamespace",
        skip_deps: Option<bool> = "skipDeps",
        skip_refresh: Option<bool> = "skipRefresh",
        resolve_oci_versions: Option<bool> = "resolveOCIVersions",
        post_renderer: Option<String> = "postRenderer",
        skip_schema_validation: Option<bool> = "skipSchemaValidation",
        post_renderer_args: Vec<String> = "postRendererArgs",
        cascade: Option<String> = "cascade",
        suppress_output_line_regex: Vec<String> = "suppressOutputLineRegex",
        disable_auto_detected_kube_version_for_diff: Option<bool> = "disableAutoDetectedKubeVersionForDiff",
        inherit: InheritedTemplates = "inherit",
        suppress_diff: Option<bool> = "suppressDiff",
        delete_wait: Option<bool> = "deleteWait",
        delete_timeout: Option<i64> = "deleteTimeout",
        sync_release_labels: Option<bool> = "syncReleaseLabels",
        take_ownership: Option<bool> = "takeOwnership",
        server_side: Option<String> = "serverSide",
        track_mode: String = "trackMode",
        track_timeout: Option<i64> = "trackTimeout",
        track_logs: Option<bool> = "trackLogs",
        track_failed_logs: Option<bool> = "trackFailedLogs",
        helm_stuck_grace: Option<i64> = "helmStuckGrace",
        track_kinds: Vec<String> = "trackKinds",
        skip_kinds: Vec<String> = "skipKinds",
        track_resources: Vec<TrackResource> = "trackResources",
        kubedog_qps: Option<f64> = "kubedogQPS",
        kubedog_burst: Option<i64> = "kubedogBurst",
        track_fail_on_error: Option<bool> = "trackFailOnError",
    }
}

impl Release {
    /// Whether the release is wanted in the cluster.
    pub(crate) fn is_desired(&self) -> bool {
        self.installed.unwrap_or(true)
    }

    /// The id of the release in `needs`: `KUBECONTEXT/NAMESPACE/NAME`, without empty parts.
    pub(crate) fn id(&self) -> String {
        let mut id = String::new();
        if !self.kube_context.is_empty() {
            id = format!("{}/", self.kube_context);
        }
        if !self.kube_context.is_empty() || !self.namespace.is_empty() {
            id = format!("{id}{}/", self.namespace);
        }
        format!("{id}{}", self.name)
    }
}
