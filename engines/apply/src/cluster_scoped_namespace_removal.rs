//! Manifests that give a namespace to a cluster-scoped object, which has none.
//!
//! Here: which kinds the API server has to be asked about, which kinds the manifests define themselves, removing the
//! namespace, and recognizing a live object with or without that namespace in its id. Elsewhere: the kinds that the API
//! server serves (the program's `cluster` room).

use std::collections::{BTreeMap, BTreeSet};

use objects::{Gvk, Object, ObjectId};
use serde_json::Value;

use crate::kustomization_apply_planner::{ApplyDesiredState, HealthWaitScope};
use crate::stages::{ApplyStage, DuplicateObjectError, stages};

/// A kind, in any version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupKind {
    /// API group of the kind. It is empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
}

impl GroupKind {
    /// The group and kind of an object.
    pub fn of(id: &ObjectId) -> Self {
        Self { group: id.group.clone(), kind: id.kind.clone() }
    }
}

/// Whether the objects of a kind are in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceScope {
    /// In no namespace.
    Cluster,
    /// Each in a namespace.
    Namespaced,
}

fn manifests(stages: &[ApplyStage]) -> impl Iterator<Item = &Object> {
    stages.iter().flat_map(|stage| &stage.objects).map(|manifest| &manifest.object)
}

/// The kinds of all objects that name a namespace: those in the manifests, and those in `health`, whose health is
/// waited for.
pub fn with_namespace(stages: &[ApplyStage], health: &[(ObjectId, String)]) -> BTreeSet<Gvk> {
    let manifests = manifests(stages).filter(|it| !it.namespace().is_empty()).map(Object::gvk);
    let named = health.iter().filter(|(id, _)| !id.namespace.is_empty());
    let named = named.map(|(id, version)| Gvk {
        group: id.group.clone(),
        version: version.clone(),
        kind: id.kind.clone(),
    });
    manifests.chain(named).collect()
}

/// For each kind whose CustomResourceDefinition is among the manifests: whether its objects are in a namespace.
pub fn defined(stages: &[ApplyStage]) -> BTreeMap<GroupKind, ResourceScope> {
    let definitions = manifests(stages).filter(|it| {
        it.kind() == "CustomResourceDefinition"
            && it.api_version().starts_with("apiextensions.k8s.io/")
    });
    let scope = |object: &Object| {
        let spec = object.get("spec")?;
        let text = |path: &str| spec.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let scope = match text("/scope")?.as_str() {
            "Cluster" => ResourceScope::Cluster,
            "Namespaced" => ResourceScope::Namespaced,
            _ => return None,
        };
        Some((GroupKind { group: text("/group")?, kind: text("/names/kind")? }, scope))
    };
    definitions.filter_map(scope).collect()
}

/// Removes the namespace from an object's id if its kind is among `kinds`, which are cluster-scoped.
fn bare(id: &mut ObjectId, kinds: &BTreeSet<GroupKind>) {
    if !id.namespace.is_empty() && kinds.contains(&GroupKind::of(id)) {
        id.namespace.clear();
    }
}

/// Takes the namespace from the ids of objects of cluster-scoped kinds.
pub fn without_namespace(ids: &mut [(ObjectId, String)], kinds: &BTreeSet<GroupKind>) {
    ids.iter_mut().for_each(|(id, _)| bare(id, kinds));
}

impl ApplyDesiredState {
    /// Copies this desired state and removes the namespace from all objects of `kinds`. `custom` is as for
    /// [`crate::stages()`].
    ///
    /// # Errors
    /// The error names an object for which two manifests exist once the namespaces are removed.
    pub fn without_namespace(
        &self,
        kinds: &BTreeSet<GroupKind>,
        custom: &[(String, String)],
    ) -> Result<Self, DuplicateObjectError> {
        let objects = manifests(&self.stages).cloned().map(|mut object| {
            if !object.namespace().is_empty() && kinds.contains(&GroupKind::of(&object.id())) {
                object.metadata_mut().remove("namespace");
            }
            object
        });
        let stages = stages(objects.collect(), custom)?;
        let mut health = self.health.clone();
        if let HealthWaitScope::These(ids) = &mut health {
            ids.iter_mut().for_each(|id| bare(id, kinds));
        }
        Ok(Self { stages, health, ..self.clone() })
    }

