//! Observes a Kustomization's objects in the cluster, and performs the steps of its run on them and on the inventory in its
//! status.
//!
//! Here: the state of a run, observing stage by stage, performing steps. Elsewhere: one object's comparison (`observe`), one
//! object's write (`write`), approvals of the run's changes (`change_judgement`), the budget of deletions
//! (`deletion_judgement`), which objects have to be gone before others are deleted (`deletion_order`), the decision about the
//! next step (`apply::plan`).

mod change_judgement;
mod deletion_judgement;
mod deletion_order;
mod observe;
mod workload_pods;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use apply::contested_object_corrections::ContestedObjectCorrections;
use apply::deletion_order::DeletionPredecessors;
use apply::kustomization_apply_planner::{
    AWAITING_TERMINATION, health_text, is_passed, stage_reason,
};
use apply::object_changes::{ObjectChange, ObjectChangeKind};
use apply::object_contest::ObjectContest;
use apply::unanswered_writes::{UnansweredWrite, UnansweredWrites};
use apply::{
    Action, ApplyDesiredState, ApplyObservedState, ApplyStep, FailedHealthWait, HealthWaitScope,
    KustomizationApplyPlanner, LiveObjectDriftState, ManifestToApply, ObjectHealth,
    ObjectInventory, ObservedObject,
};
use crds::kustomize::Kustomization;
use futures::stream::{self, StreamExt as _};
use objects::{Object, ObjectId, SecretMasking};
use parking_lot::{Mutex, MutexGuard};
use reconcile::{
    FreezeHold, NextRunTrigger, ObjectKey, RemovalCause, RemovalGate, RunOutcome, Time,
    condition_reason,
};

use self::change_judgement::PermittedChanges;
use super::KustomizationSession;
use super::audit::RunChanges;
use super::over_budget_prune::DeletionJudgement;
use super::report::InventoryWriteProgress;
use windlass_cluster::ClusterError;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::object_watcher::{AwaitedObject, OwnerLabelPresence};
use windlass_cluster::rbac_watch::rights;
use windlass_cluster::resource_version::LATEST_VERSION;
use windlass_cluster::run_permits::RunPermit;
use windlass_expressions::RunExpressions;
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::object_status::LatestWrittenObject;
use windlass_runtime::progress_status;
use windlass_runtime::run_context::RunContext;

/// Up to so many objects are applied without a progress report, because that takes little time.
const MAX_UNREPORTED_APPLY_OBJECTS: usize = 16;

/// The delay after a failure that is not the fault of the spec.
const TRANSIENT_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The facts that a run has read and the changes that it has made so far.
#[derive(Default)]
struct ObservedKustomizationState {
    recorded: ObjectInventory,
    /// Manifests observed in this run.
    seen: BTreeMap<ObjectId, LiveObjectDriftState>,
    /// Live objects as last read, for writes and health.
    live: BTreeMap<ObjectId, Object>,
    /// The versions of live objects that were not read, from the responses to their dry-runs.
    tried: BTreeMap<ObjectId, String>,
    /// Objects that were healthy when last read, with their resourceVersions at that time.
    healthy: BTreeMap<ObjectId, u64>,
    /// The fields of drifted objects that other field managers own.
    rivals: BTreeMap<ObjectId, ObjectContest>,
    /// Whether a request failed because of the API server and not because of the spec.
    is_transient: bool,
    /// Whether an object was refused and will be until something changes.
    is_permanent: bool,
    /// The longest `Retry-After` of the API server.
    retry_after: Option<Duration>,
    /// The resourceVersions in which health was last read. 0 for a missing object.
    examined: BTreeMap<ObjectId, u64>,
    gone: BTreeSet<ObjectId>,
    leaving: BTreeSet<ObjectId>,
    /// The objects that have to be gone before an object that left the manifests is deleted.
    predecessors: BTreeMap<ObjectId, DeletionPredecessors>,
    /// Objects that left the manifests, and whose end is awaited before others are deleted.
    awaited_ends: BTreeSet<ObjectId>,
    /// Whether a user requests the deletion of objects in any order. `None` if this was not read yet.
    skips_order: Option<bool>,
    /// Objects of other namespaces that are still being deleted, and which the run did not wait for any longer.
    overdue: BTreeSet<ObjectKey>,
    /// Objects that left the manifests, whose deletion waits for approval.
    held: BTreeSet<ObjectId>,
    /// Objects that left the manifests and stay on the way back to the last good result.
    kept: BTreeSet<ObjectId>,
    /// Objects that left the manifests and are exempt from the deletion budget.
    exempt: BTreeSet<ObjectId>,
    /// The judgement about the deletion of objects that left the manifests.
    deletion: DeletionJudgement,
    /// The changes that the run may carry out, if a PlanPolicy or an annotation asks for an approval.
    cleared: Option<PermittedChanges>,
    /// Deleted objects of the inventory that are not counted yet. This run deleted them, or a run that did not record it.
    uncounted: BTreeSet<ObjectId>,
    /// Objects whose deletion the API server accepted and whose end was not seen, with their finalizers.
    terminating: BTreeMap<ObjectId, Vec<String>>,
    changes: Vec<(ObjectId, Action)>,
    /// The time of the first change of an earlier run that got no answer.
    unanswered_since: Option<Time>,
    /// The changed fields of configured objects.
    fields: BTreeMap<ObjectId, Vec<String>>,
    /// The nodes that wake the run: kinds that are not served yet, missing rights, and objects that have to be gone before
    /// others are deleted.
    missing: BTreeSet<ObjectKey>,
}

