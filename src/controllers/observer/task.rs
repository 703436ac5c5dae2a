//! Follows one watch and tells the observer what it sees.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Weak;

use futures::{Stream, StreamExt as _};
use objects::ObjectId;

use super::{Observer, WatchKey, version_of};
use crate::cluster::ClusterError;
use crate::cluster::discovery::Resource;
use crate::cluster::item::Sighted;
use crate::cluster::watch::Seen;

/// Runs until it is aborted or the observer is gone.
pub(super) async fn follow(
    observer: Weak<Observer>,
    key: WatchKey,
    resource: Resource,
    stream: impl Stream<Item = Result<Seen<Sighted>, ClusterError>>,
) {
    let mut stream = pin!(stream);
    let mut listing = BTreeSet::new();
    while let Some(seen) = stream.next().await {
        let Some(observer) = observer.upgrade() else { return };
        let saw = |object: &Sighted| {
            let id = identify(&resource, object);
            if key.is_for_references() {
                observer.saw_reference(&key, &id, Some(version_of(&object.metadata)));
            } else {
                observer.saw(&key, &id, &object.metadata);
            }
            id
        };
        match seen {
            Ok(Seen::Listing) => listing.clear(),
            Ok(Seen::Listed(object)) => {
                listing.insert(saw(&object));
            }
            Ok(Seen::ListEnded) => observer.listed(&key, &std::mem::take(&mut listing)),
            Ok(Seen::Applied(object)) => drop(saw(&object)),
            Ok(Seen::Deleted(object)) => {
                let id = identify(&resource, &object);
                if key.is_for_references() {
                    observer.saw_reference(&key, &id, None);
                } else {
                    observer.lost(&key, &id);
                }
            }
            Ok(Seen::Live) => observer.set_live(&key, true),
            Ok(Seen::Interrupted) => observer.set_live(&key, false),
            Err(error) => {
                // Without a watch its objects are verified at the interval, so nothing is lost but time.
                tracing::debug!(kind = resource.gvk.kind, error = %error, "watch failed, retrying");
                observer.set_live(&key, false);
                if key.is_for_references() && error.code() == Some(403) {
                    observer.refused(&key, &error);
                    return;
                }
            }
        }
    }
}

fn identify(resource: &Resource, object: &Sighted) -> ObjectId {
    let group = &resource.gvk.group;
    ObjectId::new(&object.namespace, &object.name, group, &resource.gvk.kind)
}
