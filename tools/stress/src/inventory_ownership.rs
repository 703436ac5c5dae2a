//! Finds the objects of owners, by their owner labels and by the inventories.
//!
//! This module reads both, and checks the law that every live object is in its owner's inventory. It also finds which
//! kinds the API server serves. `crash`, `soak` and `replay` use it.

use std::collections::BTreeMap;

use anyhow::Context as _;
use e2e::harness::flux_objects::inventory;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::{ApiCapabilities, Discovery};

/// The label with the namespace of the Kustomization.
const OWNER_NAMESPACE: &str = "kustomize.toolkit.fluxcd.io/namespace";

/// The label with the name of the Kustomization.
pub(crate) const OWNER_NAME: &str = "kustomize.toolkit.fluxcd.io/name";

/// A kind by its API version and its name.
pub(crate) fn kind(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// A kind in the preferred version of its group, or else in another version. A preferred version may lack kinds: `Receiver` is
/// in `v1`, and `Provider` only in `v1beta3`. `None` if the API server does not serve the kind.
pub(crate) fn served_kind(discovery: &Discovery, group: &str, kind: &str) -> Option<ApiResource> {
    let group = discovery.get(group)?;
    let versions = std::iter::once(group.preferred_version_or_latest()).chain(group.versions());
    resource_of(versions.flat_map(|version| group.versioned_resources(version)), kind)
}

/// The first API resource of a kind in a list of resources. `None` if the list has none of this kind.
fn resource_of(
    served: impl IntoIterator<Item = (ApiResource, ApiCapabilities)>,
    kind: &str,
) -> Option<ApiResource> {
    served.into_iter().map(|(resource, _)| resource).find(|resource| resource.kind == kind)
}

/// The API resource of Kustomizations.
pub(crate) fn kustomizations() -> ApiResource {
    kind("kustomize.toolkit.fluxcd.io/v1", "Kustomization")
}

/// The API resource of HelmReleases.
pub(crate) fn helm_releases() -> ApiResource {
    kind("helm.toolkit.fluxcd.io/v2", "HelmRelease")
}

/// A kind whose objects own others.
pub(crate) struct OwnerKind {
    /// The kind of the owner.
    pub(crate) kind: ApiResource,
    /// The label with the owner's name.
    pub(crate) name: &'static str,
    /// The label with the owner's namespace.
    pub(crate) namespace: &'static str,
}

impl OwnerKind {
    /// Kustomizations as owners, with the labels by which objects name their owner.
    pub(crate) fn kustomization() -> Self {
        Self { kind: kustomizations(), name: OWNER_NAME, namespace: OWNER_NAMESPACE }
    }

    /// HelmReleases as owners, with the labels by which objects name their owner.
    pub(crate) fn helm_release() -> Self {
        let name = "helm.toolkit.fluxcd.io/name";
        Self { kind: helm_releases(), name, namespace: "helm.toolkit.fluxcd.io/namespace" }
    }

    /// Helmfiles as owners, with the labels by which objects name their owner.
    pub(crate) fn helmfile() -> Self {
        let kind = kind("helmfile.windlass.dev/v1alpha1", "Helmfile");
        let name = "helmfile.windlass.dev/name";
        Self { kind, name, namespace: "helmfile.windlass.dev/namespace" }
    }
}

/// The objects of the owners in a namespace, by their inventory ids. Objects that are being deleted are left out,
/// because their deletion is certain.
pub(crate) async fn live(
    client: &Client,
    kinds: &[ApiResource],
    owner: &OwnerKind,
    namespace: &str,
) -> anyhow::Result<BTreeMap<String, DynamicObject>> {
    let mut found = BTreeMap::new();
    let owned = ListParams::default().labels(&format!("{}={namespace}", owner.namespace));
    for kind in kinds {
        let api = Api::<DynamicObject>::all_with(client.clone(), kind);
        let list = match api.list(&owned).await {
            // The work itself may define the kind, so the API server may not serve it yet.
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            list => list.with_context(|| format!("cannot list {}", kind.kind))?,
        };
        for mut object in list.items {
            // The objects of hooks have no owner after the hook has run.
            let annotations = object.metadata.annotations.as_ref();
            let is_hook = annotations.is_some_and(|it| it.contains_key("helm.sh/hook"));
            if object.metadata.deletion_timestamp.is_some() || is_hook {
                continue;
            }
            let meta = &object.metadata;
            let word = |text: &Option<String>| text.clone().unwrap_or_default();
            let space = word(&meta.namespace);
            let name = word(&meta.name);
            let id = format!("{space}_{}_{}_{}", name.replace(':', "__"), kind.group, kind.kind);
            object.types = Some(kube::core::TypeMeta {
                api_version: kind.api_version.clone(),
                kind: kind.kind.clone(),
            });
            found.insert(id, object);
        }
    }
    Ok(found)
}

/// The ids in the inventories of a namespace's owners. Each has the name of its owner.
pub(crate) async fn recorded(
    client: &Client,
    owner: &OwnerKind,
    namespace: &str,
) -> anyhow::Result<BTreeMap<String, String>> {
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &owner.kind);
    let list = api.list(&ListParams::default()).await.context("cannot list the owners")?;
    let entries = list.items.iter().flat_map(|object| {
        let name = object.metadata.name.clone().unwrap_or_default();
        inventory(object).into_iter().map(move |id| (id.to_owned(), name.clone()))
    });
    Ok(entries.collect())
}

