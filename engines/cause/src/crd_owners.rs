//! The owners of a CustomResourceDefinition, according to its labels, annotations and field managers.
//!
//! Elsewhere: what an owner may do with it (crate `windlass-runtime`, `crd_guard`), and owners of other objects
//! (`object_owners.rs`).

use std::sync::LazyLock;

use apply::release_ownership::MANAGED_BY;
use objects::Object;
use serde_json::{Map, Value, json};

use crate::object_references::{OwnerLabels, owner_labels};

/// Whether an object is a CustomResourceDefinition.
pub fn is_definition(object: &Object) -> bool {
    object.kind() == "CustomResourceDefinition" && object.gvk().group == "apiextensions.k8s.io"
}

/// A label or annotation that names the owner of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerLabelOrAnnotation {
    key: &'static str,
    value: String,
    is_label: bool,
}

impl OwnerLabelOrAnnotation {
    /// A mark that is a label.
    pub fn label(key: &'static str, value: &str) -> Self {
        Self { key, value: value.to_owned(), is_label: true }
    }

    /// A mark that is an annotation.
    pub fn annotation(key: &'static str, value: &str) -> Self {
        Self { key, value: value.to_owned(), is_label: false }
    }

    /// Whether an object has this mark.
    fn is_on(&self, object: &Object) -> bool {
        let found = match self.is_label {
            true => object.label(self.key),
            false => object.annotation(self.key),
        };
        found == Some(self.value.as_str())
    }
}

/// A kind whose objects own definitions.
struct OwnerKind {
    /// The name of the kind in messages.
    called: String,
    /// The label or annotation with the namespace of the owner.
    namespace: String,
    /// The label or annotation with the name of the owner.
    name: String,
}

/// The kinds of owners: kinds that apply objects, and Helm releases.
static OWNER_KINDS: LazyLock<Vec<OwnerKind>> = LazyLock::new(|| {
    let kinds = owner_labels().map(|OwnerLabels { group, kind, name, namespace }| {
        // Two API groups have the kind Helmfile.
        let is_of_operator = kind == "Helmfile" && !group.ends_with(".windlass.dev");
        let called = if is_of_operator { format!("{kind}.{group}") } else { kind.to_owned() };
        OwnerKind { called, namespace, name }
    });
    let release = OwnerKind {
        called: "the Helm release".to_owned(),
        namespace: "meta.helm.sh/release-namespace".to_owned(),
        name: "meta.helm.sh/release-name".to_owned(),
    };
    kinds.chain([release]).collect()
});

/// The field manager of definitions that were released or restored and have no owner yet. It also owns the annotation
/// that keeps an object which a release gave up. The next owner takes over the fields of this manager. A Kustomization,
/// also one of Flux, does so because the name begins with `kubectl`.
pub const UNOWNED: &str = "kubectl-windlass";

/// Whether a label or annotation names the owner of an object.
pub fn is_of_owner(key: &str, value: &Value) -> bool {
    OWNER_KINDS.iter().any(|kind| key == kind.namespace || key == kind.name)
        || (key == MANAGED_BY.0 && *value == MANAGED_BY.1)
}

/// The value under a key in the labels, or else in the annotations, of a live definition. `None` if neither has the
/// key.
fn said<'o>(live: &'o Object, key: &str) -> Option<&'o str> {
    live.label(key).or_else(|| live.annotation(key))
}

/// Whether the owner of this kind that an object names differs from the owner in `mine`; `None` if the object names no
/// owner of this kind.
fn is_other(live: &Object, kind: &OwnerKind, mine: &[OwnerLabelOrAnnotation]) -> Option<bool> {
    let is_mine = |key: &str| match said(live, key) {
        Some(value) => mine.iter().any(|it| it.key == key && it.value == value),
        None => true,
    };
    said(live, &kind.name).map(|_| !(is_mine(&kind.name) && is_mine(&kind.namespace)))
}

/// Whether a definition names an owner of the same kind as `mine`, but another one. The definition then belongs to that
/// owner.
pub fn is_of_another(live: &Object, mine: &[OwnerLabelOrAnnotation]) -> bool {
    let has_kind = |name: &str| mine.iter().any(|it| it.key == name);
    let mut kinds = OWNER_KINDS.iter().filter(|kind| has_kind(&kind.name));
    kinds.any(|kind| is_other(live, kind, mine) == Some(true))
}

