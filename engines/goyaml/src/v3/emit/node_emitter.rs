//! The output of each step of the walk: indicators, indentation and comments.
//!
//! It is a state machine with its own stack, as in libyaml. A comment waits until the position for its kind comes,
//! which may be after the next step. Elsewhere: the order of the steps (`super`), and columns and scalars (`writer`).

use super::event::{EmitEvent, EmitEventKind, TagHandleAndSuffix};
use super::scalar_style::{NodeScalarAnalysis, ScalarStyle};
use super::writer::NodeWriter;
use super::{NodeEmitError, YamlLayout};

/// How long a key may be without needing a `?`, in bytes.
const MAX_SIMPLE_KEY: usize = 128;

/// What the emitter expects next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeEmitterState {
    DocumentStart,
    DocumentContent,
    DocumentEnd,
    /// With `trail`, the comma has been written in front of a comment.
    FlowItem {
        first: bool,
        trail: bool,
    },
    FlowKey {
        first: bool,
        trail: bool,
    },
    FlowValue {
        simple: bool,
    },
    BlockItem {
        first: bool,
    },
    BlockKey {
        first: bool,
    },
    BlockValue {
        simple: bool,
    },
}

/// The position of a node in its document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct EmitContext {
    mapping: bool,
    simple_key: bool,
}

const IN_MAPPING: EmitContext = EmitContext { mapping: true, simple_key: false };
const SIMPLE_KEY: EmitContext = EmitContext { mapping: true, simple_key: true };

#[derive(Debug)]
pub(super) struct NodeEmitter<'n> {
    writer: NodeWriter,
    step: usize,
    compact_sequences: bool,
    is_first_document: bool,
    state: NodeEmitterState,
    states: Vec<NodeEmitterState>,
    indents: Vec<Option<usize>>,
    flow_level: usize,
    place: EmitContext,
    head: &'n str,
    line: &'n str,
    foot: &'n str,
    tail: &'n str,
    key_line: &'n str,
}

