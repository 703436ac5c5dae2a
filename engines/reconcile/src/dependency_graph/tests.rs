//! Cycles, wake-ups and forgetting.

use std::cell::Cell;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

thread_local! {
    /// How many edges searches of this test have followed.
    static FOLLOWED_EDGES: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn count_followed() {
    FOLLOWED_EDGES.set(FOLLOWED_EDGES.get() + 1);
}

fn node(name: &str) -> ObjectKey {
    ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "a", name)
}

fn nodes(names: &str) -> BTreeSet<ObjectKey> {
    names.split_whitespace().map(node).collect()
}

/// Reads `x: y z` lines: x depends on y and z.
fn graph(text: &str) -> DependencyGraph {
    let mut graph = DependencyGraph::default();
    for line in text.lines() {
        let (from, to) = line.split_once(':').unwrap();
        graph.set_edges_of(&node(from.trim()), DependencyEdge::DependsOn, nodes(to));
    }
    graph
}

fn check(text: &str, expected: &Expect) {
    let mut graph = graph(text);
    let mut found = |line: &str| {
        let name = line.split(':').next().unwrap().trim();
        let cycle = graph.cycle(&node(name));
        let text = cycle.map_or("none".into(), |path| DependencyGraph::cycle_text(&path));
        format!("{name}: {}\n", text.replace("Kustomization/a/", ""))
    };
    expected.assert_eq(&text.lines().map(&mut found).collect::<String>());
}

