//! Watches the objects that windlass applied, and wakes their owner when one of them drifts. It also wakes objects that wait
//! for another object, or whose spec names one, when that object changes.
//!
//! There is one metadata-only watch for each ownership label of a kind. Objects without such a label are watched by name. The
//! watcher remembers a digest of each applied manifest and a fingerprint of the live object.
//!
//! Each owner verifies its objects once after a start. What is kept for that in the storage folder is in `kept_comparisons`,
//! and what is concluded from it in `startup_drift_comparison`.

mod referenced_object_cache;
mod startup_drift_comparison;
mod stored_drift_comparisons;
mod uncompared_owners;
mod watch_task;
mod watched_references;
mod watcher_state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use apply::managed_fields_fingerprint::fingerprint;
use objects::{Object, ObjectId};
use parking_lot::{Mutex, MutexGuard};
use reconcile::ObjectKey;
use serde_json::Value;
use tokio::sync::Notify;

use self::referenced_object_cache::{ReferencedObjectCache, ReferencedObjectCacheEntry};
pub(crate) use self::referenced_object_cache::{
    ReferencedObjectContent, ReferencedObjectReadResult,
};
pub use self::startup_drift_comparison::OwnersAtStart;
use self::stored_drift_comparisons::DriftComparisonFolder;
pub use self::stored_drift_comparisons::{AppliedOwner, OwnerVersion, StoredRunFacts};
pub use self::watched_references::RunReferenceRead;
use self::watcher_state::{
    ManifestDigest, ObjectWatcherState, SeenObjectVersion, TrackedObject, WatchKey,
};
pub use self::watcher_state::{WatchMoment, WatchedObjectState};
use crate::discovery::ApiResourceLocation;
use crate::metrics::WakeReason;
use crate::resource_version::{is_later, of_metadata};
use crate::wake_interval::{WakeDecision, WakeIntervals};
use crate::watch::WatchSelection;
use crate::work_queue::WorkQueue;
use crate::{ClusterConnection, ClusterError, throttled_requests};

/// The labels and the field manager that a kind of applier sets on the objects that it applies.
#[derive(Debug, Clone, Copy)]
pub struct OwnershipMarks {
    /// The label with the name of the owner. The watches select objects by this label.
    pub name: &'static str,
    /// The label with the namespace of the owner.
    pub namespace: &'static str,
    /// The field manager whose fields windlass owns. It is Flux's, so that fields that Flux applied stay owned.
    pub manager: &'static str,
}

/// The part of an applier that stands for its dependencies on objects of other kinds.
const DEPENDENCIES: &str = "dependsOn";

/// The ownership marks of each group and kind.
type OwnershipByKind = BTreeMap<[String; 2], OwnershipMarks>;

/// The ownership marks of all kinds.
#[derive(Debug, Default)]
struct KindOwnershipMarks {
    all: OwnershipByKind,
    managers: Vec<&'static str>,
    labels: Vec<&'static str>,
}

impl KindOwnershipMarks {
    fn new(all: OwnershipByKind) -> Self {
        let managers = all.values().map(|it| it.manager).collect();
        let labels = all.values().flat_map(|it| [it.name, it.namespace]).collect();
        Self { all, managers, labels }
    }

