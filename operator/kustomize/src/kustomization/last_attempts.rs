//! The memory of a Kustomization's last attempts: attempts that ended, a health wait that stays failed, and refusals that are
//! repeated less and less often.
//!
//! Elsewhere: the plan that uses it (`apply::plan`), how delays grow (`reconcile::RefusedAttempts`).

use std::time::Duration;

use apply::FailedHealthWait;
use crds::kustomize::Kustomization;
use kube_core::ResourceExt as _;
use reconcile::{RunOutcome, Time, condition_reason};

use super::executor::DriftCheckScope;
use super::validated_spec::KustomizationTimeouts;
use super::{KustomizationRunReport, KustomizationSession};

/// The identity of a desired state. The generation is part of it, because another spec may judge the same objects by
/// other expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BuildIdentity {
    pub(super) generation: i64,
    /// Digest of the build.
    pub(super) digest: String,
    pub(super) revision: String,
}

impl BuildIdentity {
    /// Whether two builds have the same spec and the same objects. Their revisions may differ.
    pub(super) fn is_same_build(&self, other: &Self) -> bool {
        self.generation == other.generation && self.digest == other.digest
    }
}

/// The last desired state that was applied completely; none once an attempt at another one begins.
#[derive(Default)]
pub(super) struct LastAppliedState {
    judged: Option<BuildIdentity>,
    /// Whether the status is about another cluster or user, because no attempt at the present one has ended.
    has_moved: bool,
}

impl LastAppliedState {
    /// Notes that an attempt begins. From now on the last desired state is not what is live.
    pub(super) fn begin(&mut self) {
        self.judged = None;
    }

    /// Notes that a desired state is applied completely and healthy.
    pub(super) fn end(&mut self, judged: BuildIdentity) {
        (self.judged, self.has_moved) = (Some(judged), false);
    }

    /// Notes that the objects are applied to another cluster or as another user.
    pub(super) fn moved(&mut self) {
        (self.judged, self.has_moved) = (None, true);
    }

    /// Whether a desired state is live. `is_reported` says whether the status, which another process may have written,
    /// reports it.
    pub(super) fn is(&self, judged: &BuildIdentity, is_reported: impl FnOnce() -> bool) -> bool {
        let is_known = self.judged.as_ref().is_some_and(|it| it.is_same_build(judged));
        is_known || !self.has_moved && is_reported()
    }
}

impl KustomizationSession<'_> {
    /// Forgets a failed wait when its time has come or a reconciliation was requested. Then everything is built and
    /// read again.
    pub(super) fn end_failed_wait(&self, object: &Kustomization) {
        let asked = self.verify(object) == DriftCheckScope::Everything;
        let mut memory = self.memory();
        let is_over = |until: Time| asked || until <= self.began;
        if memory.failed_wait.as_ref().is_some_and(|(_, wait)| is_over(wait.until)) {
            (memory.failed_wait, memory.waiting, memory.healthy) = (None, None, None);
        }
    }

    /// The failed wait for the health of objects in this desired state, until the wait is repeated. `None` if no such wait
    /// failed.
    pub(super) fn failed_wait(&self, judged: &BuildIdentity) -> Option<FailedHealthWait> {
        let memory = self.memory();
        let (of, wait) = memory.failed_wait.as_ref()?;
        (of == judged).then(|| wait.clone())
    }

    /// Remembers how an attempt failed. Delays the next run after a refusal that lasts until something changes.
    pub(super) fn remember_failure(
        &self,
        object: &Kustomization,
        judged: &BuildIdentity,
        ended: &mut KustomizationRunReport,
        timeouts: KustomizationTimeouts,
        verify: DriftCheckScope,
    ) {
        let seed = reconcile::seed(&object.uid().unwrap_or_default());
        let mut memory = self.memory();
        memory.failed_wait = match &ended.outcome {
            RunOutcome::Failed(why, text, wake)
                if *why == condition_reason::HEALTH_CHECK_FAILED =>
            {
                let until = wake.at.unwrap_or(self.began);
                let wait = FailedHealthWait { text: text.clone(), on: wake.on.clone(), until };
                Some((judged.clone(), wait))
            }
            _ => None,
        };
        match &mut ended.outcome {
            RunOutcome::Failed(_, _, wake) if ended.came.is_permanent => {
                if verify == DriftCheckScope::Everything {
                    memory.retries.end();
                }
                let BuildIdentity { generation, digest, revision } = judged;
                let of = format!("{generation} {digest} {revision}");
                let now = jiff::Timestamp::now();
                let KustomizationTimeouts { retry, interval, .. } = timeouts;
                wake.at = Some(memory.retries.refused(&of, now, retry, interval, seed));
            }
            _ => memory.retries.end(),
        }
    }
}

/// The delay before a request is repeated that the API server failed to handle. It has jitter, so that objects which
/// failed together are not repeated together.
pub(super) fn soon(object: &Kustomization, soon: Duration) -> Duration {
    reconcile::jittered(soon, 20, reconcile::seed(&object.uid().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(digest: &str) -> BuildIdentity {
        let digest = digest.to_owned();
        let revision = "main@sha1:1".to_owned();
        BuildIdentity { generation: 1, digest, revision }
    }

    #[test]
    fn what_was_applied_before_another_attempt_began_is_not_what_is_live() {
        let first = judged("a");
        let second = judged("b");
        let mut applied = LastAppliedState::default();
        assert!(!applied.is(&first, || false));
        assert!(applied.is(&first, || true), "another process applied it");
        applied.end(first.clone());
        assert!(applied.is(&first, || false) && !applied.is(&second, || false));
        let elsewhere = BuildIdentity { revision: "main@sha1:2".to_owned(), ..first.clone() };
        assert!(applied.is(&elsewhere, || false), "a revision that builds the same");
        // The second attempt does not come to its end, so going back to the first is not a correction.
        applied.begin();
        assert!(!applied.is(&first, || false));
        applied.end(second.clone());
        assert!(!applied.is(&first, || false) && applied.is(&second, || false));
    }

    #[test]
    fn what_was_applied_elsewhere_tells_nothing_of_this_cluster() {
        let first = judged("a");
        let mut applied = LastAppliedState::default();
        applied.end(first.clone());
        applied.moved();
        assert!(!applied.is(&first, || true));
        applied.end(first.clone());
        assert!(applied.is(&first, || true));
    }
}
