//! The deletion of a Helmfile. By its policy, windlass uninstalls its releases, and uninstalls a release before the releases
//! that it needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::helmfile::ReleaseState;
use objects::SecretMasking;
use reconcile::RemovalCause;

use super::helmfile_kind_differences::HelmfileCustomResource;
use super::plan::ReleaseKey;
use super::prune::NoUninstallReason;
use super::release_clusters::of_rows;
use super::release_reconciler::{HelmfileRun, UnreachableClusters};
use super::release_status_writer::ReleaseStatusWriter;
use super::suspended_releases::ReleaseSuspensions;
use super::validated_spec::{self, HelmfileTimeouts};
use super::{HelmfileController, HelmfileRunDetails, HelmfileRunReport, HelmfileSession, report};
use windlass_cluster::ClusterError;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_runtime::applier_run::FinalizeOutcome;
use windlass_runtime::object_hold;

impl<K: HelmfileCustomResource> HelmfileSession<'_, K> {
    /// Uninstalls the releases of a deleted Helmfile, by its policy.
    pub(super) async fn finalize(
        &self,
        object: &Arc<K>,
    ) -> Result<FinalizeOutcome<HelmfileController<K>>, ClusterError> {
        let spec = object.asked();
        let rows = object.status().map(|it| it.releases.as_slice()).unwrap_or_default();
        let stays =
            !validated_spec::uninstalls(&spec) || object_hold::is_suspended(&**object, self.began);
        if stays || rows.is_empty() {
            return Ok(FinalizeOutcome::Done(object.clone()));
        }
        let timeouts =
            validated_spec::check(&spec).unwrap_or_else(|_| HelmfileTimeouts::for_finalize());
        let in_use = of_rows(rows);
        let (places, gone) = self.finalize_places(object, &spec, &in_use).await?;
        let book =
            ReleaseStatusWriter::new(self.context.clone(), self.latest.clone(), object.clone());
        let book = Arc::new(book);
        let secrets = SecretMasking::default();
        let run = HelmfileRun {
            object,
            spec: &spec,
            places: &places,
            timeouts: &timeouts,
            suspensions: ReleaseSuspensions::new(&spec, self.began),
            book: &book,
            secrets: &secrets,
            revision: "",
            freeze: None,
            rollback_freeze: None,
            quarantines: None,
            woken: self.context.work_queue.woken_parts(&self.node),
            unreachable_clusters: UnreachableClusters::default(),
            now: self.began,
        };
        let mut leaving = Vec::new();
        for row in rows {
            let key = ReleaseKey::of(row);
            let permitted = self.permit_removal(&run, row, RemovalCause::OwnerDeleted);
            // The event is recorded with the write that removes the row, so that it is recorded once.
            let event = match (gone.get(&key.context), permitted) {
                _ if row.state == ReleaseState::LeftOut => None,
                (Some(missing), _) => Some(left(&key, missing)),
                (None, Err(_)) => Some(given_up(&key, &NoUninstallReason::Suspended)),
                (None, Ok(removal)) => {
                    leaving.push(removal);
                    continue;
                }
            };
            book.remove(&key);
            self.forget(&key);
            event.into_iter().for_each(|event| book.tell(event));
        }
        let Some(outcomes) = self.uninstall(&leaving, &run).await else {
            book.flush().await.ok();
            return Ok(FinalizeOutcome::Anew);
        };
        if outcomes.is_empty() {
            for event in book.take_events() {
                book.announce(event);
            }
            return Ok(FinalizeOutcome::Done(book.object()));
        }
        let outcome = report::outcome("", &book.rows(), &outcomes);
        let mut ended: HelmfileRunReport<K> = HelmfileRunReport::early(&book.object(), outcome);
        ended.came = HelmfileRunDetails { book: Some(book), ..HelmfileRunDetails::default() };
        Ok(FinalizeOutcome::Later(Box::new(ended), Some(timeouts)))
    }
}

/// The event for a deleted Helmfile whose releases cannot be removed, because `subject` is gone.
pub(super) fn left_behind(subject: &str) -> ObjectEvent {
    ObjectEvent {
        severity: EventSeverity::Error,
        reason: release::status::UNINSTALL_FAILED.as_str().to_owned(),
        message: format!(
            "unable to uninstall the releases: {subject} not found; they are left in the cluster"
        ),
        metadata: BTreeMap::new(),
    }
}

/// The event of a release that cannot be uninstalled, because `missing` is gone.
fn left(key: &ReleaseKey, missing: &str) -> ObjectEvent {
    let message = format!(
        "unable to uninstall release {key}: {missing} not found; it is left in the cluster"
    );
    ObjectEvent { message, ..left_behind(missing) }
}

/// The event about a release that is not uninstalled and stays in the cluster.
pub(super) fn given_up(key: &ReleaseKey, why: &NoUninstallReason) -> ObjectEvent {
    ObjectEvent {
        severity: EventSeverity::Info,
        reason: "ReleaseLeft".to_owned(),
        message: format!("release {key} is left as it is: {why}"),
        metadata: BTreeMap::new(),
    }
}
