//! Builds the nodes of one document from events. Aliases are resolved to the nodes that they name. The decoder gives
//! the nodes their meaning.

use std::collections::BTreeMap;

use crate::YamlDialect;
use crate::error::Error;
use crate::event::{NodeProperties, YamlEvent, YamlEventKind};
use crate::limits::YamlBudget;
use crate::parser::YamlParser;
use crate::reader::YamlMark;
use crate::token::TokenScalarStyle;

/// Index of a node in its document.
pub(crate) type LoadedNodeId = usize;

/// The kind of a loaded node, with the content of scalars and aliases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoadedNodeKind {
    Scalar {
        text: String,
        style: TokenScalarStyle,
        implicit: bool,
    },
    Sequence,
    /// A mapping. Its children are keys and values in turn.
    Mapping,
    Alias {
        anchor: String,
        target: LoadedNodeId,
    },
}

/// A node. Its children follow it in the list, up to `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadedNode {
    pub(crate) kind: LoadedNodeKind,
    /// The tag in its long form. It is empty if there is none.
    pub(crate) tag: String,
    pub(crate) start: YamlMark,
    /// The first node that is not below this one.
    pub(crate) end: LoadedNodeId,
}

impl LoadedNode {
    /// Whether the node has no characters in the text.
    pub(crate) fn is_absent(&self) -> bool {
        let LoadedNodeKind::Scalar { text, style, .. } = &self.kind else { return false };
        text.is_empty() && *style == TokenScalarStyle::Plain && self.tag.is_empty()
    }
}

/// The nodes of one document, in the order of the text. The first one is the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DocumentNodes(Vec<LoadedNode>);

impl DocumentNodes {
    pub(crate) fn root(&self) -> &LoadedNode {
        &self.0[0]
    }

    pub(crate) fn get(&self, id: LoadedNodeId) -> &LoadedNode {
        &self.0[id]
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The children of a node, in order.
    pub(crate) fn children(&self, id: LoadedNodeId) -> impl Iterator<Item = LoadedNodeId> {
        let end = self.0[id].end;
        let first = Some(id + 1).filter(|first| *first < end);
        std::iter::successors(first, move |child| Some(self.0[*child].end).filter(|id| *id < end))
    }
}

/// Reads the first document of `input`. `None` if the input has no document.
///
/// The text after that document is not examined.
pub(crate) fn first_document(
    input: &[u8],
    line: usize,
    budget: &mut YamlBudget,
) -> Result<Option<DocumentNodes>, Error> {
    let mut parser = YamlParser::new(input, line, YamlDialect::V2);
    parser.next()?;
    if parser.next()?.kind == YamlEventKind::StreamEnd {
        return Ok(None);
    }
    let mut composer = NodeComposer::default();
    loop {
        let event = parser.next()?;
        if event.kind == YamlEventKind::DocumentEnd {
            return Ok(Some(DocumentNodes(composer.nodes)));
        }
        composer.take(event, budget)?;
    }
}

/// Builds one node with everything below it, from the events that begin with it.
pub(crate) fn next_node(
    mut next: impl FnMut() -> Result<YamlEvent, Error>,
    budget: &mut YamlBudget,
) -> Result<DocumentNodes, Error> {
    let mut composer = NodeComposer::default();
    loop {
        let event = next()?;
        let start = event.start;
        composer.take(event, budget)?;
        if composer.nodes.is_empty() {
            return Err(Error::node("there is nothing where a value belongs", start));
        }
        if composer.open.is_empty() {
            return Ok(DocumentNodes(composer.nodes));
        }
    }
}

#[derive(Default)]
struct NodeComposer {
    nodes: Vec<LoadedNode>,
    /// The collections that are not complete.
    open: Vec<LoadedNodeId>,
    anchors: BTreeMap<String, LoadedNodeId>,
}

impl NodeComposer {
    fn take(&mut self, event: YamlEvent, budget: &mut YamlBudget) -> Result<(), Error> {
        let start = event.start;
        let before = self.nodes.len();
        match event.kind {
            YamlEventKind::Alias { anchor } => {
                let Some(&target) = self.anchors.get(&anchor) else {
                    return Err(Error::node(
                        format_args!("unknown anchor '{anchor}' referenced"),
                        start,
                    ));
                };
                let kind = LoadedNodeKind::Alias { anchor, target };
                self.push(kind, NodeProperties::default(), start);
            }
            YamlEventKind::Scalar { properties, text, style, implicit } => {
                self.push(LoadedNodeKind::Scalar { text, style, implicit }, properties, start);
            }
            YamlEventKind::SequenceStart { properties, .. } => {
                self.open.push(self.nodes.len());
                self.push(LoadedNodeKind::Sequence, properties, start);
            }
            YamlEventKind::MappingStart { properties, .. } => {
                self.open.push(self.nodes.len());
                self.push(LoadedNodeKind::Mapping, properties, start);
            }
            YamlEventKind::SequenceEnd | YamlEventKind::MappingEnd => {
                if let Some(id) = self.open.pop() {
                    self.nodes[id].end = self.nodes.len();
                }
            }
            YamlEventKind::StreamStart
            | YamlEventKind::StreamEnd
            | YamlEventKind::DocumentStart
            | YamlEventKind::DocumentEnd => {}
        }
        if self.nodes.len() > before { budget.take_node(start) } else { Ok(()) }
    }

    fn push(&mut self, kind: LoadedNodeKind, properties: NodeProperties, start: YamlMark) {
        let id = self.nodes.len();
        if let Some(anchor) = properties.anchor {
            // A collection may be named within itself, which only decoding finds wrong.
            self.anchors.insert(anchor, id);
        }
        self.nodes.push(LoadedNode { kind, tag: properties.tag, start, end: id + 1 });
    }
}
