//! The trait bounds of the kinds that windlass reconciles.

use kube::core::{NamespaceResourceScope, Resource};
use serde::de::DeserializeOwned;

/// A kind that windlass reconciles: typed, namespaced, with a static API.
pub trait WindlassKind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + serde::Serialize
    + Send
    + Sync
    + 'static
{
}

impl<K> WindlassKind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + serde::Serialize
        + Send
        + Sync
        + 'static
{
}
