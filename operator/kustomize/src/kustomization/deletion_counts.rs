//! Counts how many objects a Kustomization deleted lately without approval. Its status records the counts.
//!
//! The newest entry of the history has the counts in its metadata, which tenants cannot write. Windlass writes them together
//! with the inventory from which the deleted objects are removed, so that a crash loses no count. A Kustomization without a
//! history has not finished its first attempt, and has no counts.
//! Elsewhere: the meaning of the counts (`apply::recent_deletions`).

use apply::recent_deletions::RecentDeletions;
use crds::kustomize::{HistoryEntry, Kustomization};
use reconcile::Time;

/// The key of the counts in the metadata of the newest entry.
const DELETIONS: &str = "windlass.dev/Deletions";

fn counts(history: &[HistoryEntry]) -> Option<RecentDeletions> {
    let text = history.first().and_then(|it| it.metadata.get(DELETIONS));
    text.map_or(Some(RecentDeletions::default()), |text| RecentDeletions::read(text))
}

/// The counts in the status. `None` if they cannot be read.
pub(super) fn recorded(object: &Kustomization) -> Option<RecentDeletions> {
    let history = object.status.as_ref().map(|status| status.history.as_slice());
    counts(history.unwrap_or_default())
}

/// Adds deletions to the counts. Unreadable counts begin again at zero.
pub(super) fn count(history: &mut [HistoryEntry], now: Time, objects: usize) {
    let counts = counts(history).unwrap_or_default().with(now, objects).to_string();
    let Some(newest) = history.first_mut() else { return };
    match counts.is_empty() {
        true => drop(newest.metadata.remove(DELETIONS)),
        false => drop(newest.metadata.insert(DELETIONS.to_owned(), counts)),
    }
}

/// Moves the counts to the newest entry of a history that has changed.
pub(super) fn carry(before: &[HistoryEntry], after: &mut [HistoryEntry]) {
    let text = before.first().and_then(|it| it.metadata.get(DELETIONS)).cloned();
    for entry in &mut *after {
        entry.metadata.remove(DELETIONS);
    }
    if let (Some(newest), Some(text)) = (after.first_mut(), text) {
        newest.metadata.insert(DELETIONS.to_owned(), text);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(digest: &str, metadata: &serde_json::Value) -> HistoryEntry {
        serde_json::from_value(json!({"digest": digest, "firstReconciled": "2026-01-02T03:04:05Z",
            "lastReconciled": "2026-01-02T03:04:05Z", "lastReconciledDuration": "1s",
            "lastReconciledStatus": "ReconciliationSucceeded", "totalReconciliations": 1, "metadata": metadata}))
        .unwrap()
    }

    fn now() -> Time {
        Time::from_second(1_800_000_000).unwrap()
    }

    #[test]
    fn counts_are_in_the_newest_entry_and_move_with_it() {
        let mut before = vec![entry("a", &json!({"revision": "main@sha1:1"}))];
        count(&mut before, now(), 3);
        assert_eq!(counts(&before).unwrap().within_hour(now()), 3);
        let mut after = vec![entry("b", &json!({})), before[0].clone()];
        carry(&before, &mut after);
        assert_eq!(counts(&after).unwrap().within_hour(now()), 3);
        assert_eq!(after[1].metadata.len(), 1, "the older entry has its revision only");
        let later = Time::from_second(1_800_004_000).unwrap();
        count(&mut after, later, 0);
        assert!(after[0].metadata.is_empty(), "counts end after an hour");
    }

    #[test]
    fn counts_that_cannot_be_read_are_not_taken_for_none() {
        let history = [entry("a", &json!({DELETIONS: "many"}))];
        assert_eq!(counts(&history), None);
        assert_eq!(counts(&[]), Some(RecentDeletions::default()));
    }
}
