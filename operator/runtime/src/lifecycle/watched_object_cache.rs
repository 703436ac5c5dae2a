//! A cache of the objects of a kind, kept current by a watch. It serves kinds without runs.
//!
//! Elsewhere: the objects of kinds that have runs (`windlass_cluster::object_store`), and watching (`windlass_cluster::watch`).

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crds::operation_lifecycle::{Lifecycle, LifecycleBinding, LifecycleEvent};
use crds::windlass_notification::Incident;
use crds::windlass_release::{
    ChangeSet, ClusterStagedRollout, Freeze, FreezeBypass, Plan, PlanPolicy, Quarantine,
    StagedRollout,
};
use futures::StreamExt as _;
use objects::Gvk;
use parking_lot::Mutex;
use reconcile::ObjectKey;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::run_context::RunContext;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::object_decode::{FullObject, ObjectDecodeForm as _};
use windlass_cluster::watch::WatcherEvent;
use windlass_cluster::{ClusterConnection, ClusterError};

/// How long a run waits for an interrupted watch. The API server ends each watch after some minutes.
pub const WATCH_PATIENCE: Duration = Duration::from_secs(10);

/// The longest interruption after which a watch goes on without a new list. The API server ends each watch after some minutes,
/// and the next one begins at once.
const SHORT_INTERRUPTION: Duration = Duration::from_secs(1);

/// How often a wait checks whether the interrupted watch is live again.
const CURRENT_POLL: Duration = Duration::from_millis(50);

/// A kind whose objects are cached.
pub trait WatchCachedKind:
    kube_core::Resource<DynamicType = ()> + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static
{
    /// Whether the kind is namespaced.
    const NAMESPACED: bool;
}

impl WatchCachedKind for ChangeSet {
    const NAMESPACED: bool = true;
}

impl WatchCachedKind for ClusterStagedRollout {
    const NAMESPACED: bool = false;
}

impl WatchCachedKind for Freeze {
    const NAMESPACED: bool = false;
}

impl WatchCachedKind for FreezeBypass {
    const NAMESPACED: bool = true;
}

impl WatchCachedKind for Incident {
    const NAMESPACED: bool = true;
}

impl WatchCachedKind for Lifecycle {
    const NAMESPACED: bool = false;
}

impl WatchCachedKind for LifecycleBinding {
    const NAMESPACED: bool = true;
}

impl WatchCachedKind for LifecycleEvent {
    const NAMESPACED: bool = true;
}

impl WatchCachedKind for Plan {
    const NAMESPACED: bool = true;
}

impl WatchCachedKind for PlanPolicy {
    const NAMESPACED: bool = false;
}

impl WatchCachedKind for Quarantine {
    const NAMESPACED: bool = true;
}

impl WatchCachedKind for StagedRollout {
    const NAMESPACED: bool = true;
}

/// The dependency graph node that stands for all objects of a kind. Objects that wait for it wake when the watch is live
/// again.
pub fn kind_node<K: WatchCachedKind>() -> ObjectKey {
    ObjectKey::new(&K::group(&()), &K::kind(&()), "", "")
}

/// The location of a kind. It is fixed, because the discovery may be older than its CRD.
pub fn resource<K: WatchCachedKind>() -> ApiResourceLocation {
    ApiResourceLocation {
        gvk: Gvk::new(&K::api_version(&()), &K::kind(&())),
        plural: K::plural(&()).into_owned(),
        namespaced: K::NAMESPACED,
        watchable: true,
    }
}

/// The namespace and the name of an object in the cache of a watch.
type WatchCachedObjectKey = (String, String);

/// The cached objects by key. `None` stands for an object that exists but cannot be parsed.
type WatchCachedObjects<K> = BTreeMap<WatchCachedObjectKey, Option<Arc<K>>>;

enum WatchCacheState<K> {
    /// The objects were not listed yet.
    Nothing,
    /// The objects could not be listed, for this reason.
    Failed(String),
    /// All objects.
    Listed(WatchCachedObjects<K>),
}

