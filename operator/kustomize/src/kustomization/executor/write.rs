//! Writes objects: applies a stage, recreates objects with immutable changes, and deletes objects that left the manifests.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use apply::unanswered_writes::UnansweredWrite;
use apply::{Action, LiveObjectDriftState, ManifestToApply};
use crds::ReconciledObject as _;
use crds::kustomize::Kustomization;
use futures::stream::{self, StreamExt as _};
use objects::{Object, ObjectId};
use reconcile::{
    ConditionReason, NextRunTrigger, RemovalCause, RemovalPermit, RemovalRefusal, RunOutcome,
    condition_reason,
};
use serde_json::Value;

use super::KustomizationExecutor;
use crate::kustomization::{MANAGER, paused_run};
use windlass_cluster::ClusterError;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::object_watcher::WatchMoment;
use windlass_cluster::untyped_objects::DryRunMode;
use windlass_runtime::crd_guard::crd_owners::OwnerLabelOrAnnotation;
use windlass_runtime::crd_guard::{self, CrdGuardian, CrdPruneOutcome};

/// The version in which an object is stored.
pub(super) fn version(object: &Object) -> String {
    object.meta("resourceVersion").and_then(|v| v.as_str()).unwrap_or_default().to_owned()
}

/// The interval at which windlass checks whether a recreated object is gone.
const GONE_POLL: Duration = Duration::from_millis(100);

/// How often windlass tries to take over fields of an object that other clients write at the same time.
const TAKE_OVER_ATTEMPTS: u32 = 5;

/// How long windlass waits until an object that it recreates is gone.
const GONE_LIMIT: Duration = Duration::from_secs(60);

/// The reason why an object was not written.
enum WriteError {
    /// The write failed.
    Failed(WriteFailure),
    /// The object must be deleted and created again, and the removal gate does not permit that now. Has the outcome of
    /// the run.
    Withheld(RunOutcome),
}

/// The failure of a write to the API server, with a text for users.
struct WriteFailure {
    /// Names the object.
    text: String,
    /// The API server or the way to it was at fault.
    is_transient: bool,
}

/// The result of a run with a withheld write. `None` if other writes failed, since the status reports failures first.
fn withheld_rest(failed: &[WriteFailure], withheld: Option<RunOutcome>) -> Option<RunOutcome> {
    withheld.filter(|_| failed.is_empty())
}

impl KustomizationExecutor {
    /// Applies the objects of a stage, several at once. They begin in the order of the stage.
    pub(super) async fn write_stage(
        &self,
        stage: usize,
        ids: &[ObjectId],
        recreate: &[ObjectId],
    ) -> Result<(), RunOutcome> {
        let Some(stage) = self.desired.stages.get(stage) else { return Ok(()) };
        let (ids, recreate): (BTreeSet<_>, BTreeSet<_>) =
            (ids.iter().collect(), recreate.iter().collect());
        let mut writes = Vec::with_capacity(ids.len());
        for manifest in &stage.objects {
            if ids.contains(&manifest.id) {
                writes.push(self.write_reported(manifest, recreate.contains(&manifest.id)));
            }
        }
        let width = usize::from(self.context.settings.concurrent_ssa);
        let outcomes: Vec<Result<(), WriteError>> =
            stream::iter(writes).buffered(width).collect().await;
        let mut failed = Vec::new();
        let mut withheld = None;
        for unwritten in outcomes.into_iter().filter_map(Result::err) {
            match unwritten {
                WriteError::Failed(failure) => failed.push(failure),
                WriteError::Withheld(outcome) => withheld = withheld.or(Some(outcome)),
            }
        }
        // Stopping the run interrupts a migration, which is not a failure.
        let stopped = self.stopped().filter(|_| !failed.is_empty());
        match stopped.or(withheld_rest(&failed, withheld)) {
            Some(outcome) => Err(outcome),
            None => self.failed(condition_reason::RECONCILIATION_FAILED, &failed),
        }
    }

    /// The permit to delete an object that is created again.
    fn permit_recreation(&self) -> Result<RemovalPermit, RunOutcome> {
        let now = jiff::Timestamp::now();
        let gate = self.removal_gate(RemovalCause::Recreated, now);
        gate.permit(now).map_err(|refused| self.not_removed(refused))
    }