/// Live objects that are not in the inventory of their owner. windlass would never delete them after a crash.
pub(crate) fn unrecorded(
    live: &BTreeMap<String, DynamicObject>,
    recorded: &BTreeMap<String, String>,
    owner: &OwnerKind,
) -> Vec<String> {
    let lost = live.iter().filter(|(id, object)| {
        let labels = object.metadata.labels.as_ref();
        let named = labels.and_then(|labels| labels.get(owner.name));
        recorded.get(*id) != named
    });
    lost.map(|(id, _)| format!("{id} is live and in no inventory of its owner")).collect()
}

/// The ids in inventories without a live object.
pub(crate) fn absent(
    live: &BTreeMap<String, DynamicObject>,
    recorded: &BTreeMap<String, String>,
) -> Vec<String> {
    let missing = recorded.keys().filter(|id| !live.contains_key(*id));
    missing.map(|id| format!("{id} is in an inventory and not there")).collect()
}

#[cfg(test)]
mod tests {
    use kube::discovery::Scope;

    use super::*;

    fn owned(owner: &str) -> DynamicObject {
        let mut object = DynamicObject::new("a", &kind("v1", "ConfigMap"));
        let labels = BTreeMap::from([(OWNER_NAME.to_owned(), owner.to_owned())]);
        object.metadata.labels = Some(labels);
        object
    }

    #[test]
    fn what_is_live_has_to_be_in_its_owners_inventory() {
        let live = BTreeMap::from([("n_a__ConfigMap".to_owned(), owned("app"))]);
        let in_inventory_of = |name: &str| {
            let recorded = BTreeMap::from([("n_a__ConfigMap".to_owned(), name.to_owned())]);
            unrecorded(&live, &recorded, &OwnerKind::kustomization()).len()
        };
        assert_eq!(in_inventory_of("app"), 0);
        assert_eq!(in_inventory_of("other"), 1);
        assert_eq!(unrecorded(&live, &BTreeMap::new(), &OwnerKind::kustomization()).len(), 1);
        assert_eq!(
            absent(&BTreeMap::new(), &BTreeMap::from([("x".into(), "app".into())])).len(),
            1
        );
    }

    #[test]
    fn a_kind_is_served_although_the_preferred_version_of_its_group_lacks_it() {
        let served = |api_version: &str, name: &str| {
            let capabilities = ApiCapabilities {
                scope: Scope::Namespaced,
                subresources: Vec::new(),
                operations: Vec::new(),
            };
            (kind(&format!("notification.toolkit.fluxcd.io/{api_version}"), name), capabilities)
        };
        let all = [served("v1", "Receiver"), served("v1beta3", "Provider")];
        let version = |name: &str| resource_of(all.clone(), name).map(|it| it.version);
        assert_eq!(version("Receiver").as_deref(), Some("v1"));
        assert_eq!(version("Provider").as_deref(), Some("v1beta3"));
        assert_eq!(version("Alarm"), None);
    }

    #[test]
    fn the_plurals_of_the_kinds_in_use_are_right() {
        for (api_version, name, plural) in [
            ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"),
            ("storage.k8s.io/v1", "StorageClass", "storageclasses"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions"),
            ("source.toolkit.fluxcd.io/v1", "GitRepository", "gitrepositories"),
            ("image.toolkit.fluxcd.io/v1", "ImageRepository", "imagerepositories"),
            ("image.toolkit.fluxcd.io/v1", "ImagePolicy", "imagepolicies"),
            ("image.toolkit.fluxcd.io/v1", "ImageUpdateAutomation", "imageupdateautomations"),
        ] {
            assert_eq!(kind(api_version, name).plural, plural);
        }
    }
}
