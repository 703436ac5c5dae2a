//! Observes a release and performs the steps of its run, on its records, its objects in the cluster, and the status of its
//! owner.
//!
//! Here: the state of a run, observing, and performing steps. Elsewhere: each kind of step (`change_judgement`,
//! `deletion_judgement`, `prepare_revision`, `hooks`, `object_writes`), observing objects (`observe`, `drift`), the decision
//! about the next step (engine `release`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use apply::contested_object_corrections::ContestedObjectCorrections;
use apply::object_changes::{ObjectChange, ObjectChangeKind};
use apply::object_contest::ObjectContest;
use apply::unanswered_writes::{UnansweredWrite, UnansweredWrites};
use crds::ResourceInventory;
use objects::{Object, ObjectId};
use parking_lot::{Mutex, MutexGuard};
use reconcile::{NextRunTrigger, ObjectKey, RunOutcome, Time, condition_reason};
use release::helm_release_planner::{
    ReleaseObservedState, RequiredObservation, RunProgress, is_under_way,
};
use release::lifecycle_hold::LIFECYCLES_UNKNOWN;
use release::operation::{
    NewRevisionInputs, ObservedLiveObjects, StepOutcome, opened, rolled_back,
};
use release::operation_status_changes::running_text;
use release::release_snapshot;
use release::status::{self as words, HelmReleaseStatusFields, ReleaseReport};
use release::{
    HelmReleasePlanner, OperationJournal, OperationKind, ReleaseDesiredState, ReleaseRecord,
    ReleaseRevisions, ReleaseSpec, ReleaseStep, need, released,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::action_options::ActionOptions;
use super::deletion_judgement::PermittedRendering;
use super::hook_watch::HookWatch;
use super::manifest_objects::{self, ManifestObject, ManifestObjectError};
use super::object_writes::DriftCorrectionReport;
use super::prepare_revision::PreparedRevision;
use super::step_error::StepError;
use super::storage::{ReleaseStorage, StorageError};
use super::{DesiredRelease, ReleaseStatusOwner, inventory};
use windlass_cluster::ClusterError;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::object_watcher::{AwaitedObject, WatchMoment};
use windlass_cluster::rbac_watch::rights;
use windlass_cluster::run_permits::RunPermit;
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::lifecycle::lifecycle_attempt::is_beside_release;
use windlass_runtime::lifecycle::{self, LifecycleSubject};
use windlass_runtime::run_context::RunContext;

/// The delay after a failure that is not the fault of the spec.
const TRANSIENT_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The observations and results of a run so far.
#[derive(Default)]
pub(super) struct ObservedReleaseState {
    storage: Option<Arc<ReleaseStorage>>,
    revisions: ReleaseRevisions,
    prepared: Option<PreparedRevision>,
    /// The desired revision as it was judged before its operation began.
    pub(super) judged: Option<PermittedRendering>,
    outcome: Option<StepOutcome>,
    pub(super) ran: RunProgress,
    /// The objects of revisions, by the manifest from which they are read. A number is not enough, since another release may
    /// have a revision with the same number.
    members: BTreeMap<ManifestDigest, Arc<Vec<ManifestObject>>>,
    /// Objects that were ready in an earlier run, with their resourceVersions at that time.
    pub(super) healthy: BTreeMap<ObjectId, u64>,
    /// Objects from the API server's answers to writes, with the moments before the writes, until they are observed.
    pub(super) written: BTreeMap<ObjectId, (Object, WatchMoment)>,
    /// The objects with the places where they were seen, for a wait that may follow.
    pub(super) awaited: BTreeMap<ObjectKey, AwaitedObject>,
    /// Whether an operation is under way. `None` if that was not observed.
    pub(super) under_way: Option<bool>,
    /// The watch of the hook that is due.
    pub(super) hook_watch: Option<Arc<HookWatch>>,
    /// The fields of drifted objects that other field managers own.
    pub(super) rivals: BTreeMap<ObjectId, ObjectContest>,
    /// Drifted objects, in the form in which they are applied.
    pub(super) drifted: Vec<DriftedObject>,
    /// Whether the run compared less than all objects of the release. A later run may compare more without a change of the
    /// metadata that windlass has seen.
    pub(super) is_partly_compared: bool,
    /// Corrections of earlier runs without an answer that turned out to be done.
    pub(super) answered_late: Vec<(ObjectId, UnansweredWrite)>,
    /// The uids of lifecycle events that nothing waits for any more.
    dismissed: BTreeSet<String>,
    /// Whether the spec has changed since the run began.
    outdated: bool,
    /// A request had no answer.
    is_unanswered: bool,
    /// Nodes for the rights that requests lacked, and for the budget that a deletion is beyond.
    pub(super) lacked: BTreeSet<ObjectKey>,
}

/// An object of the release that differs from its manifest in the cluster, or is missing there.
pub(super) struct DriftedObject {
    pub(super) member: ManifestObject,
    /// The object in the form in which it is applied.
    pub(super) payload: Object,
    /// The fields that changed. `None` if the object is missing.
    pub(super) fields: Option<Vec<String>>,
}

/// The digest of a manifest.
type ManifestDigest = [u8; 32];

/// The digest of the manifest from which a revision's objects are read.
fn text_of(record: &ReleaseRecord) -> ManifestDigest {
    let head = format!("{}/{}\n", record.namespace, record.name);
    Sha256::new().chain_update(head).chain_update(&record.manifest).finalize().into()
}

/// The state of a release's run: its records, the objects of the target cluster, and its owner's status.
pub(super) struct ReleaseExecutor<O> {
    pub(super) context: Arc<RunContext>,
    pub(super) target: Arc<ClusterTarget>,
    /// The permit of the run to apply in the cluster.
    pub(super) permit: RunPermit,
    pub(super) node: ObjectKey,
    pub(super) owner: Arc<O>,
    pub(super) desired_release: Arc<DesiredRelease>,
    /// Objects that another manager changes again and again.
    pub(super) contests: Arc<Mutex<ContestedObjectCorrections>>,
    /// Corrections of drift that the API server did not answer.
    pub(super) unanswered: Arc<Mutex<UnansweredWrites>>,
    pub(super) known: Mutex<ObservedReleaseState>,
}

/// The event about objects whose drift was corrected. `None` if no object was corrected. The end of the run reports why other
/// objects were not.
fn corrected(
    known: &HelmReleaseStatusFields,
    record: &ReleaseRecord,
    changed: &[ObjectChange],
) -> Option<ObjectEvent> {
    let release = release_snapshot::latest(&known.history)
        .map_or_else(|| record.full_name(), release::ReleaseSnapshot::full_name);
    let line = |change: &ObjectChange| {
        let what = if change.what == ObjectChangeKind::Added { "created" } else { "configured" };
        format!("{} {what}", change.id.subject())
    };
    let lines: Vec<String> = changed.iter().map(line).collect();
    (!lines.is_empty()).then(|| ObjectEvent {
        severity: EventSeverity::Info,
        reason: words::DRIFT_CORRECTED.as_str().to_owned(),
        message: format!(
            "Cluster state of release {release} has been corrected:\n{}",
            lines.join("\n")
        ),
        metadata: BTreeMap::new(),
    })
}

impl<O: ReleaseStatusOwner> ReleaseExecutor<O> {
    pub(super) fn known(&self) -> MutexGuard<'_, ObservedReleaseState> {
        self.known.lock()
    }

    pub(super) fn desired(&self) -> &ReleaseDesiredState {
        &self.desired_release.desired
    }

    /// The options with which actions are performed.
    pub(super) fn options(&self) -> &ActionOptions {
        &self.desired_release.spec.options
    }

    /// Whether the owner was changed, suspended or deleted since the run began. Then another run has to decide.
    pub(super) fn is_outdated(&self) -> bool {
        self.known().outdated
    }

    /// Whether the run ended because a request got no answer.
    pub(super) fn is_unanswered(&self) -> bool {
        self.known().is_unanswered
    }

    /// The objects that an outcome waits for, to be watched.
    pub(super) fn awaited(&self, wake: &NextRunTrigger) -> Vec<AwaitedObject> {
        let mut known = self.known();
        wake.on.iter().filter_map(|node| known.awaited.remove(node)).collect()
    }

    /// Takes over the state that an earlier run left, if that run waited for the same objects.
    pub(super) fn resume(
        &self,
        healthy: BTreeMap<ObjectId, u64>,
        records: Option<Arc<ReleaseStorage>>,
    ) {
        let mut known = self.known();
        (known.healthy, known.storage) = (healthy, records);
    }

    /// The state that [`ReleaseExecutor::resume`] of the next run needs: the ready objects, and the records.
    pub(super) fn left(&self) -> (BTreeMap<ObjectId, u64>, Option<Arc<ReleaseStorage>>) {
        let mut known = self.known();
        (std::mem::take(&mut known.healthy), known.storage.take().filter(|it| it.is_kept()))
    }

    /// The digest of the versions of the records, as this run has read or written them. `None` after a run that did not compare
    /// all objects.
    pub(super) fn record_versions(&self) -> Option<String> {
        let known = self.known();
        let storage = known.storage.as_ref().filter(|_| !known.is_partly_compared);
        storage.and_then(|storage| storage.versions_digest())
    }

    /// The revisions that the run knows.
    pub(super) fn revisions(&self) -> ReleaseRevisions {
        self.known().revisions.clone()
    }

    pub(super) fn contests(&self) -> MutexGuard<'_, ContestedObjectCorrections> {
        self.contests.lock()
    }

    pub(super) fn unanswered(&self) -> MutexGuard<'_, UnansweredWrites> {
        self.unanswered.lock()
    }

    /// The record of the release's newest revision, as this run knows it. `None` if the release has no revision.
    pub(super) fn last(&self) -> Option<Arc<ReleaseRecord>> {
        self.known().revisions.last().map(|it| it.record.clone())
    }

    /// The outcome of a request that got no usable answer. The spec is not at fault, so the request is repeated soon.
    pub(super) fn no_answer(&self, error: &ClusterError) -> RunOutcome {
        self.known().is_unanswered |= matches!(error, ClusterError::NoAnswer(_));
        RunOutcome::Failed(
            words::RECONCILE_ERROR,
            error.to_string(),
            NextRunTrigger::at(self.soon()),
        )
    }

    /// Notes that the API server refused a request about an object of the release. If rights were missing, the request is
    /// tried again when the rights change.
    pub(super) fn note_refusal(&self, error: &ClusterError, id: &ObjectId) {
        if error.code() == Some(403) {
            let place = self.target.place();
            let nodes = [id.namespace.as_str(), ""].map(|namespace| rights(place, namespace));
            self.known().lacked.extend(nodes);
            self.target.follow_rights(&self.context.work_queue);
        }
    }

    /// Nodes that stand for the rights that requests lacked, and for the budget that a deletion is beyond.
    pub(super) fn lacked(&self) -> BTreeSet<ObjectKey> {
        self.known().lacked.clone()
    }

    fn soon(&self) -> Time {
        jiff::Timestamp::now().saturating_add(TRANSIENT_RETRY_DELAY).unwrap_or(Time::MAX)
    }

    fn not_stored(&self, error: &StorageError) -> RunOutcome {
        let is_unanswered = matches!(error, StorageError::Cluster(ClusterError::NoAnswer(_), _));
        self.known().is_unanswered |= is_unanswered;
        let at = match error {
            // Another client is writing to it now, so its result can be read soon.
            StorageError::Conflict(_) => {
                jiff::Timestamp::now().saturating_add(Duration::from_secs(1)).unwrap_or(Time::MAX)
            }
            StorageError::Cluster(..) | StorageError::Pack(_) => self.soon(),
        };
        RunOutcome::Failed(words::RECONCILE_ERROR, error.to_string(), NextRunTrigger::at(at))
    }

    /// The records that a run is about.
    pub(super) async fn storage(&self) -> Result<Arc<ReleaseStorage>, RunOutcome> {
        let status = self.owner.status();
        let (namespace, name) = released(self.desired(), &status);
        if let Some(storage) = self.known().storage.clone()
            && (&storage.namespace, &storage.name) == (&namespace, &name)
        {
            return Ok(storage);
        }
        let owner = &self.desired().owner;
        let storage = ReleaseStorage::new(&self.target.cluster, &namespace, &name, owner).await;
        let storage = Arc::new(storage.map_err(|error| self.not_stored(&error))?);
        self.known().storage = Some(storage.clone());
        Ok(storage)
    }

    /// The objects of a revision.
    ///
    /// # Errors
    /// Why there are none, or that the run has an outcome.
    pub(super) async fn members(
        &self,
        record: &ReleaseRecord,
    ) -> Result<Arc<Vec<ManifestObject>>, StepError> {
        let text = text_of(record);
        if let Some(known) = self.known().members.get(&text) {
            return Ok(known.clone());
        }
        match manifest_objects::of_record(&self.target.cluster, record).await {
            Ok(mut members) => {
                self.label(&mut members);
                let members = Arc::new(members);
                self.known().members.insert(text, members.clone());
                Ok(members)
            }
            Err(ManifestObjectError::Refused(text)) => Err(StepError::Failed(text)),
            Err(ManifestObjectError::Cluster(error)) => Err(self.no_answer(&error).into()),
        }
    }

    /// Sets the labels of the owner on objects, and owner references if they are requested. Owner references do not cross
    /// namespaces or clusters.
    pub(super) fn label(&self, members: &mut [ManifestObject]) {
        for (key, value) in self.owner.labels() {
            members.iter_mut().for_each(|member| member.object.set_label(key, &value));
        }
        let is_asked = self.owner.is_to_own() && self.target.place().is_empty();
        let Some(reference) = self.owner.reference().filter(|_| is_asked) else { return };
        let reference = json!(reference);
        for member in members.iter_mut().filter(|it| it.id.namespace == self.node.namespace) {
            let references = member.object.metadata_mut().entry("ownerReferences");
            if let Some(all) = references.or_insert_with(|| json!([])).as_array_mut() {
                all.push(reference.clone());
            }
        }
    }

    /// The journal that is stored beside a revision of the release. `None` if that revision has none.
    pub(super) fn journal(&self, version: i64) -> Option<OperationJournal> {
        self.known().revisions.get(version).and_then(|it| it.journal.clone())
    }

    /// An empty journal, for writes that belong to no operation.
    pub(super) fn idle_journal(&self, record: &ReleaseRecord) -> OperationJournal {
        let desired = self.desired();
        let now = jiff::Timestamp::now();
        OperationJournal {
            kube_context: desired.kube_context.clone(),
            inputs: desired.inputs.clone(),
            base: Some(record.version),
            attempt: 0,
            failures: 0,
            accounted: true,
            ..OperationJournal::begin(
                String::new(),
                desired.owner.clone(),
                OperationKind::Upgrade,
                now,
            )
        }
    }

    pub(super) fn record(&self, version: i64) -> Result<Arc<ReleaseRecord>, RunOutcome> {
        let found = self.known().revisions.get(version).map(|it| it.record.clone());
        found.ok_or_else(|| {
            let text = format!(
                "revision {version} of the release was deleted by another client, retrying"
            );
            RunOutcome::Failed(words::RECONCILE_ERROR, text, NextRunTrigger::at(self.soon()))
        })
    }

    /// Two owners that mean one release would undo each other's work for ever, so the second one does nothing.
    ///
    /// Differs(flux): there each of them upgrades the release in turn.
    fn unclaimed(&self, revisions: &ReleaseRevisions) -> Result<(), RunOutcome> {
        let desired = self.desired();
        let Some(last) = revisions.last().filter(|_| !desired.deleted) else { return Ok(()) };
        let journal = last.journal.as_ref();
        let known = self.owner.status();
        // Without a journal of windlass, the status of the owner decides who owns the release.
        let is_ours = match journal {
            Some(journal) => desired.owns(journal),
            None => {
                release_snapshot::latest(&known.history).is_some_and(|it| it.targets(&last.record))
            }
        };
        let rival = if is_ours { None } else { self.owner.rival(journal, &last.record) };
        let Some((node, text)) = rival else { return Ok(()) };
        let wake = NextRunTrigger::on(node).and_at(self.soon_again());
        Err(RunOutcome::Blocked(words::STATE_ERROR, text, wake))
    }

    pub(super) fn soon_again(&self) -> Time {
        jiff::Timestamp::now().saturating_add(self.desired().interval).unwrap_or(Time::MAX)
    }

    /// Gives the owner a report, so that the owner keeps the status and records the events.
    async fn tell(&self, report: &ReleaseReport) -> Result<(), RunOutcome> {
        if report.ended.is_some() {
            self.audit().await;
        }
        if let Some(refused) = &report.refused {
            self.audit_refused(refused).await;
        }
        let inventory = self.inventory(report).await?;
        self.owner.tell(report, inventory, self.desired()).await
    }

    /// The message about the running action of the release, from its journal when that was last read. `None` if no operation of
    /// this owner runs.
    pub(super) fn running(&self) -> Option<String> {
        let known = self.known();
        let journal = known.revisions.last()?.journal.as_ref()?;
        let timeout = Duration::from_millis(journal.plan.timeout_ms);
        let is_open = self.desired().owns(journal) && journal.is_open();
        is_open.then(|| running_text(journal.action, timeout))
    }

    /// The inventory, where something happened to the release.
    async fn inventory(
        &self,
        report: &ReleaseReport,
    ) -> Result<Option<ResourceInventory>, RunOutcome> {
        let Some(last) = self.last().filter(|_| !report.events.is_empty()) else { return Ok(None) };
        let is_gone = last.info.status == release::record::RevisionStatus::Uninstalled;
        if report.status.history.is_empty() || is_gone || self.desired().deleted {
            return Ok(None);
        }
        let chart = self.desired_release.chart.as_ref().map(|loaded| &loaded.chart);
        let members = match self.members(&last).await {
            Ok(members) => members,
            Err(error) => return error.text().map(|_| None),
        };
        // Objects that were to be deleted with a failed revision may still exist.
        let before = self.known().revisions.deployed().map(|it| it.record.clone());
        let before = match before.filter(|it| it.version != last.version) {
            Some(before) => match self.members(&before).await {
                Ok(members) => members,
                Err(error) => error.text().map(|_| Arc::default())?,
            },
            None => Arc::default(),
        };
        Ok(Some(inventory(members.iter().chain(&*before), chart)))
    }

    /// Stores a new revision, from a prepared one or from an earlier one.
    async fn open(
        &self,
        prune: &[i64],
        write: &release::operation::RecordAndJournalWrite,
    ) -> Result<(), RunOutcome> {
        let storage = self.storage().await?;
        let failed = |error: StorageError| self.not_stored(&error);
        storage.purge(prune).await.map_err(failed)?;
        storage.write_others(&write.others).await.map_err(failed)?;
        let journal = &write.journal;
        let base = journal.base.map(|version| self.record(version)).transpose()?;
        let record = match (journal.action, journal.target, base) {
            (OperationKind::Rollback, Some(target), Some(current)) => {
                let target = self.record(target)?;
                let server_side =
                    self.options().is_server_side(OperationKind::Rollback, Some(&target));
                rolled_back(&current, &target, server_side, journal.started)
            }
            (_, _, base) => {
                let Some(prepared) = self.known().prepared.take() else {
                    let text = "the rendered release was lost; rendering it again".to_owned();
                    return Err(RunOutcome::Failed(
                        words::RECONCILE_ERROR,
                        text,
                        NextRunTrigger::at(self.soon()),
                    ));
                };
                let target = &self.desired().spec.target;
                let opening = NewRevisionInputs {
                    name: &target.name,
                    namespace: &target.namespace,
                    config: &prepared.config,
                    server_side: prepared.server_side,
                    base: base.as_deref(),
                };
                opened(&opening, &prepared.rendered, journal, write.version)
            }
        };
        storage.create(record, journal).await.map_err(failed)
    }

    /// Corrects drift. The text is the reason why some drift was not corrected.
    async fn correct(&self, version: i64) -> Result<Option<String>, RunOutcome> {
        let record = self.record(version)?;
        let DriftCorrectionReport { changed, faults, stopped } =
            self.correct_objects(&record).await;
        let reasons =
            faults.iter().map(String::as_str).chain(stopped.as_ref().map(RunOutcome::text));
        let faults: Vec<String> = reasons.map(|it| self.desired_release.masked(it)).collect();
        self.report_correction(&record, changed, &faults, jiff::Timestamp::now()).await;
        if let Some(outcome) = stopped {
            return Err(outcome);
        }
        Ok((!faults.is_empty()).then(|| faults.join("\n")))
    }

    /// Announces and audits a correction of drift that started at a time.
    async fn report_correction(
        &self,
        record: &ReleaseRecord,
        changed: Vec<ObjectChange>,
        faults: &[String],
        started: Time,
    ) {
        if let Some(event) = corrected(&self.owner.status(), record, &changed) {
            self.owner.announce(event);
        }
        self.audit_correction(record, changed, faults, started).await;
    }

    /// Reports and audits drift corrections of earlier runs that had no answer, and that this run found done.
    pub(super) async fn report_answered_late(&self, record: &ReleaseRecord) {
        let writes = std::mem::take(&mut self.known().answered_late);
        let Some(started) = writes.iter().map(|(_, write)| write.sent).min() else { return };
        let change = |(id, write): (ObjectId, UnansweredWrite)| {
            let is_new = write.action == apply::Action::Created;
            let what = if is_new { ObjectChangeKind::Added } else { ObjectChangeKind::Changed };
            ObjectChange { id, what, fields: Vec::new() }
        };
        let changed = writes.into_iter().map(change).collect();
        self.report_correction(record, changed, &[], started).await;
    }

    /// Performs a step, and returns its outcome.
    async fn done(&self, step: &ReleaseStep) -> Result<StepOutcome, RunOutcome> {
        let mut outcome = StepOutcome::of(step);
        let failed = |error: StorageError| self.not_stored(&error);
        match step {
            ReleaseStep::Tell(report) => self.tell(report).await?,
            ReleaseStep::JudgeOperation(operation) => {
                outcome.deletions = self.judge_operation(*operation).await?;
            }
            ReleaseStep::Prepare { action, version, .. } => {
                let base = self.known().revisions.current().map(|it| it.record.clone());
                let base = base.filter(|_| *action == OperationKind::Upgrade);
                let refused = self.owner.before(&self.target, &self.permit, self.desired()).await?;
                if self.owner.is_overtaken(self.desired()) {
                    return Err(self.overtaken());
                }
                let prepared = match refused {
                    Some(text) => Err(StepError::Failed(text)),
                    None => self.prepare(*action, *version, base).await,
                };
                match prepared {
                    Ok(prepared) => {
                        outcome.deletions = prepared.deletions;
                        self.known().prepared = Some(prepared);
                    }
                    Err(error) => outcome.error = Some(error.text()?),
                }
            }
            ReleaseStep::Open { prune, write } => self.open(prune, write).await?,
            ReleaseStep::Write(write) => {
                self.storage().await?.write(write).await.map_err(failed)?;
            }
            ReleaseStep::Ask(ask) => self.ask(ask).await?,
            ReleaseStep::Dismiss(over) => {
                lifecycle::dismiss(&self.context, &self.node.namespace, over).await;
                self.known().dismissed.extend(over.iter().map(|it| it.uid.clone()));
            }
            ReleaseStep::DeleteHook { version, hook, .. } => {
                outcome.error = self.delete_hook(&*self.record(*version)?, *hook).await?;
            }
            ReleaseStep::CreateHook { version, hook, operation } => {
                let record = self.record(*version)?;
                outcome.error = self.create_hook(&record, *hook, operation).await?;
            }
            ReleaseStep::Apply { version, base, permit, .. } => {
                let record = self.record(*version)?;
                // A user may have purged the previous revision. Then there is nothing to compare with.
                let base = base.and_then(|version| self.record(version).ok());
                let journal = self.journal(*version).unwrap_or_else(|| self.idle_journal(&record));
                let applied = self.apply(&record, base.as_deref(), &journal, *permit).await?;
                outcome.created = applied.created;
                outcome.adopted = applied.adopted;
                outcome.error = applied.error;
                self.known().healthy.clear();
            }
            ReleaseStep::Delete { version, propagation, permit, .. } => {
                let record = self.record(*version)?;
                outcome.error = self.delete(*permit, &record, propagation.as_str()).await?;
            }
            ReleaseStep::CleanUp { created, permit, .. } => {
                if let Some(record) = self.last() {
                    self.clean_up(*permit, &record, created).await?;
                }
            }
            ReleaseStep::Purge { versions } => {
                self.storage().await?.purge(versions).await.map_err(failed)?;
            }
            ReleaseStep::Unlock { version, description } => {
                self.storage().await?.unlock(*version, description).await.map_err(failed)?;
            }
            ReleaseStep::CorrectDrift { version, .. } => {
                outcome.error = self.correct(*version).await?;
            }
        }
        // The API server quotes refused values.
        outcome.error = outcome.error.map(|text| self.desired_release.masked(&text));
        Ok(outcome)
    }

    /// Sends a request about the release to its lifecycle. An error is the outcome with which the run ends.
    async fn ask(&self, ask: &::lifecycle::LifecycleEventRequest) -> Result<(), RunOutcome> {
        let ReleaseDesiredState { owner, spec: ReleaseSpec { target, .. }, kube_context, .. } =
            self.desired();
        let asking = LifecycleSubject {
            node: &self.node,
            uid: owner,
            release: Some((&target.name, &target.namespace, kube_context)),
            owner: self.owner.reference(),
        };
        let asked = lifecycle::ask(&self.context, &asking, ask).await;
        match asked.map_err(|error| self.no_answer(&error))? {
            None => Ok(()),
            Some(text) => {
                Err(RunOutcome::Failed(LIFECYCLES_UNKNOWN, text, NextRunTrigger::at(self.soon())))
            }
        }
    }

    /// The lifecycle events about this release, if a lifecycle may hold it.
    fn events(&self) -> Vec<::lifecycle::ObservedLifecycleEvent> {
        let ReleaseDesiredState { owner, spec: ReleaseSpec { target, .. }, kube_context, .. } =
            self.desired();
        let release = (target.name.as_str(), target.namespace.as_str(), kube_context.as_str());
        // A release that is the only one of its owner may have been in another namespace.
        let release = self.node.is_part().then_some(release);
        let namespace = &self.node.namespace;
        let mut events = lifecycle::events_of(&self.context, namespace, owner, release);
        let known = self.known();
        events.retain(|event| {
            !known.dismissed.contains(&event.uid) && !is_beside_release(&event.operation)
        });
        events
    }

    pub(super) fn overtaken(&self) -> RunOutcome {
        self.known().outdated = true;
        let text = "the spec was changed during the run".to_owned();
        RunOutcome::Running(condition_reason::PROGRESSING, text, NextRunTrigger::default())
    }
}

