//! Determines the number of a new revision, and whether a revision can be created. Also determines the remaining work of a
//! removal.
//!
//! The error messages are Helm's.
//! Elsewhere: creating the record (`initial_record.rs`), deciding on an operation ([`crate::release_decision`]).

use crate::journal::OperationKind;
use crate::record::{RecordContentChange, RevisionStatus};
use crate::revisions::ReleaseRevisions;

/// The place of a new revision among the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRevisionPlan {
    /// The number of the revision.
    pub version: i64,
    /// The revision whose objects the new one replaces.
    pub base: Option<i64>,
    /// The records to prune for the new one, oldest first.
    pub prune: Vec<i64>,
    /// The changes to other records before the new record is stored.
    pub others: Vec<(i64, RecordContentChange)>,
}

/// The number and base of the revision for an installation or upgrade.
///
/// # Errors
/// Helm's message: the name is invalid or in use, or there is nothing to upgrade.
pub fn place(
    action: OperationKind,
    name: &str,
    revisions: &ReleaseRevisions,
    replace: bool,
    max_history: usize,
) -> Result<NewRevisionPlan, String> {
    let is_install = action == OperationKind::Install;
    if let Err(problem) = helm::releasename::check(name) {
        return Err(match is_install {
            true => format!("release name check failed: release name {name:?}: {problem}"),
            false => format!("release name is invalid: {name}"),
        });
    }
    let nothing = || format!("\"{name}\" has no deployed releases");
    let Some(last) = revisions.last().map(|last| last.record.as_ref()) else {
        let first =
            NewRevisionPlan { version: 1, base: None, prune: Vec::new(), others: Vec::new() };
        return is_install.then_some(first).ok_or_else(nothing);
    };
    let version = last.version.saturating_add(1);
    if is_install {
        let is_free =
            matches!(last.info.status, RevisionStatus::Uninstalled | RevisionStatus::Failed);
        if !(replace && is_free) {
            return Err(
                "release name check failed: cannot reuse a name that is still in use".to_owned()
            );
        }
        // Parity(helm 4): a failed revision keeps its status.
        let superseded = (last.info.status != RevisionStatus::Failed).then(|| {
            let description = Some("superseded by new release".to_owned());
            let status = RevisionStatus::Superseded;
            (last.version, RecordContentChange::Status { status, description, deleted: None })
        });
        let others = superseded.into_iter().collect();
        return Ok(NewRevisionPlan { version, base: None, prune: Vec::new(), others });
    }
    let base = revisions.current().ok_or_else(nothing)?.record.version;
    let prune = revisions.prunable(max_history);
    Ok(NewRevisionPlan { version, base: Some(base), prune, others: Vec::new() })
}

/// The work that a removal still has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemainingReleaseRemoval {
    /// The whole removal.
    Run,
    /// Only these records of the release are left.
    Purge(Vec<i64>),
}

/// The work that a removal still has to do.
///
/// # Errors
/// Helm's message: the release does not exist, or was already removed.
pub fn removal(
    name: &str,
    revisions: &ReleaseRevisions,
    keep_history: bool,
) -> Result<RemainingReleaseRemoval, String> {
    let Some(last) = revisions.last() else {
        return Err(format!("uninstall: Release not loaded: {name}: release: not found"));
    };
    match (&last.record.info.status, keep_history) {
        (RevisionStatus::Uninstalled, true) => {
            Err(format!("the release named \"{name}\" is already deleted"))
        }
        (RevisionStatus::Uninstalled, false) => {
            Ok(RemainingReleaseRemoval::Purge(revisions.versions()))
        }
        _ => Ok(RemainingReleaseRemoval::Run),
    }
}
