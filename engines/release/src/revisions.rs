//! The revisions of a release in Helm's storage.
//!
//! Here: which revision is the last one, which is deployed, and which are pruned when a new one is created. Elsewhere: one
//! revision ([`crate::record`]), listing Secrets (the program).

use std::sync::Arc;

use crate::journal::OperationJournal;
use crate::record::{ReleaseRecord, RevisionStatus};

/// A revision, together with the other data on its Secret.
#[derive(Debug, Clone)]
pub struct ReleaseRevision {
    /// The record.
    pub record: Arc<ReleaseRecord>,
    /// The journal of the operation that made the revision or works on it.
    pub journal: Option<OperationJournal>,
}

/// A Secret that should hold a revision and does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenReleaseRevision {
    /// The Secret's name.
    pub secret: String,
    /// The revision that its label names.
    pub version: i64,
    /// Why the Secret has no readable record.
    pub problem: String,
}

/// All revisions of a release.
#[derive(Debug, Clone, Default)]
pub struct ReleaseRevisions {
    known: Vec<ReleaseRevision>,
    broken: Vec<BrokenReleaseRevision>,
}

impl ReleaseRevisions {
    /// The revisions of a release, given in any order. `broken` are those that cannot be read.
    pub fn new(mut known: Vec<ReleaseRevision>, broken: Vec<BrokenReleaseRevision>) -> Self {
        known.sort_by_key(|revision| revision.record.version);
        Self { known, broken }
    }

    /// All revisions that can be read, oldest first.
    pub fn all(&self) -> &[ReleaseRevision] {
        &self.known
    }

    /// The newest revision that can be read; `None` if there is none.
    pub fn last(&self) -> Option<&ReleaseRevision> {
        self.known.last()
    }

    /// The newest revision that is deployed; `None` if there is none.
    pub fn deployed(&self) -> Option<&ReleaseRevision> {
        self.known.iter().rev().find(|it| it.record.info.status == RevisionStatus::Deployed)
    }

    /// The revision with this number; `None` if it does not exist or cannot be read.
    pub fn get(&self, version: i64) -> Option<&ReleaseRevision> {
        self.known.iter().find(|it| it.record.version == version)
    }

    /// The Secret of the newest revision, if it cannot be read; otherwise `None`.
    ///
    /// Differs(helm 4): Helm skips it and then fails to create a revision that is there.
    pub fn unreadable_last(&self) -> Option<&BrokenReleaseRevision> {
        let newest = self.last().map_or(0, |it| it.record.version);
        self.broken.iter().max_by_key(|it| it.version).filter(|it| it.version > newest)
    }

    /// The numbers of all revisions, oldest first, including revisions that cannot be read.
    pub fn versions(&self) -> Vec<i64> {
        let known = self.known.iter().map(|it| it.record.version);
        let mut all: Vec<i64> = known.chain(self.broken.iter().map(|it| it.version)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The revision that an upgrade compares with: the last one if it is deployed, else the newest deployed one, else
    /// the last one if it failed or was superseded. `None` if there is no such revision.
    pub fn current(&self) -> Option<&ReleaseRevision> {
        let last = self.last()?;
        if last.record.info.status == RevisionStatus::Deployed {
            return Some(last);
        }
        let is_enough =
            matches!(last.record.info.status, RevisionStatus::Failed | RevisionStatus::Superseded);
        self.deployed().or_else(|| is_enough.then_some(last))
    }

    /// The revisions to delete before a new one is stored, so that there are at most `max_history`. The oldest go first, but
    /// the newest deployed revision always stays. 0 keeps all.
    pub(crate) fn prunable(&self, max_history: usize) -> Vec<i64> {
        let Some(kept) = max_history.checked_sub(1) else { return Vec::new() };
        let deployed = self.deployed().map(|it| it.record.version);
        let versions = self.known.iter().map(|it| it.record.version);
        let candidates = versions.filter(|version| Some(*version) != deployed);
        candidates.take(self.known.len().saturating_sub(kept)).collect()
    }
}

#[cfg(test)]
mod tests;
