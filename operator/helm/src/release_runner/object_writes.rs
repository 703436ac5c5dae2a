//! Writes the objects of a release. It applies a revision, deletes objects that are no longer in the manifest, and corrects
//! drift.
//!
//! Elsewhere: hooks (`hooks`), CRDs and namespaces (`prepare_revision`), objects that windlass merges itself
//! (`apply::three_way_merge`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use apply::object_changes::{ObjectChange, ObjectChangeKind};
use apply::three_way_merge;
use apply::unanswered_writes::UnansweredWrite;
use futures::stream::{self, StreamExt as _};
use objects::{Gvk, Object, ObjectId};
use quarantine::rollback_protected_objects::{deletes_claims, is_kept, record_refusal};
use reconcile::{RemovalPermit, RunOutcome, Time};
use release::ReleaseRecord;
use release::journal::{OperationJournal, OperationKind};

use super::executor::{DriftedObject, ReleaseExecutor};
use super::manifest_objects::{self, ManifestObject};
use super::step_error::StepError;
use super::storage::creation_time;
use super::{MANAGER, ReleaseStatusOwner};
use windlass_cluster::ClusterError;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::untyped_objects::DryRunMode;
use windlass_runtime::crd_guard;
use windlass_runtime::crd_guard::crd_owners::UNOWNED;

/// The result of applying the objects of a revision.
#[derive(Default)]
pub(super) struct ApplyReport {
    /// The inventory ids of created objects.
    pub(super) created: Vec<String>,
    /// The inventory ids of objects that existed before, although the base revision does not have them.
    pub(super) adopted: Vec<String>,
    /// The reason why not all writes were possible, in Helm's words.
    pub(super) error: Option<String>,
}

/// The result of correcting drift.
#[derive(Default)]
pub(super) struct DriftCorrectionReport {
    pub(super) changed: Vec<ObjectChange>,
    /// The reasons why other objects could not be corrected.
    pub(super) faults: Vec<String>,
    /// The outcome of the run that could not go on.
    pub(super) stopped: Option<RunOutcome>,
}

/// The result of writing an object.
struct ObjectWrite {
    /// Whether the write created the object, if that matters; otherwise `false`.
    is_new: bool,
    /// The creation time of the object, by the clock of the API server.
    created: Option<Time>,
}

/// The largest difference between the clocks of two API servers of a cluster.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(2);

/// Whether an object that was written existed before the record of its revision.
fn existed_before(record: Option<Time>, created: Option<Time>) -> bool {
    let created = created.and_then(|it| it.checked_add(MAX_CLOCK_DIFFERENCE).ok());
    record.zip(created).is_some_and(|(record, created)| created < record)
}

/// The reason why an object was not written.
struct UnwrittenObjectError {
    error: ClusterError,
    /// Whether the object did not exist.
    is_new: bool,
}

impl From<ClusterError> for UnwrittenObjectError {
    fn from(error: ClusterError) -> Self {
        Self { error, is_new: false }
    }
}

/// How often a write is tried if other clients write the object at the same time.
const MAX_WRITE_ATTEMPTS: u32 = 5;

/// The method of writing an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    /// The server merges.
    Server,
    /// windlass merges the stored manifest, the new manifest and the live object.
    Merged,
    /// The object is replaced.
    Replaced,
}

fn spelled(gvk: &Gvk) -> String {
    format!("{}/{}, Kind={}", gvk.group, gvk.version, gvk.kind)
}

/// The consecutive members of one kind. The members of such a batch are written at the same time, and the batches one
/// after the other.
fn batches(members: &[ManifestObject]) -> impl Iterator<Item = &[ManifestObject]> {
    members.chunk_by(|a, b| a.id.kind == b.id.kind)
}

/// Moves definitions to the end of the order of deletion, after the objects that may be of their kinds.
///
/// Differs(helm 4): there a definition goes first and takes its objects with it.
fn definitions_last<T: std::borrow::Borrow<ManifestObject>>(members: Vec<T>) -> Vec<T> {
    let is_definition = |it: &T| crd_guard::is_definition(&it.borrow().object);
    let (definitions, mut all): (Vec<T>, Vec<T>) = members.into_iter().partition(is_definition);
    all.extend(definitions);
    all
}

