//! The contract: the Flux v2 APIs and groups of our own as Rust types, and the CustomResourceDefinitions made from them.
//!
//! Here: one folder per API group with one file per kind, and the structs that several kinds share. A folder has the first
//! word of its group: `source` is `source.toolkit.fluxcd.io`. Exceptions: `source_extensions` is
//! `source.extensions.fluxcd.io`, `windlass_notification`, `windlass_release` and `windlass_source` are `notification`,
//! `release` and `source` of `windlass.dev`, `operation_lifecycle` is `lifecycle.windlass.dev`, and `helmfile` also has the
//! kind of helmfile-operator (`apps.mumoshu.github.io`).
//! Elsewhere: what the fields do (`operator`), how YAML text is written (`engines/goyaml`).
//! This crate uses nothing of ours, so a field can be read here without knowing the program.
//!
//! Missing and empty mean the same wherever they do in Go: an empty optional text reads as `None`,
//! an absent list as an empty one, an absent switch as `false`, and none of them is written back.
//! Unknown fields are ignored, so a newer peer may write to the same objects.
//! A value outside an enumeration does not parse; readers of whole lists should isolate such
//! objects (`kube_core::DeserializeGuard`) instead of failing the list.

mod artifact;
mod condition;
mod custom_resource;
mod duration;
mod health_check;
pub mod helm;
pub mod helmfile;
pub mod image;
mod inventory;
pub mod kustomize;
pub mod notification;
mod object_reference;
mod omit_empty;
pub mod operation_lifecycle;
mod patches_and_images;
mod reconciled_object;
mod schema;
pub mod source;
pub mod source_extensions;
mod string_enum;
pub mod windlass_notification;
pub mod windlass_release;
pub mod windlass_source;

#[cfg(test)]
mod tests;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use custom_resource::CustomResourceNames;

pub use artifact::Artifact;
pub use condition::Condition;
pub use custom_resource::KindNames;
pub use duration::GoDuration;
pub use health_check::CustomHealthCheck;
pub use inventory::{ResourceInventory, ResourceRef};
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
pub use object_reference::{
    ConfigKind, DependencyReference, KubeConfigReference, LocalObjectReference,
    NamespacedObjectKindReference, SecretKeyReference,
};
pub use patches_and_images::{CommonMetadata, IgnoreRule, Image, Patch, Selector};
pub use reconciled_object::{
    Applier, ArtifactSource, ObjectStatus, ReconciledObject, SourceStatus,
};

/// A kind: its CRD, and its type for those who have objects as JSON.
#[derive(Clone, Copy)]
struct KindDefinition {
    called: &'static KindNames,
    crd: fn() -> CustomResourceDefinition,
    rewrite: fn(Value) -> Result<Value, serde_json::Error>,
}

impl KindDefinition {
    const fn of<K: CustomResourceExt + DeserializeOwned + CustomResourceNames + Serialize>() -> Self
    {
        let rewrite = |object| serde_json::to_value(serde_json::from_value::<K>(object)?);
        Self { called: K::CALLED, crd: K::crd, rewrite }
    }
}

/// The list of kinds, in the order of the names of their CRDs.
const KINDS: &[KindDefinition] = &[
    KindDefinition::of::<notification::Alert>(),
    KindDefinition::of::<source_extensions::ArtifactGenerator>(),
    KindDefinition::of::<source::Bucket>(),
    KindDefinition::of::<windlass_release::ChangeSet>(),
    KindDefinition::of::<windlass_release::ClusterStagedRollout>(),
    KindDefinition::of::<source::ExternalArtifact>(),
    KindDefinition::of::<windlass_release::FreezeBypass>(),
    KindDefinition::of::<windlass_release::Freeze>(),
    KindDefinition::of::<source::GitRepository>(),
    KindDefinition::of::<source::HelmChart>(),
    KindDefinition::of::<helmfile::mumoshu_helmfile::Helmfile>(),
    KindDefinition::of::<helmfile::Helmfile>(),
    KindDefinition::of::<helm::HelmRelease>(),
    KindDefinition::of::<source::HelmRepository>(),
    KindDefinition::of::<windlass_source::HTTPArchive>(),
    KindDefinition::of::<image::ImagePolicy>(),
    KindDefinition::of::<image::ImageRepository>(),
    KindDefinition::of::<image::ImageUpdateAutomation>(),
    KindDefinition::of::<windlass_notification::Incident>(),
    KindDefinition::of::<kustomize::Kustomization>(),
    KindDefinition::of::<operation_lifecycle::LifecycleBinding>(),
    KindDefinition::of::<operation_lifecycle::LifecycleEvent>(),
    KindDefinition::of::<operation_lifecycle::Lifecycle>(),
    KindDefinition::of::<source::OCIRepository>(),
    KindDefinition::of::<windlass_release::PlanPolicy>(),
    KindDefinition::of::<windlass_release::Plan>(),
    KindDefinition::of::<notification::Provider>(),
    KindDefinition::of::<windlass_release::Quarantine>(),
    KindDefinition::of::<notification::Receiver>(),
    KindDefinition::of::<windlass_release::ReleaseAudit>(),
    KindDefinition::of::<windlass_release::StagedRollout>(),
];

/// Returns every CRD with the name of the file that holds it, in the order of those names.
///
/// # Guarantees
/// Schemas of Flux's kinds equal Flux's apart from descriptions; `cargo xtask conformance` holds the proof.
pub fn all() -> Vec<(String, CustomResourceDefinition)> {
    let file = |crd: &CustomResourceDefinition| {
        format!("{}.{}.yaml", crd.spec.names.plural, crd.spec.group)
    };
    KINDS.iter().map(|kind| (kind.crd)()).map(|crd| (file(&crd), crd)).collect()
}

/// How every kind is called, in the order of [`all`].
pub fn names() -> impl Iterator<Item = &'static KindNames> {
    KINDS.iter().map(|kind| kind.called)
}

/// An object as the type of its kind reads and writes it: without what the type does not know. `None` if its `apiVersion`
/// and `kind` are of no kind here.
///
/// # Errors
/// Says what the type cannot read.
pub fn rewritten(object: &Value) -> Option<Result<Value, serde_json::Error>> {
    let is_its = |kind: &&KindDefinition| {
        let spec = (kind.crd)().spec;
        let mut versions = spec.versions.iter().map(|it| format!("{}/{}", spec.group, it.name));
        object["kind"] == spec.names.kind.as_str()
            && versions.any(|version| object["apiVersion"] == version.as_str())
    };
    let kind = KINDS.iter().find(is_its)?;
    Some((kind.rewrite)(object.clone()))
}
