//! The work queue: every wake of an object goes through it. It has the dependency graph, and a queue for each kind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use reconcile::deletion_order::DeletionOrder;
use reconcile::{DependencyEdge, DependencyGraph, ObjectKey};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::metrics::{MetricsRegistry, WakeReason};

/// Wakes objects, and knows the dependencies between them. Each object is known by its kind, namespace and name.
pub struct WorkQueue {
    graph: Mutex<DependencyGraph>,
    /// The order in which objects are deleted, for all objects that windlass sees.
    deletion_order: Mutex<DeletionOrder>,
    /// The queue of each group and kind, because two groups may have kinds of the same name.
    queues: Mutex<BTreeMap<[String; 2], UnboundedSender<ObjectKey>>>,
    /// The objects that were woken but do not run yet.
    queued: Mutex<BTreeSet<ObjectKey>>,
    /// The objects whose run is under way.
    running: Mutex<BTreeSet<ObjectKey>>,
    /// The parts of objects that were woken since the last [`Self::woken_parts`].
    parts: Mutex<BTreeSet<ObjectKey>>,
    metrics: Arc<MetricsRegistry>,
}

impl WorkQueue {
    /// A work queue without kinds.
    pub fn new(metrics: Arc<MetricsRegistry>) -> Self {
        let graph = Mutex::default();
        let deletion_order = Mutex::default();
        let queues = Mutex::default();
        let queued = Mutex::default();
        let running = Mutex::default();
        let parts = Mutex::default();
        Self { graph, deletion_order, queues, queued, running, parts, metrics }
    }

    /// Opens the queue of a kind, which returns the woken objects. Each kind has one queue.
    pub fn open(&self, kind: [&str; 2]) -> UnboundedReceiver<ObjectKey> {
        let (queue, woken) = unbounded_channel();
        let mut queues = self.queues.lock();
        queues.insert(kind.map(str::to_owned), queue);
        woken
    }

    fn graph(&self) -> MutexGuard<'_, DependencyGraph> {
        self.graph.lock()
    }

    /// Queues an object for a run. The key may also name a part of the object. A wake during a run makes the object run once
    /// more.
    pub fn wake(&self, node: &ObjectKey, why: WakeReason) {
        if node.is_part() {
            self.parts().insert(node.clone());
        }
        let node = &node.whole();
        let queues = self.queues.lock();
        if let Some(queue) = queues.get(&[node.group.clone(), node.kind.clone()]) {
            self.metrics.woke(&node.kind, why);
            if self.queued().insert(node.clone()) {
                self.metrics.queued(&node.kind).inc();
            }
            // A closed queue means that the process is shutting down.
            queue.send(node.clone()).unwrap_or_default();
        }
    }

    fn parts(&self) -> MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.parts.lock()
    }

    /// The parts of an object that were woken since the last call.
    pub fn woken_parts(&self, whole: &ObjectKey) -> BTreeSet<ObjectKey> {
        let mut parts = self.parts();
        let of_it = parts.iter().filter(|part| part.whole() == *whole).cloned().collect();
        parts.retain(|part| part.whole() != *whole);
        of_it
    }

    fn queued(&self) -> MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.queued.lock()
    }

    /// Notes that a run of an object begins.
    pub fn run_begins(&self, node: &ObjectKey) {
        // This order leaves no moment at which the object is neither queued nor running.
        self.running.lock().insert(node.clone());
        self.leaves_queue(node);
    }

    /// Notes that a run of an object has ended.
    pub fn run_ends(&self, node: &ObjectKey) {
        self.running.lock().remove(node);
    }

    /// Whether a run of an object is under way.
    pub fn is_running(&self, node: &ObjectKey) -> bool {
        self.running.lock().contains(node)
    }

    /// Whether an object is queued or its run is under way.
    pub fn is_due(&self, node: &ObjectKey) -> bool {
        self.queued().contains(node) || self.running.lock().contains(node)
    }

    /// Whether any object of a kind in a namespace is queued or running. `any` is the key that stands for all of them.
    pub fn is_any_due(&self, any: &ObjectKey) -> bool {
        has_any(&self.queued(), any) || has_any(&self.running.lock(), any)
    }

    /// Notes that an object is no longer queued, because its run begins or the object does not exist.
    pub fn leaves_queue(&self, node: &ObjectKey) {
        if self.queued().remove(node) {
            self.metrics.queued(&node.kind).dec();
        }
    }

    /// Wakes the objects that depend on this object, because its state changed. Objects that depend on any object of its kind
    /// and namespace wake as well.
    pub fn changed(&self, node: &ObjectKey) {
        let mut dependents = self.graph().changed(node);
        dependents.extend(self.graph().changed(&node.any_of_namespace()));
        for (dependent, edge) in dependents {
            let why = match edge {
                DependencyEdge::DependsOn => WakeReason::Dependency,
                DependencyEdge::Source => WakeReason::Source,
                DependencyEdge::Reference => WakeReason::Reference,
                DependencyEdge::Waits => WakeReason::Waiting,
            };
            self.wake(&dependent, why);
        }
    }

    /// Replaces the edges of one sort that start at an object.
    pub fn set_edges(&self, from: &ObjectKey, edge: DependencyEdge, to: BTreeSet<ObjectKey>) {
        self.graph().set_edges_of(from, edge, to);
    }

    /// Replaces the objects that must not be deleted before this object is gone. An object that is gone needs none.
    pub fn set_needs(&self, node: &ObjectKey, needs: &BTreeSet<ObjectKey>) {
        self.deletion_order.lock().set(node, needs);
    }

    /// The objects that have to be deleted before this object, in whichever process they run.
    pub fn dependents(&self, node: &ObjectKey) -> Vec<Arc<ObjectKey>> {
        self.deletion_order.lock().dependents(node)
    }

    /// Forgets an object that is gone, or that another process now runs.
    pub fn forget(&self, node: &ObjectKey) {
        self.leaves_queue(node);
        self.parts().retain(|part| part.whole() != *node);
        self.graph().forget(node);
    }

    /// The dependency cycle that an object is part of, if there is one.
    pub fn cycle(&self, node: &ObjectKey) -> Option<Vec<ObjectKey>> {
        self.graph().cycle(node)
    }
}

