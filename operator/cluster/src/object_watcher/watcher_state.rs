//! The state of the object watcher: applied objects, observed versions, watches, and the reconciled objects that need them.
//!
//! Here: tables under one lock. The cost of a run depends on the objects of its own reconciled object and not on all objects.
//! There may be a hundred thousand ids, reconciled objects and watches, so all tables share them. Elsewhere: the watches and
//! the wakes (the module above), and which watches see the objects that specs name ([`super::references`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use objects::ObjectId;
use reconcile::ObjectKey;
use sha2::{Digest as _, Sha256};
use tokio::task::AbortHandle;

use super::KindOwnershipMarks;
use super::startup_drift_comparison::UnlistedStoredObject;
use super::uncompared_owners::UncomparedOwners;
use super::watched_references::WatchedReferences;
use crate::discovery::ApiResourceLocation;
use crate::resource_version::is_later;
use crate::watch::WatchSelection;

/// The version and the fingerprint in which a watch or a run saw a live object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SeenObjectVersion {
    /// The resourceVersion, as a number.
    pub(super) version: u64,
    /// A hash of the uid, the owner labels, and windlass's entries in `managedFields`.
    pub(super) fingerprint: u64,
    /// A hash of the metadata that changes with everything except the status. It is 0 if the object has no generation.
    pub(super) content: u64,
}

impl SeenObjectVersion {
    /// Whether this version is later than the applied one, and another client has taken over one of windlass's fields.
    pub(super) fn is_drift_from(self, applied: Self) -> bool {
        is_later(self.version, applied.version) && self.fingerprint != applied.fingerprint
    }

    /// Whether this version is later than another one, and not only by its status.
    pub(super) fn is_change_since(self, before: Self) -> bool {
        is_later(self.version, before.version) && !self.is_same_but_status(before)
    }

    /// Whether at most the status of the object differs between two versions.
    pub(super) fn is_same_but_status(self, other: Self) -> bool {
        let is_same = self.fingerprint == other.fingerprint && self.content == other.content;
        is_same && (self.content != 0 || self.version == other.version)
    }
}

/// An object that an applier applied.
pub(super) struct TrackedObject {
    pub(super) owner: Arc<ObjectKey>,
    /// The watch that sees the object. `None` before the apply, and for kinds that cannot be watched.
    pub(super) watch: Option<Arc<WatchKey>>,
    /// The digest of the applied manifest. `None` while the first apply is under way.
    pub(super) manifest: Option<ManifestDigest>,
    /// The live object after the apply.
    pub(super) applied: SeenObjectVersion,
    /// The applier whose write to the object is under way. A watch may already see its result.
    pub(super) writer: Option<Arc<ObjectKey>>,
    /// Whether the object has drifted from the applied manifest.
    pub(super) dirty: bool,
}

/// The SHA-256 of a manifest's digest, which takes fewer bytes than its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ManifestDigest([u8; 32]);

impl ManifestDigest {
    /// From the text of the digest.
    pub(super) fn of(digest: &str) -> Self {
        Self(Sha256::digest(digest).into())
    }

    /// From the text of [`Self::to_hex`].
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    pub(super) fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

/// A running watch, and the reconciled objects that need it.
pub(super) struct RunningWatch {
    pub(super) stop: AbortHandle,
    /// Whether the watch has listed everything once and has not failed since.
    pub(super) live: bool,
    /// Whether the watch has been live once or has failed.
    pub(super) has_answered: bool,
    pub(super) users: BTreeSet<Arc<ObjectKey>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WatchKey {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) selection: WatchSelection,
}

/// A moment in the sequence of watch events. Taken before a run or a write, it shows which changes came later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchMoment(u64);

/// The latest changes that watches saw. They are kept because the answer to a request can arrive after the event about the
/// same object.
#[derive(Default)]
pub(super) struct RecentObjectEvents {
    count: u64,
    order: VecDeque<ObjectId>,
    /// The last change of each object, with its new version. The version is `None` if the object was deleted.
    last: BTreeMap<ObjectId, (u64, Option<u64>)>,
}

/// How many changes are remembered.
const MAX_REMEMBERED_CHANGES: usize = 4096;

impl RecentObjectEvents {
    pub(super) fn now(&self) -> WatchMoment {
        WatchMoment(self.count)
    }