    /// The label by which the objects of an owner are watched. It is empty if the owner's kind owns no objects, and no object
    /// has an empty label.
    fn label_of(&self, owner: &ObjectKey) -> &'static str {
        self.all.get(&[owner.group.clone(), owner.kind.clone()]).map_or("", |it| it.name)
    }

    /// The owner that the labels of a live object name, among the owners of the kind whose objects have this label.
    fn owner_of(&self, label: &str, metadata: &Value) -> Option<ObjectKey> {
        let (names, marks) = self.all.iter().find(|(_, marks)| marks.name == label)?;
        let [group, kind] = names;
        let value = |name: &str| metadata.get("labels").and_then(|it| it.get(name)?.as_str());
        Some(ObjectKey::new(group, kind, value(marks.namespace)?, value(marks.name)?))
    }

    /// Whether the observed metadata is older than a write by another owner of the same kind. That write replaces the owner
    /// labels, so labels that still name the first owner show an older version.
    fn is_before_write(&self, owner: &ObjectKey, writer: &ObjectKey, metadata: &Value) -> bool {
        let marks = |node: &ObjectKey| self.all.get(&[node.group.clone(), node.kind.clone()]);
        let (Some(own), Some(of_writer)) = (marks(owner), marks(writer)) else { return false };
        let label = |name: &str| metadata.get("labels").and_then(|it| it.get(name)?.as_str());
        owner != writer
            && own.name == of_writer.name
            && label(own.name) == Some(owner.name.as_str())
            && label(own.namespace) == Some(owner.namespace.as_str())
    }

    /// Whether another client was the last to change an object, by the times of its field managers. Changes of the status do not
    /// count.
    fn is_changed_by_others(&self, metadata: &Value) -> bool {
        let entries = metadata.get("managedFields").and_then(Value::as_array);
        let newest = |is_ours: bool| {
            let of_them = entries.into_iter().flatten().filter(|entry| {
                let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
                self.managers.contains(&text("manager")) == is_ours
                    && text("subresource") != "status"
            });
            of_them.filter_map(|entry| entry.get("time")?.as_str()).max()
        };
        newest(false) > newest(true)
    }

    /// The version and the fingerprint of a live object, from its metadata.
    fn sighting_of(&self, metadata: &Value) -> SeenObjectVersion {
        SeenObjectVersion {
            version: of_metadata(metadata),
            fingerprint: fingerprint(metadata, &self.managers, &self.labels),
            content: stored_drift_comparisons::content_of(metadata),
        }
    }
}

/// A watcher of applied, awaited and referenced objects. It wakes the objects that depend on them after a change or drift.
pub struct ObjectWatcher {
    cluster: ClusterConnection,
    work_queue: Arc<WorkQueue>,
    marks: Arc<KindOwnershipMarks>,
    state: Mutex<ObjectWatcherState>,
    /// Recent reads of the objects that specs name.
    reads: ReferencedObjectCache,
    pace: WakeIntervals,
    /// The comparisons that are kept for the next start of the process. Those of remote clusters are not kept.
    kept: OnceLock<Arc<DriftComparisonFolder>>,
    /// Notified whenever a watch has become live or has failed.
    watch_answered: Notify,
    myself: Weak<Self>,
}

impl Drop for ObjectWatcher {
    fn drop(&mut self) {
        for watch in self.state.get_mut().watches.values() {
            watch.stop.abort();
        }
    }
}

impl ObjectWatcher {
    /// A watcher without watches.
    pub fn new(
        cluster: ClusterConnection,
        work_queue: Arc<WorkQueue>,
        owners: OwnershipByKind,
    ) -> Arc<Self> {
        let marks = Arc::new(KindOwnershipMarks::new(owners));
        Arc::new_cyclic(|myself| Self {
            cluster,
            work_queue,
            state: Mutex::new(ObjectWatcherState::of(marks.clone())),
            reads: ReferencedObjectCache::default(),
            pace: WakeIntervals::default(),
            kept: OnceLock::new(),
            watch_answered: Notify::new(),
            marks,
            myself: myself.clone(),
        })
    }

    /// A new watcher with the same marks, for another cluster.
    pub fn of_another(&self, cluster: ClusterConnection) -> Arc<Self> {
        Self::new(cluster, self.work_queue.clone(), self.marks.all.clone())
    }

    /// The cluster of this watcher.
    pub fn cluster(&self) -> &ClusterConnection {
        &self.cluster
    }

