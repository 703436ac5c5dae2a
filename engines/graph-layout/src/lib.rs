//! Places the nodes and edges of a graph for drawing: in columns from left to right, so that every edge leads to the
//! right.
//!
//! The layout is Sugiyama's, in four steps: a column for each node (`columns.rs`), the order within each column by
//! medians (`order_in_column.rs`), the heights (`vertical_positions.rs`), and the points of the edges. The same graph always has the same
//! layout. In a tree, no edges cross. Elsewhere: the meaning of the nodes, and drawing them (`windlass-web`).

mod columns;
mod order_in_column;
mod vertical_positions;

use self::columns::Columns;

/// How many nodes a graph has at most.
const MAX_NODES: usize = 900;

/// How many edges a graph has at most.
const MAX_EDGES: usize = 4 * MAX_NODES;

/// How many bends all edges together have at most. Further long edges are straight.
const MAX_BENDS: usize = 4 * MAX_NODES;

/// An edge between two nodes. Each node is named by its index in the list of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphEdge {
    /// The index of the node where the edge begins.
    pub from: usize,
    /// The index of the node where the edge ends.
    pub to: usize,
}

/// The sizes of nodes and gaps, in units of the drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphSpacing {
    /// The width of each node.
    pub node_width: u32,
    /// The height of each node.
    pub node_height: u32,
    /// The gap between two columns, in which edges are drawn.
    pub column_gap: u32,
    /// The gap between two nodes of a column.
    pub row_gap: u32,
}

/// A point in the drawing. The axes lead to the right and down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphPoint {
    /// The distance to the right.
    pub x: i64,
    /// The distance downwards.
    pub y: i64,
}

/// The line of an edge in the drawing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeLine {
    /// The edge.
    pub edge: GraphEdge,
    /// The points of the line, from the right side of the first node to the left side of the last one. It has a bend in
    /// each column between them.
    pub points: Vec<GraphPoint>,
}

/// The positions of all nodes and edges. Everything is inside the drawing, and no node covers another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphLayout {
    /// The upper left corner of each node, in the order of the nodes.
    pub corners: Vec<GraphPoint>,
    /// The lines of the edges, in the order of the edges. An edge from a node to itself, or back to the left, is left
    /// out.
    pub lines: Vec<EdgeLine>,
    /// The width of the drawing.
    pub width: i64,
    /// The height of the drawing.
    pub height: i64,
}

/// Why a graph has no layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GraphLayoutError {
    /// The graph has too many nodes. The layout would take too long, and a user could not read it.
    #[error("a graph of {0} nodes is not drawn: 900 are the most")]
    TooManyNodes(usize),
    /// The graph has too many edges.
    #[error("a graph of {0} edges is not drawn: 3600 are the most")]
    TooManyEdges(usize),
    /// An edge names a node that does not exist.
    #[error("an edge names node {0}, which there is not")]
    UnknownNode(usize),
}

/// Computes the layout of a graph with this number of nodes.
///
/// # Errors
/// There are more than 900 nodes or 3 600 edges, or an edge names a node that does not exist.
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
    order_in_column::sort(&mut columns);
    let tops = vertical_positions::tops(&columns, spacing);
    Ok(drawn(nodes, &columns, &tops, spacing))
}

/// The layout, from the column and height of each node and bend.
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