/// The state of a Kustomization's run: the objects of the target cluster, and the inventory in the status.
pub(super) struct KustomizationExecutor {
    context: Arc<RunContext>,
    target: Arc<ClusterTarget>,
    /// The permit of the run to apply in the cluster.
    permit: RunPermit,
    node: ObjectKey,
    latest: Arc<LatestWrittenObject<Kustomization>>,
    object: Mutex<Arc<Kustomization>>,
    desired: Arc<ApplyDesiredState>,
    settings: ApplySettings,
    /// API versions of everything that a run may touch.
    versions: BTreeMap<ObjectId, String>,
    known: Mutex<ObservedKustomizationState>,
}

/// The settings of a run that are not in the desired state of the plan.
pub(super) struct ApplySettings {
    /// Names the build, as the history does. Empty if nothing was built.
    pub(super) digest: String,
    /// Which objects are compared, although they are remembered as applied.
    pub(super) verify: DriftCheckScope,
    /// `spec.force`.
    pub(super) force: bool,
    /// The cause for which undesired objects are deleted.
    pub(super) removal: RemovalCause,
    /// Whether the run waits for the end of deleted objects.
    pub(super) await_end: bool,
    /// API versions of objects whose health is asked for by name.
    pub(super) health_versions: BTreeMap<ObjectId, String>,
    /// Expressions that judge objects in place of the usual rules.
    pub(super) expressions: Arc<RunExpressions>,
    /// The objects of this build that were healthy in an earlier run, with their resourceVersions then.
    pub(super) healthy: BTreeMap<ObjectId, u64>,
    /// The failed health wait for this desired state, until the wait is repeated.
    pub(super) failed_wait: Option<FailedHealthWait>,
    /// Whether this build was applied completely before.
    pub(super) is_correction: bool,
    /// Whether this build is applied in place of a quarantined one. In that case objects with data are not deleted, and
    /// existing CustomResourceDefinitions stay unchanged.
    pub(super) is_way_back: bool,
    /// The Freezes that hold deletions, if any do.
    pub(super) freeze: Option<Arc<FreezeHold>>,
    /// Objects that another manager changes again and again.
    pub(super) contests: Arc<Mutex<ContestedObjectCorrections>>,
    /// Writes of earlier runs, and of this one, that the API server did not answer.
    pub(super) unanswered: Arc<Mutex<UnansweredWrites>>,
    /// Since when runs have waited for the end of dependents, before they delete the objects that these need.
    pub(super) dependents_awaited: Arc<Mutex<Option<Time>>>,
    /// The secret values that must not be repeated from messages of API servers and objects.
    pub(super) secrets: SecretMasking,
    /// The fields that other managers may change.
    pub(super) ignore: Arc<apply::drift_ignore_rules::DriftIgnoreRules>,
    /// The time when a failed request is tried again.
    pub(super) retry_at: Time,
    /// The time when a run that waits for the approval of its Plan checks again by itself.
    pub(super) plan_again_at: Time,
}

