//! Observes one object: its difference from its manifest, its health, and whether it may be deleted.

use apply::dry_run_refusal::{describe, may_be_immutable};
use apply::health::third_party_kind_rules::{self, HealthLibraryUse};
use apply::object_contest::ObjectContest;
use apply::owner_labels_and_apply_annotations::switches_for_apply;
use apply::{LiveObjectDriftState, ManifestToApply, ObjectHealth, health};
use futures::stream::{self, StreamExt as _};
use objects::{Object, ObjectId};
use quarantine::rollback_protected_objects::{is_definition, is_kept, record_refusal};
use reconcile::{DependencyEdge, NextRunTrigger, RunOutcome, condition_reason};

use super::workload_pods::failed;
use super::write::version;
use super::{DriftCheckScope, KustomizationExecutor};
use crate::kustomization::MANAGER;
use windlass_cluster::ClusterError;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::object_watcher::{WatchMoment, WatchedObjectState};
use windlass_cluster::resource_version::number_of;
use windlass_cluster::untyped_objects::DryRunMode;
use windlass_runtime::crd_guard::{self, CrdWritePermission};
use windlass_serve::settings::HealthLibraryMode;

/// Whether a dry-run was about an object that does not exist yet. Only stored objects have a resource version.
fn would_be_created(dry: &Object) -> bool {
    version(dry).is_empty()
}

/// The API server's own word for a refusal.
fn word(error: &ClusterError) -> &str {
    match error {
        ClusterError::Refused(status) => &status.reason,
        ClusterError::NoSuchKind { .. }
        | ClusterError::Unreadable(_)
        | ClusterError::Withheld(_)
        | ClusterError::AccessNotEvaluated(_)
        | ClusterError::NoAnswer(_) => "",
    }
}

/// Whether an error about one object lets a run compare the other objects. That is so for corrections of drift, and for
/// missing rights, which are reported all at once.
fn is_of_one_object(error: &ClusterError, is_correction: bool) -> bool {
    error.code() == Some(403) || (is_correction && error.is_of_object())
}

/// The field with the paths that other managers may set.
const IGNORE: &str = "spec.ignore";

impl KustomizationExecutor {
    /// Compares a manifest with its live object. The memory of earlier runs may be enough, otherwise it takes a dry-run.
    pub(super) async fn observe_object(
        &self,
        manifest: &ManifestToApply,
    ) -> Result<(), ClusterError> {
        if self.known().seen.contains_key(&manifest.id) {
            return Ok(());
        }
        let compared = match self.compare(manifest).await {
            Ok(state) => {
                self.judge_unanswered(manifest, &state);
                self.guarded(manifest, state).await
            }
            refused => refused,
        };
        let is_refused = |state: &LiveObjectDriftState| {
            matches!(
                state,
                LiveObjectDriftState::Refused(_) | LiveObjectDriftState::Incompatible(_)
            )
        };
        if compared.as_ref().map_or(true, is_refused) {
            self.target.watcher().comparison_failed(&self.node, &manifest.id);
        }
        let state = match compared {
            Err(error) if is_of_one_object(&error, self.settings.is_correction) => {
                self.refused(manifest, &error)
            }
            state => state?,
        };
        if matches!(state, LiveObjectDriftState::Skipped | LiveObjectDriftState::Finished) {
            self.contests().end(&manifest.id);
        }
        let state = match state {
            LiveObjectDriftState::MustBeRecreated
                if self.settings.is_way_back && is_kept(&manifest.id) =>
            {
                let subject = manifest.id.subject();
                LiveObjectDriftState::Refused(format!(
                    "{subject} would be deleted and created again, which a rollback does not do; push a revision that works"
                ))
            }
            state => state,
        };
        let state = self.within_measure(manifest, state);
        self.known().seen.insert(manifest.id.clone(), state);
        Ok(())
    }

    /// Compares an object of a later stage with its manifest, beside its id. The result is not kept for that stage itself.
    pub(super) async fn previewed_object(
        &self,
        manifest: &ManifestToApply,
    ) -> Result<(ObjectId, LiveObjectDriftState), ClusterError> {
        let id = manifest.id.clone();
        if let Some(known) = self.known().seen.get(&id) {
            return Ok((id, known.clone()));
        }
        let state = match self.compare(manifest).await {
            Ok(state) => self.guarded(manifest, state).await,
            refused => refused,
        };
        let mut known = self.known();
        known.live.remove(&id);
        known.tried.remove(&id);
        known.rivals.remove(&id);
        drop(known);
        match state {
            // A namespace or a right may come with an earlier stage.
            Err(error) if error.is_of_object() || error.code() == Some(403) => {
                Ok((id, self.refused(manifest, &error)))
            }
            state => Ok((id, state?)),
        }
    }

