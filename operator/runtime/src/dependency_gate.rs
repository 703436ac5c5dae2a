//! The states of an object's dependencies in `spec.dependsOn`, for the gate of its run.
//!
//! Elsewhere: reading objects of other kinds (`cross_kind_dependencies`), and dependencies in an annotation
//! (`depends_on_annotation`).

use std::sync::Arc;

use crds::{Applier, DependencyReference};
use kube_core::ResourceExt as _;
use reconcile::{DependencyState, DependsOnEntry, ObjectKey};

use super::controller_kind::node_named;
use super::cross_kind_dependencies::CrossKindDependency;
pub use super::cross_kind_dependencies::node_of_entry;
use super::depends_on_annotation::not_ready;
use super::run_context::RunContext;
use windlass_cluster::kube_runtime::reflector::{ObjectRef, Store};
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_expressions::{ReadinessResult, RunExpressions};

/// The states of the dependencies in `dependsOn`, in the same order. `looked_up` are the dependencies of other kinds, and
/// `None` for those of the same kind. `stale` adds a condition for a ready dependency of the same kind, or returns `None`.
pub(crate) async fn named_by<K: WindlassKind + Applier>(
    context: &RunContext,
    store: &Store<K>,
    object: &Arc<K>,
    looked_up: &[Option<CrossKindDependency>],
    expressions: &RunExpressions,
    stale: impl Fn(&K) -> Option<DependencyState>,
) -> Vec<DependsOnEntry> {
    let depends_on = object.depends_on();
    let namespace = object.namespace().unwrap_or_default();
    let found: Vec<Option<Arc<K>>> = depends_on
        .iter()
        .zip(looked_up)
        .map(|(dependency, other)| {
            let (namespace, name) = named(dependency, &namespace);
            let is_of_same_kind = other.is_none();
            is_of_same_kind.then(|| store.get(&ObjectRef::new(name).within(namespace))).flatten()
        })
        .collect();
    let is_foreign = |it: &DependencyReference| named(it, &namespace).0 != namespace;
    let is_blocked =
        |it: &DependencyReference| is_foreign(it) && context.settings.no_cross_namespace_refs;
    // No expression is evaluated for an object that may not be read.
    let read: Vec<Option<Arc<K>>> = depends_on
        .iter()
        .zip(&found)
        .map(|(it, found)| found.clone().filter(|_| !(is_blocked(it) && has_expression(it))))
        .collect();
    let said = expressions.readiness(object, &read).await;
    depends_on
        .iter()
        .zip(looked_up)
        .zip(found)
        .zip(said)
        .map(|(((dependency, other), found), said)| {
            if let Some(other) = other {
                return of_other_kind::<K>(dependency, &namespace, other);
            }
            let (namespace, name) = named(dependency, &namespace);
            let is_blocked = is_blocked(dependency);
            let has_to_be_ready = dependency.ready != Some(false);
            let state = match found {
                None => DependencyState::Missing,
                Some(_) if is_blocked && has_expression(dependency) => {
                    let state = DependencyState::NotReady(NOT_EVALUATED.to_owned());
                    return DependsOnEntry::of_kind(node_named::<K>(namespace, name), state);
                }
                Some(other) => {
                    let additive = context.settings.ready_expr_is_additive();
                    let unready = || not_ready(&*other).map(DependencyState::NotReady);
                    asked(said, additive)
                        .or_else(|| has_to_be_ready.then(unready).flatten())
                        .or_else(|| has_to_be_ready.then(|| stale(&other)).flatten())
                        .unwrap_or(DependencyState::Ready)
                }
            };
            // Parity(flux): readiness may be asked for across namespaces. Differs(flux): where references across them
            // are blocked, what another tenant's object says about itself is not repeated.
            let state = match state {
                DependencyState::NotReady(_) if is_blocked => {
                    DependencyState::NotReady(String::new())
                }
                state => state,
            };
            DependsOnEntry::of_kind(node_named::<K>(namespace, name), state)
        })
        .collect()
}

