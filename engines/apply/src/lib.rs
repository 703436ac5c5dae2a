//! Decides which objects to write to a cluster and in which order, and judges which objects are healthy.
//!
//! * One run: the plan ([`kustomization_apply_planner`]), the stages and the order of objects ([`mod@stages`],
//!   [`apply_order`]), and the inventory ([`inventory`]).
//! * Drift: comparing objects ([`drift_comparison`], [`mod@fingerprint`]), ignored fields ([`drift_ignore_rules`]), and
//!   the changed objects that an audit lists ([`object_changes`]).
//! * Other field managers: taking over their fields ([`field_takeover`]), and controllers that revert applied objects
//!   ([`field_conflict`], [`object_contest`], [`contested_object_corrections`]).
//! * Deletions: their order ([`deletion_order`]), their limits ([`deletion_budget`], [`recent_deletions`],
//!   [`generated_config_maps_and_secrets`]), and the objects that left the manifests ([`prune_candidates`]).
//! * Manifests: their form ([`manifest_normalization`]), namespaces of cluster-scoped objects
//!   ([`cluster_scoped_namespace_removal`]), owner labels and switches ([`owner_labels_and_apply_annotations`]), and the
//!   ownership marks of Helm ([`release_ownership`]).
//! * Answers of the API server: refused dry-runs ([`dry_run_refusal`]), and writes without an answer
//!   ([`unanswered_writes`]).
//! * Approvals: the changes that wait for an approval, the result that the approval is for ([`planned_changes`]), and
//!   whether a reviewed pull request shows them ([`pull_request_review_coverage`]).
//! * Health ([`health`], [`helm3_readiness`]), and Secrets in shown differences ([`secret_mask`]).
//!
//! Elsewhere: the type of a verdict (`reconcile`), the type of an object (`objects`), and all requests to a cluster
//! (the program's `cluster` room).

pub mod apply_order;
pub mod cluster_scoped_namespace_removal;
pub mod contested_object_corrections;
pub mod deletion_budget;
pub mod deletion_order;
pub mod drift_comparison;
pub mod drift_ignore_rules;
pub mod dry_run_refusal;
pub mod field_conflict;
mod field_takeover;
pub mod generated_config_maps_and_secrets;
pub mod health;
pub mod helm3_readiness;
pub mod inventory;
pub mod kustomization_apply_planner;
pub mod managed_fields_fingerprint;
mod managed_fields_path;
pub mod manifest_normalization;
pub mod object_changes;
pub mod object_contest;
pub mod owner_labels_and_apply_annotations;
pub mod planned_changes;
pub mod prune_candidates;
pub mod pull_request_review_coverage;
pub mod recent_deletions;
pub mod release_ownership;
pub mod secret_mask;
pub mod stages;
pub mod takeover_removed_fields;
pub mod three_way_merge;
pub mod unanswered_writes;

pub use drift_comparison::{Action, diff_paths, digest, has_drifted};
pub use field_takeover::{take_over, take_over_from};
pub use health::{HealthStatus, ObjectHealth};
pub use inventory::ObjectInventory;
pub use kustomization_apply_planner::{
    ApplyDesiredState, ApplyObservedState, ApplyStep, FailedHealthWait, HealthWaitScope,
    KustomizationApplyPlanner, LiveObjectDriftState, ObservedObject,
};
pub use managed_fields_fingerprint::fingerprint;
pub use manifest_normalization::normalize;
pub use owner_labels_and_apply_annotations::{
    ObjectApplySwitches, ServerSideApplyPolicy, is_owned, switches,
};
pub use secret_mask::mask;
pub use stages::{ApplyStage, ApplyStageKind, DuplicateObjectError, ManifestToApply, stages};
pub use takeover_removed_fields::after_take_over;