/// Which objects are compared, although they are remembered as applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DriftCheckScope {
    /// The objects whose fields another client owns now, by a watch, and the objects that cannot be watched.
    Drifted,
    /// All objects that changed in any way. It is used after each interval.
    Moved,
    /// All objects, because a reconciliation was requested.
    Everything,
}

impl KustomizationExecutor {
    pub(super) fn new(
        session: &KustomizationSession<'_>,
        target: Arc<ClusterTarget>,
        permit: RunPermit,
        object: &Arc<Kustomization>,
        desired: Arc<ApplyDesiredState>,
        settings: ApplySettings,
    ) -> Result<Self, RunOutcome> {
        let object = session.latest.begun(object);
        let entries = object.status.as_ref().and_then(|s| s.inventory.as_ref());
        let entries: Vec<(String, String)> = entries
            .map(|i| i.entries.iter().map(|e| (e.id.clone(), e.version.clone())).collect())
            .unwrap_or_default();
        let (recorded, unreadable) = ObjectInventory::from_entries(&entries);
        if !unreadable.is_empty() {
            // A further step would write the inventory without these objects, and so forget them.
            let text = format!(
                "status.inventory has invalid entries: {}; correct or remove them",
                unreadable.join(", ")
            );
            return Err(RunOutcome::Failed(
                condition_reason::RECONCILIATION_FAILED,
                text,
                NextRunTrigger::default(),
            ));
        }
        let of_entry =
            recorded.ids().filter_map(|id| Some((id.clone(), recorded.version(id)?.to_owned())));
        let mut versions: BTreeMap<ObjectId, String> = of_entry.collect();
        versions.extend(settings.health_versions.clone());
        let manifests = desired.stages.iter().flat_map(|stage| &stage.objects);
        versions.extend(manifests.map(|m| (m.id.clone(), m.object.gvk().version)));
        settings.unanswered.lock().retain(|id| versions.contains_key(id));
        let known = ObservedKustomizationState {
            recorded,
            healthy: settings.healthy.clone(),
            ..ObservedKustomizationState::default()
        };
        let object = Mutex::new(object);
        let known = Mutex::new(known);
        Ok(Self {
            context: session.context.clone(),
            target,
            permit,
            node: session.node.clone(),
            latest: session.latest.clone(),
            object,
            desired,
            settings,
            versions,
            known,
        })
    }

    /// Nodes that stand for kinds which were needed and are not served, and objects that have to be gone first.
    pub(super) fn missing(&self) -> BTreeSet<ObjectKey> {
        self.known().missing.clone()
    }

