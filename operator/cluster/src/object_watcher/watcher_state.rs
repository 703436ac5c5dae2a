//! What the watcher remembers: objects that were applied, sightings, watches and their users.
//!
//! Here: plain bookkeeping under one lock, where what a run does costs as much as its node has, and not as all have. Ids, nodes
//! and watches are shared by all tables that hold them: there may be a hundred thousand.
//! Elsewhere: watches, and whom to wake (the module above), which watches see what specs name ([`super::references`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use objects::ObjectId;
use reconcile::ObjectKey;
use sha2::{Digest as _, Sha256};
use tokio::task::AbortHandle;

use super::KindOwnershipMarks;
use super::references::WatchedReferences;
use crate::discovery::ApiResourceLocation;
use crate::resource_version::is_later;
use crate::watch::WatchSelection;

/// The version and the fingerprint in which a live object was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LiveObjectSighting {
    /// The number of its resourceVersion.
    pub(super) version: u64,
    /// Of its uid, the labels of its owner, and our entries in `managedFields`.
    pub(super) fingerprint: u64,
}

impl LiveObjectSighting {
    /// Whether this version is later than the applied one, and the fingerprint shows that another client owns one of
    /// our fields now.
    pub(super) fn is_drift_from(self, applied: Self) -> bool {
        is_later(self.version, applied.version) && self.fingerprint != applied.fingerprint
    }
}

/// An object that a node applied.
pub(super) struct TrackedObject {
    pub(super) owner: Arc<ObjectKey>,
    /// The watch that sees it; none before it was applied, and for kinds that cannot be watched.
    pub(super) watch: Option<Arc<WatchKey>>,
    /// Which manifest was applied; `None` if one is only about to be applied.
    pub(super) manifest: Option<ManifestDigest>,
    /// The live object after the manifest was applied.
    pub(super) applied: LiveObjectSighting,
    /// The node whose write is under way: what a watch sees may be its result.
    pub(super) writer: Option<Arc<ObjectKey>>,
    /// It is not what was applied.
    pub(super) dirty: bool,
}

/// Identifies a manifest, in fewer bytes than the text of its digest has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ManifestDigest([u8; 32]);

impl ManifestDigest {
    /// By the text of its digest.
    pub(super) fn of(digest: &str) -> Self {
        Self(Sha256::digest(digest).into())
    }
}

/// A running watch and who needs it.
pub(super) struct RunningWatch {
    pub(super) stop: AbortHandle,
    /// It has listed everything once and has not failed since.
    pub(super) live: bool,
    pub(super) users: BTreeSet<Arc<ObjectKey>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WatchKey {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) selection: WatchSelection,
}

/// The moment before a run or a write begins. A run may still have seen an object that is deleted after this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchMoment(u64);

/// The last changes of objects. They are kept because the response to a request can arrive after the event about the
/// same object.
#[derive(Default)]
pub(super) struct RecentObjectEvents {
    count: u64,
    order: VecDeque<ObjectId>,
    /// The last change of each object, with the version after it; `None` if the object was deleted.
    last: BTreeMap<ObjectId, (u64, Option<u64>)>,
}

/// How much is remembered.
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
        // It may have happened again since.
        let forgotten = self.count - MAX_REMEMBERED_CHANGES as u64;
        if let Some(oldest) = self.order.pop_front()
            && self.last.get(&oldest).is_some_and(|(at, _)| *at <= forgotten)
        {
            self.last.remove(&oldest);
        }
    }

    /// Whether an object changed after a moment. If changes since then were forgotten, it counts as changed.
    pub(super) fn since(&self, id: &ObjectId, moment: WatchMoment) -> bool {
        self.is_forgotten(moment) || self.last.get(id).is_some_and(|(at, _)| *at > moment.0)
    }

    /// Whether an object has a newer version than `read`, by a change after a moment.
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

