//! Artifacts: what a source hands to its consumers.
//!
//! Here: the record in a status. Elsewhere: the files themselves (`sources`).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A packed file tree that a source has stored and serves over HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// The digest of the packed file, as `<algorithm>:<value>`.
    // Statuses written before digests existed have a `checksum` instead, so it may be missing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(!default, !skip_serializing_if)]
    #[schemars(regex(pattern = r"^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$"))]
    pub digest: String,

    /// When the artifact last changed.
    pub last_update_time: Time,

    /// Facts about the origin, such as the annotations of an OCI manifest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,

    /// Where the file lies below the root of the storage.
    pub path: String,

    /// What was fetched, in the notation of its source, such as `main@sha1:9f2c…`.
    pub revision: String,

    /// The size of the packed file in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,

    /// The address from which consumers in the cluster fetch the file.
    pub url: String,
}
