//! An operation on a release as a list of tasks. It does the same as Helm's action, but can be resumed after any task.
//!
//! ```text
//!   install, upgrade, rollback   (Hold) ─ hooks before ─ Apply ─ Await ─ hooks after ─ (Hold) ─ (Supersede) ─ Finish
//!   test                         hooks ─ (Hold) ─ Finish
//!   uninstall                    (Hold) ─ Mark ─ hooks before ─ Delete ─ AwaitGone ─ hooks after ─ (Hold) ─ Finish, or Purge
//!   hooks of an event            (Clear) Start Run, one after the other; then Clear of those that succeeded
//!   after a failure              Clear of the hooks that ask for it ─ Finish ─ (CleanUp)
//! ```
//!
//! The order and the strings are those of Helm 4.2 `pkg/action`.
//!
//! Here: the tasks ([`tasks`]) and advancing from one to the next. Below: the next step of the present task
//! (`operation/next_step.rs`), how an operation fails (`operation/failure.rs`), the number of a new revision
//! (`operation/new_revision_plan.rs`), making its record (`operation/initial_record.rs`).
//! Elsewhere: the state of an operation ([`crate::journal`]), which operation is due ([`crate::release_decision`]).

mod failure;
mod initial_record;
mod new_revision_plan;
mod next_step;
#[cfg(test)]
mod tests;

use helm::manifests::HookEvent;
use lifecycle::LifecycleHoldPhase;
use reconcile::Time;

use crate::journal::{
    OperationFailure, OperationJournal, OperationKind, ReleaseWaitPolicy, TimedTaskKind,
};
use crate::record::{HookDeletePolicy, RecordContentChange, ReleaseRecord, RevisionStatus};

pub use initial_record::{NewRevisionInputs, opened, rolled_back};
pub use new_revision_plan::{NewRevisionPlan, RemainingReleaseRemoval, place, removal};
pub use next_step::{
    ObservationScope, ObservedHealth, ObservedHookObject, ObservedLiveObjects, OperationNextStep,
    StepOutcome, next, scope,
};

/// One thing that an operation has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationTask {
    /// Deletes the object of a hook. An object that this operation itself created stays if the task is at the hook's beginning.
    Clear {
        /// The hook's index in the record.
        hook: usize,
        /// The occasion.
        policy: HookDeletePolicy,
    },
    /// The record marks a hook as running.
    Start {
        /// The hook's index in the record.
        hook: usize,
    },
    /// A hook is to be created and to end.
    Run {
        /// The hook's index in the record.
        hook: usize,
    },
    /// A lifecycle is to let the operation continue.
    Hold {
        /// The lifecycle's index in the plan.
        hold: usize,
        /// The phase.
        phase: LifecycleHoldPhase,
    },
    /// The objects of the record are to be created or updated.
    Apply,
    /// Waits until the objects are ready.
    Await,
    /// The record is marked as `uninstalling`.
    Mark,
    /// The objects of the record are to be deleted.
    Delete,
    /// Waits until the objects are deleted.
    AwaitGone,
    /// Other revisions are marked as superseded.
    Supersede,
    /// The record gets its final status.
    Finish,
    /// Deletes the objects that the operation created.
    CleanUp,
    /// Deletes all records, with this one last.
    Purge,
}

/// The step under which an audit lists a task; `None` for a task that is not listed.
fn stretch(task: OperationTask) -> Option<TimedTaskKind> {
    match task {
        OperationTask::Apply => Some(TimedTaskKind::Apply),
        OperationTask::Await => Some(TimedTaskKind::Wait),
        OperationTask::Delete => Some(TimedTaskKind::Delete),
        OperationTask::AwaitGone => Some(TimedTaskKind::WaitGone),
        OperationTask::CleanUp => Some(TimedTaskKind::CleanUp),
        OperationTask::Clear { .. }
        | OperationTask::Start { .. }
        | OperationTask::Run { .. }
        | OperationTask::Hold { .. }
        | OperationTask::Mark
        | OperationTask::Supersede
        | OperationTask::Finish
        | OperationTask::Purge => None,
    }
}

/// Which moments of an action hooks have, before and after.
pub(crate) fn events(action: OperationKind) -> (HookEvent, Option<HookEvent>) {
    match action {
        OperationKind::Install => (HookEvent::PreInstall, Some(HookEvent::PostInstall)),
        OperationKind::Upgrade => (HookEvent::PreUpgrade, Some(HookEvent::PostUpgrade)),
        OperationKind::Rollback => (HookEvent::PreRollback, Some(HookEvent::PostRollback)),
        OperationKind::Test => (HookEvent::Test, None),
        OperationKind::Uninstall | OperationKind::UninstallRemediation => {
            (HookEvent::PreDelete, Some(HookEvent::PostDelete))
        }
    }
}