    /// What refusals say of the time of the next run.
    pub(super) fn refusal_notes(&self) -> [bool; 2] {
        let known = self.known();
        [known.is_transient, known.is_permanent]
    }

    /// Forgets the refusals since [`Self::refusal_notes`].
    pub(super) fn restore_refusal_notes(&self, [is_transient, is_permanent]: [bool; 2]) {
        let mut known = self.known();
        (known.is_transient, known.is_permanent) = (is_transient, is_permanent);
    }

    /// Decides whether an earlier write without an answer made an object what it is.
    fn judge_unanswered(&self, manifest: &ManifestToApply, state: &LiveObjectDriftState) {
        let id = &manifest.id;
        match state {
            LiveObjectDriftState::InSync => {
                let write = self.unanswered().take_applied(id, &manifest.digest);
                self.count_unanswered(id, write);
            }
            LiveObjectDriftState::Missing
            | LiveObjectDriftState::Differs
            | LiveObjectDriftState::MustBeRecreated
            | LiveObjectDriftState::Skipped
            | LiveObjectDriftState::Finished => self.unanswered().forget(id),
            // The object was not compared.
            LiveObjectDriftState::Refused(_)
            | LiveObjectDriftState::Incompatible(_)
            | LiveObjectDriftState::Unmanaged => {}
        }
    }

    /// A CustomResourceDefinition is written only if it fits the objects that exist.
    async fn guarded(
        &self,
        manifest: &ManifestToApply,
        state: LiveObjectDriftState,
    ) -> Result<LiveObjectDriftState, ClusterError> {
        let would_be_written = matches!(
            state,
            LiveObjectDriftState::Missing
                | LiveObjectDriftState::Differs
                | LiveObjectDriftState::Refused(_)
        );
        if !would_be_written || !crd_guard::is_definition(&manifest.object) {
            return Ok(state);
        }
        let guard = self.guard();
        let change = guard.change(&manifest.object, MANAGER);
        Ok(match self.permit.aside(change).await? {
            CrdWritePermission::Allowed => state,
            // The API server refused the dry-run because of a migration that comes before the write.
            CrdWritePermission::Migrates => LiveObjectDriftState::Differs,
            CrdWritePermission::Skipped => LiveObjectDriftState::Skipped,
            CrdWritePermission::Refused(text) => {
                LiveObjectDriftState::Incompatible(self.settings.secrets.mask(&text))
            }
        })
    }

    /// Whether a correction of an object counts, because a watch noticed that it drifted from the applied manifest.
    fn is_counted(&self, manifest: &ManifestToApply) -> bool {
        self.settings.verify == DriftCheckScope::Drifted
            && self.target.watcher().had_applied(&self.node, &manifest.id, &manifest.digest)
    }

    /// Drift is corrected, but not without end where another manager undoes it each time.
    fn within_measure(
        &self,
        manifest: &ManifestToApply,
        state: LiveObjectDriftState,
    ) -> LiveObjectDriftState {
        let id = &manifest.id;
        let digest = &manifest.digest;
        let is_wrong = matches!(
            state,
            LiveObjectDriftState::Missing
                | LiveObjectDriftState::Differs
                | LiveObjectDriftState::MustBeRecreated
        );
        if !is_wrong {
            return state;
        }
        let watcher = self.target.watcher();
        let pause = reconcile::contested_pause(self.desired.retry);
        let now = jiff::Timestamp::now();
        let rival = self.known().rivals.remove(id);
        if !self.is_counted(manifest) {
            self.contests().corrected(id, now, pause);
            return state;
        }
        let contest =
            || rival.unwrap_or_else(|| ObjectContest::new(id, None, MANAGER, IGNORE, pause));
        if self.contests().allows(id, digest, now, pause, contest) {
            return state;
        }
        watcher.hush(&self.node, id);
        LiveObjectDriftState::InSync
    }

