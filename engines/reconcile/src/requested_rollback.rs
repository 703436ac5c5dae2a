//! Rollbacks of a release that a user requests by annotation.
//!
//! Here: [`ReleaseRollback`], read from the annotation, and its progress ([`ReleaseRollbackProgress`]), read from the history
//! in the status. Elsewhere: when the rollback is performed (engine `release`).

use std::fmt;

use serde_json::Value;

/// The annotation that requests a rollback of a release. The object must be suspended.
pub const ROLLBACK: &str = "windlass.dev/rollback";
/// The annotation with the name of the user who last requested a rollback or reconciliation, or resumed the object.
pub const REQUESTED_BY: &str = "windlass.dev/requested-by";
/// The annotation with the reason of that request.
pub const REQUESTED_REASON: &str = "windlass.dev/requested-reason";

/// A requested rollback of a release from its newest revision to an earlier one.
///
/// The request is valid only while `from` is the newest revision. It is therefore performed once, and not at all if another
/// operation came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseRollback {
    /// The newest revision.
    pub from: i64,
    /// The revision whose manifest is applied again.
    pub to: i64,
}

impl ReleaseRollback {
    /// Reads the rollback of a release from the annotation, such as `5->3`. If the object has several releases, the full name
    /// of one of them comes first: `apps/web:5->3`. `None` if the annotation names another release or cannot be read.
    pub fn of(annotation: &str, release: Option<&str>) -> Option<Self> {
        let revisions = match release {
            None => annotation,
            Some(release) => annotation.strip_prefix(release)?.strip_prefix(':')?,
        };
        let (from, to) = revisions.split_once("->")?;
        let [from, to] = [from, to].map(|it| it.parse::<i64>().ok().filter(|it| *it > 0));
        Some(Self { from: from?, to: to? }).filter(|it| it.to < it.from)
    }

    /// The value of the annotation that requests this rollback.
    pub fn annotation(&self, release: Option<&str>) -> String {
        release.map_or_else(|| self.to_string(), |release| format!("{release}:{self}"))
    }

    /// The first part of the annotation [`crate::SUSPENDED_REASON`] during the rollback. The user's own reason follows it.
    pub fn suspension_reason(&self) -> String {
        format!("rollback to revision {}", self.to)
    }

    /// The progress of the rollback, read from the history in a status. The revision after `from` belongs either to the
    /// rollback or to another operation.
    pub fn progress(
        &self,
        history: impl IntoIterator<Item = ReleaseHistoryRevision>,
    ) -> ReleaseRollbackProgress {
        let mut newest: Option<i64> = None;
        let mut next: Option<ReleaseHistoryRevision> = None;
        for made in history {
            newest = newest.max(Some(made.version));
            if made.version == self.from.saturating_add(1) {
                next = Some(made);
            }
        }
        match (next, newest) {
            (Some(next), _) if !next.is_rollback => ReleaseRollbackProgress::Overtaken,
            (Some(next), _) if next.is_failed => ReleaseRollbackProgress::Failed,
            (Some(_), _) => ReleaseRollbackProgress::Succeeded,
            (None, Some(newest)) if newest <= self.from => ReleaseRollbackProgress::Requested,
            (None, _) => ReleaseRollbackProgress::Unknown,
        }
    }
}

/// The progress of a requested rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseRollbackProgress {
    /// The rollback has not been performed yet: the history has no revision after `from`.
    Requested,
    /// The rollback succeeded.
    Succeeded,
    /// The rollback was performed and failed.
    Failed,
    /// Another operation made the next revision, so the rollback will not be performed.
    Overtaken,
    /// The history does not go back so far.
    Unknown,
}

/// A revision in a history.
#[derive(Debug, Clone, Copy)]
pub struct ReleaseHistoryRevision {
    /// The number of the revision.
    pub version: i64,
    /// Whether a rollback made the revision.
    pub is_rollback: bool,
    /// Whether the operation that made the revision failed.
    pub is_failed: bool,
}

impl ReleaseHistoryRevision {
    /// Creates an entry from the fields in `status.history`.
    pub fn new(version: i64, status: &str, action: &str) -> Self {
        let is_failed = !matches!(status, "deployed" | "superseded");
        Self { version, is_rollback: action == "rollback", is_failed }
    }

    /// The entries of `status.history`, as JSON.
    pub fn listed(history: Option<&Value>) -> impl Iterator<Item = Self> {
        history.and_then(Value::as_array).into_iter().flatten().filter_map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap_or_default();
            Some(Self::new(entry["version"].as_i64()?, text("status"), text("action")))
        })
    }
}

impl fmt::Display for ReleaseRollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}->{}", self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_annotation_names_both_revisions_and_the_release_where_there_are_several() {
        let wanted = ReleaseRollback { from: 5, to: 3 };
        for release in [None, Some("apps/web"), Some("arn:aws:eks:eu:1:cluster/a/apps/web")] {
            assert_eq!(ReleaseRollback::of(&wanted.annotation(release), release), Some(wanted));
        }
        assert_eq!(wanted.annotation(Some("apps/web")), "apps/web:5->3");
        assert_eq!(ReleaseRollback::of("apps/web:5->3", Some("apps/api")), None);
        assert_eq!(ReleaseRollback::of("apps/web:5->3", None), None);
        assert_eq!(ReleaseRollback::of("5->3", Some("apps/web")), None);
    }

    #[test]
    fn the_revision_after_the_newest_one_tells_how_far_a_rollback_is() {
        let asked = ReleaseRollback { from: 5, to: 3 };
        let progress = |entries: &[(i64, &str, &str)]| {
            let history: Vec<Value> = entries
                .iter()
                .map(|(version, status, action)| {
                    json!({"version": version, "status": status, "action": action})
                })
                .collect();
            asked.progress(ReleaseHistoryRevision::listed(Some(&json!(history))))
        };
        let before = (5, "superseded", "upgrade");
        assert_eq!(progress(&[(5, "deployed", "upgrade")]), ReleaseRollbackProgress::Requested);
        // The status is behind: an operation is under way.
        assert_eq!(progress(&[(4, "deployed", "upgrade")]), ReleaseRollbackProgress::Requested);
        let done = (6, "deployed", "rollback");
        assert_eq!(progress(&[done, before]), ReleaseRollbackProgress::Succeeded);
        let later = (7, "deployed", "upgrade");
        let done = (6, "superseded", "rollback");
        assert_eq!(progress(&[later, done]), ReleaseRollbackProgress::Succeeded);
        assert_eq!(progress(&[(6, "failed", "rollback"), before]), ReleaseRollbackProgress::Failed);
        assert_eq!(
            progress(&[(6, "deployed", "upgrade"), before]),
            ReleaseRollbackProgress::Overtaken
        );
        assert_eq!(progress(&[later]), ReleaseRollbackProgress::Unknown);
        assert_eq!(progress(&[]), ReleaseRollbackProgress::Unknown);
        assert_eq!(
            asked.progress(ReleaseHistoryRevision::listed(None)),
            ReleaseRollbackProgress::Unknown
        );
    }

    #[test]
    fn what_is_no_rollback_asks_for_nothing() {
        for text in ["", "3", "5->", "->3", "5->5", "3->5", "5->0", "5->-1", "a->b", "5 -> 3"] {
            assert_eq!(ReleaseRollback::of(text, None), None, "{text}");
        }
    }
}
