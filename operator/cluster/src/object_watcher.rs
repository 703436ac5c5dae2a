//! Notices when a managed object stops being what was applied, and when an awaited object changes.
//!
//! One metadata-only watch for each kind in use and ownership label; objects without a label of ours are watched
//! by name. What was applied is remembered as a digest of the manifest and a fingerprint of the live object.
//! Nothing here survives a restart: each node verifies its objects once after a start.

mod reference_reads;
mod references;
mod watch_task;
mod watcher_state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Instant;

use apply::fingerprint::fingerprint;
use objects::{Object, ObjectId};
use parking_lot::{Mutex, MutexGuard};
use reconcile::ObjectKey;
use serde_json::Value;

pub(crate) use self::reference_reads::{FoundReference, ReferenceContent};
use self::reference_reads::{ReferenceReads, ReferenceSlot};
pub use self::references::RunReferenceRead;
pub use self::watcher_state::{LiveObjectKnowledge, WatchMoment};
use self::watcher_state::{
    LiveObjectSighting, ManifestDigest, ObjectWatcherState, TrackedObject, WatchKey,
};
use crate::discovery::ApiResourceLocation;
use crate::metrics::WakeReason;
use crate::resource_version::{is_later, of_metadata};
use crate::wake_interval::{WakeDecision, WakeIntervals};
use crate::watch::WatchSelection;
use crate::work_queue::WorkQueue;
use crate::{ClusterConnection, ClusterError, throttled_requests};

/// The marks on the objects that a kind applies.
#[derive(Debug, Clone, Copy)]
pub struct OwnershipMarks {
    /// Label with the owner's name, by which they are watched.
    pub name: &'static str,
    /// Label with the owner's namespace.
    pub namespace: &'static str,
    /// Field manager whose fields are ours; Flux's, so that what it applied stays ours.
    pub manager: &'static str,
}

/// The part of a node that stands for the objects of other kinds on which it depends.
const DEPENDENCIES: &str = "dependsOn";

/// The marks by group and kind.
type OwnershipByKind = BTreeMap<[String; 2], OwnershipMarks>;

/// The marks of all kinds.
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

    /// The label by which the objects of a node are watched. It is empty, and so no object has it, if the kind owns no
    /// objects.
    fn label_of(&self, owner: &ObjectKey) -> &'static str {
        self.all.get(&[owner.group.clone(), owner.kind.clone()]).map_or("", |it| it.name)
    }

    /// Whether a write by another node of the same kind is not in what a watch saw of an object: a write replaces the labels of
    /// the owner.
    fn is_before_write(&self, owner: &ObjectKey, writer: &ObjectKey, metadata: &Value) -> bool {
        let marks = |node: &ObjectKey| self.all.get(&[node.group.clone(), node.kind.clone()]);
        let (Some(own), Some(of_writer)) = (marks(owner), marks(writer)) else { return false };
        let label = |name: &str| metadata.get("labels").and_then(|it| it.get(name)?.as_str());
        owner != writer
            && own.name == of_writer.name
            && label(own.name) == Some(owner.name.as_str())
            && label(own.namespace) == Some(owner.namespace.as_str())
    }

    /// The version and the fingerprint of an object, from its live metadata.
    fn sighting_of(&self, metadata: &Value) -> LiveObjectSighting {
        LiveObjectSighting {
            version: of_metadata(metadata),
            fingerprint: fingerprint(metadata, &self.managers, &self.labels),
        }
    }
}

