//! Removes a CRD that left the manifests of its owner. The CRD is deleted, after an export of its custom resources if the
//! deletion is confirmed. It is only released if another owner or a custom resource uses it.
//!
//! Nothing but API requests happens between the decision and the write. The write succeeds only if the CRD is as it was read.
//! So after a confirmation, its withdrawal or a new owner, the guard decides again. Elsewhere: owners (`crd_owners`), custom
//! resources (`custom_resource_check`, `custom_resource_export`).

use objects::Object;
use reconcile::RemovalPermit;

use super::CrdPruneOutcome;
use super::crd_owners::{self, OwnerLabelOrAnnotation};
use super::custom_resource_check;
use super::custom_resource_export::{
    CustomResourceExport, CustomResourceExportDestination, CustomResourceExportOutcome,
};
use super::guard_policy::REMOVAL;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::{ClusterConnection, ClusterError};

/// How often the guard decides again because the CRD changed.
const MAX_DECISION_ATTEMPTS: u32 = 4;

/// A request to remove a CRD.
pub(super) struct CrdPruneRequest<'a> {
    /// The cluster, with windlass's own identity.
    pub(super) ours: &'a ClusterConnection,
    /// The cluster, with the identity of the user that applied the CRD.
    pub(super) theirs: &'a ClusterConnection,
    /// The CRD as its owner read it.
    pub(super) live: &'a Object,
    pub(super) manager: &'a str,
    /// The marks of the owner on the CRD.
    pub(super) mine: &'a [OwnerLabelOrAnnotation],
    /// The propagation policy of `DeleteOptions`.
    pub(super) propagation: &'a str,
    /// Whether a confirmation by annotation counts.
    pub(super) is_trusted: bool,
    /// The permit of the gate for this removal.
    pub(super) permit: RemovalPermit,
    /// Where the export is stored.
    pub(super) site: CustomResourceExportDestination<'a>,
}

/// Whether a live CRD may be removed, by its labels and annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CrdDeletionConfirmation {
    /// The CRD no longer belongs to this owner.
    Left,
    /// The CRD may be deleted with its custom resources.
    Confirmed,
    /// The CRD may be deleted only if it has no custom resources and no other owner.
    Unconfirmed,
}

/// The result of one attempt to remove a CRD.
enum CrdPruneAttemptResult {
    Done(CrdPruneOutcome),
    /// The CRD changed, so the guard has to decide again. The value is the result to report if this attempt's own write caused
    /// the change.
    Again(Option<CrdPruneOutcome>),
}

impl CrdPruneAttemptResult {
    /// The result of a write. A conflict means that the CRD changed after the guard judged it.
    fn of(
        written: Result<(), ClusterError>,
        removal: CrdPruneOutcome,
    ) -> Result<Self, ClusterError> {
        match written {
            Ok(()) => Ok(Self::Done(removal)),
            // The answer to an earlier request may have been lost.
            Err(error) if error.is_conflict() => Ok(Self::Again(Some(removal))),
            Err(error) => Err(error),
        }
    }
}

