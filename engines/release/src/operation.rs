//! An operation on a release, task by task: what Helm's actions do, cut so that it can be taken up again anywhere.
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
//! Here: the tasks ([`tasks`]) and how the place in them moves. Below: what the present task needs
//! (`operation/next_step.rs`), how an operation fails (`operation/failure.rs`), where a new revision stands
//! (`operation/revision_placement.rs`), making its record (`operation/initial_record.rs`).
//! Elsewhere: what an operation remembers ([`crate::journal`]), which one is due ([`crate::decide`]).

mod failure;
mod initial_record;
mod next_step;
mod revision_placement;
#[cfg(test)]
mod tests;

use helm::manifests::HookEvent;
use lifecycle::Phase;
use reconcile::Time;

use crate::journal::{Action, Journal, OperationFailure, Stretch, WaitFor};
use crate::record::{DeletePolicy, Record, RecordChange, RevisionStatus};

pub use initial_record::{Opening, opened, rolled_back};
pub use next_step::{Health, HookObject, Live, Next, ObservationScope, StepOutcome, next, scope};
pub use revision_placement::{Removal, RevisionPlacement, place, removal};

/// One thing that an operation has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// The object of a hook is to be gone; an object that this very operation created stays where that would be
    /// a hook's beginning.
    Clear {
        /// Its place in the record.
        hook: usize,
        /// The occasion.
        policy: DeletePolicy,
    },
    /// The record marks a hook as running.
    Start {
        /// Its place in the record.
        hook: usize,
    },
    /// A hook is to be created and to end.
    Run {
        /// Its place in the record.
        hook: usize,
    },
    /// A lifecycle is to let the operation continue.
    Hold {
        /// Its place in the plan.
        hold: usize,
        /// The phase.
        phase: Phase,
    },
    /// The objects of the record are to be created or updated.
    Apply,
    /// They are to be ready.
    Await,
    /// The record is marked as `uninstalling`.
    Mark,
    /// The objects of the record are to be deleted.
    Delete,
    /// They are to be gone.
    AwaitGone,
    /// Other revisions are marked as superseded.
    Supersede,
    /// The record gets its final status.
    Finish,
    /// What was created is to be deleted.
    CleanUp,
    /// All records are deleted, this one last.
    Purge,
}

/// The step under which an audit lists a task; `None` for one that it does not list.
fn stretch(task: Task) -> Option<Stretch> {
    match task {
        Task::Apply => Some(Stretch::Apply),
        Task::Await => Some(Stretch::Wait),
        Task::Delete => Some(Stretch::Delete),
        Task::AwaitGone => Some(Stretch::WaitGone),
        Task::CleanUp => Some(Stretch::CleanUp),
        Task::Clear { .. }
        | Task::Start { .. }
        | Task::Run { .. }
        | Task::Hold { .. }
        | Task::Mark
        | Task::Supersede
        | Task::Finish
        | Task::Purge => None,
    }
}

/// Which moments of an action hooks have, before and after.
pub(crate) fn events(action: Action) -> (HookEvent, Option<HookEvent>) {
    match action {
        Action::Install => (HookEvent::PreInstall, Some(HookEvent::PostInstall)),
        Action::Upgrade => (HookEvent::PreUpgrade, Some(HookEvent::PostUpgrade)),
        Action::Rollback => (HookEvent::PreRollback, Some(HookEvent::PostRollback)),
        Action::Test => (HookEvent::Test, None),
        Action::Uninstall | Action::UninstallRemediation => {
            (HookEvent::PreDelete, Some(HookEvent::PostDelete))
        }
    }
}

