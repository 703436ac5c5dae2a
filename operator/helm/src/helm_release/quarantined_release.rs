//! Whether the chart and values of a HelmRelease are quarantined. A run asks this before it changes the release.
//!
//! Elsewhere: what all owners of releases share (`release_runner::quarantined_releases`), the decision (engine `release`).

use std::sync::Arc;

use crds::helm::HelmRelease;
use reconcile::RunOutcome;
use release::ReleaseDesiredState;

use super::{HelmReleaseSession, status};
use crate::release_runner::quarantined_releases::{
    OwnerQuarantines, note_attempt, without_failures,
};
use crate::release_runner::write_status;
use windlass_runtime::object_status::status_of;
use windlass_runtime::run_error::RunError;

/// A desired state, with the policy for its failures.
pub(super) struct DesiredStateWithFailurePolicy {
    /// The HelmRelease as our last write left it.
    pub(super) object: Arc<HelmRelease>,
    /// The Quarantines of the HelmRelease.
    pub(super) quarantines: OwnerQuarantines,
    /// The desired state.
    pub(super) desired: ReleaseDesiredState,
}

impl HelmReleaseSession<'_> {
    /// The desired state, with the policy for failures: the annotation and the Quarantines of the HelmRelease. An operation
    /// that is under way goes on to its end without them.
    ///
    /// # Errors
    /// The annotation and Quarantines are not known or contradict the spec, or a request fails.
    pub(super) async fn judged(
        &self,
        object: &Arc<HelmRelease>,
        desired: ReleaseDesiredState,
    ) -> Result<DesiredStateWithFailurePolicy, RunError> {
        let retry_at = self.in_future(self.context.settings.requeue_dependency);
        let read = OwnerQuarantines::read(&self.context, &self.node, &**object, retry_at).await;
        let refused = read.unknown().cloned().or_else(|| read.check(&desired.spec).err());
        if let Some(outcome) = refused
            && !self.is_under_way(object).await?
        {
            return Err(outcome.into());
        }
        let object = self.attempted_anew(object, &read, &desired).await?;
        let failures = read.policy(&desired, &status::read(&object));
        let desired = ReleaseDesiredState { failures, ..desired };
        Ok(DesiredStateWithFailurePolicy { object, quarantines: read, desired })
    }

    /// The HelmRelease without its failures, if a user lifted the Quarantine of the desired release.
    async fn attempted_anew(
        &self,
        object: &Arc<HelmRelease>,
        quarantines: &OwnerQuarantines,
        desired: &ReleaseDesiredState,
    ) -> Result<Arc<HelmRelease>, RunOutcome> {
        let Some(lifted) = quarantines.to_attempt(desired) else { return Ok(object.clone()) };
        let before = status_of(&**object);
        let after = without_failures(&before);
        let written = match after == before {
            true => object.clone(),
            false => write_status(&self.context, &self.latest, object, &before, &after).await?,
        };
        let retry_at = self.in_future(self.context.settings.requeue_dependency);
        note_attempt(&self.context, lifted, retry_at).await?;
        Ok(written)
    }
}
