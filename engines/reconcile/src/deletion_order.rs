//! The order in which objects are deleted: an object that needs another one is deleted first.
//!
//! Here: which object needs which ([`DeletionOrder`]), and whether a deletion waits for a dependent that still exists
//! ([`DependentFacts`]).
//! Elsewhere: what triggers the run of an object (`dependency_graph.rs`), reading dependents (the program), the deletion order
//! within one Kustomization (`apply::deletion_order`).

use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::sync::Arc;
use std::time::Duration;

use crate::ObjectKey;

type Edges = BTreeMap<Arc<ObjectKey>, BTreeSet<Arc<ObjectKey>>>;

/// The annotation with which a user deletes an object although other objects that depend on it still exist.
pub const SKIP_ORDER: &str = "windlass.dev/skip-order";

/// The annotation on an object whose deletion delayed that of another object for too long. Its value names the other object.
pub const DELETION_OVERDUE: &str = "windlass.dev/deletion-overdue";

/// The most edges that a search for the cycles of a few nodes follows. Beyond that, one search finds the cycles of all nodes.
const MAX_FOLLOWED_EDGES: usize = 20_000;

/// The set of a node that needs nothing.
static NO_NODES: BTreeSet<Arc<ObjectKey>> = BTreeSet::new();

/// Records which objects need which other objects to exist until they are deleted themselves. An object needs the objects in
/// its `dependsOn`, and objects that its finalizer may use.
///
/// Unlike [`crate::DependencyGraph`], it has edges of all known objects, also of those that have not run since the process
/// started. Names are shared to save memory: each of ten thousand objects may have 64 edges.
#[derive(Debug, Clone, Default)]
pub struct DeletionOrder {
    /// From a node to the nodes that must exist until it is deleted. Nodes without edges are absent, here and below.
    needs: Edges,
    /// The same edges in reverse: from a node to its dependents.
    dependents: Edges,
    /// The number of the cycle that contains a node. Nodes of the same cycle have the same number.
    cycles: BTreeMap<Arc<ObjectKey>, usize>,
    /// Nodes whose cycles must be computed again, because edges changed.
    unsettled: BTreeSet<Arc<ObjectKey>>,
    /// The next free number for a cycle.
    next_cycle: usize,
}

impl DeletionOrder {
    /// Replaces the set of objects that a node needs until it is deleted. A deleted node needs nothing.
    pub fn set(&mut self, node: &ObjectKey, needs: &BTreeSet<ObjectKey>) {
        let known = self.needs.get(node).unwrap_or(&NO_NODES);
        let wanted = || needs.iter().filter(|needed| *needed != node);
        if known.iter().map(|it| &**it).eq(wanted()) {
            return;
        }
        // A new edge closes a cycle only if the node has dependents and the needed node needs other nodes itself.
        let is_new =
            |needed: &&ObjectKey| !known.contains(*needed) && self.needs.contains_key(*needed);
        let is_closed =
            self.dependents.contains_key(node) && wanted().any(|needed| is_new(&needed));
        let own = self.cycles.get(node).copied();
        let is_cut =
            |it: &Arc<ObjectKey>| self.cycles.get(it).copied() == own && !needs.contains(&**it);
        let broken = own.filter(|_| known.iter().any(is_cut));
        let name = self.shared(node);
        if let Some(broken) = broken {
            let members = self.cycles.iter().filter(|(_, cycle)| **cycle == broken);
            self.unsettled.extend(members.map(|(member, _)| member.clone()));
        }
        if is_closed {
            self.unsettled.insert(name.clone());
        }
        for needed in self.needs.remove(node).unwrap_or_default() {
            if let Some(of_needed) = self.dependents.get_mut(&needed) {
                of_needed.remove(node);
                if of_needed.is_empty() {
                    self.dependents.remove(&needed);
                }
            }
        }
        let needs: BTreeSet<Arc<ObjectKey>> = wanted().map(|it| self.shared(it)).collect();
        for needed in &needs {
            self.dependents.entry(needed.clone()).or_default().insert(name.clone());
        }
        if needs.is_empty() {
            self.cycles.remove(node);
            self.unsettled.remove(node);
        } else {
            self.needs.insert(name, needs);
        }
    }

