//! The audit of an operation on a release. It is made from the journal and the release records when the operation has ended.
//!
//! The same journal and records always give the same audit, so that an audit can be made again after a crash.
//!
//! Here: the causes of the operation, its revisions, its steps and hooks, its outcome, and the manifests that show its changes.
//! Below: the causes (`audit/cause.rs`). Elsewhere: comparing these manifests (`apply::object_changes`), storing audits (the
//! program).

mod cause;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use reconcile::Time;

use crate::journal::{OperationJournal, OperationKind, TimedTaskKind};
use crate::operation::{self, OperationTask};
use crate::record::{FAILED, GoTimestamp, HookRecord, ReleaseRecord};
use crate::revisions::ReleaseRevisions;

pub use cause::OperationCause;

/// The most steps and hooks that are listed.
const MAX_STEPS: usize = 64;

/// A revision of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedRevision {
    /// The number of the revision.
    pub revision: i64,
    /// The chart's name.
    pub chart_name: String,
    /// The chart's version.
    pub chart_version: String,
    /// The `appVersion` of the chart.
    pub app_version: String,
    /// The digest of the values; empty if they have none.
    pub values_digest: String,
}

/// A step or hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedStep {
    /// The name of the step: a fixed word, or the event of a hook.
    pub name: &'static str,
    /// The object of a hook, as `Kind/name`.
    pub hook: Option<String>,
    /// When the step began.
    pub started: Time,
    /// When the step ended; `None` if that is unknown because windlass was interrupted.
    pub ended: Option<Time>,
    /// Whether the step failed.
    pub failed: bool,
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationOutcome {
    /// The operation succeeded.
    Succeeded,
    /// The operation failed.
    Failed,
    /// The desired state changed meanwhile.
    Stopped,
}

/// The records whose manifests show the changes of an operation.
#[derive(Debug, Clone)]
pub struct RecordsBeforeAndAfter {
    /// The record before.
    pub before: Option<Arc<ReleaseRecord>>,
    /// The record of the revision that the operation was to apply; none for a removal.
    pub after: Option<Arc<ReleaseRecord>>,
    /// Inventory ids of objects that the operation took over instead of creating them. Only the record after it has these
    /// objects.
    pub adopted: Vec<String>,
    /// Whether the operation failed while it wrote these changes, or while it waited for deleted objects to disappear. The
    /// changes may be incomplete then.
    pub partial: bool,
}

/// The audit of an operation that has ended, made from its journal and the release records.
/// The same journal and records always give the same audit.
#[derive(Debug, Clone)]
pub struct ReleaseAudit {
    /// The causes of the operation.
    pub causes: Vec<OperationCause>,
    /// The revision before the operation.
    pub from: Option<AuditedRevision>,
    /// The revision that the operation made or tested.
    pub to: Option<AuditedRevision>,
    /// Steps and hooks, in the order in which they began.
    pub steps: Vec<AuditedStep>,
    /// How many steps and hooks are left out.
    pub omitted_steps: usize,
    /// The answers of lifecycles.
    pub answers: Vec<lifecycle::LifecycleEventAnswer>,
    /// How the operation ended.
    pub outcome: OperationOutcome,
    /// The error if the operation did not succeed, in Helm's words.
    pub error: Option<String>,
    /// When the operation began.
    pub started: Time,
    /// When the operation ended.
    pub ended: Time,
    /// The records that show the changes; `None` if the operation changed no objects.
    pub span: Option<RecordsBeforeAndAfter>,
}

