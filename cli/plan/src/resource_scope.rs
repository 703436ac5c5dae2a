//! Finds out in which namespace an object will be, without a cluster that knows the scopes of kinds.
//!
//! Elsewhere: the scopes of built-in kinds (`kustomize::openapi_schema`).

use std::collections::{BTreeMap, BTreeSet};

use kustomize::openapi_schema::OpenApiSchemas;
use objects::Object;
use serde_json::Value;

/// The scopes of kinds that are known from declared CRDs or from the facts of the cluster.
#[derive(Debug, Default, Clone)]
pub(crate) struct DeclaredKindScopes {
    /// Whether objects of a group and kind are in namespaces.
    scopes: BTreeMap<(String, String), bool>,
    /// API versions such as `acme.io/v1` and `acme.io/v1/Widget`, in the form that charts use.
    pub(crate) api_versions: BTreeSet<String>,
}

impl DeclaredKindScopes {
    /// Adds the kind of a CustomResourceDefinition. Other objects are ignored.
    pub(crate) fn add(&mut self, object: &Object) {
        let is_definition = object.kind() == "CustomResourceDefinition"
            && object.api_version().starts_with("apiextensions.k8s.io/");
        let Some(spec) = object.get("spec").filter(|_| is_definition) else { return };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let group = text(&spec["group"]);
        let kind = text(&spec["names"]["kind"]);
        for version in spec["versions"].as_array().into_iter().flatten() {
            if version["served"] == Value::Bool(true) {
                let version = format!("{group}/{}", text(&version["name"]));
                self.api_versions.insert(format!("{version}/{kind}"));
                self.api_versions.insert(version);
            }
        }
        self.scopes.insert((group, kind), spec["scope"] != "Cluster");
    }

    /// Adds the scope of a kind.
    pub(crate) fn add_scope(&mut self, group: &str, kind: &str, is_namespaced: bool) {
        self.scopes.insert((group.to_owned(), kind.to_owned()), is_namespaced);
    }

    /// Whether the kind of an object is namespaced. `None` if it is unknown.
    fn is_namespaced(&self, object: &Object) -> Option<bool> {
        let builtin = OpenApiSchemas::builtin().is_namespaced(object.api_version(), object.kind());
        let gvk = object.gvk();
        builtin.or_else(|| self.scopes.get(&(gvk.group, gvk.kind)).copied())
    }

    /// Sets the final namespace of an object. If it names none, it gets `default`, unless its kind is known to be
    /// cluster-scoped. A cluster-scoped object gets no namespace.
    pub(crate) fn place(&self, object: &mut Object, default: Option<&str>) {
        match self.is_namespaced(object) {
            Some(false) => drop(object.metadata_mut().remove("namespace")),
            Some(true) | None => {
                if let Some(namespace) = default.filter(|_| object.namespace().is_empty()) {
                    object.set_namespace(namespace);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api: &str, kind: &str, namespace: Option<&str>) -> Object {
        let metadata = json!({"name": "a", "namespace": namespace});
        Object::new(json!({"apiVersion": api, "kind": kind, "metadata": metadata})).unwrap()
    }

    #[test]
    fn an_object_gets_the_namespace_of_its_release_unless_its_kind_has_none() {
        let mut kinds = DeclaredKindScopes::default();
        kinds.add(
            &Object::new(json!({"apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition", "metadata": {"name": "issuers.acme.io"},
            "spec": {"group": "acme.io", "scope": "Cluster", "names": {"kind": "Issuer"},
                "versions": [{"name": "v1", "served": true}, {"name": "v0", "served": false}]}}))
            .unwrap(),
        );
        let placed = |api: &str, kind: &str, own: Option<&str>| {
            let mut object = object(api, kind, own);
            kinds.place(&mut object, Some("shop"));
            object.namespace().to_owned()
        };
        assert_eq!(placed("v1", "ConfigMap", None), "shop");
        assert_eq!(placed("v1", "ConfigMap", Some("own")), "own");
        assert_eq!(placed("v1", "Namespace", Some("own")), "");
        assert_eq!(placed("acme.io/v1", "Issuer", None), "");
        assert_eq!(placed("acme.io/v1", "Unknown", None), "shop");
        let versions: Vec<&str> = kinds.api_versions.iter().map(String::as_str).collect();
        assert_eq!(versions, ["acme.io/v1", "acme.io/v1/Issuer"]);
    }
}
