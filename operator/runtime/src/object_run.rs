//! Runs the objects of any kind. Each object has at most one run at a time, which the work queue starts, and runs do not
//! affect each other.

mod startup_pacing;
mod store_updater;
mod unreadable_object;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crds::ReconciledObject as _;
use futures::stream::{self, StreamExt as _};
use futures::{FutureExt as _, TryStreamExt as _};
use kube_core::{Resource as _, ResourceExt as _};
use parking_lot::Mutex;
use reconcile::ObjectKey;
use reconcile::deletion_order::SKIP_ORDER;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use self::store_updater::StoreUpdater;
use super::controller_kind::{ControllerKind, REQUESTED_AT, node_named, node_of};
use super::depends_on_annotation::DEPENDS_ON;
use super::run_context::RunContext;
use windlass_cluster::ClusterError;
use windlass_cluster::announced_failures::AnnouncedFailures;
use windlass_cluster::kube_runtime::controller::{self, Action, Config, applier};
use windlass_cluster::kube_runtime::reflector::ObjectRef;
use windlass_cluster::metrics::WakeReason;
use windlass_cluster::object_decode::UnreadableObject;
use windlass_cluster::object_store::ObjectStore;
use windlass_cluster::windlass_kind::WindlassKind;

/// A string of the fields whose change starts a run: generation, requests, annotations and deletion.
fn trigger<K: ControllerKind>(object: &K::Object) -> String {
    let meta = object.meta();
    let requested = object.annotations().get(REQUESTED_AT).map_or("", String::as_str);
    let deleting = meta.deletion_timestamp.is_some();
    let keys = super::hold_conditions::ANNOTATIONS.iter().chain(K::ANNOTATIONS);
    let keys = keys.chain(K::Object::APPLIES.then_some(&DEPENDS_ON)).chain([&SKIP_ORDER]);
    let asked: Vec<_> = keys.map(|key| object.annotations().get(*key)).collect();
    format!("{:?} {deleting} {requested} {asked:?}", meta.generation)
}

/// A digest of a text that is only compared. It saves memory, because each object has one.
type TextDigest = [u8; 32];

fn digest_of(text: &str) -> TextDigest {
    Sha256::digest(text).into()
}

/// The facts about an object when a watch last saw it.
#[derive(Clone)]
struct ObservedObjectDigests {
    trigger: TextDigest,
    announcement: TextDigest,
    ours: bool,
}

/// Compares each watch event with the last facts about the object, and wakes the object or its dependents.
struct WatchEventHandler {
    context: Arc<RunContext>,
    last: Mutex<BTreeMap<ObjectKey, ObservedObjectDigests>>,
    /// The objects of this shard that cannot be read.
    unreadable: Mutex<BTreeMap<ObjectKey, Arc<UnreadableObject>>>,
    /// The permits for writing the statuses of unreadable objects.
    telling: Arc<Semaphore>,
    /// Whether runs have begun. Before that, the store is filled and no object wakes.
    awake: AtomicBool,
}

/// Whether an object belongs to the shard of this process.
///
/// Differs(flux): every object is watched and those of other shards are not run, so that sources and dependencies
/// are known wherever they belong.
fn is_ours<K: WindlassKind>(object: &K, context: &RunContext) -> bool {
    context.settings.selects(object.labels())
}

/// Forgets everything about an object that is gone or now belongs to another shard. The objects that it applied stay in the
/// cluster.
fn let_go<K: ControllerKind>(node: &ObjectKey, context: &RunContext) {
    K::forget(node, context);
    context.metrics.forget(node);
    context.work_queue.forget(node);
    context.watcher.forget(node);
    context.shared::<AnnouncedFailures>().forget(node);
}

impl WatchEventHandler {
    fn new(context: Arc<RunContext>) -> Self {
        let last = Mutex::default();
        let unreadable = Mutex::default();
        let awake = AtomicBool::default();
        Self { context, last, unreadable, telling: unreadable_object::permits(), awake }
    }

    /// Handles an object that exists but cannot be read. Its dependents see it as deleted.
    fn unreadable<K: ControllerKind>(&self, object: UnreadableObject) {
        let node = node_named::<K::Object>(&object.meta.namespace, &object.meta.name);
        if let Some(known) = self.forget_last(&node) {
            self.count::<K>(known.ours, false);
            self.gone::<K>(&node);
        }
        if !self.context.settings.selects(object.meta.labels.as_ref().unwrap_or(&BTreeMap::new())) {
            return;
        }
        let object = Arc::new(object);
        {
            let mut all = self.unreadable.lock();
            // The write of its condition causes another event.
            let known = all.insert(node, object.clone());
            if known.is_some_and(|known| unreadable_object::is_same(&known, &object)) {
                return;
            }
        }
        unreadable_object::log::<K::Object>(&object);
        if self.awake.load(Ordering::Acquire) {
            self.tell::<K>(object);
        }
    }

