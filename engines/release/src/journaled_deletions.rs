//! Counts the objects that a release's operations deleted in the last hour without approval, from their journals.
//!
//! A journal is written together with its revision before anything is deleted, so that a crash loses no count. Revisions that
//! were pruned because of the history limit are not counted.
//! Elsewhere: the limit for this number (engine `apply`, `deletion_budget`).

use std::collections::BTreeMap;
use std::time::Duration;

use reconcile::Time;

use crate::journal::OperationJournal;
use crate::record::{ReleaseRecord, RevisionStatus};
use crate::revisions::ReleaseRevisions;

/// How long a deletion counts.
const COUNTED_FOR: Duration = Duration::from_secs(3600);

/// How many objects were deleted without approval in the hour before an operation begins.
///
/// A failed attempt may have stopped before its deletions. `still_there` therefore returns how many objects to be deleted now
/// are also missing from the manifests of that attempt; these were not deleted by it. Attempts with equal inputs count once,
/// because they were to delete the same objects.
pub fn within_hour(
    revisions: &ReleaseRevisions,
    now: Time,
    still_there: impl Fn(&ReleaseRecord) -> usize,
) -> usize {
    let current = revisions.current().map(|it| it.record.version);
    let mut done: usize = 0;
    let mut attempts: BTreeMap<(Option<i64>, &str), usize> = BTreeMap::new();
    for revision in revisions.all() {
        let Some(journal) = revision.journal.as_ref().filter(|it| is_recent(it, now)) else {
            continue;
        };
        match revision.record.info.status {
            RevisionStatus::Failed => {
                let left = if journal.base == current { still_there(&revision.record) } else { 0 };
                let most = attempts.entry((journal.base, journal.inputs.as_str())).or_default();
                *most = journal.deletions.saturating_sub(left).max(*most);
            }
            _ => done = done.saturating_add(journal.deletions),
        }
    }
    attempts.into_values().fold(done, usize::saturating_add)
}

/// Whether the deletions of an operation count. A start time in the future counts, too.
fn is_recent(journal: &OperationJournal, now: Time) -> bool {
    let until = journal.started.saturating_add(COUNTED_FOR).unwrap_or(Time::MAX);
    journal.deletions > 0 && now < until
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::journal::OperationKind;
    use crate::revisions::ReleaseRevision;
    use crate::simulated_cluster::record;

    fn now() -> Time {
        Time::from_second(1_800_000_000).unwrap()
    }

    /// A revision that was made so many seconds ago over the one before, and was to delete so many objects.
    fn revision(version: i64, life: &str, age: i64, deletions: usize) -> ReleaseRevision {
        let started = Time::from_second(now().as_second() - age).unwrap();
        let begun = OperationJournal::begin(
            format!("web.v{version}"),
            "uid".to_owned(),
            OperationKind::Upgrade,
            started,
        );
        let journal = OperationJournal { base: Some(version - 1), deletions, ..begun };
        let record = Arc::new(record(version, "1.0.0", "a", life));
        ReleaseRevision { record, journal: Some(journal) }
    }

    fn recent(revisions: Vec<ReleaseRevision>, pending: usize) -> usize {
        within_hour(&ReleaseRevisions::new(revisions, Vec::new()), now(), |_| pending)
    }

    #[test]
    fn the_deletions_of_the_last_hour_are_added_up() {
        let revisions = vec![
            revision(1, "superseded", 4000, 8),
            revision(2, "superseded", 3000, 3),
            revision(3, "superseded", 100, 0),
            revision(4, "deployed", 10, 4),
        ];
        assert_eq!(recent(revisions, 5), 7);
        assert_eq!(recent(vec![revision(1, "deployed", -600, 2)], 0), 2, "a clock went back");
        let unknown = ReleaseRevision { journal: None, ..revision(1, "deployed", 0, 2) };
        assert_eq!(recent(vec![unknown], 0), 0);
    }

    /// Attempts that failed, each over the first revision with these inputs and so many deletions.
    fn failed(attempts: &[(&str, usize)]) -> Vec<ReleaseRevision> {
        let attempt = |version, inputs: &str, deletions| {
            let failed = revision(version, "failed", 60, deletions);
            let journal = failed.journal.map(|it| OperationJournal {
                base: Some(1),
                inputs: inputs.to_owned(),
                ..it
            });
            ReleaseRevision { journal, ..failed }
        };
        let attempts = attempts.iter().zip(2..);
        let attempts =
            attempts.map(|(&(inputs, deletions), version)| attempt(version, inputs, deletions));
        std::iter::once(revision(1, "deployed", 7200, 0)).chain(attempts).collect()
    }

    #[test]
    fn attempts_that_failed_before_their_deletions_do_not_count_for_the_next_one() {
        let same = || failed(&[("a", 6), ("a", 6), ("a", 6)]);
        assert_eq!(recent(same(), 6), 0, "all of it is still there");
        assert_eq!(recent(same(), 2), 4, "two of six are still there");
        assert_eq!(recent(failed(&[("a", 6), ("b", 6)]), 6), 0, "another chart drops the same");
    }

    #[test]
    fn attempts_that_failed_after_they_deleted_other_objects_add_up() {
        // What is deleted now, they have not dropped.
        assert_eq!(recent(failed(&[("a", 5)]), 0), 5);
        assert_eq!(recent(failed(&[("a", 5), ("b", 5)]), 0), 10);
        let revisions = ReleaseRevisions::new(failed(&[("a", 5), ("b", 7)]), Vec::new());
        let of_second = |it: &ReleaseRecord| if it.version == 3 { 7 } else { 0 };
        assert_eq!(within_hour(&revisions, now(), of_second), 5, "each by its own manifests");
    }
}