/// The state of a dependency of another kind, as it was found.
fn of_other_kind<K: WindlassKind>(
    entry: &DependencyReference,
    own: &str,
    other: &CrossKindDependency,
) -> DependsOnEntry {
    let (namespace, name) = named(entry, own);
    let kind = entry.kind.as_deref().unwrap_or_default();
    let node =
        node_of_entry::<K>(entry, own).unwrap_or_else(|| ObjectKey::new("", kind, namespace, name));
    let shown = ObjectKey { namespace: other.namespace.clone(), ..node.clone() }.to_string();
    DependsOnEntry { node, shown, state: other.state.clone() }
}

/// The message for an expression about an object of another namespace. It is not evaluated, because its results could
/// reveal the whole object bit by bit.
///
/// Differs(flux): Flux evaluates it, even with the flag.
const NOT_EVALUATED: &str = "readyExpr is not evaluated, because cross-namespace references have been blocked by \
                             --no-cross-namespace-refs; remove readyExpr to use the Ready condition instead";

/// Whether a dependency has an expression, which may read the whole object.
pub fn has_expression(dependency: &DependencyReference) -> bool {
    dependency.ready_expr.as_deref().is_some_and(|text| !text.is_empty())
}

/// The namespace and the name of a dependency in `dependsOn`.
pub fn named<'a>(dependency: &'a DependencyReference, own: &'a str) -> (&'a str, &'a str) {
    (dependency.namespace.as_deref().unwrap_or(own), &dependency.name)
}

/// The state of a dependency by its `readyExpr`. `None` if the usual check decides. There is no expression, or it is true and
/// the usual check counts as well.
pub(crate) fn asked(said: ReadinessResult, additive: bool) -> Option<DependencyState> {
    match said? {
        Ok(true) if additive => None,
        Ok(true) => Some(DependencyState::Ready),
        Ok(false) => Some(DependencyState::NotReady("readyExpr evaluated to false".to_owned())),
        Err(error) => Some(DependencyState::NotReady(error)),
    }
}

#[cfg(test)]
mod tests {
    use crds::kustomize::Kustomization;

    use super::*;
    use serde_json::{Value, json};
    use windlass_expressions::ExpressionCache;

    fn kustomization(name: &str, status: &Value) -> Kustomization {
        serde_json::from_value(json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name, "namespace": "ns", "labels": {"version": "2"}},
            "spec": {"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "r"}},
            "status": status,
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn an_expression_replaces_the_usual_check_or_stands_beside_it() {
        let status = json!({"lastAppliedRevision": "main@sha1:1"});
        let own = kustomization("own", &json!({}));
        let other = kustomization("dep", &status);
        let own = Arc::new(own);
        let other = Arc::new(other);
        let state = async |expr: Option<&str>, additive: bool| {
            let dependency = json!({"name": "dep", "readyExpr": expr});
            let dependency: DependencyReference = serde_json::from_value(dependency).unwrap();
            let expressions = RunExpressions::new("ns", ExpressionCache::default());
            expressions.read(&own.metadata, &[], &[dependency]).await.unwrap();
            let said = expressions.readiness(&own, &[Some(other.clone())]).await;
            asked(said.into_iter().next().unwrap(), additive)
        };
        let holds = Some("dep.metadata.labels.version == self.metadata.labels.version");
        assert_eq!(state(holds, false).await, Some(DependencyState::Ready));
        assert_eq!(state(holds, true).await, None);
        assert_eq!(state(None, false).await, None);
        let text = async |expr: &str| match state(Some(expr), true).await {
            Some(DependencyState::NotReady(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(text("dep.metadata.name == 'x'").await, "readyExpr evaluated to false");
        assert!(text("dep.spec.nope == 1").await.ends_with("no such key: nope"));
    }
}