/// An object that was created, changed or deleted.
pub struct CachedObjectChange<K> {
    /// The object before the change. `None` if it was not known.
    pub before: Option<Arc<K>>,
    /// The object now. `None` if it was deleted.
    pub after: Option<Arc<K>>,
}

/// The cached objects of a kind without runs, as the watch last saw them.
pub struct WatchedObjectCache<K> {
    state: watch::Sender<WatchCacheState<K>>,
    /// Whether the watch sees every change.
    is_live: AtomicBool,
    /// When the watch was interrupted. `None` if it is live.
    interrupted_since: Mutex<Option<Instant>>,
}

impl<K> Default for WatchedObjectCache<K> {
    fn default() -> Self {
        Self {
            state: watch::Sender::new(WatchCacheState::Nothing),
            is_live: AtomicBool::new(false),
            interrupted_since: Mutex::new(None),
        }
    }
}

/// The resourceVersion of an object as a number. 0 if it has none.
fn version_of<K: kube_core::Resource>(object: &K) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version.and_then(|it| it.parse().ok()).unwrap_or_default()
}

/// Whether the cache has a newer version of an object than `version`.
fn is_newer<K: kube_core::Resource>(known: Option<&Option<Arc<K>>>, version: u64) -> bool {
    known.and_then(Option::as_ref).is_some_and(|known| version_of(&**known) > version)
}

/// The cached objects of a namespace.
fn within<'o, K>(
    all: &'o WatchCachedObjects<K>,
    namespace: &'o str,
) -> impl Iterator<Item = (&'o WatchCachedObjectKey, &'o Option<Arc<K>>)> {
    let first = (namespace.to_owned(), String::new());
    all.range(first..).take_while(move |((of, _), _)| of == namespace)
}

