//! The values that kinds keep while the process lives, each found by its type. They are the known objects, their state between
//! runs, and shared values.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube::ResourceExt as _;
use parking_lot::{Mutex, RwLock};
use reconcile::ObjectKey;
use tokio::sync::watch;

use crate::kube_runtime::reflector::store::Writer;
use crate::kube_runtime::reflector::{self, ObjectRef, Store};
use crate::kube_runtime::watcher::Event;
use crate::windlass_kind::WindlassKind;

/// A map with at most one value of each type.
#[derive(Default)]
pub struct TypeMap(RwLock<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl TypeMap {
    /// The value of a type. It is created when it is first requested.
    pub fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let id = TypeId::of::<T>();
        let known = self.0.read().get(&id).cloned();
        let value = known.unwrap_or_else(|| {
            let mut all = self.0.write();
            all.entry(id).or_insert_with(|| Arc::new(T::default())).clone()
        });
        // Each value is stored under the id of its own type.
        value.downcast().unwrap_or_default()
    }

    /// The objects of a kind, as the watch last saw them.
    pub fn store<K: WindlassKind>(&self) -> Store<K> {
        self.get::<ObjectStore<K>>().store.clone()
    }

    /// An object of a kind, as the watch last saw it.
    pub fn seen<K: WindlassKind>(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store::<K>().get(&ObjectRef::new(name).within(namespace))
    }

    /// The later of two versions of an object: `seen`, or the one in the store. A new object of the same name counts as later.
    /// `None` if the object is gone.
    pub fn newest<K: WindlassKind>(&self, seen: Arc<K>) -> Option<Arc<K>> {
        let namespace = seen.namespace().unwrap_or_default();
        let stored = self.seen::<K>(&namespace, &seen.name_any())?;
        // resourceVersions of one object can be compared as numbers (Kubernetes 1.35).
        let number = |object: &K| object.resource_version().and_then(|v| v.parse::<u64>().ok());
        let is_later = stored.uid() != seen.uid() || number(&stored) > number(&seen);
        Some(if is_later { stored } else { seen })
    }

    /// Waits until the objects of a kind were listed. Returns false if the watch ended before.
    pub fn listed<K: WindlassKind>(&self) -> impl Future<Output = bool> + Send + use<K> {
        let mut listed = self.get::<ObjectStore<K>>().listed.clone();
        async move { listed.wait_for(|listed| *listed).await.is_ok() }
    }

    /// Replaces all known objects of a kind that no watch follows. This serves recorded cases.
    pub fn list<K: WindlassKind>(&self, objects: Vec<K>) {
        let kept = self.get::<ObjectStore<K>>();
        let mut store_writer = kept.store_writer.lock();
        let Some(StoreWriter { writer, listed }) = store_writer.as_mut() else { return };
        writer.apply_watcher_event(&Event::Init);
        for object in objects {
            writer.apply_watcher_event(&Event::InitApply(object));
        }
        writer.apply_watcher_event(&Event::InitDone);
        listed.send_replace(true);
    }
}

/// The known objects of a kind, with the writer that fills the store.
///
/// Many tasks wait for the list at once. The store of kube 5.0 wakes only the last of them, so only kube's controller uses its
/// `wait_until_ready`.
pub struct ObjectStore<K: WindlassKind> {
    store: Store<K>,
    listed: watch::Receiver<bool>,
    store_writer: Mutex<Option<StoreWriter<K>>>,
}

/// The writer of a store, which a watch uses.
pub struct StoreWriter<K: WindlassKind> {
    /// The writer of kube's store.
    pub writer: Writer<K>,
    listed: watch::Sender<bool>,
}

impl<K: WindlassKind> StoreWriter<K> {
    /// Notes that all objects were listed.
    pub fn is_listed(&self) {
        self.listed.send_replace(true);
    }
}

impl<K: WindlassKind> Default for ObjectStore<K> {
    fn default() -> Self {
        let (store, writer) = reflector::store();
        let (sender, listed) = watch::channel(false);
        let store_writer = Mutex::new(Some(StoreWriter { writer, listed: sender }));
        Self { store, listed, store_writer }
    }
}