    async fn compare(
        &self,
        manifest: &ManifestToApply,
    ) -> Result<LiveObjectDriftState, ClusterError> {
        let id = &manifest.id;
        if let Some(text) = record_refusal(id) {
            return Ok(LiveObjectDriftState::Refused(text));
        }
        let resource = match self.resource_when_served(id).await {
            Ok(resource) => resource,
            Err(error @ ClusterError::NoSuchKind { .. }) => {
                return Ok(self.refused(manifest, &error));
            }
            Err(error) => return Err(error),
        };
        if resource.namespaced && id.namespace.is_empty() {
            let text = "set metadata.namespace or spec.targetNamespace";
            return Ok(LiveObjectDriftState::Refused(format!(
                "{} namespace not specified: {text}",
                id.subject()
            )));
        }
        if !resource.namespaced && !id.namespace.is_empty() {
            // The kind appeared after the scopes were read. The next run knows it.
            self.known().is_transient = true;
            let text = format!("{}: {} turned out to be cluster-scoped", id.subject(), id.kind);
            return Ok(LiveObjectDriftState::Refused(text));
        }
        let watcher = self.target.watcher();
        // Objects may be stored in a version that an older definition does not have.
        if self.settings.is_way_back
            && is_definition(id)
            && self.target.cluster.get(&resource, &id.namespace, &id.name).await?.is_some()
        {
            watcher.released(&self.node, id);
            return Ok(LiveObjectDriftState::Skipped);
        }
        let knowledge = watcher.knowledge(&self.node, id, &manifest.digest);
        let settled = match self.settings.verify {
            DriftCheckScope::Drifted => {
                matches!(knowledge, WatchedObjectState::Applied | WatchedObjectState::Unmoved)
            }
            DriftCheckScope::Moved => knowledge == WatchedObjectState::Unmoved,
            DriftCheckScope::Everything => false,
        };
        if settled {
            return Ok(LiveObjectDriftState::InSync);
        }
        let switches = switches_for_apply(&manifest.object, None);
        if switches.skips_apply(false) {
            watcher.released(&self.node, id);
            return Ok(LiveObjectDriftState::Skipped);
        }
        if switches.ssa == apply::ServerSideApplyPolicy::IfNotPresent
            || apply::owner_labels_and_apply_annotations::expires(&manifest.object)
        {
            return self.compare_if_there(manifest, &resource).await;
        }
        let since = watcher.now();
        // The dry-run itself tells whether the object is there, so a new one costs no request of its own.
        let cluster = &self.target.cluster;
        match cluster.apply(&resource, &manifest.object, MANAGER, DryRunMode::DryRun).await {
            Ok(dry) if would_be_created(&dry) => Ok(LiveObjectDriftState::Missing),
            // Other clients may change the ignored fields, so they are read from the live object.
            Ok(dry)
                if knowledge == WatchedObjectState::Other
                    && self.settings.ignore.leave_alone(&manifest.object)
                    && self.take_over_patch(manifest, &dry).is_none() =>
            {
                let skipped = switches_for_apply(&manifest.object, Some(&dry)).skips_apply(true);
                if skipped {
                    watcher.released(&self.node, id);
                    return Ok(LiveObjectDriftState::Skipped);
                }
                self.known().tried.insert(id.clone(), version(&dry));
                Ok(LiveObjectDriftState::Differs)
            }
            Ok(dry) => match cluster.get(&resource, &id.namespace, &id.name).await? {
                Some(live) => Ok(self.judge(manifest, &resource, live, &dry, since)),
                None => Ok(LiveObjectDriftState::Missing),
            },
            Err(error) if error.is_busy() => Err(error),
            Err(error @ ClusterError::NoSuchKind { .. }) => Ok(self.refused(manifest, &error)),
            Err(error) => {
                let live = cluster.get(&resource, &id.namespace, &id.name).await?;
                self.judge_refusal(manifest, live, &resource, &error).await
            }
        }
    }

