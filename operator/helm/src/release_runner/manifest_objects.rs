//! Reads the objects of a revision from its manifest, adds what Helm adds to each object, and finds the namespace of each.
//!
//! Elsewhere: writing them (`object_writes`), observing them (`observe`).

use apply::release_ownership;
pub(super) use apply::release_ownership::{
    MANAGED_BY, POLICY_KEEP, RELEASE_NAME, RELEASE_NAMESPACE,
};
pub use apply::release_ownership::{POLICY, is_of_another, owned};
use futures::stream::{self, StreamExt as _};
use objects::{Object, ObjectId, manifest};
use quarantine::rollback_protected_objects::record_refusal;
use reconcile::ObjectKey;
use release::ReleaseRecord;

use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::crd_guard::crd_owners;

/// One object of a revision.
#[derive(Debug, Clone)]
pub struct ManifestObject {
    /// The id of the object.
    pub id: ObjectId,
    /// The object in the form in which it is applied.
    pub object: Object,
    /// The kind of the object, as the cluster serves it.
    pub resource: ApiResourceLocation,
}

impl ManifestObject {
    /// The node of the object in the graph of objects.
    pub(super) fn node(&self) -> ObjectKey {
        let ObjectId { namespace, name, group, kind } = &self.id;
        ObjectKey::new(group, kind, namespace, name)
    }
}

/// The reason why a manifest cannot be read as objects of this cluster.
#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestObjectError {
    /// The manifest is refused, in Helm's words.
    #[error("{0}")]
    Refused(String),
    /// The API server could not be asked.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

/// Whether a live object stays when its release does not have it any more. It stays if an annotation asks for it, or if it is
/// of a kind that only windlass writes. A record of Helm, or of an earlier windlass, may have such an object, and it may be in
/// force.
pub(super) fn is_kept(live: &Object) -> bool {
    release_ownership::is_kept(live) || record_refusal(&live.id()).is_some()
}

/// Parses a string of manifests into objects, in the same order.
///
/// # Errors
/// A document is not a manifest. The message is Helm's.
pub fn read(text: &str) -> Result<Vec<Object>, String> {
    let read = manifest::read("manifest", text.as_bytes(), &goyaml::YamlLimits::default());
    let all = read.map_err(|error| error.to_string())?;
    Ok(all.into_iter().map(|located| located.object).collect())
}

/// The API resource of an object, and the object with its corrected namespace. A namespaced object without a namespace gets
/// `namespace`, and a cluster-scoped object has its namespace removed.
///
/// # Errors
/// [`ClusterError::NoSuchKind`] if its kind is not served; any other error of discovery.
pub async fn placed(
    cluster: &ClusterConnection,
    mut object: Object,
    namespace: &str,
) -> Result<(ApiResourceLocation, Object), ClusterError> {
    let resource = cluster.resource(&object.gvk()).await?;
    match resource.namespaced {
        true if object.namespace().is_empty() => object.set_namespace(namespace),
        // Parity(helm 4): a cluster-scoped object is found by its name; a namespace in its manifest is ignored.
        false if !object.namespace().is_empty() => {
            object.metadata_mut().remove("namespace");
        }
        _ => {}
    }
    Ok((resource, object))
}

/// Finds an object of an earlier revision under an API version that is served now. `None` if no object of its kind exists any
/// more.
///
/// The object may exist although its version is no longer served. Another version may show the object, and an aggregated API
/// server that is down hides it.
///
/// # Errors
/// The API server refuses a request, or its answers leave open whether the object exists.
pub async fn reached(
    cluster: &ClusterConnection,
    object: Object,
    namespace: &str,
) -> Result<Option<ManifestObject>, ClusterError> {
    let mut id = object.id();
    let version = object.gvk().version;
    match placed(cluster, object, namespace).await {
        Ok((resource, object)) => Ok(Some(ManifestObject { id: object.id(), object, resource })),
        Err(ClusterError::NoSuchKind { .. }) => {
            if id.namespace.is_empty() {
                namespace.clone_into(&mut id.namespace);
            }
            let Some(object) = cluster.get_by_id(&id, &version).await? else { return Ok(None) };
            let resource = cluster.resource(&object.gvk()).await?;
            Ok(Some(ManifestObject { id: object.id(), object, resource }))
        }
        Err(error) => Err(error),
    }
}

/// The objects of a revision, in the order of its manifest.
///
/// # Errors
/// The manifest cannot be read, or has kinds that the cluster does not serve.
pub(super) async fn of_record(
    cluster: &ClusterConnection,
    record: &ReleaseRecord,
) -> Result<Vec<ManifestObject>, ManifestObjectError> {
    of_text(cluster, &record.manifest, &record.name, &record.namespace).await
}

/// Like [`of_record`], for a manifest text that is not stored yet.
///
/// # Errors
/// As [`of_record`].
pub(super) async fn of_text(
    cluster: &ClusterConnection,
    text: &str,
    name: &str,
    namespace: &str,
) -> Result<Vec<ManifestObject>, ManifestObjectError> {
    const WHAT: &str = "unable to build kubernetes objects from release manifest";
    let objects =
        read(text).map_err(|error| ManifestObjectError::Refused(format!("{WHAT}: {error}")))?;
    let mut members = Vec::with_capacity(objects.len());
    let mut missing = Vec::new();
    for object in objects {
        let kind = object.kind().to_owned();
        let version = object.api_version().to_owned();
        let its_name = object.name().to_owned();
        let its_namespace = object.namespace().to_owned();
        match placed(cluster, object, namespace).await {
            Ok((resource, mut object)) => {
                owned(&mut object, name, namespace);
                members.push(ManifestObject { id: object.id(), object, resource });
            }
            Err(ClusterError::NoSuchKind { .. }) => missing.push(format!(
                "resource mapping not found for name: \"{its_name}\" namespace: \"{its_namespace}\" from \"\": no \
                 matches for kind \"{kind}\" in version \"{version}\"\nensure CRDs are installed first"
            )),
            Err(error) => return Err(error.into()),
        }
    }
    if !missing.is_empty() {
        return Err(ManifestObjectError::Refused(format!("{WHAT}: [{}]", missing.join(", "))));
    }
    Ok(members)
}

/// Reads the live objects of members, several at a time, and returns them in the order of the members.
///
/// # Errors
/// The API server refuses the request, or does not respond. A missing object is `None` and no error.
pub(super) async fn live(
    cluster: &ClusterConnection,
    members: &[ManifestObject],
    width: usize,
) -> Result<Vec<Option<Object>>, ClusterError> {
    let reads: Vec<_> =
        members.iter().map(|it| cluster.get(&it.resource, &it.id.namespace, &it.id.name)).collect();
    stream::iter(reads).buffered(width).collect::<Vec<_>>().await.into_iter().collect()
}

/// Why an object that is there cannot become one of a release, in Helm's words; `None` if it can.
///
/// Differs(helm 4): a CustomResourceDefinition that was released for its users, or restored, may become that of a release again.
pub fn foreign(live: &Object, name: &str, namespace: &str) -> Option<String> {
    let is_free = crd_owners::is_unowned(live);
    release_ownership::ownership_fault(live, name, namespace).filter(|_| !is_free)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_only_windlass_writes_stays_when_its_release_goes() {
        let of = |version: &str, kind: &str| {
            let metadata = json!({"name": "a", "namespace": "apps"});
            Object::new(json!({"apiVersion": version, "kind": kind, "metadata": metadata})).unwrap()
        };
        assert!(is_kept(&of("release.windlass.dev/v1alpha1", "Quarantine")));
        assert!(!is_kept(&of("v1", "ConfigMap")));
    }
}
