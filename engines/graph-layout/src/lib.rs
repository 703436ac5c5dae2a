//! Where the nodes and edges of a graph are drawn: in columns from left to right, so that every edge leads to the right.
//!
//! The layout is that of Sugiyama in four steps: a column for each node (`columns.rs`), an order within each column by medians
//! (`order.rs`), heights (`heights.rs`), and the points of edges. The same graph has the same layout, and a tree has no edge
//! that crosses another. Elsewhere: which objects are nodes, and how they are drawn (`windlass-web`).

mod columns;
mod heights;
mod order;

use self::columns::Columns;

/// How many nodes a graph has at most.
const MAX_NODES: usize = 900;

/// How many edges it has at most.
const MAX_EDGES: usize = 4 * MAX_NODES;

/// How many bends all edges have together at most; further long edges are straight.
const MAX_BENDS: usize = 4 * MAX_NODES;

/// An edge between two nodes, which are named by their places in the list of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphEdge {
    /// Where it begins.
    pub from: usize,
    /// Where it ends.
    pub to: usize,
}

/// The sizes of what is drawn, in units of the drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphSpacing {
    /// The width of each node.
    pub node_width: u32,
    /// The height of each node.
    pub node_height: u32,
    /// The room between two columns, in which edges are drawn.
    pub column_gap: u32,
    /// The room between two nodes of a column.
    pub row_gap: u32,
}

/// A place in the drawing: to the right, and down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphPoint {
    /// To the right.
    pub x: i64,
    /// Down.
    pub y: i64,
}

/// Where an edge is drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeLine {
    /// The edge.
    pub edge: GraphEdge,
    /// From the right side of its first node to the left side of its last one, with a bend in each column between.
    pub points: Vec<GraphPoint>,
}

/// Where everything is drawn. Nothing is outside of the drawing, and no node covers another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphLayout {
    /// The upper left corner of each node, in the order of the nodes.
    pub corners: Vec<GraphPoint>,
    /// The edges, in their order. An edge of a node to itself is left out, and so is one that would lead back to the left.
    pub lines: Vec<EdgeLine>,
    /// How wide the drawing is.
    pub width: i64,
    /// How high it is.
    pub height: i64,
}

/// Why there is no layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GraphLayoutError {
    /// It would take too long, and no person could read it.
    #[error("a graph of {0} nodes is not drawn: 900 are the most")]
    TooManyNodes(usize),
    /// The same for edges.
    #[error("a graph of {0} edges is not drawn: 3600 are the most")]
    TooManyEdges(usize),
    /// An edge names a node that is not among the nodes.
    #[error("an edge names node {0}, which there is not")]
    UnknownNode(usize),
}

/// Finds where `nodes` nodes and the edges between them are drawn.
///
/// # Errors
/// There are more than 900 nodes or 3 600 edges, or an edge names a node that there is not.
pub fn layout(
    nodes: usize,
    edges: &[GraphEdge],
    spacing: GraphSpacing,
) -> Result<GraphLayout, GraphLayoutError> {
    if nodes > MAX_NODES {
        return Err(GraphLayoutError::TooManyNodes(nodes));
    }
    if edges.len() > MAX_EDGES {
        return Err(GraphLayoutError::TooManyEdges(edges.len()));
    }
    if let Some(unknown) = edges.iter().flat_map(|it| [it.from, it.to]).find(|it| *it >= nodes) {
        return Err(GraphLayoutError::UnknownNode(unknown));
    }
    let mut columns = Columns::of(nodes, edges, MAX_BENDS);
    order::sort(&mut columns);
    let tops = heights::tops(&columns, spacing);
    Ok(drawn(nodes, &columns, &tops, spacing))
}

/// The drawing of what has a column and a height.
fn drawn(nodes: usize, columns: &Columns, tops: &[i64], spacing: GraphSpacing) -> GraphLayout {
    let GraphSpacing { node_width, node_height, column_gap, .. } = spacing;
    let step = i64::from(node_width) + i64::from(column_gap);
    let half = i64::from(node_height) / 2;
    let left = |place: usize| columns.column_of(place) * step;
    let middle = |place: usize| tops.get(place).copied().unwrap_or_default() + half;
    let corner = |place: usize| GraphPoint { x: left(place), y: middle(place) - half };
    let corners: Vec<GraphPoint> = (0..nodes).map(corner).collect();
    let lines = columns.ways().iter().map(|way| {
        let begin = left(way.edge.from) + i64::from(node_width);
        let mut points = vec![GraphPoint { x: begin, y: middle(way.edge.from) }];
        for bend in &way.bends {
            let y = middle(*bend);
            points.push(GraphPoint { x: left(*bend), y });
            points.push(GraphPoint { x: left(*bend) + i64::from(node_width), y });
        }
        points.push(GraphPoint { x: left(way.edge.to), y: middle(way.edge.to) });
        EdgeLine { edge: way.edge, points }
    });
    let lines: Vec<EdgeLine> = lines.collect();
    let right = corners.iter().map(|it| it.x + i64::from(node_width)).max();
    // A bend is as high as a node, so that what is drawn beside it has room.
    let bottom = tops.iter().map(|top| top + i64::from(node_height)).max();
    GraphLayout {
        corners,
        lines,
        width: right.unwrap_or_default(),
        height: bottom.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
