//! The order of runs after the start of a process. Objects that changed run first. Unchanged objects follow: at once if their
//! comparison needs no request or one of their objects may have drifted, and the others at a limited rate.
//!
//! With thousands of objects, all would otherwise be compared at once, and changed objects would wait among them. Elsewhere:
//! which comparisons need no request (`windlass_cluster::object_watcher`).

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

/// How long the paced runs of a kind wait for the order of the urgent ones. The lists of a standby are there already, so at its
/// takeover drift is corrected before anything else is compared.
const URGENT_HEAD_START: Duration = Duration::from_millis(500);

/// Starts the watches of what these objects have applied, so that the process knows it when it leads.
pub(super) async fn observe<K: ControllerKind>(
    context: Arc<RunContext>,
    objects: Vec<Arc<K::Object>>,
) {
    let ours = objects.iter().filter(|it| super::is_ours(&***it, &context));
    let owners: Vec<_> = ours.filter_map(|it| K::applied_owner(it)).collect();
    context.watcher.observe_inventories(&owners).await;
}

/// Wakes the objects that existed before the start.
pub(super) fn wake<K: ControllerKind>(context: &Arc<RunContext>, objects: Vec<Arc<K::Object>>) {
    let (unchanged, due) = objects.into_iter().partition::<Vec<_>, _>(|it| is_unchanged(&**it));
    wake_now(context, &due);
    if !unchanged.is_empty() {
        tokio::spawn(wake_unchanged::<K>(context.clone(), unchanged));
    }
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
    // Each run of an applier waits for this as well.
    if context.sources.listed().await.is_none() {
        return;
    }
    let (behind, objects): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|it| is_behind::<K>(it, &context));
    wake_now(&context, &behind);
    let kind = K::Object::kind(&());
    let owners = objects.iter().filter_map(|it| K::applied_owner(it)).collect();
    let kept = context.watcher.kept_comparisons(&kind, owners).await;
    let (comparable, others): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|it| kept.has_comparison(&node_of(&**it)));
    let confirm = async {
        let first = context.watcher.confirm_after_start(&kind, kept).await;
        for node in &first {
            context.work_queue.wake(node, WakeReason::Spec);
        }
        let changed = comparable.into_iter().filter(|it| !first.contains(&node_of(&**it)));
        changed.collect::<Vec<_>>()
    };
    let mut confirm = std::pin::pin!(confirm);
    let changed = match tokio::time::timeout(URGENT_HEAD_START, &mut confirm).await {
        Ok(changed) => {
            wake_paced(&context, &others).await;
            changed
        }
        // Objects of which nothing is kept do not wait for lists.
        Err(_) => tokio::join!(confirm, wake_paced(&context, &others)).0,
    };
    wake_paced(&context, &changed).await;
}

/// Wakes objects whose comparison needs requests.
async fn wake_paced<K: WindlassKind>(context: &RunContext, objects: &[Arc<K>]) {
    tracing::debug!(
        controller_kind = %K::kind(&()),
        objects = objects.len(),
        "reconciling objects that did not change"
    );
    let nodes: Vec<_> = objects.iter().map(|object| node_of(&**object)).collect();
    context.work_queue.wake_paced(&nodes, WakeReason::Spec).await;
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