impl<'n> NodeEmitter<'n> {
    /// An emitter for a text of about `limit` bytes at most.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            writer: NodeWriter::new(limit),
            step: 4,
            compact_sequences: false,
            is_first_document: true,
            state: NodeEmitterState::DocumentStart,
            states: Vec::new(),
            indents: Vec::new(),
            flow_level: 0,
            place: EmitContext::default(),
            head: "",
            line: "",
            foot: "",
            tail: "",
            key_line: "",
        }
    }

    /// Sets the layout of the next documents.
    pub(super) fn set_layout(&mut self, layout: &YamlLayout) {
        self.step = match layout.indent {
            0 => 4,
            indent @ 2..=9 => indent,
            _ => 2,
        };
        self.compact_sequences = layout.compact_sequences;
    }

    /// The written YAML text. The error says that the text is too long.
    pub(super) fn finish(self) -> Result<String, NodeEmitError> {
        self.writer.finish().ok_or(NodeEmitError::Length)
    }

    /// Writes the output of a step.
    pub(super) fn emit(&mut self, event: &EmitEvent<'n>) -> Result<(), NodeEmitError> {
        for (waiting, comment) in [
            (&mut self.head, event.head),
            (&mut self.line, event.line),
            (&mut self.foot, event.foot),
            (&mut self.tail, event.tail),
        ] {
            if !comment.is_empty() {
                *waiting = comment;
            }
        }
        check_names(event)?;
        match self.state {
            // The walk begins each tree so.
            NodeEmitterState::DocumentStart => self.document_start(),
            NodeEmitterState::DocumentContent => {
                self.states.push(NodeEmitterState::DocumentEnd);
                self.put_head_comment();
                self.node(event, EmitContext::default())?;
                self.put_comments_behind();
            }
            NodeEmitterState::DocumentEnd => self.document_end(event)?,
            NodeEmitterState::FlowItem { first, trail } => self.flow_item(event, first, trail)?,
            NodeEmitterState::FlowKey { first, trail } => self.flow_key(event, first, trail)?,
            NodeEmitterState::FlowValue { simple } => self.flow_value(event, simple)?,
            NodeEmitterState::BlockItem { first } => self.block_item(event, first)?,
            NodeEmitterState::BlockKey { first } => self.block_key(event, first)?,
            NodeEmitterState::BlockValue { simple } => self.block_value(event, simple)?,
        }
        if self.writer.is_full() { Err(NodeEmitError::Length) } else { Ok(()) }
    }

    fn document_start(&mut self) {
        if !self.is_first_document {
            self.writer.start_line();
            self.writer.indicator("---", true, false, false);
            self.writer.start_line();
        }
        self.is_first_document = false;
        if !self.head.is_empty() {
            self.put_head_comment();
            self.writer.put_break();
        }
        self.state = NodeEmitterState::DocumentContent;
    }

    fn document_end(&mut self, event: &EmitEvent<'n>) -> Result<(), NodeEmitError> {
        if event.kind != EmitEventKind::DocumentEnd {
            return Err(NodeEmitError::Children);
        }
        self.writer.set_foot_indent(Some(0));
        self.put_foot_comment();
        self.writer.set_foot_indent(None);
        self.writer.start_line();
        self.state = NodeEmitterState::DocumentStart;
        Ok(())
    }

    fn flow_item(
        &mut self,
        event: &EmitEvent<'n>,
        first: bool,
        trail: bool,
    ) -> Result<(), NodeEmitError> {
        if first {
            self.open_flow("[");
        }
        if event.kind == EmitEventKind::SequenceEnd {
            self.flow_level -= 1;
            self.decrease_indent();
            if self.writer.column() == 0 {
                self.writer.start_line();
            }
            self.writer.indicator("]", false, false, false);
            self.put_comments_behind();
            self.pop_state();
            return Ok(());
        }
        self.separate_flow(first || trail);
        let trail = self.is_commented_behind();
        self.states.push(NodeEmitterState::FlowItem { first: false, trail });
        self.node(event, EmitContext::default())?;
        self.end_flow_node();
        Ok(())
    }

    fn flow_key(
        &mut self,
        event: &EmitEvent<'n>,
        first: bool,
        trail: bool,
    ) -> Result<(), NodeEmitError> {
        if first {
            self.open_flow("{");
        }
        if event.kind == EmitEventKind::MappingEnd {
            let commented = !(self.head.is_empty() && self.foot.is_empty() && self.tail.is_empty());
            if commented && !first && !trail {
                self.writer.indicator(",", false, false, false);
            }
            self.put_head_comment();
            self.flow_level -= 1;
            self.decrease_indent();
            self.writer.indicator("}", false, false, false);
            self.put_comments_behind();
            self.pop_state();
            return Ok(());
        }
        self.separate_flow(first || trail);
        if is_simple_key(event) {
            self.states.push(NodeEmitterState::FlowValue { simple: true });
            return self.node(event, SIMPLE_KEY);
        }
        self.writer.indicator("?", true, false, false);
        self.states.push(NodeEmitterState::FlowValue { simple: false });
        self.node(event, IN_MAPPING)
    }

    fn flow_value(&mut self, event: &EmitEvent<'n>, simple: bool) -> Result<(), NodeEmitError> {
        self.writer.indicator(":", !simple, false, false);
        let trail = self.is_commented_behind();
        self.states.push(NodeEmitterState::FlowKey { first: false, trail });
        self.node(event, IN_MAPPING)?;
        self.end_flow_node();
        Ok(())
    }

    fn open_flow(&mut self, bracket: &str) {
        self.writer.indicator(bracket, true, true, false);
        self.increase_indent(true, 0);
        self.flow_level += 1;
    }

    /// Writes the separator between two nodes of a flow collection.
    fn separate_flow(&mut self, is_separated: bool) {
        if !is_separated {
            self.writer.indicator(",", false, false, false);
        }
        self.put_head_comment();
        if self.writer.column() == 0 {
            self.writer.start_line();
        }
    }

    fn end_flow_node(&mut self) {
        if self.is_commented_behind() {
            self.writer.indicator(",", false, false, false);
        }
        self.put_comments_behind();
    }

    /// Whether a comment waits that follows the node, so that the comma has to precede the comment.
    fn is_commented_behind(&self) -> bool {
        !(self.line.is_empty() && self.foot.is_empty() && self.tail.is_empty())
    }

    fn block_item(&mut self, event: &EmitEvent<'n>, first: bool) -> Result<(), NodeEmitError> {
        if first {
            let shares_line = self.writer.column() > 0 && self.writer.is_indentation();
            let is_compact = self.compact_sequences && self.place.mapping && !shares_line;
            self.increase_indent(false, if is_compact { 2 } else { 0 });
        }
        if event.kind == EmitEventKind::SequenceEnd {
            self.decrease_indent();
            self.pop_state();
            return Ok(());
        }
        self.put_head_comment();
        self.writer.start_line();
        self.writer.indicator("-", true, false, true);
        self.states.push(NodeEmitterState::BlockItem { first: false });
        self.node(event, EmitContext::default())?;
        self.put_comments_behind();
        Ok(())
    }

    fn block_key(&mut self, event: &EmitEvent<'n>, first: bool) -> Result<(), NodeEmitError> {
        if first {
            self.increase_indent(false, 0);
        }
        self.put_head_comment();
        if event.kind == EmitEventKind::MappingEnd {
            self.decrease_indent();
            self.pop_state();
            return Ok(());
        }
        self.writer.start_line();
        if !self.line.is_empty() {
            self.key_line = std::mem::take(&mut self.line);
        }
        if is_simple_key(event) {
            self.states.push(NodeEmitterState::BlockValue { simple: true });
            return self.node(event, SIMPLE_KEY);
        }
        self.writer.indicator("?", true, false, true);
        self.states.push(NodeEmitterState::BlockValue { simple: false });
        self.node(event, IN_MAPPING)
    }

    fn block_value(&mut self, event: &EmitEvent<'n>, simple: bool) -> Result<(), NodeEmitError> {
        if simple {
            self.writer.indicator(":", false, false, false);
        } else {
            self.writer.start_line();
            self.writer.indicator(":", true, false, true);
        }
        match event.kind {
            // Of two comments for one line, that of the key waits for another scalar.
            EmitEventKind::Scalar(_) if self.line.is_empty() => {
                self.line = std::mem::take(&mut self.key_line);
            }
            EmitEventKind::SequenceStart { is_flow: false, .. }
            | EmitEventKind::MappingStart { is_flow: false, .. }
                if !self.key_line.is_empty() =>
            {
                let value_line = std::mem::replace(&mut self.line, self.key_line);
                self.put_line_comment();
                self.key_line = std::mem::replace(&mut self.line, value_line);
            }
            _ => {}
        }
        self.states.push(NodeEmitterState::BlockKey { first: false });
        self.node(event, IN_MAPPING)?;
        self.put_comments_behind();
        Ok(())
    }

    fn node(&mut self, event: &EmitEvent<'n>, place: EmitContext) -> Result<(), NodeEmitError> {
        self.place = place;
        match event.kind {
            EmitEventKind::Alias => {
                self.writer.indicator("*", true, false, false);
                self.writer.word(event.value);
                self.pop_state();
            }
            EmitEventKind::Scalar(style) => self.scalar(event, style),
            EmitEventKind::SequenceStart { is_flow, is_empty } => {
                self.put_properties(event);
                self.state = if self.flow_level > 0 || is_flow || is_empty {
                    NodeEmitterState::FlowItem { first: true, trail: false }
                } else {
                    NodeEmitterState::BlockItem { first: true }
                };
            }
            EmitEventKind::MappingStart { is_flow, is_empty } => {
                self.put_properties(event);
                self.state = if self.flow_level > 0 || is_flow || is_empty {
                    NodeEmitterState::FlowKey { first: true, trail: false }
                } else {
                    NodeEmitterState::BlockKey { first: true }
                };
            }
            other => return Err(NodeEmitError::NoNode(other.name())),
        }
        Ok(())
    }

    fn scalar(&mut self, event: &EmitEvent<'n>, asked: ScalarStyle) {
        let is_flow = self.flow_level > 0;
        let style =
            NodeScalarAnalysis::of(event.value).style(asked, is_flow, self.place.simple_key);
        self.put_properties(event);
        self.increase_indent(true, 0);
        match style {
            ScalarStyle::Plain => self.writer.plain(event.value),
            ScalarStyle::SingleQuoted => self.writer.single_quoted(event.value),
            ScalarStyle::DoubleQuoted => self.writer.double_quoted(event.value),
            ScalarStyle::Literal => {
                self.put_block_header("|", event.value);
                self.writer.literal(event.value);
            }
            ScalarStyle::Folded => {
                self.put_block_header(">", event.value);
                self.writer.folded(event.value);
            }
        }
        self.decrease_indent();
        self.pop_state();
    }

    fn put_block_header(&mut self, indicator: &str, value: &str) {
        self.writer.block_header(indicator, value, self.step);
        if self.line.is_empty() {
            self.writer.put_break();
        } else {
            self.put_line_comment();
        }
        self.writer.begin_block();
    }

    fn put_properties(&mut self, event: &EmitEvent<'n>) {
        if !event.anchor.is_empty() {
            self.writer.indicator("&", true, false, false);
            self.writer.word(event.anchor);
        }
        let TagHandleAndSuffix { handle, suffix } = &event.tag;
        if event.tag.len() > 0 {
            self.writer.tag(handle, suffix);
        }
    }

    fn put_head_comment(&mut self) {
        let tail = std::mem::take(&mut self.tail);
        if !tail.is_empty() {
            self.writer.start_line();
            self.writer.comment(tail);
            self.writer.set_foot_indent(Some(self.writer.indent()));
        }
        let head = std::mem::take(&mut self.head);
        if !head.is_empty() {
            self.writer.start_line();
            self.writer.comment(head);
        }
    }

    fn put_comments_behind(&mut self) {
        self.put_line_comment();
        self.put_foot_comment();
    }

    fn put_line_comment(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.writer.separate();
            self.writer.comment(line);
        }
    }

    fn put_foot_comment(&mut self) {
        let foot = std::mem::take(&mut self.foot);
        if !foot.is_empty() {
            self.writer.start_line();
            self.writer.comment(foot);
            self.writer.set_foot_indent(Some(self.writer.indent()));
        }
    }

    /// Enters a level of indentation. `back` columns are subtracted from it.
    fn increase_indent(&mut self, flow: bool, back: usize) {
        let around = self.writer.replace_indent(None);
        self.indents.push(around);
        let indent = match around {
            None if flow => self.step,
            None => 0,
            // The first level within a list only passes its `- `.
            Some(around)
                if self.states.last() == Some(&NodeEmitterState::BlockItem { first: false }) =>
            {
                around + 2
            }
            Some(around) => ((around + self.step) / self.step * self.step).saturating_sub(back),
        };
        self.writer.replace_indent(Some(indent));
    }

    fn decrease_indent(&mut self) {
        let around = self.indents.pop().flatten();
        self.writer.replace_indent(around);
    }

    fn pop_state(&mut self) {
        self.state = self.states.pop().unwrap_or(NodeEmitterState::DocumentEnd);
    }
}

/// Whether a key can precede its colon without a `?`.
fn is_simple_key(event: &EmitEvent<'_>) -> bool {
    let length = match event.kind {
        EmitEventKind::Scalar(_) if NodeScalarAnalysis::of(event.value).is_multiline => {
            return false;
        }
        EmitEventKind::Scalar(_) | EmitEventKind::Alias => event.value.len(),
        EmitEventKind::SequenceStart { is_empty: true, .. }
        | EmitEventKind::MappingStart { is_empty: true, .. } => 0,
        _ => return false,
    };
    length + event.anchor.len() + event.tag.len() <= MAX_SIMPLE_KEY
}

fn check_names(event: &EmitEvent<'_>) -> Result<(), NodeEmitError> {
    let is_written = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match event.kind {
        EmitEventKind::Alias if event.value.is_empty() => {
            Err(NodeEmitError::Name("alias value must not be empty"))
        }
        EmitEventKind::Alias if !event.value.chars().all(is_written) => {
            Err(NodeEmitError::Name("alias value must contain alphanumerical characters only"))
        }
        _ if !event.anchor.chars().all(is_written) => {
            Err(NodeEmitError::Name("anchor value must contain alphanumerical characters only"))
        }
        _ => Ok(()),
    }
}