    fn known(&self) -> MutexGuard<'_, ObservedKustomizationState> {
        self.known.lock()
    }

    /// The Kustomization as our last write left it.
    pub(super) fn object(&self) -> Arc<Kustomization> {
        self.object.lock().clone()
    }

    /// The objects that were created, configured and deleted, in the order of events.
    pub(super) fn changes(&self) -> Vec<(ObjectId, Action)> {
        self.known().changes.clone()
    }

    /// The changes of [`Self::changes`], as an audit record lists them.
    pub(super) fn audited(&self) -> RunChanges {
        let known = self.known();
        let change = |(id, action): &(ObjectId, Action)| ObjectChange {
            id: id.clone(),
            what: match action {
                Action::Created => ObjectChangeKind::Added,
                Action::Deleted => ObjectChangeKind::Removed,
                _ => ObjectChangeKind::Changed,
            },
            fields: known.fields.get(id).cloned().unwrap_or_default(),
        };
        let objects = known.changes.iter().map(change).collect();
        let waited = self.settings.await_end.then_some(self.desired.timeout);
        let terminating = super::report::terminating(&known.terminating, waited);
        let is_end_awaited = self.settings.await_end;
        let unanswered_since = known.unanswered_since;
        RunChanges { objects, unanswered_since, terminating, is_end_awaited }
    }

    /// The judgement about the deletion of objects that left the manifests.
    pub(super) fn deletion(&self) -> DeletionJudgement {
        self.known().deletion.clone()
    }

    /// The name of the Plan whose approval permits the changes of this run. `None` if they need no approval, or are not
    /// permitted yet.
    pub(super) fn approved_plan(&self) -> Option<String> {
        self.known().cleared.as_ref()?.plan.clone()
    }

    /// Whether objects were deleted that are in the recorded inventory still.
    pub(super) fn has_unrecorded_deletions(&self) -> bool {
        !self.known().uncounted.is_empty()
    }

    /// Objects that were healthy when last observed, with their resourceVersions at that time.
    pub(super) fn healthy(&self) -> BTreeMap<ObjectId, u64> {
        self.known().healthy.clone()
    }

    /// Whether every refusal lasts until something changes.
    pub(super) fn is_permanent(&self) -> bool {
        let known = self.known();
        known.is_permanent && !known.is_transient
    }

    /// Adjusts the time of the next run after a failure: soon if the API server caused it, but not before its
    /// `Retry-After`.
    pub(super) fn sooner(&self, outcome: RunOutcome) -> RunOutcome {
        let RunOutcome::Failed(why, text, wake) = outcome else { return outcome };
        let (is_transient, retry_after) = {
            let known = self.known();
            (known.is_transient, known.retry_after)
        };
        let wake = if is_transient { wake.and_at(self.again_at(true)) } else { wake };
        let not_before = retry_after.and_then(|by| jiff::Timestamp::now().saturating_add(by).ok());
        let at = wake.at.max(wake.at.and(not_before));
        RunOutcome::Failed(why, text, NextRunTrigger { at, ..wake })
    }

    /// Notes when to try again, by an error.
    fn note(&self, error: &ClusterError) {
        let mut known = self.known();
        known.is_transient |= error.is_transient();
        known.is_permanent |= error.is_permanent();
        known.retry_after = known.retry_after.max(error.retry_after());
        self.note_forbidden(&mut known, error);
    }

    /// Wakes this node when RBAC changes, if the request was forbidden.
    fn note_forbidden(&self, known: &mut ObservedKustomizationState, error: &ClusterError) {
        if error.code() == Some(403) {
            let place = self.target.place();
            let namespaces = self.versions.keys().map(|id| id.namespace.as_str());
            known.missing.extend(namespaces.chain([""]).map(|namespace| rights(place, namespace)));
            self.target.follow_rights(&self.context.work_queue);
        }
    }

    /// The objects that have to change before the next run, as `wake` names them. Each has what is needed to notice a change
    /// since this run: which watch sees it, and the resourceVersion that this run read.
    pub(super) async fn awaited(&self, wake: &NextRunTrigger) -> Vec<AwaitedObject> {
        let mut awaited = Vec::new();
        for node in &wake.on {
            let id = ObjectId::new(&node.namespace, &node.name, &node.group, &node.kind);
            if let Ok(resource) = self.resource(&id).await {
                let known = self.known();
                let ours = known.seen.get(&id).is_some_and(|s| *s == LiveObjectDriftState::InSync);
                let labelled = if ours { OwnerLabelPresence::Yes } else { OwnerLabelPresence::No };
                // An object that was not examined has no version, so no watch can be ahead of it.
                let version = known.examined.get(&id).copied().unwrap_or(LATEST_VERSION);
                // The watch has woken the node already for an object that was lost during the run.
                let since = self.target.watcher().now();
                awaited.push(AwaitedObject { resource, labelled, version, since, id });
            }
        }
        awaited
    }

    /// The kind of an object, in the version of its manifest, its health check or its inventory entry.
    async fn resource(&self, id: &ObjectId) -> Result<ApiResourceLocation, ClusterError> {
        let version = self.versions.get(id).cloned().unwrap_or_default();
        let gvk = objects::Gvk { group: id.group.clone(), version, kind: id.kind.clone() };
        self.target.cluster.resource(&gvk).await
    }

    /// The outcome of a request that got no usable answer. The spec is not at fault, so the request is repeated soon.
    fn no_answer(&self, error: &ClusterError) -> RunOutcome {
        self.note(error);
        let at = self.again_at(error.is_transient());
        RunOutcome::Failed(
            condition_reason::RECONCILIATION_FAILED,
            error.to_string(),
            NextRunTrigger::at(at),
        )
    }

    /// The time of the next attempt after a failure. It is soon if the API server or the connection caused the failure.
    fn again_at(&self, is_transient: bool) -> Time {
        let soon = super::last_attempts::soon(&self.object(), TRANSIENT_RETRY_DELAY);
        let soon = jiff::Timestamp::now().saturating_add(soon).unwrap_or(Time::MAX);
        if is_transient { soon.min(self.settings.retry_at) } else { self.settings.retry_at }
    }

    /// The outcome if a user suspended the Kustomization since the run began, or its window closed. The run stops before the
    /// next step. `None` if the run may continue.
    fn stopped(&self) -> Option<RunOutcome> {
        let now = self.context.seen::<Kustomization>(&self.node.namespace, &self.node.name)?;
        super::paused_run::stop(&now, &self.desired.revision, self.settings.retry_at)
    }

    /// The gate of removals for the objects of this Kustomization in its current state.
    fn removal_gate(&self, cause: RemovalCause, now: Time) -> RemovalGate {
        let seen = self.context.seen::<Kustomization>(&self.node.namespace, &self.node.name);
        let gate =
            super::paused_run::removal_gate(&seen.unwrap_or_else(|| self.object()), cause, now);
        RemovalGate { is_frozen: self.settings.freeze.is_some(), ..gate }
    }

    /// Observes every manifest of a stage, some at a time.
    async fn observe_stage(&self, manifests: &[ManifestToApply]) -> Result<(), RunOutcome> {
        let width = usize::from(self.context.settings.concurrent_ssa);
        let observations: Vec<_> =
            manifests.iter().map(|manifest| self.observe_object(manifest)).collect();
        let results: Vec<Result<(), ClusterError>> =
            stream::iter(observations).buffer_unordered(width).collect().await;
        results
            .into_iter()
            .find_map(Result::err)
            .map_or(Ok(()), |error| Err(self.no_answer(&error)))
    }

    /// Reads the health of objects that were not healthy before.
    async fn examine(
        &self,
        ids: Vec<ObjectId>,
    ) -> Result<BTreeMap<ObjectId, ObjectHealth>, RunOutcome> {
        let width = usize::from(self.context.settings.concurrent_ssa);
        let reports: Vec<_> = ids.into_iter().map(|id| self.health_of(id)).collect();
        let results: Vec<Result<(ObjectId, ObjectHealth), ClusterError>> =
            stream::iter(reports).buffer_unordered(width).collect().await;
        let mut found = BTreeMap::new();
        for result in results {
            let (id, report) = result.map_err(|error| self.no_answer(&error))?;
            if report.is_current() {
                let mut known = self.known();
                let version = known.examined.get(&id).copied();
                if let Some(version) = version {
                    known.healthy.insert(id.clone(), version);
                }
            }
            found.insert(id, report);
        }
        Ok(found)
    }

    /// The plan's view of all observations so far.
    fn observed(
        &self,
        now: Time,
        reports: &BTreeMap<ObjectId, ObjectHealth>,
    ) -> ApplyObservedState {
        let known = self.known();
        let mut objects: BTreeMap<ObjectId, ObservedObject> = known
            .seen
            .iter()
            .map(|(id, state)| {
                (
                    id.clone(),
                    ObservedObject { state: state.clone(), health: reports.get(id).cloned() },
                )
            })
            .collect();
        for (id, report) in reports {
            objects.entry(id.clone()).or_insert_with(|| ObservedObject {
                state: LiveObjectDriftState::Unmanaged,
                health: Some(report.clone()),
            });
        }
        let object = self.object();
        let waiting = super::report::waiting(&object);
        let since = |why| waiting.as_ref().and_then(|it| it.since(why, &self.desired.revision));
        let mut stages = self.desired.stages.iter().filter(|stage| stage.kind.is_waited_for());
        ApplyObservedState {
            now,
            recorded: known.recorded.clone(),
            objects,
            gone: known.gone.clone(),
            leaving: known.leaving.clone(),
            predecessors: known.predecessors.clone(),
            held: known.held.clone(),
            waiting_since: since(condition_reason::PROGRESSING)
                .or_else(|| since(AWAITING_TERMINATION)),
            stage_waiting_since: stages.find_map(|stage| since(stage_reason(stage.kind))),
            failed_wait: self.settings.failed_wait.clone(),
            is_correction: self.settings.is_correction,
            contested: self.contests().standing(now),
        }
    }

    /// Judges the changes of the run, see [`Self::judge_changes`]. If it may apply them, contests about what it does not apply
    /// end. A result that waits for an approval ends none.
    async fn permit_changes(&self, observed: usize) -> Result<(), RunOutcome> {
        self.judge_changes(observed).await?;
        let mut contests = self.contests();
        if !contests.is_empty() {
            let manifests = self.desired.stages.iter().flat_map(|stage| &stage.objects);
            let manifests: BTreeMap<&ObjectId, &Object> =
                manifests.map(|manifest| (&manifest.id, &manifest.object)).collect();
            contests.retain_applied(|id| manifests.get(id).copied(), &self.settings.ignore);
        }
        Ok(())
    }

    fn contests(&self) -> MutexGuard<'_, ContestedObjectCorrections> {
        self.settings.contests.lock()
    }

    fn unanswered(&self) -> MutexGuard<'_, UnansweredWrites> {
        self.settings.unanswered.lock()
    }

    /// Counts an unanswered write of an earlier run among the changes of this run.
    fn count_unanswered(&self, id: &ObjectId, write: Option<UnansweredWrite>) {
        let Some(write) = write else { return };
        let mut known = self.known();
        known.changes.push((id.clone(), write.action));
        let since = known.unanswered_since.map_or(write.sent, |since| since.min(write.sent));
        known.unanswered_since = Some(since);
    }

    /// Confirms that all objects are healthy. It reads objects again that were healthy in an earlier run and changed since.
    /// They may have failed while the run waited for others.
    async fn confirm(
        &self,
        ids: &[ObjectId],
        reports: &mut BTreeMap<ObjectId, ObjectHealth>,
    ) -> Result<(), RunOutcome> {
        if !ids.iter().all(|id| reports.get(id).is_some_and(ObjectHealth::is_current)) {
            return Ok(());
        }
        let watcher = self.target.watcher();
        let moved: Vec<ObjectId> = {
            let mut known = self.known();
            let earlier = ids.iter().filter(|id| !known.examined.contains_key(*id));
            let moved = earlier.filter(|id| {
                let version = known.healthy.get(*id);
                version.is_some_and(|at| !watcher.confirms(&self.node, id, *at))
            });
            let moved: Vec<ObjectId> = moved.cloned().collect();
            known.healthy.retain(|id, _| !moved.contains(id));
            moved
        };
        reports.extend(self.examine(moved).await?);
        Ok(())
    }

    /// Ids whose health decides, and that have to be asked for.
    fn health_of_interest(&self) -> Vec<ObjectId> {
        let known = self.known();
        match &self.desired.health {
            HealthWaitScope::None => Vec::new(),
            HealthWaitScope::All => {
                let manifests = self.desired.stages.iter().flat_map(|stage| &stage.objects);
                let skipped = |id: &ObjectId| {
                    matches!(
                        known.seen.get(id),
                        Some(LiveObjectDriftState::Skipped | LiveObjectDriftState::Finished)
                    )
                };
                manifests.map(|m| m.id.clone()).filter(|id| !skipped(id)).collect()
            }
            HealthWaitScope::These(ids) => ids.clone(),
        }
    }

    /// Reports in the status that the cluster is being compared, because that takes long.
    async fn report_observing(&self) {
        let object = self.object();
        let ApplyDesiredState { revision, timeout, .. } = &*self.desired;
        if super::report::is_new(&object, revision) {
            let text = super::report::phase("Detecting drift", revision, *timeout);
            progress_status::tell(&self.context, &self.latest, &object, &text).await;
            *self.object.lock() = self.latest.begun(&object);
        }
    }

    /// Observes the stages in order, up to the one that the run waits for.
    async fn observe_stages(
        &self,
        desired: &ApplyDesiredState,
    ) -> Result<ApplyObservedState, RunOutcome> {
        let now = jiff::Timestamp::now();
        let mut reports = BTreeMap::new();
        for (at, stage) in desired.stages.iter().enumerate() {
            self.observe_stage(&stage.objects).await?;
            if stage.kind.is_waited_for() {
                let ids = stage.objects.iter().map(|m| m.id.clone()).collect();
                reports.extend(self.examine(ids).await?);
            }
            let observed = self.observed(now, &reports);
            if !is_passed(desired, &observed, at) {
                self.permit_changes(at.saturating_add(1)).await?;
                let contested = self.contests().standing(now);
                return Ok(ApplyObservedState { contested, ..observed });
            }
        }
        // Objects that left the manifests do not count as changed any more, whether or not this run deletes them.
        let manifests = desired.stages.iter().flat_map(|stage| &stage.objects);
        let wanted: BTreeSet<&ObjectId> = manifests.map(|manifest| &manifest.id).collect();
        self.target.watcher().release_unwanted(&self.node, |id| wanted.contains(id));
        if desired.prune {
            self.observe_prune_candidates().await?;
            self.permit_changes(desired.stages.len()).await?;
            self.judge_deletion().await?;
        } else {
            self.permit_changes(desired.stages.len()).await?;
            self.known().deletion = DeletionJudgement::Free;
        }
        let ids = self.health_of_interest();
        reports.extend(self.examine(ids.clone()).await?);
        self.confirm(&ids, &mut reports).await?;
        Ok(self.observed(jiff::Timestamp::now(), &reports))
    }

    /// Writes the inventory and the progress to the status.
    async fn record(
        &self,
        inventory: &ObjectInventory,
        progress: InventoryWriteProgress<'_>,
    ) -> Result<(), RunOutcome> {
        let object = self.object();
        let (before, after) =
            super::report::progress(&object, inventory, progress, jiff::Timestamp::now());
        let written = self.latest.write_status(&self.context, &object, &before, &after).await;
        match written.map_err(|error| self.no_answer(&error))? {
            Some(_) => {
                let object = self.latest.begun(&object);
                *self.object.lock() = object;
            }
            // The Kustomization is gone for good, so windlass may apply nothing in its name any more.
            None => {
                let text = "the Kustomization was deleted".to_owned();
                return Err(RunOutcome::Stalled(condition_reason::RECONCILIATION_FAILED, text));
            }
        }
        self.known().recorded = inventory.clone();
        Ok(())
    }
}

