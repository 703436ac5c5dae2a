//! Inventories: the objects that a Kustomization or HelmRelease has put into a cluster.
//!
//! Here: the record in a status.
//! Elsewhere: the notation of the ids and the order of pruning (`engines/apply`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The objects that are owned, whether or not they still exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInventory {
    /// The owned objects.
    pub entries: Vec<ResourceRef>,
}

/// One owned object.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct ResourceRef {
    /// The object, as `<namespace>_<name>_<group>_<kind>`.
    pub id: String,

    /// The version of the API group through which the object was applied.
    #[serde(rename = "v")]
    pub version: String,
}