fn key(metadata: &Value) -> WatchCachedObjectKey {
    let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

impl<K: WatchCachedKind> WatchedObjectCache<K> {
    /// Waits until the objects were listed, or the list failed.
    pub async fn known(&self) {
        let mut known = self.state.subscribe();
        // `self` owns the sender, so it still exists.
        drop(known.wait_for(|known| !matches!(known, WatchCacheState::Nothing)).await);
    }

    /// Assumes that there are no objects.
    pub fn assume_none(&self) {
        drop(self.replace(WatchCachedObjects::new()));
        self.set_live(true);
    }

    /// All objects of a namespace. For a cluster-scoped kind, all objects.
    ///
    /// # Errors
    /// The objects could not be listed, or one of them cannot be read.
    pub fn listed(&self, namespace: &str) -> Result<Vec<Arc<K>>, String> {
        self.ready()?;
        let known = self.state.borrow();
        let WatchCacheState::Listed(all) = &*known else { return Ok(Vec::new()) };
        let read = within(all, namespace).map(|((_, name), object)| {
            object.clone().ok_or_else(|| format!("{} {name} cannot be read", K::kind(&())))
        });
        read.collect()
    }

    /// Checks that the objects were listed.
    ///
    /// # Errors
    /// The reason why they were not listed.
    pub fn ready(&self) -> Result<(), String> {
        let plural = K::plural(&());
        match &*self.state.borrow() {
            WatchCacheState::Nothing => Err(format!("{plural} have not been listed yet")),
            WatchCacheState::Failed(why) => Err(format!("{plural} cannot be listed: {why}")),
            WatchCacheState::Listed(_) => Ok(()),
        }
    }

    /// Checks that the objects were listed and that every change since was seen.
    ///
    /// # Errors
    /// The reason why the objects may have changed.
    pub fn current(&self) -> Result<(), String> {
        self.ready()?;
        match self.is_current() {
            true => Ok(()),
            false => Err(format!("the watch of {} is interrupted", K::plural(&()))),
        }
    }

    /// Waits until every change is seen, for at most `patience` after the interruption of the watch. It does not wait if the
    /// objects cannot be listed. After that time no call waits, because many runs would block their workers in turn.
    pub async fn current_within(&self, patience: Duration) {
        let since = *self.interrupted_since.lock();
        let deadline = since.unwrap_or_else(Instant::now) + patience;
        let is_listed = || matches!(&*self.state.borrow(), WatchCacheState::Listed(_));
        while is_listed() && !self.is_current() && Instant::now() < deadline {
            tokio::time::sleep(CURRENT_POLL).await;
        }
    }

    fn is_current(&self) -> bool {
        self.is_live.load(Ordering::Acquire)
            && matches!(&*self.state.borrow(), WatchCacheState::Listed(_))
    }

    fn is_interrupted_for(&self, time: Duration) -> bool {
        self.interrupted_since.lock().is_some_and(|since| since.elapsed() > time)
    }

    fn set_live(&self, is_live: bool) {
        let mut since = self.interrupted_since.lock();
        *since = (!is_live).then(|| since.unwrap_or_else(Instant::now));
        self.is_live.store(is_live, Ordering::Release);
    }

    /// The objects of a namespace that are known and can be read.
    pub fn of(&self, namespace: &str) -> Vec<Arc<K>> {
        match &*self.state.borrow() {
            WatchCacheState::Listed(all) => {
                within(all, namespace).filter_map(|(_, object)| object.clone()).collect()
            }
            WatchCacheState::Nothing | WatchCacheState::Failed(_) => Vec::new(),
        }
    }

    /// An object in the cache of a watch. `None` if the object is not known or cannot be parsed, or if the watch has failed.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        match &*self.state.borrow() {
            WatchCacheState::Listed(all) => {
                all.get(&(namespace.to_owned(), name.to_owned()))?.clone()
            }
            WatchCacheState::Nothing | WatchCacheState::Failed(_) => None,
        }
    }

    /// All objects that are known and can be read.
    pub fn all(&self) -> Vec<Arc<K>> {
        match &*self.state.borrow() {
            WatchCacheState::Listed(all) => all.values().flatten().cloned().collect(),
            WatchCacheState::Nothing | WatchCacheState::Failed(_) => Vec::new(),
        }
    }

    /// Adds the answer to a write to the cache, and returns the object. `None` if the watch has already seen a later version.
    /// The change is not announced.
    pub fn insert(&self, object: K) -> Option<Arc<K>> {
        let metadata = object.meta();
        let key = (
            metadata.namespace.clone().unwrap_or_default(),
            metadata.name.clone().unwrap_or_default(),
        );
        let object = Arc::new(object);
        let mut kept = None;
        self.change(|all| {
            if !is_newer(all.get(&key), version_of(&*object)) {
                all.insert(key, Some(object.clone()));
                kept = Some(object);
            }
        });
        kept
    }

    /// Removes a deleted object from the cache, and returns it. `None` if the cache had no readable object with this uid. The
    /// change is not announced.
    pub fn remove(&self, namespace: &str, name: &str, uid: &str) -> Option<Arc<K>> {
        let mut removed = None;
        self.change(|all| {
            let key = (namespace.to_owned(), name.to_owned());
            let is_it = |object: &Arc<K>| object.meta().uid.as_deref() == Some(uid);
            if all.get(&key).is_some_and(|object| object.as_ref().is_some_and(is_it)) {
                removed = all.remove(&key).flatten();
            }
        });
        removed
    }

    /// Changes the cached objects. Before the first list nothing is cached, and the list will contain the change.
    fn change(&self, change: impl FnOnce(&mut WatchCachedObjects<K>)) {
        self.state.send_if_modified(|known| {
            if let WatchCacheState::Listed(all) = known {
                change(all);
            }
            false
        });
    }

    /// Applies a watch event to the cache. Returns the objects that were created, changed or deleted.
    fn take(
        &self,
        event: WatcherEvent<FullObject>,
        listing: &mut WatchCachedObjects<K>,
    ) -> Vec<CachedObjectChange<K>> {
        let read = |whole: FullObject| {
            let version = whole.version().parse::<u64>().unwrap_or(u64::MAX);
            let value = whole.value.unwrap_or_default();
            let key = key(&value["metadata"]);
            (key, version, serde_json::from_value::<K>(value).ok().map(Arc::new))
        };
        let (key, version, after) = match event {
            WatcherEvent::Listing => {
                listing.clear();
                return Vec::new();
            }
            WatcherEvent::Listed(whole) => {
                let (key, _, object) = read(whole);
                listing.insert(key, object);
                return Vec::new();
            }
            WatcherEvent::ListEnded => return self.replace(std::mem::take(listing)),
            WatcherEvent::Applied(whole) => {
                let (key, version, object) = read(whole);
                (key, version, Some(object))
            }
            WatcherEvent::Deleted(whole) => {
                let (key, version, _) = read(whole);
                (key, version, None)
            }
            WatcherEvent::Live => {
                self.set_live(true);
                return Vec::new();
            }
            WatcherEvent::Interrupted => {
                self.set_live(false);
                return Vec::new();
            }
        };
        let mut changed = Vec::new();
        self.change(|all| {
            // The cache may already have windlass's own write, and the watch reports the older version later.
            if is_newer(all.get(&key), version) {
                return;
            }
            let (before, after) = match after {
                Some(after) => (all.insert(key, after.clone()), after),
                None => (all.remove(&key), None),
            };
            changed.push(CachedObjectChange { before: before.flatten(), after });
        });
        changed.retain(|it| it.before != it.after);
        changed
    }

    /// Replaces the cache with a complete list. Returns the changes.
    fn replace(&self, now: WatchCachedObjects<K>) -> Vec<CachedObjectChange<K>> {
        let before = match self.state.send_replace(WatchCacheState::Listed(now.clone())) {
            WatchCacheState::Listed(before) => before,
            WatchCacheState::Nothing | WatchCacheState::Failed(_) => WatchCachedObjects::new(),
        };
        let keys: BTreeSet<&WatchCachedObjectKey> = before.keys().chain(now.keys()).collect();
        let of = |all: &WatchCachedObjects<K>, key: &WatchCachedObjectKey| {
            all.get(key).cloned().flatten()
        };
        let changed = keys
            .into_iter()
            .map(|key| CachedObjectChange { before: of(&before, key), after: of(&now, key) });
        changed.filter(|it| it.before != it.after).collect()
    }

    /// Notes that the objects cannot be listed. An earlier list stays valid. Without one, the cache keeps the reason `why`.
    fn failed(&self, why: &str) {
        self.state.send_if_modified(|known| {
            let is_unknown = !matches!(known, WatchCacheState::Listed(_));
            if is_unknown {
                *known = WatchCacheState::Failed(why.to_owned());
            }
            is_unknown
        });
    }
}

