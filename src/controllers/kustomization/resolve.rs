//! What a Kustomization points at: its source's artifact, and what it depends on.

use std::collections::BTreeSet;

use crds::Artifact;
use crds::kustomize::Kustomization;
use kube::core::ResourceExt as _;
use reconcile::{Edge, Node, Rest, Time, Wake, reason};

use crate::controllers::context::Context;
use crate::controllers::gate::named;
use crate::controllers::run::node_named;
use crate::controllers::source::catalog::{Found, SOURCES};

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

/// Whether the source belongs to another shard, so that its artifact is in another process' store.
pub(super) fn is_elsewhere(context: &Context, object: &Kustomization) -> bool {
    let node = source_node(object);
    context.sources.find(&node, &context.settings).is_some_and(|source| source.is_elsewhere)
}
