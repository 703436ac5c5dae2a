//! Follows one watch and tells the observer what it sees.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Weak;

use futures::{Stream, StreamExt as _};
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use objects::ObjectId;
use serde_json::Value;

use super::{Observer, WatchKey};
use crate::cluster::discovery::Resource;
use crate::cluster::watch::Sighting;

/// Runs until it is aborted or the observer is gone.
pub(super) async fn follow(
    observer: Weak<Observer>,
    key: WatchKey,
    resource: Resource,
    stream: impl Stream<Item = Result<Sighting, watcher::Error>>,
) {
    let mut stream = pin!(stream);
    let mut listing = BTreeSet::new();
    while let Some(event) = stream.next().await {
        let Some(observer) = observer.upgrade() else { return };
        match event {
            Ok(Event::Init) => listing.clear(),
            Ok(Event::InitApply(object)) => {
                let (id, metadata) = identify(&resource, &object);
                observer.saw(&key, &id, &metadata);
                listing.insert(id);
            }
            Ok(Event::InitDone) => observer.listed(&key, &std::mem::take(&mut listing)),
            Ok(Event::Apply(object)) => {
                let (id, metadata) = identify(&resource, &object);
                observer.saw(&key, &id, &metadata);
            }
            Ok(Event::Delete(object)) => observer.lost(&key, &identify(&resource, &object).0),
            Err(error) => {
                // Without a watch its objects are verified at the interval, so nothing is lost but time.
                tracing::debug!(kind = resource.gvk.kind, error = %error, "watch failed, retrying");
                observer.set_live(&key, false);
            }
        }
    }
}

fn identify(resource: &Resource, object: &PartialObjectMeta<DynamicObject>) -> (ObjectId, Value) {
    let meta = &object.metadata;
    let id = ObjectId::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
        &resource.gvk.group,
        &resource.gvk.kind,
    );
    (id, serde_json::to_value(meta).unwrap_or_default())
}
