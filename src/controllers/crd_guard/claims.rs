//! Who has a definition, by its labels, annotations and field managers.

use objects::Object;
use serde_json::{Map, Value, json};

/// A label or annotation that says whose an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) key: &'static str,
    pub(crate) value: String,
    pub(crate) is_label: bool,
}

impl Mark {
    /// A label.
    pub(crate) fn label(key: &'static str, value: &str) -> Self {
        Self { key, value: value.to_owned(), is_label: true }
    }

    /// An annotation.
    pub(crate) fn annotation(key: &'static str, value: &str) -> Self {
        Self { key, value: value.to_owned(), is_label: false }
    }

    /// Whether an object has it.
    pub(super) fn is_on(&self, object: &Object) -> bool {
        let found = match self.is_label {
            true => object.label(self.key),
            false => object.annotation(self.key),
        };
        found == Some(self.value.as_str())
    }
}

/// Kinds of owners: what they are called, and where an object has namespace and name of one.
const OWNERS: [(&str, &str, &str); 4] = [
    ("Kustomization", apply::meta::OWNER_NAMESPACE, apply::meta::OWNER_NAME),
    ("HelmRelease", "helm.toolkit.fluxcd.io/namespace", "helm.toolkit.fluxcd.io/name"),
    ("Helmfile", "helmfile.windlass.dev/namespace", "helmfile.windlass.dev/name"),
    ("the Helm release", "meta.helm.sh/release-namespace", "meta.helm.sh/release-name"),
];

/// Others who have a definition besides `mine` and a field manager.
pub(crate) fn of(live: &Object, manager: &str, mine: &[Mark]) -> Vec<String> {
    let mut all = Vec::new();
    for (what, namespace, name) in OWNERS {
        let said = |key: &str| live.label(key).or_else(|| live.annotation(key));
        let is_mine = |key: &str| match said(key) {
            Some(value) => mine.iter().any(|it| it.key == key && it.value == value),
            None => true,
        };
        if let Some(named) = said(name).filter(|_| !(is_mine(name) && is_mine(namespace))) {
            all.push(format!("{what} {}/{named}", said(namespace).unwrap_or_default()));
        }
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

/// Who applied what an entry of `managedFields` lists.
fn applier(entry: &Value) -> Option<&str> {
    let is_apply = entry["operation"] == "Apply" && entry["subresource"].is_null();
    entry["manager"].as_str().filter(|_| is_apply)
}

/// The patch that removes `mine` from a definition with this uid, and the entry of a field manager that is `gone`.
pub(super) fn without(live: &Object, uid: &str, gone: Option<&str>, mine: &[Mark]) -> Value {
    let taken = |is_label: bool| -> Map<String, Value> {
        let of = mine.iter().filter(|it| it.is_label == is_label && it.is_on(live));
        of.map(|it| (it.key.to_owned(), Value::Null)).collect()
    };
    let mut patch = json!({"metadata": {"uid": uid, "resourceVersion": live.meta("resourceVersion"),
        "labels": taken(true), "annotations": taken(false)}});
    if let Some(gone) = gone {
        let kept = entries(live).filter(|it| applier(it) != Some(gone)).cloned();
        let kept: Vec<Value> = kept.collect();
        // An empty list would change nothing.
        let kept = if kept.is_empty() { vec![json!({})] } else { kept };
        patch["metadata"]["managedFields"] = kept.into();
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
            Mark::label("helm.toolkit.fluxcd.io/name", "mine"),
            Mark::label("helm.toolkit.fluxcd.io/namespace", "apps"),
            Mark::annotation("meta.helm.sh/release-name", "mine"),
            Mark::annotation("meta.helm.sh/release-namespace", "apps"),
        ];
        assert_eq!(
            of(&live, "helm-controller", &mine),
            ["Kustomization infra/crds", "the Helm release other/mine", "the field manager argocd"]
        );
        assert!(mine[0].is_on(&live) && !mine[3].is_on(&live));
        let patch = without(&live, "u", Some("helm-controller"), &mine);
        assert_eq!(
            patch["metadata"]["managedFields"],
            json!([{"manager": "kube-apiserver", "operation": "Update"},
                {"manager": "argocd", "operation": "Apply"}])
        );
        let labels =
            json!({"helm.toolkit.fluxcd.io/name": null, "helm.toolkit.fluxcd.io/namespace": null});
        assert_eq!(patch["metadata"]["labels"], labels);
        assert_eq!(patch["metadata"]["annotations"], json!({"meta.helm.sh/release-name": null}));
    }
}