    /// Like [`Self::compare`], for manifests whose meaning depends on whether the object exists.
    async fn compare_if_there(
        &self,
        manifest: &ManifestToApply,
        resource: &ApiResourceLocation,
    ) -> Result<LiveObjectDriftState, ClusterError> {
        let id = &manifest.id;
        let watcher = self.target.watcher();
        let since = watcher.now();
        let live = self.target.cluster.get(resource, &id.namespace, &id.name).await?;
        // Parity(flux): a Job that the cluster removed after its work is run again at the interval, not at once.
        let expired = live.is_none()
            && self.settings.verify == DriftCheckScope::Drifted
            && apply::owner_labels_and_apply_annotations::expires(&manifest.object)
            && watcher.had_applied(&self.node, id, &manifest.digest);
        if expired {
            return Ok(LiveObjectDriftState::Finished);
        }
        if switches_for_apply(&manifest.object, live.as_ref()).skips_apply(live.is_some()) {
            watcher.released(&self.node, id);
            // The object is skipped because it exists, by a write of windlass that had no answer.
            if live.is_some_and(|it| apply::is_owned(&it, &self.node.name, &self.node.namespace)) {
                let write = self.unanswered().take_applied(id, &manifest.digest);
                self.count_unanswered(id, write);
            }
            return Ok(LiveObjectDriftState::Skipped);
        }
        let dry =
            self.target.cluster.apply(resource, &manifest.object, MANAGER, DryRunMode::DryRun);
        match (dry.await, live) {
            (Ok(_), None) => Ok(LiveObjectDriftState::Missing),
            (Ok(dry), Some(live)) => Ok(self.judge(manifest, resource, live, &dry, since)),
            (Err(error), _) if error.is_busy() => Err(error),
            (Err(error @ ClusterError::NoSuchKind { .. }), _) => Ok(self.refused(manifest, &error)),
            (Err(error), live) => self.judge_refusal(manifest, live, resource, &error).await,
        }
    }

    /// The difference between a live object and the object that an apply would make.
    fn judge(
        &self,
        manifest: &ManifestToApply,
        resource: &ApiResourceLocation,
        live: Object,
        dry: &Object,
        since: WatchMoment,
    ) -> LiveObjectDriftState {
        let id = &manifest.id;
        let watcher = self.target.watcher();
        if switches_for_apply(&manifest.object, Some(&live)).skips_apply(true) {
            watcher.released(&self.node, id);
            return LiveObjectDriftState::Skipped;
        }
        let drifted = self.take_over_patch(manifest, &live).is_some()
            || self.settings.ignore.have_drifted(&live, dry);
        if !drifted {
            // Another client set what the manifest says, or may set what it set. A watch may not have seen that yet.
            if watcher.is_changed_since_applied(&self.node, &live) {
                self.contests().end(id);
            }
            watcher.applied(&self.node, resource, &manifest.digest, &live, since);
        } else if self.is_counted(manifest) {
            let pause = reconcile::contested_pause(self.desired.retry);
            let now = jiff::Timestamp::now();
            let digest = &manifest.digest;
            let is_contested = self.contests().would_be_contested(id, digest, now, pause);
            if is_contested {
                let contest = ObjectContest::new(id, Some((&live, dry)), MANAGER, IGNORE, pause);
                self.known().rivals.insert(id.clone(), contest);
            }
        }
        self.known().live.insert(id.clone(), live);
        if drifted { LiveObjectDriftState::Differs } else { LiveObjectDriftState::InSync }
    }

    /// A refused dry-run stands, unless recreating the object was asked for and would help.
    async fn judge_refusal(
        &self,
        manifest: &ManifestToApply,
        live: Option<Object>,
        resource: &ApiResourceLocation,
        error: &ClusterError,
    ) -> Result<LiveObjectDriftState, ClusterError> {
        let id = &manifest.id;
        let text = error.to_string();
        let force =
            self.settings.force || switches_for_apply(&manifest.object, live.as_ref()).force;
        // All objects of a kind would go with its definition.
        let may_be_recreated = force && !crd_guard::is_definition(&manifest.object);
        let is_immutable = may_be_immutable(word(error), &text);
        let Some(live) = live.filter(|_| may_be_recreated && is_immutable) else {
            return Ok(self.refused(manifest, error));
        };
        // Before an object is deleted for recreation, its manifest is tried under another name. If the API server refused the
        // new object, the deletion would be useless.
        let mut probe = manifest.object.clone();
        let name: String = format!("{}-windlass-probe", id.name).chars().rev().take(60).collect();
        let name: String = name.chars().rev().collect();
        probe.metadata_mut().insert("name".into(), name.trim_start_matches(['-', '.']).into());
        match self.target.cluster.apply(resource, &probe, MANAGER, DryRunMode::DryRun).await {
            Ok(_) => {
                self.known().live.insert(id.clone(), live);
                Ok(LiveObjectDriftState::MustBeRecreated)
            }
            Err(error) if error.is_busy() => Err(error),
            Err(_) => Ok(self.refused(manifest, error)),
        }
    }

