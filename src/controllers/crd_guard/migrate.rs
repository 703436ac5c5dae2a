//! Moves objects out of versions that a definition is about to drop.
//!
//! Each object is written back unchanged, which stores it in the version of storage; then `status.storedVersions` is
//! trimmed. All of it can be done again: what was moved is not written a second time by the API server.
//! Elsewhere: which objects, and to which version (engine `crdguard`).

use std::time::Duration;

use crdguard::{Fault, Migration};
use futures::stream::{self, StreamExt as _};
use objects::Object;
use serde_json::{Value, json};

use super::survey;
use crate::cluster::discovery::Resource;
use crate::cluster::pages::Part;
use crate::cluster::{Cluster, ClusterError};
use crate::controllers::target::Target;

/// How many objects are written back at once: other clients need the API server, too.
const AT_ONCE: usize = 4;

/// How long API servers may take to store objects in a new version of storage, after they were told.
const SETTLES: Duration = Duration::from_secs(5);

fn fields(object: &Object) -> Value {
    Value::Object(object.fields().clone())
}

/// Whether a manifest drops versions that objects have to be moved out of, and can be.
///
/// # Errors
/// When one of the definitions cannot be judged.
pub(super) fn is_needed(live: &Object, manifest: &Object) -> Result<bool, Fault> {
    Ok(Migration::of(&fields(live), &fields(manifest))?.is_some())
}

/// Moves the objects of a live definition as far as a manifest needs it, in the name of the identity that applies; only
/// `status.storedVersions` is written in windlass's own name.
///
/// # Errors
/// An object cannot be written back, or the definition is another by now.
pub(super) async fn migrate(
    target: &Target,
    (definitions, live): (&Resource, Object),
    manifest: &Object,
    manager: &str,
) -> Result<(), ClusterError> {
    let Ok(Some(migration)) = Migration::of(&fields(&live), &fields(manifest)) else {
        return Ok(());
    };
    let (cluster, name) = (&target.cluster, live.name().to_owned());
    let versions = migration.dropped.join(", ");
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
            tokio::time::sleep(SETTLES).await;
            moved
        }
    };
    let resource = survey::resource(&migration.definition, &migration.storage);
    let written = write_back(target.as_ourselves(), cluster, &resource, manager).await?;
    tracing::info!(name, written, "migrated stored objects");
    let now = cluster.get(definitions, "", &name).await?;
    let now = now.filter(|it| it.uid() == live.uid() && it.generation() == live.generation());
    let Some(now) = now else {
        let text =
            format!("CustomResourceDefinition {name} changed while its objects were migrated");
        return Err(ClusterError::NoAnswer(text));
    };
    let patch = json!({"metadata": {"resourceVersion": now.meta("resourceVersion")},
        "status": {"storedVersions": [migration.storage]}});
    // That all objects were moved is what windlass knows; who may change a definition need not be able to change its status.
    target.as_ourselves().merge_patch_status(definitions, &name, &patch, manager).await
}

/// Writes all objects back; tells how many. One that is gone or another by now is stored right already.
async fn write_back(
    reader: &Cluster,
    writer: &Cluster,
    resource: &Resource,
    manager: &str,
) -> Result<u64, ClusterError> {
    let (mut from, mut written) = (None, 0);
    loop {
        let page = reader.page(resource, "", Part::Metadata, from.as_deref()).await?;
        let writes: Vec<_> =
            page.items.iter().map(|item| write_one(writer, resource, item, manager)).collect();
        let done: Vec<Result<u64, ClusterError>> =
            stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
        for one in done {
            written += one?;
        }
        from = page.next;
        if from.is_none() {
            return Ok(written);
        }
    }
}

async fn write_one(
    writer: &Cluster,
    resource: &Resource,
    item: &Value,
    manager: &str,
) -> Result<u64, ClusterError> {
    let text = |key: &str| item["metadata"][key].as_str().unwrap_or_default();
    let place = (text("namespace"), text("name"));
    // Nothing changes but where it is stored.
    let patch = json!({"metadata": {"uid": text("uid")}});
    match writer.merge_patch(resource, place, &patch, manager).await {
        Ok(_) => Ok(1),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(0),
        Err(error) => Err(error),
    }
}