    /// The outcome of a run that may not remove anything.
    fn not_removed(&self, refused: RemovalRefusal) -> RunOutcome {
        let frozen =
            || self.settings.freeze.as_ref().map(|it| it.outcome("the deletion of objects"));
        self.stopped().or_else(frozen).unwrap_or_else(|| {
            let why = match refused {
                RemovalRefusal::Suspended => condition_reason::SUSPENDED,
                RemovalRefusal::WindowClosed => condition_reason::WINDOW_CLOSED,
                RemovalRefusal::Frozen => condition_reason::FROZEN,
            };
            let text = "objects are deleted later".to_owned();
            RunOutcome::Blocked(why, text, NextRunTrigger::at(self.settings.retry_at))
        })
    }

    /// The result of several writes. The run tries again soon if a write failed through no fault of its own.
    fn failed(&self, reason: ConditionReason, failures: &[WriteFailure]) -> Result<(), RunOutcome> {
        if failures.is_empty() {
            return Ok(());
        }
        let strings: Vec<&str> = failures.iter().map(|it| it.text.as_str()).collect();
        let at = self.again_at(failures.iter().any(|it| it.is_transient));
        Err(RunOutcome::Failed(reason, strings.join("\n"), NextRunTrigger::at(at)))
    }

    /// Writes one object. An error names the object.
    async fn write_reported(
        &self,
        manifest: &ManifestToApply,
        is_recreated: bool,
    ) -> Result<(), WriteError> {
        // The permit is asked for each object, as for pruning, since the end of the previous object may have taken long.
        let recreation = match is_recreated {
            true => Some(self.permit_recreation().map_err(WriteError::Withheld)?),
            false => None,
        };
        let Err(error) = self.write(manifest, recreation).await else { return Ok(()) };
        // When drift is corrected, a refused object stops neither the other objects nor the later stages.
        if self.settings.is_correction && !error.is_of_server() {
            let refused = self.refused(manifest, &error);
            self.known().seen.insert(manifest.id.clone(), refused);
            return Ok(());
        }
        self.note(&error);
        let masked = self.settings.secrets.mask(&error.to_string());
        let text = format!("{}: {masked}", manifest.id.subject());
        Err(WriteError::Failed(WriteFailure { text, is_transient: error.is_transient() }))
    }

    async fn write(
        &self,
        manifest: &ManifestToApply,
        recreation: Option<RemovalPermit>,
    ) -> Result<(), ClusterError> {
        let id = &manifest.id;
        let resource = self.resource(id).await?;
        let watcher = self.target.watcher();
        let (live, was_missing) = {
            let known = self.known();
            (
                known.live.get(id).cloned(),
                known.seen.get(id) == Some(&LiveObjectDriftState::Missing),
            )
        };
        let action =
            if was_missing || recreation.is_some() { Action::Created } else { Action::Configured };
        let sent = jiff::Timestamp::now();
        watcher.writing(&self.node, id);
        let written = self.write_over(manifest, &resource, live, recreation).await;
        match written {
            Ok((written, since)) => {
                watcher.applied(&self.node, &resource, &manifest.digest, &written, since);
                self.unanswered().forget(id);
                let mut known = self.known();
                known.seen.insert(id.clone(), LiveObjectDriftState::InSync);
                known.healthy.remove(id);
                // Another manifest may still be for the same object.
                let changed = known.tried.get(id).is_none_or(|tried| *tried != version(&written));
                if let Some(before) = known.live.get(id) {
                    let fields = apply::object_changes::fields(before, &written);
                    known.fields.insert(id.clone(), fields);
                }
                known.live.insert(id.clone(), written);
                if changed {
                    known.changes.push((id.clone(), action));
                }
                Ok(())
            }
            Err(error) => {
                watcher.write_failed(&self.node, id);
                let subject = manifest.digest.clone();
                self.note_unanswered(id, UnansweredWrite { action, subject, sent }, &error);
                Err(error)
            }
        }
    }

    /// Remembers a failed write that the API server may have carried out. The requests before it count as part of the write.
    /// If the object later has the written fields, another client has hardly set them.
    fn note_unanswered(&self, id: &ObjectId, write: UnansweredWrite, error: &ClusterError) {
        if error.may_be_done() {
            self.unanswered().put(id, write);
        }
    }

