//! The trait that a kind implements so that windlass runs its objects, and the keys of objects in the dependency graph.
//!
//! Here: what a kind defines about its runs, and its interval with jitter. Elsewhere: running any kind (`object_run`), the
//! common run of kinds that apply objects (`applier_run`), and the kinds (crates of their own).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject;
use futures::future::BoxFuture;
use kube_core::ResourceExt as _;
use reconcile::ObjectKey;

use super::run_context::RunContext;
use windlass_cluster::ClusterError;
use windlass_cluster::object_store::StateCache;
use windlass_cluster::object_watcher::AppliedOwner;
use windlass_cluster::windlass_kind::WindlassKind;

/// How the objects of a kind run.
///
/// Each crate implements this for a type of its own. It cannot do so for the kind itself, because the trait and the kind
/// belong to other crates.
pub trait ControllerKind: 'static {
    /// The Kubernetes kind whose objects the controller runs.
    type Object: WindlassKind + ReconciledObject;

    /// Annotations that change the runs of this kind. A change of such an annotation starts a run.
    const ANNOTATIONS: &'static [&'static str] = &[];

    /// The state that is remembered about an object between runs.
    type ControllerState: Default + Send + 'static;

    /// The fields of the object that this version of windlass does not support.
    fn unsupported(_object: &Self::Object) -> Vec<&'static str> {
        Vec::new()
    }

    /// The source that the spec of an object names. `None` if the object is not applied from a source.
    fn source(_object: &Self::Object) -> Option<ObjectKey> {
        None
    }

    /// Whether the status shows that a run applied the artifact of a revision, or tried to.
    fn has_tried(_object: &Self::Object, _revision: &str) -> bool {
        true
    }

    /// The object as the owner of objects in windlass's own cluster, for the first comparison after a start. `None` if the
    /// object does not own any.
    fn applied_owner(_object: &Self::Object) -> Option<AppliedOwner> {
        None
    }

    /// The objects that must stay in windlass's own cluster until this object is gone.
    fn needs(_object: &Self::Object, _context: &RunContext) -> BTreeSet<ObjectKey> {
        BTreeSet::new()
    }

    /// The state of the object that dependents read. They wake when this string changes.
    fn announcement(object: &Self::Object) -> String;

    /// Runs the object once: observes, acts and reports. Returns the time until the next run, if nothing wakes it before.
    fn run(
        object: Arc<Self::Object>,
        context: Arc<RunContext>,
    ) -> BoxFuture<'static, Option<Duration>>;

    /// The store has this version of an object that does not run now. State that is older may be dropped.
    fn caught_up(_node: &ObjectKey, _object: &Self::Object, _context: &RunContext) {}

    /// Forgets everything about an object that is gone.
    fn forget(node: &ObjectKey, context: &RunContext) {
        context.shared::<StateCache<Self::ControllerState>>().forget(node);
    }
}

/// The node of an object in the dependency graph.
pub fn node_of<K: WindlassKind>(object: &K) -> ObjectKey {
    node_named::<K>(&object.namespace().unwrap_or_default(), &object.name_any())
}

/// The node of an object that a spec names, in the dependency graph.
pub fn node_named<K: WindlassKind>(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(&K::group(&()), &K::kind(&()), namespace, name)
}

/// Logs that a run ended because a request to the API server failed. The run will be repeated.
pub fn log_failed_request(node: &ObjectKey, error: &ClusterError) {
    tracing::error!(
        controller_kind = node.kind,
        name = node.name,
        namespace = node.namespace,
        error = %error,
        "request to the API server failed, retrying"
    );
}

/// An interval with jitter. Each object has its own jitter, which is the same in every process.
pub fn jittered<K: WindlassKind>(context: &RunContext, object: &K, interval: &str) -> Duration {
    let interval = reconcile::parse_duration(interval).unwrap_or(Duration::from_secs(60));
    let percent = context.settings.interval_jitter_percentage;
    let seed = reconcile::seed(&object.uid().unwrap_or_default());
    reconcile::jittered(interval.max(reconcile::SHORTEST_INTERVAL), percent, seed)
}

/// The annotation that requests a run now.
pub const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";