/// Whether a definition has one of these marks.
pub fn has_any(live: &Object, mine: &[OwnerLabelOrAnnotation]) -> bool {
    mine.iter().any(|it| it.is_on(live))
}

/// Whether a definition was released or restored and has no owner. Any release or Kustomization may take it over.
pub fn is_unowned(live: &Object) -> bool {
    let is_marked = OWNER_KINDS.iter().any(|kind| said(live, &kind.name).is_some());
    is_definition(live) && !is_marked && entries(live).any(|it| it["manager"] == UNOWNED)
}

/// The owners of a definition except `mine`, as text for users. It includes the field managers other than `manager`.
pub fn of(live: &Object, manager: &str, mine: &[OwnerLabelOrAnnotation]) -> Vec<String> {
    let mut all = Vec::new();
    for kind in OWNER_KINDS.iter().filter(|kind| is_other(live, kind, mine) == Some(true)) {
        let place = said(live, &kind.namespace).unwrap_or_default();
        let name = said(live, &kind.name).unwrap_or_default();
        all.push(format!("{} {place}/{name}", kind.called));
    }
    for entry in entries(live) {
        if let Some(other) = applier(entry).filter(|it| *it != manager) {
            all.push(format!("the field manager {other}"));
        }
    }
    all
}

fn entries(live: &Object) -> impl Iterator<Item = &Value> {
    live.meta("managedFields").and_then(Value::as_array).into_iter().flatten()
}

/// The field manager of an entry of `managedFields` that was written by server-side apply. `None` for other entries.
fn applier(entry: &Value) -> Option<&str> {
    let is_apply = entry["operation"] == "Apply" && entry["subresource"].is_null();
    entry["manager"].as_str().filter(|_| is_apply)
}

