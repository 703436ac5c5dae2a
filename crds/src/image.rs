//! The group `image.toolkit.fluxcd.io/v1`: which tags images have, which of them is the latest, and where that is committed.
//!
//! Here: one file per kind. Elsewhere: the decisions (`engines/image`), running (`operator/image`).

mod image_policy;
mod image_repository;
mod image_update_automation;

pub use image_policy::{
    AlphabeticalPolicy, DigestReflectionPolicy, ImagePolicy, ImagePolicyChoice, ImagePolicySpec,
    ImagePolicyStatus, ImageRef, ImageRepositoryReference, NumericalPolicy, SemVerPolicy,
    TagFilter,
};
pub use image_repository::{
    ImageRepository, ImageRepositorySpec, ImageRepositoryStatus, ScanResult,
};
pub use image_update_automation::{
    CommitSigningKey, CommitUser, GitCheckoutSpec, GitCommitSpec, GitPushSpec,
    ImageUpdateAutomation, ImageUpdateAutomationSpec, ImageUpdateAutomationStatus,
    ImageUpdateGitSpec, ImageUpdateSourceReference, UpdateStrategy,
};
