//! Pins a Kustomization to its present revision while its wave of a rollout is not open for the newest one. The present
//! revision is kept against drift, and built with the present spec.
//!
//! Elsewhere: whether its wave is open (`windlass_rollout`).

use std::sync::Arc;

use artifacts::store::NeededArtifact;
use crds::Artifact;
use crds::kustomize::Kustomization;
use kube_core::ResourceExt as _;
use reconcile::{RunOutcome, Time};

use super::quarantined_results::needed;
use super::{KustomizationRunReport, KustomizationSession, report};
use windlass_rollout::{GatedApplier, WaveGate, facts_of_revision};

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

/// Adds to the report of a pinned Kustomization what the newest revision waits for.
pub(super) fn say(object: &Arc<Kustomization>, ended: &mut KustomizationRunReport, text: String) {
    if let RunOutcome::Settled(_, said) = &mut ended.outcome {
        *said = format!("{said}; {text}");
        // The revision is the same as before, and so is its origin.
        let status = object.status.as_ref();
        let origin = status.and_then(|it| it.last_applied_origin_revision.clone());
        ended.came.origin_revision = origin.unwrap_or_default();
    }
    ended.came.wave = Some(text);
}

/// The artifact of the last good result of a Kustomization that a rollout may pin to it.
pub(crate) fn pinned_artifact(object: &Kustomization) -> Option<NeededArtifact> {
    report::last_good(object).and_then(needed)
}