/// The hooks of an event, by their indexes in the record, in the order in which they run: by weight, then by name, then as
/// listed.
///
/// A hook that names an event twice runs twice, as in Helm.
fn hooks_of(event: HookEvent, journal: &OperationJournal, record: &ReleaseRecord) -> Vec<usize> {
    if !journal.plan.hooks && journal.action != OperationKind::Test {
        return Vec::new();
    }
    let is_in = |place: &usize| {
        journal.plan.selected.as_ref().is_none_or(|selected| selected.contains(place))
    };
    let word = event.as_str();
    let all = record.hooks.iter().enumerate().flat_map(|(place, hook)| {
        hook.events.iter().filter(move |it| *it == word).map(move |_| place)
    });
    let mut places: Vec<usize> = all.filter(is_in).collect();
    places.sort_by(|a, b| {
        let key = |place: usize| record.hooks.get(place).map(|it| (it.weight, it.name.as_str()));
        key(*a).cmp(&key(*b))
    });
    places
}

/// The tasks of one event: each hook, and then the deletion of hooks that ask for it once all have succeeded.
fn event_tasks(
    event: HookEvent,
    journal: &OperationJournal,
    record: &ReleaseRecord,
    tasks: &mut Vec<OperationTask>,
) {
    let hooks = hooks_of(event, journal, record);
    let is_deleted =
        |hook: usize, policy| record.hooks.get(hook).is_some_and(|it| it.is_deleted(policy));
    for hook in hooks.iter().copied() {
        let policy = HookDeletePolicy::BeforeHookCreation;
        if is_deleted(hook, policy) {
            tasks.push(OperationTask::Clear { hook, policy });
        }
        tasks.extend([OperationTask::Start { hook }, OperationTask::Run { hook }]);
    }
    let policy = HookDeletePolicy::HookSucceeded;
    let done = hooks.into_iter().rev().filter(|hook| is_deleted(*hook, policy));
    tasks.extend(done.map(|hook| OperationTask::Clear { hook, policy }));
}

/// The phases before and after the tasks of an action, if they are tasks themselves. An installation or upgrade has passed the
/// first phase before it has a record.
fn phases(action: OperationKind) -> (Option<LifecycleHoldPhase>, Option<LifecycleHoldPhase>) {
    match action {
        OperationKind::Install => (None, Some(LifecycleHoldPhase::PostInstall)),
        OperationKind::Upgrade => (None, Some(LifecycleHoldPhase::PostUpgrade)),
        OperationKind::Rollback => {
            (Some(LifecycleHoldPhase::PreRollback), Some(LifecycleHoldPhase::PostRollback))
        }
        OperationKind::Uninstall => {
            (Some(LifecycleHoldPhase::PreDelete), Some(LifecycleHoldPhase::PostDelete))
        }
        OperationKind::Test | OperationKind::UninstallRemediation => (None, None),
    }
}

/// The tasks of a phase: one for each lifecycle that holds there.
fn hold_tasks(
    phase: Option<LifecycleHoldPhase>,
    journal: &OperationJournal,
    tasks: &mut Vec<OperationTask>,
) {
    let Some(phase) = phase else { return };
    let holds = journal.plan.holds.iter().enumerate();
    let its = holds.filter(|(_, hold)| hold.phases.contains(&phase));
    tasks.extend(its.map(|(hold, _)| OperationTask::Hold { hold, phase }));
}

/// All tasks of an operation, in order, if nothing fails.
pub fn tasks(journal: &OperationJournal, record: &ReleaseRecord) -> Vec<OperationTask> {
    let (before, after) = events(journal.action);
    let (held_before, held_after) = phases(journal.action);
    let mut tasks = Vec::new();
    hold_tasks(held_before, journal, &mut tasks);
    if journal.action.is_removal() {
        tasks.push(OperationTask::Mark);
    }
    event_tasks(before, journal, record, &mut tasks);
    match journal.action {
        OperationKind::Install | OperationKind::Upgrade | OperationKind::Rollback => {
            tasks.push(OperationTask::Apply);
            if journal.plan.wait != ReleaseWaitPolicy::Nothing {
                tasks.push(OperationTask::Await);
            }
        }
        OperationKind::Uninstall | OperationKind::UninstallRemediation => {
            tasks.push(OperationTask::Delete);
            if journal.plan.wait != ReleaseWaitPolicy::Nothing {
                tasks.push(OperationTask::AwaitGone);
            }
        }
        OperationKind::Test => {}
    }
    if let Some(after) = after {
        event_tasks(after, journal, record, &mut tasks);
    }
    hold_tasks(held_after, journal, &mut tasks);
    hold_tasks(Some(LifecycleHoldPhase::Promote), journal, &mut tasks);
    match journal.action {
        OperationKind::Upgrade | OperationKind::Rollback => {
            tasks.extend([OperationTask::Supersede, OperationTask::Finish]);
        }
        OperationKind::Install | OperationKind::Test => tasks.push(OperationTask::Finish),
        OperationKind::Uninstall | OperationKind::UninstallRemediation
            if journal.plan.keep_history =>
        {
            tasks.extend([OperationTask::Finish, OperationTask::Supersede]);
        }
        OperationKind::Uninstall | OperationKind::UninstallRemediation => {
            tasks.push(OperationTask::Purge);
        }
    }
    tasks
}

