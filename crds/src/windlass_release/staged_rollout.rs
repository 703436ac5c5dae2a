//! StagedRollout and ClusterStagedRollout: waves in which appliers take a new revision of their source.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, PrinterColumn, READY, STATUS, custom_resource};
use crate::string_enum::choice;
use crate::{GoDuration, Time, omit_empty, schema};

custom_resource! {
    /// Waves in which the Kustomizations and Helmfiles of a namespace take a new revision of their
    /// source. The next wave begins when all of the one before have applied the revision and are
    /// healthy.
    StagedRollout {
        spec: StagedRolloutSpec,
        status: StagedRolloutStatus,
        api: "release.windlass.dev" / "v1alpha1",
        plural: "stagedrollouts",
        short: [],
        category: "fluxcd-gates",
        columns: [
            PrinterColumn { type_: "integer", ..PrinterColumn::text("Members", ".status.members") },
            READY,
            STATUS,
            AGE,
        ],
    }
}

custom_resource! {
    /// Waves in which the Kustomizations and Helmfiles of several namespaces take a new revision of
    /// their source. It comes before the StagedRollouts of these namespaces.
    ClusterStagedRollout {
        spec: ClusterStagedRolloutSpec,
        status: StagedRolloutStatus,
        scope: Cluster,
        api: "release.windlass.dev" / "v1alpha1",
        plural: "clusterstagedrollouts",
        short: [],
        category: "fluxcd-gates",
        columns: [
            PrinterColumn { type_: "integer", ..PrinterColumn::text("Members", ".status.members") },
            READY,
            STATUS,
            AGE,
        ],
    }
}

/// What the API server checks of waves. A rollout that cannot be used holds what it selects, perhaps the Kustomization that would
/// bring its correction: so it is better refused at once.
fn wave_rules() -> Value {
    json!([
        {
            "rule": "self.all(it, self.exists_one(other, other.name == it.name))",
            "message": "two waves have the same name",
        },
        {
            "rule": "!self.exists(it, has(it.percent)) || !self.exists(it, has(it.values) && it.values.size() > 0)",
            "message": "some waves have values, and others percent",
        },
        {
            "rule": "self.all(it, has(it.percent) || has(it.values) && it.values.size() > 0 || \
                     it.name == self[self.size() - 1].name)",
            "message": "all waves but the last one need values or percent",
        },
    ])
}

/// Which appliers, in which waves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct StagedRolloutSpec {
    /// Selects Kustomizations and Helmfiles of the namespace by labels. An empty selector selects all
    /// of them.
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,

    /// The label whose value says in which wave an applier is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317), extend("default" = "windlass.dev/wave"))]
    pub wave_label: Option<String>,

    /// The waves, in their order. All but the last one have `values`, or all but the last one have
    /// `percent`.
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-validations" = wave_rules())
    )]
    pub waves: Vec<RolloutWave>,

    /// What becomes of clusters that do not respond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offline_clusters: Option<RolloutOfflineClusterRules>,
}

/// Which appliers of which namespaces, in which waves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ClusterStagedRolloutSpec {
    /// Selects namespaces by labels. An empty selector selects all of them.
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: LabelSelector,

    /// Selects Kustomizations and Helmfiles of these namespaces by labels. An empty selector selects
    /// all of them.
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,

    /// The label whose value says in which wave an applier is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317), extend("default" = "windlass.dev/wave"))]
    pub wave_label: Option<String>,

    /// The waves, in their order. All but the last one have `values`, or all but the last one have
    /// `percent`.
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-validations" = wave_rules())
    )]
    pub waves: Vec<RolloutWave>,

    /// What becomes of clusters that do not respond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offline_clusters: Option<RolloutOfflineClusterRules>,
}

/// A wave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct RolloutWave {
    /// What it is called.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,

    /// The values of the label whose appliers are in this wave. Appliers without the label, or with a
    /// value that no wave has, are in the last wave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub values: Vec<String>,

    /// How many percent of the appliers are in this wave. Those that are left are in the last wave.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub percent: Option<i64>,

    /// How many appliers of the wave may be unavailable at the same time: a number such as `"2"`, or a
    /// part of the wave such as `"25%"`, rounded down to at least one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([1-9][0-9]{0,4}|([1-9][0-9]?|100)%)$"), extend("default" = "25%"))]
    pub max_unavailable: Option<String>,

    /// How long all appliers of the wave have to be healthy at the revision before the next wave
    /// begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soak: Option<GoDuration>,
}

/// What becomes of clusters that do not respond.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct RolloutOfflineClusterRules {
    /// What is done about appliers in such a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Wait"))]
    pub policy: Option<OfflineClusterPolicy>,

    /// How many clusters are skipped at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000), extend("default" = 1))]
    pub max_skipped: Option<i64>,

    /// How long a cluster does not respond before it counts as offline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "5m"))]
    pub after: Option<GoDuration>,
}

choice! {
    /// What is done about appliers in a cluster that does not respond.
    OfflineClusterPolicy {
        /// The rollout waits for it.
        #[default]
        Wait = "Wait",
        /// The rollout goes on without it, and it takes the revision when it responds. With more than
        /// `maxSkipped` such clusters, the rollout waits.
        Skip = "Skip",
        /// No further applier takes the revision until it responds.
        Fail = "Fail",
    }
}

/// How far the newest revision of each source is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct StagedRolloutStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// How many appliers it selects.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub members: i64,

    /// The sources of these appliers; the first 64 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub sources: Vec<RolloutSourceStatus>,
}

/// How far the newest revision of a source is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct RolloutSourceStatus {
    /// Its kind.
    #[schemars(length(max = 63))]
    pub kind: String,

    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: String,

    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,

    /// The revision that its appliers take.
    #[schemars(length(max = 512))]
    pub revision: String,

    /// The digest of this artifact.
    #[schemars(length(max = 128))]
    pub digest: String,

    /// The name of the first wave of which not all have it; absent if all have it.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub wave: Option<String>,

    /// The waves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub waves: Vec<RolloutWaveStatus>,
}

/// How far a wave is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct RolloutWaveStatus {
    /// Its name.
    #[schemars(length(max = 63))]
    pub name: String,

    /// How many appliers are in it.
    #[schemars(transform = schema::without_format)]
    pub members: i64,

    /// How many applied the revision and are healthy.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub updated: i64,

    /// How many failed at the revision.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub failed: i64,

    /// How many are left out, because they are suspended or their cluster does not respond.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub skipped: i64,

    /// Since when all of them have the revision and are healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_since: Option<Time>,
}
