//! Pins a Kustomization to its present revision while its wave of a rollout is not open for the newest one. The present
//! revision is kept against drift, and built with the present spec.
//!
//! Elsewhere: whether its wave is open (`windlass_rollout`).

use std::sync::Arc;
use std::time::Duration;

use artifacts::store::NeededArtifact;
use crds::kustomize::Kustomization;
use crds::{Artifact, ReconciledObject as _};
use kube_core::{Resource as _, ResourceExt as _};
use reconcile::{READY, RunOutcome, Time};

use super::over_budget_prune::DeletionReport;
use super::quarantined_results::needed;
use super::{KustomizationRunReport, KustomizationSession, report};
use windlass_rollout::{GatedApplier, WaveGate, facts_of_revision};
use windlass_runtime::hold_conditions;

/// How long a revision may wait for its wave before the status reports that.
const SHORT_WAVE_WAIT: Duration = Duration::from_secs(10);

impl KustomizationSession<'_> {
    /// Decides which artifact may be applied, if `artifact` is the newest one of the source.
    ///
    /// # Errors
    /// The outcome of a run that applies nothing.
    pub(super) async fn wave(
        &self,
        object: &Kustomization,
        artifact: &Artifact,
        retry_at: Time,
    ) -> Result<WaveGate, RunOutcome> {
        let status = object.status.as_ref();
        let attempted = status.and_then(|it| it.last_attempted_revision.as_deref());
        let applied = status.and_then(|it| it.last_applied_revision.as_deref());
        let of = |revision: &str| facts_of_revision(object, revision);
        let applier = GatedApplier {
            node: &self.node,
            labels: object.labels(),
            attempted,
            applied,
            good: applied.and_then(of),
            attempted_digest: attempted.and_then(of).map(|facts| facts.artifact_digest),
            // Only the newest artifact is proved to be verified.
            may_be_pinned: !self.is_verified_only(),
        };
        let source = windlass_runtime::source_reference::source_node(
            &self.node.namespace,
            &object.spec.source_ref,
        );
        windlass_rollout::gate(&self.context, &applier, &source, artifact, retry_at).await
    }

    /// The artifact that a run would apply in place of this one. `None` if it would apply nothing.
    pub(super) async fn pinned_or_newest(
        &self,
        object: &Kustomization,
        artifact: Artifact,
    ) -> Option<Artifact> {
        match self.wave(object, &artifact, self.began).await {
            Ok(WaveGate::Open) => Some(artifact),
            Ok(WaveGate::Pinned { artifact, .. }) => Some(*artifact),
            Err(_) => None,
        }
    }
}

/// Adds to the report of a pinned Kustomization what the newest revision waits for. `since` is the time at which the source
/// got that revision. The status does not report a short wait, because most waits of a rollout that goes well are short, and
/// each report costs a write.
pub(super) fn say(
    object: &Arc<Kustomization>,
    ended: &mut KustomizationRunReport,
    text: String,
    since: Time,
) {
    if !has_other_changes(object, ended) {
        ended.unsaid_for = unsaid_for(since, jiff::Timestamp::now());
    }
    if let RunOutcome::Settled(_, said) = &mut ended.outcome {
        *said = format!("{said}; {text}");
        // The revision is the same as before, and so is its origin.
        let status = object.status.as_ref();
        let origin = status.and_then(|it| it.last_applied_origin_revision.clone());
        ended.came.origin_revision = origin.unwrap_or_default();
    }
    ended.came.wave = Some(text);
}

/// Whether a run has to report anything except that the newest revision waits. A request is answered at once. A status that
/// says already that a revision waits names the newest one at once.
fn has_other_changes(object: &Kustomization, ended: &KustomizationRunReport) -> bool {
    let is_reported = object.condition(READY).is_some_and(|it| {
        it.status == "True"
            && it.observed_generation == object.meta().generation
            && it.message == ended.outcome.text()
    });
    let came = &ended.came;
    !is_reported
        || !ended.outcome.is_settled()
        || !came.changes.is_empty()
        || came.deletion != DeletionReport::AsBefore
        || hold_conditions::is_asked(object)
}

/// How much longer the status does not report that a revision waits which the source got at `since`. `None` if it reports that
/// now.
fn unsaid_for(since: Time, now: Time) -> Option<Duration> {
    // The clock of another process that wrote the source may be ahead.
    let waited = Duration::try_from(now.duration_since(since)).ok()?;
    SHORT_WAVE_WAIT.checked_sub(waited).filter(|left| !left.is_zero())
}

/// The artifact of the last good result of a Kustomization, to which a rollout may pin the Kustomization. `None` if there is no
/// such result.
pub(crate) fn pinned_artifact(object: &Kustomization) -> Option<NeededArtifact> {
    report::last_good(object).and_then(needed)
}

#[cfg(test)]
mod tests {
    use reconcile::condition_reason;
    use serde_json::{Value, json};

    use super::super::early;
    use super::*;

    fn kustomization(ready: &Value, requested: &str) -> Arc<Kustomization> {
        let condition = json!({"type": "Ready", "status": ready[0], "reason": "R", "message": ready[1],
            "observedGeneration": 2, "lastTransitionTime": "2026-11-30T09:00:00Z"});
        let object = json!({"metadata": {"name": "web", "namespace": "shop", "generation": 2,
                "annotations": {"reconcile.fluxcd.io/requestedAt": requested}},
            "spec": {"interval": "1h", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "shop"}},
            "status": {"lastAppliedRevision": "1", "lastHandledReconcileAt": "a", "conditions": [condition]}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    /// Until when the status of a Kustomization that is pinned to revision 1 says nothing about revision 2.
    fn unsaid(ready: &Value, requested: &str, since: Time) -> Option<Duration> {
        let object = kustomization(ready, requested);
        let reason = condition_reason::RECONCILIATION_SUCCEEDED;
        let outcome = RunOutcome::Settled(reason, "Applied revision: 1".to_owned());
        let mut ended = early(&object, "1", outcome);
        say(&object, &mut ended, "revision 2 waits for wave 2 of 2".to_owned(), since);
        assert!(ended.outcome.text().ends_with("; revision 2 waits for wave 2 of 2"));
        ended.unsaid_for
    }

    #[test]
    fn only_a_short_wait_without_other_changes_is_not_reported() {
        let now = jiff::Timestamp::now();
        let applied = json!(["True", "Applied revision: 1"]);
        assert!(unsaid(&applied, "a", now).is_some());
        assert_eq!(unsaid(&applied, "b", now), None, "a user requested the run");
        assert_eq!(unsaid(&json!(["False", "timeout"]), "a", now), None, "it recovered");
        let waits = json!(["True", "Applied revision: 1; revision 1a waits for wave 2 of 2"]);
        assert_eq!(unsaid(&waits, "a", now), None, "it names an older revision");
        assert_eq!(unsaid(&applied, "a", Time::UNIX_EPOCH), None, "it waits for long");
    }

    #[test]
    fn the_time_until_the_report_ends_with_the_short_wait() {
        let since: Time = "2026-11-30T09:00:00Z".parse().unwrap();
        let after = |seconds: u64| since.checked_add(Duration::from_secs(seconds)).unwrap();
        assert_eq!(unsaid_for(since, after(4)), Some(Duration::from_secs(6)));
        assert_eq!(unsaid_for(since, after(10)), None);
        assert_eq!(unsaid_for(after(60), since), None, "the clock was set back");
    }
}