/// The present task; `None` once the operation has no task left.
pub fn present(journal: &OperationJournal, record: &ReleaseRecord) -> Option<OperationTask> {
    match &journal.failure {
        Some(failure) => failure::tasks(failure, journal, record).get(journal.at).copied(),
        None => tasks(journal, record).get(journal.at).copied(),
    }
}

/// A change of records, and of the journal on one of them.
///
/// Without changes only the annotation is written. `others` are written before the record of the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordAndJournalWrite {
    /// The revision whose Secret has the journal.
    pub version: i64,
    /// The changes to its own record.
    pub changes: Vec<RecordContentChange>,
    /// The changes to other records.
    pub others: Vec<(i64, RecordContentChange)>,
    /// The journal afterwards.
    pub journal: OperationJournal,
}

impl RecordAndJournalWrite {
    fn of(record: &ReleaseRecord, journal: OperationJournal) -> Self {
        Self { version: record.version, changes: Vec::new(), others: Vec::new(), journal }
    }

    /// Advances to the next task that is more than a change of the record.
    fn advance(mut self, record: &ReleaseRecord, deployed: &[i64], now: Time) -> Self {
        self.journal.pass(present(&self.journal, record).and_then(stretch), now, false);
        self.journal.at += 1;
        self.journal.since = now;
        (self.journal.hook_uid, self.journal.hook_begun) = (None, false);
        self.settle(record, deployed, now)
    }

    /// Does the tasks that only change records.
    fn settle(mut self, record: &ReleaseRecord, deployed: &[i64], now: Time) -> Self {
        loop {
            match present(&self.journal, record) {
                Some(OperationTask::Start { hook }) => {
                    self.changes.push(RecordContentChange::HookStarted { hook, at: now });
                }
                Some(OperationTask::Mark) => self.changes.push(RecordContentChange::Status {
                    status: RevisionStatus::Uninstalling,
                    description: Some("Deletion in progress (or silently failed)".to_owned()),
                    deleted: Some(now),
                }),
                Some(OperationTask::Finish) => self.changes.extend(finish(&self.journal, record)),
                Some(OperationTask::Supersede) => {
                    let others = superseded(&self.journal, record, deployed);
                    self.others.extend(others.into_iter().map(|version| {
                        let status = RevisionStatus::Superseded;
                        (
                            version,
                            RecordContentChange::Status {
                                status,
                                description: None,
                                deleted: None,
                            },
                        )
                    }));
                }
                Some(_) => return self,
                None => {
                    self.journal.ended.get_or_insert(now);
                    return self;
                }
            }
            self.journal.at += 1;
        }
    }
}

/// The revisions that are superseded once this one is deployed.
///
/// Parity(helm 4): an upgrade supersedes the revision it was compared with, in every state; a rollback that cannot apply does
/// the same, others supersede all that are deployed.
fn superseded(journal: &OperationJournal, record: &ReleaseRecord, deployed: &[i64]) -> Vec<i64> {
    let is_failed_rollback = journal.action == OperationKind::Rollback && journal.failure.is_some();
    if journal.action == OperationKind::Upgrade || is_failed_rollback {
        return journal.base.into_iter().collect();
    }
    deployed.iter().copied().filter(|version| *version != record.version).collect()
}

/// The write with which an operation begins on a revision that exists.
pub fn started(
    record: &ReleaseRecord,
    journal: OperationJournal,
    deployed: &[i64],
    now: Time,
) -> RecordAndJournalWrite {
    RecordAndJournalWrite::of(record, journal).settle(record, deployed, now)
}

/// The final status of the record.
fn finish(journal: &OperationJournal, record: &ReleaseRecord) -> Option<RecordContentChange> {
    let (status, description) = match (&journal.failure, journal.action) {
        (Some(failure), _) => return failure::finish(failure, journal, record),
        (None, OperationKind::Install) => (RevisionStatus::Deployed, Some("Install complete")),
        (None, OperationKind::Upgrade) => (RevisionStatus::Deployed, Some("Upgrade complete")),
        // The record of a rollback has its description from the beginning.
        (None, OperationKind::Rollback) => (RevisionStatus::Deployed, None),
        (None, OperationKind::Test) => return None,
        (None, OperationKind::Uninstall | OperationKind::UninstallRemediation) => {
            (RevisionStatus::Uninstalled, Some("Uninstallation complete"))
        }
    };
    Some(RecordContentChange::Status {
        status,
        description: description.map(str::to_owned),
        deleted: None,
    })
}

/// Whether an operation failed because of a lifecycle.
pub(crate) fn is_held_back(
    failure: &OperationFailure,
    journal: &OperationJournal,
    record: &ReleaseRecord,
) -> bool {
    let task = tasks(journal, record).get(failure.at).copied();
    failure.counts && matches!(task, Some(OperationTask::Hold { .. }))
}

/// The error of an operation that has ended, in Helm's words; `None` if it succeeded.
pub fn error(journal: &OperationJournal, record: &ReleaseRecord) -> Option<String> {
    let faults = &journal.faults;
    if !faults.is_empty() {
        let count = faults.len();
        let faults = faults.join("; ");
        return Some(format!("uninstallation completed with {count} error(s): {faults}"));
    }
    journal.failure.as_ref().map(|failure| failure::error(failure, journal, record))
}
