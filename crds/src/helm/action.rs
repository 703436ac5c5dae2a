//! The actions of Helm: how a HelmRelease is installed, upgraded, tested, rolled back, uninstalled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::string_enum::choice;
use crate::{GoDuration, omit_empty, schema};

/// How to install.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Install {
    /// How long a single wait may take. Defaults to the `timeout` of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,

    /// What to do when installing fails. Defaults to remediation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<InstallStrategy>,

    /// How to remediate a failed install.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remediation: Option<InstallRemediation>,

    /// Whether the install fails for objects that exist without belonging to a release, instead of
    /// adopting them.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_take_ownership: bool,

    /// Whether not to wait until the objects are ready.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_wait: bool,

    /// Whether not to wait until Jobs are complete.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_wait_for_jobs: bool,

    /// Whether to skip the hooks of the chart.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_hooks: bool,

    /// Whether not to check the objects against the schemas of the cluster.
    #[serde(
        rename = "disableOpenAPIValidation",
        default,
        skip_serializing_if = "omit_empty::is_false"
    )]
    pub disable_openapi_validation: bool,

    /// Whether not to check the values against the schema of the chart.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_schema_validation: bool,

    /// Whether the name of the release may be that of a release that was uninstalled and is still
    /// remembered.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub replace: bool,

    /// Has no effect; `crds` took its place.
    #[serde(rename = "skipCRDs", default, skip_serializing_if = "omit_empty::is_false")]
    pub skip_crds: bool,

    /// What to do with the chart's `crds` directory. Defaults to `Create`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crds: Option<CrdsPolicy>,

    /// Whether to create the target namespace if it is missing.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub create_namespace: bool,

    /// Whether the API server merges the objects, instead of Helm. Defaults to true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_side_apply: Option<bool>,
}

/// What to do when installing fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.retryInterval) || self.name != 'RemediateOnFailure'",
    "message": ".retryInterval cannot be set when .name is 'RemediateOnFailure'",
}]))]
pub struct InstallStrategy {
    /// The name of the strategy.
    pub name: ActionStrategy,

    /// How long to wait before the next attempt. Defaults to `5m`. For `RetryOnFailure` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<GoDuration>,
}

/// How to remediate a failed install.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallRemediation {
    /// How often to retry after uninstalling. Defaults to 0; a negative number means without
    /// end.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub retries: i64,

    /// Whether failed tests are not remediated. Defaults to the `test.ignoreFailures` of the
    /// release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_test_failures: Option<bool>,

    /// Whether to uninstall after the last attempt, too. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remediate_last_failure: Option<bool>,
}

/// How to upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// How long a single wait may take. Defaults to the `timeout` of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,

    /// What to do when upgrading fails. Defaults to remediation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<UpgradeStrategy>,

    /// How to remediate a failed upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remediation: Option<UpgradeRemediation>,

    /// Whether the upgrade fails for objects that exist without belonging to a release, instead of
    /// adopting them.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_take_ownership: bool,

    /// Whether not to wait until the objects are ready.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_wait: bool,

    /// Whether not to wait until Jobs are complete.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_wait_for_jobs: bool,

    /// Whether to skip the hooks of the chart.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_hooks: bool,

    /// Whether not to check the objects against the schemas of the cluster.
    #[serde(
        rename = "disableOpenAPIValidation",
        default,
        skip_serializing_if = "omit_empty::is_false"
    )]
    pub disable_openapi_validation: bool,

    /// Whether not to check the values against the schema of the chart.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_schema_validation: bool,

    /// Whether objects are replaced instead of changed. Excludes server-side apply.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub force: bool,

    /// Whether the values of the last release are kept and the new ones merged into them.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub preserve_values: bool,

    /// Whether objects that are new in an upgrade are deleted when it fails.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub cleanup_on_fail: bool,

    /// What to do with the chart's `crds` directory. Defaults to `Create`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crds: Option<CrdsPolicy>,

    /// Whether the API server merges the objects, instead of Helm. Defaults to `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_side_apply: Option<ServerSideApplyMode>,

    /// What to do when the chart has another name than the released one. Defaults to `Reinstall`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart_name_change_strategy: Option<ChartNameChangeStrategy>,
}

