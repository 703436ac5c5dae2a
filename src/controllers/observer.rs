//! Notices when a managed object stops being what was applied, and when one that somebody waits for moves.
//!
//! One metadata-only watch for each kind in use and ownership label; objects without a label of ours are watched
//! by name. What was applied is remembered as a digest of the manifest and a fingerprint of the live object.
//! Nothing here survives a restart: each node verifies its objects once after a start.

mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use apply::fingerprint::fingerprint;
use objects::{Object, ObjectId};
use reconcile::Node;
use serde_json::Value;
use tokio::task::AbortHandle;

use super::hub::Hub;
use crate::cluster::Cluster;
use crate::cluster::discovery::Resource;
use crate::cluster::watch::Selection;
use crate::metrics::WakeReason;

/// Field manager of what Kustomizations apply; Flux's, so that its fields stay ours.
pub(crate) const MANAGER: &str = "kustomize-controller";

const LABELS: [&str; 2] = [apply::meta::OWNER_NAME, apply::meta::OWNER_NAMESPACE];

type Fingerprint = u64;

/// An object that a node applied.
struct Tracked {
    owner: Node,
    /// Digest of the manifest that was applied.
    digest: String,
    /// Fingerprint of the live object after that, and its resourceVersion.
    applied: (u64, Fingerprint),
    /// The newest that a watch saw.
    seen: Option<(u64, Fingerprint)>,
    /// A write is under way, so what a watch sees may be its result.
    writing: bool,
    /// It is not what was applied.
    dirty: bool,
}

/// A Secret or ConfigMap that specs name.
struct Reference {
    users: BTreeSet<Node>,
    /// As last seen: its resourceVersion, or that it is not there. `None` before the first look.
    seen: Option<Option<u64>>,
    /// Whether a run found it there.
    was_there: bool,
}

/// A running watch and who needs it.
struct Running {
    stop: AbortHandle,
    /// It has listed everything once and has not failed since.
    live: bool,
    users: BTreeSet<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct WatchKey {
    group: String,
    version: String,
    kind: String,
    selection: Selection,
}

#[derive(Default)]
struct State {
    tracked: BTreeMap<ObjectId, Tracked>,
    watches: BTreeMap<WatchKey, Running>,
    /// Who waits for an object to move.
    waiting: BTreeMap<ObjectId, BTreeSet<Node>>,
    /// What a spec refers to, and the version that its run may have read.
    references: BTreeMap<ObjectId, Reference>,
}

impl State {
    /// Notes how a referred object is now; returns whom that wakes.
    fn note_reference(&mut self, id: &ObjectId, now: Option<u64>) -> BTreeSet<Node> {
        let Some(reference) = self.references.get_mut(id) else { return BTreeSet::new() };
        let changed = match reference.seen.replace(now) {
            Some(before) => before != now,
            // The first look tells nothing new, unless the run found something else.
            None => reference.was_there != now.is_some(),
        };
        if changed { reference.users.clone() } else { BTreeSet::new() }
    }

    /// Takes a user from the watches by name that it no longer needs, and stops those that nobody uses any more.
    ///
    /// Watches by label stay as long as their user does, because they also tell of drift.
    fn release_unused(&mut self, user: &Node) {
        let Self { watches, waiting, references, .. } = self;
        watches.retain(|key, watch| {
            if let Some(id) = key.named_object() {
                let waits = waiting.get(&id).is_some_and(|nodes| nodes.contains(user));
                let refers = references.get(&id).is_some_and(|r| r.users.contains(user));
                if !waits && !refers {
                    watch.users.remove(user);
                }
            }
            watch.is_used()
        });
    }

    /// Takes a user from every watch, and stops those that nobody uses any more.
    fn release_all(&mut self, user: &Node) {
        self.watches.retain(|_, watch| {
            watch.users.remove(user);
            watch.is_used()
        });
    }
}

impl Running {
    /// Whether somebody needs the watch; one that nobody needs is stopped.
    fn is_used(&self) -> bool {
        if self.users.is_empty() {
            self.stop.abort();
        }
        !self.users.is_empty()
    }
}

/// See the module.
pub(crate) struct Observer {
    cluster: Cluster,
    hub: Arc<Hub>,
    state: Mutex<State>,
    myself: Weak<Self>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        for watch in self.state.get_mut().unwrap_or_else(PoisonError::into_inner).watches.values() {
            watch.stop.abort();
        }
    }
}

