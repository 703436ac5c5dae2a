//! How the objects of a kind are run, and what one of them is called.
//!
//! Here: what the crate of a kind says of its runs, and its interval with jitter.
//! Elsewhere: running any kind (`object_run`), what those have in common that apply objects (`applier`), the kinds
//! (crates of their own).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject;
use futures::future::BoxFuture;
use kube_core::ResourceExt as _;
use reconcile::ObjectKey;

use super::object_store::StateCache;
use super::run_context::RunContext;
use windlass_cluster::ClusterError;
use windlass_cluster::windlass_kind::WindlassKind;

/// How the objects of a kind are run.
///
/// A type of the crate that runs the kind implements it, and not the kind: for that crate both this trait and the kind are
/// foreign.
pub trait ControllerKind: 'static {
    /// The kind.
    type Object: WindlassKind + ReconciledObject;

    /// Annotations that change what runs of this kind alone do; a change of one makes the object run.
    const ANNOTATIONS: &'static [&'static str] = &[];

    /// What an object remembers between runs.
    type ControllerState: Default + Send + 'static;

    /// Fields that the object has and this version does not support.
    fn unsupported(_object: &Self::Object) -> Vec<&'static str> {
        Vec::new()
    }

    /// The source that the spec names, if it is applied from one.
    fn source(_object: &Self::Object) -> Option<ObjectKey> {
        None
    }

    /// Whether the status says that the artifact of a revision was applied, or that it was tried.
    fn has_tried(_object: &Self::Object, _revision: &str) -> bool {
        true
    }

    /// What has to stay in the cluster of windlass until the object is gone.
    fn needs(_object: &Self::Object, _context: &RunContext) -> BTreeSet<ObjectKey> {
        BTreeSet::new()
    }

    /// The part of an object that others depend on: they are woken when it changes.
    fn announcement(object: &Self::Object) -> String;

    /// Observes, acts and reports once. Returns when to run again, if nothing wakes it before.
    fn run(
        object: Arc<Self::Object>,
        context: Arc<RunContext>,
    ) -> BoxFuture<'static, Option<Duration>>;

    /// The store has this version of an object that does not run now: what is remembered of it besides may be dropped.
    fn caught_up(_node: &ObjectKey, _object: &Self::Object, _context: &RunContext) {}

    /// The object is gone: forget what is known about it.
    fn forget(node: &ObjectKey, context: &RunContext) {
        context.shared::<StateCache<Self::ControllerState>>().forget(node);
    }
}

/// The key of an object in the dependency graph.
pub fn node_of<K: WindlassKind>(object: &K) -> ObjectKey {
    node_named::<K>(&object.namespace().unwrap_or_default(), &object.name_any())
}

/// The dependency graph key of an object that a spec refers to by name.
pub fn node_named<K: WindlassKind>(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(&K::group(&()), &K::kind(&()), namespace, name)
}

/// Logs that a run of an object ended because the API server did not do what it was asked; it is repeated.
pub fn log_failed_request(node: &ObjectKey, error: &ClusterError) {
    tracing::error!(
        controller_kind = node.kind,
        name = node.name,
        namespace = node.namespace,
        error = %error,
        "request to the API server failed, retrying"
    );
}

/// An interval with jitter; each object has its own, the same in every process.
pub fn jittered<K: WindlassKind>(context: &RunContext, object: &K, interval: &str) -> Duration {
    let interval = reconcile::parse_duration(interval).unwrap_or(Duration::from_secs(60));
    let percent = context.settings.interval_jitter_percentage;
    let seed = reconcile::seed(&object.uid().unwrap_or_default());
    reconcile::jittered(interval.max(reconcile::SHORTEST_INTERVAL), percent, seed)
}

/// Annotation that asks for a run now.
pub const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";