    async fn write_over(
        &self,
        manifest: &ManifestToApply,
        resource: &ApiResourceLocation,
        live: Option<Object>,
        recreation: Option<RemovalPermit>,
    ) -> Result<(Object, WatchMoment), ClusterError> {
        let cluster = &self.target.cluster;
        let mut payload = Cow::Borrowed(&manifest.object);
        match (live, recreation) {
            (Some(live), Some(permit)) => self.remove_and_wait(permit, resource, &live).await?,
            (Some(live), None) => {
                let live = self.take_over(manifest, resource, live).await?;
                if !self.settings.ignore.leave_alone(&manifest.object) {
                    payload = Cow::Owned(self.settings.ignore.payload(&payload, &live, MANAGER));
                }
            }
            (None, _) => {}
        }
        if crd_guard::is_definition(&payload) {
            let guard = self.guard();
            let is_stopped = || self.stopped().is_some();
            let migration = guard.migrate(&payload, MANAGER, &is_stopped);
            let migrated = self.permit.aside(migration).await;
            migrated
                .map_err(|error| error.refusal().map_or_else(|it| it, ClusterError::Withheld))?;
        }
        // The end of a recreated object came before this time.
        let since = self.target.watcher().now();
        let written = cluster.apply(resource, &payload, MANAGER, DryRunMode::Write).await?;
        Ok((written, since))
    }

    /// Takes over fields of other tools, except for ignored fields. If another client writes in between, windlass observes the
    /// object again. Returns the object as it was last read.
    async fn take_over(
        &self,
        manifest: &ManifestToApply,
        resource: &ApiResourceLocation,
        live: Object,
    ) -> Result<Object, ClusterError> {
        let cluster = &self.target.cluster;
        let id = &manifest.id;
        let mut live = live;
        for attempt in 1.. {
            let Some(patch) = self.take_over_patch(manifest, &live) else { break };
            match cluster.json_patch(resource, &id.namespace, &id.name, &patch).await {
                Ok(_) => break,
                Err(error) if error.code() == Some(409) && attempt < TAKE_OVER_ATTEMPTS => {}
                Err(error) => return Err(error),
            }
            let Some(now) = cluster.get(resource, &id.namespace, &id.name).await? else { break };
            live = now;
        }
        Ok(live)
    }

    /// The patch that transfers fields of other tools to windlass's field manager. `None` if there are no such fields.
    pub(super) fn take_over_patch(
        &self,
        manifest: &ManifestToApply,
        live: &Object,
    ) -> Option<Value> {
        let ManifestToApply { object, .. } = manifest;
        let is_merged =
            apply::owner_labels_and_apply_annotations::switches_for_apply(object, Some(live)).ssa
                == apply::ServerSideApplyPolicy::Merge;
        let overrides = &self.context.settings.override_manager;
        let patch = self.settings.ignore.take_over(object, live, MANAGER, overrides);
        patch.filter(|_| !is_merged)
    }

    /// Deletes an object for recreation, and waits until its name is free.
    async fn remove_and_wait(
        &self,
        permit: RemovalPermit,
        resource: &ApiResourceLocation,
        live: &Object,
    ) -> Result<(), ClusterError> {
        let cluster = &self.target.cluster;
        cluster.delete_managed(permit, resource, live, "Background").await?;
        self.permit.aside(self.gone(resource, live)).await
    }

    /// Waits until an object's name is free.
    async fn gone(
        &self,
        resource: &ApiResourceLocation,
        live: &Object,
    ) -> Result<(), ClusterError> {
        let cluster = &self.target.cluster;
        let deadline = tokio::time::Instant::now() + GONE_LIMIT;
        loop {
            match cluster.get(resource, live.namespace(), live.name()).await? {
                Some(still) if still.uid() == live.uid() => {}
                Some(_) | None => return Ok(()),
            }
            if tokio::time::Instant::now() >= deadline {
                let text = format!(
                    "it was deleted in order to be recreated, but still exists after {GONE_LIMIT:?}"
                );
                return Err(ClusterError::NoAnswer(text));
            }
            tokio::time::sleep(GONE_POLL).await;
        }
    }