    fn tell<K: ControllerKind>(&self, object: Arc<UnreadableObject>) {
        let context = self.context.clone();
        let permits = self.telling.clone();
        tokio::spawn(unreadable_object::tell::<K::Object>(context, object, permits));
    }

    fn is_live<K: WindlassKind>(&self, live: bool) {
        self.context.metrics.watch_is_live(&K::kind(&()), live);
    }

    fn forget_last(&self, node: &ObjectKey) -> Option<ObservedObjectDigests> {
        self.last.lock().remove(node)
    }

    /// Counts an object that came to this process or left it.
    fn count<K: ControllerKind>(&self, was_ours: bool, is_ours: bool) {
        let kind = K::Object::kind(&());
        match (was_ours, is_ours) {
            (false, true) => self.context.metrics.object_came(&kind),
            (true, false) => self.context.metrics.object_left(&kind),
            (true, true) | (false, false) => {}
        }
    }

    fn is_readable_again(&self, node: &ObjectKey) {
        self.unreadable.lock().remove(node);
    }

    fn applied<K: ControllerKind>(&self, object: &K::Object) {
        let node = node_of(object);
        self.is_readable_again(&node);
        let now = ObservedObjectDigests {
            trigger: digest_of(&trigger::<K>(object)),
            announcement: digest_of(&K::announcement(object)),
            ours: is_ours(object, &self.context),
        };
        let before = {
            let mut last = self.last.lock();
            last.insert(node.clone(), now.clone())
        };
        self.count::<K>(before.as_ref().is_some_and(|b| b.ours), now.ours);
        // A run in progress needs the answers to its own writes until it ends.
        if !self.context.work_queue.is_running(&node) {
            K::caught_up(&node, object, &self.context);
        }
        self.context.work_queue.set_needs(&node, &K::needs(object, &self.context));
        let is_awake = self.awake.load(Ordering::Acquire);
        let is_new = before.as_ref().is_none_or(|b| b.trigger != now.trigger || !b.ours);
        if is_awake && now.ours && is_new {
            self.context.work_queue.wake(&node, WakeReason::Spec);
        }
        if !now.ours && before.as_ref().is_some_and(|b| b.ours) {
            let_go::<K>(&node, &self.context);
        }
        if before.is_none_or(|b| b.announcement != now.announcement) {
            self.context.work_queue.changed(&node);
        }
    }

    /// Starts the runs, because this process now leads. All known objects run, and later every object that changes.
    fn wake_all<K: ControllerKind>(&self, present: &[Arc<K::Object>]) {
        self.awake.store(true, Ordering::Release);
        let ours = present.iter().filter(|object| is_ours(&***object, &self.context));
        startup_pacing::wake::<K>(&self.context, ours.cloned().collect());
        let unreadable = self.unreadable.lock().clone();
        for object in unreadable.into_values() {
            self.tell::<K>(object);
        }
    }

    fn deleted<K: ControllerKind>(&self, node: &ObjectKey) {
        self.is_readable_again(node);
        let known = self.forget_last(node);
        self.count::<K>(known.is_some_and(|known| known.ours), false);
        self.gone::<K>(node);
    }

    /// Forgets everything about an object that is gone, and wakes the objects that depend on it.
    fn gone<K: ControllerKind>(&self, node: &ObjectKey) {
        let_go::<K>(node, &self.context);
        self.context.work_queue.set_needs(node, &BTreeSet::new());
        self.context.work_queue.changed(node);
    }

    /// Handles a complete list of the watch. An object that is missing in the list was deleted without an event.
    fn listed<K: ControllerKind>(
        &self,
        objects: &[Arc<K::Object>],
        unreadable: &BTreeSet<ObjectKey>,
    ) {
        self.unreadable.lock().retain(|node, _| unreadable.contains(node));
        let present: BTreeSet<ObjectKey> = objects.iter().map(|o| node_of(&**o)).collect();
        let missing: Vec<(ObjectKey, ObservedObjectDigests)> = {
            let mut last = self.last.lock();
            last.extract_if(.., |node, _| !present.contains(node)).collect()
        };
        for (node, known) in missing {
            self.count::<K>(known.ours, false);
            self.gone::<K>(&node);
        }
        for object in objects {
            self.applied::<K>(object);
        }
    }
}

