//! The status of a Kustomization.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::{GoDuration, ResourceInventory, omit_empty};

/// What was last applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("default" = { "observedGeneration": -1 }))]
pub struct KustomizationStatus {
    /// The generation of the spec that was last reconciled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// The revision of the source that was last applied with success.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_applied_revision: Option<String>,

    /// The revision from which the source's own origin says that it was made, when that revision
    /// of the source was last applied with success.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_applied_origin_revision: Option<String>,

    /// The revision of the source that was last attempted.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<String>,

    /// The objects that are owned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,

    /// The last outcomes, newest first. Outcomes of the same build count as one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}

/// The outcome of one build of the manifests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// The digest of the built manifests.
    pub digest: String,

    /// When this outcome occurred for the first time.
    pub first_reconciled: Time,

    /// When this outcome occurred for the last time.
    pub last_reconciled: Time,

    /// How long the last run took.
    #[schemars(with = "String")]
    pub last_reconciled_duration: GoDuration,

    /// How the last run ended, as the reason of its `Ready` condition.
    pub last_reconciled_status: String,

    /// How often this outcome occurred.
    pub total_reconciliations: i64,

    /// Facts about the build, such as the revision of the source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}
