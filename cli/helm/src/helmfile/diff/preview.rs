//! Predicts what an upgrade or the removal of a release would change in a cluster. It writes nothing.
//!
//! It compares three objects: the manifest of the stored revision, the new manifest, and the live object. Elsewhere: the output
//! (`format`).

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::anyhow;
use apply::three_way_merge;
use objects::{Object, ObjectId};
use release::ReleaseRecord;

use helm_controller::release_runner::manifest_objects::{
    self, ManifestObject, POLICY, owned, placed, reached,
};
use helm_controller::release_runner::storage::{ReleaseStorage, StorageError};
use windlass_cluster::untyped_objects::DryRunMode;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The field manager of Helm.
const HELM: &str = "helm";

/// One object before and after the operation.
#[derive(Debug, Clone)]
pub(super) struct ObjectPreview {
    /// Which object it is.
    pub(super) id: ObjectId,
    /// The current object. `None` if it does not exist.
    pub(super) before: Option<Object>,
    /// The predicted object. `None` if it would be deleted.
    pub(super) after: Option<Object>,
}

/// Reads the stored revision with which an upgrade compares. Returns `None` if the release does not exist.
///
/// # Errors
/// The API server refuses the request, or does not respond.
pub(super) async fn stored(
    cluster: &ClusterConnection,
    name: &str,
    namespace: &str,
) -> Result<Option<Arc<ReleaseRecord>>, ClusterError> {
    let storage = ReleaseStorage::new(cluster, namespace, name, "").await;
    let storage = storage.map_err(StorageError::into_cluster)?;
    let revisions = storage.revisions().await;
    let revisions = revisions.map_err(StorageError::into_cluster)?;
    Ok(revisions.current().map(|revision| Arc::clone(&revision.record)))
}

/// Predicts the objects that change if a release becomes a text of manifests. Deleted objects come last. Hooks are left out.
///
/// # Errors
/// A manifest cannot be read, or the API server refuses a request.
pub(super) async fn preview(
    cluster: &ClusterConnection,
    record: Option<&ReleaseRecord>,
    name: &str,
    namespace: &str,
    manifest: &str,
) -> anyhow::Result<Vec<ObjectPreview>> {
    let failed = |subject: &str, error: ClusterError| anyhow!("{subject}: {error}");
    let read = |text: &str| manifest_objects::read(text).map_err(anyhow::Error::msg);
    let mut originals: BTreeMap<ObjectId, ManifestObject> = BTreeMap::new();
    for object in read(record.map_or("", |record| &record.manifest))? {
        let subject = object.id().subject();
        let found = reached(cluster, object, namespace).await;
        let found = found.map_err(|error| failed(&subject, error))?;
        originals.extend(found.map(|member| (member.id.clone(), member)));
    }
    let mut changes = Vec::new();
    for object in read(manifest)? {
        let subject = object.id().subject();
        match placed(cluster, object.clone(), namespace).await {
            Ok((resource, mut object)) => {
                owned(&mut object, name, namespace);
                let member = ManifestObject { id: object.id(), object, resource };
                let original = originals.remove(&member.id);
                let change = change(cluster, member, original.as_ref()).await;
                let change = change.map_err(|error| failed(&subject, error))?;
                changes.extend(change);
            }
            // The CRD of this object comes with the chart.
            Err(ClusterError::NoSuchKind { .. }) => {
                changes.push(ObjectPreview { id: object.id(), before: None, after: Some(object) });
            }
            Err(error) => return Err(failed(&subject, error)),
        }
    }
    for (id, ManifestObject { object, resource, .. }) in originals {
        let live = cluster.get(&resource, &id.namespace, &id.name).await;
        let live = live.map_err(|error| failed(&id.subject(), error))?;
        let Some(live) = live else { continue };
        if [&live, &object].iter().all(|it| it.annotation(POLICY) != Some("keep")) {
            changes.push(ObjectPreview { id, before: Some(live), after: None });
        }
    }
    Ok(changes)
}

/// Predicts the change of one object.
async fn change(
    cluster: &ClusterConnection,
    member: ManifestObject,
    original: Option<&ManifestObject>,
) -> Result<Option<ObjectPreview>, ClusterError> {
    let ManifestObject { id, object, resource } = member;
    let before = cluster.get(&resource, &id.namespace, &id.name).await?;
    let after = match &before {
        Some(live) => match three_way_merge::patch(original.map(|it| &it.object), &object, live) {
            None => return Ok(None),
            Some(patch) => {
                cluster.try_merge_patch(&resource, &id.namespace, &id.name, &patch, HELM).await?
            }
        },
        None => match cluster.apply(&resource, &object, HELM, DryRunMode::DryRun).await {
            // The namespace of this object does not exist yet.
            Err(error) if error.is_not_found() => object,
            made => made?,
        },
    };
    Ok(Some(ObjectPreview { id, before, after: Some(after) }))
}