    /// Whether a manifest is for this live cluster-scoped object although their ids differ. The manifest or the
    /// inventory may give the object a namespace that it does not have, so namespaces are not compared.
    pub fn wants_cluster_scoped(&self, live: &ObjectId) -> bool {
        let ids = || self.stages.iter().flat_map(|stage| &stage.objects).map(|it| &it.id);
        let is_same = |id: &ObjectId| {
            (&id.name, &id.group, &id.kind) == (&live.name, &live.group, &live.kind)
        };
        live.namespace.is_empty() && ids().any(is_same)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn object(api: &str, kind: &str, namespace: &str, name: &str) -> Object {
        Object::new(json!({"apiVersion": api, "kind": kind,
            "metadata": {"name": name, "namespace": namespace}}))
        .unwrap()
    }

    fn issuer(namespace: &str) -> Object {
        object("cert-manager.io/v1", "ClusterIssuer", namespace, "le")
    }

    fn definition(scope: &str) -> Object {
        Object::new(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "clusterissuers.cert-manager.io"},
            "spec": {"group": "cert-manager.io", "scope": scope, "names": {"kind": "ClusterIssuer"}}}))
        .unwrap()
    }

    fn desired(objects: Vec<Object>, health: HealthWaitScope) -> ApplyDesiredState {
        ApplyDesiredState {
            own: ObjectId::new("flux", "apps", "kustomize.toolkit.fluxcd.io", "Kustomization"),
            stages: stages(objects, &[]).unwrap(),
            empty_is_intended: false,
            prune: true,
            prunes_after_health: false,
            health,
            fail_fast: true,
            revision: "main@sha1:0f".into(),
            timeout: Duration::from_secs(300),
            stage_timeout: Duration::from_secs(60),
            retry: Duration::from_secs(120),
        }
    }

    fn kind(group: &str, kind: &str) -> GroupKind {
        GroupKind { group: group.to_owned(), kind: kind.to_owned() }
    }

    #[test]
    fn the_build_says_itself_which_scope_the_kinds_have_that_it_defines() {
        let of = |scope| defined(&stages(vec![definition(scope)], &[]).unwrap());
        let issuers = kind("cert-manager.io", "ClusterIssuer");
        assert_eq!(of("Cluster").get(&issuers), Some(&ResourceScope::Cluster));
        assert_eq!(of("Namespaced").get(&issuers), Some(&ResourceScope::Namespaced));
        assert!(of("").is_empty());
    }

    #[test]
    fn only_what_has_a_namespace_is_asked_about() {
        let all = stages(vec![issuer("shop"), object("v1", "Namespace", "", "shop")], &[]).unwrap();
        let health = [
            (ObjectId::new("", "a", "acme.io", "Widget"), "v1".to_owned()),
            (ObjectId::new("shop", "b", "acme.io", "Gadget"), "v2".to_owned()),
        ];
        let asked: Vec<String> =
            with_namespace(&all, &health).iter().map(ToString::to_string).collect();
        assert_eq!(asked, ["acme.io/v2, Kind=Gadget", "cert-manager.io/v1, Kind=ClusterIssuer"]);
    }

    #[test]
    fn a_cluster_scoped_object_has_the_id_that_flux_records() {
        let named = ObjectId::new("shop", "le", "cert-manager.io", "ClusterIssuer");
        let before = desired(
            vec![issuer("shop"), object("v1", "ConfigMap", "shop", "le")],
            HealthWaitScope::These(vec![named]),
        );
        let kinds = BTreeSet::from([kind("cert-manager.io", "ClusterIssuer")]);
        let after = before.without_namespace(&kinds, &[]).unwrap();
        let manifests = after.stages.iter().flat_map(|stage| &stage.objects);
        let ids: Vec<String> = manifests.clone().map(|it| it.id.to_string()).collect();
        assert_eq!(ids, ["shop_le__ConfigMap", "_le_cert-manager.io_ClusterIssuer"]);
        assert!(manifests.clone().all(|it| it.id == it.object.id()));
        assert_eq!(
            manifests.map(|it| it.object.meta("namespace").is_none()).collect::<Vec<_>>(),
            [false, true]
        );
        let HealthWaitScope::These(ids) = after.health else { panic!("{:?}", after.health) };
        assert_eq!(ids[0].to_string(), "_le_cert-manager.io_ClusterIssuer");
    }

    #[test]
    fn manifests_that_differ_in_such_a_namespace_only_are_two_of_one_object() {
        let kinds = BTreeSet::from([kind("cert-manager.io", "ClusterIssuer")]);
        let both = desired(vec![issuer("a"), issuer("b")], HealthWaitScope::None);
        assert!(both.without_namespace(&kinds, &[]).is_err());
    }

    #[test]
    fn a_live_object_that_is_wanted_under_another_id_is_not_one_that_left() {
        let id =
            |namespace: &str| ObjectId::new(namespace, "le", "cert-manager.io", "ClusterIssuer");
        let bare = desired(vec![issuer("")], HealthWaitScope::None);
        let named = desired(vec![issuer("shop")], HealthWaitScope::None);
        // The inventory has the namespace of the manifest, or it is by Flux and the scope cannot be learned now.
        assert!(bare.wants_cluster_scoped(&id("")));
        assert!(named.wants_cluster_scoped(&id("")));
        // Objects that left: from another namespace, of another name.
        assert!(!named.wants_cluster_scoped(&id("other")));
        let left = ObjectId::new("", "old", "cert-manager.io", "ClusterIssuer");
        assert!(!bare.wants_cluster_scoped(&left));
    }
}