    fn shared(&self, node: &ObjectKey) -> Arc<ObjectKey> {
        let known = self.needs.get_key_value(node).or_else(|| self.dependents.get_key_value(node));
        known.map_or_else(|| Arc::new(node.clone()), |(name, _)| name.clone())
    }

    /// The objects that must be deleted before a node, in order. Objects in a cycle with the node are left out, because
    /// otherwise none of them could ever be deleted.
    pub fn dependents(&mut self, node: &ObjectKey) -> Vec<Arc<ObjectKey>> {
        // A node that needs nothing, or that nothing needs, is in no cycle.
        if self.needs.contains_key(node) && self.dependents.contains_key(node) {
            self.settle();
        }
        let dependents = self.dependents.get(node).unwrap_or(&NO_NODES);
        let own = self.cycles.get(node);
        let is_before = |it: &&Arc<ObjectKey>| own.is_none() || self.cycles.get(*it) != own;
        dependents.iter().filter(is_before).cloned().collect()
    }

    /// Recomputes the cycles of the nodes whose edges changed. This is cheap if few nodes lead to them or they lead to few
    /// nodes, as with the objects of one tenant. Otherwise it costs little more than a search for all cycles.
    fn settle(&mut self) {
        let Self { needs, dependents, cycles, unsettled, next_cycle } = self;
        let mut left = MAX_FOLLOWED_EDGES;
        while let Some(node) = unsettled.pop_first() {
            let Some(edges) = smaller_side(&node, needs, dependents, &mut left) else {
                *cycles = all_cycles(needs);
                *next_cycle = needs.len().saturating_add(dependents.len());
                unsettled.clear();
                return;
            };
            let mut search = CycleSearch::default();
            search.follow(&node, edges);
            // The search ends only where no edge leads on, so every cycle of a reached node was found as a whole.
            for reached in search.reached.keys() {
                cycles.remove(*reached);
                unsettled.remove(*reached);
            }
            let first = *next_cycle;
            *next_cycle = first.saturating_add(search.reached.len());
            let found = search.cycles.into_iter();
            cycles.extend(found.map(|(member, cycle)| (member, first.saturating_add(cycle))));
        }
    }
}

/// Chooses the cheaper direction of a search from a node: to its needs, or to its dependents. `None` if both directions have
/// more edges than `left`, which counts down.
fn smaller_side<'e>(
    node: &Arc<ObjectKey>,
    needs: &'e Edges,
    dependents: &'e Edges,
    left: &mut usize,
) -> Option<&'e Edges> {
    let mut sides = [EdgeWalk::from(node, needs), EdgeWalk::from(node, dependents)];
    loop {
        for side in &mut sides {
            if !side.follow() {
                return Some(side.edges);
            }
            *left = left.checked_sub(1)?;
        }
    }
}

/// Follows edges from a node one by one.
struct EdgeWalk<'e> {
    edges: &'e Edges,
    reached: BTreeSet<&'e ObjectKey>,
    open: Vec<btree_set::Iter<'e, Arc<ObjectKey>>>,
}

impl<'e> EdgeWalk<'e> {
    fn from(node: &ObjectKey, edges: &'e Edges) -> Self {
        let open = vec![edges.get(node).unwrap_or(&NO_NODES).iter()];
        Self { edges, reached: BTreeSet::new(), open }
    }

    /// Follows one edge; false if no edge is left.
    fn follow(&mut self) -> bool {
        while let Some(rest) = self.open.last_mut() {
            let Some(next) = rest.next() else {
                self.open.pop();
                continue;
            };
            if self.reached.insert(next) {
                self.open.push(self.edges.get(next).unwrap_or(&NO_NODES).iter());
            }
            return true;
        }
        false
    }
}

