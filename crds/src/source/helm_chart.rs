//! HelmChart: one chart as an artifact.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HelmChartVerification;
use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, PrinterColumn, READY, STATUS, custom_resource};
use crate::reconciled_object::{reconciled, source};
use crate::string_enum::choice;
use crate::{Artifact, GoDuration, omit_empty};

custom_resource! {
    /// A Helm chart that is taken out of another source, and packaged if it is not yet.
    HelmChart {
        spec: HelmChartSpec,
        status: HelmChartStatus,
        api: "source.toolkit.fluxcd.io" / "v1",
        plural: "helmcharts",
        short: ["hc"],
        category: "fluxcd-sources",
        columns: [
            PrinterColumn::text("Chart", ".spec.chart"),
            PrinterColumn::text("Version", ".spec.version"),
            PrinterColumn::text("Source Kind", ".spec.sourceRef.kind"),
            PrinterColumn::text("Source Name", ".spec.sourceRef.name"),
            AGE,
            READY,
            STATUS,
        ],
    }
}

reconciled!(HelmChart HelmChartStatus "source-controller");
source!(HelmChart HelmChartStatus [url]);

/// Which chart to take from which source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "!has(self.verify) || self.sourceRef.kind == 'HelmRepository'",
    "message": "spec.verify is only supported when spec.sourceRef.kind is 'HelmRepository'",
}]))]
pub struct HelmChartSpec {
    /// The name of the chart in a HelmRepository, or its directory in another source.
    pub chart: String,

    /// The range of semantic versions from which the highest is taken. Only for HelmRepositories;
    /// a directory has the version that it has.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "*"))]
    pub version: Option<String>,

    /// The source of the chart.
    pub source_ref: LocalHelmChartSourceReference,

    /// How often to check for a new version.
    pub interval: GoDuration,

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

    /// Whether to suspend checking for new versions. The artifact stays available.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,

    /// The signature that the chart must have. For charts of registries only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<HelmChartVerification>,
}

/// Names the source of a chart, in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalHelmChartSourceReference {
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
    pub name: String,
}

choice! {
    /// The kinds of source that can hold charts.
    ChartSourceKind {
        /// A repository of charts.
        #[default]
        HelmRepository = "HelmRepository",
        /// A chart as a directory of a Git repository.
        GitRepository = "GitRepository",
        /// A chart as a directory of a bucket.
        Bucket = "Bucket",
    }
}

choice! {
    /// What makes a new artifact of a chart.
    ReconcileStrategy {
        /// A new version in `Chart.yaml` or in the index.
        #[default]
        ChartVersion = "ChartVersion",
        /// A new revision of the source, which is added to the version.
        Revision = "Revision",
    }
}

/// What was last fetched or packaged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("default" = { "observedGeneration": -1 }))]
pub struct HelmChartStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The revision of the source's artifact that the chart was taken from.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub observed_source_artifact_revision: Option<String>,

    /// The name that the chart gives itself.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub observed_chart_name: Option<String>,

    /// The values files that went into the artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_values_files: Vec<String>,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// A stable address of whatever artifact is the newest.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// The packaged chart of the last run that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
