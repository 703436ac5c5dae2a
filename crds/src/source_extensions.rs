//! The group `source.extensions.fluxcd.io/v1beta1`: artifacts that are made of the artifacts of others.
//!
//! Here: one file per kind. Elsewhere: making them (`engines/artifactgen`), running (`operator/source`).

mod artifact_generator;

pub use artifact_generator::{
    ArtifactGenerator, ArtifactGeneratorSourceKind, ArtifactGeneratorSourceReference,
    ArtifactGeneratorSpec, ArtifactGeneratorStatus, CopyOperation, CopyStrategy,
    ExternalArtifactReference, OutputArtifact, RECONCILE_ANNOTATION,
};