/// Watches the objects of a kind, without end.
pub async fn follow<K: WatchCachedKind>(
    context: Arc<RunContext>,
    changed: impl Fn(&RunContext, CachedObjectChange<K>),
) {
    let table = context.shared::<WatchedObjectCache<K>>();
    let settings = &context.settings;
    let namespace = match K::NAMESPACED && !settings.watch_all_namespaces {
        true => settings.runtime_namespace.as_str(),
        false => "",
    };
    let watch = || context.cluster.watch_objects(&resource::<K>(), namespace, "");
    let mut events = pin!(watch());
    let mut listing = WatchCachedObjects::new();
    let mut is_listed_anew = false;
    while let Some(event) = events.next().await {
        match &event {
            Ok(WatcherEvent::ListEnded) => is_listed_anew = true,
            // A watch is live before it reports what changed during its interruption. A run that begins in between must not
            // miss a guard, so the objects are listed again.
            Ok(WatcherEvent::Live)
                if !is_listed_anew && table.is_interrupted_for(SHORT_INTERRUPTION) =>
            {
                events.set(watch());
                continue;
            }
            Ok(WatcherEvent::Interrupted) | Err(_) => is_listed_anew = false,
            Ok(_) => {}
        }
        let was_current = table.is_current();
        let all = match event {
            Ok(event) => table.take(event, &mut listing),
            Err(error) => {
                if is_absent::<K>(&context.cluster, &error).await {
                    let gone = table.replace(WatchCachedObjects::new());
                    table.set_live(true);
                    gone
                } else {
                    // The changes meanwhile are seen when the watch is live again.
                    table.set_live(false);
                    table.failed(&error.to_string());
                    continue;
                }
            }
        };
        for it in all {
            changed(&context, it);
        }
        if !was_current && table.is_current() {
            context.work_queue.changed(&kind_node::<K>());
        }
    }
}

