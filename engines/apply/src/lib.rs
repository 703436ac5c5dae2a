//! Decides which objects to write to a cluster and in which order, and judges which objects are healthy.
//!
//! * One run: the plan ([`kustomization_apply_planner`]), the stages and the order of objects ([`mod@stages`],
//!   [`apply_order`]), and the inventory ([`inventory`]).
//! * Drift: comparing objects ([`drift_comparison`], [`mod@fingerprint`]), ignored fields ([`drift_ignore_rules`]), and
//!   the changed objects that an audit lists ([`object_changes`]).
//! * Other field managers: taking over their fields ([`field_takeover`]), and controllers that revert applied objects
//!   ([`field_conflict`], [`contested_object_corrections`]).
//! * Deletions: their order ([`deletion_order`]), their limits ([`deletion_budget`], [`recent_deletions`],
//!   [`generated_objects`]), and the objects that left the manifests ([`left_manifests`]).
//! * Manifests: their form ([`mod@normalize`]), namespaces of cluster-scoped objects ([`cluster_scope`]), owner labels
//!   and switches ([`managed_metadata`]), and the ownership marks of Helm ([`release_ownership`]).
//! * Answers of the API server: refused dry-runs ([`dry_run_refusal`]), and writes without an answer
//!   ([`unanswered_writes`]).
//! * Approvals: the changes that wait for an approval, and the result that the approval is for ([`result_changes`]).
//! * Health ([`health`], [`legacy_readiness`]), and Secrets in shown differences ([`mod@mask`]).
//!
//! Elsewhere: the type of a verdict (`reconcile`), the type of an object (`objects`), and all requests to a cluster
//! (the program's `cluster` room).

pub mod apply_order;
pub mod cluster_scope;
pub mod contested_object_corrections;
pub mod deletion_budget;
pub mod deletion_order;
pub mod drift_comparison;
pub mod drift_ignore_rules;
pub mod dry_run_refusal;
pub mod field_conflict;
mod field_takeover;
pub mod fingerprint;
pub mod generated_objects;
pub mod health;
pub mod inventory;
pub mod kustomization_apply_planner;
pub mod left_manifests;
pub mod legacy_readiness;
mod managed_fields_path;
pub mod managed_metadata;
pub mod normalize;
pub mod object_changes;
pub mod recent_deletions;
pub mod release_ownership;
pub mod removed_fields;
pub mod result_changes;
pub mod secret_mask;
pub mod stages;
pub mod three_way_merge;
pub mod unanswered_writes;

pub use drift_comparison::{Action, diff_paths, digest, has_drifted};
pub use field_takeover::{take_over, take_over_from};
pub use fingerprint::fingerprint;
pub use health::{HealthReport, HealthStatus};
pub use inventory::ObjectInventory;
pub use kustomization_apply_planner::{
    ApplyDesiredState, ApplyObservedState, ApplyStep, FailedHealthWait, HealthWaitScope,
    KustomizationApplyPlanner, LiveObjectState, ObservedObject,
};
pub use managed_metadata::{ObjectApplySwitches, ServerSideApplyPolicy, is_owned, switches};
pub use normalize::normalize;
pub use removed_fields::after_take_over;
pub use secret_mask::mask;
pub use stages::{ApplyStage, ApplyStageKind, DuplicateObjectError, ManifestToApply, stages};