impl<O: ReleaseStatusOwner> ReleaseExecutor<O> {
    fn width(&self) -> usize {
        usize::from(self.context.settings.concurrent_ssa)
    }

    /// Applies the objects of a revision, and deletes those that only its base has.
    pub(super) async fn apply(
        &self,
        record: &ReleaseRecord,
        base: Option<&ReleaseRecord>,
        journal: &OperationJournal,
        permit: RemovalPermit,
    ) -> Result<ApplyReport, RunOutcome> {
        let mut applied = ApplyReport::default();
        let members = match self.members(record).await {
            Ok(members) => members,
            Err(error) => return Ok(ApplyReport { error: Some(error.text()?), ..applied }),
        };
        let before = match base {
            // Kinds of the former revision may be gone, with all objects of these kinds.
            Some(base) => self.members_if_served(base).await?,
            None => Arc::new(Vec::new()),
        };
        let is_forced = self.options().forces(journal.action);
        let mode = match (record.is_server_side(), is_forced) {
            (true, _) => WriteMode::Server,
            (false, true) => WriteMode::Replaced,
            (false, false) => WriteMode::Merged,
        };
        let was_merged = base.is_some_and(|base| !base.is_server_side());
        let (left_alone, refused) = self.left_alone(&members, journal.action).await?;
        if refused.is_some() {
            return Ok(ApplyReport { error: refused, ..applied });
        }
        let recorded = self.storage().await?.creation_time_of(record.version);
        let is_new = |id: &ObjectId| !before.iter().any(|it| it.id == *id);
        for batch in batches(&members) {
            let writes: Vec<_> = batch
                .iter()
                .filter(|member| !left_alone.contains(&member.id))
                .map(|member| {
                    let original = before.iter().find(|it| it.id == member.id);
                    self.write(member, original, mode, was_merged, journal)
                })
                .collect();
            let done: Vec<Result<ObjectWrite, UnwrittenObjectError>> =
                stream::iter(writes).buffered(self.width()).collect().await;
            let written = batch.iter().filter(|member| !left_alone.contains(&member.id));
            for (member, done) in written.zip(done) {
                match done {
                    Ok(write) if write.is_new => applied.created.push(member.id.to_string()),
                    Ok(write) => {
                        if existed_before(recorded, write.created) && is_new(&member.id) {
                            applied.adopted.push(member.id.to_string());
                        }
                    }
                    Err(UnwrittenObjectError { error, .. }) if error.is_of_server() => {
                        return Err(self.no_answer(&error));
                    }
                    Err(unwritten) => {
                        applied.error.get_or_insert_with(|| write_error(member, mode, &unwritten));
                    }
                }
            }
            if applied.error.is_some() {
                return Ok(applied);
            }
        }
        let wanted: BTreeSet<&ObjectId> = members.iter().map(|it| &it.id).collect();
        let left: Vec<&ManifestObject> =
            before.iter().filter(|it| !wanted.contains(&it.id)).collect();
        let left = definitions_last(left);
        let mut faults = Vec::new();
        // Only the rollback after a failure keeps objects with data. A rollback that a user requests deletes the same objects
        // as Helm. The journal records which one it is, because the owner may be suspended or changed meanwhile.
        let holds_data = journal.plan.holds_data && journal.origin.rollback.is_none();
        let is_held = |it: &ManifestObject| is_kept(&it.id) || deletes_claims(&it.object);
        for member in left {
            // The release does not have the object any more, and windlass does not delete it.
            if holds_data && is_held(member) {
                continue;
            }
            let fault = self.remove(permit, member, record, "Background").await?;
            faults.extend(fault.map(|it| format!("failed to delete resource {it}")));
        }
        applied.error = (!faults.is_empty()).then(|| faults.join(" && "));
        Ok(applied)
    }

    /// The objects of a revision. If not all of them can be found, only the objects whose kinds are served.
    async fn members_if_served(
        &self,
        record: &ReleaseRecord,
    ) -> Result<Arc<Vec<ManifestObject>>, RunOutcome> {
        match self.members(record).await {
            Ok(members) => return Ok(members),
            Err(StepError::Outcome(outcome)) => return Err(outcome),
            Err(StepError::Failed(_)) => {}
        }
        let mut served = Vec::new();
        for object in manifest_objects::read(&record.manifest).unwrap_or_default() {
            match manifest_objects::reached(&self.target.cluster, object, &record.namespace).await {
                Ok(reached) => served.extend(reached),
                Err(error) => return Err(self.no_answer(&error)),
            }
        }
        Ok(Arc::new(served))
    }