    pub(super) fn add(&mut self, id: &ObjectId, version: Option<u64>) {
        self.count += 1;
        self.order.push_back(id.clone());
        self.last.insert(id.clone(), (self.count, version));
        if self.order.len() <= MAX_REMEMBERED_CHANGES {
            return;
        }
        // The object may have changed again since, and that later change is kept.
        let forgotten = self.count - MAX_REMEMBERED_CHANGES as u64;
        if let Some(oldest) = self.order.pop_front()
            && self.last.get(&oldest).is_some_and(|(at, _)| *at <= forgotten)
        {
            self.last.remove(&oldest);
        }
    }

    /// Whether an object changed after a moment. If changes since then were forgotten, the object counts as changed.
    pub(super) fn since(&self, id: &ObjectId, moment: WatchMoment) -> bool {
        self.is_forgotten(moment) || self.last.get(id).is_some_and(|(at, _)| *at > moment.0)
    }

    /// Whether an object changed after a moment to a version that is newer than `read`.
    pub(super) fn differs_since(
        &self,
        id: &ObjectId,
        moment: WatchMoment,
        read: Option<u64>,
    ) -> bool {
        let differs = |(at, left): &(u64, Option<u64>)| *at > moment.0 && is_newer(*left, read);
        self.is_forgotten(moment) || self.last.get(id).is_some_and(differs)
    }