    /// The kind of a manifest. If the kind is not served, it wakes this node when it is.
    async fn resource_when_served(
        &self,
        id: &ObjectId,
    ) -> Result<ApiResourceLocation, ClusterError> {
        match self.resource(id).await {
            // For a moment, the API server lists a new version without its kinds.
            Err(ClusterError::NoSuchKind { .. } | ClusterError::NoAnswer(_)) => {}
            found => return found,
        }
        let missing = {
            let mut known = self.known();
            known.missing.insert(windlass_cluster::crd_watch::kinds_of(&id.group));
            known.missing.clone()
        };
        self.context.work_queue.set_edges(&self.node, DependencyEdge::Waits, missing);
        // The kind may have been served between the request and the wait, and would not wake the node then.
        self.resource(id).await
    }

    pub(super) fn refused(
        &self,
        manifest: &ManifestToApply,
        error: &ClusterError,
    ) -> LiveObjectDriftState {
        let id = &manifest.id;
        {
            let mut known = self.known();
            known.is_permanent |= error.is_permanent();
            // A webhook that is down refuses this object, which is not tried any sooner for that.
            known.is_transient |= error.is_busy();
            self.note_forbidden(&mut known, error);
        }
        LiveObjectDriftState::Refused(describe(
            id,
            word(error),
            &self.settings.secrets.mask(&error.to_string()),
        ))
    }

    /// The present health of an object, with its id.
    pub(super) async fn health_of(
        &self,
        id: ObjectId,
    ) -> Result<(ObjectId, ObjectHealth), ClusterError> {
        let mut report = self.health(&id).await?;
        // Statuses of objects may quote their fields.
        let said = report.conditions.iter_mut().map(|says| &mut says.message);
        for text in said.chain([&mut report.message]).filter(|text| !text.is_empty()) {
            *text = self.settings.secrets.mask(text);
        }
        Ok((id, report))
    }

    async fn health(&self, id: &ObjectId) -> Result<ObjectHealth, ClusterError> {
        if self.known().healthy.contains_key(id) {
            return Ok(current());
        }
        let resource = match self.resource(id).await {
            Ok(resource) => resource,
            Err(ClusterError::NoSuchKind { .. }) => return Ok(ObjectHealth::not_found()),
            Err(error) => return Err(error),
        };
        // A recently read or written object need not be read again. If it changed since, its watch reports that.
        let known = self.known().live.get(id).cloned();
        let fresh = known.is_some();
        let live = match known {
            Some(live) => Some(live),
            None => match self.target.cluster.get(&resource, &id.namespace, &id.name).await {
                Ok(live) => live,
                Err(ClusterError::NoSuchKind { .. }) => return Ok(ObjectHealth::not_found()),
                Err(error) => return Err(error),
            },
        };
        // The version is 0 if the object does not exist.
        let seen = live.as_ref().map(|live| number_of(&version(live))).unwrap_or_default();
        self.known().examined.insert(id.clone(), seen);
        let Some(live) = live else { return Ok(ObjectHealth::not_found()) };
        if id.group == "batch" && id.kind == "Job" {
            return Ok(health::job(&live));
        }
        if let Some(report) = self.settings.expressions.report(&live).await {
            return Ok(report);
        }
        let now = jiff::Timestamp::now();
        let library_use = library_use(self.context.settings.health_library);
        let own =
            third_party_kind_rules::refined(&live, health::read(&live, &[], now), now, library_use);
        // Only an object in progress is judged by its Pods. A recently read or written object is read again instead.
        let has_pods = health::related_kinds(&live.gvk()).is_some();
        if fresh || !has_pods || own.status != apply::HealthStatus::InProgress {
            return Ok(own);
        }
        let related = failed(&self.target.cluster, &live, now).await;
        Ok(health::read(&live, &related, now))
    }

