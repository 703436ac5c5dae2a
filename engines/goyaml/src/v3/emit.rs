//! Writes nodes byte for byte as go-yaml v3 encodes them.
//!
//! Here: walking the tree, and the tag and style that each node requests. Elsewhere: the output of a step of the walk
//! (`emit/node_emitter.rs`), the text itself (`emit/writer.rs`), and the styles that a scalar may have
//! (`emit/scalar_style.rs`).

mod event;
mod node_emitter;
mod scalar_style;
mod writer;

use super::node::{YamlNode, YamlNodeKind, YamlNodeStyle};
use super::node_anchor_and_comments::AnchorOrCommentKind;
use super::tag;
use event::{EmitEvent, EmitEventKind, TagHandleAndSuffix};
use node_emitter::NodeEmitter;
use scalar_style::ScalarStyle;

/// How many bytes the written text may have.
///
/// Deep indentation can make a very long text of a small tree.
const MAX_OUTPUT: usize = 256 << 20;

/// The layout of a written text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct YamlLayout {
    /// The number of columns for each level, from 2 to 9. 0 counts as 4, and any other number as 2.
    pub indent: usize,
    /// Whether the `- ` of a list below a key is part of its indentation.
    pub compact_sequences: bool,
}

impl Default for YamlLayout {
    /// The defaults of go-yaml: 4 columns, and lists are indented more than their keys.
    fn default() -> Self {
        Self { indent: 4, compact_sequences: false }
    }
}

/// The reason why a tree cannot be written.
///
/// The message is Go's, where Go refuses too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeEmitError {
    /// The name of an anchor or alias cannot be written.
    #[error("yaml: {0}")]
    Name(&'static str),
    /// A document is within another one, or has no child.
    #[error("yaml: expected SCALAR, SEQUENCE-START, MAPPING-START, or ALIAS, but got {0}")]
    NoNode(&'static str),
    /// A document has several children.
    #[error("yaml: expected DOCUMENT-END")]
    Children,
    /// The text would be too long.
    #[error("the text would be longer than 256 MiB")]
    Length,
    /// A value is nested too deeply, or contains itself.
    #[error("the value is nested more than 10000 deep, or holds itself")]
    Depth,
    /// A value cannot be written.
    #[error("{0}")]
    Value(String),
}

/// Writes a document or any other node as YAML, including the final newline.
///
/// # Errors
/// See [`NodeEmitError`].
pub fn emit(node: &YamlNode, layout: &YamlLayout) -> Result<String, NodeEmitError> {
    write([(node, layout)], MAX_OUTPUT)
}

/// Writes several nodes as one YAML stream; each document but the first begins with `---`.
///
/// # Errors
/// See [`NodeEmitError`].
pub fn emit_documents<'n>(
    nodes: impl IntoIterator<Item = &'n YamlNode>,
    layout: &YamlLayout,
) -> Result<String, NodeEmitError> {
    write(nodes.into_iter().map(|node| (node, layout)), MAX_OUTPUT)
}

/// Like [`emit_documents`], each node with its own layout.
///
/// # Errors
/// See [`NodeEmitError`].
pub fn emit_each<'n>(
    nodes: impl IntoIterator<Item = (&'n YamlNode, &'n YamlLayout)>,
) -> Result<String, NodeEmitError> {
    write(nodes, MAX_OUTPUT)
}

fn write<'n, 'l>(
    nodes: impl IntoIterator<Item = (&'n YamlNode, &'l YamlLayout)>,
    limit: usize,
) -> Result<String, NodeEmitError> {
    let mut walk = NodeEmitWalk { emitter: NodeEmitter::new(limit), open: Vec::new() };
    for (node, layout) in nodes {
        walk.emitter.set_layout(layout);
        let is_document = node.kind == YamlNodeKind::Document;
        if !is_document {
            walk.emitter.emit(&EmitEvent::new(EmitEventKind::DocumentStart))?;
        }
        walk.begin(node, "", node.notes.get(AnchorOrCommentKind::Foot))?;
        while !walk.open.is_empty() {
            walk.step()?;
        }
        if !is_document {
            walk.emitter.emit(&EmitEvent::new(EmitEventKind::DocumentEnd))?;
        }
    }
    walk.emitter.finish()
}

/// A node of which a part has been written.
struct NodeEmitFrame<'n> {
    node: &'n YamlNode,
    next: usize,
    foot: &'n str,
    /// The foot comment of the last key, which stands below its value: in front of the next key.
    tail: &'n str,
}

