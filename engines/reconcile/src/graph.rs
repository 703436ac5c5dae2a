//! Who must be reconciled when something changes: the dependencies between all nodes, of all kinds.
//!
//! Here: [`Graph`], pure data.
//! Elsewhere: watches and queues (the program), what follows from a dependency's state (`gate.rs`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::Node;

/// Why one node depends on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Edge {
    /// `dependsOn`: must be ready first; any change of spec or status wakes.
    DependsOn,
    /// The artifact that is built; a new digest of the files read wakes.
    Source,
    /// A Secret or ConfigMap by name.
    Reference,
    /// A managed object whose health is awaited.
    Waits,
}

/// The edges between nodes, readable from both ends.
///
/// A node need not exist to be a target: that is how its appearance wakes those that wait for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    /// From a node to what it depends on. Nodes without edges are absent, here and below.
    outward: BTreeMap<Node, BTreeSet<(Edge, Node)>>,
    /// The same edges from their other end.
    inward: BTreeMap<Node, BTreeSet<(Node, Edge)>>,
}

impl Graph {
    /// Replaces all edges that start at a node.
    pub fn set_edges(&mut self, from: &Node, edges: BTreeSet<(Edge, Node)>) {
        self.forget(from);
        for (edge, to) in &edges {
            self.inward.entry(to.clone()).or_default().insert((from.clone(), *edge));
        }
        if !edges.is_empty() {
            self.outward.insert(from.clone(), edges);
        }
    }

    /// Replaces the edges of one sort that start at a node; its other edges stay.
    pub fn set_edges_of(&mut self, from: &Node, edge: Edge, to: BTreeSet<Node>) {
        let mut edges = self.outward.get(from).cloned().unwrap_or_default();
        edges.retain(|(other, _)| *other != edge);
        edges.extend(to.into_iter().map(|node| (edge, node)));
        self.set_edges(from, edges);
    }

    /// Drops the edges that start at a node, because it is gone. Edges to it stay: whoever depends on
    /// it is to be woken if it comes back.
    pub fn forget(&mut self, node: &Node) {
        for (edge, to) in self.outward.remove(node).unwrap_or_default() {
            if let Some(edges) = self.inward.get_mut(&to) {
                edges.remove(&(node.clone(), edge));
                if edges.is_empty() {
                    self.inward.remove(&to);
                }
            }
        }
    }

    /// Who depends on a node that has changed, and why; one node may do so for several reasons.
    pub fn changed(&self, node: &Node) -> BTreeSet<(Node, Edge)> {
        self.inward.get(node).cloned().unwrap_or_default()
    }

    /// Every node that something depends on, by why: what has to be watched, and no more.
    pub fn targets(&self) -> BTreeMap<Edge, BTreeSet<&Node>> {
        let mut targets = BTreeMap::<_, BTreeSet<_>>::new();
        for (to, edges) in &self.inward {
            for (_, edge) in edges {
                targets.entry(*edge).or_default().insert(to);
            }
        }
        targets
    }

    /// The shortest cycle of `dependsOn` that contains this node, as a path from it to itself.
    ///
    /// # Guarantees
    /// `None` for a node that is in no cycle, also if what it depends on is in one.
    /// Of several shortest cycles it is always the same one.
    pub fn cycle(&self, node: &Node) -> Option<Vec<Node>> {
        // Breadth first: the first way back to the node is a shortest one.
        let mut reached_from = BTreeMap::<&Node, &Node>::new();
        let mut queue = VecDeque::from([node]);
        while let Some(at) = queue.pop_front() {
            for next in self.dependencies(at) {
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
    pub fn cycle_text(path: &[Node]) -> String {
        const HEAD: usize = 12;
        const TAIL: usize = 3;
        let names = |nodes: &[Node]| nodes.iter().map(Node::to_string).collect::<Vec<_>>();
        let mut shown = names(path);
        if path.len() > HEAD + TAIL + 1 {
            shown = names(&path[..HEAD]);
            shown.push(format!("({} more)", path.len() - HEAD - TAIL));
            shown.extend(names(&path[path.len() - TAIL..]));
        }
        shown.join(" → ")
    }

    fn dependencies<'g>(&'g self, node: &Node) -> impl Iterator<Item = &'g Node> {
        let edges = self.outward.get(node).into_iter().flatten();
        edges.filter(|(edge, _)| *edge == Edge::DependsOn).map(|(_, to)| to)
    }
}

/// The path node → … → last → node, of which the search knows every node's predecessor.
fn way_back(node: &Node, last: &Node, reached_from: &BTreeMap<&Node, &Node>) -> Vec<Node> {
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