/// Finds all nodes that are in cycles. Nodes of the same cycle get the same number.
fn all_cycles(edges: &Edges) -> BTreeMap<Arc<ObjectKey>, usize> {
    let mut search = CycleSearch::default();
    for start in edges.keys() {
        if !search.reached.contains_key(&**start) {
            search.follow(start, edges);
        }
    }
    search.cycles
}

/// The state of a node in the search.
struct CycleSearchNode {
    /// How many nodes were reached before this one.
    at: usize,
    /// The earliest known node of the same cycle.
    first: usize,
    /// Whether its cycle may have further nodes.
    is_open: bool,
}

/// Tarjan's search for strongly connected components. It does not recurse, because a graph can be as deep as it is large.
#[derive(Default)]
struct CycleSearch<'e> {
    reached: BTreeMap<&'e ObjectKey, CycleSearchNode>,
    open: Vec<&'e Arc<ObjectKey>>,
    cycles: BTreeMap<Arc<ObjectKey>, usize>,
}

impl<'e> CycleSearch<'e> {
    fn follow(&mut self, start: &'e Arc<ObjectKey>, edges: &'e Edges) {
        let needs = |node: &Arc<ObjectKey>| edges.get(node).unwrap_or(&NO_NODES).iter();
        self.enter(start);
        let mut path = vec![(start, needs(start))];
        while let Some((node, rest)) = path.last_mut() {
            let node: &'e Arc<ObjectKey> = node;
            match rest.next() {
                Some(next) => match self.reached.get(&**next) {
                    None => {
                        self.enter(next);
                        path.push((next, needs(next)));
                    }
                    Some(CycleSearchNode { at, is_open: true, .. }) => {
                        let at = *at;
                        self.lead_back(node, at);
                    }
                    Some(_) => {}
                },
                None => {
                    path.pop();
                    let first = self.leave(node);
                    if let Some((before, _)) = path.last() {
                        self.lead_back(before, first);
                    }
                }
            }
        }
    }

    fn enter(&mut self, node: &'e Arc<ObjectKey>) {
        let at = self.reached.len();
        self.reached.insert(node, CycleSearchNode { at, first: at, is_open: true });
        self.open.push(node);
    }

    fn lead_back(&mut self, node: &ObjectKey, to: usize) {
        if let Some(reached) = self.reached.get_mut(node) {
            reached.first = reached.first.min(to);
        }
    }

    /// Called when all edges from a node were followed. Returns the earliest node that it leads back to.
    fn leave(&mut self, node: &ObjectKey) -> usize {
        let Some(CycleSearchNode { at, first, .. }) = self.reached.get(node) else {
            return usize::MAX;
        };
        let at = *at;
        let first = *first;
        if first != at {
            return first;
        }
        let mut members = Vec::new();
        while let Some(member) = self.open.pop() {
            if let Some(reached) = self.reached.get_mut(&**member) {
                reached.is_open = false;
            }
            members.push(member);
            if **member == *node {
                break;
            }
        }
        if members.len() > 1 {
            self.cycles.extend(members.into_iter().map(|member| (member.clone(), at)));
        }
        // The cycle is complete and leads back to no open node.
        usize::MAX
    }
}

/// Facts about a dependent of an object that is being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DependentFacts {
    /// Whether deleting the dependent deletes the objects that it applied. This holds if it applied objects, is not suspended,
    /// and its policy does not keep them.
    pub removes_objects: bool,
    /// Whether the dependent is being deleted or soon will be. That is so if the client that deletes the other object deletes
    /// both, or if the namespace of the dependent ends.
    pub is_leaving: bool,
    /// Whether the dependent is in the same namespace as the other object.
    pub is_of_same_namespace: bool,
}

/// Whether a dependent is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DependentWait {
    /// The deletion does not wait for the dependent.
    NotAwaited,
    /// The deletion waits for the dependent.
    Awaited,
    /// The deletion waited for a dependent of another namespace, and the limit for that has passed.
    Overdue,
}

