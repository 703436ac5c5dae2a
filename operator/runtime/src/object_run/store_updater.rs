//! Updates the store of a kind from its watch, and notifies the objects that a change concerns.
//!
//! The store has no object that cannot be read. So no run uses an older version, and dependents find the object missing. Its
//! own status says why (`super::unreadable_object`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube_core::{Resource as _, ResourceExt as _};
use reconcile::ObjectKey;

use super::WatchEventHandler;
use crate::controller_kind::{ControllerKind, node_named};
use windlass_cluster::ClusterError;
use windlass_cluster::kube_runtime::reflector::{ObjectRef, Store};
use windlass_cluster::kube_runtime::watcher::Event;
use windlass_cluster::object_decode::{DecodedObject, UnreadableObject};
use windlass_cluster::object_store::StoreWriter;
use windlass_cluster::watch::WatcherEvent;
use windlass_cluster::windlass_kind::WindlassKind;

/// How long the same problem of a watch is not logged again. A CRD may never be installed.
const REPEAT_INTERVAL: Duration = Duration::from_secs(600);

/// Whether a watch problem is logged, given the last logged one.
fn is_new(last_trouble: Option<&(String, Instant)>, trouble: &str) -> bool {
    last_trouble.is_none_or(|(last, at)| last != trouble || at.elapsed() > REPEAT_INTERVAL)
}

/// The updater of a kind's store. It applies watch events to the store and notifies the objects that they concern.
pub(super) struct StoreUpdater<K: ControllerKind> {
    store_writer: StoreWriter<K::Object>,
    store: Store<K::Object>,
    notices: Arc<WatchEventHandler>,
    trouble: Option<(String, Instant)>,
    /// The unreadable objects in the list that is being received.
    unreadable: BTreeSet<ObjectKey>,
}

impl<K: ControllerKind> StoreUpdater<K> {
    pub(super) fn new(
        store_writer: StoreWriter<K::Object>,
        notices: Arc<WatchEventHandler>,
    ) -> Self {
        let store = store_writer.writer.as_reader();
        Self { store_writer, store, notices, trouble: None, unreadable: BTreeSet::new() }
    }

    /// Handles a watch event. The store changes before an object wakes, so that its run finds the new version.
    pub(super) fn take(
        &mut self,
        seen: Result<WatcherEvent<DecodedObject<K::Object>>, ClusterError>,
    ) {
        match seen {
            Ok(WatcherEvent::Listing) => {
                self.unreadable.clear();
                self.store_writer.writer.apply_watcher_event(&Event::Init);
            }
            Ok(WatcherEvent::Listed(DecodedObject::Read(object))) => {
                // A list may have an object twice, and the later version counts.
                if !self.unreadable.is_empty() {
                    let namespace = object.namespace().unwrap_or_default();
                    let node = node_named::<K::Object>(&namespace, &object.name_any());
                    self.unreadable.remove(&node);
                }
                self.store_writer.writer.apply_watcher_event(&Event::InitApply(object));
            }
            Ok(WatcherEvent::Listed(DecodedObject::Unreadable(object))) => {
                self.unreadable.insert(node_of::<K::Object>(&object));
                self.notices.unreadable::<K>(*object);
            }
            Ok(WatcherEvent::ListEnded) => {
                self.trouble = None;
                self.store_writer.writer.apply_watcher_event(&Event::InitDone);
                let unreadable = std::mem::take(&mut self.unreadable);
                // An earlier version of such an object may have been in the same list.
                for node in &unreadable {
                    self.drop_stored(&node.namespace, &node.name);
                }
                let present = self.store.state();
                self.notices.listed::<K>(&present, &unreadable);
                self.store_writer.is_listed();
            }
            Ok(WatcherEvent::Applied(DecodedObject::Read(object))) => {
                let event = Event::Apply(object);
                self.store_writer.writer.apply_watcher_event(&event);
                if let Event::Apply(object) = &event {
                    self.notices.applied::<K>(object);
                }
            }
            Ok(WatcherEvent::Applied(DecodedObject::Unreadable(object))) => {
                self.drop_stored(&object.meta.namespace, &object.meta.name);
                self.notices.unreadable::<K>(*object);
            }
            Ok(WatcherEvent::Deleted(DecodedObject::Read(object))) => {
                let namespace = object.namespace().unwrap_or_default();
                let name = object.name_any();
                self.drop_stored(&namespace, &name);
                self.notices.deleted::<K>(&node_named::<K::Object>(&namespace, &name));
            }
            Ok(WatcherEvent::Deleted(DecodedObject::Unreadable(object))) => {
                self.drop_stored(&object.meta.namespace, &object.meta.name);
                self.notices.deleted::<K>(&node_of::<K::Object>(&object));
            }
            Ok(WatcherEvent::Live) => self.notices.is_live::<K::Object>(true),
            Ok(WatcherEvent::Interrupted) => self.notices.is_live::<K::Object>(false),
            Err(error) => {
                self.notices.is_live::<K::Object>(false);
                self.tell(&error);
            }
        }
    }

    fn drop_stored(&mut self, namespace: &str, name: &str) {
        if let Some(stored) = self.store.get(&ObjectRef::<K::Object>::new(name).within(namespace)) {
            self.store_writer.writer.apply_watcher_event(&Event::Delete((*stored).clone()));
        }
    }

    fn tell(&mut self, error: &ClusterError) {
        let text = error.to_string();
        if is_new(self.trouble.as_ref(), &text) {
            tracing::error!(controller_kind = %K::Object::kind(&()), error = text, "watch failed, retrying");
            self.trouble = Some((text, Instant::now()));
        }
    }
}

fn node_of<K: WindlassKind>(object: &UnreadableObject) -> ObjectKey {
    node_named::<K>(&object.meta.namespace, &object.meta.name)
}
