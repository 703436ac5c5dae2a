//! The group `kustomize.toolkit.fluxcd.io/v1`: manifests that are kept applied.
//!
//! Here: its one kind, with the status in a file of its own.
//! Elsewhere: kustomize itself (`engines/kustomize`), running (`operator/kustomize`).

mod kustomization;
mod status;

pub use kustomization::{
    BuildMetadata, CrossNamespaceSourceReference, Decryption, DecryptionProvider, DeletionPolicy,
    Kustomization, KustomizationSourceKind, KustomizationSpec, PostBuild, SubstituteReference,
    SubstituteStrategy,
};
pub use status::{HistoryEntry, KustomizationStatus};