impl DependentFacts {
    /// Whether a deletion that began `since` ago waits for this dependent. For a dependent in another namespace it waits no
    /// longer than `limit`, so that a tenant cannot block objects of other owners.
    pub fn wait(self, since: Duration, limit: Duration) -> DependentWait {
        if !self.removes_objects || !self.is_leaving {
            return DependentWait::NotAwaited;
        }
        match !self.is_of_same_namespace && since >= limit {
            true => DependentWait::Overdue,
            false => DependentWait::Awaited,
        }
    }
}

/// The status text of an object whose deletion waits for dependents. `may_be_more` says that there may be further dependents.
/// `is_asked` says that a user set [`SKIP_ORDER`] without effect.
pub fn waiting_text(awaited: &BTreeSet<ObjectKey>, may_be_more: bool, is_asked: bool) -> String {
    let mut names: Vec<String> = awaited.iter().map(ObjectKey::to_string).collect();
    names.extend(may_be_more.then(|| "possibly others".to_owned()));
    let advice = match is_asked {
        true => format!(
            "the annotation {SKIP_ORDER} does not count, because the admission policy that proves its user is not in force; apply \
             deploy/policies/skip-order.yaml"
        ),
        false => format!("to go on without that, set the annotation {SKIP_ORDER} to a reason"),
    };
    let names = names.join(", ");
    format!("Waiting for the deletion of {names}, which depend on this object; {advice}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(name: &str) -> ObjectKey {
        ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", name)
    }

    fn order(edges: &[(&str, &[&str])]) -> DeletionOrder {
        let mut order = DeletionOrder::default();
        for (from, to) in edges {
            order.set(&node(from), &to.iter().map(|name| node(name)).collect());
        }
        order
    }

    fn before(order: &mut DeletionOrder, name: &str) -> String {
        let dependents = order.dependents(&node(name));
        dependents.iter().map(|it| it.name.clone()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_depends_on_a_node_leaves_before_it_until_it_is_gone_or_depends_on_others() {
        let mut order = order(&[("app", &["db", "base"]), ("db", &["base"])]);
        assert_eq!(before(&mut order, "base"), "app db");
        assert_eq!(before(&mut order, "db"), "app");
        assert_eq!(before(&mut order, "app"), "");
        order.set(&node("app"), &BTreeSet::from([node("db")]));
        assert_eq!(before(&mut order, "base"), "db");
        order.set(&node("db"), &BTreeSet::new());
        assert_eq!(before(&mut order, "base"), "");
        order.set(&node("app"), &BTreeSet::new());
        assert!(order.needs.is_empty() && order.dependents.is_empty());
    }

    #[test]
    fn members_of_a_cycle_do_not_wait_for_each_other_and_others_wait_for_them() {
        let edges: &[(&str, &[&str])] = &[
            ("a", &["b", "base"]),
            ("b", &["c"]),
            ("c", &["a"]),
            ("top", &["b"]),
            ("own", &["own"]),
        ];
        let mut order = order(edges);
        assert_eq!(before(&mut order, "a"), "");
        assert_eq!(before(&mut order, "b"), "top");
        assert_eq!(before(&mut order, "base"), "a");
        assert_eq!(before(&mut order, "own"), "");
        // A cycle that comes later is found, too.
        order.set(&node("base"), &BTreeSet::from([node("top")]));
        assert_eq!(before(&mut order, "b"), "");
        assert_eq!(before(&mut order, "base"), "");
        // One that does not exist any more is none.
        order.set(&node("base"), &BTreeSet::new());
        order.set(&node("b"), &BTreeSet::from([node("base")]));
        assert_eq!(before(&mut order, "b"), "a top");
        assert_eq!(before(&mut order, "a"), "c");
    }

    #[test]
    fn an_edge_of_one_object_does_not_have_all_others_searched() {
        let mut order = DeletionOrder::default();
        let name = |at: usize| node(&format!("n{at:05}"));
        for at in 0..10_000 {
            order.set(&name(at), &BTreeSet::from([name(at + 1)]));
        }
        order.set(&node("top"), &BTreeSet::from([name(0)]));
        order.set(&node("own"), &BTreeSet::from([node("top")]));
        order.dependents(&name(5));
        order.set(&node("top"), &BTreeSet::from([name(0), node("own")]));
        let mut left = 10;
        let name = Arc::new(node("top"));
        assert!(smaller_side(&name, &order.needs, &order.dependents, &mut left).is_some());
        assert_eq!(before(&mut order, "own"), "");
    }

    #[test]
    fn a_long_cycle_is_found_without_recursion() {
        let mut order = DeletionOrder::default();
        let name = |at: usize| node(&format!("n{at:05}"));
        for at in 0..10_000 {
            order.set(&name(at), &BTreeSet::from([name((at + 1) % 10_000)]));
        }
        assert_eq!(order.dependents(&name(5)), Vec::<Arc<ObjectKey>>::new());
    }

    #[test]
    fn only_what_removes_objects_and_leaves_is_awaited_and_across_namespaces_not_for_ever() {
        let hour = Duration::from_secs(3600);
        let wait = |removes_objects, is_leaving, is_of_same_namespace, since| {
            let facts = DependentFacts { removes_objects, is_leaving, is_of_same_namespace };
            facts.wait(since, Duration::from_secs(600))
        };
        assert_eq!(wait(false, true, true, Duration::ZERO), DependentWait::NotAwaited);
        assert_eq!(wait(true, false, true, Duration::ZERO), DependentWait::NotAwaited);
        assert_eq!(wait(true, true, true, hour), DependentWait::Awaited);
        assert_eq!(wait(true, true, false, Duration::ZERO), DependentWait::Awaited);
        assert_eq!(wait(true, true, false, hour), DependentWait::Overdue);
        assert_eq!(wait(false, true, false, hour), DependentWait::NotAwaited);
    }

    #[test]
    fn a_status_names_what_is_awaited_and_what_a_user_may_do() {
        let awaited = BTreeSet::from([node("a"), node("b")]);
        let wanted = "Waiting for the deletion of Kustomization/shop/a, Kustomization/shop/b, which depend on this object; to go on \
                      without that, set the annotation windlass.dev/skip-order to a reason";
        assert_eq!(waiting_text(&awaited, false, false), wanted);
        let text = waiting_text(&awaited, true, true);
        assert!(text.contains("Kustomization/shop/b, possibly others, which"), "{text}");
        assert!(text.contains("skip-order.yaml"), "{text}");
    }

    proptest! {
        /// Whichever edges come and go: the cycles are those that a search of all edges finds.
        #[test]
        fn cycles_are_known_whatever_changes(
            changes in prop::collection::vec((0..8_usize, prop::collection::btree_set(0..8_usize, 0..3)), 0..40),
        ) {
            let mut order = DeletionOrder::default();
            for (from, to) in changes {
                let needs = to.iter().map(|at| node(&at.to_string())).collect();
                order.set(&node(&from.to_string()), &needs);
                order.settle();
                let mut anew = order.clone();
                anew.cycles = all_cycles(&anew.needs);
                for at in 0..8_usize {
                    let name = node(&at.to_string());
                    prop_assert_eq!(order.dependents(&name), anew.dependents(&name));
                }
            }
        }

        /// Whatever the edges are: if every object waits for its dependents, all of them leave.
        #[test]
        fn everything_leaves(edges in prop::collection::vec((0..12_usize, 0..12_usize), 0..60)) {
            let mut needs = BTreeMap::<usize, BTreeSet<ObjectKey>>::new();
            for (from, to) in edges {
                needs.entry(from).or_default().insert(node(&to.to_string()));
            }
            let mut order = DeletionOrder::default();
            for (from, to) in &needs {
                order.set(&node(&from.to_string()), to);
            }
            let mut left: BTreeSet<ObjectKey> = (0..12).map(|at| node(&at.to_string())).collect();
            while !left.is_empty() {
                let free = left.iter().find(|it| {
                    order.dependents(it).iter().all(|dependent| !left.contains(&**dependent))
                });
                let free = free.cloned();
                prop_assert!(free.is_some(), "{left:?} wait for each other");
                if let Some(free) = free {
                    order.set(&free, &BTreeSet::new());
                    left.remove(&free);
                }
            }
        }
    }
}
