//! What was reconciled lately: the `status.history` of a Kustomization.
//!
//! Here: [`SnapshotHistory`], as fluxcd/pkg `apis/meta` keeps it.
//! Elsewhere: the history of releases (Helm's own), what is worth an entry (the program).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ConditionReason, Time, format_duration, time};

/// How many snapshots are kept.
const MAX_HISTORY_SNAPSHOTS: usize = 5;

/// The latest snapshots, newest first; at most five after an [`upsert`](Self::upsert).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SnapshotHistory(pub Vec<ReconcileSnapshot>);

/// One set of manifests and how reconciling it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReconcileSnapshot {
    /// Digest of the built manifests, `sha256:<hex>`.
    pub digest: String,
    /// When this digest first ended with this status.
    #[serde(with = "time")]
    pub first_reconciled: Time,
    /// When it last did.
    #[serde(with = "time")]
    pub last_reconciled: Time,
    /// How long that took, as Go writes durations.
    pub last_reconciled_duration: String,
    /// The reason of `Ready` at its end.
    pub last_reconciled_status: String,
    /// How often it ended so.
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

    /// Counts one more run of a digest that ended with a status, and puts its snapshot first.
    ///
    /// A digest and status seen before keep their first time and their count; the oldest of more
    /// than five snapshots are dropped.
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
    use crate::reason;

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
        upsert(&mut history, "a", 1, reason::RECONCILIATION_SUCCEEDED);
        upsert(&mut history, "a", 2, reason::HEALTH_CHECK_FAILED);
        upsert(&mut history, "b", 3, reason::RECONCILIATION_SUCCEEDED);
        upsert(&mut history, "a", 4, reason::RECONCILIATION_SUCCEEDED);
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
            upsert(&mut history, digest, i64::try_from(second).unwrap(), reason::SUCCEEDED);
        }
        let digests: Vec<_> = history.0.iter().map(|s| s.digest.as_str()).collect();
        assert_eq!(digests, ["f", "a", "e", "d", "c"]);
    }

    #[test]
    fn the_json_is_that_of_flux() {
        let mut history = SnapshotHistory::default();
        upsert(&mut history, "sha256:0a", 1_800_000_000, reason::RECONCILIATION_SUCCEEDED);
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
