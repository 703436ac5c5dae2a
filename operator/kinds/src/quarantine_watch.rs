//! Watches Quarantines. A change wakes the applier, and the ImagePolicies that skip its images. If a user lifts a Quarantine,
//! an event reports it.
//!
//! Elsewhere: which Quarantines count (`windlass_quarantine`), and their consequences (the crates of the appliers).

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::ReconciledObject as _;
use crds::helm::HelmRelease;
use crds::helmfile::Helmfile;
use crds::kustomize::Kustomization;
use crds::windlass_release::{Quarantine, QuarantineLift};
use kube_core::ResourceExt as _;
use reconcile::ObjectKey;
use tokio_util::sync::CancellationToken;

use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::metrics::WakeReason;
use windlass_quarantine::{is_in_force, quarantined_images};
use windlass_runtime::lifecycle::known_quarantines;
use windlass_runtime::lifecycle::watched_object_cache::{self, CachedObjectChange};
use windlass_runtime::run_context::RunContext;

/// The reason of the event about a lifted Quarantine.
const QUARANTINE_LIFTED: &str = "QuarantineLifted";

/// Watches Quarantines until `stop`, and wakes the objects that a change of a Quarantine concerns.
pub(crate) async fn follow(context: Arc<RunContext>, stop: CancellationToken) {
    let changed = |context: &RunContext, change: CachedObjectChange<Quarantine>| {
        if let Some(message) = lifted(&change) {
            announce(context, &change, message);
        }
        let is_listed_anew = lists_others(&change);
        let Some(quarantine) = change.after.or(change.before) else { return };
        let subject = &quarantine.spec.subject;
        let namespace = quarantine.namespace().unwrap_or_default();
        let applier = ObjectKey::new(&subject.group, &subject.kind, &namespace, &subject.name);
        context.work_queue.wake(&applier, WakeReason::Waiting);
        if is_listed_anew {
            context.work_queue.changed(&known_quarantines::images_node(&namespace));
        }
    };
    stop.run_until_cancelled(watched_object_cache::follow(context, changed)).await;
}

/// Whether a Quarantine now lists other images, which ImagePolicies skip.
fn lists_others(change: &CachedObjectChange<Quarantine>) -> bool {
    let images = |of: &Option<Arc<Quarantine>>| -> Vec<String> {
        let listed = of.as_deref().into_iter().flat_map(quarantined_images);
        listed.map(str::to_owned).collect()
    };
    images(&change.before) != images(&change.after)
}

/// The message that a user lifted a Quarantine. `None` if this change does not lift it.
fn lifted(change: &CachedObjectChange<Quarantine>) -> Option<String> {
    let before = change.before.as_ref()?;
    let after = change.after.as_ref()?;
    if !is_in_force(before) || is_in_force(after) {
        return None;
    }
    let QuarantineLift { user, reason, .. } = after.status.as_ref()?.lift.as_ref()?;
    let spec = &after.spec;
    let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    Some(format!(
        "{user} lifts Quarantine {} of revision {} of {}/{}{reason}",
        after.name_any(),
        spec.result.revision,
        spec.subject.kind,
        spec.subject.name
    ))
}

fn announce(context: &RunContext, change: &CachedObjectChange<Quarantine>, message: String) {
    let Some(quarantine) = &change.after else { return };
    let name = quarantine.name_any();
    let namespace = quarantine.namespace().unwrap_or_default();
    tracing::info!(controller_kind = "Quarantine", name, namespace, "{message}");
    let event = ObjectEvent {
        severity: EventSeverity::Info,
        reason: QUARANTINE_LIFTED.to_owned(),
        message,
        metadata: BTreeMap::new(),
    };
    let controller = match quarantine.spec.subject.kind.as_str() {
        "HelmRelease" => HelmRelease::CONTROLLER,
        "Helmfile" => Helmfile::CONTROLLER,
        _ => Kustomization::CONTROLLER,
    };
    context.events.announce(&**quarantine, controller, event);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn quarantine(lift: Value) -> Option<Arc<Quarantine>> {
        let object = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Quarantine",
            "metadata": {"name": "shop-1", "namespace": "shop"},
            "spec": {"subject": {"kind": "Kustomization", "name": "shop"}, "result": {"revision": "main@sha1:2"}},
            "status": {"lift": lift}});
        serde_json::from_value(object).ok().map(Arc::new)
    }

    #[test]
    fn image_policies_run_when_other_images_are_listed() {
        let listing = |lift: Value| {
            let object = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Quarantine",
                "metadata": {"name": "shop-1", "namespace": "shop"},
                "spec": {"result": {"images": ["a:2"]}, "lastGood": {"images": ["a:1"]}},
                "status": {"lift": lift}});
            serde_json::from_value(object).ok().map(Arc::new)
        };
        let lists = |before, after| lists_others(&CachedObjectChange { before, after });
        assert!(lists(None, listing(Value::Null)));
        assert!(lists(listing(Value::Null), listing(json!({"user": "alice"}))), "it is lifted");
        assert!(!lists(listing(Value::Null), listing(Value::Null)));
        assert!(!lists(None, quarantine(Value::Null)), "it lists none");
    }

    #[test]
    fn a_user_who_lifts_a_quarantine_is_announced_once() {
        let alice = json!({"user": "alice", "reason": "the database is back"});
        let said = |before, after| lifted(&CachedObjectChange { before, after });
        let message = said(quarantine(Value::Null), quarantine(alice.clone())).unwrap();
        assert_eq!(
            message,
            "alice lifts Quarantine shop-1 of revision main@sha1:2 of Kustomization/shop: the database is back"
        );
        assert_eq!(said(quarantine(alice.clone()), quarantine(alice.clone())), None);
        assert_eq!(said(None, quarantine(alice.clone())), None, "windlass was started anew");
        assert_eq!(said(quarantine(alice), quarantine(Value::Null)), None);
        let robot = json!({"user": "system:serviceaccount:shop:robot"});
        assert_eq!(said(quarantine(Value::Null), quarantine(robot)), None);
    }
}