impl<O: ReleaseStatusOwner> reconcile::Executor<HelmReleasePlanner> for ReleaseExecutor<O> {
    async fn observe(
        &self,
        desired: &ReleaseDesiredState,
    ) -> Result<ReleaseObservedState, RunOutcome> {
        if self.owner.is_overtaken(self.desired()) {
            return Err(self.overtaken());
        }
        let storage = self.storage().await?;
        let revisions = storage.revisions().await.map_err(|error| self.not_stored(&error))?;
        if desired.deleted && revisions.last().is_none() {
            storage.sweep().await.map_err(|error| self.not_stored(&error))?;
        }
        self.unclaimed(&revisions)?;
        let status = self.owner.status();
        let under_way = is_under_way(&desired.owner, &desired.kube_context, &status, &revisions);
        self.known().under_way = Some(under_way);
        self.known().revisions = revisions.clone();
        let last = revisions.last();
        let mut live = ObservedLiveObjects::default();
        let mut drift = None;
        match (need(desired, &status, &revisions), last) {
            (RequiredObservation::Operation(scope), Some(last)) => {
                let journal = last.journal.as_ref().map_or("", |it| it.id.as_str());
                live = self
                    .desired_release
                    .masked_live(self.live(&last.record, journal, scope).await?);
            }
            (RequiredObservation::Drift, Some(last)) => {
                drift = Some(self.drift(&last.record).await?);
            }
            _ => self.known().hook_watch = None,
        }
        (live.events, live.glass) = (self.events(), desired.lifecycles.glass);
        let contested = self.contested();
        let known = self.known();
        let outcome = known.outcome.clone();
        let ran = known.ran.clone();
        let now = jiff::Timestamp::now();
        Ok(ReleaseObservedState { now, status, revisions, live, drift, contested, outcome, ran })
    }

    async fn perform(&self, step: &ReleaseStep) -> Result<(), RunOutcome> {
        if !matches!(step, ReleaseStep::Tell(_)) {
            self.owner.settle().await?;
        }
        // Statuses and records are written to their end, also if the spec has changed by now.
        let is_bookkeeping = matches!(step, ReleaseStep::Tell(_) | ReleaseStep::Write(_));
        if !is_bookkeeping && self.owner.is_overtaken(self.desired()) {
            return Err(self.overtaken());
        }
        if matches!(step, ReleaseStep::Open { .. } | ReleaseStep::Write(_)) {
            // Until the next run observes it, the result of the step is unknown.
            self.known().under_way = None;
        }
        let outcome = self.done(step).await?;
        let mut known = self.known();
        known.ran.note(step);
        if !is_bookkeeping || outcome.error.is_some() {
            known.outcome = Some(outcome);
        }
        Ok(())
    }
}
