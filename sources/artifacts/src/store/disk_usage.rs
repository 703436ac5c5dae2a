//! Counts the bytes in a store, so that the store does not exceed its limit on the disk.
//!
//! Here: counting. Elsewhere: files themselves ([`super::ArtifactStore`]).

use std::collections::BTreeMap;
use std::path::Path;

use parking_lot::{Mutex, MutexGuard};

use super::{Error, UNFINISHED, garbage_collection};

/// The bytes of all artifacts, by path, and of the artifacts that are being written.
#[derive(Debug, Default)]
pub(super) struct DiskUsageLedger(Mutex<DiskUsageCounts>);

#[derive(Debug, Default)]
struct DiskUsageCounts {
    kept: BTreeMap<String, u64>,
    total: u64,
}

/// The bytes of an artifact that is being written. They are given back when the claim is dropped without
/// [`Self::keep`].
#[derive(Debug)]
pub(super) struct DiskUsageClaim<'l> {
    ledger: &'l DiskUsageLedger,
    limit: Option<u64>,
    claimed: u64,
    /// The bytes in the store when this claim first exceeded the limit.
    refused: Option<u64>,
}

impl DiskUsageLedger {
    /// Counts the bytes in a store.
    pub(super) fn of(root: &Path) -> Result<Self, Error> {
        let mut counts = DiskUsageCounts::default();
        for dir in garbage_collection::slots(root)? {
            for (name, metadata) in garbage_collection::children(&dir)? {
                if metadata.is_file() && !name.starts_with(UNFINISHED) {
                    let place = dir.join(name);
                    let path = place.strip_prefix(root).unwrap_or(&place);
                    counts.keep(path.to_string_lossy().into_owned(), metadata.len());
                }
            }
        }
        Ok(Self(Mutex::new(counts)))
    }

    /// Begins the claim of an artifact that is written. All artifacts together may have `limit` bytes.
    pub(super) fn claim(&self, limit: Option<u64>) -> DiskUsageClaim<'_> {
        DiskUsageClaim { ledger: self, limit, claimed: 0, refused: None }
    }

    /// Forgets the artifacts that `is_gone` chooses.
    pub(super) fn forget(&self, is_gone: impl Fn(&str) -> bool) {
        let mut counts = self.counts();
        let mut freed = 0;
        counts.kept.retain(|path, size| {
            let is_gone = is_gone(path);
            freed += if is_gone { *size } else { 0 };
            !is_gone
        });
        counts.total = counts.total.saturating_sub(freed);
    }

    /// Bytes of all artifacts, those that are being written included.
    pub(super) fn total(&self) -> u64 {
        self.counts().total
    }

    fn counts(&self) -> MutexGuard<'_, DiskUsageCounts> {
        self.0.lock()
    }
}

impl DiskUsageCounts {
    fn keep(&mut self, path: String, size: u64) {
        let replaced = self.kept.insert(path, size).unwrap_or_default();
        self.total = self.total.saturating_add(size).saturating_sub(replaced);
    }
}

impl DiskUsageClaim<'_> {
    /// Adds bytes to the claim. Returns false, and adds nothing, if the bytes exceed the limit.
    pub(super) fn grow(&mut self, bytes: u64) -> bool {
        let mut counts = self.ledger.counts();
        let total = counts.total.saturating_add(bytes);
        if self.limit.is_some_and(|limit| total > limit) {
            self.refused.get_or_insert(counts.total.saturating_sub(self.claimed));
            return false;
        }
        counts.total = total;
        self.claimed += bytes;
        true
    }

    /// The bytes in the store, without this claim, when the claim first exceeded the limit. `None` if it never did.
    pub(super) fn refused(&self) -> Option<u64> {
        self.refused
    }

    /// Counts the written bytes as an artifact.
    pub(super) fn keep(mut self, path: &str) {
        let mut counts = self.ledger.counts();
        counts.total = counts.total.saturating_sub(self.claimed);
        counts.keep(path.to_owned(), self.claimed);
        drop(counts);
        self.claimed = 0;
    }
}

impl Drop for DiskUsageClaim<'_> {
    fn drop(&mut self) {
        let mut counts = self.ledger.counts();
        counts.total = counts.total.saturating_sub(self.claimed);
    }
}