/// Fingerprint of live metadata, and its resourceVersion as a number (they are comparable, Kubernetes 1.35).
fn print_of(metadata: &Value) -> (u64, Fingerprint) {
    let version =
        metadata.get("resourceVersion").and_then(Value::as_str).and_then(|v| v.parse().ok());
    (version.unwrap_or_default(), fingerprint(metadata, &[MANAGER], &LABELS))
}

impl Observer {
    /// Watches nothing yet.
    pub(crate) fn new(cluster: Cluster, hub: Arc<Hub>) -> Arc<Self> {
        Arc::new_cyclic(|myself| Self {
            cluster,
            hub,
            state: Mutex::default(),
            myself: myself.clone(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a live object is known to be what this manifest made it, without asking anybody.
    pub(crate) fn is_settled(
        &self,
        owner: &Node,
        id: &ObjectId,
        digest: &str,
        resource: &Resource,
    ) -> bool {
        let state = self.state();
        let key = WatchKey::labelled(resource);
        let live = state.watches.get(&key).is_some_and(|w| w.live);
        live && state
            .tracked
            .get(id)
            .is_some_and(|t| t.owner == *owner && t.digest == digest && !t.dirty && !t.writing)
    }

    /// Whether a manifest was applied, whatever became of the object since.
    pub(crate) fn had_applied(&self, owner: &Node, id: &ObjectId, digest: &str) -> bool {
        self.state().tracked.get(id).is_some_and(|t| t.owner == *owner && t.digest == digest)
    }

    /// Whether nothing that a node applied is known to have moved since.
    pub(crate) fn is_calm(&self, owner: &Node) -> bool {
        self.state().tracked.values().all(|t| t.owner != *owner || (!t.dirty && !t.writing))
    }

    /// Says that a write to an object begins; [`Self::applied`] or [`Self::released`] ends it.
    pub(crate) fn writing(&self, owner: &Node, id: &ObjectId) {
        let mut state = self.state();
        // A watch may see a new object before its creation is answered, so it is known from here on.
        let tracked = state.tracked.entry(id.clone()).or_insert_with(|| Tracked {
            owner: owner.clone(),
            digest: String::new(),
            applied: (0, 0),
            seen: None,
            writing: true,
            dirty: false,
        });
        tracked.writing = true;
    }

    /// Remembers what a manifest made of an object, and watches that it stays so.
    pub(crate) fn applied(&self, owner: &Node, resource: &Resource, digest: String, live: &Object) {
        let metadata = live.get("metadata").cloned().unwrap_or_default();
        let applied = print_of(&metadata);
        let id = live.id();
        let mut state = self.state();
        let seen = state.tracked.get(&id).and_then(|t| t.seen);
        // A watch may have been faster than the answer, with this change or already with a later one.
        let dirty = seen.is_some_and(|(version, print)| version > applied.0 && print != applied.1);
        let tracked =
            Tracked { owner: owner.clone(), digest, applied, seen, writing: false, dirty };
        state.tracked.insert(id, tracked);
        self.ensure(&mut state, owner, resource, Selection::Labelled(apply::meta::OWNER_NAME));
        drop(state);
        if dirty {
            self.hub.wake(owner, WakeReason::Drift);
        }
    }

    /// Stops remembering an object of an owner: it was deleted, skipped or given away.
    pub(crate) fn released(&self, owner: &Node, id: &ObjectId) {
        let mut state = self.state();
        if state.tracked.get(id).is_some_and(|t| t.owner == *owner) {
            state.tracked.remove(id);
        }
    }

    /// Stops remembering what a node applied and waited for; what its spec refers to stays.
    pub(crate) fn release_objects(&self, owner: &Node) {
        let mut state = self.state();
        state.tracked.retain(|_, t| t.owner != *owner);
        for waiting in state.waiting.values_mut() {
            waiting.remove(owner);
        }
        state.waiting.retain(|_, nodes| !nodes.is_empty());
        let State { watches, .. } = &mut *state;
        watches.retain(|key, watch| {
            if key.named_object().is_none() {
                watch.users.remove(owner);
            }
            watch.is_used()
        });
        state.release_unused(owner);
    }

    /// Forgets a node and stops the watches that nobody else needs.
    pub(crate) fn forget(&self, owner: &Node) {
        let mut state = self.state();
        state.tracked.retain(|_, t| t.owner != *owner);
        for waiting in state.waiting.values_mut() {
            waiting.remove(owner);
        }
        state.waiting.retain(|_, nodes| !nodes.is_empty());
        for reference in state.references.values_mut() {
            reference.users.remove(owner);
        }
        state.references.retain(|_, reference| !reference.users.is_empty());
        state.release_all(owner);
    }

    /// Replaces what a node waits for: any event about one of these objects wakes it, and so does one that came
    /// after the node had looked and before it waited.
    ///
    /// Objects that carry the label of a Kustomization are seen by the watch of their kind; others get one of their own.
    pub(crate) fn await_objects(&self, owner: &Node, awaited: &[Awaited]) {
        let mut state = self.state();
        for nodes in state.waiting.values_mut() {
            nodes.remove(owner);
        }
        state.waiting.retain(|_, nodes| !nodes.is_empty());
        let mut moved = false;
        for Awaited { resource, id, labelled, version } in awaited {
            state.waiting.entry(id.clone()).or_default().insert(owner.clone());
            // A watch by name starts with the wait and lists the object first, so only watches by label may be ahead.
            let seen = state.tracked.get(id).and_then(|t| t.seen);
            moved |= seen.is_some_and(|(seen, _)| seen > *version);
            let selection = match labelled {
                Labelled::Yes => Selection::Labelled(apply::meta::OWNER_NAME),
                Labelled::No => Selection::Named(id.namespace.clone(), id.name.clone()),
            };
            self.ensure(&mut state, owner, resource, selection);
        }
        state.release_unused(owner);
        drop(state);
        if moved {
            self.hub.wake(owner, WakeReason::Waiting);
        }
    }

    /// Replaces what a node's spec refers to, beside whether its run found it: a change of it wakes the node.
    pub(crate) fn refer_to(&self, owner: &Node, referred: &[(Resource, ObjectId, bool)]) {
        let mut state = self.state();
        for reference in state.references.values_mut() {
            reference.users.remove(owner);
        }
        for (resource, id, was_there) in referred {
            let reference = state.references.entry(id.clone()).or_insert_with(|| Reference {
                users: BTreeSet::new(),
                seen: None,
                was_there: *was_there,
            });
            reference.users.insert(owner.clone());
            reference.was_there = *was_there;
            let selection = Selection::Named(id.namespace.clone(), id.name.clone());
            self.ensure(&mut state, owner, resource, selection);
        }
        state.references.retain(|_, reference| !reference.users.is_empty());
        state.release_unused(owner);
    }

    fn ensure(&self, state: &mut State, owner: &Node, resource: &Resource, selection: Selection) {
        if !resource.watchable {
            return;
        }
        let key = WatchKey::new(resource, selection.clone());
        if let Some(running) = state.watches.get_mut(&key) {
            running.users.insert(owner.clone());
            return;
        }
        let stream = self.cluster.watch_metadata(resource, &selection);
        let task = task::follow(self.myself.clone(), key.clone(), resource.clone(), stream);
        let stop = tokio::spawn(task).abort_handle();
        state
            .watches
            .insert(key, Running { stop, live: false, users: BTreeSet::from([owner.clone()]) });
    }

    fn set_live(&self, key: &WatchKey, live: bool) {
        if let Some(watch) = self.state().watches.get_mut(key) {
            watch.live = live;
        }
    }

    /// A watch saw an object.
    fn saw(&self, id: &ObjectId, metadata: &Value) {
        let print = print_of(metadata);
        let mut state = self.state();
        let mut drifted = None;
        if let Some(tracked) = state.tracked.get_mut(id) {
            tracked.seen = Some(print);
            let newer = print.0 > tracked.applied.0;
            if !tracked.writing && newer && print.1 != tracked.applied.1 {
                tracked.dirty = true;
                drifted = Some(tracked.owner.clone());
            }
        }
        let waiting = state.waiting.get(id).cloned().unwrap_or_default();
        let referring = state.note_reference(id, Some(print.0));
        drop(state);
        self.tell(drifted, waiting, referring);
    }

    /// A watch saw that an object is gone, or lost the label by which it was watched.
    fn lost(&self, id: &ObjectId) {
        let mut state = self.state();
        let mut drifted = None;
        if let Some(tracked) = state.tracked.get_mut(id) {
            tracked.seen = None;
            tracked.dirty = true;
            if !tracked.writing {
                drifted = Some(tracked.owner.clone());
            }
        }
        let waiting = state.waiting.get(id).cloned().unwrap_or_default();
        let referring = state.note_reference(id, None);
        drop(state);
        self.tell(drifted, waiting, referring);
    }

    fn tell(&self, drifted: Option<Node>, waiting: BTreeSet<Node>, referring: BTreeSet<Node>) {
        if let Some(owner) = drifted {
            self.hub.wake(&owner, WakeReason::Drift);
        }
        for node in waiting {
            self.hub.wake(&node, WakeReason::Waiting);
        }
        for node in referring {
            self.hub.wake(&node, WakeReason::Reference);
        }
    }

    /// A watch listed everything: what it should have seen and did not is gone.
    fn listed(&self, key: &WatchKey, seen: &BTreeSet<ObjectId>) {
        let missing: Vec<ObjectId> = {
            let state = self.state();
            let same_kind = |id: &&ObjectId| id.group == key.group && id.kind == key.kind;
            match &key.selection {
                Selection::Labelled(_) | Selection::All => {
                    let known = state.tracked.iter().filter(|(id, t)| same_kind(id) && !t.writing);
                    known.filter(|(id, _)| !seen.contains(id)).map(|(id, _)| id.clone()).collect()
                }
                Selection::Named(namespace, name) => {
                    let id = ObjectId::new(namespace, name, &key.group, &key.kind);
                    if seen.contains(&id) { Vec::new() } else { vec![id] }
                }
            }
        };
        self.set_live(key, true);
        for id in missing {
            self.lost(&id);
        }
    }
}

/// An object that a node waits for.
pub(crate) struct Awaited {
    /// Its kind.
    pub(crate) resource: Resource,
    /// Its id.
    pub(crate) id: ObjectId,
    /// Which watch sees it.
    pub(crate) labelled: Labelled,
    /// The resourceVersion in which the node saw it; 0 when it was not there.
    pub(crate) version: u64,
}

/// Whether an object carries the owner label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Labelled {
    /// The watch of its kind sees it.
    Yes,
    /// It needs a watch by name.
    No,
}

impl WatchKey {
    fn new(resource: &Resource, selection: Selection) -> Self {
        let objects::Gvk { group, version, kind } = resource.gvk.clone();
        Self { group, version, kind, selection }
    }

    /// The object of a watch by name.
    fn named_object(&self) -> Option<ObjectId> {
        match &self.selection {
            Selection::Named(namespace, name) => {
                Some(ObjectId::new(namespace, name, &self.group, &self.kind))
            }
            Selection::Labelled(_) | Selection::All => None,
        }
    }

    fn labelled(resource: &Resource) -> Self {
        Self::new(resource, Selection::Labelled(apply::meta::OWNER_NAME))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn referred(was_there: bool) -> (State, ObjectId, Node) {
        let id = ObjectId::new("shop", "password", "", "Secret");
        let user = Node::new("source.toolkit.fluxcd.io", "GitRepository", "shop", "app");
        let reference = Reference { users: BTreeSet::from([user.clone()]), seen: None, was_there };
        let state =
            State { references: BTreeMap::from([(id.clone(), reference)]), ..State::default() };
        (state, id, user)
    }

    #[test]
    fn a_referred_object_wakes_when_it_changes_and_not_when_it_is_first_seen() {
        let (mut state, id, user) = referred(true);
        assert_eq!(state.note_reference(&id, Some(7)), BTreeSet::new());
        assert_eq!(state.note_reference(&id, Some(7)), BTreeSet::new());
        assert_eq!(state.note_reference(&id, Some(8)), BTreeSet::from([user.clone()]));
        assert_eq!(state.note_reference(&id, None), BTreeSet::from([user]));
    }

    #[test]
    fn a_referred_object_that_was_missing_wakes_when_it_is_there() {
        let (mut state, id, user) = referred(false);
        assert_eq!(state.note_reference(&id, None), BTreeSet::new());
        assert_eq!(state.note_reference(&id, Some(1)), BTreeSet::from([user]));
    }
}
