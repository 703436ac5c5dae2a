//! Health checks written in CEL.
//!
//! Here: the shape that Kustomizations and HelmReleases share.
//! Elsewhere: evaluating the expressions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::omit_empty;

/// Defines how to determine the health of the objects of one API version and kind.
///
/// The fields of the live object are the variables of the expressions, which yield booleans.
/// `inProgress` is evaluated first, then `failed`, then `current`; if none is true, the object is in
/// progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomHealthCheck {
    /// The API group and version of the objects.
    pub api_version: String,

    /// The kind of the objects. Without it, all kinds of that group and version.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub kind: Option<String>,

    /// True when the object has reached its desired state.
    pub current: String,

    /// True while the object is still being reconciled.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub in_progress: Option<String>,

    /// True when the object has failed to reach its desired state.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub failed: Option<String>,
}
