//! Finds the objects that would be deleted together with appliers, including those of appliers that they applied.
//!
//! Elsewhere: the objects in the status of an applier (engine `apply`, `deletion_budget`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use apply::deletion_budget::{applied_objects, is_applier_kind};
use objects::{Object, ObjectId};

use windlass_cluster::ClusterConnection;

/// The most appliers that are read because they would be deleted, too.
const MAX_FOLLOWED_APPLIERS: usize = 64;

/// The most objects that are counted because they would be deleted together with appliers.
const MAX_FOLLOWING_OBJECTS: usize = 20_000;

/// The objects that would be deleted together with appliers.
#[derive(Debug, Default)]
pub struct CascadingDeletions {
    /// The objects.
    pub ids: BTreeSet<ObjectId>,
    /// The appliers whose applied objects are not known.
    pub unreadable: BTreeSet<ObjectId>,
}

/// Finds the objects that would be deleted with the appliers among `deleted`, in this cluster. If there is no applier, no
/// request is sent.
pub async fn following(
    cluster: &ClusterConnection,
    deleted: &BTreeMap<ObjectId, Object>,
) -> CascadingDeletions {
    let mut following = CascadingDeletions::default();
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
        // Objects that the applier applied to another cluster are not read here.
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