/// The hooks of an event, by their places in the record, in the order in which they are run: by weight, then by name, then
/// as they are.
///
/// A hook that names an event twice is run twice, as Helm does it.
fn hooks_of(event: HookEvent, journal: &Journal, record: &Record) -> Vec<usize> {
    if !journal.plan.hooks && journal.action != Action::Test {
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

/// The tasks of one event: each hook, then deleting those that ask for it once all have succeeded.
fn event_tasks(event: HookEvent, journal: &Journal, record: &Record, tasks: &mut Vec<Task>) {
    let hooks = hooks_of(event, journal, record);
    let is_deleted =
        |hook: usize, policy| record.hooks.get(hook).is_some_and(|it| it.is_deleted(policy));
    for hook in hooks.iter().copied() {
        let policy = DeletePolicy::BeforeHookCreation;
        if is_deleted(hook, policy) {
            tasks.push(Task::Clear { hook, policy });
        }
        tasks.extend([Task::Start { hook }, Task::Run { hook }]);
    }
    let policy = DeletePolicy::HookSucceeded;
    let done = hooks.into_iter().rev().filter(|hook| is_deleted(*hook, policy));
    tasks.extend(done.map(|hook| Task::Clear { hook, policy }));
}

/// The phases before and after the tasks of an action, as far as they are tasks themselves: an installation or upgrade has
/// passed the first one before it has a record.
fn phases(action: Action) -> (Option<Phase>, Option<Phase>) {
    match action {
        Action::Install => (None, Some(Phase::PostInstall)),
        Action::Upgrade => (None, Some(Phase::PostUpgrade)),
        Action::Rollback => (Some(Phase::PreRollback), Some(Phase::PostRollback)),
        Action::Uninstall => (Some(Phase::PreDelete), Some(Phase::PostDelete)),
        Action::Test | Action::UninstallRemediation => (None, None),
    }
}

/// The tasks of a phase: each lifecycle that holds there.
fn hold_tasks(phase: Option<Phase>, journal: &Journal, tasks: &mut Vec<Task>) {
    let Some(phase) = phase else { return };
    let holds = journal.plan.holds.iter().enumerate();
    let its = holds.filter(|(_, hold)| hold.phases.contains(&phase));
    tasks.extend(its.map(|(hold, _)| Task::Hold { hold, phase }));
}

/// What an operation does while nothing fails, in order.
pub fn tasks(journal: &Journal, record: &Record) -> Vec<Task> {
    let (before, after) = events(journal.action);
    let (held_before, held_after) = phases(journal.action);
    let mut tasks = Vec::new();
    hold_tasks(held_before, journal, &mut tasks);
    if journal.action.is_removal() {
        tasks.push(Task::Mark);
    }
    event_tasks(before, journal, record, &mut tasks);
    match journal.action {
        Action::Install | Action::Upgrade | Action::Rollback => {
            tasks.push(Task::Apply);
            if journal.plan.wait != WaitFor::Nothing {
                tasks.push(Task::Await);
            }
        }
        Action::Uninstall | Action::UninstallRemediation => {
            tasks.push(Task::Delete);
            if journal.plan.wait != WaitFor::Nothing {
                tasks.push(Task::AwaitGone);
            }
        }
        Action::Test => {}
    }
    if let Some(after) = after {
        event_tasks(after, journal, record, &mut tasks);
    }
    hold_tasks(held_after, journal, &mut tasks);
    hold_tasks(Some(Phase::Promote), journal, &mut tasks);
    match journal.action {
        Action::Upgrade | Action::Rollback => tasks.extend([Task::Supersede, Task::Finish]),
        Action::Install | Action::Test => tasks.push(Task::Finish),
        Action::Uninstall | Action::UninstallRemediation if journal.plan.keep_history => {
            tasks.extend([Task::Finish, Task::Supersede]);
        }
        Action::Uninstall | Action::UninstallRemediation => tasks.push(Task::Purge),
    }
    tasks
}

/// The present task; `None` once there is nothing left to do.
pub fn present(journal: &Journal, record: &Record) -> Option<Task> {
    match &journal.failure {
        Some(failure) => failure::tasks(failure, journal, record).get(journal.at).copied(),
        None => tasks(journal, record).get(journal.at).copied(),
    }
}

/// What to write: changes of records, and the journal as it will be.
///
/// Without changes only the annotation is written. `others` are written before the record of the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The revision beside which the journal stands.
    pub version: i64,
    /// What changes in its record.
    pub changes: Vec<RecordChange>,
    /// What changes in other records.
    pub others: Vec<(i64, RecordChange)>,
    /// The journal afterwards.
    pub journal: Journal,
}

impl Write {
    fn of(record: &Record, journal: Journal) -> Self {
        Self { version: record.version, changes: Vec::new(), others: Vec::new(), journal }
    }

    /// Moves to the next task, and over those that only change the record.
    fn advance(mut self, record: &Record, deployed: &[i64], now: Time) -> Self {
        self.journal.pass(present(&self.journal, record).and_then(stretch), now, false);
        self.journal.at += 1;
        self.journal.since = now;
        (self.journal.hook_uid, self.journal.hook_begun) = (None, false);
        self.settle(record, deployed, now)
    }

    /// Does the tasks that only change records.
    fn settle(mut self, record: &Record, deployed: &[i64], now: Time) -> Self {
        loop {
            match present(&self.journal, record) {
                Some(Task::Start { hook }) => {
                    self.changes.push(RecordChange::HookStarted { hook, at: now });
                }
                Some(Task::Mark) => self.changes.push(RecordChange::Status {
                    status: RevisionStatus::Uninstalling,
                    description: Some("Deletion in progress (or silently failed)".to_owned()),
                    deleted: Some(now),
                }),
                Some(Task::Finish) => self.changes.extend(finish(&self.journal, record)),
                Some(Task::Supersede) => {
                    let others = superseded(&self.journal, record, deployed);
                    self.others.extend(others.into_iter().map(|version| {
                        let status = RevisionStatus::Superseded;
                        (version, RecordChange::Status { status, description: None, deleted: None })
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

/// Which revisions are superseded once this one is deployed.
///
/// Parity(helm 4): an upgrade supersedes the revision it was compared with, in every state; a rollback that
/// cannot apply does the same, others supersede all that are deployed.
fn superseded(journal: &Journal, record: &Record, deployed: &[i64]) -> Vec<i64> {
    let is_failed_rollback = journal.action == Action::Rollback && journal.failure.is_some();
    if journal.action == Action::Upgrade || is_failed_rollback {
        return journal.base.into_iter().collect();
    }
    deployed.iter().copied().filter(|version| *version != record.version).collect()
}

/// What is written where an operation begins on a revision that is there.
pub fn started(record: &Record, journal: Journal, deployed: &[i64], now: Time) -> Write {
    Write::of(record, journal).settle(record, deployed, now)
}

/// The final status of the record.
fn finish(journal: &Journal, record: &Record) -> Option<RecordChange> {
    let (status, description) = match (&journal.failure, journal.action) {
        (Some(failure), _) => return failure::finish(failure, journal, record),
        (None, Action::Install) => (RevisionStatus::Deployed, Some("Install complete")),
        (None, Action::Upgrade) => (RevisionStatus::Deployed, Some("Upgrade complete")),
        // The record of a rollback has its description from the beginning.
        (None, Action::Rollback) => (RevisionStatus::Deployed, None),
        (None, Action::Test) => return None,
        (None, Action::Uninstall | Action::UninstallRemediation) => {
            (RevisionStatus::Uninstalled, Some("Uninstallation complete"))
        }
    };
    Some(RecordChange::Status {
        status,
        description: description.map(str::to_owned),
        deleted: None,
    })
}

/// Whether an operation failed because of a lifecycle.
pub(crate) fn is_held_back(failure: &OperationFailure, journal: &Journal, record: &Record) -> bool {
    let task = tasks(journal, record).get(failure.at).copied();
    failure.counts && matches!(task, Some(Task::Hold { .. }))
}

/// The error of an operation that has come to its end, in Helm's words; `None` where it went well.
pub fn error(journal: &Journal, record: &Record) -> Option<String> {
    let faults = &journal.faults;
    if !faults.is_empty() {
        let count = faults.len();
        let faults = faults.join("; ");
        return Some(format!("uninstallation completed with {count} error(s): {faults}"));
    }
    journal.failure.as_ref().map(|failure| failure::error(failure, journal, record))
}