    /// Finds out which recorded objects that left the manifests are already gone, or not ours to delete.
    pub(super) async fn observe_prune_candidates(&self) -> Result<(), RunOutcome> {
        let manifests = self.desired.stages.iter().flat_map(|stage| &stage.objects);
        let wanted: apply::ObjectInventory =
            manifests.map(|m| (m.id.clone(), m.object.gvk().version)).collect();
        let stale: Vec<(ObjectId, String)> = {
            let known = self.known();
            let stale = known.recorded.minus(&wanted).into_iter();
            stale.filter(|(id, _)| !known.gone.contains(id)).collect()
        };
        let width = usize::from(self.context.settings.concurrent_ssa);
        let observations: Vec<_> =
            stale.into_iter().map(|(id, version)| self.live_of(id, version)).collect();
        let found: Vec<Result<(ObjectId, Option<Object>), ClusterError>> =
            stream::iter(observations).buffer_unordered(width).collect().await;
        let failed = |error: ClusterError| {
            let wake = NextRunTrigger::at(self.again_at(error.is_transient()));
            RunOutcome::Failed(condition_reason::PRUNE_FAILED, error.to_string(), wake)
        };
        let found = found.into_iter().collect::<Result<Vec<_>, _>>().map_err(failed)?;
        self.order_deletions(&found).await.map_err(failed)?;
        for (id, live) in found {
            self.judge_prune_candidate(id, live);
        }
        self.note_kept().await;
        Ok(())
    }

    async fn live_of(
        &self,
        id: ObjectId,
        version: String,
    ) -> Result<(ObjectId, Option<Object>), ClusterError> {
        let live = self.target.cluster.get_by_id(&id, &version).await?;
        Ok((id, live))
    }

    /// Whether a recorded object that left the manifests is ours, and may be deleted.
    pub(super) fn is_to_be_pruned(&self, live: &Object) -> bool {
        let id = live.id();
        let is_ours = apply::is_owned(live, &self.node.name, &self.node.namespace);
        let is_wanted = self.desired.wants_cluster_scoped(&id);
        // An earlier windlass may have applied a record, which may be in force now.
        let is_record = record_refusal(&id).is_some();
        is_ours && !is_wanted && !is_record && !apply::switches(live).skips_prune()
    }

    fn judge_prune_candidate(&self, id: ObjectId, live: Option<Object>) {
        let deletion = match &live {
            Some(live) if !is_leaving(live) => {
                self.unanswered().forget(&id);
                None
            }
            live => self.unanswered().take_deleted(&id, live.as_ref().map(Object::uid)),
        };
        self.count_unanswered(&id, deletion);
        let mut known = self.known();
        let Some(live) = live else {
            known.leaving.remove(&id);
            known.terminating.remove(&id);
            // After a crash it is not known who deleted the object, so it counts in any case.
            known.uncounted.insert(id.clone());
            known.gone.insert(id);
            return;
        };
        if !self.is_to_be_pruned(&live) {
            known.gone.insert(id);
            return;
        }
        if is_leaving(&live) {
            // Its deletion was accepted before, but finalizers of other controllers may keep it for long.
            known.terminating.insert(id.clone(), super::finalizers(&live));
            known.uncounted.insert(id.clone());
            // A Kustomization that applies itself is not gone before this run has ended.
            let is_own = id == self.desired.own;
            if !is_own && (self.settings.await_end || known.awaited_ends.contains(&id)) {
                known.leaving.insert(id);
            } else {
                known.gone.insert(id);
            }
            return;
        }
        known.live.insert(id, live);
    }
}

/// Whether an object is being deleted.
fn is_leaving(object: &Object) -> bool {
    object.meta("deletionTimestamp").is_some_and(|it| !it.is_null())
}

fn library_use(mode: HealthLibraryMode) -> HealthLibraryUse {
    match mode {
        HealthLibraryMode::UnknownKinds => HealthLibraryUse::UnknownKinds,
        HealthLibraryMode::Full => HealthLibraryUse::Full,
        HealthLibraryMode::Off => HealthLibraryUse::Off,
    }
}

/// The health report of an object that was healthy earlier in the same wait.
fn current() -> ObjectHealth {
    ObjectHealth {
        status: apply::HealthStatus::Current,
        message: String::new(),
        conditions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use kube_core::Status;

    use super::*;

    #[test]
    fn rights_that_are_missing_for_an_object_do_not_hide_those_that_are_missing_for_others() {
        let refused = |code| ClusterError::Refused(Box::new(Status { code, ..Status::default() }));
        assert!(is_of_one_object(&refused(403), false) && is_of_one_object(&refused(403), true));
        assert!(!is_of_one_object(&refused(500), false) && is_of_one_object(&refused(500), true));
        let no_answer = ClusterError::NoAnswer("timed out".to_owned());
        assert!(!is_of_one_object(&no_answer, true), "the API server is at fault");
    }
}
