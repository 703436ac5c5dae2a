//! Decides what to write to a cluster, in which order, and what is healthy.
//!
//! Here: ownership and switches ([`meta`]), the inventory ([`inventory`]), order and stages ([`order`], [`mod@stages`]),
//! drift ([`compare`], [`mod@fingerprint`], [`ignore`]), the objects that an audit lists ([`changes`]), foreign field
//! managers ([`takeover`]), the form of manifests ([`mod@normalize`]), Secrets that are shown ([`mod@mask`]),
//! namespaces of cluster-scoped objects ([`scope`]), refusals ([`refusal`]), controllers that revert applied objects
//! ([`field_conflict`]), health ([`health`]), and the plan of one run that follows from all of them ([`plan`]).
//! Elsewhere: what a verdict is (`reconcile`), what an object is (`objects`), every request to a cluster (the program's `cluster` room).

pub mod changes;
pub mod compare;
pub mod field_conflict;
mod field_path;
pub mod fingerprint;
pub mod health;
pub mod ignore;
pub mod inventory;
pub mod mask;
pub mod meta;
pub mod normalize;
pub mod order;
pub mod plan;
pub mod refusal;
pub mod removed_fields;
pub mod scope;
pub mod stages;
mod takeover;

pub use compare::{Action, diff_paths, digest, has_drifted};
pub use fingerprint::fingerprint;
pub use health::{Health, Report};
pub use inventory::Inventory;
pub use mask::mask;
pub use meta::{Ssa, Switches, is_owned, switches};
pub use normalize::normalize;
pub(crate) use order::prune_order;
pub use plan::{
    Apply, ApplyDesiredState, ApplyObservedState, ApplyStep, DesiredHealth, FailedWait,
    ObservedObject, SeenState,
};
pub use removed_fields::after_take_over;
pub use stages::{DuplicateObject, Manifest, Stage, StageKind, stages};
pub use takeover::{take_over, take_over_from};
