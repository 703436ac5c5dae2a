//! The Quarantines of a namespace, for runs that must not apply the revisions and images that they list.
//!
//! Elsewhere: which Quarantines count (`windlass_quarantine`), and watching them (`operator/kinds`).

use std::sync::Arc;

use crds::windlass_release::Quarantine;
use kube_core::Resource as _;
use reconcile::{ConditionReason, DependencyEdge, NextRunTrigger, ObjectKey, RunOutcome, Time};

use super::watched_object_cache::{WATCH_PATIENCE, WatchedObjectCache, kind_node};
use crate::run_context::RunContext;

/// The reason of a condition: the Quarantines are not known, so nothing is changed.
pub const QUARANTINES_UNKNOWN: ConditionReason = ConditionReason::new("QuarantinesUnknown");

/// The dependency graph node that stands for the images in the Quarantines of a namespace. Objects that read these images wake
/// when the list changes.
pub fn images_node(namespace: &str) -> ObjectKey {
    ObjectKey::new(&Quarantine::group(&()), &Quarantine::kind(&()), namespace, "")
}

/// Assumes that there are no Quarantines. This serves replayed runs, without a watch of Quarantines.
pub fn assume_none(context: &RunContext) {
    context.shared::<WatchedObjectCache<Quarantine>>().assume_none();
}

/// Adds a Quarantine that this process has written to the cache, and wakes the objects that read its images. The watch does
/// not announce a change that the cache already has.
pub fn insert_written(context: &RunContext, written: Quarantine) {
    let images = images_node(written.metadata.namespace.as_deref().unwrap_or_default());
    if context.shared::<WatchedObjectCache<Quarantine>>().insert(written).is_some() {
        context.work_queue.changed(&images);
    }
}

/// Removes a Quarantine that this process has deleted from the cache, and wakes the objects that read its images.
pub fn remove_deleted(context: &RunContext, namespace: &str, deleted: &Quarantine) {
    let name = deleted.metadata.name.as_deref().unwrap_or_default();
    let uid = deleted.metadata.uid.as_deref().unwrap_or_default();
    if context.shared::<WatchedObjectCache<Quarantine>>().remove(namespace, name, uid).is_some() {
        context.work_queue.changed(&images_node(namespace));
    }
}

/// The Quarantines in the namespace of an object, when every change of them was seen.
///
/// # Errors
/// The outcome of a run that does not know them, because it could apply a quarantined revision. The object wakes when they are
/// known, and at `retry_at` at the latest.
pub async fn of_namespace(
    context: &RunContext,
    node: &ObjectKey,
    retry_at: Time,
) -> Result<Vec<Arc<Quarantine>>, RunOutcome> {
    let table = context.shared::<WatchedObjectCache<Quarantine>>();
    table.known().await;
    table.current_within(WATCH_PATIENCE).await;
    let known = table.current().and_then(|()| table.listed(&node.namespace));
    known.map_err(|why| {
        let text = format!(
            "nothing is changed: {why}; if that lasts, apply the ClusterRoles and CustomResourceDefinitions of this version of \
             windlass"
        );
        let known = [kind_node::<Quarantine>()].into();
        context.work_queue.set_edges(node, DependencyEdge::Waits, known);
        RunOutcome::Blocked(QUARANTINES_UNKNOWN, text, NextRunTrigger::at(retry_at))
    })
}
