//! Finds the appliers of a cluster that use one source: Kustomizations, HelmReleases with a chart in it, and Helmfiles.
//!
//! An applier that another one of them applies is left out, because the files of the source declare it.
//! Elsewhere: the search that begins at these appliers (`applier_discovery.rs`).

use std::collections::BTreeMap;

use anyhow::ensure;
use objects::{Gvk, Object, ObjectId};
use serde_json::Value;

use super::applier_discovery::{ApplierKind, MAX_APPLIERS, source_of};
use super::cluster_facts_file::LABELLING_APPLIERS;
use super::release_chart::chart_sources;
use super::repository_sources::DeclaredSources;
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The kinds of appliers, with the API versions that windlass serves.
const APPLIER_KINDS: [(&str, &str); 3] = [
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
    ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
    ("helmfile.windlass.dev/v1alpha1", "Helmfile"),
];

/// The appliers that use a source.
#[derive(Debug)]
pub(crate) struct SourceAppliers {
    /// The source as it is in the cluster.
    pub(crate) source: Object,
    /// The appliers as they are in the cluster, without those that another one of them applies.
    pub(crate) appliers: Vec<Object>,
    /// Which appliers could not be listed, with the words of the API server. Some of them may use the source.
    pub(crate) unlisted: Vec<String>,
}

impl SourceAppliers {
    /// Lists the appliers that the user may list. Without the right to list all namespaces, those of the namespace of the
    /// source count.
    ///
    /// # Errors
    /// The API server does not respond, or there are too many appliers.
    pub(crate) async fn read(cluster: &ClusterConnection, source: Object) -> anyhow::Result<Self> {
        let id = source.id();
        let mut users: BTreeMap<ObjectId, Object> = BTreeMap::new();
        let mut unlisted = Vec::new();
        for (version, kind) in APPLIER_KINDS {
            let gvk = Gvk::new(version, kind);
            for namespace in ["", id.namespace.as_str()] {
                match appliers_of_kind(cluster, &gvk, namespace, &id).await {
                    Ok(found) => {
                        users.extend(found.into_iter().map(|object| (object.id(), object)));
                        break;
                    }
                    // Discovery is complete, and the cluster does not serve this kind.
                    Err(ClusterError::NoSuchKind { .. }) => break,
                    Err(error @ ClusterError::NoAnswer(_)) => return Err(error.into()),
                    Err(error) if namespace.is_empty() => {
                        unlisted.push(format!("{kind} of all namespaces: {error}"));
                    }
                    Err(error) => {
                        unlisted.push(format!("{kind} of namespace {namespace}: {error}"));
                    }
                }
            }
            ensure!(
                users.len() <= MAX_APPLIERS,
                "more than {MAX_APPLIERS} appliers use {}",
                id.subject()
            );
        }
        let is_root = |object: &&Object| owner(object).is_none_or(|it| !users.contains_key(&it));
        let appliers = users.values().filter(is_root).cloned().collect();
        Ok(Self { source, appliers, unlisted })
    }
}

/// The appliers of a kind that use a source.
async fn appliers_of_kind(
    cluster: &ClusterConnection,
    gvk: &Gvk,
    namespace: &str,
    source: &ObjectId,
) -> Result<Vec<Object>, ClusterError> {
    let resource = cluster.resource(gvk).await?;
    let query = ObjectQuery { namespace, ..ObjectQuery::all(&resource) };
    let mut pages = cluster.object_pages(query);
    let mut found = Vec::new();
    while let Some(page) = pages.next().await? {
        found.extend(page.objects.into_iter().filter(|object| uses(object, source)));
        if found.len() > MAX_APPLIERS {
            break;
        }
    }
    Ok(found)
}

/// Whether an applier gets its files or its chart from a source.
fn uses(object: &Object, source: &ObjectId) -> bool {
    match ApplierKind::of(object) {
        Some(ApplierKind::Kustomization | ApplierKind::Helmfile) => {
            source_of(object).as_ref() == Some(source)
        }
        Some(ApplierKind::HelmRelease) => {
            let spec = object.get("spec").unwrap_or(&Value::Null);
            let none = DeclaredSources::default();
            chart_sources(spec, object.namespace(), &none).contains(source)
        }
        None => false,
    }
}

/// The applier of an object according to its labels. `None` if it applies itself.
fn owner(object: &Object) -> Option<ObjectId> {
    let labeled = |(group, kind): (&str, &str)| {
        let name = object.label(&format!("{group}/name"))?;
        let namespace = object.label(&format!("{group}/namespace"))?;
        Some(ObjectId::new(namespace, name, group, kind))
    };
    LABELLING_APPLIERS.into_iter().find_map(labeled).filter(|id| *id != object.id())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kustomization(name: &str, owner: &str, source: &Value) -> Object {
        let labels = json!({"kustomize.toolkit.fluxcd.io/name": owner,
            "kustomize.toolkit.fluxcd.io/namespace": "shop"});
        Object::new(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name, "namespace": "shop", "labels": labels},
            "spec": {"sourceRef": source}}))
        .unwrap()
    }

    #[test]
    fn an_applier_uses_the_source_of_its_files_or_of_its_chart() {
        let source = ObjectId::new("shop", "fleet", "source.toolkit.fluxcd.io", "GitRepository");
        let reference = |kind: &str, namespace: &str| json!({"kind": kind, "name": "fleet", "namespace": namespace});
        let is_used = |reference: Value| uses(&kustomization("a", "a", &reference), &source);
        assert!(is_used(json!({"kind": "GitRepository", "name": "fleet"})));
        assert!(is_used(reference("GitRepository", "shop")));
        assert!(!is_used(reference("GitRepository", "other")));
        assert!(!is_used(reference("Bucket", "shop")));
        let release = |kind: &str| {
            let spec = json!({"chart": {"spec": {"chart": "./web",
                "sourceRef": {"kind": kind, "name": "fleet"}}}});
            Object::new(json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
                "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}))
            .unwrap()
        };
        assert!(uses(&release("GitRepository"), &source));
        assert!(!uses(&release("HelmRepository"), &source));
    }

    #[test]
    fn an_applier_that_applies_itself_has_no_owner() {
        let reference = json!({"kind": "GitRepository", "name": "fleet"});
        assert_eq!(owner(&kustomization("root", "root", &reference)), None);
        let owner = owner(&kustomization("apps", "root", &reference)).unwrap();
        assert_eq!(owner.subject(), "Kustomization/shop/root");
    }
}
