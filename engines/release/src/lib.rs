//! Releases of Helm as a HelmRelease keeps them: stored as Helm stores them, decided about as Flux decides, and done in
//! steps that survive a crash.
//!
//! ```text
//!   Desired ─┐                                        ┌─ Outcome: conditions, the next run
//!            ├─ plan ─ Step ─ performed ─ observed ─ ┤
//!   Observed ┘                                        └─ plan …
//! ```
//!
//! What an installation, an upgrade, a requested rollback, the removal of a release that is not desired any more or one that is to undo a failed
//! operation would do is judged before any of its steps: [`ReleaseStep::JudgeOperation`] ends the run if a user has to approve
//! it first.
//!
//! # An installation, step by step
//! The program runs [`HelmReleasePlanner`] with `reconcile::drive`. Each run brings the status, all [`ReleaseRevisions`]
//! of the release that [`released`] names, and what [`need`] asks for. Nothing is stored; the plan returns in turn:
//!
//! 1. [`ReleaseStep::Tell`]: write the status (`lastAttempted…`, conditions, counters, history), set `Reconciling` to
//!    [`status::ReleaseReport::progress`], then emit the events.
//! 2. [`ReleaseStep::Prepare`]: what needs no record. Apply the chart's CRDs by policy and wait for them, read capabilities,
//!    render, build the objects, check whose those are that exist, create the namespace. All of it may be repeated.
//!    Keep the result until the run ends; without it (after a crash) the plan asks again.
//! 3. [`ReleaseStep::Open`]: delete the records named by `prune`, write those in `others`, then create the Secret of
//!    [`operation::opened`] ([`storage::pack`], [`storage::labels`]) with the annotation [`journal::ANNOTATION`].
//!    Is it there already, leave it: the next run tells whose it is. From here on nothing is rendered again.
//! 4. For each hook of `pre-install` by weight and name: [`ReleaseStep::DeleteHook`] where its policy says so, until a run shows it
//!    gone; a [`ReleaseStep::Write`] that says it runs; [`ReleaseStep::CreateHook`], whose object carries
//!    [`journal::HOOK_ANNOTATION`]; a write of its uid; observations until it ends; a write of how. A run does not
//!    sleep meanwhile: it ends as `Running` and is woken by what [`operation::ObservedLiveObjects::on`] names.
//! 5. [`ReleaseStep::Apply`]: the objects of the stored manifest in its order, kind by kind. A write, and observations until they are ready.
//! 6. The hooks of `post-install`, as in 4.
//! 7. A write of the record as `deployed` and of the journal as ended. A [`ReleaseStep::Tell`] with snapshot,
//!    conditions and event, and a write that notes in the journal that the end was reported.
//! 8. `Settled`, or the tests.
//!
//! # Reporting back
//! A step that was refused is not an error of the run: keep [`operation::Outcome`] with the step and Helm's text, and show it
//! to the next plan, which goes by it. `Err` is for what has nothing to do with the release: no connection, and
//! a conflict when writing a record, which means that another client works on it. [`RunProgress::note`] receives each step.
//! `Outcome` and `RunProgress` live as long as a run; everything else is read again.
//!
//! # After a crash
//! The journal says which task is open ([`operation::tasks`]). A step whose end was lost is done again, which changes
//! nothing: an object that this operation created is recognized by its annotation and awaited; applying and deleting
//! are idempotent; statuses are set to what the journal says, never counted up. A hook that was begun, whose object is
//! gone and whose end no run observed has an unknown outcome and fails. A pending record without a journal of this
//! HelmRelease is the unfinished work of another client, and is unlocked as Flux does.
//!
//! Here: all that can be decided without a cluster. Elsewhere: rendering (`helm`), objects (`objects`), performing the
//! steps (the program).

pub mod audit;
pub mod failure_policy;
pub mod helm_release_planner;
pub mod journal;
pub mod journaled_deletions;
pub mod lifecycle_hold;
pub mod operation;
pub mod operation_origin;
pub mod operation_phase;
pub mod operation_status;
pub mod planned_operation;
pub mod record;
pub mod release_decision;
pub mod release_snapshot;
pub mod release_step;
pub mod release_target;
pub mod removal_order;
pub mod revisions;
pub mod settings;
pub mod status;
pub mod storage;
#[cfg(test)]
mod testing;

use reconcile::time_json;

pub use helm_release_planner::{
    HelmReleasePlanner, ObservationNeed, ReleaseObservedState, RunProgress, need, released,
};
pub use journal::{OperationJournal, OperationKind};
pub use operation_origin::OperationOrigin;
pub use planned_operation::PlannedOperation;
pub use record::ReleaseRecord;
pub use release_snapshot::ReleaseSnapshot;
pub use release_step::ReleaseStep;
pub use revisions::{BrokenReleaseRevision, ReleaseRevision, ReleaseRevisions};
pub use settings::{ReleaseDesiredState, ReleaseSpec};