/// Whether the API server confirms that the CRD of a kind does not exist, so that the kind has no objects. Roles that are
/// older than the kind do not permit the list, and the API server reports that first.
async fn is_absent<K: WatchCachedKind>(cluster: &ClusterConnection, error: &ClusterError) -> bool {
    if !error.is_unserved() && error.code() != Some(403) {
        return false;
    }
    let definitions = ApiResourceLocation {
        gvk: Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        plural: "customresourcedefinitions".to_owned(),
        namespaced: false,
        watchable: true,
    };
    let name = format!("{}.{}", K::plural(&()), K::group(&()));
    matches!(cluster.get(&definitions, "", &name).await, Ok(None))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, key: &str) -> FullObject {
        FullObject::of(json!({
            "metadata": {"namespace": "apps", "name": name, "uid": format!("uid-{name}")},
            "spec": {"key": key, "phase": "PreUpgrade"},
        }))
    }

    fn names(of: &[Arc<LifecycleEvent>]) -> Vec<&str> {
        of.iter().map(|it| it.spec.key.as_str()).collect()
    }

    #[test]
    fn what_was_not_listed_is_not_taken_for_nothing() {
        let table = WatchedObjectCache::<LifecycleEvent>::default();
        assert!(table.listed("apps").unwrap_err().contains("have not been listed yet"));
        table.failed("forbidden");
        assert!(table.listed("apps").unwrap_err().contains("forbidden"));
        let mut listing = WatchCachedObjects::new();
        table.take(WatcherEvent::Listing, &mut listing);
        table.take(WatcherEvent::Listed(object("a", "1")), &mut listing);
        assert!(table.listed("apps").is_err(), "the list has not ended");
        assert_eq!(table.take(WatcherEvent::ListEnded, &mut listing).len(), 1);
        assert_eq!(names(&table.listed("apps").unwrap()), ["1"]);
        assert!(table.listed("other").unwrap().is_empty());
        table.failed("interrupted");
        assert_eq!(names(&table.of("apps")), ["1"], "what was known stays");
    }

    #[test]
    fn objects_are_current_only_while_their_watch_is_live() {
        let table = WatchedObjectCache::<LifecycleEvent>::default();
        let mut listing = WatchCachedObjects::new();
        assert!(table.current().unwrap_err().contains("have not been listed yet"));
        table.take(WatcherEvent::ListEnded, &mut listing);
        assert!(table.current().unwrap_err().contains("is interrupted"), "not watched yet");
        table.take(WatcherEvent::Live, &mut listing);
        assert_eq!(table.current(), Ok(()));
        table.take(WatcherEvent::Interrupted, &mut listing);
        assert!(table.current().is_err() && table.ready().is_ok());
    }

    #[tokio::test]
    async fn an_interrupted_watch_is_awaited_from_the_interruption_on_and_not_by_each_run_anew() {
        let table = WatchedObjectCache::<LifecycleEvent>::default();
        let waits = async || {
            let began = Instant::now();
            table.current_within(Duration::from_millis(400)).await;
            began.elapsed() >= Duration::from_millis(200)
        };
        assert!(!waits().await, "nothing is listed");
        let mut listing = WatchCachedObjects::new();
        table.take(WatcherEvent::ListEnded, &mut listing);
        table.take(WatcherEvent::Live, &mut listing);
        assert!(!waits().await, "every change is seen");
        table.take(WatcherEvent::Interrupted, &mut listing);
        assert!(waits().await);
        table.take(WatcherEvent::Interrupted, &mut listing);
        assert!(!waits().await, "it was awaited long enough");
        table.take(WatcherEvent::Live, &mut listing);
        table.take(WatcherEvent::Interrupted, &mut listing);
        assert!(waits().await, "it is another interruption");
        assert!(table.is_interrupted_for(Duration::from_millis(100)));
        assert!(!table.is_interrupted_for(Duration::from_secs(60)));
        table.take(WatcherEvent::Live, &mut listing);
        assert!(!table.is_interrupted_for(Duration::ZERO));
    }

    #[test]
    fn changes_are_reported_once_and_own_writes_are_known_at_once() {
        let table = WatchedObjectCache::<LifecycleEvent>::default();
        let mut listing = WatchCachedObjects::new();
        table.take(WatcherEvent::ListEnded, &mut listing);
        let created = serde_json::from_value(object("a", "1").value.unwrap()).unwrap();
        assert!(table.insert(created).is_some());
        assert_eq!(names(&table.of("apps")), ["1"]);
        let mut changes = |event| table.take(event, &mut listing).len();
        assert_eq!(changes(WatcherEvent::Applied(object("a", "1"))), 0, "it is what was written");
        assert_eq!(changes(WatcherEvent::Applied(object("a", "2"))), 1);
        assert!(table.remove("apps", "a", "another").is_none());
        assert_eq!(names(&table.of("apps")), ["2"]);
        assert!(table.remove("apps", "a", "uid-a").is_some());
        assert!(table.of("apps").is_empty());
        assert_eq!(changes(WatcherEvent::Deleted(object("a", "2"))), 0);
        assert_eq!(changes(WatcherEvent::Applied(object("b", "3"))), 1);
        assert_eq!(changes(WatcherEvent::Deleted(object("b", "3"))), 1);
    }

    #[test]
    fn what_the_watch_tells_late_does_not_replace_what_was_written_since() {
        let table = WatchedObjectCache::<LifecycleEvent>::default();
        let mut listing = WatchCachedObjects::new();
        table.take(WatcherEvent::ListEnded, &mut listing);
        let at = |version: &str, key: &str| {
            let mut value = object("a", key).value.unwrap();
            value["metadata"]["resourceVersion"] = json!(version);
            FullObject::read(value.to_string().as_bytes()).unwrap()
        };
        table.insert(serde_json::from_value(at("7", "new").value.unwrap()).unwrap());
        assert!(table.take(WatcherEvent::Applied(at("5", "old")), &mut listing).is_empty());
        assert!(table.take(WatcherEvent::Deleted(at("6", "old")), &mut listing).is_empty());
        assert_eq!(names(&table.of("apps")), ["new"]);
        assert_eq!(table.take(WatcherEvent::Applied(at("8", "newer")), &mut listing).len(), 1);
        let late = serde_json::from_value(at("7", "late").value.unwrap()).unwrap();
        assert!(table.insert(late).is_none());
        assert_eq!(
            names(&table.of("apps")),
            ["newer"],
            "an answer to a write may come after the watch"
        );
        assert_eq!(table.take(WatcherEvent::Deleted(at("9", "newer")), &mut listing).len(), 1);
    }

    #[test]
    fn an_object_that_cannot_be_read_is_not_taken_for_absent() {
        let table = WatchedObjectCache::<LifecycleEvent>::default();
        let mut listing = WatchCachedObjects::new();
        let mut strange = object("a", "1").value.unwrap();
        strange["spec"]["phase"] = json!("Future");
        table.take(WatcherEvent::Listed(FullObject::of(strange)), &mut listing);
        table.take(WatcherEvent::ListEnded, &mut listing);
        assert_eq!(table.listed("apps").unwrap_err(), "LifecycleEvent a cannot be read");
        assert!(table.of("apps").is_empty());
    }
}
