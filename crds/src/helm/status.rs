//! The status of a HelmRelease.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::string_enum::choice;
use crate::{GoDuration, ResourceInventory, omit_empty, schema};

/// What was last released.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("default" = { "observedGeneration": -1 }))]
pub struct HelmReleaseStatus {
    /// The generation of the spec that was last reconciled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The digest of the post-renderers of the last release that succeeded.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub observed_post_renderers_digest: Option<String>,

    /// The digest of the common metadata of the last release that succeeded.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub observed_common_metadata_digest: Option<String>,

    /// The generation of the spec that was last attempted.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    pub last_attempted_generation: i64,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// The HelmChart that was created for this release, as `<namespace>/<name>`.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub helm_chart: Option<String>,

    /// The namespace of Helm's records for the current release.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub storage_namespace: Option<String>,

    /// The revisions that were made for this object, newest first, back to the last good one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Snapshot>,

    /// The objects of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,

    /// The action that was last attempted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_attempted_release_action: Option<ReleaseAction>,

    /// How long the action took that was last attempted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_attempted_release_action_duration: Option<GoDuration>,

    /// How many attempts have failed for the current desired state.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    pub failures: i64,

    /// How many installs have failed for the current desired state.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    pub install_failures: i64,

    /// How many upgrades have failed for the current desired state.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    pub upgrade_failures: i64,

    /// The version of the chart that was last attempted.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<String>,

    /// The digest of the OCI artifact that was last attempted.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision_digest: Option<String>,

    /// An older form of `lastAttemptedConfigDigest`, no longer written.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_attempted_values_checksum: Option<String>,

    /// An older form of the revision in `history`, no longer written.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub last_release_revision: i64,

    /// The digest of the values that were last tried.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_attempted_config_digest: Option<String>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,

    /// The value of the `reconcile.fluxcd.io/forceAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_force_at: Option<String>,

    /// The value of the `reconcile.fluxcd.io/resetAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reset_at: Option<String>,
}

choice! {
    /// An action that makes a new revision of a release.
    ReleaseAction {
        /// The first revision.
        #[default]
        Install = "install",
        /// A further one.
        Upgrade = "upgrade",
    }
}

/// One revision of a release, and enough about it to tell whether it is still what was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// How `digest` was taken: `v2`, or empty for the oldest way.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub api_version: Option<String>,

    /// The digest of the release as it was made, as `<algorithm>:<value>`.
    pub digest: String,

    /// The name of the release.
    pub name: String,

    /// The namespace of the release.
    pub namespace: String,

    /// The number of the revision.
    #[schemars(transform = schema::without_format)]
    pub version: i64,

    /// The state of the revision, as Helm names it.
    pub status: String,

    /// The last action that touched the revision.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub action: Option<String>,

    /// The name of the chart.
    pub chart_name: String,

    /// The version of the chart.
    pub chart_version: String,

    /// The version of the application in the chart.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub app_version: Option<String>,

    /// The digest of the values, as `<algorithm>:<value>`.
    pub config_digest: String,

    /// When the release was first installed.
    pub first_deployed: Time,

    /// When the revision was made.
    pub last_deployed: Time,

    /// When the revision was uninstalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Time>,

    /// The tests of the revision, by the names of their hooks. Absent until tests have run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_hooks: Option<BTreeMap<String, TestHookStatus>>,

    /// The digest of the OCI artifact that held the chart.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub oci_digest: Option<String>,
}

/// The outcome of one test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestHookStatus {
    /// When the test was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_started: Option<Time>,

    /// When the test ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_completed: Option<Time>,

    /// How the test ended, as Helm names it.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub phase: Option<String>,
}
