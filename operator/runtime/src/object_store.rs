//! What kinds keep for the life of the process, each found by its type: their objects as last seen, what these remember
//! between runs, what they share.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use parking_lot::{Mutex, RwLock};
use reconcile::ObjectKey;
use tokio::sync::watch;

use windlass_cluster::kind::OurKind;

/// A value of each type that was asked for.
#[derive(Default)]
pub struct ByType(RwLock<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl ByType {
    /// The value of a type.
    pub(crate) fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let id = TypeId::of::<T>();
        let known = self.0.read().get(&id).cloned();
        let value = known.unwrap_or_else(|| {
            let mut all = self.0.write();
            all.entry(id).or_insert_with(|| Arc::new(T::default())).clone()
        });
        // What is kept under the id of a type is of that type.
        value.downcast().unwrap_or_default()
    }

    /// The objects of a kind, as last seen.
    pub(crate) fn store<K: OurKind>(&self) -> Store<K> {
        self.get::<Shelf<K>>().store.clone()
    }

    /// An object of a kind, as last seen.
    pub fn seen<K: OurKind>(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store::<K>().get(&ObjectRef::new(name).within(namespace))
    }

    /// Returns once the objects of a kind were listed; false if its watch ended before.
    pub fn listed<K: OurKind>(&self) -> impl Future<Output = bool> + Send + use<K> {
        let mut listed = self.get::<Shelf<K>>().listed.clone();
        async move { listed.wait_for(|listed| *listed).await.is_ok() }
    }
}

/// The objects of a kind, as last seen, and what puts them there.
///
/// Many wait for the list at once, each in its own task. The store itself (kube 5.0) wakes only the one of them that asked last,
/// so its `wait_until_ready` is for kube's controller alone.
pub(crate) struct Shelf<K: OurKind> {
    store: Store<K>,
    listed: watch::Receiver<bool>,
    filler: Mutex<Option<Filler<K>>>,
}

/// What fills a store.
pub(crate) struct Filler<K: OurKind> {
    pub(crate) writer: Writer<K>,
    listed: watch::Sender<bool>,
}

impl<K: OurKind> Filler<K> {
    /// All objects were listed.
    pub(crate) fn is_listed(&self) {
        self.listed.send_replace(true);
    }
}

impl<K: OurKind> Default for Shelf<K> {
    fn default() -> Self {
        let (store, writer) = reflector::store();
        let (sender, listed) = watch::channel(false);
        let filler = Mutex::new(Some(Filler { writer, listed: sender }));
        Self { store, listed, filler }
    }
}

impl<K: OurKind> Shelf<K> {
    /// What fills the store; it is given away once.
    pub(crate) fn filler(&self) -> Option<Filler<K>> {
        self.filler.lock().take()
    }
}

/// What nodes of a kind remember between runs; gone with the process, so never the only truth.
pub struct Memories<M>(Mutex<BTreeMap<ObjectKey, Arc<Mutex<M>>>>);

impl<M> Default for Memories<M> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<M: Default> Memories<M> {
    /// What a node remembers; nothing at first.
    pub fn of(&self, node: &ObjectKey) -> Arc<Mutex<M>> {
        self.0.lock().entry(node.clone()).or_default().clone()
    }

    /// A node is gone.
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
        let kept = ByType::default();
        kept.get::<Mutex<Vec<u8>>>().lock().push(1);
        assert_eq!(*kept.get::<Mutex<Vec<u8>>>().lock(), [1]);
        assert!(kept.get::<Mutex<Vec<u16>>>().lock().is_empty());
    }

    #[test]
    fn a_store_is_filled_by_whoever_asks_first() {
        let kept = ByType::default();
        assert!(kept.get::<Shelf<Bucket>>().filler().is_some());
        assert!(kept.get::<Shelf<Bucket>>().filler().is_none());
        assert!(kept.get::<Shelf<GitRepository>>().filler().is_some());
    }
    #[tokio::test]
    async fn all_who_wait_for_a_list_are_woken() {
        let kept = ByType::default();
        let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(kept.listed::<Bucket>())).collect();
        let ended = tokio::spawn(kept.listed::<GitRepository>());
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|task| !task.is_finished()));
        let filler = kept.get::<Shelf<Bucket>>().filler().unwrap();
        filler.is_listed();
        for task in waiting {
            assert!(task.await.unwrap());
        }
        drop(filler);
        assert!(kept.listed::<Bucket>().await, "it was listed");
        drop(kept.get::<Shelf<GitRepository>>().filler());
        assert!(!ended.await.unwrap());
    }
}
