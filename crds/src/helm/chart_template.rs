//! Where the chart of a HelmRelease comes from.
//!
//! Here: the HelmChart to create for it, and the reference to a source that exists.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::source::{ChartSourceKind, ReconcileStrategy, SignatureProvider};
use crate::string_enum::choice;
use crate::{GoDuration, LocalObjectReference, omit_empty};

/// The HelmChart that is created for a HelmRelease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartTemplate {
    /// Labels and annotations of the HelmChart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<HelmChartTemplateMetadata>,

    /// The spec of the HelmChart.
    pub spec: HelmChartTemplateSpec,
}

/// Labels and annotations of a HelmChart that is created for a HelmRelease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartTemplateMetadata {
    /// The labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// The annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The spec of a HelmChart that is created for a HelmRelease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartTemplateSpec {
    /// The name of the chart in a HelmRepository, or its directory in another source.
    #[schemars(length(min = 1, max = 2048))]
    pub chart: String,

    /// The range of semantic versions from which the highest is taken. Only for HelmRepositories;
    /// a directory has the version that it has.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(extend("default" = "*"))]
    pub version: Option<String>,

    /// The source of the chart.
    pub source_ref: CrossNamespaceObjectReference,

    /// How often to check for a new version. Defaults to the `interval` of the HelmRelease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,

    /// What counts as a new version of the chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "ChartVersion"))]
    pub reconcile_strategy: Option<ReconcileStrategy>,

    /// Files of the chart whose merged values replace its `values.yaml`. Later files win. For a
    /// chart in a directory, the paths start at the root of the source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,

    /// Whether values files that do not exist are ignored.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub ignore_missing_values_files: bool,

    /// The signature that the chart must have. For charts of registries only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<HelmChartTemplateVerification>,
}

/// The signature that a chart from a registry must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartTemplateVerification {
    /// The technology of the signature.
    #[schemars(extend("default" = "cosign"))]
    pub provider: SignatureProvider,

    /// A Secret with the trusted keys or certificates, in the namespace of the source. Without it,
    /// cosign verifies keyless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
}

/// Names the source of a chart, in any namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CrossNamespaceObjectReference {
    /// The API group and version of the source.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub api_version: Option<String>,

    /// The kind of the source.
    pub kind: ChartSourceKind,

    /// The name of the source.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The namespace of the source. Defaults to that of the HelmRelease.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// Names a source whose artifact is a chart, in any namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CrossNamespaceChartReference {
    /// The API group and version of the source.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub api_version: Option<String>,

    /// The kind of the source.
    pub kind: ChartRefKind,

    /// The name of the source.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The namespace of the source. Defaults to that of the HelmRelease.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

choice! {
    /// The kinds of source whose artifact can be a chart.
    ChartRefKind {
        /// A chart in a registry.
        OCIRepository = "OCIRepository",
        /// A chart that is already taken out of its source.
        #[default]
        HelmChart = "HelmChart",
        /// A chart provided by another controller.
        ExternalArtifact = "ExternalArtifact",
    }
}
