//! Manages the Helm release of a HelmRelease. Records are stored as by Helm, decisions are those of Flux, and operations
//! consist of steps that survive a crash.
//!
//! ```text
//!   Desired ─┐                                        ┌─ Outcome: conditions, the next run
//!            ├─ plan ─ Step ─ performed ─ observed ─ ┤
//!   Observed ┘                                        └─ plan …
//! ```
//!
//! Installations, upgrades, requested rollbacks and removals are judged before their first step.
//! [`ReleaseStep::JudgeOperation`] ends the run if a user must approve the operation first.
//!
//! # An installation, step by step
//! The program runs [`HelmReleasePlanner`] with `reconcile::drive`. Each run provides the status, all [`ReleaseRevisions`] of
//! the release that [`released`] names, and the observations that [`need`] requires. The plan stores nothing. It returns these
//! steps in turn:
//!
//! 1. [`ReleaseStep::Tell`]: write the status (`lastAttempted…`, conditions, counters, history), set `Reconciling` to
//!    [`status::ReleaseReport::progress`], then emit the events.
//! 2. [`ReleaseStep::Prepare`]: the work that needs no record. Apply the chart's CRDs by policy and wait for them, read
//!    capabilities, render, build the objects, check which client owns existing objects, create the namespace. All of this may
//!    be repeated. Keep the result until the run ends. Without it (after a crash) the plan requests it again.
//! 3. [`ReleaseStep::Open`]: delete the records named by `prune`, write those in `others`, then create the Secret of
//!    [`operation::opened`] ([`storage::pack`], [`storage::labels`]) with the annotation [`journal::ANNOTATION`]. If the Secret
//!    already exists, do not change it: the next run determines its owner. From here on nothing is rendered again.
//! 4. For each hook of `pre-install` by weight and name: [`ReleaseStep::DeleteHook`] if its policy requires it, until the
//!    object is gone; a [`ReleaseStep::Write`] that marks it as running; [`ReleaseStep::CreateHook`], whose object has
//!    [`journal::HOOK_ANNOTATION`]; a write of its uid; observations until it ends; a write of its result. The run does not
//!    wait for this: it ends as `Running`, and changes of [`operation::ObservedLiveObjects::on`] trigger the next run.
//! 5. [`ReleaseStep::Apply`]: the objects of the stored manifest in its order, kind by kind. A write, and observations until
//!    they are ready.
//! 6. The hooks of `post-install`, as in 4.
//! 7. A write of the record as `deployed` and of the journal as ended. A [`ReleaseStep::Tell`] with snapshot, conditions and
//!    event, and a write that notes in the journal that the end was reported.
//! 8. `Settled`, or the tests.
//!
//! # Reporting back
//! A rejected step is not an error of the run: keep [`operation::Outcome`] with the step and Helm's message, and pass it to the
//! next plan. `Err` is for causes outside of the release, such as a lost connection. A conflict when writing a record is an
//! `Err`, too, because another client works on the release then. [`RunProgress::note`] receives each step. `Outcome` and
//! `RunProgress` live as long as a run; everything else is read again.
//!
//! # After a crash
//! The journal records which task is open ([`operation::tasks`]). A step whose end was lost is repeated without harm. An object
//! that this operation created is recognized by its annotation. Applying and deleting are idempotent. Counters in statuses are
//! set to the values in the journal instead of being incremented. If a hook was begun, but its object is gone before any run
//! observed its end, the hook counts as failed. A pending record without a journal of this HelmRelease belongs to an unfinished
//! operation of another client. It is unlocked as Flux does.
//!
//! Here: all decisions that need no cluster. Elsewhere: rendering (`helm`), objects (`objects`), performing the steps (the
//! program).

pub mod audit;
pub mod failure_policy;
pub mod gated_release_change;
pub mod helm_release_planner;
pub mod journal;
pub mod journaled_deletions;
pub mod lifecycle_hold;
pub mod operation;
pub mod operation_origin;
pub mod operation_status_changes;
pub mod planned_operation;
pub mod record;
pub mod release_decision;
pub mod release_snapshot;
pub mod release_spec;
pub mod release_step;
pub mod release_target;
pub mod removal_order;
pub mod revisions;
#[cfg(test)]
mod simulated_cluster;
pub mod status;
pub mod storage;

use reconcile::time_json;

pub use helm_release_planner::{
    HelmReleasePlanner, ReleaseObservedState, RequiredObservation, RunProgress, need, released,
};
pub use journal::{OperationJournal, OperationKind};
pub use operation_origin::OperationOrigin;
pub use planned_operation::PlannedOperation;
pub use record::ReleaseRecord;
pub use release_snapshot::ReleaseSnapshot;
pub use release_spec::{ReleaseDesiredState, ReleaseSpec};
pub use release_step::ReleaseStep;
pub use revisions::{BrokenReleaseRevision, ReleaseRevision, ReleaseRevisions};
