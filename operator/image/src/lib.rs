//! Images that update themselves: ImageRepositories list tags, ImagePolicies choose the latest of them,
//! ImageUpdateAutomations commit that to Git repositories.
//!
//! Here: a folder for each kind ([`image_repository`], [`image_policy`], [`image_update_automation`]), what they share of a
//! run (`image_kind_run`), access to registries (`registry_access`), the tags between two scans (`tag_store`), whether images have to be
//! signed (`image_verification`), what was verified of them (`verified_versions`).
//! Elsewhere: the decisions (engine `image`), registries (`sources::oci`), repositories (`git`), how any kind is run
//! (crate `windlass-runtime`), the list of kinds (crate `windlass-kinds`).

mod image_kind_run;
pub mod image_policy;
pub mod image_repository;
pub mod image_update_automation;
mod image_verification;
mod registry_access;
mod tag_store;
mod verified_versions;

use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};

/// What the regular expressions and ranges of one object may cost: a few seconds of a processor for the longest list of
/// tags that is read.
const TAG_COMPARISON_ALLOWANCE: WorkAllowance =
    WorkAllowance { steps: 2_000_000_000, bytes: 256 << 20 };

/// Counts what comparing the tags of one object costs.
fn tag_meter() -> WorkMeter {
    WorkMeter::new(TAG_COMPARISON_ALLOWANCE, StopSignal::default())
}