    fn is_forgotten(&self, moment: WatchMoment) -> bool {
        self.count.saturating_sub(moment.0) > MAX_REMEMBERED_CHANGES as u64
    }
}

/// Whether the current version of an object is newer than the version that a run read. `None` stands for a missing object.
pub(super) fn is_newer(now: Option<u64>, read: Option<u64>) -> bool {
    match (now, read) {
        // A lagging watch reports versions that runs read long ago.
        (Some(now), Some(read)) => is_later(now, read),
        (now, read) => now.is_some() != read.is_some(),
    }
}

/// The objects that a watch by label sees: group, kind and label.
type LabelWatchKey = (String, String, &'static str);

#[derive(Default)]
pub(super) struct ObjectWatcherState {
    pub(super) losses: RecentObjectEvents,
    pub(super) tracked: BTreeMap<Arc<ObjectId>, TrackedObject>,
    /// Objects that several appliers applied. Each entry is the state of an applier that was not the last to apply the object.
    superseded: BTreeMap<Arc<ObjectId>, Vec<TrackedObject>>,
    /// The objects that each applier applied before another applier did.
    superseded_of: BTreeMap<Arc<ObjectKey>, BTreeSet<Arc<ObjectId>>>,
    /// The newest version that watches by label saw of each object, tracked or not. A watch may be ahead of a run.
    sightings: BTreeMap<LabelWatchKey, BTreeMap<Arc<ObjectId>, SeenObjectVersion>>,
    /// Objects whose drift does not wake their owner, because a run of the owner is already planned.
    pub(super) hushed: BTreeSet<ObjectId>,
    /// The objects that each applier applied.
    pub(super) owned: BTreeMap<Arc<ObjectKey>, BTreeSet<Arc<ObjectId>>>,
    pub(super) watches: BTreeMap<Arc<WatchKey>, RunningWatch>,
    /// The watches that each reconciled object needs.
    uses: BTreeMap<Arc<ObjectKey>, BTreeSet<Arc<WatchKey>>>,
    /// The reconciled objects that wait for an object to change.
    waiting: BTreeMap<ObjectId, BTreeSet<ObjectKey>>,
    /// The objects that each reconciled object waits for.
    waits: BTreeMap<ObjectKey, BTreeSet<ObjectId>>,
    /// The objects that specs name.
    pub(super) references: WatchedReferences,
    /// Objects of kept comparisons, until their watch has listed them.
    pub(super) restored: BTreeMap<Arc<WatchKey>, Vec<UnlistedStoredObject>>,
    /// The objects that another client was the last to change, by the label of their watch. `None` once the first runs of the
    /// owners with this label are ordered.
    pub(super) changed_by_others: BTreeMap<&'static str, Option<BTreeSet<Arc<ObjectId>>>>,
    /// The owners whose first comparison after the start is still to come, and which have untracked objects.
    pub(super) uncompared: UncomparedOwners,
    marks: Arc<KindOwnershipMarks>,
}

impl ObjectWatcherState {
    /// An empty state. `marks` are the ownership marks of all kinds.
    pub(super) fn of(marks: Arc<KindOwnershipMarks>) -> Self {
        Self { marks, ..Self::default() }
    }

    /// The shared copy of a reconciled object, so that all tables use the same one.
    pub(super) fn shared_node(&self, node: &ObjectKey) -> Arc<ObjectKey> {
        let known = self.owned.get_key_value(node).map(|(node, _)| node);
        let known = known.or_else(|| self.uses.get_key_value(node).map(|(node, _)| node));
        known.cloned().unwrap_or_else(|| Arc::new(node.clone()))
    }

    /// The shared copy of a watch key, so that all tables use the same one.
    pub(super) fn shared_watch(&self, key: WatchKey) -> Arc<WatchKey> {
        let known = self.watches.get_key_value(&key).map(|(key, _)| key.clone());
        known.unwrap_or_else(|| Arc::new(key))
    }

    /// The shared copy of an object id. A watch with this label may have seen the object before.
    pub(super) fn shared_id(&self, label: &'static str, id: &ObjectId) -> Arc<ObjectId> {
        let known = self.tracked.get_key_value(id).map(|(id, _)| id);
        let sighted = || Some(self.sightings.get(&sort_of(id, label))?.get_key_value(id)?.0);
        known.or_else(sighted).cloned().unwrap_or_else(|| Arc::new(id.clone()))
    }

    /// Tracks an object for the applier that applied it last. An earlier owner is kept, and gets the object back when this
    /// applier gives it up.
    pub(super) fn track(&mut self, id: &ObjectId, tracked: TrackedObject) {
        let owner = tracked.owner.clone();
        let id = self.shared_id(self.marks.label_of(&owner), id);
        self.hushed.remove(&*id);
        self.uncompared.remove(&owner);
        self.drop_superseded(&owner, &id);
        if let Some(before) = self.tracked.insert(id.clone(), tracked) {
            self.disown(&before.owner, &id);
            if before.owner != owner && before.manifest.is_some() {
                self.superseded_of.entry(before.owner.clone()).or_default().insert(id.clone());
                self.superseded.entry(id.clone()).or_default().push(before);
            }
        }
        self.owned.entry(owner).or_default().insert(id);
    }

    /// Stops tracking an object for an applier. If another applier applied it before, the object is tracked for that applier
    /// again and counts as drifted. That applier then compares it at its next run.
    pub(super) fn untrack(&mut self, owner: &ObjectKey, id: &ObjectId) {
        if self.tracked.get(id).is_none_or(|it| *it.owner != *owner) {
            let other = self.tracked.get_mut(id);
            if let Some(other) = other.filter(|it| it.writer.as_deref() == Some(owner)) {
                // A failed write of this applier must not hide changes from the other applier.
                other.writer = None;
            }
            self.drop_superseded(owner, id);
            return;
        }
        let Some((name, _)) = self.tracked.remove_entry(id) else { return };
        self.hushed.remove(id);
        self.disown(owner, id);
        let last = self.superseded.get(id).and_then(|others| others.last());
        let Some(last) = last.map(|it| it.owner.clone()) else { return };
        let Some(mut before) = self.drop_superseded(&last, id) else { return };
        before.dirty = true;
        before.writer = None;
        self.owned.entry(last).or_default().insert(name.clone());
        self.tracked.insert(name, before);
    }

    /// Stops tracking an object for an applier that cannot write it. If the object drifted, this returns the other applier
    /// that applied it. The caller has to wake that applier, because the failed write hid the event.
    pub(super) fn fail(&mut self, owner: &ObjectKey, id: &ObjectId) -> Option<ObjectKey> {
        let tracked = self.tracked.get(id)?;
        let seen = self.sighted(self.marks.label_of(&tracked.owner), id);
        let has_drifted =
            tracked.dirty || seen.is_some_and(|seen| seen.is_drift_from(tracked.applied));
        self.untrack(owner, id);
        // While the other applier writes the object itself, it compares the object at the end of that write.
        let is_idle_other = |it: &&mut TrackedObject| *it.owner != *owner && it.writer.is_none();
        let other = self.tracked.get_mut(id).filter(is_idle_other).filter(|_| has_drifted)?;
        other.dirty = true;
        let woken = ObjectKey::clone(&other.owner);
        (!self.hushed.contains(id)).then_some(woken)
    }

    /// Whether a version of an object, which was read now, has drifted from the one that this applier applied or compared.
    pub(super) fn has_drifted_to(
        &self,
        owner: &ObjectKey,
        id: &ObjectId,
        seen: SeenObjectVersion,
    ) -> bool {
        let is_applied = |it: &&TrackedObject| *it.owner == *owner && it.manifest.is_some();
        let tracked = self.tracked.get(id).filter(is_applied);
        tracked.is_some_and(|it| seen.is_drift_from(it.applied))
    }

    /// Whether an object has drifted for this applier, and another applier applied it before. Its drift then wakes only this
    /// applier.
    pub(super) fn hides_drift(&self, owner: &ObjectKey, id: &ObjectId) -> bool {
        let has_drifted = self.tracked.get(id).is_some_and(|it| *it.owner == *owner && it.dirty);
        has_drifted && self.superseded.contains_key(id)
    }

    /// Whether another applier has applied an object after this one.
    pub(super) fn has_superseded(&self, owner: &ObjectKey) -> bool {
        self.superseded_of.contains_key(owner)
    }

    /// Forgets the earlier apply of an object by an applier.
    fn drop_superseded(&mut self, owner: &ObjectKey, id: &ObjectId) -> Option<TrackedObject> {
        let own = self.superseded_of.get_mut(owner)?;
        own.remove(id);
        if own.is_empty() {
            self.superseded_of.remove(owner);
        }
        let others = self.superseded.get_mut(id)?;
        let at = others.iter().position(|it| *it.owner == *owner)?;
        let dropped = others.remove(at);
        if others.is_empty() {
            self.superseded.remove(id);
        }
        Some(dropped)
    }

    fn disown(&mut self, owner: &ObjectKey, id: &ObjectId) {
        if let Some(owned) = self.owned.get_mut(owner) {
            owned.remove(id);
            if owned.is_empty() {
                self.owned.remove(owner);
            }
        }
    }

    /// Forgets the objects that an applier applied.
    pub(super) fn untrack_all(&mut self, owner: &ObjectKey) {
        self.untrack_others(owner, |_| false);
    }

    /// Forgets the objects that an applier applied, except those that `is_kept` chooses.
    pub(super) fn untrack_others(
        &mut self,
        owner: &ObjectKey,
        is_kept: impl Fn(&ObjectId) -> bool,
    ) {
        self.uncompared.remove(owner);
        let superseded = self.superseded_of.get(owner).into_iter().flatten();
        let all = superseded.chain(self.owned.get(owner).into_iter().flatten());
        let left: Vec<Arc<ObjectId>> = all.filter(|id| !is_kept(id)).cloned().collect();
        for id in left {
            self.untrack(owner, &id);
        }
    }

    /// The objects that an applier applied.
    pub(super) fn tracked_of(
        &self,
        owner: &ObjectKey,
    ) -> impl Iterator<Item = (&ObjectId, &TrackedObject)> {
        let ids = self.owned.get(owner).into_iter().flatten();
        ids.filter_map(|id| Some((&**id, self.tracked.get(id)?)))
    }

    /// Whether the object is watched, and no watch saw a later version than the compared one.
    pub(super) fn is_unmoved(&self, id: &ObjectId, tracked: &TrackedObject) -> bool {
        let compared = tracked.applied.version;
        let seen = self.sighted(self.marks.label_of(&tracked.owner), id);
        seen.is_some_and(|seen| !is_later(seen.version, compared)) && self.is_watched(tracked)
    }

    /// The version and fingerprint of an object that the watch by this label saw last.
    pub(super) fn sighted(&self, label: &'static str, id: &ObjectId) -> Option<SeenObjectVersion> {
        self.sightings.get(&sort_of(id, label))?.get(id).copied()
    }

    /// Notes that a watch by label saw an object.
    pub(super) fn sight(&mut self, label: &'static str, id: &ObjectId, seen: SeenObjectVersion) {
        let id = self.shared_id(label, id);
        self.sightings.entry(sort_of(&id, label)).or_default().insert(id, seen);
    }

    /// Notes that a watch by label no longer sees an object.
    pub(super) fn unsight(&mut self, label: &'static str, id: &ObjectId) {
        if let Some(seen) = self.sightings.get_mut(&sort_of(id, label)) {
            seen.remove(id);
        }
    }

    /// The objects that a watch by label should list: those that it saw, and those that were applied with the label.
    pub(super) fn expected(&self, key: &WatchKey, label: &'static str) -> BTreeSet<&ObjectId> {
        let tracked = self.tracked.iter().filter(|(id, it)| {
            id.kind == key.kind && id.group == key.group && self.marks.label_of(&it.owner) == label
        });
        let sort = (key.group.clone(), key.kind.clone(), label);
        let sighted = self.sightings.get(&sort).into_iter().flat_map(BTreeMap::keys);
        let all = tracked.map(|(id, _)| id).chain(sighted);
        let is_written = |id: &ObjectId| self.tracked.get(id).is_some_and(|it| it.writer.is_some());
        all.map(|id| &**id).filter(|id| !is_written(id)).collect()
    }

    /// The reconciled objects that wait for an object.
    pub(super) fn waiting_for(&self, id: &ObjectId) -> BTreeSet<ObjectKey> {
        self.waiting.get(id).cloned().unwrap_or_default()
    }

    /// Notes that a reconciled object waits for an object.
    pub(super) fn wait(&mut self, node: &ObjectKey, id: &ObjectId) {
        self.waiting.entry(id.clone()).or_default().insert(node.clone());
        self.waits.entry(node.clone()).or_default().insert(id.clone());
    }

    /// Ends the waits of a reconciled object for the objects that `which` chooses.
    pub(super) fn stop_waiting(&mut self, node: &ObjectKey, which: impl Fn(&ObjectId) -> bool) {
        let Some(own) = self.waits.get_mut(node) else { return };
        let ended: Vec<ObjectId> = own.extract_if(.., |id| which(id)).collect();
        if own.is_empty() {
            self.waits.remove(node);
        }
        for id in ended {
            if let Some(nodes) = self.waiting.get_mut(&id) {
                nodes.remove(node);
                if nodes.is_empty() {
                    self.waiting.remove(&id);
                }
            }
        }
    }

    /// The objects that a reconciled object watches by name.
    pub(super) fn named_by(&self, node: &ObjectKey) -> BTreeSet<ObjectId> {
        let keys = self.uses.get(node).into_iter().flatten();
        keys.filter_map(|key| key.named_object()).collect()
    }

    /// Notes that a reconciled object needs a watch, and starts the watch with `begin` if it does not run.
    pub(super) fn need(
        &mut self,
        node: &ObjectKey,
        key: WatchKey,
        begin: impl FnOnce() -> AbortHandle,
    ) {
        let node = self.shared_node(node);
        let key = self.shared_watch(key);
        self.uses.entry(node.clone()).or_default().insert(key.clone());
        let begin = || RunningWatch {
            stop: begin(),
            live: false,
            has_answered: false,
            users: BTreeSet::new(),
        };
        self.watches.entry(key).or_insert_with(begin).users.insert(node);
    }

    /// Whether a live watch sees the changes of an applied object.
    pub(super) fn is_watched(&self, tracked: &TrackedObject) -> bool {
        let watch = tracked.watch.as_ref().and_then(|key| self.watches.get(&**key));
        watch.is_some_and(|watch| watch.live)
    }

    /// Whether a live watch has seen this version of a referenced object, and no later one.
    pub(super) fn confirms_reference(&self, id: &ObjectId, version: u64) -> bool {
        let key = self.references.key_of(id);
        let is_live = key.and_then(|key| self.watches.get(&key)).is_some_and(|watch| watch.live);
        is_live && self.references.is_seen_in(id, version)
    }

    /// Removes a reconciled object from the watches that it no longer needs for waits and references. Stops the watches that
    /// no reconciled object needs.
    ///
    /// Watches by label stay as long as their reconciled object, because they also report drift.
    pub(super) fn release_unused(&mut self, user: &ObjectKey) {
        let referring = self.references.needed_by(user);
        let waits = self.waits.get(user);
        let needed = |key: &WatchKey| {
            matches!(key.selection, WatchSelection::Labelled(_))
                || referring.contains(key)
                || key.named_object().is_some_and(|id| waits.is_some_and(|own| own.contains(&id)))
        };
        let own = self.uses.get(user).into_iter().flatten();
        let unused: Vec<Arc<WatchKey>> = own.filter(|key| !needed(key)).cloned().collect();
        self.leave(user, unused);
    }

    /// Removes a reconciled object from every watch that `which` chooses, and stops the watches that no reconciled object
    /// needs.
    pub(super) fn release(&mut self, user: &ObjectKey, which: impl Fn(&WatchKey) -> bool) {
        let own = self.uses.get(user).into_iter().flatten();
        let left: Vec<Arc<WatchKey>> = own.filter(|key| which(key)).cloned().collect();
        self.leave(user, left);
    }

    fn leave(&mut self, user: &ObjectKey, left: Vec<Arc<WatchKey>>) {
        for key in left {
            if let Some(own) = self.uses.get_mut(user) {
                own.remove(&key);
                if own.is_empty() {
                    self.uses.remove(user);
                }
            }
            let Some(watch) = self.watches.get_mut(&key) else { continue };
            watch.users.remove(user);
            if watch.users.is_empty() {
                self.stop(&key);
            }
        }
    }

    /// Stops a watch, and returns the reconciled objects that used it.
    pub(super) fn stop(&mut self, key: &WatchKey) -> BTreeSet<ObjectKey> {
        let Some(watch) = self.watches.remove(key) else { return BTreeSet::new() };
        watch.stop.abort();
        for user in &watch.users {
            if let Some(own) = self.uses.get_mut(&**user) {
                own.remove(key);
                if own.is_empty() {
                    self.uses.remove(user);
                }
            }
        }
        if let WatchSelection::Labelled(label) = key.selection {
            self.sightings.remove(&(key.group.clone(), key.kind.clone(), label));
        }
        watch.users.iter().map(|user| ObjectKey::clone(user)).collect()
    }
}

fn sort_of(id: &ObjectId, label: &'static str) -> LabelWatchKey {
    (id.group.clone(), id.kind.clone(), label)
}

/// What the watcher knows about a live object without a request to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchedObjectState {
    /// Nothing reliable is known.
    None,
    /// Another manifest of the same owner was applied, and its fields have not changed since.
    Other,
    /// This manifest was applied, and no other client has taken over one of its fields. Other fields may have changed.
    Applied,
    /// This manifest was applied, and the object has not changed at all since.
    Unmoved,
}

impl WatchKey {
    pub(super) fn new(resource: &ApiResourceLocation, selection: WatchSelection) -> Self {
        let objects::Gvk { group, version, kind } = resource.gvk.clone();
        Self { group, version, kind, selection }
    }

    /// The object, if this is a watch by name.
    pub(super) fn named_object(&self) -> Option<ObjectId> {
        match &self.selection {
            WatchSelection::Named(namespace, name) => {
                Some(ObjectId::new(namespace, name, &self.group, &self.kind))
            }
            WatchSelection::Labelled(_) | WatchSelection::InNamespace(_) | WatchSelection::All => {
                None
            }
        }
    }

    pub(super) fn labelled(resource: &ApiResourceLocation, label: &'static str) -> Self {
        Self::new(resource, WatchSelection::Labelled(label))
    }

    /// Whether this watch selects objects by this label. Only then does it notice when such an object is gone.
    pub(super) fn is_of(&self, label: &str) -> bool {
        match self.selection {
            WatchSelection::Labelled(own) => own == label,
            WatchSelection::Named(..) | WatchSelection::InNamespace(_) | WatchSelection::All => {
                true
            }
        }
    }

    /// Whether this watch only serves objects that specs name.
    pub(super) fn is_for_references(&self) -> bool {
        matches!(self.selection, WatchSelection::InNamespace(_) | WatchSelection::All)
    }
}

#[cfg(test)]
mod tests;