    /// Writes one object. After a conflict with another client's write, the object is read and written again.
    async fn write(
        &self,
        member: &ManifestObject,
        original: Option<&ManifestObject>,
        mode: WriteMode,
        was_merged: bool,
        journal: &OperationJournal,
    ) -> Result<ObjectWrite, UnwrittenObjectError> {
        // A revision of Helm, or of an earlier windlass, may have such an object. A rollback and a correction of drift also
        // come here.
        if let Some(text) = record_refusal(&member.id) {
            return Err(ClusterError::Withheld(text).into());
        }
        for _ in 1..MAX_WRITE_ATTEMPTS {
            match self.write_once(member, original, mode, was_merged, journal).await {
                Err(UnwrittenObjectError { error, .. }) if error.code() == Some(409) => {}
                done => return done,
            }
        }
        self.write_once(member, original, mode, was_merged, journal).await
    }

    async fn write_once(
        &self,
        member: &ManifestObject,
        original: Option<&ManifestObject>,
        mode: WriteMode,
        was_merged: bool,
        journal: &OperationJournal,
    ) -> Result<ObjectWrite, UnwrittenObjectError> {
        let cluster = &self.target.cluster;
        let ManifestObject { id, object, resource } = member;
        let strict = !self.options().of_action(journal.action).disable_openapi;
        let needs_live = mode != WriteMode::Server || was_merged || journal.plan.cleanup;
        let live = match needs_live {
            true => cluster.get(resource, &id.namespace, &id.name).await?,
            false => None,
        };
        let watcher = self.target.watcher();
        let is_observed = self.desired_release.is_observed();
        if is_observed {
            watcher.writing(&self.node, id);
        }
        let since = watcher.now();
        let is_new = needs_live && live.is_none();
        let written = match (mode, live) {
            (WriteMode::Server, live) => {
                let taken = match live.filter(|_| was_merged) {
                    Some(live) => self.take_over(member, live).await,
                    None => Ok(()),
                };
                match taken {
                    Ok(()) => self.apply_object(resource, object, strict).await,
                    Err(error) => Err(error),
                }
            }
            (_, None) => cluster.create_object(resource, object, MANAGER, strict).await,
            (WriteMode::Replaced, Some(live)) => {
                let mut whole = object.clone();
                if let Some(version) = live.meta("resourceVersion").cloned() {
                    whole.metadata_mut().insert("resourceVersion".to_owned(), version);
                }
                cluster.replace_object(resource, &whole, MANAGER).await
            }
            (WriteMode::Merged, Some(live)) => {
                let original = original.map(|it| &it.object);
                match three_way_merge::patch(original, object, &live) {
                    None => Ok(live),
                    Some(patch) => {
                        cluster
                            .merge_patch(resource, &id.namespace, &id.name, &patch, MANAGER)
                            .await
                    }
                }
            }
        };
        match written {
            Ok(written) => {
                if is_observed {
                    let digest = self.manifest_digest(object);
                    watcher.applied(&self.node, resource, &digest, &written, since);
                    let now = jiff::Timestamp::now();
                    self.contests().corrected(id, now, self.contested_pause());
                }
                let created = creation_time(&written);
                self.wrote(id, written, since);
                Ok(ObjectWrite { is_new, created })
            }
            Err(error) => {
                if is_observed {
                    watcher.write_failed(&self.node, id);
                }
                Err(UnwrittenObjectError { error, is_new })
            }
        }
    }

    /// Applies an object. Windlass takes over fields without a manager, such as after a release or restore of the object. So
    /// these fields are removed when the manifest does not have them any more.
    pub(super) async fn apply_object(
        &self,
        resource: &ApiResourceLocation,
        object: &Object,
        strict: bool,
    ) -> Result<Object, ClusterError> {
        let cluster = &self.target.cluster;
        let apply = async || {
            cluster.apply_checked(resource, object, MANAGER, DryRunMode::Write, strict).await
        };
        let written = apply().await?;
        let Some(patch) = apply::take_over_from(&written, MANAGER, UNOWNED) else {
            return Ok(written);
        };
        let namespace = written.namespace();
        let name = written.name();
        match cluster.json_patch(resource, namespace, name, &patch).await {
            Ok(_) => apply().await,
            // Another client wrote in between. The next apply takes over the fields.
            Err(error) if error.code() == Some(409) => Ok(written),
            Err(error) => Err(error),
        }
    }