#[test]
fn members_of_a_cycle_see_their_own_path_and_those_downstream_see_none() {
    check(
        "x: y\ny: z\nz: x\ndownstream: x\nfurther: downstream\nupstream:",
        &expect![[r#"
            x: x → y → z → x
            y: y → z → x → y
            z: z → x → y → z
            downstream: none
            further: none
            upstream: none
        "#]],
    );
}

#[test]
fn of_two_cycles_the_shorter_is_reported_and_of_equal_ones_the_first_by_name() {
    check(
        "x: b c long\nb: x\nc: x\nlong: b\nself: self b",
        &expect![[r#"
            x: x → b → x
            b: b → x → b
            c: c → x → c
            long: long → b → x → long
            self: self → self
        "#]],
    );
}

#[test]
fn only_depends_on_makes_a_cycle() {
    let mut graph = graph("x: y");
    for edge in [DependencyEdge::Source, DependencyEdge::Reference, DependencyEdge::Waits] {
        graph.set_edges_of(&node("y"), edge, nodes("x"));
    }
    assert_eq!(graph.cycle(&node("x")), None);
    assert_eq!(graph.changed(&node("x")).len(), 3);
}

#[test]
fn a_cycle_is_reported_with_kinds_and_namespaces() {
    let path = graph("x: x").cycle(&node("x")).unwrap();
    assert_eq!(DependencyGraph::cycle_text(&path), "Kustomization/a/x → Kustomization/a/x");
}

#[test]
fn a_chain_of_ten_thousand_is_followed_to_its_end() {
    let name = |i: usize| node(&format!("n{i:05}"));
    let mut graph = DependencyGraph::default();
    for i in 0..10_000 {
        graph.set_edges_of(&name(i), DependencyEdge::DependsOn, BTreeSet::from([name(i + 1)]));
    }
    assert_eq!(graph.cycle(&name(0)), None);
    graph.set_edges_of(&name(10_000), DependencyEdge::DependsOn, BTreeSet::from([name(0)]));
    let path = graph.cycle(&name(0)).unwrap();
    assert_eq!(path.len(), 10_002);
    let text = DependencyGraph::cycle_text(&path);
    assert!(text.len() < 1000 && text.contains("n00011 → (9987 more) → Kustomization/a/n09999"));
    assert!(text.ends_with("n10000 → Kustomization/a/n00000"), "{text}");
}

#[test]
fn a_cycle_is_looked_for_when_edges_change_and_never_without_end() {
    let name = |i: usize| node(&format!("n{i:05}"));
    let all = |range: std::ops::Range<usize>| range.map(name).collect::<BTreeSet<_>>();
    let mut graph = DependencyGraph::default();
    // Everybody depends on the 64 before: each look from either end is over at once, or stops.
    for i in 0..1_000 {
        graph.set_edges_of(&name(i), DependencyEdge::DependsOn, all(i.saturating_sub(64)..i));
    }
    let known = graph.acyclic.clone();
    assert_eq!(known.len(), 999);
    for i in 0..1_000 {
        assert_eq!(graph.cycle(&name(i)), None);
        graph.set_edges_of(&name(i), DependencyEdge::DependsOn, all(i.saturating_sub(64)..i));
    }
    assert_eq!(graph.acyclic, known, "edges that are as they were need no look");
    graph.set_edges_of(&name(0), DependencyEdge::DependsOn, [name(1)].into());
    assert_eq!(graph.cycle(&name(1)).map(|path| path.len()), Some(3));
    graph.set_edges_of(&name(0), DependencyEdge::DependsOn, [name(200)].into());
    assert_eq!(graph.cycle(&name(200)).map(|path| path.len()), Some(6));
    assert_eq!(graph.cycle(&name(1)).map(|path| path.len()), Some(7));
    graph.set_edges_of(&name(0), DependencyEdge::DependsOn, [name(999)].into());
    assert_eq!(graph.cycle(&name(0)), None, "it would take too long");
    graph.set_edges_of(&name(0), DependencyEdge::DependsOn, BTreeSet::new());
    assert_eq!(graph.cycle(&name(200)), None);
}

#[test]
fn hundreds_that_depend_on_dozens_are_removed_without_a_search() {
    const REMOVED_NODES: usize = 300;
    const DEPENDENCIES_EACH: usize = 64;
    let name = |i: usize| node(&format!("n{i:05}"));
    let needs =
        |i: usize| (i.saturating_sub(DEPENDENCIES_EACH)..i).map(name).collect::<BTreeSet<_>>();
    let edges: usize = (0..REMOVED_NODES).map(|i| i.min(DEPENDENCIES_EACH)).sum();
    // In either order: those on which all others depend go first or last.
    for order in [(0..REMOVED_NODES).collect::<Vec<_>>(), (0..REMOVED_NODES).rev().collect()] {
        let mut graph = DependencyGraph::default();
        for i in 0..REMOVED_NODES {
            graph.set_edges_of(&name(i), DependencyEdge::DependsOn, needs(i));
        }
        let before = FOLLOWED_EDGES.get();
        let mut gone = BTreeSet::new();
        let mut woken = 0;
        for i in order {
            graph.forget(&name(i));
            gone.insert(name(i));
            // Each that is woken runs, and asks for its cycle.
            for (dependent, _) in graph.changed(&name(i)) {
                woken += 1;
                assert!(!gone.contains(&dependent), "{dependent} is gone and was woken");
                let at = (0..REMOVED_NODES).find(|at| name(*at) == dependent).unwrap();
                graph.set_edges_of(&dependent, DependencyEdge::DependsOn, needs(at));
                assert_eq!(graph.cycle(&dependent), None);
            }
        }
        assert!(woken <= edges, "{woken} runs for {edges} edges");
        assert_eq!(FOLLOWED_EDGES.get(), before, "edges were followed though none was added");
        assert_eq!(graph, DependencyGraph::default());
    }
}

#[test]
fn a_change_wakes_those_that_depend_on_it_and_says_why() {
    let mut graph = graph("x: y\nz: y");
    graph.set_edges_of(&node("x"), DependencyEdge::Waits, nodes("y"));
    let woken = graph.changed(&node("y"));
    let x = node("x");
    let z = node("z");
    let expected = [
        (x.clone(), DependencyEdge::DependsOn),
        (x, DependencyEdge::Waits),
        (z, DependencyEdge::DependsOn),
    ];
    assert_eq!(woken, expected.into());
    assert!(graph.changed(&node("x")).is_empty());
}

#[test]
fn replacing_one_sort_of_edges_leaves_the_others() {
    let mut graph = graph("x: y");
    graph.set_edges_of(&node("x"), DependencyEdge::Source, nodes("s"));
    graph.set_edges_of(&node("x"), DependencyEdge::DependsOn, nodes("z"));
    assert!(graph.changed(&node("y")).is_empty());
    assert_eq!(graph.changed(&node("s")), [(node("x"), DependencyEdge::Source)].into());
    let targets = graph.targets();
    assert_eq!(targets[&DependencyEdge::DependsOn], BTreeSet::from([&node("z")]));
    assert_eq!(targets[&DependencyEdge::Source], BTreeSet::from([&node("s")]));
    assert_eq!(targets.len(), 2);

    graph.set_edges(&node("x"), BTreeSet::from([(DependencyEdge::Waits, node("w"))]));
    assert_eq!(
        graph.targets(),
        BTreeMap::from([(DependencyEdge::Waits, BTreeSet::from([&node("w")]))])
    );
}

#[test]
fn a_forgotten_node_is_still_waited_for() {
    let mut graph = graph("x: y\ny: z");
    graph.forget(&node("y"));
    assert_eq!(graph.changed(&node("y")), [(node("x"), DependencyEdge::DependsOn)].into());
    assert!(graph.changed(&node("z")).is_empty());
    graph.forget(&node("x"));
    assert_eq!(graph, DependencyGraph::default());
}

fn edges() -> impl Strategy<Value = Vec<(usize, DependencyEdge, Vec<usize>)>> {
    let edge = prop::sample::select(vec![
        DependencyEdge::DependsOn,
        DependencyEdge::DependsOn,
        DependencyEdge::Waits,
    ]);
    prop::collection::vec((0..6usize, edge, prop::collection::vec(0..6usize, 0..3)), 0..14)
}

fn name(i: usize) -> ObjectKey {
    node(&i.to_string())
}

proptest! {
    #[test]
    fn both_ends_of_every_edge_agree(changes in edges(), gone in 0..6usize) {
        let mut graph = DependencyGraph::default();
        for (from, edge, to) in changes {
            graph.set_edges_of(&name(from), edge, to.into_iter().map(name).collect());
        }
        graph.forget(&name(gone));
        let outward: BTreeSet<_> = graph.outward.iter()
            .flat_map(|(from, edges)| edges.iter().map(move |(edge, to)| (from, *edge, to)))
            .collect();
        let inward: BTreeSet<_> = graph.inward.iter()
            .flat_map(|(to, edges)| edges.iter().map(move |(from, edge)| (from, *edge, to)))
            .collect();
        prop_assert_eq!(outward, inward);
        prop_assert!(!graph.outward.contains_key(&name(gone)));
        prop_assert!(graph.outward.values().all(|edges| !edges.is_empty()));
        prop_assert!(graph.inward.values().all(|edges| !edges.is_empty()));
    }

    #[test]
    fn a_cycle_is_found_exactly_where_there_is_one(changes in edges()) {
        let mut graph = DependencyGraph::default();
        let mut edges = [[false; 6]; 6];
        for (from, edge, to) in changes {
            graph.set_edges_of(&name(from), edge, to.iter().copied().map(name).collect());
            if edge == DependencyEdge::DependsOn {
                edges[from] = std::array::from_fn(|i| to.contains(&i));
            }
            // Warshall's closure stands as the oracle; it is asked after each change, as runs do.
            let mut reaches = edges;
            for via in 0..6 {
                for from in 0..6 {
                    for to in 0..6 {
                        reaches[from][to] |= reaches[from][via] && reaches[via][to];
                    }
                }
            }
            for (i, reached) in reaches.iter().enumerate() {
                let cycle = graph.cycle(&name(i));
                prop_assert_eq!(cycle.is_some(), reached[i]);
                if let Some(path) = cycle {
                    prop_assert!(path.first() == Some(&name(i)) && path.last() == Some(&name(i)));
                    for pair in path.windows(2) {
                        prop_assert!(graph.dependencies(&pair[0]).any(|to| to.as_ref() == &pair[1]));
                    }
                }
            }
        }
    }
}
