//! What the gate needs to know about any object: the state of its dependencies.

use std::sync::Arc;

use crds::{DependencyReference, ReconciledObject};
use kube_core::ResourceExt as _;
use reconcile::{DependencyState, DependsOnEntry};

use super::controller_kind::node_named;
use super::depends_on_annotation::not_ready;
use super::expressions::{ReadinessResult, RunExpressions};
use super::run_context::RunContext;
use windlass_cluster::kube_runtime::reflector::{ObjectRef, Store};
use windlass_cluster::windlass_kind::WindlassKind;

/// The state of what any object's `dependsOn` names among its kind; `stale` asks what else a dependency that is ready
/// has to be.
pub(crate) async fn named_by<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    store: &Store<K>,
    object: &Arc<K>,
    depends_on: &[DependencyReference],
    expressions: &RunExpressions,
    stale: impl Fn(&K) -> Option<DependencyState>,
) -> Vec<DependsOnEntry> {
    let namespace = object.namespace().unwrap_or_default();
    let found: Vec<Option<Arc<K>>> = depends_on
        .iter()
        .map(|dependency| {
            let (namespace, name) = named(dependency, &namespace);
            store.get(&ObjectRef::new(name).within(namespace))
        })
        .collect();
    let is_foreign = |it: &DependencyReference| named(it, &namespace).0 != namespace;
    let is_blocked =
        |it: &DependencyReference| is_foreign(it) && context.settings.no_cross_namespace_refs;
    // What may not be read is not evaluated either.
    let read: Vec<Option<Arc<K>>> = depends_on
        .iter()
        .zip(&found)
        .map(|(it, found)| found.clone().filter(|_| !(is_blocked(it) && may_read(it))))
        .collect();
    let said = expressions.readiness(object, &read).await;
    depends_on
        .iter()
        .zip(found)
        .zip(said)
        .map(|((dependency, found), said)| {
            let (namespace, name) = named(dependency, &namespace);
            let is_blocked = is_blocked(dependency);
            let state = match found {
                None => DependencyState::Missing,
                Some(_) if is_blocked && may_read(dependency) => {
                    let state = DependencyState::NotReady(NOT_EVALUATED.to_owned());
                    return DependsOnEntry::of_kind(node_named::<K>(namespace, name), state);
                }
                Some(other) => {
                    let additive = context.settings.ready_expr_is_additive();
                    asked(said, additive)
                        .or_else(|| not_ready(&*other).map(DependencyState::NotReady))
                        .or_else(|| stale(&other))
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

/// The message for an expression about an object of another namespace. It is not evaluated, because its results could
/// reveal the whole object bit by bit.
///
/// Differs(flux): Flux evaluates it, even with the flag.
const NOT_EVALUATED: &str = "readyExpr is not evaluated, because cross-namespace references have been blocked by \
                             --no-cross-namespace-refs; remove readyExpr to use the Ready condition instead";

/// Whether a dependency has an expression, which may read the whole object.
fn may_read(dependency: &DependencyReference) -> bool {
    dependency.ready_expr.as_deref().is_some_and(|text| !text.is_empty())
}

/// Namespace and name that an entry of `dependsOn` means.
pub fn named<'a>(dependency: &'a DependencyReference, own: &'a str) -> (&'a str, &'a str) {
    (dependency.namespace.as_deref().unwrap_or(own), &dependency.name)
}

/// The state of a dependency according to its `readyExpr`. `None` if the usual check decides: there is no expression,
/// or it is true and the usual check counts as well.
fn asked(said: ReadinessResult, additive: bool) -> Option<DependencyState> {
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
    use crate::expressions::ExpressionCache;
    use serde_json::{Value, json};

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
