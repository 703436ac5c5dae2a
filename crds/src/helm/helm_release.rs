//! HelmRelease: a chart with values, kept released.
//!
//! Here: the spec. Elsewhere: the chart (`chart_template`), install, upgrade and so on (`action`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    CrossNamespaceChartReference, HelmChartTemplate, HelmReleaseStatus, Install, Rollback, Test,
    Uninstall, Upgrade,
};
use crate::custom_resource::{AGE, READY, STATUS, custom_resource};
use crate::reconciled_object::{applier, reconciled};
use crate::schema;
use crate::string_enum::choice;
use crate::{
    CommonMetadata, ConfigKind, CustomHealthCheck, DependencyReference, GoDuration, IgnoreRule,
    Image, KubeConfigReference, Patch, omit_empty,
};

custom_resource! {
    /// A Helm chart that is kept installed in a cluster with the given values.
    HelmRelease {
        spec: HelmReleaseSpec,
        status: HelmReleaseStatus,
        api: "helm.toolkit.fluxcd.io" / "v2",
        plural: "helmreleases",
        short: ["hr"],
        category: "fluxcd-appliers",
        columns: [AGE, READY, STATUS],
    }
}

reconciled!(HelmRelease HelmReleaseStatus "helm-controller" applies = true inventory = inventory);
applier!(HelmRelease);

/// Which chart to release, with which values, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "(has(self.chart) && !has(self.chartRef)) || (!has(self.chart) && has(self.chartRef))",
    "message": "either chart or chartRef must be set",
}]))]
pub struct HelmReleaseSpec {
    /// The HelmChart to create for this release. Excludes `chartRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart: Option<HelmChartTemplate>,

    /// A source that already holds the chart. Excludes `chart`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart_ref: Option<CrossNamespaceChartReference>,

    /// How often to compare the release with the desired state.
    pub interval: GoDuration,

    /// The cluster to release to. Defaults to the one in which this object lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfigReference>,

    /// Whether to suspend reconciliation, until this is unset.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,

    /// The name of the release. Defaults to the name of this object, with `targetNamespace` and a
    /// dash in front if that is set.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 53))]
    pub release_name: Option<String>,

    /// The namespace to release into. Defaults to that of this object.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,

    /// The namespace of Helm's own records. Defaults to that of this object.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub storage_namespace: Option<String>,

    /// The objects that have to exist or to be ready first: HelmReleases, unless an entry names another kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependencyReference>,

    /// How long a single wait of an action may take, such as that for a hook. Defaults to `5m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,

    /// How many revisions Helm remembers. Defaults to 5; 0 means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::without_format)]
    pub max_history: Option<i64>,

    /// The ServiceAccount in whose name the release is made.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,

    /// Whether one client serves the whole action. Unset it for charts whose hooks create
    /// CRDs that the rest of the chart uses. Defaults to true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_client: Option<bool>,

    /// What to do when the cluster differs from the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_detection: Option<DriftDetection>,

    /// How to install.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<Install>,

    /// How to upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,

    /// Whether and how to run the tests of the chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<Test>,

    /// How to roll back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,

    /// How to uninstall.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uninstall: Option<Uninstall>,

    /// ConfigMaps and Secrets with values. Later ones win, and `values` wins over all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_from: Vec<ValuesReference>,

    /// Values for the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::anything")]
    pub values: Option<Value>,

    /// Labels and annotations to set on all objects of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,

    /// Changes to make to the rendered objects, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post_renderers: Vec<PostRenderer>,

    /// Whether the post-renderers also see hooks. Defaults to `combined`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_render_strategy: Option<PostRenderStrategy>,

    /// How to wait for the objects of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_strategy: Option<WaitStrategy>,

    /// How to determine the health of kinds that have no conventional status. For the wait strategy
    /// `poller` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_check_exprs: Vec<CustomHealthCheck>,
}

/// What to do when the cluster differs from the release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftDetection {
    /// Whether to detect drift and to correct it. Defaults to `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<DriftDetectionMode>,

    /// Fields in which a difference does not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<IgnoreRule>,
}

choice! {
    /// What to do about drift.
    DriftDetectionMode {
        /// Detect and correct it.
        Enabled = "enabled",
        /// Detect and report it.
        Warn = "warn",
        /// Do not detect it.
        #[default]
        Disabled = "disabled",
    }
}

/// Names a ConfigMap or Secret with values, in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuesReference {
    /// The kind of the object.
    pub kind: ConfigKind,

    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The key to read. Defaults to `values.yaml`.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 253), regex(pattern = r"^[\-._a-zA-Z0-9]+$"))]
    pub values_key: Option<String>,

    /// Where to put what the key holds, as in `--set`: it is then one value. Without it, the key
    /// holds a whole file of values.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 250), regex(pattern = r"^([a-zA-Z0-9_\-.\\\/]|\[[0-9]{1,5}\])+$"))]
    pub target_path: Option<String>,

    /// Whether the object or its key may be missing.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub optional: bool,

    /// Whether what the key holds is put at `targetPath` as one string, as in `--set-literal`,
    /// instead of being read as `--set` reads it.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub literal: bool,
}

/// One change to the rendered objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostRenderer {
    /// A change that kustomize makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kustomize: Option<Kustomize>,
}

/// Changes that kustomize makes to rendered objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kustomize {
    /// Patches to make.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,

    /// Container images to replace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

choice! {
    /// Whether post-renderers see hooks.
    PostRenderStrategy {
        /// They do not, as in Helm 3.
        NoHooks = "nohooks",
        /// They see hooks and other objects together.
        #[default]
        Combined = "combined",
        /// They run once for hooks and once for other objects.
        Separate = "separate",
    }
}

/// How to wait for the objects of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitStrategy {
    /// The name of the strategy.
    pub name: WaitStrategyName,
}

choice! {
    /// How to tell whether the objects of a release are ready.
    WaitStrategyName {
        /// By the conventions for the status of any kind.
        #[default]
        Poller = "poller",
        /// By Helm 3's list of kinds.
        Legacy = "legacy",
    }
}
