//! What an applier of the files of a source points at: the source's artifact; and what a Kustomization depends on.

use crds::Artifact;
use crds::kustomize::{CrossNamespaceSourceReference, Kustomization};
use kube::core::ResourceExt as _;
use reconcile::{DependencyState, ObjectKey, Outcome, Time, Wake, reason};

use windlass_runtime::catalog::{SOURCES, SourceSnapshot};
use windlass_runtime::context::Context;

/// The node of the source that an object of a namespace names.
pub(in crate::controllers) fn source_node(
    own: &str,
    source: &CrossNamespaceSourceReference,
) -> ObjectKey {
    let namespace = source.namespace.as_deref().unwrap_or(own);
    ObjectKey::new(SOURCES, source.kind.as_str(), namespace, &source.name)
}

/// The artifact to build from, as the watch last saw it.
pub(in crate::controllers) fn artifact(
    context: &Context,
    own: &str,
    source: &CrossNamespaceSourceReference,
    retry_at: Time,
) -> Result<Artifact, Outcome> {
    let node = source_node(own, source);
    if context.settings.no_cross_namespace_refs && node.namespace != own {
        let text = format!(
            "can't access '{node}': cross-namespace references have been blocked by --no-cross-namespace-refs; use a \
             source in namespace {own}"
        );
        return Err(Outcome::Stalled(reason::ACCESS_DENIED, text));
    }
    let blocked = |text: String| {
        Outcome::Blocked(reason::ARTIFACT_FAILED, text, Wake::on([node.clone()]).and_at(retry_at))
    };
    let Some(source) = context.sources.find(&node, &context.settings) else {
        return Err(blocked(format!(
            "source '{node}' not found; create it or correct spec.sourceRef"
        )));
    };
    source.admit(&context.kept, &context.artifacts, own, &node)?;
    let SourceSnapshot { artifact, denied, .. } = source;
    let none = || format!("source '{node}' has no artifact yet");
    artifact.ok_or_else(|| blocked(denied.unwrap_or_else(none)))
}

/// Whether a dependency has still to apply what both get from one source.
///
/// Parity(flux): it must also have applied the revision that is about to be applied.
pub(super) fn stale(
    other: &Kustomization,
    object: &Kustomization,
    revision: &str,
) -> Option<DependencyState> {
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
pub(in crate::controllers) fn is_elsewhere(
    context: &Context,
    own: &str,
    source: &CrossNamespaceSourceReference,
) -> bool {
    let node = source_node(own, source);
    context.sources.find(&node, &context.settings).is_some_and(|source| source.is_elsewhere)
}
