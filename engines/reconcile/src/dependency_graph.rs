//! Which objects must be reconciled when one changes: the dependencies between all objects, of all kinds.
//!
//! Here: [`DependencyGraph`], pure data.
//! Elsewhere: watches and queues (the program), what follows from a dependency's state (`run_gate.rs`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::ObjectKey;

/// Why one node depends on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DependencyEdge {
    /// `dependsOn`: must be ready first; any change of spec or status wakes.
    DependsOn,
    /// The artifact that is built; a new digest of the files read wakes.
    Source,
    /// A Secret or ConfigMap by name.
    Reference,
    /// A managed object whose health is awaited.
    Waits,
}

/// So many edges are followed to find out whether a node is in a cycle.
const MOST_FOLLOWED: usize = 20_000;

/// The edges between nodes, readable from both ends.
///
/// A node need not exist to be a target: that is how its appearance wakes those that wait for it. Names are shared, because each
/// edge is there twice and an operator has tens of thousands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DependencyGraph {
    /// From a node to what it depends on. Nodes without edges are absent, here and below.
    outward: BTreeMap<Arc<ObjectKey>, BTreeSet<(DependencyEdge, Arc<ObjectKey>)>>,
    /// The same edges from their other end.
    inward: BTreeMap<Arc<ObjectKey>, BTreeSet<(Arc<ObjectKey>, DependencyEdge)>>,
    /// Nodes that are in no cycle, which stays so until an edge is added: cycles are looked for when edges change, and not by
    /// each run.
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
        // Names of edges that stay are taken over.
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

    /// The name of a node as the edges that there are have it.
    fn shared(&self, node: &ObjectKey) -> Arc<ObjectKey> {
        let known = self.outward.get_key_value(node).map(|(name, _)| name);
        let known = known.or_else(|| self.inward.get_key_value(node).map(|(name, _)| name));
        known.cloned().unwrap_or_else(|| Arc::new(node.clone()))
    }

    /// Replaces the edges of one sort that start at a node; its other edges stay.
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

    /// Drops the edges that start at a node, because it is gone. Edges to it stay: the objects that depend on
    /// it are woken if it comes back.
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

    /// The objects that depend on a node that has changed, and why; one may do so for several reasons.
    pub fn changed(&self, node: &ObjectKey) -> BTreeSet<(ObjectKey, DependencyEdge)> {
        let edges = self.inward.get(node).into_iter().flatten();
        edges.map(|(from, edge)| (ObjectKey::clone(from), *edge)).collect()
    }

    /// Every node that others depend on, by reason: exactly what has to be watched.
    pub fn targets(&self) -> BTreeMap<DependencyEdge, BTreeSet<&ObjectKey>> {
        let mut targets = BTreeMap::<_, BTreeSet<_>>::new();
        for (to, edges) in &self.inward {
            for (_, edge) in edges {
                targets.entry(*edge).or_default().insert(&**to);
            }
        }
        targets
    }

    /// The shortest cycle of `dependsOn` that contains this node, as a path from it to itself.
    ///
    /// # Guarantees
    /// `None` for a node that is in no cycle, also if what it depends on is in one, and where more than 20 000 edges would
    /// have to be followed: then the members of a cycle wait for each other without knowing it.
    /// Of several shortest cycles it is always the same one.
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

    /// Edges were added at a node: cached cycles that lead to it may not be valid any more.
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

    /// Whether a node depends on itself, directly or through others. Followed from both ends, so that it costs little
    /// where either is near.
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
        // Breadth first: the first way back to the node is a shortest one.
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

    /// A cycle for people: `Kustomization/a/x → Kustomization/a/y → Kustomization/a/x`.
    ///
    /// The middle of a long one is left out, so that the text stays readable.
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

/// An edge is followed in a search; returns how many that are. Tests count them.
fn follow() -> usize {
    #[cfg(test)]
    tests::count_followed();
    1
}

/// The path node → … → last → node, of which the search knows every node's predecessor.
fn way_back(
    node: &ObjectKey,
    last: &ObjectKey,
    reached_from: &BTreeMap<&ObjectKey, &ObjectKey>,
) -> Vec<ObjectKey> {
    let mut path = vec![node.clone()];
    let mut at = last;
    while at != node {
        path.push(at.clone());
        // Every queued node but the first has a predecessor; without one the path ends here.
        at = reached_from.get(at).copied().unwrap_or(node);
    }
    path.push(node.clone());
    path.reverse();
    path
}

#[cfg(test)]
mod tests;