/// What to do when upgrading fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.retryInterval) || self.name == 'RetryOnFailure'",
    "message": ".retryInterval can only be set when .name is 'RetryOnFailure'",
}]))]
pub struct UpgradeStrategy {
    /// The name of the strategy.
    pub name: ActionStrategy,

    /// How long to wait before the next attempt. Defaults to `5m`. For `RetryOnFailure` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<GoDuration>,
}

/// How to remediate a failed upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeRemediation {
    /// How often to retry after the remediation. Defaults to 0; a negative number means without
    /// end.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub retries: i64,

    /// Whether failed tests are not remediated. Defaults to the `test.ignoreFailures` of the
    /// release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_test_failures: Option<bool>,

    /// Whether to remediate after the last attempt, too. Defaults to true if there are retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remediate_last_failure: Option<bool>,

    /// The remediation. Defaults to `rollback`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RemediationStrategy>,
}

choice! {
    /// What to do with the CRDs in a chart's `crds` directory.
    CrdsPolicy {
        /// Nothing.
        Skip = "Skip",
        /// Create those that are missing.
        #[default]
        Create = "Create",
        /// Create those that are missing and replace the others.
        CreateReplace = "CreateReplace",
    }
}

choice! {
    /// What to do when an action fails.
    ActionStrategy {
        /// Remediate, then count a retry.
        #[default]
        RemediateOnFailure = "RemediateOnFailure",
        /// Leave the release as it is and try again after a while.
        RetryOnFailure = "RetryOnFailure",
    }
}

choice! {
    /// Whether the API server merges the objects of a release.
    ServerSideApplyMode {
        /// It does.
        Enabled = "enabled",
        /// Helm does.
        Disabled = "disabled",
        /// As for the revision before.
        #[default]
        Auto = "auto",
    }
}

choice! {
    /// What to do when the chart has another name than the released one.
    ChartNameChangeStrategy {
        /// Upgrade the release to the other chart.
        InPlaceUpdate = "InPlaceUpdate",
        /// Uninstall the release and install the other chart.
        #[default]
        Reinstall = "Reinstall",
    }
}

choice! {
    /// The remediation of a failed upgrade.
    RemediationStrategy {
        /// Roll back to the last successful revision.
        #[default]
        Rollback = "rollback",
        /// Remove the release.
        Uninstall = "uninstall",
    }
}

/// Whether and how to run the tests of the chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Test {
    /// Whether to run the tests after each install and upgrade.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub enable: bool,

    /// How long a single test may take. Defaults to the `timeout` of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,

    /// Whether the release counts as good when a test fails.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub ignore_failures: bool,

    /// Which tests to run. Without any, all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
}

/// Selects a test by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Filter {
    /// The name of the test.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Whether to skip the test.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub exclude: bool,
}

/// How to roll back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// How long a single wait may take. Defaults to the `timeout` of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,

    /// Whether not to wait until the objects are ready.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_wait: bool,

    /// Whether not to wait until Jobs are complete.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_wait_for_jobs: bool,

    /// Whether to skip the hooks of the chart.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_hooks: bool,

    /// Has no effect; Helm no longer restarts Pods.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub recreate: bool,

    /// Whether objects are replaced instead of changed. Excludes server-side apply.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub force: bool,

    /// Whether objects that are new in a rollback are deleted when it fails.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub cleanup_on_fail: bool,

    /// Whether the API server merges the objects, instead of Helm. Defaults to `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_side_apply: Option<ServerSideApplyMode>,
}

/// How to uninstall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Uninstall {
    /// How long a single wait may take. Defaults to the `timeout` of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,

    /// Whether to skip the hooks of the chart.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_hooks: bool,

    /// Whether Helm goes on remembering the release.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub keep_history: bool,

    /// Whether not to wait until the objects are gone.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub disable_wait: bool,

    /// In which order objects and what they own are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "background"))]
    pub deletion_propagation: Option<DeletionPropagation>,
}

choice! {
    /// In which order objects and what they own are deleted.
    DeletionPropagation {
        /// Owners first, the rest afterwards.
        #[default]
        Background = "background",
        /// Owners last.
        Foreground = "foreground",
        /// Owners only.
        Orphan = "orphan",
    }
}
