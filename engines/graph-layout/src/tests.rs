//! What a layout promises, of some graphs and of all.

use proptest::prelude::*;

use super::*;

const SPACING: GraphSpacing =
    GraphSpacing { node_width: 100, node_height: 20, column_gap: 50, row_gap: 10 };

fn edges(pairs: &[(usize, usize)]) -> Vec<GraphEdge> {
    pairs.iter().map(|(from, to)| GraphEdge { from: *from, to: *to }).collect()
}

fn of(nodes: usize, pairs: &[(usize, usize)]) -> GraphLayout {
    layout(nodes, &edges(pairs), SPACING).unwrap()
}

fn corners(layout: &GraphLayout) -> Vec<(i64, i64)> {
    layout.corners.iter().map(|it| (it.x, it.y)).collect()
}

#[test]
fn a_tree_has_its_root_in_the_middle_of_what_is_behind_it() {
    let layout = of(5, &[(0, 1), (0, 2), (0, 3), (2, 4)]);
    assert_eq!(corners(&layout), [(0, 30), (150, 0), (150, 30), (150, 60), (300, 30)]);
    assert_eq!((layout.width, layout.height), (400, 80));
    let points: Vec<(i64, i64)> = layout.lines[0].points.iter().map(|it| (it.x, it.y)).collect();
    assert_eq!(points, [(100, 40), (150, 10)]);
}

#[test]
fn an_edge_over_several_columns_has_room_in_each_of_them() {
    let layout = of(4, &[(0, 1), (1, 2), (2, 3), (0, 3)]);
    let line = &layout.lines[3];
    assert_eq!(line.points.len(), 6);
    let ys: Vec<i64> = line.points[1..5].iter().map(|it| it.y).collect();
    for (node, y) in [(1, ys[0]), (2, ys[2])] {
        let top = layout.corners[node].y;
        assert!(y < top || y > top + 20, "{layout:?}");
    }
}

#[test]
fn an_empty_graph_and_one_without_edges_have_a_layout() {
    assert!(of(0, &[]).corners.is_empty());
    assert_eq!(corners(&of(2, &[])), [(0, 0), (0, 30)]);
}

#[test]
fn a_circle_is_opened_and_the_edge_that_leads_back_is_left_out() {
    let layout = of(3, &[(0, 1), (1, 2), (2, 0), (1, 1)]);
    let xs: Vec<i64> = layout.corners.iter().map(|it| it.x).collect();
    assert_eq!(xs, [0, 150, 300]);
    assert_eq!(layout.lines.len(), 2);
}

#[test]
fn what_is_too_large_or_names_no_node_is_an_error() {
    let error = |nodes: usize, edges: &[GraphEdge]| layout(nodes, edges, SPACING).unwrap_err();
    assert_eq!(error(MAX_NODES + 1, &[]), GraphLayoutError::TooManyNodes(MAX_NODES + 1));
    let many = vec![GraphEdge { from: 0, to: 1 }; MAX_EDGES + 1];
    assert_eq!(error(2, &many), GraphLayoutError::TooManyEdges(MAX_EDGES + 1));
    assert_eq!(error(2, &edges(&[(0, 2)])), GraphLayoutError::UnknownNode(2));
}

#[test]
fn the_largest_graphs_have_a_layout() {
    let wide: Vec<(usize, usize)> = (1..MAX_NODES).map(|to| (0, to)).collect();
    assert_eq!(of(MAX_NODES, &wide).width, 250);
    let deep: Vec<(usize, usize)> = (1..MAX_NODES).map(|to| (to - 1, to)).collect();
    assert_eq!(of(MAX_NODES, &deep).height, 20);
    // Bends of all of these would be hundreds of thousands: those beyond the bound are straight.
    let long = (0..MAX_NODES).map(|at| (at % 3, MAX_NODES - 1 - at % 5));
    let both: Vec<(usize, usize)> = deep.into_iter().chain(long).collect();
    assert_eq!(of(MAX_NODES, &both).lines.len(), both.len());
}

/// How many pairs of edges between neighbouring columns cross.
fn crossings(layout: &GraphLayout) -> usize {
    let ends = |line: &EdgeLine| {
        (line.points[0].x, line.points[0].y, line.points[line.points.len() - 1].y)
    };
    let all: Vec<(i64, i64, i64)> = layout.lines.iter().map(ends).collect();
    let crosses = |one: &(i64, i64, i64), other: &(i64, i64, i64)| {
        one.0 == other.0 && (one.1 < other.1 && one.2 > other.2)
    };
    all.iter().map(|one| all.iter().filter(|other| crosses(one, other)).count()).sum()
}

proptest! {
    #[test]
    fn nothing_overlaps_or_is_outside_and_the_same_graph_is_drawn_alike(
        nodes in 1_usize..80,
        pairs in prop::collection::vec((0_usize..80, 0_usize..80), 0..200),
    ) {
        let pairs: Vec<(usize, usize)> =
            pairs.into_iter().map(|(from, to)| (from % nodes, to % nodes)).collect();
        let layout = of(nodes, &pairs);
        prop_assert_eq!(&layout, &of(nodes, &pairs));
        for (at, one) in layout.corners.iter().enumerate() {
            prop_assert!(one.x >= 0 && one.x + 100 <= layout.width);
            prop_assert!(one.y >= 0 && one.y + 20 <= layout.height);
            for other in &layout.corners[..at] {
                let is_apart = one.x != other.x || (one.y - other.y).abs() >= 30;
                prop_assert!(is_apart, "{:?}", layout);
            }
        }
        for line in &layout.lines {
            prop_assert!(layout.corners[line.edge.from].x < layout.corners[line.edge.to].x);
            prop_assert!(line.points.windows(2).all(|it| it[0].x < it[1].x));
            for point in &line.points {
                prop_assert!(point.x >= 0 && point.x <= layout.width);
                prop_assert!(point.y >= 0 && point.y <= layout.height);
            }
        }
    }

    #[test]
    fn a_tree_has_no_crossing(above in prop::collection::vec(0_usize..1000, 0..120)) {
        let pairs: Vec<(usize, usize)> =
            above.iter().enumerate().map(|(at, above)| (above % (at + 1), at + 1)).collect();
        prop_assert_eq!(crossings(&of(above.len() + 1, &pairs)), 0);
    }
}