impl<K: WindlassKind> ObjectStore<K> {
    /// The writer of the store, which is given away only once.
    pub fn store_writer(&self) -> Option<StoreWriter<K>> {
        self.store_writer.lock().take()
    }
}

/// The state of the objects of a kind between runs. It is lost with the process, so it must never be the only record.
pub struct StateCache<M>(Mutex<BTreeMap<ObjectKey, Arc<Mutex<M>>>>);

impl<M> Default for StateCache<M> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<M: Default> StateCache<M> {
    /// The state of an object. It is empty at first.
    pub fn of(&self, node: &ObjectKey) -> Arc<Mutex<M>> {
        self.0.lock().entry(node.clone()).or_default().clone()
    }

    /// The state of an object, if it exists already.
    pub fn known(&self, node: &ObjectKey) -> Option<Arc<Mutex<M>>> {
        self.0.lock().get(node).cloned()
    }

    /// Drops the state of an object that is gone.
    pub fn forget(&self, node: &ObjectKey) {
        self.0.lock().remove(node);
    }
}

#[cfg(test)]
mod tests {
    use crds::source::{Bucket, GitRepository};

    use super::*;

    #[test]
    fn each_type_has_one_value_of_its_own() {
        let kept = TypeMap::default();
        kept.get::<Mutex<Vec<u8>>>().lock().push(1);
        assert_eq!(*kept.get::<Mutex<Vec<u8>>>().lock(), [1]);
        assert!(kept.get::<Mutex<Vec<u16>>>().lock().is_empty());
    }

    #[test]
    fn a_store_is_filled_by_the_first_caller() {
        let kept = TypeMap::default();
        assert!(kept.get::<ObjectStore<Bucket>>().store_writer().is_some());
        assert!(kept.get::<ObjectStore<Bucket>>().store_writer().is_none());
        assert!(kept.get::<ObjectStore<GitRepository>>().store_writer().is_some());
    }
    #[tokio::test]
    async fn a_list_takes_the_place_of_what_was_seen_before() {
        let kept = TypeMap::default();
        let bucket = |name: &str| -> Bucket {
            let metadata = serde_json::json!({"namespace": "apps", "name": name});
            let spec = serde_json::json!({"bucketName": "b", "endpoint": "e", "interval": "1m"});
            serde_json::from_value(serde_json::json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        kept.list(vec![bucket("a"), bucket("b")]);
        assert!(kept.listed::<Bucket>().await);
        kept.list(vec![bucket("b")]);
        assert!(kept.seen::<Bucket>("apps", "a").is_none());
        assert!(kept.seen::<Bucket>("apps", "b").is_some());
    }

    #[test]
    fn a_run_that_waited_goes_on_with_the_latest_version_of_its_object() {
        let kept = TypeMap::default();
        let bucket = |uid: &str, version: &str| -> Bucket {
            let metadata = serde_json::json!({"namespace": "apps", "name": "a", "uid": uid, "resourceVersion": version});
            let spec = serde_json::json!({"bucketName": "b", "endpoint": "e", "interval": "1m"});
            serde_json::from_value(serde_json::json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let version = |uid: &str, version: &str| {
            kept.newest(Arc::new(bucket(uid, version)))?.metadata.resource_version.clone()
        };
        assert_eq!(version("1", "7"), None, "it is gone");
        kept.list(vec![bucket("1", "10")]);
        assert_eq!(version("1", "9").as_deref(), Some("10"));
        assert_eq!(version("1", "11").as_deref(), Some("11"), "the store is behind");
        assert_eq!(version("0", "11").as_deref(), Some("10"), "it is another object");
    }

    #[tokio::test]
    async fn all_who_wait_for_a_list_are_woken() {
        let kept = TypeMap::default();
        let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(kept.listed::<Bucket>())).collect();
        let ended = tokio::spawn(kept.listed::<GitRepository>());
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|task| !task.is_finished()));
        let store_writer = kept.get::<ObjectStore<Bucket>>().store_writer().unwrap();
        store_writer.is_listed();
        for task in waiting {
            assert!(task.await.unwrap());
        }
        drop(store_writer);
        assert!(kept.listed::<Bucket>().await, "it was listed");
        drop(kept.get::<ObjectStore<GitRepository>>().store_writer());
        assert!(!ended.await.unwrap());
    }
}
