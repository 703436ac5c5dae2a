//! How an operation fails: the remaining tasks, the status of the record, the error.
//!
//! Elsewhere: where an operation fails (`next_step.rs`).

use crate::journal::{OperationFailure, OperationJournal, OperationKind};
use crate::record::{HookDeletePolicy, RecordContentChange, ReleaseRecord, RevisionStatus};

use super::{OperationTask, events, hooks_of};

/// The task at which the operation failed. `None` if the operation has no task there.
fn failed_task(
    failure: &OperationFailure,
    journal: &OperationJournal,
    record: &ReleaseRecord,
) -> Option<OperationTask> {
    super::tasks(journal, record).get(failure.at).copied()
}

/// The tasks that remain after a failure, in order.
pub(super) fn tasks(
    failure: &OperationFailure,
    journal: &OperationJournal,
    record: &ReleaseRecord,
) -> Vec<OperationTask> {
    let mut tasks = Vec::new();
    let at = failed_task(failure, journal, record);
    if let (true, Some(OperationTask::Run { hook })) = (failure.hook_ended, at) {
        hook_tasks(hook, failure, journal, record, &mut tasks);
    }
    match journal.action {
        OperationKind::Install | OperationKind::Upgrade | OperationKind::Test => {
            tasks.push(OperationTask::Finish);
        }
        OperationKind::Rollback if at == Some(OperationTask::Apply) => {
            tasks.extend([OperationTask::Supersede, OperationTask::Finish]);
        }
        // Differs(helm 4): where a hook of a rollback fails, it leaves the record pending for ever.
        OperationKind::Rollback => tasks.push(OperationTask::Finish),
        // Parity(helm 4): once objects were deleted, a removal always comes to its end; before that, its
        // record says `uninstalling` until it is repeated.
        OperationKind::Uninstall | OperationKind::UninstallRemediation => {
            let all = super::tasks(journal, record);
            let delete = all.iter().position(|it| *it == OperationTask::Delete);
            if delete.is_some_and(|delete| delete < failure.at) {
                let last = all
                    .iter()
                    .position(|it| matches!(it, OperationTask::Finish | OperationTask::Purge));
                tasks.extend(all.into_iter().skip(last.unwrap_or(usize::MAX)));
            }
        }
    }
    let can_clean_up = match journal.action {
        OperationKind::Upgrade => true,
        OperationKind::Rollback => at == Some(OperationTask::Apply),
        OperationKind::Install
        | OperationKind::Test
        | OperationKind::Uninstall
        | OperationKind::UninstallRemediation => false,
    };
    if can_clean_up && journal.plan.cleanup && !journal.created.is_empty() {
        tasks.push(OperationTask::CleanUp);
    }
    tasks
}

/// The deletions after a hook failed: first its own object if its policy says so, then those of earlier hooks that succeeded.
fn hook_tasks(
    failed: usize,
    failure: &OperationFailure,
    journal: &OperationJournal,
    record: &ReleaseRecord,
    tasks: &mut Vec<OperationTask>,
) {
    let is_deleted =
        |hook: usize, policy| record.hooks.get(hook).is_some_and(|it| it.is_deleted(policy));
    if is_deleted(failed, HookDeletePolicy::HookFailed) {
        tasks.push(OperationTask::Clear { hook: failed, policy: HookDeletePolicy::HookFailed });
    }
    let (before, after) = events(journal.action);
    let middle = super::tasks(journal, record)
        .iter()
        .position(|it| matches!(it, OperationTask::Apply | OperationTask::Delete));
    let is_after = middle.is_some_and(|middle| failure.at > middle);
    let event = after.filter(|_| is_after).unwrap_or(before);
    let policy = HookDeletePolicy::HookSucceeded;
    let earlier = hooks_of(event, journal, record).into_iter().take_while(|hook| *hook != failed);
    let earlier = earlier.filter(|hook| is_deleted(*hook, policy));
    tasks.extend(earlier.map(|hook| OperationTask::Clear { hook, policy }));
}

/// The change of the release's record after a failure. `None` if the record does not change.
pub(super) fn finish(
    failure: &OperationFailure,
    journal: &OperationJournal,
    record: &ReleaseRecord,
) -> Option<RecordContentChange> {
    let name = &record.name;
    let text = &failure.text;
    let description = match journal.action {
        OperationKind::Install => format!("Release \"{name}\" failed: {text}"),
        OperationKind::Upgrade => format!("Upgrade \"{name}\" failed: {text}"),
        // Parity(helm 4): the text for objects that did not become ready differs from that for objects that were not
        // applied.
        OperationKind::Rollback
            if failed_task(failure, journal, record) == Some(OperationTask::Await) =>
        {
            format!("Release \"{name}\" failed: {text}")
        }
        OperationKind::Rollback => format!("Rollback \"{name}\" failed: {text}"),
        OperationKind::Uninstall | OperationKind::UninstallRemediation => {
            let description = Some("Uninstallation complete".to_owned());
            let status = RevisionStatus::Uninstalled;
            return Some(RecordContentChange::Status { status, description, deleted: None });
        }
        // A release that is not promoted has failed, even if its tests succeeded.
        OperationKind::Test if super::is_held_back(failure, journal, record) => {
            format!("Promotion of \"{name}\" failed: {text}")
        }
        OperationKind::Test => return None,
    };
    let status = RevisionStatus::Failed;
    Some(RecordContentChange::Status { status, description: Some(description), deleted: None })
}

/// The error in Helm's words.
pub(super) fn error(
    failure: &OperationFailure,
    journal: &OperationJournal,
    record: &ReleaseRecord,
) -> String {
    let is_wait = failed_task(failure, journal, record) == Some(OperationTask::Await);
    if journal.action == OperationKind::Rollback && is_wait {
        format!("release {} failed: {}", record.name, failure.text)
    } else {
        failure.text.clone()
    }
}
