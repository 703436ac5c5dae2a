//! What the observer remembers: objects that were applied, sightings, watches and their users.
//!
//! Here: plain bookkeeping under one lock. Elsewhere: watches, and whom to wake (the module above).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use objects::ObjectId;
use reconcile::Node;
use tokio::task::AbortHandle;

use super::Fingerprint;
use crate::cluster::discovery::Resource;
use crate::cluster::watch::Selection;

/// An object that a node applied.
pub(super) struct Tracked {
    pub(super) owner: Node,
    /// The watch that sees it; none before it was applied, and for kinds that cannot be watched.
    pub(super) watch: Option<WatchKey>,
    /// Digest of the manifest that was applied.
    pub(super) digest: String,
    /// Fingerprint of the live object after that, and its resourceVersion.
    pub(super) applied: (u64, Fingerprint),
    /// A write is under way, so what a watch sees may be its result.
    pub(super) writing: bool,
    /// It is not what was applied.
    pub(super) dirty: bool,
}

/// A Secret or ConfigMap that specs name.
pub(super) struct Reference {
    pub(super) users: BTreeSet<Node>,
    /// As last seen: its resourceVersion, or that it is not there. `None` before the first look.
    pub(super) seen: Option<Option<u64>>,
    /// Whether a run found it there.
    pub(super) was_there: bool,
}

/// A running watch and who needs it.
pub(super) struct Running {
    pub(super) stop: AbortHandle,
    /// It has listed everything once and has not failed since.
    pub(super) live: bool,
    pub(super) users: BTreeSet<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WatchKey {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) selection: Selection,
}

/// A moment, before a look or a write begins: what is lost after it may have been there for the look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment(u64);

/// Which objects were lost last, for answers that arrive later than the news.
#[derive(Default)]
pub(super) struct Losses {
    count: u64,
    recent: VecDeque<ObjectId>,
}

/// How many losses are remembered.
const RECENT_LOSSES: usize = 4096;

impl Losses {
    pub(super) fn now(&self) -> Moment {
        Moment(self.count)
    }

    pub(super) fn add(&mut self, id: &ObjectId) {
        self.count += 1;
        self.recent.push_back(id.clone());
        if self.recent.len() > RECENT_LOSSES {
            self.recent.pop_front();
        }
    }

    /// Whether an object was lost after a moment; what is not remembered counts as lost.
    pub(super) fn lost_since(&self, id: &ObjectId, moment: Moment) -> bool {
        let since = usize::try_from(self.count - moment.0).unwrap_or(usize::MAX);
        since > self.recent.len() || self.recent.iter().rev().take(since).any(|lost| lost == id)
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) losses: Losses,
    pub(super) tracked: BTreeMap<ObjectId, Tracked>,
    /// The newest that watches by a label saw of every object, tracked or not: a look may be overtaken by what it
    /// looks at.
    pub(super) sightings: BTreeMap<(ObjectId, &'static str), (u64, Fingerprint)>,
    /// Which objects a node applied.
    pub(super) owned: BTreeMap<Node, BTreeSet<ObjectId>>,
    pub(super) watches: BTreeMap<WatchKey, Running>,
    /// Who waits for an object to move.
    pub(super) waiting: BTreeMap<ObjectId, BTreeSet<Node>>,
    /// What a spec refers to, and the version that its run may have read.
    pub(super) references: BTreeMap<ObjectId, Reference>,
}

impl State {
    pub(super) fn track(&mut self, id: ObjectId, tracked: Tracked) {
        let owner = tracked.owner.clone();
        if let Some(before) = self.tracked.insert(id.clone(), tracked) {
            self.disown(&before.owner, &id);
        }
        self.owned.entry(owner).or_default().insert(id);
    }

    pub(super) fn disown(&mut self, owner: &Node, id: &ObjectId) {
        if let Some(owned) = self.owned.get_mut(owner) {
            owned.remove(id);
            if owned.is_empty() {
                self.owned.remove(owner);
            }
        }
    }

    /// Stops remembering everything that a node applied.
    pub(super) fn untrack_all(&mut self, owner: &Node) {
        for id in self.owned.remove(owner).unwrap_or_default() {
            self.tracked.remove(&id);
        }
    }

