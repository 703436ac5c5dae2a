//! Records which objects must be reconciled when another object changes: the dependencies between objects of all kinds.
//!
//! Here: [`DependencyGraph`], pure data.
//! Elsewhere: watches and queues (the program), what follows from a dependency's state (`run_gate.rs`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::ObjectKey;

/// Why one node depends on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DependencyEdge {
    /// An entry of `dependsOn`, which must be ready first. Any change of its spec or status triggers a run.
    DependsOn,
    /// The source whose artifact is built. A new digest of the files that were read triggers a run.
    Source,
    /// A Secret or ConfigMap by name.
    Reference,
    /// A managed object whose health the run waits for.
    Waits,
}

/// The most edges that a search for a cycle follows.
const MOST_FOLLOWED: usize = 20_000;

/// The edges between nodes, which can be followed in both directions.
///
/// A node can be a target before it exists: when it appears, the nodes that wait for it run. Names are shared to save memory,
/// because each edge is stored twice and an operator has tens of thousands of edges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DependencyGraph {
    /// From a node to the nodes that it depends on. Nodes without edges are absent, here and below.
    outward: BTreeMap<Arc<ObjectKey>, BTreeSet<(DependencyEdge, Arc<ObjectKey>)>>,
    /// The same edges in reverse.
    inward: BTreeMap<Arc<ObjectKey>, BTreeSet<(Arc<ObjectKey>, DependencyEdge)>>,
    /// Nodes that are known to be in no cycle. This holds until an edge is added, so that a run need not search for cycles
    /// again.
    acyclic: BTreeSet<Arc<ObjectKey>>,
}

impl DependencyGraph {
    /// Replaces all edges that start at a node.
    pub fn set_edges(&mut self, from: &ObjectKey, edges: BTreeSet<(DependencyEdge, ObjectKey)>) {
        let known = self.outward.get(from).into_iter().flatten();
        let known = known.map(|(edge, to)| (*edge, &**to));
        if known.eq(edges.iter().map(|(edge, to)| (*edge, to))) {
            return;
        }
        let known = self.outward.get(from).into_iter().flatten();
        let known: BTreeSet<Arc<ObjectKey>> = known
            .filter(|(edge, _)| *edge == DependencyEdge::DependsOn)
            .map(|(_, to)| to.clone())
            .collect();
        let name = self.shared(from);
        self.replace(&name, edges);
        if self.dependencies(from).any(|to| !known.contains(to)) {
            self.learn_cycle(&name);
        }
    }

    fn replace(&mut self, from: &Arc<ObjectKey>, edges: BTreeSet<(DependencyEdge, ObjectKey)>) {
        // Edges that stay keep their shared names.
        let edges: BTreeSet<(DependencyEdge, Arc<ObjectKey>)> =
            edges.iter().map(|(edge, to)| (*edge, self.shared(to))).collect();
        self.forget(from);
        for (edge, to) in &edges {
            self.inward.entry(to.clone()).or_default().insert((from.clone(), *edge));
        }
        if !edges.is_empty() {
            self.outward.insert(from.clone(), edges);
        }
    }

    /// The shared copy of a node's name, if the graph has one.
    fn shared(&self, node: &ObjectKey) -> Arc<ObjectKey> {
        let known = self.outward.get_key_value(node).map(|(name, _)| name);
        let known = known.or_else(|| self.inward.get_key_value(node).map(|(name, _)| name));
        known.cloned().unwrap_or_else(|| Arc::new(node.clone()))
    }

    /// Replaces the edges of one type that start at a node. Its other edges stay.
    pub fn set_edges_of(
        &mut self,
        from: &ObjectKey,
        edge: DependencyEdge,
        to: BTreeSet<ObjectKey>,
    ) {
        let known = self.outward.get(from).into_iter().flatten();
        let others = known.filter(|(other, _)| *other != edge);
        let mut edges: BTreeSet<(DependencyEdge, ObjectKey)> =
            others.map(|(other, node)| (*other, ObjectKey::clone(node))).collect();
        edges.extend(to.into_iter().map(|node| (edge, node)));
        self.set_edges(from, edges);
    }

    /// Removes the edges that start at a deleted node. Edges to the node stay, so that its dependents run if it comes back.
    pub fn forget(&mut self, node: &ObjectKey) {
        self.acyclic.remove(node);
        let Some((name, gone)) = self.outward.remove_entry(node) else { return };
        for (edge, to) in gone {
            if let Some(edges) = self.inward.get_mut(&to) {
                edges.remove(&(name.clone(), edge));
                if edges.is_empty() {
                    self.inward.remove(&to);
                }
            }
        }
    }

    /// The objects that depend on a changed node, each with its type of dependency. An object may appear with several types.
    pub fn changed(&self, node: &ObjectKey) -> BTreeSet<(ObjectKey, DependencyEdge)> {
        let edges = self.inward.get(node).into_iter().flatten();
        edges.map(|(from, edge)| (ObjectKey::clone(from), *edge)).collect()
    }

    /// Every node that other nodes depend on, by type of dependency. The program watches exactly these nodes.
    pub fn targets(&self) -> BTreeMap<DependencyEdge, BTreeSet<&ObjectKey>> {
        let mut targets = BTreeMap::<_, BTreeSet<_>>::new();
        for (to, edges) in &self.inward {
            for (_, edge) in edges {
                targets.entry(*edge).or_default().insert(&**to);
            }
        }
        targets
    }

