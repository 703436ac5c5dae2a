//! Detects entries of `spec.dependsOn` whose kind was dropped, because the installed CRD lacks the field. The CRDs of Flux
//! lack it.
//!
//! Without validation, the API server drops such fields silently from a `kubectl apply`. The rest, `{name}`, then names
//! another object of the same kind. A server-side apply is rejected with the name of the field. Elsewhere: the warning about
//! such CRDs (`windlass_cluster::depends_on_crd_fields`).

use crds::{Applier, DependencyReference};
use kube_core::ResourceExt as _;
use reconcile::{RunOutcome, condition_reason};
use serde::Deserialize;
use serde_json::Value;

use super::cross_kind_dependencies::is_other;
use windlass_cluster::windlass_kind::WindlassKind;

/// The annotation with the manifest of the last `kubectl apply`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields of that manifest that are read. All other fields are skipped, because they may be long.
#[derive(Default, Deserialize)]
#[serde(default)]
struct LastAppliedManifest {
    spec: LastAppliedSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LastAppliedSpec {
    depends_on: Vec<Value>,
}

/// Checks that `dependsOn` still has the fields that `kubectl apply` wrote.
///
/// # Errors
/// An entry lost its kind, and would now name another object. Even with a new CRD, that stays until the object is applied
/// again.
pub(crate) fn check_dropped_fields<K: WindlassKind + Applier>(
    object: &K,
) -> Result<(), RunOutcome> {
    let entries = object.depends_on();
    let Some(text) = object.annotations().get(LAST_APPLIED).filter(|_| !entries.is_empty()) else {
        return Ok(());
    };
    let applied: LastAppliedManifest = serde_json::from_str(text).unwrap_or_default();
    for (at, (applied, entry)) in applied.spec.depends_on.into_iter().zip(entries).enumerate() {
        let Ok(applied) = serde_json::from_value::<DependencyReference>(applied) else {
            continue;
        };
        if is_dropped::<K>(&applied, entry) {
            let definition = format!("{}.{}", K::plural(&()), K::group(&()));
            let kind = K::kind(&());
            return Err(RunOutcome::Stalled(
                condition_reason::INVALID_DEPENDENCY,
                format!(
                    "spec.dependsOn[{at}]: kubectl applied it with apiVersion, kind or ready, which the object does not have, \
                     so that it names another object: apply CustomResourceDefinition {definition} of this version of \
                     windlass, and then this {kind} again"
                ),
            ));
        }
    }
    Ok(())
}

/// Whether an entry is what is left of the applied entry after its fields were dropped.
fn is_dropped<K: WindlassKind>(applied: &DependencyReference, entry: &DependencyReference) -> bool {
    let is_same = applied.name == entry.name && applied.namespace == entry.namespace;
    let is_bare = entry.api_version.is_none() && entry.kind.is_none() && entry.ready.is_none();
    let says_more = applied.ready.is_some() || is_other::<K>(applied).unwrap_or(true);
    is_same && is_bare && says_more
}

#[cfg(test)]
mod tests {
    use crds::kustomize::Kustomization;
    use serde_json::json;

    use super::*;

    fn kustomization(applied: &Value, entries: &Value) -> Kustomization {
        let applied = json!({"spec": {"dependsOn": applied}}).to_string();
        serde_json::from_value(json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "app", "namespace": "shop", "annotations": {LAST_APPLIED: applied}},
            "spec": {"interval": "10m", "prune": true, "dependsOn": entries,
                "sourceRef": {"kind": "GitRepository", "name": "r"}},
        }))
        .unwrap()
    }

    #[test]
    fn an_entry_that_lost_its_kind_is_reported_and_others_are_not() {
        let widget = json!({"apiVersion": "acme.io/v1", "kind": "Widget", "name": "wheel"});
        let bare = json!({"name": "wheel"});
        let is_refused = |applied: &Value, entry: &Value| {
            let object =
                kustomization(&json!([{"name": "a"}, applied]), &json!([{"name": "a"}, entry]));
            match check_dropped_fields(&object) {
                Ok(()) => false,
                Err(outcome) => {
                    assert!(outcome.text().contains("spec.dependsOn[1]"), "{outcome:?}");
                    true
                }
            }
        };
        assert!(is_refused(&widget, &bare));
        assert!(is_refused(&json!({"name": "wheel", "ready": false}), &bare));
        assert!(!is_refused(&widget, &widget));
        assert!(!is_refused(&bare, &bare));
        assert!(!is_refused(&widget, &json!({"name": "another"})), "the list was edited since");
        assert!(
            !is_refused(&json!({"name": "wheel", "kind": "Kustomization"}), &bare),
            "the same kind"
        );
    }
}
