//! What a kind of ours says about itself: its constants, what its objects remember, how one of them is run.
//!
//! Elsewhere: running any kind (`run.rs`), what sources and appliers share (`source.rs`, `applier.rs`), the list of kinds
//! (`kinds.rs`).

use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject;
use futures::future::BoxFuture;
use kube::core::ResourceExt as _;
use reconcile::ObjectKey;

use super::context::Context;
use super::object_store::Memories;
use windlass_cluster::ClusterError;
use windlass_cluster::kind::OurKind;

/// A kind of ours that has runs.
pub(crate) trait ControllerKind: OurKind + ReconciledObject {
    /// Name under which it reports: Flux's controller for the kind.
    const CONTROLLER: &'static str;

    /// Whether it applies objects, so that windows are about it.
    const APPLIES: bool;

    /// Annotations that change what runs of this kind alone do; a change of one makes the object run.
    const ANNOTATIONS: &'static [&'static str] = &[];

    /// What an object remembers between runs.
    type ControllerState: Default + Send + 'static;

    /// Fields that the object has and this version does not support.
    fn unsupported(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// The source that the spec names, if it is applied from one.
    fn source(&self) -> Option<ObjectKey> {
        None
    }

    /// Whether the status says that the artifact of a revision was applied, or that it was tried.
    fn has_tried(&self, _revision: &str) -> bool {
        true
    }

    /// What others depend on: while it stays the same nobody is woken.
    fn announcement(&self) -> String;

    /// Observes, acts and reports once. Returns when to run again, if nothing wakes it before.
    fn run(self: Arc<Self>, context: Arc<Context>) -> BoxFuture<'static, Option<Duration>>;

    /// The object is gone: forget what is known about it.
    fn forget(node: &ObjectKey, context: &Context) {
        context.shared::<Memories<Self::ControllerState>>().forget(node);
    }
}

/// What an object of ours is called in the graph.
pub(crate) fn node_of<K: OurKind>(object: &K) -> ObjectKey {
    node_named::<K>(&object.namespace().unwrap_or_default(), &object.name_any())
}

/// The same, for one that is known by name only.
pub(crate) fn node_named<K: OurKind>(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(&K::group(&()), &K::kind(&()), namespace, name)
}

/// Logs that a run of an object ended because the API server did not do what it was asked; it is repeated.
pub(crate) fn log_failed_request(node: &ObjectKey, error: &ClusterError) {
    tracing::error!(
        controller_kind = node.kind,
        name = node.name,
        namespace = node.namespace,
        error = %error,
        "request to the API server failed, retrying"
    );
}

/// Annotation that asks for a run now.
pub(crate) const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";
