//! Builds nodes from events, one document at a time. The parser has assigned comments to events. Here the comments of a
//! map's entries are moved to the keys.

use std::collections::BTreeSet;

use super::node::{YamlNode, YamlNodeKind, YamlNodeStyle};
use super::node_anchor_and_comments::{AnchorOrCommentKind, NodeAnchorAndComments};
use super::tag;
use crate::YamlDialect;
use crate::error::Error;
use crate::event::{NodeProperties, YamlEvent, YamlEventKind};
use crate::limits::{YamlBudget, YamlLimits};
use crate::parser::YamlParser;
use crate::reader::YamlMark;
use crate::token;

/// Reads all documents of `input`, including empty ones that only have a `---`.
///
/// Each document is a node of [`YamlNodeKind::Document`] with one child.
///
/// # Errors
/// The first error, in the words of go-yaml, or an exceeded limit. [`YamlLimits::depth`] does not apply, because depth
/// costs no stack. The limit of go-yaml applies: 10 000 nested flow collections, and as many nested block collections.
pub fn parse(input: &[u8], limits: &YamlLimits) -> Result<Vec<YamlNode>, Error> {
    YamlNodeDocumentReader::new(input, limits)?.collect()
}

/// The documents of a stream, read one by one. After an error, there are no more.
#[derive(Debug)]
pub struct YamlNodeDocumentReader<'i> {
    parser: YamlParser<'i>,
    budget: YamlBudget,
    /// The anchors so far. In Go, an anchor is known in all later documents.
    anchors: BTreeSet<String>,
    started: bool,
    ended: bool,
}

impl<'i> YamlNodeDocumentReader<'i> {
    /// The documents of `input`.
    ///
    /// # Errors
    /// The input is longer than the limit.
    pub fn new(input: &'i [u8], limits: &YamlLimits) -> Result<Self, Error> {
        Ok(Self {
            parser: YamlParser::new(input, 0, YamlDialect::V3),
            budget: YamlBudget::new(input, limits)?,
            anchors: BTreeSet::new(),
            started: false,
            ended: false,
        })
    }

    fn next_document(&mut self) -> Result<Option<YamlNode>, Error> {
        if !self.started {
            self.parser.next()?;
            self.started = true;
        }
        let mut open: Vec<YamlNode> = Vec::new();
        loop {
            let event = self.parser.next()?;
            let at = event.start;
            match event.kind {
                YamlEventKind::StreamStart => {}
                YamlEventKind::StreamEnd => return Ok(None),
                YamlEventKind::DocumentStart => {
                    self.budget.take_document(at)?;
                    open.push(placed(YamlNodeKind::Document, event));
                }
                YamlEventKind::DocumentEnd => {
                    let Some(mut document) = open.pop() else { return Ok(None) };
                    document.notes.set(AnchorOrCommentKind::Foot, event.comments.foot);
                    return Ok(Some(document));
                }
                YamlEventKind::SequenceEnd | YamlEventKind::MappingEnd => {
                    if let Some(node) = open.pop() {
                        add(&mut open, ended(node, event));
                    }
                }
                YamlEventKind::SequenceStart { .. } | YamlEventKind::MappingStart { .. } => {
                    self.budget.take_node(at)?;
                    let node = self.collection(event);
                    open.push(node);
                }
                YamlEventKind::Scalar { .. } | YamlEventKind::Alias { .. } => {
                    self.budget.take_node(at)?;
                    add(&mut open, self.leaf(event)?);
                }
            }
        }
    }

    fn collection(&mut self, mut event: YamlEvent) -> YamlNode {
        let (kind, properties, flow, default) = match &mut event.kind {
            YamlEventKind::SequenceStart { properties, flow } => {
                (YamlNodeKind::Sequence, std::mem::take(properties), *flow, tag::SEQ)
            }
            YamlEventKind::MappingStart { properties, flow } => {
                (YamlNodeKind::Mapping, std::mem::take(properties), *flow, tag::MAP)
            }
            _ => (YamlNodeKind::Mapping, NodeProperties::default(), false, tag::MAP),
        };
        let mut node = placed(kind, event);
        if flow {
            node.style |= YamlNodeStyle::FLOW;
        }
        self.set_properties(&mut node, properties, Some(default));
        node
    }

