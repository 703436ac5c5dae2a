//! Decides what to write to a cluster, in which order, and what is healthy.
//!
//! Here: ownership and switches ([`managed_metadata`]), the inventory ([`inventory`]), order and stages
//! ([`apply_order`], [`mod@stages`], [`deletion_order`]), drift ([`drift_comparison`], [`mod@fingerprint`], [`drift_ignore_rules`]), the objects that
//! an audit lists ([`object_changes`]), foreign field managers ([`field_takeover`]), the form of manifests
//! ([`mod@normalize`]), Secrets that are shown ([`mod@mask`]), namespaces of cluster-scoped objects
//! ([`cluster_scope`]), refusals ([`dry_run_refusal`]), controllers that revert applied objects ([`field_conflict`],
//! [`contested_object_corrections`]), writes that may have been done ([`unanswered_writes`]),
//! how much may be deleted ([`deletion_budget`], [`recent_deletions`], [`generated_objects`]), which changes wait for an
//! approval and what it is for ([`result_changes`]), what leaves manifests ([`left_manifests`]), the marks of Helm
//! ([`release_ownership`]), health ([`health`], [`legacy_readiness`]), and the plan of one run that follows from all of them
//! ([`kustomization_apply_planner`]). Elsewhere: what a verdict is (`reconcile`), what an object is (`objects`), every request
//! to a cluster (the program's `cluster` room).

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