/// The patch that removes the marks `mine` from a definition with this uid. It also assigns the fields of the field
/// manager `gone` to [`UNOWNED`], so that the next owner takes them over. If the definition has another owner already,
/// its fields stay, because that owner has the same field manager.
pub fn without(
    live: &Object,
    uid: &str,
    gone: Option<&str>,
    mine: &[OwnerLabelOrAnnotation],
) -> Value {
    let taken = |is_label: bool| -> Map<String, Value> {
        let of = mine.iter().filter(|it| it.is_label == is_label && it.is_on(live));
        of.map(|it| (it.key.to_owned(), Value::Null)).collect()
    };
    let mut patch = json!({"metadata": {"uid": uid, "resourceVersion": live.meta("resourceVersion"),
        "labels": taken(true), "annotations": taken(false)}});
    if let Some(gone) = gone.filter(|_| !is_of_another(live, mine)) {
        let unowned = entries(live).cloned().map(|mut it| {
            if applier(&it) == Some(gone) {
                it["manager"] = UNOWNED.into();
                it["operation"] = "Update".into();
            }
            it
        });
        patch["metadata"]["managedFields"] = unowned.collect();
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn others_are_found_by_their_marks_and_what_they_applied() {
        let live = Object::new(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "a.b",
                "labels": {"helm.toolkit.fluxcd.io/name": "mine", "helm.toolkit.fluxcd.io/namespace": "apps",
                    "kustomize.toolkit.fluxcd.io/name": "crds", "kustomize.toolkit.fluxcd.io/namespace": "infra"},
                "annotations": {"meta.helm.sh/release-name": "mine", "meta.helm.sh/release-namespace": "other"},
                "managedFields": [{"manager": "helm-controller", "operation": "Apply"},
                    {"manager": "kube-apiserver", "operation": "Update"},
                    {"manager": "argocd", "operation": "Apply"}]}}))
        .unwrap();
        let mine = [
            OwnerLabelOrAnnotation::label("helm.toolkit.fluxcd.io/name", "mine"),
            OwnerLabelOrAnnotation::label("helm.toolkit.fluxcd.io/namespace", "apps"),
            OwnerLabelOrAnnotation::annotation("meta.helm.sh/release-name", "mine"),
            OwnerLabelOrAnnotation::annotation("meta.helm.sh/release-namespace", "apps"),
        ];
        assert_eq!(
            of(&live, "helm-controller", &mine),
            ["Kustomization infra/crds", "the Helm release other/mine", "the field manager argocd"]
        );
        assert!(mine[0].is_on(&live) && !mine[3].is_on(&live));
        let patch = without(&live, "u", Some("helm-controller"), &mine);
        // Another release has it under the same name.
        assert_eq!(patch["metadata"]["managedFields"], Value::Null);
        let labels =
            json!({"helm.toolkit.fluxcd.io/name": null, "helm.toolkit.fluxcd.io/namespace": null});
        assert_eq!(patch["metadata"]["labels"], labels);
        assert_eq!(patch["metadata"]["annotations"], json!({"meta.helm.sh/release-name": null}));
    }

    #[test]
    fn a_resource_of_helmfile_operator_owns_what_it_applied() {
        let live = Object::new(
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "a.b", "labels": {"apps.mumoshu.github.io/helmfile-name": "all",
                "apps.mumoshu.github.io/helmfile-namespace": "infra"},
                "managedFields": [{"manager": UNOWNED, "operation": "Update"}]}}),
        )
        .unwrap();
        assert_eq!(of(&live, "", &[]), ["Helmfile.apps.mumoshu.github.io infra/all"]);
        assert!(!is_unowned(&live));
        let mine = [
            OwnerLabelOrAnnotation::label("apps.mumoshu.github.io/helmfile-name", "mine"),
            OwnerLabelOrAnnotation::label("apps.mumoshu.github.io/helmfile-namespace", "infra"),
        ];
        assert!(is_of_another(&live, &mine));
    }

    #[test]
    fn what_the_next_owner_has_under_the_same_name_is_left_to_it() {
        let owned = |name: &str| {
            Object::new(
                json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "a.b", "labels": {"kustomize.toolkit.fluxcd.io/name": name,
                    "kustomize.toolkit.fluxcd.io/namespace": "infra"},
                    "managedFields": [{"manager": "kustomize-controller", "operation": "Apply"}]}}),
            )
            .unwrap()
        };
        let mine = [
            OwnerLabelOrAnnotation::label("kustomize.toolkit.fluxcd.io/name", "one"),
            OwnerLabelOrAnnotation::label("kustomize.toolkit.fluxcd.io/namespace", "infra"),
        ];
        let before = owned("one");
        let moved = owned("two");
        assert!(!is_of_another(&before, &mine) && is_of_another(&moved, &mine));
        let managed = |live: &Object| {
            without(live, "u", Some("kustomize-controller"), &mine)["metadata"]["managedFields"]
                .clone()
        };
        assert_eq!(managed(&before), json!([{"manager": UNOWNED, "operation": "Update"}]));
        assert_eq!(managed(&moved), Value::Null);
        // An owner of another kind has fields of its own.
        let release = [
            OwnerLabelOrAnnotation::annotation("meta.helm.sh/release-name", "app"),
            OwnerLabelOrAnnotation::annotation("meta.helm.sh/release-namespace", "infra"),
        ];
        assert!(!is_of_another(&moved, &release));
    }

    #[test]
    fn a_released_definition_may_be_taken_over_by_the_next_owner() {
        let definition = |manager: &str, owner: &str| {
            Object::new(
                json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "a.b", "annotations": {owner: "app"},
                    "managedFields": [{"manager": manager, "operation": "Update"}]}}),
            )
            .unwrap()
        };
        assert!(is_unowned(&definition(UNOWNED, "note")));
        assert!(!is_unowned(&definition("kubectl", "note")));
        assert!(!is_unowned(&definition(UNOWNED, "meta.helm.sh/release-name")));
    }

    #[test]
    fn marks_of_owners_are_distinguished_from_others() {
        for key in [
            "meta.helm.sh/release-name",
            "helmfile.windlass.dev/namespace",
            "apps.mumoshu.github.io/helmfile-name",
        ] {
            assert!(is_of_owner(key, &json!("x")), "{key}");
        }
        assert!(is_of_owner("app.kubernetes.io/managed-by", &json!("Helm")));
        assert!(!is_of_owner("app.kubernetes.io/managed-by", &json!("me")));
        assert!(!is_of_owner("app.kubernetes.io/name", &json!("Helm")));
    }
}
