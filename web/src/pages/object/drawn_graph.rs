//! Draws a graph as a picture. Each node is a link that works with the keyboard, and its text says the same as its shape.
//!
//! Elsewhere: the choice of nodes (`graph_nodes.rs`), the layout (engine `graph-layout`).

use graph_layout::{EdgeLine, GraphLayout, GraphPoint, GraphSpacing, layout};
use maud::{Markup, html};
use objects::clean_line;
use windlass_cli_runtime::table::cut;

use super::graph_nodes::{GraphNode, ObjectGraph};
use crate::href::Href;
use crate::page_elements::failure;
use crate::route::{ObjectAddress, ObjectTab, Route};

/// The sizes of nodes and the gaps between them.
const SPACING: GraphSpacing =
    GraphSpacing { node_width: 220, node_height: 46, column_gap: 56, row_gap: 14 };

/// How many characters of a name are drawn. A tooltip and a screen reader give the whole name.
const MAX_DRAWN_CHARACTERS: usize = 27;

/// The margin around the picture, which leaves room for the outline of a focused node.
const MARGIN_UNITS: i64 = 4;

/// The tab with the graph.
pub(super) fn content(graph: &ObjectGraph, place: &ObjectAddress) -> Markup {
    let as_list = Href::inside(&Route::Object { place: place.clone(), tab: ObjectTab::Tree });
    html! {
        section class="panel" {
            header {
                h2 { "From its source to its Pods" }
                span class="more" { (graph.objects) " objects · " a href=(as_list) { "as a list" } }
            }
            @match layout(graph.nodes.len(), &graph.edges, SPACING) {
                // A picture that is larger than the page scrolls within this box, also with the keyboard.
                Ok(layout) => div class="wide canvas" tabindex="0" role="region" aria-label="Graph of objects" { (picture(graph, &layout)) },
                Err(error) => (failure("The graph cannot be drawn", &error.to_string())),
            }
        }
    }
}

fn picture(graph: &ObjectGraph, layout: &GraphLayout) -> Markup {
    let width = layout.width + 2 * MARGIN_UNITS;
    let height = layout.height + 2 * MARGIN_UNITS;
    let begin = -MARGIN_UNITS;
    html! {
        svg class="graph" role="group" aria-label="Graph of objects" width=(width) height=(height) viewBox={ (begin) " " (begin) " " (width) " " (height) } {
            @for line in &layout.lines { path class="edge" d=(way(line)) {} }
            @for (node, corner) in graph.nodes.iter().zip(&layout.corners) { (drawn(node, *corner)) }
        }
    }
}

/// The SVG path of an edge. It is straight through columns, and curved between them.
fn way(line: &EdgeLine) -> String {
    let mut way = String::new();
    let mut before: Option<GraphPoint> = None;
    for point in &line.points {
        let GraphPoint { x, y } = *point;
        way.push_str(&match before {
            None => format!("M{x} {y}"),
            Some(from) if from.y == y => format!("L{x} {y}"),
            Some(from) => {
                let middle = (from.x + x) / 2;
                format!("C{middle} {} {middle} {y} {x} {y}", from.y)
            }
        });
        before = Some(*point);
    }
    way
}

/// Draws a node. It is a link if it stands for one object.
fn drawn(node: &GraphNode, corner: GraphPoint) -> Markup {
    let class = node.state.map_or("unread", |state| state.class());
    let word = node.state.map_or("not read", |state| state.word());
    let subject = if node.is_subject { " subject" } else { "" };
    let class = format!("node {class}{subject}");
    let about = match node.message.as_str() {
        "" => format!("{}: {word}", node.named),
        message => format!("{}: {word}, {message}", node.named),
    };
    let route = node
        .id
        .as_ref()
        .map(|id| Route::Object { place: ObjectAddress::of(id), tab: ObjectTab::Why });
    html! {
        @match route {
            Some(route) => a class=(class) href=(Href::inside(&route)) aria-current=[node.is_subject.then_some("true")] {
                (inside(node, corner, &about, word))
            },
            None => g class=(class) { (inside(node, corner, &about, word)) },
        }
    }
}

