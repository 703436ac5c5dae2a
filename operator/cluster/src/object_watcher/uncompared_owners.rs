//! The owners whose first comparison after the start is still to come. An event about an object of theirs wakes them before their
//! turn.
//!
//! Elsewhere: which owners these are, and which events count (`startup_drift_comparison`).

use std::collections::BTreeMap;
use std::sync::Arc;

use objects::ObjectId;
use reconcile::ObjectKey;

use super::startup_drift_comparison::MAX_URGENT_OWNERS;
use super::stored_drift_comparisons::AppliedOwner;

/// The owners whose first comparison is still to come, and which have untracked objects.
#[derive(Default)]
pub(super) struct UncomparedOwners {
    owners: BTreeMap<Arc<ObjectKey>, UncomparedOwner>,
    /// How many owners were woken before their turn.
    woken: usize,
}

/// The place of an owner in the list of all of its kind, which has its inventory.
struct UncomparedOwner {
    all: Arc<[AppliedOwner]>,
    at: usize,
}

impl UncomparedOwners {
    /// Adds the owner with this place in a list.
    pub(super) fn add(&mut self, node: Arc<ObjectKey>, all: &Arc<[AppliedOwner]>, at: usize) {
        self.owners.insert(node, UncomparedOwner { all: all.clone(), at });
    }

    /// Removes an owner that runs now, or that is gone.
    pub(super) fn remove(&mut self, node: &ObjectKey) {
        self.owners.remove(node);
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Removes an owner because an object in its inventory has just changed. Returns false if the owner is none of these or
    /// does not have the object: labels of an object may name any owner.
    ///
    /// After many such owners all others wait for their turns, because windlass cannot tell any more what is urgent.
    pub(super) fn take(&mut self, node: &ObjectKey, id: &ObjectId) -> bool {
        let Some(UncomparedOwner { all, at }) = self.owners.get(node) else { return false };
        let has_applied = all.get(*at).is_some_and(|owner| owner.inventory.contains(id));
        if !has_applied {
            return false;
        }
        self.owners.remove(node);
        self.woken += 1;
        if self.woken >= MAX_URGENT_OWNERS {
            self.owners.clear();
        }
        true
    }
}
