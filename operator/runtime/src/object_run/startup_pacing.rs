//! The order of runs after the start of a process. Objects that changed run first, and unchanged objects are compared
//! afterwards.
//!
//! With thousands of objects, all would otherwise be compared at once, and changed objects would wait among them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject;
use kube_core::Resource as _;
use reconcile::{DependencyEdge, READY};

use crate::controller_kind::{ControllerKind, node_of};
use crate::run_context::RunContext;
use crate::{hold_conditions, object_hold};
use windlass_cluster::metrics::WakeReason;
use windlass_cluster::windlass_kind::WindlassKind;

/// How many unchanged objects of a kind are compared per second.
const A_SECOND: usize = 100;

/// Wakes the objects that existed before the start.
pub(super) fn wake<K: ControllerKind>(context: &Arc<RunContext>, objects: Vec<Arc<K::Object>>) {
    let (unchanged, due) = objects.into_iter().partition::<Vec<_>, _>(|it| is_unchanged(&**it));
    wake_now(context, &due);
    if unchanged.len() <= A_SECOND {
        return wake_now(context, &unchanged);
    }
    tracing::info!(
        controller_kind = %K::Object::kind(&()),
        objects = unchanged.len(),
        "reconciling objects that did not change, {A_SECOND} per second"
    );
    tokio::spawn(wake_unchanged::<K>(context.clone(), unchanged));
}

fn wake_now<K: WindlassKind>(context: &RunContext, objects: &[Arc<K>]) {
    for object in objects {
        context.work_queue.wake(&node_of(&**object), WakeReason::Spec);
    }
}

async fn wake_unchanged<K: ControllerKind>(context: Arc<RunContext>, objects: Vec<Arc<K::Object>>) {
    // A new artifact of their source wakes these objects earlier.
    for object in &objects {
        let source: BTreeSet<_> = K::source(object).into_iter().collect();
        context.work_queue.set_edges(&node_of(&**object), DependencyEdge::Source, source);
    }
    if context.sources.listed().await.is_none() {
        return;
    }
    let (behind, unchanged): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|it| is_behind::<K>(it, &context));
    wake_now(&context, &behind);
    for some in unchanged.chunks(A_SECOND) {
        wake_now(&context, some);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Whether an object was ready after its last run, and nothing was requested since.
fn is_unchanged<K: WindlassKind + ReconciledObject>(object: &K) -> bool {
    let generation = object.meta().generation;
    let is_ready = object
        .condition(READY)
        .is_some_and(|it| it.status == "True" && it.observed_generation == generation);
    let now = jiff::Timestamp::now();
    K::APPLIES
        && is_ready
        && object.observed_generation() == generation
        && object.meta().deletion_timestamp.is_none()
        && !hold_conditions::is_asked(object)
        && !object_hold::is_suspended(object, now)
}

/// Whether the source of an object has a newer artifact than its last run.
fn is_behind<K: ControllerKind>(object: &K::Object, context: &RunContext) -> bool {
    let found = K::source(object).and_then(|it| context.sources.find(&it, &context.settings));
    let artifact = found.and_then(|it| it.artifact);
    artifact.is_none_or(|it| !K::has_tried(object, &it.revision))
}

#[cfg(test)]
mod tests {
    use crds::kustomize::Kustomization;
    use serde_json::{Value, json};

    use super::*;

    fn object(change: impl FnOnce(&mut Value)) -> Kustomization {
        let mut object = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "web", "namespace": "shop", "generation": 2},
            "spec": {"interval": "1h", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "shop"}},
            "status": {"observedGeneration": 2, "lastAppliedRevision": "main@sha1:1", "conditions": [
                {"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "",
                 "observedGeneration": 2, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        change(&mut object);
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_has_something_to_do_is_not_unchanged() {
        assert!(is_unchanged(&object(|_| {})));
        let due: [fn(&mut Value); 6] = [
            |it| it["metadata"]["generation"] = json!(3),
            |it| it["status"] = json!({}),
            |it| it["status"]["conditions"][0]["status"] = json!("False"),
            |it| it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            |it| it["metadata"]["annotations"] = json!({"reconcile.fluxcd.io/requestedAt": "now"}),
            |it| it["spec"]["suspend"] = json!(true),
        ];
        for change in due {
            assert!(!is_unchanged(&object(change)));
        }
    }
}