/// Whether any object belongs to the kind and namespace that `any` stands for. `any` has an empty name, so it sorts before
/// them.
fn has_any(nodes: &BTreeSet<ObjectKey>, any: &ObjectKey) -> bool {
    let first = nodes.range(any.clone()..).next();
    first.is_some_and(|node| node.any_of_namespace() == *any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_due_from_its_wake_to_the_end_of_its_run() {
        let work_queue = WorkQueue::new(MetricsRegistry::new());
        let woken = work_queue.open(["g", "Policy"]);
        let policy = |namespace: &str, name: &str| ObjectKey::new("g", "Policy", namespace, name);
        let node = policy("a", "first");
        let is_due = || (work_queue.is_due(&node), work_queue.is_any_due(&policy("a", "")));
        assert!(!work_queue.is_running(&node));
        assert_eq!(is_due(), (false, false));
        work_queue.wake(&policy("b", "first"), WakeReason::Spec);
        assert_eq!(is_due(), (false, false), "another namespace");
        work_queue.wake(&policy("a", "second"), WakeReason::Spec);
        assert_eq!(is_due(), (false, true), "another node of the namespace");
        work_queue.leaves_queue(&policy("a", "second"));
        work_queue.wake(&node, WakeReason::Spec);
        assert_eq!(is_due(), (true, true), "woken");
        work_queue.run_begins(&node);
        assert_eq!(is_due(), (true, true), "running");
        assert!(work_queue.is_running(&node));
        work_queue.run_ends(&node);
        assert_eq!(is_due(), (false, false));
        drop(woken);
    }

    #[test]
    fn what_depends_on_any_object_of_a_kind_is_woken_by_each_of_its_namespace() {
        let work_queue = WorkQueue::new(MetricsRegistry::new());
        let mut woken = work_queue.open(["g", "Dependent"]);
        let dependent = ObjectKey::new("g", "Dependent", "a", "x");
        let policy = |namespace: &str, name: &str| ObjectKey::new("g", "Policy", namespace, name);
        let any = policy("a", "first").any_of_namespace();
        work_queue.set_edges(&dependent, DependencyEdge::Source, BTreeSet::from([any]));
        for (changed, expected) in [
            (policy("a", "first"), true),
            (policy("a", "second"), true),
            (policy("b", "first"), false),
            (ObjectKey::new("g", "Other", "a", "first"), false),
        ] {
            work_queue.changed(&changed);
            assert_eq!(woken.try_recv().ok(), expected.then(|| dependent.clone()), "{changed}");
        }
    }
}
