//! What a Kustomization points at: its source's artifact, and what it depends on.

use std::collections::BTreeSet;
use std::sync::Arc;

use crds::Artifact;
use crds::kustomize::Kustomization;
use kube::core::ResourceExt as _;
use reconcile::{Dependency, DependencyState, Edge, Node, Rest, Time, Wake, reason};

use crate::controllers::catalog::{Found, SOURCES};
use crate::controllers::context::Context;
use crate::controllers::expressions::Expressions;
use crate::controllers::gate::{self, named};
use crate::controllers::kind::node_named;

/// The node of the source that a Kustomization names.
fn source_node(object: &Kustomization) -> Node {
    let namespace = object.namespace().unwrap_or_default();
    let source = &object.spec.source_ref;
    let namespace = source.namespace.as_deref().unwrap_or(&namespace);
    Node::new(SOURCES, source.kind.as_str(), namespace, &source.name)
}

/// Tells the hub on whom the Kustomization depends, so that their changes wake it.
pub(super) fn edges(context: &Context, node: &Node, object: &Kustomization) {
    let namespace = object.namespace().unwrap_or_default();
    let dependencies: BTreeSet<Node> = object
        .spec
        .depends_on
        .iter()
        .map(|dependency| {
            let (namespace, name) = named(dependency, &namespace);
            node_named::<Kustomization>(namespace, name)
        })
        .collect();
    context.hub.set_edges(node, Edge::DependsOn, dependencies);
    context.hub.set_edges(node, Edge::Source, BTreeSet::from([source_node(object)]));
}

/// The artifact to build from, as the watch last saw it.
pub(super) fn artifact(
    context: &Context,
    object: &Kustomization,
    retry_at: Time,
) -> Result<Artifact, Rest> {
    let node = source_node(object);
    let own = object.namespace().unwrap_or_default();
    if context.settings.no_cross_namespace_refs && node.namespace != own {
        let text = format!(
            "can't access '{node}': cross-namespace references have been blocked by --no-cross-namespace-refs; use a \
             source in namespace {own}"
        );
        return Err(Rest::Stalled(reason::ACCESS_DENIED, text));
    }
    let blocked = |text: String| {
        Rest::Blocked(reason::ARTIFACT_FAILED, text, Wake::on([node.clone()]).and_at(retry_at))
    };
    let Some(source) = context.sources.find(&node, &context.settings) else {
        return Err(blocked(format!(
            "source '{node}' not found; create it or correct spec.sourceRef"
        )));
    };
    let Found { artifact, denied, .. } = source;
    let none = || format!("source '{node}' has no artifact yet");
    artifact.ok_or_else(|| blocked(denied.unwrap_or_else(none)))
}

/// The state of what a Kustomization's `dependsOn` names, from what the watch last saw.
///
/// Parity(flux): a dependency with the same source must also have applied the revision that is about to be applied.
pub(super) async fn dependencies(
    context: &Context,
    object: &Arc<Kustomization>,
    revision: &str,
    expressions: &Expressions,
) -> Vec<Dependency> {
    let store = &context.store::<Kustomization>();
    let depends_on = &object.spec.depends_on;
    gate::named_by(context, store, object, depends_on, expressions, |other| {
        stale(other, object, revision)
    })
    .await
}

/// Whether a dependency has still to apply what both get from one source.
fn stale(other: &Kustomization, object: &Kustomization, revision: &str) -> Option<DependencyState> {
    let source = |k: &Kustomization| {
        let of = &k.spec.source_ref;
        let namespace = of.namespace.clone().unwrap_or_else(|| k.namespace().unwrap_or_default());
        (of.kind, namespace, of.name.clone())
    };
    let applied =
        other.status.as_ref().and_then(|s| s.last_applied_revision.as_deref()).unwrap_or_default();
    let is_stale = source(other) == source(object) && applied != revision;
    is_stale.then(|| DependencyState::Stale(format!("it is at revision {applied}")))
}

/// Whether the source belongs to another shard, so that its artifact is in another process' store.
pub(super) fn is_elsewhere(context: &Context, object: &Kustomization) -> bool {
    let node = source_node(object);
    context.sources.find(&node, &context.settings).is_some_and(|source| source.is_elsewhere)
}