/// The audit of the operation whose journal belongs to a revision. If only its records are left to delete, it ends `now`.
pub fn of(
    revisions: &ReleaseRevisions,
    record: &Arc<ReleaseRecord>,
    journal: &OperationJournal,
    now: Time,
) -> ReleaseAudit {
    let before = journal.base.and_then(|version| revisions.get(version));
    let base = before.map(|revision| &revision.record);
    let (from, to) = match journal.action {
        OperationKind::Install | OperationKind::Test => (None, Some(record)),
        OperationKind::Upgrade | OperationKind::Rollback => (base, Some(record)),
        OperationKind::Uninstall | OperationKind::UninstallRemediation => (Some(record), None),
    };
    let made = |record: &Arc<ReleaseRecord>| made(record);
    let error = operation::error(journal, record);
    let counts = journal.failure.as_ref().is_none_or(|failure| failure.counts);
    let outcome = match (&error, counts) {
        (None, _) => OperationOutcome::Succeeded,
        (Some(_), true) => OperationOutcome::Failed,
        (Some(_), false) => OperationOutcome::Stopped,
    };
    let mut steps = steps(record, journal);
    let omitted_steps = steps.len().saturating_sub(MAX_STEPS);
    steps.truncate(MAX_STEPS);
    ReleaseAudit {
        causes: cause::of(record, journal, before),
        from: from.map(made),
        to: to.map(made),
        steps,
        omitted_steps,
        answers: journal.answers.clone(),
        outcome,
        error,
        started: journal.started,
        ended: journal.ended.unwrap_or(now),
        span: span(record, journal, base),
    }
}

fn made(record: &Arc<ReleaseRecord>) -> AuditedRevision {
    let metadata = record.metadata().cloned().unwrap_or_default();
    AuditedRevision {
        revision: record.version,
        chart_name: metadata.name,
        chart_version: metadata.version,
        app_version: metadata.app_version,
        values_digest: helm::values::digest(&record.config).unwrap_or_default(),
    }
}

/// The records that show the changes of an operation. They depend on the step at which it failed.
fn span(
    record: &Arc<ReleaseRecord>,
    journal: &OperationJournal,
    base: Option<&Arc<ReleaseRecord>>,
) -> Option<RecordsBeforeAndAfter> {
    let tasks = operation::tasks(journal, record);
    let write =
        tasks.iter().position(|it| matches!(it, OperationTask::Apply | OperationTask::Delete))?;
    let failed_at = journal.failure.as_ref().map(|failure| failure.at);
    // A step before the change failed, such as a hook.
    if failed_at.is_some_and(|at| at < write) {
        return None;
    }
    // An object with finalizers still exists after its deletion was accepted. A failed wait for that is a fault but not a
    // failure. A hook that fails afterwards counts as both.
    let is_left = journal.faults.len() > usize::from(failed_at.is_some_and(|at| at > write));
    let partial = failed_at == Some(write) || is_left;
    let record = Some(record.clone());
    Some(match journal.action.is_removal() {
        true => RecordsBeforeAndAfter { before: record, after: None, adopted: Vec::new(), partial },
        false => {
            let adopted = journal.adopted.clone();
            RecordsBeforeAndAfter { before: base.cloned(), after: record, adopted, partial }
        }
    })
}

fn steps(record: &ReleaseRecord, journal: &OperationJournal) -> Vec<AuditedStep> {
    let passed = journal.passed.iter().map(|it| AuditedStep {
        name: match it.task {
            TimedTaskKind::Apply => "Apply",
            TimedTaskKind::Wait => "Wait",
            TimedTaskKind::Delete => "Delete",
            TimedTaskKind::WaitGone => "WaitGone",
            TimedTaskKind::CleanUp => "CleanUp",
        },
        hook: None,
        started: it.started,
        ended: Some(it.ended),
        failed: it.failed,
    });
    let mut steps: Vec<AuditedStep> = passed.collect();
    let (before, after) = operation::events(journal.action);
    for event in [Some(before), after].into_iter().flatten() {
        let hooks = record.hooks.iter().filter(|hook| hook.is_for(event));
        steps.extend(hooks.filter_map(|hook| ran(hook, event.as_str(), journal)));
    }
    steps.sort_by_key(|step| step.started);
    steps
}

/// The step of a hook, if this operation ran the hook. A record also keeps the results of earlier runs.
fn ran(hook: &HookRecord, name: &'static str, journal: &OperationJournal) -> Option<AuditedStep> {
    let started = hook.last_run.started.as_ref().and_then(GoTimestamp::time)?;
    // Records of others may have whole seconds only.
    let began = Time::from_second(journal.started.as_second()).ok()?;
    (started >= began).then(|| AuditedStep {
        name,
        hook: Some(format!("{}/{}", hook.kind, hook.name)),
        started,
        ended: hook.last_run.completed.as_ref().and_then(GoTimestamp::time),
        failed: hook.last_run.phase == FAILED,
    })
}