/// A watcher of managed and referenced objects, which wakes their users when an object drifts or changes.
/// It keeps nothing across a restart.
pub struct ObjectWatcher {
    cluster: ClusterConnection,
    work_queue: Arc<WorkQueue>,
    marks: Arc<KindOwnershipMarks>,
    state: Mutex<ObjectWatcherState>,
    /// What runs read a moment ago of the objects that specs name.
    reads: ReferenceReads,
    pace: WakeIntervals,
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
    /// Watches nothing yet.
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
            reads: ReferenceReads::default(),
            pace: WakeIntervals::default(),
            marks,
            myself: myself.clone(),
        })
    }

    /// A new watcher with the same marks, for another cluster.
    pub fn of_another(&self, cluster: ClusterConnection) -> Arc<Self> {
        Self::new(cluster, self.work_queue.clone(), self.marks.all.clone())
    }

    /// The cluster that is watched.
    pub fn cluster(&self) -> &ClusterConnection {
        &self.cluster
    }

    fn state(&self) -> MutexGuard<'_, ObjectWatcherState> {
        self.state.lock()
    }

    /// What is known about a live object without a request.
    pub fn knowledge(&self, owner: &ObjectKey, id: &ObjectId, digest: &str) -> LiveObjectKnowledge {
        let state = self.state();
        let Some(tracked) = state.tracked.get(id) else { return LiveObjectKnowledge::None };
        let steady = *tracked.owner == *owner && !tracked.dirty && tracked.writer.is_none();
        if !steady || !state.is_watched(tracked) {
            return LiveObjectKnowledge::None;
        }
        match tracked.manifest == Some(ManifestDigest::of(digest)) {
            true if state.is_unmoved(id, tracked) => LiveObjectKnowledge::Unmoved,
            true => LiveObjectKnowledge::Applied,
            false => LiveObjectKnowledge::Other,
        }
    }

    /// Whether a manifest was applied; the object may have changed or gone since.
    pub fn had_applied(&self, owner: &ObjectKey, id: &ObjectId, digest: &str) -> bool {
        let manifest = Some(ManifestDigest::of(digest));
        let is_it = |it: &TrackedObject| *it.owner == *owner && it.manifest == manifest;
        self.state().tracked.get(id).is_some_and(is_it)
    }

    /// Whether a watch has seen that an object is not as a node applied it any more.
    pub fn has_moved(&self, owner: &ObjectKey, id: &ObjectId) -> bool {
        self.state().tracked.get(id).is_some_and(|it| *it.owner == *owner && it.dirty)
    }

    /// Whether no watch has seen a change of an object that a node applied, and no write is in progress.
    pub fn is_calm(&self, owner: &ObjectKey) -> bool {
        self.state().tracked_of(owner).all(|(_, t)| !t.dirty && t.writer.is_none())
    }

    /// Whether everything that a node applied is watched, and none of it changed in any way since it was compared.
    pub fn is_unmoved(&self, owner: &ObjectKey) -> bool {
        let state = self.state();
        let mut tracked = state.tracked_of(owner);
        tracked.all(|(id, t)| !t.dirty && t.writer.is_none() && state.is_unmoved(id, t))
    }

    /// The current moment. Take it before a run or a write, for [`Self::applied`].
    pub fn now(&self) -> WatchMoment {
        self.state().losses.now()
    }

    /// Notes that a write to an object begins. [`Self::applied`] or [`Self::write_failed`] ends it.
    pub fn writing(&self, owner: &ObjectKey, id: &ObjectId) {
        let mut state = self.state();
        let owner = state.shared_node(owner);
        // A watch may see a new object before its creation is answered, so it is known from here on.
        match state.tracked.get_mut(id) {
            Some(tracked) => tracked.writer = Some(owner),
            None => {
                let tracked = TrackedObject {
                    owner: owner.clone(),
                    watch: None,
                    manifest: None,
                    applied: LiveObjectSighting::default(),
                    writer: Some(owner),
                    dirty: false,
                };
                state.track(id, tracked);
            }
        }
    }

    /// Remembers an object as it is after a manifest was applied, and watches it for drift. The request that returned
    /// `live` began at `since`.
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
        // A watch may have been faster than the answer, with this change or already with a later one.
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

    /// Whether a live watch has seen an object of an owner, and no version later than a resourceVersion.
    pub fn confirms(&self, owner: &ObjectKey, id: &ObjectId, version: u64) -> bool {
        let state = self.state();
        let Some(tracked) = state.tracked.get(id).filter(|it| *it.owner == *owner) else {
            return false;
        };
        let seen = state.sighted(self.marks.label_of(owner), id);
        seen.is_some_and(|seen| !is_later(seen.version, version)) && state.is_watched(tracked)
    }

    /// Stops waking an owner for the drift of an object until it is applied again: the owner has a run planned for
    /// that.
    pub fn hush(&self, owner: &ObjectKey, id: &ObjectId) {
        let mut state = self.state();
        if state.tracked.get(id).is_some_and(|it| *it.owner == *owner) {
            state.hushed.insert(id.clone());
        }
    }

    /// Stops remembering an object of an owner: it was deleted, skipped or given away. Another node that applied it before
    /// wakes when it goes.
    pub fn released(&self, owner: &ObjectKey, id: &ObjectId) {
        self.state().untrack(owner, id);
    }

    /// Ends a write to an object that failed. The object is no longer remembered for the node; another node that applied it
    /// before has it again, and wakes if it drifted meanwhile.
    pub fn write_failed(&self, owner: &ObjectKey, id: &ObjectId) {
        let drifted = self.state().fail(owner, id);
        self.tell(drifted, BTreeSet::new());
    }

    /// Notes that an object of an owner cannot be compared. If it drifted, and another node applied it before, that one has it
    /// again and wakes; else nothing changes.
    pub fn comparison_failed(&self, owner: &ObjectKey, id: &ObjectId) {
        let mut state = self.state();
        let drifted = state.hides_drift(owner, id).then(|| state.fail(owner, id)).flatten();
        drop(state);
        self.tell(drifted, BTreeSet::new());
    }

    /// Stops remembering the objects of an owner that `is_wanted` does not choose: they left what it applies, also if
    /// another client deleted them.
    pub fn release_unwanted(&self, owner: &ObjectKey, is_wanted: impl Fn(&ObjectId) -> bool) {
        self.state().untrack_others(owner, is_wanted);
    }

    /// Forgets the objects that a node applied or waited for. The objects that its spec names stay.
    pub fn release_objects(&self, owner: &ObjectKey) {
        let mut state = self.state();
        state.untrack_all(owner);
        state.stop_waiting(owner, |_| true);
        state.release(owner, |key| matches!(key.selection, WatchSelection::Labelled(_)));
        state.release_unused(owner);
    }

    /// Forgets a node and stops the watches that no other node needs.
    pub fn forget(&self, owner: &ObjectKey) {
        let mut state = self.state();
        state.untrack_all(owner);
        state.stop_waiting(owner, |_| true);
        for user in [owner, &owner.part(DEPENDENCIES)] {
            state.references.forget(user);
            state.release(user, |_| true);
        }
    }

    /// Replaces the objects that a node waits for. Any event about one of them wakes the node, also an event that came
    /// after the run read the object and before this call.
    ///
    /// Objects that carry the label of their owner are seen by the watch of their kind; others get one of their own.
    pub fn await_objects(&self, owner: &ObjectKey, awaited: &[AwaitedObject]) {
        let mut state = self.state();
        state.stop_waiting(owner, |_| true);
        let mut moved = false;
        for AwaitedObject { resource, id, labelled, version, since } in awaited {
            state.wait(owner, id);
            // A watch by name starts with the wait and lists the object first, so only watches by label may be ahead.
            let seen = state.sighted(self.marks.label_of(owner), id);
            moved |= seen.is_some_and(|seen| is_later(seen.version, *version));
            moved |= *version > 0 && state.losses.since(id, *since);
            let selection = match labelled {
                OwnerLabel::Yes => WatchSelection::Labelled(self.marks.label_of(owner)),
                OwnerLabel::No => WatchSelection::Named(id.namespace.clone(), id.name.clone()),
            };
            self.ensure(&mut state, owner, resource, selection);
        }
        state.release_unused(owner);
        drop(state);
        if moved {
            self.wake_waiting(owner);
        }
    }

    /// Notes that a run begins that will read every object its node waits for. Until [`Self::await_objects`] watches by
    /// label do not wake the node: the run sees these changes, or that call notices them.
    pub fn begins_observing(&self, owner: &ObjectKey) {
        let mut state = self.state();
        // What watches by name have seen is not remembered, so they go on to wake.
        let named = state.named_by(owner);
        state.stop_waiting(owner, |id| !named.contains(id));
    }

    /// The current moment. Take it before an object is read that a spec names, for [`Self::refer_to`].
    pub fn before_reading(&self) -> WatchMoment {
        self.state().references.now()
    }

    /// An object that a spec names, and the moment before it was read, for [`Self::refer_to`]: as `ask` reads it, or as another
    /// run read it if it is still like that. If it is to be read `anew`, only a request counts that is sent after this call.
    pub(crate) async fn read_reference(
        &self,
        id: &ObjectId,
        anew: bool,
        ask: impl Future<Output = Result<FoundReference, ClusterError>>,
    ) -> (Result<FoundReference, ClusterError>, WatchMoment) {
        let wanted = Instant::now();
        let slot = self.reads.slot(id);
        let confirmed = || if anew { None } else { self.confirmed_reference(id, &slot) };
        if let Some((found, since)) = confirmed() {
            return (Ok(Some(found)), since);
        }
        let _asking = slot.asking.lock().await;
        if let Some(answer) = slot.asked_since(wanted) {
            if let Err(error) = &answer.found {
                // It was noted for the run that asked. This one fails by it as little.
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

    /// What was read a moment ago of an object, if a live watch has seen that version and no other; and the present moment.
    fn confirmed_reference(
        &self,
        id: &ObjectId,
        slot: &ReferenceSlot,
    ) -> Option<((ReferenceContent, u64), WatchMoment)> {
        let answer = slot.last()?;
        let (content, version) = answer.recent(Instant::now())?;
        let state = self.state();
        let found = (content.clone(), version);
        state.confirms_reference(id, version).then(|| (found, state.references.now()))
    }

    /// Replaces the objects that the spec of a node names, with the versions that its run read. A change of one wakes
    /// the node, also a change since it was read.
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

    /// Replaces the objects of other kinds on which a node depends, with the versions that its run read. A later version of one
    /// wakes the node; of one that was read in [`LATEST_VERSION`] only its deletion does. What the spec of the node names
    /// besides ([`Self::refer_to`]) stays.
    ///
    /// [`LATEST_VERSION`]: crate::resource_version::LATEST_VERSION
    pub fn depend_on(&self, owner: &ObjectKey, dependencies: &[RunReferenceRead]) {
        let user = owner.part(DEPENDENCIES);
        // Most nodes depend on nothing of another kind, at any run.
        if dependencies.is_empty() && !self.state().references.has(&user) {
            return;
        }
        self.refer_to(&user, dependencies);
    }

    /// Wakes a node because of an object that its spec names. Objects on which it depends may change at any rate, so those wakes
    /// keep their distance.
    fn wake_referring(&self, node: &ObjectKey) {
        if node.is_part() {
            // No run asks whether this part was woken.
            self.wake_waiting(&node.whole());
        } else {
            self.work_queue.wake(node, WakeReason::Reference);
        }
    }

    /// Begins the watches for the objects that the specs of these nodes name, and stops watches that no node needs any
    /// more.
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

    /// Whether a watch ends that the API server refuses: there are narrower ones, or only nodes need it that depend on its object
    /// and ask for that again anyway.
    fn ends_if_refused(&self, key: &WatchKey) -> bool {
        let state = self.state();
        let is_awaited = |id: &ObjectId| !state.waiting_for(id).is_empty();
        let users = state.watches.get(key).map(|watch| &watch.users);
        let is_for_dependents = users.is_some_and(|users| users.iter().all(|user| user.is_part()));
        key.is_for_references()
            || (is_for_dependents && key.named_object().is_some_and(|id| !is_awaited(&id)))
    }

    /// Handles the refusal of a watch for references by the API server. Narrower watches may be allowed.
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
        if let Some(watch) = self.state().watches.get_mut(key) {
            watch.live = live;
        }
    }

    /// A watch saw an object.
    fn saw(&self, key: &WatchKey, id: &ObjectId, metadata: &Value) {
        let seen = self.marks.sighting_of(metadata);
        let mut state = self.state();
        let mut drifted = None;
        if let WatchSelection::Labelled(label) = key.selection {
            state.sight(label, id, seen);
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
        let drifted = drifted.filter(|_| !state.hushed.contains(id));
        let waiting = state.waiting_for(id);
        drop(state);
        self.tell(drifted, waiting);
        self.saw_reference(key, id, Some(seen.version));
    }

    /// A watch saw how an object is that specs may refer to; none: it is gone.
    fn saw_reference(&self, key: &WatchKey, id: &ObjectId, now: Option<u64>) {
        // One by a label does not know whether what it no longer sees is gone.
        if matches!(key.selection, WatchSelection::Labelled(_)) {
            return;
        }
        let referring = self.state().references.note(id, now);
        for node in referring {
            self.wake_referring(&node);
        }
    }

    /// A watch saw that an object is gone, or lost the label by which it was watched.
    fn lost(&self, key: &WatchKey, id: &ObjectId) {
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
        let drifted = drifted.filter(|_| !state.hushed.contains(id));
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

    /// Wakes a node for which something moved that it waits for.
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

    /// A watch listed everything: what it should have seen and did not is gone.
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
                self.lost(key, &id);
            }
        }
    }
}

/// An object that a node waits for.
pub struct AwaitedObject {
    /// Its kind.
    pub resource: ApiResourceLocation,
    /// Its id.
    pub id: ObjectId,
    /// Which watch sees it.
    pub labelled: OwnerLabel,
    /// The resourceVersion in which the node saw it; 0 when it was not there.
    pub version: u64,
    /// The moment before that run.
    pub since: WatchMoment,
}

/// Whether an object carries the owner label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerLabel {
    /// The watch of its kind sees it.
    Yes,
    /// It needs a watch by name.
    No,
}
