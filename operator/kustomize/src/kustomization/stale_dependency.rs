//! Whether a Kustomization that another one depends on is up to date.
//!
//! Elsewhere: the source that it names (`windlass_runtime::source_reference`).

use crds::kustomize::Kustomization;
use kube_core::ResourceExt as _;
use reconcile::DependencyState;

/// Whether two Kustomizations name the same source.
pub(super) fn is_of_same_source(one: &Kustomization, other: &Kustomization) -> bool {
    let source = |k: &Kustomization| {
        let of = &k.spec.source_ref;
        let namespace = of.namespace.clone().unwrap_or_else(|| k.namespace().unwrap_or_default());
        (of.kind, namespace, of.name.clone())
    };
    source(one) == source(other)
}

/// The state of a dependency that has still to apply what both Kustomizations get from one source. `None` if the dependency is
/// not stale.
///
/// Parity(flux): it must also have applied the revision that is about to be applied. `revision` is empty if none is, because a
/// rollout pins the Kustomization to what it has.
pub(super) fn stale(
    other: &Kustomization,
    object: &Kustomization,
    revision: &str,
) -> Option<DependencyState> {
    let applied =
        other.status.as_ref().and_then(|s| s.last_applied_revision.as_deref()).unwrap_or_default();
    let is_stale = !revision.is_empty() && is_of_same_source(other, object) && applied != revision;
    is_stale.then(|| DependencyState::Stale(format!("it is at revision {applied}")))
}