/// Runs the objects of a kind until `stop` completes. Then the runs in progress end and no new ones begin. Only the first call
/// for a kind has an effect.
pub async fn run_kind<K: ControllerKind>(
    context: Arc<RunContext>,
    stop: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let Some(store_writer) = context.shared::<ObjectStore<K::Object>>().store_writer() else {
        return;
    };
    let store = store_writer.writer.as_reader();
    let namespace = (!context.settings.watch_all_namespaces)
        .then(|| context.settings.runtime_namespace.clone());
    let notices = Arc::new(WatchEventHandler::new(context.clone()));
    let woken = context.work_queue.open([&K::Object::group(&()), &K::Object::kind(&())]);
    let events = context.cluster.watch_ours::<K::Object>(namespace.as_deref());
    let begin = {
        let notices = notices.clone();
        let store = store.clone();
        let listed = context.kept.listed::<K::Object>();
        async move {
            let is_listed = listed.await;
            // A standby process keeps its store filled and watches what was applied, so that it can start at once.
            tokio::spawn(startup_pacing::observe::<K>(notices.context.clone(), store.state()));
            notices.context.cluster.leadership.begun().await;
            if is_listed {
                notices.wake_all::<K>(&store.state());
            }
            None::<Result<ObjectRef<K::Object>, ClusterError>>
        }
    };
    let begin = stream::once(begin).filter_map(std::future::ready);
    let mut store_updater = StoreUpdater::<K>::new(store_writer, notices);
    let watched = events.filter_map(move |seen| {
        store_updater.take(seen);
        std::future::ready(None::<Result<ObjectRef<K::Object>, ClusterError>>)
    });
    let wakes = stream::unfold(woken, |mut woken| async move {
        let node = woken.recv().await?;
        let object = ObjectRef::<K::Object>::new(&node.name).within(&node.namespace);
        Some((Ok(object), woken))
    });
    let events = stream::select(Box::pin(begin), Box::pin(watched));
    let queue = stream::select(events, Box::pin(wakes)).take_until(stop);
    let config = Config::default().concurrency(UNBOUNDED_CONCURRENCY);
    let work_queue = context.work_queue.clone();
    applier(
        |object: Arc<K::Object>, context: Arc<RunContext>| {
            apart(isolated::<K>(object, context)).boxed()
        },
        |_, never: &std::convert::Infallible, _| match *never {},
        context,
        store,
        queue,
        config,
    )
    .map_err(move |error| {
        if let controller::Error::ObjectNotFound(gone) = &error {
            let namespace = gone.namespace.as_deref().unwrap_or_default();
            work_queue.leaves_queue(&node_named::<K::Object>(namespace, &gone.name));
        }
        tracing::debug!(error = %error, "reconciliation request dropped");
    })
    .for_each(|_| async {})
    .await;
}

/// Runs are limited only where they use a processor (`RunContext::building`, `RunContext::fetching`) or an API server
/// (`ClusterTarget::applying`). With a limit of all runs, one dead cluster or remote would delay every object.
const UNBOUNDED_CONCURRENCY: u16 = 0;

/// Spawns a run as a task of its own. The task ends with the controller.
///
/// The controller polls all runs whenever one of them wakes it. So it polls only the handle of a task, which is cheap and
/// wakes it once.
async fn apart(
    run: impl Future<Output = Result<Action, std::convert::Infallible>> + Send + 'static,
) -> Result<Action, std::convert::Infallible> {
    let task = AbortOnDropHandle::new(tokio::spawn(run.in_current_span()));
    // A panic is caught inside of the run. Only the end of the async runtime aborts the task.
    task.await.unwrap_or_else(|_| Ok(Action::await_change()))
}

/// When a run that panicked is retried.
const AFTER_PANIC: Duration = Duration::from_secs(60);

/// Performs one run and measures it. A panic is caught and reported, and does not affect other runs.
async fn isolated<K: ControllerKind>(
    object: Arc<K::Object>,
    context: Arc<RunContext>,
) -> Result<Action, std::convert::Infallible> {
    let node = node_of(&*object);
    if !is_ours(&*object, &context) {
        // The object left the shard during the run, and the run may have stored something about it.
        let_go::<K>(&node, &context);
        return Ok(Action::await_change());
    }
    context.work_queue.run_begins(&node);
    let begun = Instant::now();
    let ObjectKey { kind, namespace, name, .. } = &node;
    tracing::debug!(controller_kind = kind, name, namespace, "reconciliation begins");
    context.metrics.running.inc();
    let outcome = AssertUnwindSafe(K::run(object.clone(), context.clone())).catch_unwind().await;
    context.metrics.running.dec();
    context.work_queue.run_ends(&node);
    if let Some(seen) = context.seen::<K::Object>(namespace, name) {
        K::caught_up(&node, &seen, &context);
    }
    context.metrics.reconciled(&node, begun.elapsed());
    let again = match outcome {
        Ok(again) => again,
        Err(_) => {
            tracing::error!(
                controller_kind = node.kind,
                name = node.name,
                namespace = node.namespace,
                "reconciliation panicked; this is a bug in windlass, please report it"
            );
            let event = windlass_cluster::events::ObjectEvent {
                severity: windlass_cluster::events::EventSeverity::Error,
                reason: "InternalFault".to_owned(),
                message: "reconciliation panicked and will be retried; this is a bug in windlass, please report it \
                          with the log of that time"
                    .to_owned(),
                metadata: BTreeMap::new(),
            };
            context.events.announce(&*object, K::Object::CONTROLLER, event);
            Some(AFTER_PANIC)
        }
    };
    let again = super::change_window::sooner(&*object, again);
    tracing::debug!(controller_kind = kind, name, namespace, ?again, "reconciliation ends");
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}
