//! Moves custom resources out of the versions that a CRD is about to drop.
//!
//! Each custom resource is written back unchanged, which stores it in the storage version. Then `status.storedVersions` is
//! shortened. The move may be repeated, because the API server does not store an unchanged object twice. Elsewhere: which
//! custom resources, and to which version (engine `crdguard`).

use std::time::Duration;

use crdguard::{CrdDefinitionError, StoredVersionMigration};
use futures::stream::{self, StreamExt as _};
use objects::Object;
use serde_json::{Value, json};

use super::custom_resource_check;
use super::error::CrdGuardError;
use crate::cluster_target::ClusterTarget;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::list_pager::ObjectProjection;
use windlass_cluster::object_decode::DepthPrunedObject;
use windlass_cluster::{ClusterConnection, ClusterError};

/// How often windlass tries to write an object that other clients write at the same time.
const MAX_WRITE_ATTEMPTS: u32 = 4;

/// How many objects are written back at once, so that the API server has room for other clients.
const AT_ONCE: usize = 4;

/// How long API servers may take to use a new storage version after the CRD names it.
const STORAGE_VERSION_SETTLE_DELAY: Duration = Duration::from_secs(5);

fn fields(object: &Object) -> Value {
    Value::Object(object.fields().clone())
}

/// Whether a manifest drops versions in which custom resources may be stored, and windlass can move them.
///
/// # Errors
/// One of the CRDs cannot be judged.
pub(super) fn is_needed(live: &Object, manifest: &Object) -> Result<bool, CrdDefinitionError> {
    Ok(StoredVersionMigration::of(&fields(live), &fields(manifest))?.is_some())
}

/// The identity of a custom resource: namespace, name and uid.
type ObjectIdentity = [String; 3];

/// Returns whether the object that applies a CRD was suspended, deleted or changed meanwhile. Moving many custom resources
/// takes long, so this is checked before each of them.
pub(crate) type ApplierStopCheck<'s> = &'s (dyn Fn() -> bool + Sync);

/// Moves the custom resources of a live CRD out of the versions that a manifest drops. The writes have the applying identity,
/// except that of `status.storedVersions`. `is_stopped` is called before each custom resource.
///
/// # Errors
/// A custom resource cannot be moved, which is named only if the applying identity may list it. The CRD changed meanwhile. Or
/// the move was stopped.
pub(super) async fn migrate(
    target: &ClusterTarget,
    definitions: &ApiResourceLocation,
    live: Object,
    manifest: &Object,
    manager: &str,
    is_stopped: ApplierStopCheck<'_>,
) -> Result<(), CrdGuardError> {
    let Ok(Some(migration)) = StoredVersionMigration::of(&fields(&live), &fields(manifest)) else {
        return Ok(());
    };
    let cluster = &target.cluster;
    let name = live.name().to_owned();
    let versions = migration.dropped.join(", ");
    let resource = custom_resource_check::resource(&migration.definition, &migration.storage);
    let group = &resource.gvk.group;
    let plural = &resource.plural;
    // This is checked before any change, because without the right no custom resource could be moved.
    if !cluster.may("patch", group, plural).await? {
        return Err(CrdGuardError::Refused(format!(
            "objects have to be moved out of {versions}, and the identity that applies it may not patch {plural}.{group}"
        )));
    }
    tracing::info!(name, versions, storage = migration.storage, "migrating stored objects");
    let live = match migration.moves {
        None => live,
        Some(moves) => {
            let at = |index: usize| format!("/spec/versions/{index}/storage");
            let patch = json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": live.meta("resourceVersion")},
                {"op": "replace", "path": at(moves.from), "value": false},
                {"op": "replace", "path": at(moves.to), "value": true},
            ]);
            let moved = cluster.json_patch(definitions, "", &name, &patch).await?;
            tokio::time::sleep(STORAGE_VERSION_SETTLE_DELAY).await;
            moved
        }
    };
    // Writes take long, and the token of the next page could expire. So the whole list is read first.
    let objects = listed(target.as_ourselves(), &resource).await?;
    let written = match write_back(cluster, &resource, objects, manager, is_stopped).await {
        Ok(written) => written,
        Err((_, error)) if error.is_of_server() => return Err(error.into()),
        Err((object, error)) => {
            let text = match super::may_list(cluster, &live).await {
                true => format!("{} cannot be written back: {error}", subject(&object)),
                false => "an object cannot be written back".to_owned(),
            };
            let text = format!("objects have to be moved out of {versions}, but {text}");
            return Err(CrdGuardError::Refused(text));
        }
    };
    tracing::info!(name, written, "migrated stored objects");
    let now = cluster.get(definitions, "", &name).await?;
    let now = now.filter(|it| it.uid() == live.uid() && it.generation() == live.generation());
    let Some(now) = now else {
        let text =
            format!("CustomResourceDefinition {name} changed while its objects were migrated");
        return Err(ClusterError::NoAnswer(text).into());
    };
    let patch = json!({"metadata": {"resourceVersion": now.meta("resourceVersion")},
        "status": {"storedVersions": [migration.storage]}});
    // windlass knows that all custom resources were moved. The applying user may lack the right to change the status of a CRD.
    target.as_ourselves().merge_patch_status(definitions, "", &name, &patch, manager).await?;
    Ok(())
}