    /// The shortest cycle of `dependsOn` that contains this node, as a path from the node back to itself.
    ///
    /// # Guarantees
    /// `None` for a node that is in no cycle, even if it depends on a node in a cycle. Also `None` if the search would follow
    /// more than 20 000 edges; then the members of a cycle wait for each other without a report. Of several shortest cycles it
    /// always returns the same one.
    pub fn cycle(&mut self, node: &ObjectKey) -> Option<Vec<ObjectKey>> {
        if self.acyclic.contains(node) || self.dependencies(node).next().is_none() {
            return None;
        }
        if !self.is_in_cycle(node) {
            let name = self.shared(node);
            self.acyclic.insert(name);
            return None;
        }
        self.shortest_cycle(node)
    }

    /// Discards cached results that new edges at a node may have made invalid: the cycles that lead to the node.
    fn learn_cycle(&mut self, node: &Arc<ObjectKey>) {
        if !self.is_in_cycle(node) {
            self.acyclic.insert(node.clone());
            return;
        }
        let mut reached = BTreeSet::from([node.clone()]);
        let mut queue = VecDeque::from([node.clone()]);
        let mut followed = 0;
        while let Some(at) = queue.pop_front().filter(|_| followed < MOST_FOLLOWED) {
            self.acyclic.remove(&at);
            for (from, edge) in self.inward.get(&at).into_iter().flatten() {
                followed += follow();
                if *edge == DependencyEdge::DependsOn && reached.insert(from.clone()) {
                    queue.push_back(from.clone());
                }
            }
        }
    }

    /// Whether a node depends on itself, directly or through others. The search runs from both ends, so it is cheap if one of
    /// them is near.
    fn is_in_cycle(&self, node: &ObjectKey) -> bool {
        let mut ahead = BTreeSet::from([node]);
        let mut behind = BTreeSet::from([node]);
        let mut to_go = VecDeque::from([node]);
        let mut to_come = VecDeque::from([node]);
        let mut followed = 0;
        while followed < MOST_FOLLOWED {
            let (Some(next), Some(before)) = (to_go.pop_front(), to_come.pop_front()) else {
                return false;
            };
            for to in self.dependencies(next) {
                followed += follow();
                let to = &**to;
                if behind.contains(to) {
                    return true;
                }
                if ahead.insert(to) {
                    to_go.push_back(to);
                }
            }
            for (from, edge) in self.inward.get(before).into_iter().flatten() {
                followed += follow();
                if *edge != DependencyEdge::DependsOn {
                    continue;
                }
                let from = &**from;
                if ahead.contains(from) {
                    return true;
                }
                if behind.insert(from) {
                    to_come.push_back(from);
                }
            }
        }
        false
    }

    fn shortest_cycle(&self, node: &ObjectKey) -> Option<Vec<ObjectKey>> {
        // A breadth-first search: the first path back to the node is one of the shortest.
        let mut reached_from = BTreeMap::<&ObjectKey, &ObjectKey>::new();
        let mut queue = VecDeque::from([node]);
        let mut followed = 0;
        while let Some(at) = queue.pop_front().filter(|_| followed < MOST_FOLLOWED) {
            for next in self.dependencies(at).map(|next| &**next) {
                followed += follow();
                if next == node {
                    return Some(way_back(node, at, &reached_from));
                }
                if !reached_from.contains_key(next) {
                    reached_from.insert(next, at);
                    queue.push_back(next);
                }
            }
        }
        None
    }

    /// Writes a cycle for users: `Kustomization/a/x → Kustomization/a/y → Kustomization/a/x`.
    ///
    /// The middle of a long cycle is left out, so that the text stays readable.
    pub(crate) fn cycle_text(path: &[ObjectKey]) -> String {
        const SHOWN_HEAD_COUNT: usize = 12;
        const SHOWN_TAIL_COUNT: usize = 3;
        let names =
            |nodes: &[ObjectKey]| nodes.iter().map(ObjectKey::to_string).collect::<Vec<_>>();
        let mut shown = names(path);
        if path.len() > SHOWN_HEAD_COUNT + SHOWN_TAIL_COUNT + 1 {
            shown = names(&path[..SHOWN_HEAD_COUNT]);
            shown.push(format!("({} more)", path.len() - SHOWN_HEAD_COUNT - SHOWN_TAIL_COUNT));
            shown.extend(names(&path[path.len() - SHOWN_TAIL_COUNT..]));
        }
        shown.join(" → ")
    }

    fn dependencies<'g>(&'g self, node: &ObjectKey) -> impl Iterator<Item = &'g Arc<ObjectKey>> {
        let edges = self.outward.get(node).into_iter().flatten();
        edges.filter(|(edge, _)| *edge == DependencyEdge::DependsOn).map(|(_, to)| to)
    }
}

/// Counts one followed edge of a search: returns 1. Tests also record each call.
fn follow() -> usize {
    #[cfg(test)]
    tests::count_followed();
    1
}

/// The path node → … → last → node, built from the predecessor that the search noted for every node.
fn way_back(
    node: &ObjectKey,
    last: &ObjectKey,
    reached_from: &BTreeMap<&ObjectKey, &ObjectKey>,
) -> Vec<ObjectKey> {
    let mut path = vec![node.clone()];
    let mut at = last;
    while at != node {
        path.push(at.clone());
        // Every queued node but the first has a predecessor. If one were missing, the path would end here.
        at = reached_from.get(at).copied().unwrap_or(node);
    }
    path.push(node.clone());
    path.reverse();
    path
}

#[cfg(test)]
mod tests;
