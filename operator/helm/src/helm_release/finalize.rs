//! The deletion of a HelmRelease. Windlass uninstalls its release, and then deletes the HelmChart that was made for it.
//!
//! Source of the semantics: helm-controller 1.6 `reconcileDelete`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::helm::HelmRelease;
use release::gated_release_change::ReleaseChangeGates;

use super::{
    HelmReleaseController, HelmReleaseRunReport, HelmReleaseSession, chart_template, status,
};
use windlass_cluster::ClusterError;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_runtime::applier_run::FinalizeOutcome;
use windlass_runtime::object_hold;

impl HelmReleaseSession<'_> {
    /// Uninstalls the release of a deleted HelmRelease, unless the HelmRelease is suspended.
    pub(super) async fn finalize(
        &self,
        object: &Arc<HelmRelease>,
    ) -> Result<FinalizeOutcome<HelmReleaseController>, ClusterError> {
        let later = |ended, spec| Ok(FinalizeOutcome::Later(Box::new(ended), spec));
        if object_hold::is_suspended(&**object, self.began) {
            // Parity(flux): a suspended HelmRelease leaves its release and its HelmChart behind, so that another owner
            // can take over the release.
            return Ok(FinalizeOutcome::Done(object.clone()));
        }
        // Without a release there is nothing to uninstall, so the HelmRelease is deleted even if its cluster cannot be
        // reached.
        if status::read(object).storage_namespace.is_empty() {
            return self.without_release(object).await;
        }
        let target = match self.finalize_target(object).await {
            Ok(Some(target)) => target,
            Ok(None) => return self.without_release(object).await,
            Err(error) => {
                return later(HelmReleaseRunReport::early(object, error.outcome()?), None);
            }
        };
        if let Err(outcome) = status::check(object.status.as_ref()) {
            return later(HelmReleaseRunReport::early(object, outcome), None);
        }
        let desired_release = self.without_chart(object, false, ReleaseChangeGates::default());
        let spec = desired_release.spec.clone();
        match self.drive(object, desired_release, &target, None).await {
            None => Ok(FinalizeOutcome::Anew),
            Some(ended) if ended.outcome.is_settled() => self.without_release(&ended.object).await,
            Some(ended) => later(ended, Some(spec)),
        }
    }

    /// Deletes the HelmChart once no release is left.
    async fn without_release(
        &self,
        object: &Arc<HelmRelease>,
    ) -> Result<FinalizeOutcome<HelmReleaseController>, ClusterError> {
        chart_template::remove(&self.context, object).await?;
        Ok(FinalizeOutcome::Done(object.clone()))
    }
}

/// The event for a deleted HelmRelease whose release cannot be removed, because `subject` is gone.
pub(super) fn left_behind(subject: &str) -> ObjectEvent {
    ObjectEvent {
        severity: EventSeverity::Error,
        reason: release::status::UNINSTALL_FAILED.as_str().to_owned(),
        message: format!(
            "unable to uninstall the release: {subject} not found; the release is left in the cluster"
        ),
        metadata: BTreeMap::new(),
    }
}