    /// Deletes objects that left the manifests. If an object cannot be deleted, the others are deleted all the same.
    pub(super) async fn prune(&self, ids: &[(ObjectId, String)]) -> Result<(), RunOutcome> {
        let mut failed = Vec::new();
        // Objects that were not deleted, and the objects that come after them in the order.
        let mut kept = BTreeSet::new();
        for (id, _) in ids {
            if self.known().predecessors.get(id).is_some_and(|it| !it.deleted.is_disjoint(&kept)) {
                kept.insert(id.clone());
                continue;
            }
            let Some(live) = self.known().live.get(id).cloned() else { continue };
            // This is asked for each object. Many deletions take long, and meanwhile the Kustomization may be suspended or its
            // window may close.
            let now = jiff::Timestamp::now();
            let gate = self.removal_gate(self.settings.removal, now);
            let permit = match paused_run::permit_removal(gate, &live, now) {
                Ok(permit) => permit,
                Err(refused) => return Err(self.not_removed(refused)),
            };
            if let Err(error) = self.remove(permit, id, &live).await {
                self.note(&error);
                kept.insert(id.clone());
                let subject = live.uid().to_owned();
                let write = UnansweredWrite { action: Action::Deleted, subject, sent: now };
                self.note_unanswered(id, write, &error);
                failed.push(WriteFailure {
                    text: format!("{} delete failed: {error}", id.subject()),
                    is_transient: error.is_transient(),
                });
            }
        }
        self.failed(condition_reason::PRUNE_FAILED, &failed)
    }

    async fn remove(
        &self,
        permit: RemovalPermit,
        id: &ObjectId,
        live: &Object,
    ) -> Result<(), ClusterError> {
        if crd_guard::is_definition(live) {
            if !self.remove_definition(permit, live).await? {
                self.known().gone.insert(id.clone());
                return Ok(());
            }
        } else {
            // The object is deleted in the version in which it was found, since the version in the inventory may be no longer
            // served.
            let resource = self.target.cluster.resource(&live.gvk()).await?;
            self.target.cluster.delete_managed(permit, &resource, live, "Background").await?;
        }
        let finalizers = super::finalizers(live);
        let mut known = self.known();
        known.changes.push((id.clone(), Action::Deleted));
        known.uncounted.insert(id.clone());
        if self.settings.await_end || !finalizers.is_empty() {
            known.terminating.insert(id.clone(), finalizers);
        }
        let is_own = *id == self.desired.own;
        if !is_own && (self.settings.await_end || known.awaited_ends.contains(id)) {
            known.leaving.insert(id.clone());
        } else {
            known.gone.insert(id.clone());
        }
        Ok(())
    }

    /// Deletes a CustomResourceDefinition. Returns `false` if the definition is still used, and was released instead.
    async fn remove_definition(
        &self,
        permit: RemovalPermit,
        live: &Object,
    ) -> Result<bool, ClusterError> {
        let guard = self.guard();
        let mine = [
            OwnerLabelOrAnnotation::label(
                apply::owner_labels_and_apply_annotations::OWNER_NAME,
                &self.node.name,
            ),
            OwnerLabelOrAnnotation::label(
                apply::owner_labels_and_apply_annotations::OWNER_NAMESPACE,
                &self.node.namespace,
            ),
        ];
        let removal = guard.remove(permit, live, MANAGER, &mine, "Background");
        let (why, message, is_deleted) = match self.permit.aside(removal).await? {
            CrdPruneOutcome::Deleted => return Ok(true),
            CrdPruneOutcome::Exported(text) => (condition_reason::CRD_EXPORTED, text, true),
            CrdPruneOutcome::Released(text) => (condition_reason::CRD_RELEASED, text, false),
        };
        let event = ObjectEvent {
            severity: EventSeverity::Info,
            reason: why.as_str().to_owned(),
            message,
            metadata: BTreeMap::new(),
        };
        self.context.events.announce(&*self.object(), Kustomization::CONTROLLER, event);
        Ok(is_deleted)
    }

    /// The guard that judges changes of CRDs by this Kustomization.
    pub(super) fn guard(&self) -> CrdGuardian<'_> {
        CrdGuardian::new(&self.context, &self.target, &self.node.namespace)
            .ignoring(&self.settings.ignore)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_withheld_recreation_hides_no_failure() {
        let withheld = || {
            let text = "objects are deleted later".to_owned();
            Some(RunOutcome::Blocked(
                condition_reason::WINDOW_CLOSED,
                text,
                NextRunTrigger::default(),
            ))
        };
        let failure = WriteFailure { text: "ConfigMap/apps/a".to_owned(), is_transient: false };
        assert_eq!(withheld_rest(&[], withheld()), withheld());
        assert_eq!(withheld_rest(&[failure], withheld()), None);
    }
}