    /// About how many bytes the recent reads of Secrets, ConfigMaps and ServiceAccounts take.
    pub fn reference_bytes(&self) -> u64 {
        u64::try_from(self.reads.bytes()).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, ObjectWatcherState> {
        self.state.lock()
    }

    /// What the watcher knows about a live object, without a request to the API server.
    pub fn knowledge(&self, owner: &ObjectKey, id: &ObjectId, digest: &str) -> WatchedObjectState {
        let state = self.state();
        let Some(tracked) = state.tracked.get(id) else { return WatchedObjectState::None };
        let steady = *tracked.owner == *owner && !tracked.dirty && tracked.writer.is_none();
        if !steady || !state.is_watched(tracked) {
            return WatchedObjectState::None;
        }
        match tracked.manifest == Some(ManifestDigest::of(digest)) {
            true if state.is_unmoved(id, tracked) => WatchedObjectState::Unmoved,
            true => WatchedObjectState::Applied,
            false => WatchedObjectState::Other,
        }
    }

    /// Whether the owner applied this manifest. The object may have changed or been deleted since.
    pub fn had_applied(&self, owner: &ObjectKey, id: &ObjectId, digest: &str) -> bool {
        let manifest = Some(ManifestDigest::of(digest));
        let is_it = |it: &TrackedObject| *it.owner == *owner && it.manifest == manifest;
        self.state().tracked.get(id).is_some_and(is_it)
    }

    /// Whether another client took over applied fields of an object, or created it anew, since its owner applied or compared
    /// it. `live` is the object as the owner has read it now, which no watch may have seen yet.
    pub fn is_changed_since_applied(&self, owner: &ObjectKey, live: &Object) -> bool {
        let metadata = live.get("metadata").cloned().unwrap_or_default();
        let seen = self.marks.sighting_of(&metadata);
        self.state().has_drifted_to(owner, &live.id(), seen)
    }

    /// Whether no object of an owner has drifted or is being written, as far as the watches have seen.
    pub fn is_calm(&self, owner: &ObjectKey) -> bool {
        self.state().tracked_of(owner).all(|(_, t)| !t.dirty && t.writer.is_none())
    }

    /// Whether all objects of an owner are watched, and none of them has changed in any way since it was compared.
    pub fn is_unmoved(&self, owner: &ObjectKey) -> bool {
        let state = self.state();
        let mut tracked = state.tracked_of(owner);
        tracked.all(|(id, t)| !t.dirty && t.writer.is_none() && state.is_unmoved(id, t))
    }

    /// The current moment. Callers take it before a run or a write, and pass it to [`Self::applied`].
    pub fn now(&self) -> WatchMoment {
        self.state().losses.now()
    }

    /// Notes that a write to an object begins. The caller ends it with [`Self::applied`] or [`Self::write_failed`].
    pub fn writing(&self, owner: &ObjectKey, id: &ObjectId) {
        let mut state = self.state();
        let owner = state.shared_node(owner);
        // A watch may see a new object before the API server answers its creation, so the object is remembered now.
        match state.tracked.get_mut(id) {
            Some(tracked) => tracked.writer = Some(owner),
            None => {
                let tracked = TrackedObject {
                    owner: owner.clone(),
                    watch: None,
                    manifest: None,
                    applied: SeenObjectVersion::default(),
                    writer: Some(owner),
                    dirty: false,
                };
                state.track(id, tracked);
            }
        }
    }

    /// Remembers an object after its manifest was applied, and watches it for drift. `live` is the answer to the apply, and
    /// `since` is the moment before that request.
    pub fn applied(
        &self,
        owner: &ObjectKey,
        resource: &ApiResourceLocation,
        digest: &str,
        live: &Object,
        since: WatchMoment,
    ) {
        let metadata = live.get("metadata").cloned().unwrap_or_default();
        let applied = self.marks.sighting_of(&metadata);
        let id = live.id();
        let mut state = self.state();
        let label = self.marks.label_of(owner);
        let seen = state.sighted(label, &id);
        // A watch may have been faster than the answer. It may have seen this change or already a later one.
        let dirty =
            seen.is_some_and(|seen| seen.is_drift_from(applied)) || state.losses.since(&id, since);
        let watch = resource.watchable.then(|| WatchKey::labelled(resource, label));
        let tracked = TrackedObject {
            owner: state.shared_node(owner),
            watch: watch.map(|key| state.shared_watch(key)),
            manifest: Some(ManifestDigest::of(digest)),
            applied,
            writer: None,
            dirty,
        };
        state.track(&id, tracked);
        self.ensure(&mut state, owner, resource, WatchSelection::Labelled(label));
        drop(state);
        if dirty {
            self.work_queue.wake(owner, WakeReason::Drift);
        }
    }

    /// Whether a live watch has seen an object, in this version and in no later one.
    pub fn confirms(&self, owner: &ObjectKey, id: &ObjectId, version: u64) -> bool {
        let state = self.state();
        let Some(tracked) = state.tracked.get(id).filter(|it| *it.owner == *owner) else {
            return false;
        };
        let seen = state.sighted(self.marks.label_of(owner), id);
        seen.is_some_and(|seen| !is_later(seen.version, version)) && state.is_watched(tracked)
    }

    /// Stops waking an owner for the drift of an object until the object is applied again or the owner calls
    /// [`Self::end_hush`], because a run of the owner is already planned.
    pub fn hush(&self, owner: &ObjectKey, id: &ObjectId) {
        let mut state = self.state();
        if state.tracked.get(id).is_some_and(|it| *it.owner == *owner) {
            state.hushed.insert(id.clone());
        }
    }

    /// Wakes an owner for the drift of an object again. The owner found drift, and plans no run because of it.
    pub fn end_hush(&self, owner: &ObjectKey, id: &ObjectId) {
        let mut state = self.state();
        if state.tracked.get(id).is_some_and(|it| *it.owner == *owner) {
            state.hushed.remove(id);
        }
    }

    /// Stops tracking an object for an owner that deleted, skipped or gave it away. If another owner applied it before, the
    /// object is tracked for that owner again.
    pub fn released(&self, owner: &ObjectKey, id: &ObjectId) {
        self.state().untrack(owner, id);
    }

    /// Notes that a write to an object failed, and stops tracking the object for its owner. If another owner applied it
    /// before, the object is tracked for that owner again. That owner wakes if the object drifted.
    pub fn write_failed(&self, owner: &ObjectKey, id: &ObjectId) {
        let drifted = self.state().fail(owner, id);
        self.tell(drifted, BTreeSet::new());
    }

    /// Notes that an object cannot be compared. If it drifted and another owner applied it before, the object is tracked for
    /// that owner again, and that owner wakes. Otherwise nothing changes.
    pub fn comparison_failed(&self, owner: &ObjectKey, id: &ObjectId) {
        let mut state = self.state();
        let drifted = state.hides_drift(owner, id).then(|| state.fail(owner, id)).flatten();
        drop(state);
        self.tell(drifted, BTreeSet::new());
    }

    /// Stops tracking the objects of an owner that `is_wanted` does not choose. The owner no longer applies them, or another
    /// client deleted them.
    pub fn release_unwanted(&self, owner: &ObjectKey, is_wanted: impl Fn(&ObjectId) -> bool) {
        self.state().untrack_others(owner, is_wanted);
    }

    /// Stops tracking the objects that an applier applied or waits for. The objects that its spec names stay watched.
    pub fn release_objects(&self, owner: &ObjectKey) {
        let mut state = self.state();
        state.untrack_all(owner);
        state.stop_waiting(owner, |_| true);
        state.release(owner, |key| matches!(key.selection, WatchSelection::Labelled(_)));
        state.release_unused(owner);
    }

    /// Forgets a reconciled object, and stops the watches that no other reconciled object needs.
    pub fn forget(&self, owner: &ObjectKey) {
        self.forget_comparison(owner);
        let mut state = self.state();
        state.untrack_all(owner);
        state.stop_waiting(owner, |_| true);
        for user in [owner, &owner.part(DEPENDENCIES)] {
            state.references.forget(user);
            state.release(user, |_| true);
        }
    }

    /// Replaces the objects that a reconciled object waits for. Any event about one of them wakes the reconciled object. That
    /// includes events that came between the run's read of the object and this call.
    ///
    /// Objects with an owner label are seen by the watch of that label. Each other object gets a watch by name.
    pub fn await_objects(&self, owner: &ObjectKey, awaited: &[AwaitedObject]) {
        let mut state = self.state();
        state.stop_waiting(owner, |_| true);
        let mut moved = false;
        for AwaitedObject { resource, id, labelled, version, since } in awaited {
            state.wait(owner, id);
            // A watch by name starts here and lists the object first, so only watches by label may be ahead of the run.
            let seen = state.sighted(self.marks.label_of(owner), id);
            moved |= seen.is_some_and(|seen| is_later(seen.version, *version));
            moved |= *version > 0 && state.losses.since(id, *since);
            let selection = match labelled {
                OwnerLabelPresence::Yes => WatchSelection::Labelled(self.marks.label_of(owner)),
                OwnerLabelPresence::No => {
                    WatchSelection::Named(id.namespace.clone(), id.name.clone())
                }
            };
            self.ensure(&mut state, owner, resource, selection);
        }
        state.release_unused(owner);
        drop(state);
        if moved {
            self.wake_waiting(owner);
        }
    }

    /// Notes that a run begins that will read every object its reconciled object waits for. Until [`Self::await_objects`] is
    /// called, watches by label do not wake the reconciled object. The run sees those changes, or that call notices them.
    pub fn begins_observing(&self, owner: &ObjectKey) {
        let mut state = self.state();
        // Versions that watches by name saw are not remembered, so these watches keep waking the reconciled object.
        let named = state.named_by(owner);
        state.stop_waiting(owner, |id| !named.contains(id));
    }

    /// The current moment. Callers take it before they read an object that a spec names, and pass it to [`Self::refer_to`].
    pub fn before_reading(&self) -> WatchMoment {
        self.state().references.now()
    }

    /// Reads an object that a spec names, and returns the moment before the read for [`Self::refer_to`]. The content may come
    /// from another run's recent read if a live watch confirms it. With `anew`, only a request sent after this call counts.
    pub(crate) async fn read_reference(
        &self,
        id: &ObjectId,
        anew: bool,
        ask: impl Future<Output = Result<ReferencedObjectReadResult, ClusterError>>,
    ) -> (Result<ReferencedObjectReadResult, ClusterError>, WatchMoment) {
        let wanted = Instant::now();
        let slot = self.reads.slot(id);
        let confirmed = || if anew { None } else { self.confirmed_reference(id, &slot) };
        if let Some((found, since)) = confirmed() {
            return (Ok(Some(found)), since);
        }
        let _asking = slot.asking.lock().await;
        if let Some(answer) = slot.asked_since(wanted) {
            if let Err(error) = &answer.found {
                // The error was noted for the run that sent the request. It must not fail this run either.
                throttled_requests::note(error, matches!(error, ClusterError::NoAnswer(_)));
            }
            return (answer.found, answer.since);
        }
        if let Some((found, since)) = confirmed() {
            return (Ok(Some(found)), since);
        }
        let asked = Instant::now();
        let since = self.before_reading();
        let answer = self.reads.keep(&slot, asked, since, ask.await);
        (answer.found, answer.since)
    }

    /// The recent read of an object, if a live watch confirms that its version is still the latest, with the current moment.
    fn confirmed_reference(
        &self,
        id: &ObjectId,
        slot: &ReferencedObjectCacheEntry,
    ) -> Option<((ReferencedObjectContent, u64), WatchMoment)> {
        let answer = slot.last()?;
        let (content, version) = answer.recent(Instant::now())?;
        let state = self.state();
        let found = (content.clone(), version);
        state.confirms_reference(id, version).then(|| (found, state.references.now()))
    }

    /// Replaces the objects that the spec of a reconciled object names, with the versions that its run read. Any later change
    /// of them wakes the reconciled object.
    pub fn refer_to(&self, owner: &ObjectKey, referred: &[RunReferenceRead]) {
        let mut state = self.state();
        let kept = referred.iter().map(|one| &one.id).collect();
        state.references.forget_others(owner, &kept);
        let mut moved = false;
        for one in referred {
            moved |= state.references.add(owner, one);
        }
        let mut affected = state.references.widen();
        affected.extend(state.references.permit_again(Instant::now()));
        affected.insert(owner.clone());
        self.watch_references(&mut state, &affected);
        drop(state);
        if moved {
            self.wake_referring(owner);
        }
    }

    /// Replaces the objects of other kinds that an applier depends on, with the versions that its run read. A later version
    /// wakes the applier. If the run passes [`LATEST_VERSION`], only the deletion of the object does. The objects of
    /// [`Self::refer_to`] stay.
    ///
    /// [`LATEST_VERSION`]: crate::resource_version::LATEST_VERSION
    pub fn depend_on(&self, owner: &ObjectKey, dependencies: &[RunReferenceRead]) {
        let user = owner.part(DEPENDENCIES);
        // Most appliers never depend on an object of another kind.
        if dependencies.is_empty() && !self.state().references.has(&user) {
            return;
        }
        self.refer_to(&user, dependencies);
    }

    /// Wakes a reconciled object because an object changed that its spec names. Objects that it depends on may change at any
    /// rate, so their wakes are spaced out.
    fn wake_referring(&self, node: &ObjectKey) {
        if node.is_part() {
            // No run asks whether this part was woken.
            self.wake_waiting(&node.whole());
        } else {
            self.work_queue.wake(node, WakeReason::Reference);
        }
    }

    /// Starts the watches for the objects that the specs of these reconciled objects name. Stops the watches that no
    /// reconciled object needs any more.
    fn watch_references(&self, state: &mut ObjectWatcherState, users: &BTreeSet<ObjectKey>) {
        for user in users {
            for (resource, id) in state.references.of(user) {
                if let Some(key) = state.references.key_of(&id) {
                    self.ensure(state, user, &resource, key.selection);
                }
            }
        }
        for user in users {
            state.release_unused(user);
        }
    }

    /// Whether to end a watch that the API server forbids. It ends if a narrower watch may replace it. It also ends if only
    /// dependent appliers use it, because they read the object again anyway.
    fn ends_if_refused(&self, key: &WatchKey) -> bool {
        let state = self.state();
        let is_awaited = |id: &ObjectId| !state.waiting_for(id).is_empty();
        let users = state.watches.get(key).map(|watch| &watch.users);
        let is_for_dependents = users.is_some_and(|users| users.iter().all(|user| user.is_part()));
        key.is_for_references()
            || (is_for_dependents && key.named_object().is_some_and(|id| !is_awaited(&id)))
    }

    /// Ends a watch for references that the API server forbids, and tries narrower watches.
    fn refused(&self, key: &WatchKey, error: &ClusterError) {
        tracing::info!(
            kind = key.kind,
            watch = ?key.selection,
            error = %error,
            "watch not allowed; falling back to narrower watches"
        );
        let mut state = self.state();
        state.references.refuse(key, Instant::now());
        let users = state.stop(key);
        self.watch_references(&mut state, &users);
    }

    fn ensure(
        &self,
        state: &mut ObjectWatcherState,
        owner: &ObjectKey,
        resource: &ApiResourceLocation,
        selection: WatchSelection,
    ) {
        if !resource.watchable {
            return;
        }
        let key = WatchKey::new(resource, selection);
        state.need(owner, key.clone(), || {
            let stream = self.cluster.watch_metadata(resource, &key.selection);
            let task =
                watch_task::follow(self.myself.clone(), key.clone(), resource.clone(), stream);
            tokio::spawn(task).abort_handle()
        });
    }

    fn set_live(&self, key: &WatchKey, live: bool) {
        let mut state = self.state();
        let Some(watch) = state.watches.get_mut(key) else { return };
        (watch.live, watch.has_answered) = (live, true);
        let drifted = if live { state.settle_restored(key) } else { BTreeSet::new() };
        drop(state);
        self.wake_drifted(drifted);
        self.watch_answered.notify_waiters();
    }

    /// Handles an object that a watch saw.
    fn saw(&self, key: &WatchKey, id: &ObjectId, metadata: &Value) {
        let seen = self.marks.sighting_of(metadata);
        let mut state = self.state();
        let mut drifted = None;
        let mut before = None;
        if let WatchSelection::Labelled(label) = key.selection {
            before = state.sighted(label, id);
            state.sight(label, id, seen);
            state.note_last_change(label, id, || self.marks.is_changed_by_others(metadata));
        }
        let is_before_write = |writer: &ObjectKey, tracked: &TrackedObject| {
            self.marks.is_before_write(&tracked.owner, writer, metadata)
        };
        if let Some(tracked) = state.tracked.get_mut(id)
            && tracked.writer.as_ref().is_none_or(|writer| is_before_write(writer, tracked))
            && seen.is_drift_from(tracked.applied)
        {
            tracked.dirty = true;
            drifted = Some(ObjectKey::clone(&tracked.owner));
        }
        let drifted = drifted.filter(|_| !state.hushed.contains(id)).or_else(|| {
            state.take_uncompared(key, id, |label| {
                // After an edit, every later event still shows who changed the object last.
                let is_of_others = before.is_none_or(|before| seen.is_change_since(before))
                    && self.marks.is_changed_by_others(metadata);
                is_of_others.then(|| self.marks.owner_of(label, metadata)).flatten()
            })
        });
        let waiting = state.waiting_for(id);
        drop(state);
        self.tell(drifted, waiting);
        self.saw_reference(key, id, Some(seen.version));
    }

    /// Handles the version of an object that specs may name. `None` says that the object is gone.
    fn saw_reference(&self, key: &WatchKey, id: &ObjectId, now: Option<u64>) {
        // An object that leaves a watch by label may only have lost the label.
        if matches!(key.selection, WatchSelection::Labelled(_)) {
            return;
        }
        let referring = self.state().references.note(id, now);
        for node in referring {
            self.wake_referring(&node);
        }
    }

    /// Handles an object that is gone, or that lost the label of its watch. `last` is its last metadata, if an event has it.
    fn lost(&self, key: &WatchKey, id: &ObjectId, last: Option<&Value>) {
        let mut state = self.state();
        let mut drifted = None;
        if let WatchSelection::Labelled(label) = key.selection {
            state.unsight(label, id);
        }
        state.losses.add(id, None);
        let tracked = state.tracked.get_mut(id);
        if let Some(tracked) = tracked.filter(|it| key.is_of(self.marks.label_of(&it.owner))) {
            tracked.dirty = true;
            if tracked.writer.is_none() {
                drifted = Some(ObjectKey::clone(&tracked.owner));
            }
        }
        let drifted = drifted
            .filter(|_| !state.hushed.contains(id))
            .or_else(|| state.take_uncompared(key, id, |label| self.marks.owner_of(label, last?)));
        let waiting = state.waiting_for(id);
        drop(state);
        self.tell(drifted, waiting);
        self.saw_reference(key, id, None);
    }

    fn tell(&self, drifted: Option<ObjectKey>, waiting: BTreeSet<ObjectKey>) {
        if let Some(owner) = drifted {
            self.work_queue.wake(&owner, WakeReason::Drift);
        }
        for node in waiting {
            self.wake_waiting(&node);
        }
    }

    /// Wakes a reconciled object because an object changed that it waits for. Frequent wakes are spaced out.
    fn wake_waiting(&self, node: &ObjectKey) {
        let pause = match self.pace.call(node, Instant::now()) {
            WakeDecision::Now => return self.work_queue.wake(node, WakeReason::Waiting),
            WakeDecision::After(pause) => pause,
            WakeDecision::Joined => return,
        };
        let myself = self.myself.clone();
        let node = node.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            if let Some(watcher) = myself.upgrade() {
                watcher.pace.called(&node, Instant::now());
                watcher.work_queue.wake(&node, WakeReason::Waiting);
            }
        });
    }

    /// Handles the end of a watch's list. Expected objects that are not in the list are gone.
    fn listed(&self, key: &WatchKey, seen: &BTreeSet<ObjectId>) {
        let missing: Vec<ObjectId> = {
            let state = self.state();
            let named = key.named_object();
            let expected = match &key.selection {
                WatchSelection::Labelled(label) => state.expected(key, label),
                WatchSelection::InNamespace(_) | WatchSelection::All => {
                    state.references.expected(key)
                }
                WatchSelection::Named(..) => named.iter().collect(),
            };
            expected.into_iter().filter(|id| !seen.contains(*id)).cloned().collect()
        };
        for id in missing {
            if key.is_for_references() {
                self.saw_reference(key, &id, None);
            } else {
                self.lost(key, &id, None);
            }
        }
    }
}

/// An object that a reconciled object waits for.
pub struct AwaitedObject {
    /// The kind of the object.
    pub resource: ApiResourceLocation,
    /// The id of the object.
    pub id: ObjectId,
    /// Whether the object has the owner label, which decides which watch sees it.
    pub labelled: OwnerLabelPresence,
    /// The resourceVersion in which the run read the object. It is 0 if the object did not exist.
    pub version: u64,
    /// The moment before the run read the object.
    pub since: WatchMoment,
}

/// Whether an object carries the owner label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerLabelPresence {
    /// The object has the label, so the watch of that label sees it.
    Yes,
    /// The object does not have the label, so it needs a watch by name.
    No,
}