    fn leaf(&mut self, mut event: YamlEvent) -> Result<YamlNode, Error> {
        let at = event.start;
        match &mut event.kind {
            YamlEventKind::Alias { anchor } => {
                let value = std::mem::take(anchor);
                if !self.anchors.contains(&value) {
                    let text = format_args!("unknown anchor '{value}' referenced");
                    return Err(Error::node(text, at));
                }
                Ok(YamlNode { value, ..placed(YamlNodeKind::Alias, event) })
            }
            YamlEventKind::Scalar { properties, text, style, .. } => {
                let properties = std::mem::take(properties);
                let value = std::mem::take(text);
                let style = match style {
                    token::TokenScalarStyle::Plain => YamlNodeStyle::default(),
                    token::TokenScalarStyle::SingleQuoted => YamlNodeStyle::SINGLE_QUOTED,
                    token::TokenScalarStyle::DoubleQuoted => YamlNodeStyle::DOUBLE_QUOTED,
                    token::TokenScalarStyle::Literal => YamlNodeStyle::LITERAL,
                    token::TokenScalarStyle::Folded => YamlNodeStyle::FOLDED,
                };
                let default = match style.is_quoted() {
                    true => Some(tag::STR),
                    false => (value == "<<").then_some(tag::MERGE),
                };
                let mut node = YamlNode { value, style, ..placed(YamlNodeKind::Scalar, event) };
                self.set_properties(&mut node, properties, default);
                Ok(node)
            }
            _ => Ok(placed(YamlNodeKind::Scalar, event)),
        }
    }

    fn set_properties(
        &mut self,
        node: &mut YamlNode,
        properties: NodeProperties,
        default: Option<&'static str>,
    ) {
        node.tag = match (properties.tag.as_str(), default) {
            ("" | "!", Some(default)) => default.into(),
            ("" | "!", None) => tag::of_text(&node.value).into(),
            (written, _) => {
                node.style |= YamlNodeStyle::TAGGED;
                tag::short(written).into_owned().into()
            }
        };
        if let Some(anchor) = properties.anchor {
            node.notes.set(AnchorOrCommentKind::Anchor, anchor.as_str());
            self.anchors.insert(anchor);
        }
    }
}

impl Iterator for YamlNodeDocumentReader<'_> {
    type Item = Result<YamlNode, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let document = self.next_document().transpose();
        self.ended = !matches!(document, Some(Ok(_)));
        document
    }
}

/// A node with the position and the comments of an event.
fn placed(kind: YamlNodeKind, event: YamlEvent) -> YamlNode {
    let YamlMark { line, column, .. } = event.start;
    let comments = event.comments;
    YamlNode {
        kind,
        line: place(line),
        column: place(column),
        notes: NodeAnchorAndComments::comments(comments.head, comments.line, comments.foot),
        ..YamlNode::default()
    }
}

/// A line or column counted from 1; larger numbers are cut to `u32::MAX`.
pub(super) fn place(from_zero: usize) -> u32 {
    u32::try_from(from_zero).unwrap_or(u32::MAX).saturating_add(1)
}

/// A complete collection, with the comments of its end.
fn ended(mut node: YamlNode, end: YamlEvent) -> YamlNode {
    node.notes.set(AnchorOrCommentKind::Line, end.comments.line);
    node.notes.set(AnchorOrCommentKind::Foot, end.comments.foot);
    // It grew by doubling; most collections are small, and stay as they are.
    node.content.shrink_to_fit();
    let count = node.content.len();
    let is_block_map =
        node.kind == YamlNodeKind::Mapping && !node.style.contains(YamlNodeStyle::FLOW);
    if is_block_map && count > 1 && !node.notes.get(AnchorOrCommentKind::Foot).is_empty() {
        let foot = node.notes.take(AnchorOrCommentKind::Foot);
        node.content[count - 2].notes.set(AnchorOrCommentKind::Foot, foot);
    }
    node
}

/// Adds a complete node to the collection that contains it.
fn add(open: &mut [YamlNode], child: YamlNode) {
    let Some(parent) = open.last_mut() else { return };
    let is_block = !parent.style.contains(YamlNodeStyle::FLOW);
    let is_map = parent.kind == YamlNodeKind::Mapping;
    let content = &mut parent.content;
    content.push(child);
    let count = content.len();
    if !is_map {
        return;
    }
    if count % 2 == 0 {
        if content[count - 2].notes.get(AnchorOrCommentKind::Foot).is_empty() {
            let foot = content[count - 1].notes.take(AnchorOrCommentKind::Foot);
            content[count - 2].notes.set(AnchorOrCommentKind::Foot, foot);
        }
    } else if is_block
        && count > 2
        && !content[count - 1].notes.get(AnchorOrCommentKind::Foot).is_empty()
    {
        // Further out than the value above, it is below the whole entry.
        let foot = content[count - 1].notes.take(AnchorOrCommentKind::Foot);
        content[count - 3].notes.set(AnchorOrCommentKind::Foot, foot);
    }
}
