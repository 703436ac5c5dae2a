//! The `status.history` of a Kustomization: the last few digests that were reconciled, with their results.
//!
//! Here: [`SnapshotHistory`], in the form of fluxcd/pkg `apis/meta`.
//! Elsewhere: the history of releases (Helm's own), which runs are recorded (the program).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ConditionReason, Time, format_duration, time};

/// The most snapshots that are kept.
const MAX_HISTORY_SNAPSHOTS: usize = 5;

/// The latest snapshots, newest first; at most five after an [`upsert`](Self::upsert).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SnapshotHistory(pub Vec<ReconcileSnapshot>);

/// One set of manifests, and the result of reconciling it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReconcileSnapshot {
    /// Digest of the built manifests, `sha256:<hex>`.
    pub digest: String,
    /// When this digest first ended with this status.
    #[serde(with = "time")]
    pub first_reconciled: Time,
    /// When this digest last ended with this status.
    #[serde(with = "time")]
    pub last_reconciled: Time,
    /// How long the last run took, in Go's notation for durations.
    pub last_reconciled_duration: String,
    /// The reason of `Ready` at its end.
    pub last_reconciled_status: String,
    /// How many runs of this digest ended with this status.
    pub total_reconciliations: i64,
    /// `revision` and, if known, `originRevision`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl SnapshotHistory {
    /// The newest snapshot; `None` if there is none.
    pub fn latest(&self) -> Option<&ReconcileSnapshot> {
        self.0.first()
    }

    /// Records one more run of a digest that ended with a status. Its snapshot becomes the first one.
    ///
    /// If the digest and status were recorded before, the first time and the count are kept. Of more than five snapshots, the
    /// oldest are dropped.
    pub fn upsert(
        &mut self,
        digest: &str,
        at: Time,
        took: Duration,
        status: ConditionReason,
        metadata: BTreeMap<String, String>,
    ) {
        let at = time::whole_seconds(at);
        let known = self.0.iter().position(|known| {
            known.digest == digest && known.last_reconciled_status == status.as_str()
        });
        let known = known.map(|index| self.0.remove(index));
        let snapshot = ReconcileSnapshot {
            digest: digest.to_owned(),
            first_reconciled: known.as_ref().map_or(at, |known| known.first_reconciled),
            last_reconciled: at,
            last_reconciled_duration: format_duration(took),
            last_reconciled_status: status.as_str().to_owned(),
            total_reconciliations: known
                .map_or(1, |known| known.total_reconciliations.saturating_add(1)),
            metadata,
        };
        self.0.insert(0, snapshot);
        self.0.truncate(MAX_HISTORY_SNAPSHOTS);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::condition_reason;

    fn upsert(history: &mut SnapshotHistory, digest: &str, second: i64, status: ConditionReason) {
        let at = Time::from_second(second).unwrap();
        let metadata = BTreeMap::from([("revision".into(), format!("main@sha1:{second}"))]);
        history.upsert(digest, at, Duration::from_millis(1500), status, metadata);
    }

    fn lines(history: &SnapshotHistory) -> String {
        let line = |s: &ReconcileSnapshot| {
            let first = s.first_reconciled.as_second();
            let last = s.last_reconciled.as_second();
            let ReconcileSnapshot {
                digest,
                last_reconciled_status: status,
                total_reconciliations,
                ..
            } = s;
            format!(
                "{digest} {status} {first}..{last} ×{total_reconciliations} {}\n",
                s.metadata["revision"]
            )
        };
        history.0.iter().map(line).collect()
    }

    #[test]
    fn one_digest_with_one_status_is_one_snapshot_and_the_newest_stands_first() {
        let mut history = SnapshotHistory::default();
        upsert(&mut history, "a", 1, condition_reason::RECONCILIATION_SUCCEEDED);
        upsert(&mut history, "a", 2, condition_reason::HEALTH_CHECK_FAILED);
        upsert(&mut history, "b", 3, condition_reason::RECONCILIATION_SUCCEEDED);
        upsert(&mut history, "a", 4, condition_reason::RECONCILIATION_SUCCEEDED);
        expect![[r#"
            a ReconciliationSucceeded 1..4 ×2 main@sha1:4
            b ReconciliationSucceeded 3..3 ×1 main@sha1:3
            a HealthCheckFailed 2..2 ×1 main@sha1:2
        "#]]
        .assert_eq(&lines(&history));
        assert_eq!(history.latest().unwrap().digest, "a");
    }

    #[test]
    fn the_oldest_of_six_snapshots_is_dropped() {
        let mut history = SnapshotHistory::default();
        for (second, digest) in ["a", "b", "c", "d", "e", "a", "f"].iter().enumerate() {
            upsert(
                &mut history,
                digest,
                i64::try_from(second).unwrap(),
                condition_reason::SUCCEEDED,
            );
        }
        let digests: Vec<_> = history.0.iter().map(|s| s.digest.as_str()).collect();
        assert_eq!(digests, ["f", "a", "e", "d", "c"]);
    }

    #[test]
    fn the_json_is_that_of_flux() {
        let mut history = SnapshotHistory::default();
        upsert(
            &mut history,
            "sha256:0a",
            1_800_000_000,
            condition_reason::RECONCILIATION_SUCCEEDED,
        );
        let text = serde_json::to_string_pretty(&history).unwrap();
        expect![[r#"
            [
              {
                "digest": "sha256:0a",
                "firstReconciled": "2027-01-15T08:00:00Z",
                "lastReconciled": "2027-01-15T08:00:00Z",
                "lastReconciledDuration": "1.5s",
                "lastReconciledStatus": "ReconciliationSucceeded",
                "totalReconciliations": 1,
                "metadata": {
                  "revision": "main@sha1:1800000000"
                }
              }
            ]"#]]
        .assert_eq(&text);
        assert_eq!(serde_json::from_str::<SnapshotHistory>(&text).unwrap(), history);
    }
}
