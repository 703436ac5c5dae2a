//! Chooses which objects of a tree become nodes of a graph. Failing objects come first, and the number is limited so that a
//! person can read the graph.
//!
//! Elsewhere: the layout (engine `graph-layout`), drawing (`drawn_graph.rs`), the whole tree as a list (`tree_list.rs`).

use graph_layout::GraphEdge;
use objects::ObjectId;
use windlass_answers::tree::ObjectTreeBranch;

use super::tree_list::state;
use crate::page_elements::ObjectState;

/// How many objects are drawn. For each parent, one node counts the objects that are not drawn.
const MAX_DRAWN_OBJECTS: usize = 150;

/// How many healthy objects are drawn below the same parent.
const MAX_HEALTHY_SIBLINGS: usize = 8;

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GraphNode {
    /// The object of the node. `None` if the node stands for several objects.
    pub(super) id: Option<ObjectId>,
    /// The name of the object, or a text such as `5 more`.
    pub(super) named: String,
    /// The state of the object. `None` if the object was not read.
    pub(super) state: Option<ObjectState>,
    pub(super) message: String,
    /// Whether the page is about this object.
    pub(super) is_subject: bool,
}

/// The nodes of the graph and the edges between them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectGraph {
    pub(super) nodes: Vec<GraphNode>,
    pub(super) edges: Vec<GraphEdge>,
    /// The number of objects in the tree.
    pub(super) objects: usize,
}

/// A branch of the tree, in a flat list.
struct FlattenedTreeBranch<'t> {
    branch: &'t ObjectTreeBranch,
    above: Option<usize>,
    /// Whether the object of the branch, or an object below it, is not ready.
    is_failing: bool,
    /// The number of objects in the branch.
    size: usize,
    is_drawn: bool,
}

/// Makes the graph of a tree: the source, the applier of the object, the object, and the objects below it.
pub(super) fn of_tree(
    tree: &ObjectTreeBranch,
    subject: &ObjectId,
    applier: Option<&ObjectId>,
) -> ObjectGraph {
    let mut all = flattened(tree);
    choose(&mut all);
    let mut graph = ObjectGraph { objects: all.len(), ..ObjectGraph::default() };
    // For each branch, its node if it is drawn, and the number of objects below it that are not drawn.
    let mut nodes: Vec<Option<usize>> = Vec::with_capacity(all.len());
    let mut folded = vec![0_usize; all.len()];
    for it in &all {
        let parent = it.above.and_then(|above| nodes.get(above).copied().flatten());
        if !it.is_drawn {
            nodes.push(None);
            let count = it.above.filter(|_| parent.is_some());
            if let Some(count) = count.and_then(|above| folded.get_mut(above)) {
                *count += it.size;
            }
            continue;
        }
        let node = graph.nodes.len();
        nodes.push(Some(node));
        graph.edges.extend(parent.map(|from| GraphEdge { from, to: node }));
        graph.nodes.push(node_of(it.branch, subject));
    }
    let first_counting = graph.nodes.len();
    for (node, count) in nodes.iter().zip(&folded).filter(|(_, count)| **count > 0) {
        let Some(from) = *node else { continue };
        graph.edges.push(GraphEdge { from, to: graph.nodes.len() });
        graph.nodes.push(GraphNode {
            id: None,
            named: format!("{count} more"),
            state: Some(ObjectState::Ready),
            message: "the tree lists all".to_owned(),
            is_subject: false,
        });
    }
    if all.iter().any(|it| it.is_failing && !it.is_drawn) {
        // If an object that is not drawn fails, the nodes that count such objects show that, too.
        let counting = graph.nodes.iter_mut().skip(first_counting);
        counting.for_each(|it| it.state = Some(ObjectState::Unknown));
    }
    add_applier(&mut graph, applier);
    graph
}

/// The branches as a flat list in which each branch comes after its parent.
fn flattened(tree: &ObjectTreeBranch) -> Vec<FlattenedTreeBranch<'_>> {
    let mut all: Vec<FlattenedTreeBranch<'_>> = Vec::new();
    let mut pending = vec![(tree, None)];
    while let Some((branch, above)) = pending.pop() {
        let at = all.len();
        let is_failing = state(&branch.health) != ObjectState::Ready;
        all.push(FlattenedTreeBranch { branch, above, is_failing, size: 1, is_drawn: false });
        pending.extend(branch.below.iter().rev().map(|below| (below, Some(at))));
    }
    for at in (0..all.len()).rev() {
        let Some((above, size, is_failing)) =
            all.get(at).and_then(|it| Some((it.above?, it.size, it.is_failing)))
        else {
            continue;
        };
        if let Some(parent) = all.get_mut(above) {
            parent.size += size;
            parent.is_failing |= is_failing;
        }
    }
    all
}