    /// Takes over fields that were written without server-side apply. Otherwise fields that leave the manifest would stay.
    async fn take_over(&self, member: &ManifestObject, live: Object) -> Result<(), ClusterError> {
        let overrides = &self.context.settings.override_manager;
        let ours: Vec<String> = ["helm", MANAGER]
            .into_iter()
            .map(str::to_owned)
            .chain(overrides.iter().cloned())
            .collect();
        let Some(patch) = apply::take_over(&live, MANAGER, &ours) else { return Ok(()) };
        let id = &member.id;
        let cluster = &self.target.cluster;
        match cluster.json_patch(&member.resource, &id.namespace, &id.name, &patch).await {
            Ok(_) => Ok(()),
            // Another client wrote in between. The apply reports a conflict if that matters.
            Err(error) if error.code() == Some(409) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object that left a release, unless it asks to stay or another release has it.
    async fn remove(
        &self,
        permit: RemovalPermit,
        member: &ManifestObject,
        record: &ReleaseRecord,
        how: &str,
    ) -> Result<Option<String>, RunOutcome> {
        let id = &member.id;
        let cluster = &self.target.cluster;
        let live = match cluster.get(&member.resource, &id.namespace, &id.name).await {
            Ok(Some(live)) => live,
            Ok(None) => return Ok(None),
            Err(error) if error.is_of_server() => return Err(self.no_answer(&error)),
            // Differs(helm 4): there what may not be read is left behind without a word.
            Err(error) => return Ok(Some(format!("{}: {error}", id.subject()))),
        };
        // Differs(helm 4): it deletes every object of the name, also one that another release took over.
        let is_kept = manifest_objects::is_kept(&live)
            || manifest_objects::is_of_another(&live, &record.name, &record.namespace);
        if is_kept {
            return Ok(None);
        }
        self.target.watcher().released(&self.node, id);
        let removed = match crd_guard::is_definition(&live) {
            true => self.remove_definition(permit, &live, record, how).await,
            false => cluster.delete_managed(permit, &member.resource, &live, how).await,
        };
        match removed {
            Ok(()) => Ok(None),
            Err(error) if error.is_of_server() => Err(self.no_answer(&error)),
            Err(error) => Ok(Some(format!("{}: {error}", id.subject()))),
        }
    }

    /// Deletes the objects of a revision but those that are to be kept, kind by kind.
    pub(super) async fn delete(
        &self,
        permit: RemovalPermit,
        record: &ReleaseRecord,
        how: &str,
    ) -> Result<Option<String>, RunOutcome> {
        let leaving = match self.leaving(record).await {
            Ok(leaving) => leaving,
            Err(error) => return error.text().map(Some),
        };
        let mut faults = Vec::new();
        let leaving = definitions_last(leaving);
        for batch in batches(&leaving) {
            let removals: Vec<_> =
                batch.iter().map(|it| self.remove(permit, it, record, how)).collect();
            let done: Vec<Result<Option<String>, RunOutcome>> =
                stream::iter(removals).buffered(self.width()).collect().await;
            for fault in done {
                faults.extend(fault?);
            }
        }
        Ok((!faults.is_empty()).then(|| faults.join("; ")))
    }

    /// Deletes the objects that a failed operation created.
    pub(super) async fn clean_up(
        &self,
        permit: RemovalPermit,
        record: &ReleaseRecord,
        created: &[String],
    ) -> Result<(), RunOutcome> {
        let created: BTreeSet<&str> = created.iter().map(String::as_str).collect();
        let members = self.members_if_served(record).await?;
        let made = members.iter().filter(|it| created.contains(it.id.to_string().as_str()));
        for member in definitions_last(made.collect()) {
            self.remove(permit, member, record, "Background").await?;
        }
        Ok(())
    }

    /// Applies the objects of the deployed revision that drifted. The report also has the objects that were changed before the
    /// run had to stop.
    pub(super) async fn correct_objects(&self, record: &ReleaseRecord) -> DriftCorrectionReport {
        let drifted = std::mem::take(&mut self.known().drifted);
        let mut report = DriftCorrectionReport::default();
        for object in drifted {
            if let Err(outcome) = self.correct_object(record, object, &mut report).await {
                report.stopped = Some(outcome);
                break;
            }
        }
        report
    }

    async fn correct_object(
        &self,
        record: &ReleaseRecord,
        drifted: DriftedObject,
        report: &mut DriftCorrectionReport,
    ) -> Result<(), RunOutcome> {
        let DriftedObject { member, payload, fields } = drifted;
        let subject = self.manifest_digest(&member.object);
        let member = ManifestObject { object: payload, ..member };
        let refused = match self.guarded([&member.object].into_iter()).await?.pop() {
            Some((_, crd_guard::CrdWritePermission::Skipped)) => return Ok(()),
            Some((_, crd_guard::CrdWritePermission::Refused(text))) => Some(text),
            Some((_, crd_guard::CrdWritePermission::Migrates)) => {
                self.migrated(&member.object).await?
            }
            Some((_, crd_guard::CrdWritePermission::Allowed)) | None => None,
        };
        if let Some(text) = refused {
            report.faults.push(format!("{}: {text}", member.id.subject()));
            return Ok(());
        }
        let journal =
            OperationJournal { action: OperationKind::Upgrade, ..self.idle_journal(record) };
        let sent = jiff::Timestamp::now();
        match self.write(&member, None, WriteMode::Server, false, &journal).await {
            Ok(_) => {
                let what = if fields.is_some() {
                    ObjectChangeKind::Changed
                } else {
                    ObjectChangeKind::Added
                };
                let fields = fields.unwrap_or_default();
                report.changed.push(ObjectChange { id: member.id, what, fields });
            }
            Err(UnwrittenObjectError { error, .. }) if error.is_of_server() => {
                if error.may_be_done() {
                    let is_new = fields.is_none();
                    let action =
                        if is_new { apply::Action::Created } else { apply::Action::Configured };
                    let write = UnansweredWrite { action, subject, sent };
                    self.unanswered().put(&member.id, write);
                }
                return Err(self.no_answer(&error));
            }
            Err(UnwrittenObjectError { error, .. }) => {
                self.note_refusal(&error, &member.id);
                report.faults.push(format!("{}: {error}", member.id.subject()));
            }
        }
        Ok(())
    }
}

fn write_error(
    member: &ManifestObject,
    mode: WriteMode,
    UnwrittenObjectError { error, is_new }: &UnwrittenObjectError,
) -> String {
    let id = &member.id;
    let gvk = spelled(&member.object.gvk());
    match mode {
        WriteMode::Server if error.code() == Some(409) => format!(
            "conflict occurred while applying object {}/{} {gvk}: {error}",
            id.namespace, id.name
        ),
        WriteMode::Server => format!(
            "server-side apply failed for object {}/{} {gvk}: {error}",
            id.namespace, id.name
        ),
        WriteMode::Merged | WriteMode::Replaced if *is_new => {
            not_created(member, &error.to_string())
        }
        WriteMode::Merged => format!("cannot patch \"{}\" with kind {}: {error}", id.name, id.kind),
        WriteMode::Replaced => format!("failed to replace object: {error}"),
    }
}

/// Differs(helm 4): it says so in upgrades only, and does not name the object where the API server does not.
fn not_created(member: &ManifestObject, error: &str) -> String {
    let name = format!("\"{}\"", member.id.name);
    match error.contains(&name) {
        true => format!("failed to create resource: {error}"),
        false => format!("failed to create resource: {} {name}: {error}", member.id.kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_existed_before_its_release_if_it_is_older_than_the_record() {
        let at = |second| Some(Time::from_second(second).unwrap());
        assert!(existed_before(at(100), at(97)));
        assert!(!existed_before(at(100), at(98)), "clocks may differ");
        assert!(!existed_before(at(100), at(101)));
        assert!(!existed_before(None, at(97)) && !existed_before(at(100), None));
    }
}
