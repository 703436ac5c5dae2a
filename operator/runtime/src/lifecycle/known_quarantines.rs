//! The Quarantines of a namespace, for runs that must not apply what one of them lists.
//!
//! Elsewhere: which of them count (`windlass_quarantine`), following them (`operator/kinds`).

use std::sync::Arc;

use crds::release::Quarantine;
use kube_core::Resource as _;
use reconcile::{ConditionReason, DependencyEdge, NextRunTrigger, ObjectKey, RunOutcome, Time};

use super::watched_object_cache::{WATCH_PATIENCE, WatchedObjectCache, kind_node};
use crate::run_context::RunContext;

/// What Quarantines there are is not known, so nothing is changed.
pub const QUARANTINES_UNKNOWN: ConditionReason = ConditionReason::new("QuarantinesUnknown");

/// The node that stands for the images that the Quarantines of a namespace list: what reads them is woken when they change.
pub fn images_node(namespace: &str) -> ObjectKey {
    ObjectKey::new(&Quarantine::group(&()), &Quarantine::kind(&()), namespace, "")
}

/// Takes it as known that there are no Quarantines, where a run is replayed and nothing follows them.
pub fn assume_none(context: &RunContext) {
    context.shared::<WatchedObjectCache<Quarantine>>().assume_none();
}

/// Knows a Quarantine that this process has written, and wakes what reads the images that it lists. The watch does not announce what
/// is known already.
pub fn insert_written(context: &RunContext, written: Quarantine) {
    let images = images_node(written.metadata.namespace.as_deref().unwrap_or_default());
    if context.shared::<WatchedObjectCache<Quarantine>>().insert(written).is_some() {
        context.work_queue.changed(&images);
    }
}

/// Forgets a Quarantine that this process has deleted, and wakes what reads the images that it listed.
pub fn remove_deleted(context: &RunContext, namespace: &str, deleted: &Quarantine) {
    let name = deleted.metadata.name.as_deref().unwrap_or_default();
    let uid = deleted.metadata.uid.as_deref().unwrap_or_default();
    if context.shared::<WatchedObjectCache<Quarantine>>().remove(namespace, name, uid).is_some() {
        context.work_queue.changed(&images_node(namespace));
    }
}

/// The Quarantines of the namespace of an object, once every change of them is seen.
///
/// # Errors
/// The outcome of a run that does not know them: it could apply again what is quarantined. The object is woken when they are
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