fn subject([namespace, name, _]: &ObjectIdentity) -> String {
    let at = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    format!("{at}{name}")
}

/// The identities of all custom resources.
async fn listed(
    reader: &ClusterConnection,
    resource: &ApiResourceLocation,
) -> Result<Vec<ObjectIdentity>, ClusterError> {
    let mut all = Vec::new();
    let text =
        |item: &Value, key: &str| item["metadata"][key].as_str().unwrap_or_default().to_owned();
    let mut pages = reader.pages(resource, "", ObjectProjection::Metadata)?;
    while let Some(page) = pages.next().await? {
        let named = |DepthPrunedObject(item): &DepthPrunedObject| {
            ["namespace", "name", "uid"].map(|key| text(item, key))
        };
        all.extend(page.iter().map(named));
    }
    Ok(all)
}

/// Writes custom resources back until a write fails. Returns how many were written.
async fn write_back(
    writer: &ClusterConnection,
    resource: &ApiResourceLocation,
    objects: Vec<ObjectIdentity>,
    manager: &str,
    is_stopped: ApplierStopCheck<'_>,
) -> Result<u64, (ObjectIdentity, ClusterError)> {
    let writes = objects.into_iter().map(|object| async move {
        let written = match is_stopped() {
            true => Err(ClusterError::NoAnswer("the migration of objects was stopped".to_owned())),
            false => write_one(writer, resource, &object, manager).await,
        };
        written.map_err(|error| (object, error))
    });
    let mut writes = stream::iter(writes).buffer_unordered(AT_ONCE);
    let mut written = 0;
    while let Some(one) = writes.next().await {
        written += one?;
    }
    Ok(written)
}

/// Writes a custom resource back. If it was deleted or created again, no write is needed.
async fn write_one(
    writer: &ClusterConnection,
    resource: &ApiResourceLocation,
    [namespace, name, uid]: &ObjectIdentity,
    manager: &str,
) -> Result<u64, ClusterError> {
    // Only the stored version changes.
    let patch = json!({"metadata": {"uid": uid}});
    for attempt in 1.. {
        match writer.merge_patch(resource, namespace, name, &patch, manager).await {
            Ok(_) => return Ok(1),
            Err(error) if error.is_not_found() => return Ok(0),
            Err(error) if error.is_conflict() => {
                let now = writer.get(resource, namespace, name).await?;
                if now.is_none_or(|it| it.uid() != uid) {
                    return Ok(0);
                }
                // A policy or webhook may answer with a conflict, too.
                if attempt >= MAX_WRITE_ATTEMPTS {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use parking_lot::Mutex;

    use super::*;
    use fake_cluster::answering;

    #[tokio::test]
    async fn no_object_is_written_back_after_its_kustomization_or_release_was_suspended() {
        for suspended_after in [0, 5, 20] {
            let written = Arc::new(Mutex::new(0));
            let count = written.clone();
            let cluster = answering(move |(asked, _)| {
                assert!(asked.starts_with("PATCH /apis/acme.io/v1/namespaces/shop/widgets/"));
                *count.lock() += 1;
                let widget = json!({"apiVersion": "acme.io/v1", "kind": "Widget",
                    "metadata": {"name": "w", "namespace": "shop"}});
                (200, Body::from(widget.to_string()))
            })
            .await;
            let gvk = objects::Gvk::new("acme.io/v1", "Widget");
            let plural = "widgets".to_owned();
            let widgets = ApiResourceLocation { gvk, plural, namespaced: true, watchable: true };
            let all = (0..20).map(|at| ["shop".to_owned(), format!("w-{at}"), at.to_string()]);
            let is_suspended = || *written.lock() >= suspended_after;
            let done = write_back(&cluster, &widgets, all.collect(), "test", &is_suspended).await;
            let written = *written.lock();
            assert_eq!(done.is_ok(), suspended_after == 20, "{written}");
            // Writes under way are still finished.
            assert!((suspended_after..suspended_after + AT_ONCE).contains(&written), "{written}");
        }
    }
}