    /// What a node applied.
    pub(super) fn tracked_of(&self, owner: &Node) -> impl Iterator<Item = (&ObjectId, &Tracked)> {
        let ids = self.owned.get(owner).into_iter().flatten();
        ids.filter_map(|id| self.tracked.get_key_value(id))
    }

    /// Whether no watch saw a later version of an object than the one that was compared.
    pub(super) fn is_unmoved(&self, id: &ObjectId, tracked: &Tracked) -> bool {
        let compared = tracked.applied.0;
        let seen = self.sighted(super::label_of(&tracked.owner), id);
        seen.is_some_and(|(version, _)| version <= compared) && self.is_watched(tracked)
    }

    /// What the watch by a label saw of an object last.
    pub(super) fn sighted(&self, label: &'static str, id: &ObjectId) -> Option<(u64, Fingerprint)> {
        self.sightings.get(&(id.clone(), label)).copied()
    }

    /// Whether a watch has seen every change of an object up to now.
    pub(super) fn is_watched(&self, tracked: &Tracked) -> bool {
        let watch = tracked.watch.as_ref().and_then(|key| self.watches.get(key));
        watch.is_some_and(|watch| watch.live)
    }

    /// Notes how a referred object is now; returns whom that wakes.
    pub(super) fn note_reference(&mut self, id: &ObjectId, now: Option<u64>) -> BTreeSet<Node> {
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
    pub(super) fn release_unused(&mut self, user: &Node) {
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

    /// Takes a user from every watch that `which` chooses, and stops those that nobody uses any more.
    pub(super) fn release(&mut self, user: &Node, which: impl Fn(&WatchKey) -> bool) {
        let mut stopped = BTreeSet::new();
        self.watches.retain(|key, watch| {
            if which(key) {
                watch.users.remove(user);
            }
            let used = watch.is_used();
            if let (false, Selection::Labelled(label)) = (used, &key.selection) {
                stopped.insert((key.group.clone(), key.kind.clone(), *label));
            }
            used
        });
        if !stopped.is_empty() {
            let gone = |(id, label): &(ObjectId, &'static str)| {
                stopped.contains(&(id.group.clone(), id.kind.clone(), *label))
            };
            self.sightings.retain(|seen, _| !gone(seen));
        }
    }
}

/// What is known about a live object without asking anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// Nothing that could be relied on.
    None,
    /// Another manifest of the same owner was applied, and its fields are still as that one made them.
    Other,
    /// This manifest was applied, and no field of it changed hands since. Something else of the object may have changed.
    Applied,
    /// This manifest was applied, and nothing at all of the object changed since.
    Unmoved,
}

impl Running {
    /// Whether somebody needs the watch; one that nobody needs is stopped.
    pub(super) fn is_used(&self) -> bool {
        if self.users.is_empty() {
            self.stop.abort();
        }
        !self.users.is_empty()
    }
}

impl WatchKey {
    pub(super) fn new(resource: &Resource, selection: Selection) -> Self {
        let objects::Gvk { group, version, kind } = resource.gvk.clone();
        Self { group, version, kind, selection }
    }

    /// The object of a watch by name.
    pub(super) fn named_object(&self) -> Option<ObjectId> {
        match &self.selection {
            Selection::Named(namespace, name) => {
                Some(ObjectId::new(namespace, name, &self.group, &self.kind))
            }
            Selection::Labelled(_) | Selection::All => None,
        }
    }

    pub(super) fn labelled(resource: &Resource, label: &'static str) -> Self {
        Self::new(resource, Selection::Labelled(label))
    }

    /// Whether it sees objects with this label, and so knows when one of them is gone.
    pub(super) fn is_of(&self, label: &str) -> bool {
        match self.selection {
            Selection::Labelled(own) => own == label,
            Selection::Named(..) | Selection::All => true,
        }
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
    fn what_is_lost_before_the_answer_arrives_is_remembered() {
        let (a, b) =
            (ObjectId::new("shop", "a", "", "Secret"), ObjectId::new("shop", "b", "", "Secret"));
        let mut losses = Losses::default();
        losses.add(&a);
        let moment = losses.now();
        assert!(!losses.lost_since(&a, moment));
        losses.add(&b);
        assert!(losses.lost_since(&b, moment) && !losses.lost_since(&a, moment));
        for _ in 0..RECENT_LOSSES {
            losses.add(&a);
        }
        assert!(losses.lost_since(&b, moment), "it is forgotten, so it may have been lost");
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