fn inside(node: &GraphNode, corner: GraphPoint, about: &str, word: &str) -> Markup {
    let GraphPoint { x, y } = corner;
    let GraphSpacing { node_width, node_height, .. } = SPACING;
    let kind = node.id.as_ref().map(|id| id.kind.as_str()).unwrap_or_default();
    let name = node.id.as_ref().map_or(node.named.as_str(), |id| id.name.as_str());
    let shown = |text: &str| cut(&clean_line(text), MAX_DRAWN_CHARACTERS);
    html! {
        title { (clean_line(about)) }
        rect x=(x) y=(y) width=(node_width) height=(node_height) rx="8" {}
        @if let Some(state) = node.state {
            use href=(state.symbol()) x=(x + 10) y=(y + 15) width="16" height="16" {}
        }
        text class="kind" x=(x + 34) y=(y + 18) { (shown(kind)) @if !kind.is_empty() { " · " } (word) }
        text x=(x + 34) y=(y + 35) { (shown(name)) }
    }
}

#[cfg(test)]
mod tests {
    use graph_layout::GraphEdge;
    use objects::ObjectId;

    use super::*;
    use crate::page_elements::ObjectState;

    fn node(name: &str, state: Option<ObjectState>) -> GraphNode {
        let id = ObjectId::new("apps", name, "apps", "Deployment");
        GraphNode {
            named: id.subject(),
            id: Some(id),
            state,
            message: String::new(),
            is_subject: false,
        }
    }

    fn place() -> ObjectAddress {
        ObjectAddress::of(&ObjectId::new(
            "apps",
            "app",
            "kustomize.toolkit.fluxcd.io",
            "Kustomization",
        ))
    }

    #[test]
    fn a_node_is_a_link_with_words_and_its_name_is_escaped() {
        let mut hostile = node("\"><script>\u{202e}", Some(ObjectState::Failing));
        hostile.message = "a <b>".to_owned();
        let html = drawn(&hostile, GraphPoint { x: 10, y: 20 }).into_string();
        let expected = "<a class=\"node bad\" href=\"/o/deployment.apps/apps/%22%3E%3Cscript%3E%E2%80%AE\">\
            <title>Deployment/apps/&quot;&gt;&lt;script&gt;\\u{202e}: failing, a &lt;b&gt;</title>\
            <rect x=\"10\" y=\"20\" width=\"220\" height=\"46\" rx=\"8\"></rect>\
            <use href=\"#s-bad\" x=\"20\" y=\"35\" width=\"16\" height=\"16\"></use>\
            <text class=\"kind\" x=\"44\" y=\"38\">Deployment · failing</text>\
            <text x=\"44\" y=\"55\">&quot;&gt;&lt;script&gt;\\u{202e}</text></a>";
        assert_eq!(html, expected);
    }

    #[test]
    fn edges_are_behind_nodes_and_what_stands_for_several_is_no_link() {
        let mut more = node("b", None);
        more.id = None;
        more.named = "3 more".to_owned();
        let nodes = vec![node("a", Some(ObjectState::Ready)), more];
        let edges = vec![GraphEdge { from: 0, to: 1 }];
        let html = content(&ObjectGraph { nodes, edges, objects: 5 }, &place()).into_string();
        assert!(html.contains("viewBox=\"-4 -4 504 54\""), "{html}");
        assert!(
            html.contains("<path class=\"edge\" d=\"M220 23L276 23\"></path><a class="),
            "{html}"
        );
        assert!(
            html.contains("<g class=\"node unread\"><title>3 more: not read</title>"),
            "{html}"
        );
        assert!(html.contains("<a href=\"/o/ks/apps/app/tree\">as a list</a>"), "{html}");
    }

    #[test]
    fn an_edge_that_rises_is_a_curve() {
        let points = vec![GraphPoint { x: 0, y: 0 }, GraphPoint { x: 50, y: 30 }];
        let line = EdgeLine { edge: GraphEdge { from: 0, to: 1 }, points };
        assert_eq!(way(&line), "M0 0C25 0 25 30 50 30");
    }
}
