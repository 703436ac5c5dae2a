//! What is deleted together with appliers: what they applied, and what appliers among that applied.
//!
//! Elsewhere: what an applier applied, by its status (engine `apply`, `deletion_budget`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use apply::deletion_budget::{applied_objects, is_applier_kind};
use objects::{Object, ObjectId};

use windlass_cluster::ClusterConnection;

/// How many appliers are read that would be deleted with others.
const MAX_FOLLOWED_APPLIERS: usize = 64;

/// How many objects are counted that would be deleted with appliers.
const MAX_FOLLOWING_OBJECTS: usize = 20_000;

/// What would be deleted together with appliers.
#[derive(Debug, Default)]
pub struct FollowingDeletions {
    /// The objects.
    pub ids: BTreeSet<ObjectId>,
    /// The appliers of which it is not known.
    pub unreadable: BTreeSet<ObjectId>,
}

/// What would be deleted with the appliers among some objects, which are in this cluster. Nothing is read where none of them
/// is one.
pub async fn following(
    cluster: &ClusterConnection,
    deleted: &BTreeMap<ObjectId, Object>,
) -> FollowingDeletions {
    let mut following = FollowingDeletions::default();
    let appliers = deleted.iter().filter(|(id, _)| is_applier_kind(id));
    let mut followed: BTreeSet<ObjectId> = appliers.clone().map(|(id, _)| id.clone()).collect();
    let mut queue: VecDeque<Object> = appliers.map(|(_, live)| live.clone()).collect();
    while let Some(applier) = queue.pop_front() {
        let applied = applied_objects(&applier);
        let applied = applied
            .filter(|it| following.ids.len().saturating_add(it.len()) <= MAX_FOLLOWING_OBJECTS);
        let Some(applied) = applied else {
            following.unreadable.insert(applier.id());
            continue;
        };
        // What it applied to another cluster is not read with this connection.
        let is_here = applier.get("spec").is_none_or(|spec| spec.get("kubeConfig").is_none());
        for entry in applied {
            following.ids.insert(entry.id.clone());
            if !is_applier_kind(&entry.id) || !followed.insert(entry.id.clone()) {
                continue;
            }
            if !is_here || followed.len() > MAX_FOLLOWED_APPLIERS {
                following.unreadable.insert(entry.id);
                continue;
            }
            match cluster.get_by_id(&entry.id, &entry.version).await {
                Ok(Some(live)) => queue.push_back(live),
                Ok(None) => {}
                Err(_) => {
                    following.unreadable.insert(entry.id);
                }
            }
        }
    }
    following
}
