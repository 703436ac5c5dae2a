//! The column of each node: it is to the right of all nodes from which an edge leads to it.
//!
//! An edge over several columns gets a bend in each of them. A bend takes a place in its column, as a node does.

use std::collections::VecDeque;

use super::GraphEdge;

/// The bends of one edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EdgeBends {
    pub(super) edge: GraphEdge,
    /// The places of the bends, from left to right.
    pub(super) bends: Vec<usize>,
}

/// The columns of a graph. A place stands for a node, or, after the nodes, for a bend.
#[derive(Debug)]
pub(super) struct Columns {
    /// The column of each place.
    columns: Vec<usize>,
    /// The places of each column, from top to bottom.
    order: Vec<Vec<usize>>,
    /// For each place, the places in the column to its left from which a line leads to it.
    before: Vec<Vec<usize>>,
    /// For each place, the places in the column to its right to which a line leads.
    behind: Vec<Vec<usize>>,
    ways: Vec<EdgeBends>,
}

impl Columns {
    /// Computes the columns of a graph. All edges together get at most `most_bends` bends.
    pub(super) fn of(nodes: usize, edges: &[GraphEdge], most_bends: usize) -> Self {
        let ranks = ranks(nodes, edges);
        let mut columns = Self {
            order: vec![Vec::new(); ranks.iter().max().map_or(0, |last| last + 1)],
            before: vec![Vec::new(); nodes],
            behind: vec![Vec::new(); nodes],
            columns: ranks,
            ways: Vec::new(),
        };
        let mut left = most_bends;
        for edge in edges {
            columns.add(*edge, &mut left);
        }
        columns.begin(nodes);
        columns
    }

    /// Adds the bends of an edge, unless the edge leads back or to its own node.
    fn add(&mut self, edge: GraphEdge, left: &mut usize) {
        let from = self.rank(edge.from);
        let to = self.rank(edge.to);
        if to <= from {
            return;
        }
        let mut bends = Vec::new();
        if to - from - 1 <= *left {
            *left -= to - from - 1;
            for column in from + 1..to {
                bends.push(self.columns.len());
                self.columns.push(column);
                self.before.push(Vec::new());
                self.behind.push(Vec::new());
            }
            let places: Vec<usize> =
                [edge.from].into_iter().chain(bends.iter().copied()).chain([edge.to]).collect();
            for (one, next) in places.iter().zip(places.iter().skip(1)) {
                push(&mut self.behind, *one, *next);
                push(&mut self.before, *next, *one);
            }
        }
        self.ways.push(EdgeBends { edge, bends });
    }

    /// The first order: depth first, and each place below those that were reached before. In a tree, no lines cross
    /// then.
    fn begin(&mut self, nodes: usize) {
        let mut is_reached = vec![false; self.columns.len()];
        // Nodes without an incoming line come first. All other nodes are reached from them.
        let roots = (0..nodes).filter(|place| self.before_of(*place).is_empty());
        let mut pending: Vec<usize> = roots.chain(0..nodes).collect();
        pending.reverse();
        while let Some(place) = pending.pop() {
            let Some(reached) = is_reached.get_mut(place).filter(|it| !**it) else { continue };
            *reached = true;
            let column = self.rank(place);
            push(&mut self.order, column, place);
            let behind = self.behind.get(place).cloned().unwrap_or_default();
            pending.extend(behind.into_iter().rev());
        }
    }

    fn rank(&self, place: usize) -> usize {
        self.columns.get(place).copied().unwrap_or_default()
    }

    /// The column of a place.
    pub(super) fn column_of(&self, place: usize) -> i64 {
        i64::try_from(self.rank(place)).unwrap_or_default()
    }

    /// How many places there are.
    pub(super) fn places(&self) -> usize {
        self.columns.len()
    }

    pub(super) fn order(&self) -> &[Vec<usize>] {
        &self.order
    }

    pub(super) fn order_mut(&mut self) -> &mut [Vec<usize>] {
        &mut self.order
    }

    pub(super) fn before_of(&self, place: usize) -> &[usize] {
        self.before.get(place).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn behind_of(&self, place: usize) -> &[usize] {
        self.behind.get(place).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn ways(&self) -> &[EdgeBends] {
        &self.ways
    }
}

fn push(lists: &mut [Vec<usize>], at: usize, place: usize) {
    if let Some(list) = lists.get_mut(at) {
        list.push(place);
    }
}

/// The column of each node: one to the right of its last predecessor. A cycle is opened at its first node.
fn ranks(nodes: usize, edges: &[GraphEdge]) -> Vec<usize> {
    let mut ranks = vec![0_usize; nodes];
    let mut open = vec![0_usize; nodes];
    let mut behind: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for GraphEdge { from, to } in edges.iter().copied().filter(|it| it.from != it.to) {
        push(&mut behind, from, to);
        if let Some(count) = open.get_mut(to) {
            *count += 1;
        }
    }
    let mut is_placed = vec![false; nodes];
    let mut ready: VecDeque<usize> =
        (0..nodes).filter(|node| open.get(*node) == Some(&0)).collect();
    let mut first_unplaced = 0;
    loop {
        let Some(node) = ready.pop_front() else {
            // Each round places a node, so this ends.
            while is_placed.get(first_unplaced) == Some(&true) {
                first_unplaced += 1;
            }
            if first_unplaced >= nodes {
                return ranks;
            }
            ready.push_back(first_unplaced);
            continue;
        };
        let Some(placed) = is_placed.get_mut(node).filter(|it| !**it) else { continue };
        *placed = true;
        let rank = ranks.get(node).copied().unwrap_or_default();
        for next in behind.get(node).into_iter().flatten() {
            if is_placed.get(*next) == Some(&true) {
                continue;
            }
            if let Some(of_next) = ranks.get_mut(*next) {
                *of_next = (*of_next).max(rank + 1);
            }
            if let Some(count) = open.get_mut(*next) {
                *count -= 1;
                if *count == 0 {
                    ready.push_back(*next);
                }
            }
        }
    }
}