impl CrdPruneRequest<'_> {
    /// Removes the CRD, or releases it from its owner.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. [`ClusterError::Withheld`] if the deletion is confirmed but the
    /// custom resources cannot be exported.
    pub(super) async fn run(&self) -> Result<CrdPruneOutcome, ClusterError> {
        let crds = super::definitions();
        let name = self.live.name();
        let mut tried = None;
        for _ in 0..MAX_DECISION_ATTEMPTS {
            let now = self.ours.get(&crds, "", name).await?;
            let Some(now) = now.filter(|it| it.uid() == self.live.uid() && !is_leaving(it)) else {
                // An earlier attempt whose answer was lost deleted the CRD, or another client did.
                let is_gone = |it: &CrdPruneOutcome| !matches!(it, CrdPruneOutcome::Released(_));
                return Ok(tried.filter(is_gone).unwrap_or(CrdPruneOutcome::Deleted));
            };
            let attempt = match said(&now, self.live, self.mine, self.is_trusted) {
                CrdDeletionConfirmation::Confirmed => self.confirmed(&crds, &now).await?,
                CrdDeletionConfirmation::Unconfirmed => self.judged(&crds, &now).await?,
                CrdDeletionConfirmation::Left => {
                    let text = format!(
                        "CustomResourceDefinition {name} is not deleted, because its labels or annotations of ownership were \
                         removed or name another owner"
                    );
                    self.released(&crds, &now, text).await?
                }
            };
            match attempt {
                CrdPruneAttemptResult::Done(removal) => return Ok(removal),
                CrdPruneAttemptResult::Again(removal) => tried = removal.or(tried),
            }
        }
        let text = format!("CustomResourceDefinition {name} changes while it is removed");
        Err(ClusterError::NoAnswer(text))
    }

    /// Deletes the CRD if it has no custom resources and no other owner.
    async fn judged(
        &self,
        crds: &ApiResourceLocation,
        now: &Object,
    ) -> Result<CrdPruneAttemptResult, ClusterError> {
        let mut users = crd_owners::of(now, self.manager, self.mine);
        let objects = custom_resource_check::users(self.ours, now).await?;
        let is_named = !objects.is_none() && super::may_list(self.theirs, now).await;
        users.extend(objects.text(is_named));
        if users.is_empty() {
            let deleted = self.delete(crds, now).await;
            return CrdPruneAttemptResult::of(deleted, CrdPruneOutcome::Deleted);
        }
        let name = now.name();
        let uid = now.uid();
        let text = format!(
            "CustomResourceDefinition {name} is released instead of deleted, because it is used by {}; to delete it \
             with all its objects, delete it with `kubectl delete crd {name}`, or annotate it with {REMOVAL}={uid} \
             before it leaves",
            users.join(" and ")
        );
        self.released(crds, now, text).await
    }

    async fn delete(&self, crds: &ApiResourceLocation, now: &Object) -> Result<(), ClusterError> {
        self.theirs.delete_unchanged(self.permit, crds, now, self.propagation).await
    }

    /// Removes the marks of the owner, so that no later prune deletes the CRD.
    async fn released(
        &self,
        crds: &ApiResourceLocation,
        now: &Object,
        text: String,
    ) -> Result<CrdPruneAttemptResult, ClusterError> {
        let patch = crd_owners::without(now, now.uid(), Some(self.manager), self.mine);
        let name = now.name();
        let released = self.theirs.merge_patch(crds, "", name, &patch, self.manager).await;
        CrdPruneAttemptResult::of(released.map(drop), CrdPruneOutcome::Released(text))
    }

    /// Exports the custom resources, and then deletes the CRD.
    async fn confirmed(
        &self,
        crds: &ApiResourceLocation,
        now: &Object,
    ) -> Result<CrdPruneAttemptResult, ClusterError> {
        let name = now.name();
        let uid = now.uid();
        // Nothing is exported for a user who may not delete the CRD.
        match self.theirs.try_delete(crds, "", name, uid).await {
            Err(error) if !is_no_refusal(&error) => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let job = CustomResourceExport {
            cluster: self.ours,
            theirs: self.theirs,
            live: now,
            site: self.site,
        };
        let removal = match job.run().await? {
            CustomResourceExportOutcome::Changed => return Ok(CrdPruneAttemptResult::Again(None)),
            CustomResourceExportOutcome::Nothing => CrdPruneOutcome::Deleted,
            CustomResourceExportOutcome::Objects(count, export) => {
                CrdPruneOutcome::Exported(self.exported_text(name, count, &export))
            }
            CustomResourceExportOutcome::Not(why) => {
                return Err(ClusterError::Withheld(format!(
                    "it is not deleted, because its objects cannot be exported: {why}; remove that cause, or the annotation \
                     {REMOVAL}, or delete it without an export: `kubectl delete crd {name}`"
                )));
            }
        };
        let deleted = self.delete(crds, now).await;
        CrdPruneAttemptResult::of(deleted, removal)
    }

    fn exported_text(&self, name: &str, count: u64, export: &str) -> String {
        let noun = if count == 1 { "object" } else { "objects" };
        let namespace = self.site.namespace;
        let (of_it, with) = match self.site.place.is_empty() {
            true => ("", ""),
            false => (" of its cluster", " with a kubeconfig of that cluster"),
        };
        format!(
            "CustomResourceDefinition {name} is deleted with {count} {noun}, which are exported to Secrets in namespace \
             {namespace}{of_it}; finalizers of the objects run, and what they own is deleted and not exported; to restore \
             them, stop their controllers and run `windlass crd restore {name} --export {export}`{with}"
        )
    }
}

/// Whether a failed dry-run deletion still allows the deletion. The CRD may have changed (409), and a dry run never calls an
/// admission webhook with side effects (400).
fn is_no_refusal(error: &ClusterError) -> bool {
    matches!(error.code(), Some(400 | 409))
}

/// Whether an object is being deleted.
fn is_leaving(object: &Object) -> bool {
    object.meta("deletionTimestamp").is_some_and(|it| !it.is_null())
}

/// Whether a CRD may be removed now. `before` is the CRD that its owner read when it decided to remove it.
fn said(
    now: &Object,
    before: &Object,
    mine: &[OwnerLabelOrAnnotation],
    is_trusted: bool,
) -> CrdDeletionConfirmation {
    let was_marked = crd_owners::has_any(before, mine);
    let is_left = was_marked && !crd_owners::has_any(now, mine);
    if is_left || crd_owners::is_of_another(now, mine) {
        return CrdDeletionConfirmation::Left;
    }
    match is_trusted && now.annotation(REMOVAL) == Some(now.uid()) {
        true => CrdDeletionConfirmation::Confirmed,
        false => CrdDeletionConfirmation::Unconfirmed,
    }
}

#[cfg(test)]
mod tests;
