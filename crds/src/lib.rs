//! The contract: the Flux v2 APIs and a group of our own as Rust types, and the CustomResourceDefinitions made from them.
//!
//! Here: one folder per API group with one file per kind, and the structs that several kinds share.
//! Elsewhere: what the fields do (`src/controllers`), how YAML text is written (`engines/goyaml`).
//! This crate uses nothing of ours, so a field can be read here without knowing the program.
//!
//! Missing and empty mean the same wherever they do in Go: an empty optional text reads as `None`,
//! an absent list as an empty one, an absent switch as `false`, and none of them is written back.
//! Unknown fields are ignored, so a newer peer may write to the same objects.
//! A value outside an enumeration does not parse; readers of whole lists should isolate such
//! objects (`kube::core::DeserializeGuard`) instead of failing the list.

mod absent;
mod artifact;
mod choice;
mod condition;
mod custom_resource;
mod duration;
mod health_check;
pub mod helm;
mod inventory;
pub mod kustomize;
mod object;
mod overlay;
mod reference;
mod schema;
pub mod source;
pub mod windlass;

#[cfg(test)]
mod tests;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use artifact::Artifact;
pub use condition::Condition;
pub use duration::GoDuration;
pub use health_check::CustomHealthCheck;
pub use inventory::{ResourceInventory, ResourceRef};
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
pub use object::{Reconciled, Source, SourceStatus, Status};
pub use overlay::{CommonMetadata, IgnoreRule, Image, Patch, Selector};
pub use reference::{
    ConfigKind, DependencyReference, KubeConfigReference, LocalObjectReference,
    NamespacedObjectKindReference, SecretKeyReference,
};

/// Returns every CRD with the name of the file that holds it, in the order of those names.
///
/// # Guarantees
/// Schemas of Flux's kinds equal Flux's apart from descriptions; `cargo xtask conformance` holds the proof.
pub fn all() -> Vec<(&'static str, CustomResourceDefinition)> {
    vec![
        ("buckets.source.toolkit.fluxcd.io.yaml", source::Bucket::crd()),
        ("externalartifacts.source.toolkit.fluxcd.io.yaml", source::ExternalArtifact::crd()),
        ("gitrepositories.source.toolkit.fluxcd.io.yaml", source::GitRepository::crd()),
        ("helmcharts.source.toolkit.fluxcd.io.yaml", source::HelmChart::crd()),
        ("helmreleases.helm.toolkit.fluxcd.io.yaml", helm::HelmRelease::crd()),
        ("helmrepositories.source.toolkit.fluxcd.io.yaml", source::HelmRepository::crd()),
        ("httparchives.source.windlass.dev.yaml", windlass::HTTPArchive::crd()),
        ("kustomizations.kustomize.toolkit.fluxcd.io.yaml", kustomize::Kustomization::crd()),
        ("ocirepositories.source.toolkit.fluxcd.io.yaml", source::OCIRepository::crd()),
    ]
}
