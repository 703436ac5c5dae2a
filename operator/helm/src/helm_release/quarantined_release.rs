//! A HelmRelease whose chart and values may be quarantined: what a run asks before it drives the release.
//!
//! Elsewhere: what owners of releases have in common (`release_runner::quarantined_releases`), what is decided (engine `release`).

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

/// A desired state with what follows from failures.
pub(super) struct JudgedDesiredState {
    /// The HelmRelease as our last write left it.
    pub(super) object: Arc<HelmRelease>,
    /// Its Quarantines.
    pub(super) quarantines: OwnerQuarantines,
    /// What is desired.
    pub(super) desired: ReleaseDesiredState,
}

impl HelmReleaseSession<'_> {
    /// What is desired, with what follows from failures: the annotation, and the Quarantines of the HelmRelease. An operation that
    /// is under way comes to its end without knowing them.
    ///
    /// # Errors
    /// They are not known, or contradict the spec; or a request fails.
    pub(super) async fn judged(
        &self,
        object: &Arc<HelmRelease>,
        desired: ReleaseDesiredState,
    ) -> Result<JudgedDesiredState, RunError> {
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
        Ok(JudgedDesiredState { object, quarantines: read, desired })
    }

    /// The HelmRelease, which has forgotten its failures if a user lifted the Quarantine of what is desired.
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
