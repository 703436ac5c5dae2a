//! The one place through which anything wakes a node: the dependency graph, and the queue of each kind's runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use reconcile::deletion_order::DeletionOrder;
use reconcile::{DependencyEdge, DependencyGraph, ObjectKey};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::metrics::{MetricsRegistry, WakeReason};

/// Wakes nodes, and knows which of them depend on which.
pub struct WorkQueue {
    graph: Mutex<DependencyGraph>,
    /// Which objects leave before others, of all that are seen.
    deletion_order: Mutex<DeletionOrder>,
    /// The queues by group and kind, because two groups may have kinds of the same name.
    queues: Mutex<BTreeMap<[String; 2], UnboundedSender<ObjectKey>>>,
    /// The nodes that were woken and do not run yet.
    queued: Mutex<BTreeSet<ObjectKey>>,
    /// The nodes that run.
    running: Mutex<BTreeSet<ObjectKey>>,
    /// The parts of nodes that were woken since the last [`Self::woken_parts`].
    parts: Mutex<BTreeSet<ObjectKey>>,
    metrics: Arc<MetricsRegistry>,
}

impl WorkQueue {
    /// A work queue without queues of kinds.
    pub fn new(metrics: Arc<MetricsRegistry>) -> Self {
        let graph = Mutex::default();
        let deletion_order = Mutex::default();
        let queues = Mutex::default();
        let queued = Mutex::default();
        let running = Mutex::default();
        let parts = Mutex::default();
        Self { graph, deletion_order, queues, queued, running, parts, metrics }
    }

    /// Opens the queue of a group and kind, which returns the woken nodes. A kind has one queue.
    pub fn open(&self, kind: [&str; 2]) -> UnboundedReceiver<ObjectKey> {
        let (queue, woken) = unbounded_channel();
        let mut queues = self.queues.lock();
        queues.insert(kind.map(str::to_owned), queue);
        woken
    }

    fn graph(&self) -> MutexGuard<'_, DependencyGraph> {
        self.graph.lock()
    }

    /// Queues a node for reconciliation, or the node whose part it is; a wake during a run makes it run once more.
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

    /// The parts of a node that were woken since the last call.
    pub fn woken_parts(&self, whole: &ObjectKey) -> BTreeSet<ObjectKey> {
        let mut parts = self.parts();
        let of_it = parts.iter().filter(|part| part.whole() == *whole).cloned().collect();
        parts.retain(|part| part.whole() != *whole);
        of_it
    }

    fn queued(&self) -> MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.queued.lock()
    }

    /// Notes that a run of a node begins.
    pub fn run_begins(&self, node: &ObjectKey) {
        // In this order there is no moment at which it is neither queued nor running.
        self.running.lock().insert(node.clone());
        self.leaves_queue(node);
    }

    /// Notes that a run of a node has ended.
    pub fn run_ends(&self, node: &ObjectKey) {
        self.running.lock().remove(node);
    }

    /// Whether a node runs.
    pub fn is_running(&self, node: &ObjectKey) -> bool {
        self.running.lock().contains(node)
    }

    /// Whether a node runs or is woken to run.
    pub fn is_due(&self, node: &ObjectKey) -> bool {
        self.queued().contains(node) || self.running.lock().contains(node)
    }

    /// Whether any node of a kind and namespace runs or is woken to run; `any` is the node that stands for all of them.
    pub fn is_any_due(&self, any: &ObjectKey) -> bool {
        has_any(&self.queued(), any) || has_any(&self.running.lock(), any)
    }

    /// Notes that a node is not queued any more: its run begins, or there is no object of that name.
    pub fn leaves_queue(&self, node: &ObjectKey) {
        if self.queued().remove(node) {
            self.metrics.queued(&node.kind).dec();
        }
    }

    /// Wakes the dependents of a node, and those of any node of its kind and namespace, because its state changed.
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

    /// Replaces one sort of edges of a node.
    pub fn set_edges(&self, from: &ObjectKey, edge: DependencyEdge, to: BTreeSet<ObjectKey>) {
        self.graph().set_edges_of(from, edge, to);
    }

    /// Replaces what has to stay until a node is gone. A node that is gone needs nothing.
    pub fn set_needs(&self, node: &ObjectKey, needs: &BTreeSet<ObjectKey>) {
        self.deletion_order.lock().set(node, needs);
    }

    /// The objects that leave before a node, wherever they are run.
    pub fn dependents(&self, node: &ObjectKey) -> Vec<Arc<ObjectKey>> {
        self.deletion_order.lock().dependents(node)
    }

    /// A node is gone, or is run by another process now.
    pub fn forget(&self, node: &ObjectKey) {
        self.leaves_queue(node);
        self.parts().retain(|part| part.whole() != *node);
        self.graph().forget(node);
    }

    /// The cycle of dependencies that a node is part of.
    pub fn cycle(&self, node: &ObjectKey) -> Option<Vec<ObjectKey>> {
        self.graph().cycle(node)
    }
}

/// Whether there is a node among others for which `any` stands. Its name is empty, so that it comes before them.
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