struct NodeEmitWalk<'n> {
    emitter: NodeEmitter<'n>,
    open: Vec<NodeEmitFrame<'n>>,
}

impl<'n> NodeEmitWalk<'n> {
    /// Writes the next child of the innermost node, or its end.
    fn step(&mut self) -> Result<(), NodeEmitError> {
        let Some(frame) = self.open.last_mut() else { return Ok(()) };
        let node = frame.node;
        let at = frame.next;
        let foot = frame.foot;
        let tail = frame.tail;
        let is_map = node.kind == YamlNodeKind::Mapping;
        // A last key without a value is left out, as Go does.
        let end = if is_map { node.content.len() / 2 * 2 } else { node.content.len() };
        if let Some(child) = node.content[..end].get(at) {
            frame.next += 1;
            if is_map && at % 2 == 0 {
                frame.tail = child.notes.get(AnchorOrCommentKind::Foot);
                return self.begin(child, tail, "");
            }
            return self.begin(child, "", child.notes.get(AnchorOrCommentKind::Foot));
        }
        self.open.pop();
        let kind = match node.kind {
            YamlNodeKind::Document => EmitEventKind::DocumentEnd,
            YamlNodeKind::Mapping => EmitEventKind::MappingEnd,
            YamlNodeKind::Sequence | YamlNodeKind::Scalar | YamlNodeKind::Alias => {
                EmitEventKind::SequenceEnd
            }
        };
        let line = if node.kind == YamlNodeKind::Document {
            ""
        } else {
            node.notes.get(AnchorOrCommentKind::Line)
        };
        self.emitter.emit(&EmitEvent { line, foot, tail, ..EmitEvent::new(kind) })
    }

    /// Writes a scalar or an alias, or the part before the children.
    fn begin(
        &mut self,
        node: &'n YamlNode,
        tail: &'n str,
        foot: &'n str,
    ) -> Result<(), NodeEmitError> {
        let (written, force_quotes) = node.written_tag();
        let tag = TagHandleAndSuffix::of(&tag::long(written));
        let is_flow = node.style.contains(YamlNodeStyle::FLOW);
        let head = node.notes.get(AnchorOrCommentKind::Head);
        let line = node.notes.get(AnchorOrCommentKind::Line);
        let anchor = node.notes.get(AnchorOrCommentKind::Anchor);
        let mut event = EmitEvent { anchor, tag, head, ..EmitEvent::new(EmitEventKind::Alias) };
        let value = node.value.as_str();
        let at_most_one = node.content.len() < 2;
        event.kind = match node.kind {
            YamlNodeKind::Document => {
                event = EmitEvent { head, ..EmitEvent::new(EmitEventKind::DocumentStart) };
                EmitEventKind::DocumentStart
            }
            YamlNodeKind::Sequence => {
                EmitEventKind::SequenceStart { is_flow, is_empty: node.content.is_empty() }
            }
            YamlNodeKind::Mapping => {
                event.tail = tail;
                EmitEventKind::MappingStart { is_flow, is_empty: at_most_one }
            }
            YamlNodeKind::Alias => {
                event =
                    EmitEvent { value, head, line, foot, ..EmitEvent::new(EmitEventKind::Alias) };
                EmitEventKind::Alias
            }
            YamlNodeKind::Scalar => {
                event = EmitEvent { value, line, foot, tail, ..event };
                EmitEventKind::Scalar(style(node, force_quotes))
            }
        };
        self.emitter.emit(&event)?;
        if !matches!(node.kind, YamlNodeKind::Scalar | YamlNodeKind::Alias) {
            self.open.push(NodeEmitFrame { node, next: 0, foot, tail: "" });
        }
        Ok(())
    }
}

/// The style that a scalar asks for; its characters or its place may forbid it.
fn style(node: &YamlNode, force_quotes: bool) -> ScalarStyle {
    let styles = [
        (YamlNodeStyle::DOUBLE_QUOTED, ScalarStyle::DoubleQuoted),
        (YamlNodeStyle::SINGLE_QUOTED, ScalarStyle::SingleQuoted),
        (YamlNodeStyle::LITERAL, ScalarStyle::Literal),
        (YamlNodeStyle::FOLDED, ScalarStyle::Folded),
    ];
    let asked = styles.into_iter().find(|(style, _)| node.style.contains(*style));
    match asked {
        Some((_, style)) => style,
        None if node.value.contains('\n') => ScalarStyle::Literal,
        None if force_quotes => ScalarStyle::DoubleQuoted,
        None => ScalarStyle::Plain,
    }
}

#[cfg(test)]
mod tests;
