//! Overlays: how objects are changed before they are applied.
//!
//! Here: the shapes that Kustomizations and HelmReleases share.
//! The order of the fields is that of Flux's Go structs, because digests in statuses are taken over
//! their JSON.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::omit_empty;

/// Labels and annotations to set on every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonMetadata {
    /// Annotations to set. They replace values that the objects already have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// Labels to set. They replace values that the objects already have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A patch and the objects that it is meant for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    /// The patch as YAML: either a strategic merge patch or a list of JSON 6902 operations.
    pub patch: String,

    /// The objects to patch. A strategic merge patch without a target names its object itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Selector>,
}

/// Selects objects; every field that is set has to match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// The API group, as a regular expression that has to match all of it.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub group: Option<String>,

    /// The API version, as a regular expression that has to match all of it.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub version: Option<String>,

    /// The kind, as a regular expression that has to match all of it.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub kind: Option<String>,

    /// The namespace, as a regular expression that has to match all of it.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub namespace: Option<String>,

    /// The name, as a regular expression that has to match all of it.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub name: Option<String>,

    /// A selector over annotations, in the notation of Kubernetes' label selectors.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub annotation_selector: Option<String>,

    /// A selector over labels, in the notation of Kubernetes' label selectors.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub label_selector: Option<String>,
}

/// Replaces the name, tag or digest of a container image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// The image to look for, without tag or digest.
    pub name: String,

    /// The name to put in its place.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub new_name: Option<String>,

    /// The tag to put in place of the one found.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub new_tag: Option<String>,

    /// The digest to put in place of a tag. It wins over `newTag`.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub digest: Option<String>,
}

/// Fields that others may change without that counting as drift.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IgnoreRule {
    /// The fields, as JSON pointers (RFC 6901).
    pub paths: Vec<String>,

    /// The objects that the rule is for. Without it the rule is for all objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Selector>,
}
