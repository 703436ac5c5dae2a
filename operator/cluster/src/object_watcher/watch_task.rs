//! The task that follows one watch and passes its events to the object watcher.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Weak;

use futures::{Stream, StreamExt as _};
use objects::ObjectId;

use super::{ObjectWatcher, WatchKey};
use crate::ClusterError;
use crate::discovery::ApiResourceLocation;
use crate::object_decode::MetadataOnly;
use crate::resource_version::of_metadata;
use crate::watch::WatcherEvent;

/// Follows one watch until the task is aborted or the object watcher is gone.
pub(super) async fn follow(
    watcher: Weak<ObjectWatcher>,
    key: WatchKey,
    resource: ApiResourceLocation,
    stream: impl Stream<Item = Result<WatcherEvent<MetadataOnly>, ClusterError>>,
) {
    let mut stream = pin!(stream);
    let mut listing = BTreeSet::new();
    while let Some(seen) = stream.next().await {
        let Some(watcher) = watcher.upgrade() else { return };
        let saw = |object: &MetadataOnly| {
            let id = identify(&resource, object);
            if key.is_for_references() {
                watcher.saw_reference(&key, &id, Some(of_metadata(&object.metadata)));
            } else {
                watcher.saw(&key, &id, &object.metadata);
            }
            id
        };
        match seen {
            Ok(WatcherEvent::Listing) => listing.clear(),
            Ok(WatcherEvent::Listed(object)) => {
                listing.insert(saw(&object));
            }
            Ok(WatcherEvent::ListEnded) => watcher.listed(&key, &std::mem::take(&mut listing)),
            Ok(WatcherEvent::Applied(object)) => drop(saw(&object)),
            Ok(WatcherEvent::Deleted(object)) => {
                let id = identify(&resource, &object);
                if key.is_for_references() {
                    watcher.saw_reference(&key, &id, None);
                } else {
                    watcher.lost(&key, &id, Some(&object.metadata));
                }
            }
            Ok(WatcherEvent::Live) => watcher.set_live(&key, true),
            Ok(WatcherEvent::Interrupted) => watcher.set_live(&key, false),
            Err(error) => {
                // Without a watch, the owner verifies its objects at the interval, so drift is only corrected later.
                tracing::debug!(kind = resource.gvk.kind, error = %error, "watch failed, retrying");
                watcher.set_live(&key, false);
                if error.code() == Some(403) && watcher.ends_if_refused(&key) {
                    watcher.refused(&key, &error);
                    return;
                }
            }
        }
    }
}

fn identify(resource: &ApiResourceLocation, object: &MetadataOnly) -> ObjectId {
    let group = &resource.gvk.group;
    ObjectId::new(&object.namespace, &object.name, group, &resource.gvk.kind)
}