/// The finalizers that have to be removed before a deleted object is gone. A Namespace also has finalizers in its spec.
fn finalizers(object: &Object) -> Vec<String> {
    let spec = object.get("spec").filter(|_| object.kind() == "Namespace");
    let of_spec = spec.and_then(|spec| spec.get("finalizers"));
    let lists = [object.meta("finalizers"), of_spec].into_iter().flatten();
    let all = lists.filter_map(serde_json::Value::as_array).flatten();
    all.filter_map(|it| it.as_str()).map(str::to_owned).collect()
}

impl reconcile::Executor<KustomizationApplyPlanner> for KustomizationExecutor {
    async fn observe(&self, desired: &ApplyDesiredState) -> Result<ApplyObservedState, RunOutcome> {
        progress_status::telling(self.observe_stages(desired), self.report_observing()).await
    }

    async fn perform(&self, step: &ApplyStep) -> Result<(), RunOutcome> {
        if let Some(outcome) = self.stopped() {
            return Err(outcome);
        }
        match step {
            ApplyStep::Record { add } => {
                let mut inventory = self.known().recorded.clone();
                for (id, version) in add {
                    inventory.add(id.clone(), version);
                }
                let ApplyDesiredState { revision, timeout, .. } = &*self.desired;
                let text = health_text(revision, *timeout);
                // A long apply reports that it is applying, and its wait begins when it is done.
                let is_short =
                    self.desired.stages.len() == 1 && add.len() <= MAX_UNREPORTED_APPLY_OBJECTS;
                let progress = match self.desired.health {
                    HealthWaitScope::All | HealthWaitScope::These(_) if is_short => {
                        InventoryWriteProgress::Awaiting(revision, &text)
                    }
                    HealthWaitScope::All | HealthWaitScope::These(_) | HealthWaitScope::None => {
                        InventoryWriteProgress::Applying(revision)
                    }
                };
                self.record(&inventory, progress).await
            }
            ApplyStep::Apply { stage, ids, recreate, digest: _ } => {
                self.write_stage(*stage, ids, recreate).await
            }
            ApplyStep::Prune { ids } => self.prune(ids).await,
            ApplyStep::Shrink { to } => {
                let deleted = self.deleted_without_approval(to);
                self.record(to, InventoryWriteProgress::Deleted(deleted)).await?;
                self.known().uncounted.retain(|id| to.contains(id));
                Ok(())
            }
        }
    }
}
