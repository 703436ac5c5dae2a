//! Events to nodes: one document as the text has it, aliases resolved to what they name.
//! What the nodes mean is the decoder's business.

use std::collections::BTreeMap;

use crate::Dialect;
use crate::error::Error;
use crate::event::{Event, EventKind, Properties};
use crate::limits::YamlBudget;
use crate::parser::Parser;
use crate::reader::Mark;
use crate::token::Style;

/// Index of a node in its document.
pub(crate) type NodeId = usize;

/// What a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Scalar {
        text: String,
        style: Style,
        implicit: bool,
    },
    Sequence,
    /// Its children are keys and values in turn.
    Mapping,
    Alias {
        anchor: String,
        target: NodeId,
    },
}

/// A node; its children follow it, up to `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadedNode {
    pub(crate) kind: NodeKind,
    /// In its long form; empty when there is none.
    pub(crate) tag: String,
    pub(crate) start: Mark,
    /// The first node that is not below this one.
    pub(crate) end: NodeId,
}

impl LoadedNode {
    /// Whether the node is written without a single character.
    pub(crate) fn is_absent(&self) -> bool {
        let NodeKind::Scalar { text, style, .. } = &self.kind else { return false };
        text.is_empty() && *style == Style::Plain && self.tag.is_empty()
    }
}

/// The nodes of one document in the order of the text; the first is the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nodes(Vec<LoadedNode>);

impl Nodes {
    pub(crate) fn root(&self) -> &LoadedNode {
        &self.0[0]
    }

    pub(crate) fn get(&self, id: NodeId) -> &LoadedNode {
        &self.0[id]
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The children of a node, in order.
    pub(crate) fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let end = self.0[id].end;
        let first = Some(id + 1).filter(|first| *first < end);
        std::iter::successors(first, move |child| Some(self.0[*child].end).filter(|id| *id < end))
    }
}

/// Reads the first document of `input`; `None` when the input holds none.
///
/// What comes after that document is not examined.
pub(crate) fn first_document(
    input: &[u8],
    line: usize,
    budget: &mut YamlBudget,
) -> Result<Option<Nodes>, Error> {
    let mut parser = Parser::new(input, line, Dialect::V2);
    parser.next()?;
    if parser.next()?.kind == EventKind::StreamEnd {
        return Ok(None);
    }
    let mut composer = Composer::default();
    loop {
        let event = parser.next()?;
        if event.kind == EventKind::DocumentEnd {
            return Ok(Some(Nodes(composer.nodes)));
        }
        composer.take(event, budget)?;
    }
}

/// Composes one node with all that is below it, from events that begin with it.
pub(crate) fn next_node(
    mut next: impl FnMut() -> Result<Event, Error>,
    budget: &mut YamlBudget,
) -> Result<Nodes, Error> {
    let mut composer = Composer::default();
    loop {
        let event = next()?;
        let start = event.start;
        composer.take(event, budget)?;
        if composer.nodes.is_empty() {
            return Err(Error::node("there is nothing where a value belongs", start));
        }
        if composer.open.is_empty() {
            return Ok(Nodes(composer.nodes));
        }
    }
}

#[derive(Default)]
struct Composer {
    nodes: Vec<LoadedNode>,
    /// The collections that are not complete.
    open: Vec<NodeId>,
    anchors: BTreeMap<String, NodeId>,
}

impl Composer {
    fn take(&mut self, event: Event, budget: &mut YamlBudget) -> Result<(), Error> {
        let start = event.start;
        let before = self.nodes.len();
        match event.kind {
            EventKind::Alias { anchor } => {
                let Some(&target) = self.anchors.get(&anchor) else {
                    return Err(Error::node(
                        format_args!("unknown anchor '{anchor}' referenced"),
                        start,
                    ));
                };
                let kind = NodeKind::Alias { anchor, target };
                self.push(kind, Properties::default(), start);
            }
            EventKind::Scalar { properties, text, style, implicit } => {
                self.push(NodeKind::Scalar { text, style, implicit }, properties, start);
            }
            EventKind::SequenceStart { properties, .. } => {
                self.open.push(self.nodes.len());
                self.push(NodeKind::Sequence, properties, start);
            }
            EventKind::MappingStart { properties, .. } => {
                self.open.push(self.nodes.len());
                self.push(NodeKind::Mapping, properties, start);
            }
            EventKind::SequenceEnd | EventKind::MappingEnd => {
                if let Some(id) = self.open.pop() {
                    self.nodes[id].end = self.nodes.len();
                }
            }
            EventKind::StreamStart
            | EventKind::StreamEnd
            | EventKind::DocumentStart
            | EventKind::DocumentEnd => {}
        }
        if self.nodes.len() > before { budget.take_node(start) } else { Ok(()) }
    }

    fn push(&mut self, kind: NodeKind, properties: Properties, start: Mark) {
        let id = self.nodes.len();
        if let Some(anchor) = properties.anchor {
            // A collection may be named within itself, which only decoding finds wrong.
            self.anchors.insert(anchor, id);
        }
        self.nodes.push(LoadedNode { kind, tag: properties.tag, start, end: id + 1 });
    }
}
