//! Dependencies on the way back. A dependency that went back itself is not ready, and must not keep its dependents at the
//! quarantined revision. Before that revision, both had what they go back to.
//!
//! Everything else waits for such a dependency. Elsewhere: going back (`quarantined_results`), and what dependencies have to
//! be (`windlass_runtime::dependency_gate`).

use std::sync::Arc;

use crds::Artifact;
use crds::kustomize::Kustomization;
use crds::windlass_release::Quarantine;
use reconcile::{RunOutcome, condition_reason};

use super::quarantined_results::rolled_back_to;
use super::{KustomizationSession, report};

/// What a run has to know about a build of the source's artifact before it may apply the build.
pub(super) struct SourceBuildRules<'q> {
    /// The Quarantines of the Kustomization.
    pub(super) own: &'q [Arc<Quarantine>],
    /// The outcome of the run if the build is not quarantined, because dependencies are not ready.
    pub(super) held: Option<RunOutcome>,
}

/// Whether a Kustomization will go back in place of an artifact, as far as the status says which build the artifact had. Other
/// variables make another build, so only the build itself proves it.
pub(super) fn goes_back(
    object: &Kustomization,
    artifact: &Artifact,
    own: &[Arc<Quarantine>],
) -> bool {
    let history = || object.status.iter().flat_map(|status| &status.history);
    own.iter().any(|it| {
        let result = &it.spec.result;
        windlass_quarantine::is_in_force(it)
            && rolled_back_to(it).is_some()
            && result.revision == artifact.revision
            && result.artifact_digest == artifact.digest
            && history().any(|entry| entry.digest == result.digest)
    })
}

/// Whether a Kustomization has the last good result in place of a quarantined one. If nothing could be changed, the attempted
/// revision is the quarantined one.
fn went_back(object: &Kustomization) -> bool {
    let Some(status) = object.status.as_ref() else { return false };
    report::is_quarantined(object)
        && status.last_applied_revision.is_some()
        && status.last_applied_revision == status.last_attempted_revision
}

impl KustomizationSession<'_> {
    /// Whether all dependencies that hold a run are Kustomizations that went back.
    pub(super) fn is_held_by_rollbacks(&self, outcome: &RunOutcome) -> bool {
        let RunOutcome::Blocked(condition_reason::DEPENDENCY_NOT_READY, _, wake) = outcome else {
            return false;
        };
        let own = &self.node;
        !wake.on.is_empty()
            && wake.on.iter().all(|node| {
                let is_kustomization = (&node.group, &node.kind) == (&own.group, &own.kind);
                let seen = self.context.seen::<Kustomization>(&node.namespace, &node.name);
                is_kustomization && seen.is_some_and(|it| went_back(&it))
            })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use reconcile::Time;
    use serde_json::{Value, json};

    use super::*;

    fn kustomization(status: &Value) -> Kustomization {
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop"},
            "spec": {"interval": "1h", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "shop"}},
            "status": status}))
        .unwrap()
    }

    #[test]
    fn a_quarantine_of_the_artifact_says_that_the_kustomization_will_go_back() {
        let spec = json!({"subject": {"kind": "Kustomization", "name": "web"}, "action": "RollBack",
            "result": {"digest": "b2", "revision": "2", "artifactDigest": "sha256:2"},
            "lastGood": {"digest": "b1", "revision": "1"}});
        let rolls_back: Quarantine =
            serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": spec})).unwrap();
        let mut holds = rolls_back.clone();
        holds.spec.last_good = None;
        let [rolls_back, holds] = [[Arc::new(rolls_back)], [Arc::new(holds)]];
        let artifact = |revision: &str| Artifact {
            digest: format!("sha256:{revision}"),
            last_update_time: crds::Time(Time::UNIX_EPOCH),
            metadata: BTreeMap::new(),
            path: String::new(),
            revision: revision.to_owned(),
            size: None,
            url: String::new(),
        };
        let built = |digest: &str| {
            let entry = json!({"digest": digest, "firstReconciled": "2026-11-30T09:00:00Z",
                "lastReconciled": "2026-11-30T09:00:00Z", "lastReconciledDuration": "1s",
                "lastReconciledStatus": "ReconciliationSucceeded", "totalReconciliations": 1});
            kustomization(&json!({"history": [entry]}))
        };
        assert!(goes_back(&built("b2"), &artifact("2"), &rolls_back));
        assert!(!goes_back(&built("b2"), &artifact("3"), &rolls_back));
        assert!(!goes_back(&built("b2"), &artifact("2"), &holds), "nothing is applied");
        assert!(!goes_back(&built("c2"), &artifact("2"), &rolls_back), "another build");
    }

    #[test]
    fn a_dependency_went_back_once_it_has_applied_the_earlier_revision() {
        let of = |reason: &str, attempted: &str| {
            let ready = json!({"type": "Ready", "status": "False", "reason": reason, "message": "",
                "lastTransitionTime": "2026-11-30T09:00:00Z"});
            went_back(&kustomization(&json!({"conditions": [ready],
                "lastAppliedRevision": "1", "lastAttemptedRevision": attempted})))
        };
        assert!(of("Quarantined", "1"));
        assert!(!of("Quarantined", "2"), "nothing is changed");
        assert!(!of("HealthCheckFailed", "1"));
    }
}