/// Whether a version of an object, none if it is gone, is newer than the version that a run read.
pub(super) fn is_newer(now: Option<u64>, read: Option<u64>) -> bool {
    match (now, read) {
        // A watch that lags reports versions that were read long ago.
        (Some(now), Some(read)) => is_later(now, read),
        (now, read) => now.is_some() != read.is_some(),
    }
}

/// What a watch by a label sees: group, kind and label.
type LabelWatchKey = (String, String, &'static str);

#[derive(Default)]
pub(super) struct ObjectWatcherState {
    pub(super) losses: RecentObjectEvents,
    pub(super) tracked: BTreeMap<Arc<ObjectId>, TrackedObject>,
    /// Objects that several nodes apply: what is remembered of each node that did not apply the object last.
    superseded: BTreeMap<Arc<ObjectId>, Vec<TrackedObject>>,
    /// The objects that each node applied before another one did.
    superseded_of: BTreeMap<Arc<ObjectKey>, BTreeSet<Arc<ObjectId>>>,
    /// The newest version of every object that watches by label saw, tracked or not. A watch may be ahead of a run.
    sightings: BTreeMap<LabelWatchKey, BTreeMap<Arc<ObjectId>, LiveObjectSighting>>,
    /// Objects whose drift does not wake their owner, because it has a run planned for that.
    pub(super) hushed: BTreeSet<ObjectId>,
    /// The objects that each node applied.
    pub(super) owned: BTreeMap<Arc<ObjectKey>, BTreeSet<Arc<ObjectId>>>,
    pub(super) watches: BTreeMap<Arc<WatchKey>, RunningWatch>,
    /// Which watches a node needs.
    uses: BTreeMap<Arc<ObjectKey>, BTreeSet<Arc<WatchKey>>>,
    /// The nodes that wait for an object to change.
    waiting: BTreeMap<ObjectId, BTreeSet<ObjectKey>>,
    /// What a node waits for.
    waits: BTreeMap<ObjectKey, BTreeSet<ObjectId>>,
    /// What specs refer to.
    pub(super) references: WatchedReferences,
    marks: Arc<KindOwnershipMarks>,
}

impl ObjectWatcherState {
    /// Nothing is known yet of objects with these marks.
    pub(super) fn of(marks: Arc<KindOwnershipMarks>) -> Self {
        Self { marks, ..Self::default() }
    }

    /// A node as the tables have it.
    pub(super) fn shared_node(&self, node: &ObjectKey) -> Arc<ObjectKey> {
        let known = self.owned.get_key_value(node).map(|(node, _)| node);
        let known = known.or_else(|| self.uses.get_key_value(node).map(|(node, _)| node));
        known.cloned().unwrap_or_else(|| Arc::new(node.clone()))
    }

    /// A watch as the tables have it.
    pub(super) fn shared_watch(&self, key: WatchKey) -> Arc<WatchKey> {
        let known = self.watches.get_key_value(&key).map(|(key, _)| key.clone());
        known.unwrap_or_else(|| Arc::new(key))
    }

    /// The id of an object, which the watch by a label may have seen, as the tables have it.
    fn shared_id(&self, label: &'static str, id: &ObjectId) -> Arc<ObjectId> {
        let known = self.tracked.get_key_value(id).map(|(id, _)| id);
        let sighted = || Some(self.sightings.get(&sort_of(id, label))?.get_key_value(id)?.0);
        known.or_else(sighted).cloned().unwrap_or_else(|| Arc::new(id.clone()))
    }

    /// Remembers that a node applied an object. Another node that applied it before gets it back when this one gives it up.
    pub(super) fn track(&mut self, id: &ObjectId, tracked: TrackedObject) {
        let owner = tracked.owner.clone();
        let id = self.shared_id(self.marks.label_of(&owner), id);
        self.hushed.remove(&*id);
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

    /// A node gives an object up. If another node applied it before, it is remembered for that one, and counts as not what
    /// that one applied: it wakes when the object goes, and compares it at its next run.
    pub(super) fn untrack(&mut self, owner: &ObjectKey, id: &ObjectId) {
        if self.tracked.get(id).is_none_or(|it| *it.owner != *owner) {
            let other = self.tracked.get_mut(id);
            if let Some(other) = other.filter(|it| it.writer.as_deref() == Some(owner)) {
                // A write of this node that failed does not hide changes from the other.
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

    /// A node gives an object up because it cannot write it. Returns the other node that applied it, if a watch saw that it
    /// drifted: no event will wake that one, since the failed write has hidden it.
    pub(super) fn fail(&mut self, owner: &ObjectKey, id: &ObjectId) -> Option<ObjectKey> {
        let tracked = self.tracked.get(id)?;
        let seen = self.sighted(self.marks.label_of(&tracked.owner), id);
        let has_drifted =
            tracked.dirty || seen.is_some_and(|seen| seen.is_drift_from(tracked.applied));
        self.untrack(owner, id);
        // What a write of its own changes is compared when that ends.
        let is_idle_other = |it: &&mut TrackedObject| *it.owner != *owner && it.writer.is_none();
        let other = self.tracked.get_mut(id).filter(is_idle_other).filter(|_| has_drifted)?;
        other.dirty = true;
        let woken = ObjectKey::clone(&other.owner);
        (!self.hushed.contains(id)).then_some(woken)
    }

    /// Whether drift of an object wakes a node, and not the other one that applied it before.
    pub(super) fn hides_drift(&self, owner: &ObjectKey, id: &ObjectId) -> bool {
        let has_drifted = self.tracked.get(id).is_some_and(|it| *it.owner == *owner && it.dirty);
        has_drifted && self.superseded.contains_key(id)
    }

    /// Forgets that a node applied an object before another one did.
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

    /// Forgets the objects that a node applied.
    pub(super) fn untrack_all(&mut self, owner: &ObjectKey) {
        self.untrack_others(owner, |_| false);
    }

    /// Forgets the objects that a node applied, but those that `is_kept` chooses.
    pub(super) fn untrack_others(
        &mut self,
        owner: &ObjectKey,
        is_kept: impl Fn(&ObjectId) -> bool,
    ) {
        let superseded = self.superseded_of.get(owner).into_iter().flatten();
        let all = superseded.chain(self.owned.get(owner).into_iter().flatten());
        let left: Vec<Arc<ObjectId>> = all.filter(|id| !is_kept(id)).cloned().collect();
        for id in left {
            self.untrack(owner, &id);
        }
    }

    /// The objects that a node applied.
    pub(super) fn tracked_of(
        &self,
        owner: &ObjectKey,
    ) -> impl Iterator<Item = (&ObjectId, &TrackedObject)> {
        let ids = self.owned.get(owner).into_iter().flatten();
        ids.filter_map(|id| Some((&**id, self.tracked.get(id)?)))
    }

    /// Whether no watch saw a later version of an object than the one that was compared.
    pub(super) fn is_unmoved(&self, id: &ObjectId, tracked: &TrackedObject) -> bool {
        let compared = tracked.applied.version;
        let seen = self.sighted(self.marks.label_of(&tracked.owner), id);
        seen.is_some_and(|seen| !is_later(seen.version, compared)) && self.is_watched(tracked)
    }

    /// What the watch by a label saw of an object last.
    pub(super) fn sighted(&self, label: &'static str, id: &ObjectId) -> Option<LiveObjectSighting> {
        self.sightings.get(&sort_of(id, label))?.get(id).copied()
    }

    /// A watch by a label saw an object.
    pub(super) fn sight(&mut self, label: &'static str, id: &ObjectId, seen: LiveObjectSighting) {
        let id = self.shared_id(label, id);
        self.sightings.entry(sort_of(&id, label)).or_default().insert(id, seen);
    }

    /// A watch by a label no longer sees an object.
    pub(super) fn unsight(&mut self, label: &'static str, id: &ObjectId) {
        if let Some(seen) = self.sightings.get_mut(&sort_of(id, label)) {
            seen.remove(id);
        }
    }

    /// What a watch by a label should have seen: objects that it saw, and those that were applied and carry it.
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

    /// Who waits for an object.
    pub(super) fn waiting_for(&self, id: &ObjectId) -> BTreeSet<ObjectKey> {
        self.waiting.get(id).cloned().unwrap_or_default()
    }

    /// A node waits for an object.
    pub(super) fn wait(&mut self, node: &ObjectKey, id: &ObjectId) {
        self.waiting.entry(id.clone()).or_default().insert(node.clone());
        self.waits.entry(node.clone()).or_default().insert(id.clone());
    }

    /// Ends the waits of a node for the objects that `which` chooses.
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

    /// Objects that a node watches by name.
    pub(super) fn named_by(&self, node: &ObjectKey) -> BTreeSet<ObjectId> {
        let keys = self.uses.get(node).into_iter().flatten();
        keys.filter_map(|key| key.named_object()).collect()
    }

    /// A node needs a watch, which is begun by `begin` unless it runs.
    pub(super) fn need(
        &mut self,
        node: &ObjectKey,
        key: WatchKey,
        begin: impl FnOnce() -> AbortHandle,
    ) {
        let node = self.shared_node(node);
        let key = self.shared_watch(key);
        self.uses.entry(node.clone()).or_default().insert(key.clone());
        let begin = || RunningWatch { stop: begin(), live: false, users: BTreeSet::new() };
        self.watches.entry(key).or_insert_with(begin).users.insert(node);
    }

    /// Whether a watch has seen every change of an object up to now.
    pub(super) fn is_watched(&self, tracked: &TrackedObject) -> bool {
        let watch = tracked.watch.as_ref().and_then(|key| self.watches.get(&**key));
        watch.is_some_and(|watch| watch.live)
    }

    /// Whether a live watch has seen an object that specs name in a version, and in no later one.
    pub(super) fn confirms_reference(&self, id: &ObjectId, version: u64) -> bool {
        let key = self.references.key_of(id);
        let is_live = key.and_then(|key| self.watches.get(&key)).is_some_and(|watch| watch.live);
        is_live && self.references.is_seen_in(id, version)
    }

    /// Removes a user from the watches that it no longer needs for waits and references, and stops the watches without
    /// a user.
    ///
    /// Watches by label stay as long as their user does, because they also report drift.
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

    /// Removes a user from every watch that `which` chooses, and stops the watches without a user.
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

    /// Stops a watch; returns who used it.
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

/// What is known about a live object without a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveObjectKnowledge {
    /// Nothing that could be relied on.
    None,
    /// Another manifest of the same owner was applied, and its fields are still as that one made them.
    Other,
    /// This manifest was applied, and no field of it changed hands since. Something else of the object may have changed.
    Applied,
    /// This manifest was applied, and nothing at all of the object changed since.
    Unmoved,
}

impl WatchKey {
    pub(super) fn new(resource: &ApiResourceLocation, selection: WatchSelection) -> Self {
        let objects::Gvk { group, version, kind } = resource.gvk.clone();
        Self { group, version, kind, selection }
    }

    /// The object of a watch by name.
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

    /// Whether it sees objects with this label, and so knows when one of them is gone.
    pub(super) fn is_of(&self, label: &str) -> bool {
        match self.selection {
            WatchSelection::Labelled(own) => own == label,
            WatchSelection::Named(..) | WatchSelection::InNamespace(_) | WatchSelection::All => {
                true
            }
        }
    }

    /// Whether it sees what specs refer to and nothing else.
    pub(super) fn is_for_references(&self) -> bool {
        matches!(self.selection, WatchSelection::InNamespace(_) | WatchSelection::All)
    }
}

#[cfg(test)]
mod tests;
