//! The group `image.toolkit.fluxcd.io/v1`: which tags images have, and which of them is the latest.
//!
//! Here: one file per kind. Elsewhere: the decisions (`engines/image`), running (`operator/image`).

mod image_policy;
mod image_repository;

pub use image_policy::{
    AlphabeticalPolicy, DigestReflectionPolicy, ImagePolicy, ImagePolicyChoice, ImagePolicySpec,
    ImagePolicyStatus, ImageRef, ImageRepositoryReference, NumericalPolicy, SemVerPolicy,
    TagFilter,
};
pub use image_repository::{
    ImageRepository, ImageRepositorySpec, ImageRepositoryStatus, ScanResult,
};