/// Chooses the branches that are drawn: first those that lead to failures, then a limited number of healthy ones for each
/// parent.
fn choose(all: &mut [FlattenedTreeBranch<'_>]) {
    let mut left = MAX_DRAWN_OBJECTS;
    let mut healthy_below = vec![0_usize; all.len()];
    for (at, it) in all.iter_mut().enumerate() {
        if (it.is_failing || at == 0) && left > 0 {
            it.is_drawn = true;
            left -= 1;
        } else if let Some(count) = it.above.and_then(|above| healthy_below.get_mut(above)) {
            *count += 1;
        }
    }
    let mut drawn_below = vec![0_usize; all.len()];
    for at in 0..all.len() {
        let Some(above) = all.get(at).filter(|it| !it.is_drawn).and_then(|it| it.above) else {
            continue;
        };
        let is_parent_drawn = all.get(above).is_some_and(|it| it.is_drawn);
        // The node that counts the remaining objects takes the place of the last one.
        let most = match healthy_below.get(above) {
            Some(count) if *count > MAX_HEALTHY_SIBLINGS => MAX_HEALTHY_SIBLINGS - 1,
            _ => MAX_HEALTHY_SIBLINGS,
        };
        let Some(drawn) = drawn_below.get_mut(above).filter(|drawn| **drawn < most) else {
            continue;
        };
        if is_parent_drawn
            && left > 0
            && let Some(it) = all.get_mut(at)
        {
            it.is_drawn = true;
            *drawn += 1;
            left -= 1;
        }
    }
}

fn node_of(branch: &ObjectTreeBranch, subject: &ObjectId) -> GraphNode {
    GraphNode {
        id: branch.id.clone(),
        named: branch.object.clone(),
        state: Some(state(&branch.health)),
        message: branch.message.clone(),
        is_subject: branch.id.as_ref() == Some(subject),
    }
}

/// Adds the object that applied this object. Only its name is known unless it is part of the tree.
fn add_applier(graph: &mut ObjectGraph, applier: Option<&ObjectId>) {
    let subject = graph.nodes.iter().position(|it| it.is_subject);
    let (Some(applier), Some(to)) = (applier, subject) else { return };
    let known = graph.nodes.iter().position(|it| it.id.as_ref() == Some(applier));
    let from = known.unwrap_or(graph.nodes.len());
    if known.is_none() {
        graph.nodes.push(GraphNode {
            id: Some(applier.clone()),
            named: applier.subject(),
            state: None,
            message: "applied it".to_owned(),
            is_subject: false,
        });
    }
    let edge = GraphEdge { from, to };
    if !graph.edges.contains(&edge) {
        graph.edges.push(edge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(kind: &str, name: &str) -> ObjectId {
        ObjectId::new("apps", name, "", kind)
    }

    fn branch(id: ObjectId, health: &str, below: Vec<ObjectTreeBranch>) -> ObjectTreeBranch {
        ObjectTreeBranch {
            object: id.subject(),
            id: Some(id),
            health: health.to_owned(),
            revision: String::new(),
            message: String::new(),
            below,
        }
    }

    fn pods(count: usize, health: &str) -> Vec<ObjectTreeBranch> {
        (0..count).map(|at| branch(id("Pod", &format!("{health}{at}")), health, vec![])).collect()
    }

    fn names(graph: &ObjectGraph) -> Vec<&str> {
        graph.nodes.iter().map(|it| it.named.as_str()).collect()
    }

    #[test]
    fn the_source_leads_to_the_object_and_that_to_its_pods() {
        let web = branch(id("Deployment", "web"), "Current", pods(1, "Current"));
        let app = branch(id("Kustomization", "app"), "Ready", vec![web]);
        let tree = branch(id("GitRepository", "git"), "Ready", vec![app]);
        let applier = id("Kustomization", "all");
        let graph = of_tree(&tree, &id("Kustomization", "app"), Some(&applier));
        let expected = [
            "GitRepository/apps/git",
            "Kustomization/apps/app",
            "Deployment/apps/web",
            "Pod/apps/Current0",
            "Kustomization/apps/all",
        ];
        assert_eq!(names(&graph), expected);
        let edges: Vec<(usize, usize)> = graph.edges.iter().map(|it| (it.from, it.to)).collect();
        assert_eq!(edges, [(0, 1), (1, 2), (2, 3), (4, 1)]);
        assert!(graph.nodes[1].is_subject && graph.nodes[4].state.is_none());
    }

    #[test]
    fn many_healthy_objects_are_counted_and_those_that_fail_are_drawn() {
        let mut below = pods(40, "Current");
        below.extend(pods(60, "Failed"));
        let tree = branch(id("Deployment", "web"), "Current", below);
        let graph = of_tree(&tree, &id("Deployment", "web"), None);
        let of = |part: &str| names(&graph).iter().filter(|it| it.contains(part)).count();
        assert_eq!((of("Failed"), of("Current"), graph.objects), (60, 7, 101));
        assert_eq!(names(&graph).last(), Some(&"33 more"));
        let eight = branch(id("Deployment", "web"), "Current", pods(8, "Current"));
        assert_eq!(of_tree(&eight, &id("Deployment", "web"), None).nodes.len(), 9);
    }

    #[test]
    fn a_tree_of_thousands_has_a_graph_that_can_be_drawn_and_admits_what_is_missing() {
        let workloads = (0..500)
            .map(|at| branch(id("Deployment", &format!("d{at}")), "InProgress", pods(9, "Failed")));
        let tree = branch(id("Kustomization", "app"), "NotReady", workloads.collect());
        let graph = of_tree(&tree, &id("Kustomization", "app"), None);
        assert!(graph.nodes.len() <= 2 * MAX_DRAWN_OBJECTS, "{}", graph.nodes.len());
        let counting = graph.nodes.iter().filter(|it| it.id.is_none());
        assert!(counting.clone().count() > 0);
        assert!(counting.clone().all(|it| it.state == Some(ObjectState::Unknown)));
    }
}
