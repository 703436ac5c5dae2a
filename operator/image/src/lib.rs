//! The image kinds. ImageRepositories list tags, ImagePolicies choose the latest tag, and ImageUpdateAutomations commit it to
//! Git repositories.
//!
//! Here: a folder for each kind ([`image_repository`], [`image_policy`], [`image_update_automation`]), the parts of a run that
//! they share (`image_kind_run`), access to registries (`registry_access`), the tags between two scans (`tag_store`), whether
//! images have to be signed (`image_verification`), verified versions (`verified_image_versions`).
//! Elsewhere: the decisions (engine `image`), registries (`sources::oci`), repositories (`git`), how any kind is run (crate
//! `windlass-runtime`), the list of kinds (crate `windlass-kinds`).

mod image_kind_run;
pub mod image_policy;
pub mod image_repository;
pub mod image_update_automation;
mod image_verification;
mod registry_access;
mod tag_store;
mod verified_image_versions;

use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};

/// The limit on the work of one object's regular expressions and ranges. It allows a few seconds of CPU time for the longest
/// list of tags.
const TAG_COMPARISON_ALLOWANCE: WorkAllowance =
    WorkAllowance { steps: 2_000_000_000, bytes: 256 << 20 };

/// A meter for the work of comparing one object's tags.
fn tag_meter() -> WorkMeter {
    WorkMeter::new(TAG_COMPARISON_ALLOWANCE, StopSignal::default())
}
