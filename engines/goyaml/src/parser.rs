//! Turns tokens into events, by the grammar of streams, documents and nodes. Collections are in
//! `parser/collections.rs`, and assigning comments to events is in `parser/comment.rs`. The composer and the decoder
//! give events their meaning.
//!
//! The parser is a state machine with its own stack, so nesting costs no stack of the thread.

mod collections;
mod comment;

use std::collections::BTreeMap;

use crate::YamlDialect;
use crate::error::Error;
use crate::event::{EventComments, NodeProperties, YamlEvent, YamlEventKind};
use crate::reader::YamlMark;
use crate::scalar_resolve::tag;
use crate::scanner::YamlScanner;
use crate::token::{TokenScalarStyle, YamlToken, YamlTokenKind};

/// How many bytes of prefixes the tags of a stream may repeat. Differs(go-yaml): it has no limit.
const MAX_PREFIXES: usize = 64 << 20;

/// What the parser expects next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum YamlParserState {
    StreamStart,
    ImplicitDocumentStart,
    DocumentStart,
    DocumentContent,
    DocumentEnd,
    BlockNode,
    BlockSequenceFirstEntry,
    BlockSequenceEntry,
    IndentlessSequenceEntry,
    BlockMappingFirstKey,
    BlockMappingKey,
    BlockMappingValue,
    FlowSequenceFirstEntry,
    FlowSequenceEntry,
    FlowSequenceEntryMappingKey,
    FlowSequenceEntryMappingValue,
    FlowSequenceEntryMappingEnd,
    FlowMappingFirstKey,
    FlowMappingKey,
    FlowMappingValue,
    FlowMappingEmptyValue,
    End,
}

/// The position of a node, which decides what kinds of nodes are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum YamlNodePosition {
    Flow,
    Block,
    /// Below a key, where a list needs no indentation.
    BlockOrIndentless,
}

/// The parser that turns the tokens of a YAML text into events.
#[derive(Debug)]
pub(crate) struct YamlParser<'i> {
    scanner: YamlScanner<'i>,
    state: YamlParserState,
    /// The states that follow when the present node is complete.
    states: Vec<YamlParserState>,
    /// The handles and prefixes of the tags that this document may abbreviate.
    tag_directives: BTreeMap<String, String>,
    /// Bytes of prefixes that tags have repeated.
    prefixes: usize,
    dialect: YamlDialect,
    /// The beginnings of the open collections, except of lists without indentation.
    marks: Vec<YamlMark>,
    /// The comments that belong to no event yet.
    comments: EventComments,
    /// The head comment of a `-` before a collection. The collection gets it.
    stem: String,
}

impl<'i> YamlParser<'i> {
    /// A parser of `input`, whose first line counts as `line` (from 0).
    pub(crate) fn new(input: &'i [u8], line: usize, dialect: YamlDialect) -> Self {
        Self {
            scanner: YamlScanner::new(input, line, dialect),
            state: YamlParserState::StreamStart,
            states: Vec::new(),
            tag_directives: BTreeMap::new(),
            prefixes: 0,
            dialect,
            marks: Vec::new(),
            comments: EventComments::default(),
            stem: String::new(),
        }
    }

    /// Returns the next event.
    ///
    /// After the end of the stream, it repeats the end. After an error, it must not be called again.
    pub(crate) fn next(&mut self) -> Result<YamlEvent, Error> {
        let event = self.next_event()?;
        self.scanner.take_deferred().map_or(Ok(event), Err)
    }

    fn next_event(&mut self) -> Result<YamlEvent, Error> {
        match self.state {
            YamlParserState::StreamStart => self.stream_start(),
            YamlParserState::ImplicitDocumentStart => self.document_start(true),
            YamlParserState::DocumentStart => self.document_start(false),
            YamlParserState::DocumentContent => self.document_content(),
            YamlParserState::DocumentEnd => self.document_end(),
            YamlParserState::BlockNode => self.node(YamlNodePosition::Block),
            YamlParserState::BlockSequenceFirstEntry => {
                self.begin_collection()?;
                self.block_sequence_entry()
            }
            YamlParserState::BlockSequenceEntry => self.block_sequence_entry(),
            YamlParserState::IndentlessSequenceEntry => self.indentless_sequence_entry(),
            YamlParserState::BlockMappingFirstKey => {
                self.begin_collection()?;
                self.block_mapping_key()
            }
            YamlParserState::BlockMappingKey => self.block_mapping_key(),
            YamlParserState::BlockMappingValue => self.block_mapping_value(),
            YamlParserState::FlowSequenceFirstEntry => {
                self.begin_collection()?;
                self.flow_sequence_entry(true)
            }
            YamlParserState::FlowSequenceEntry => self.flow_sequence_entry(false),
            YamlParserState::FlowSequenceEntryMappingKey => self.flow_sequence_entry_mapping_key(),
            YamlParserState::FlowSequenceEntryMappingValue => {
                self.flow_sequence_entry_mapping_value()
            }
            YamlParserState::FlowSequenceEntryMappingEnd => self.flow_sequence_entry_mapping_end(),
            YamlParserState::FlowMappingFirstKey => {
                self.begin_collection()?;
                self.flow_mapping_key(true)
            }
            YamlParserState::FlowMappingKey => self.flow_mapping_key(false),
            YamlParserState::FlowMappingValue => self.flow_mapping_value(false),
            YamlParserState::FlowMappingEmptyValue => self.flow_mapping_value(true),
            YamlParserState::End => {
                Ok(YamlEvent::new(YamlEventKind::StreamEnd, YamlMark::default()))
            }
        }
    }

    /// Examines the next token, and collects the comments that belong to it.
    fn peek(&mut self) -> Result<&YamlToken, Error> {
        if self.dialect == YamlDialect::V3 {
            self.scanner.peek()?;
            self.collect_comments();
        }
        self.scanner.peek()
    }

    fn take(&mut self) -> Result<YamlToken, Error> {
        self.peek()?;
        self.scanner.next()
    }

    fn next_is(&mut self, kinds: impl FnOnce(&YamlTokenKind) -> bool) -> Result<bool, Error> {
        self.peek().map(|token| kinds(&token.kind))
    }

    fn next_start(&mut self) -> Result<YamlMark, Error> {
        self.peek().map(|token| token.start)
    }

    /// Continues with the state that the present node has interrupted.
    fn pop_state(&mut self) {
        self.state = self.states.pop().unwrap_or(YamlParserState::End);
    }

    /// An error at the next token.
    fn fail(&mut self, problem: &str) -> Error {
        match self.next_start() {
            Ok(at) => Error::grammar(problem, at),
            Err(error) => error,
        }
    }

    /// An error at the next token, in a collection.
    fn fail_in_collection(&mut self, problem: &str) -> Error {
        let start = self.marks.pop().unwrap_or_default();
        self.fail_in(start, problem)
    }

    /// An error at the next token, in something that began at `start`.
    fn fail_in(&mut self, start: YamlMark, problem: &str) -> Error {
        match self.next_start() {
            Ok(at) => self.error_in(start, problem, at),
            Err(error) => error,
        }
    }

    fn error_in(&self, start: YamlMark, problem: &str, at: YamlMark) -> Error {
        match self.dialect {
            YamlDialect::V3 if start.line > 0 => Error::grammar_from(problem, start, at),
            YamlDialect::V2 | YamlDialect::V3 => Error::grammar(problem, at),
        }
    }

    fn begin_collection(&mut self) -> Result<(), Error> {
        let token = self.take()?;
        self.marks.push(token.start);
        Ok(())
    }

    fn stream_start(&mut self) -> Result<YamlEvent, Error> {
        let token = self.take()?;
        self.state = YamlParserState::ImplicitDocumentStart;
        Ok(YamlEvent::new(YamlEventKind::StreamStart, token.start))
    }

    fn document_start(&mut self, implicit: bool) -> Result<YamlEvent, Error> {
        if !implicit {
            while self.next_is(|next| *next == YamlTokenKind::DocumentEnd)? {
                self.take()?;
            }
        }
        let start = self.next_start()?;
        if self.next_is(|next| *next == YamlTokenKind::StreamEnd)? {
            self.take()?;
            self.state = YamlParserState::End;
            return Ok(YamlEvent::new(YamlEventKind::StreamEnd, start));
        }
        let bare = implicit
            && !self.next_is(|next| {
                matches!(
                    next,
                    YamlTokenKind::VersionDirective { .. }
                        | YamlTokenKind::TagDirective { .. }
                        | YamlTokenKind::DocumentStart
                )
            })?;
        self.directives()?;
        self.states.push(YamlParserState::DocumentEnd);
        let mut event = YamlEvent::new(YamlEventKind::DocumentStart, start);
        if bare {
            self.state = YamlParserState::BlockNode;
            event.comments.head = self.split_document_head();
        } else {
            if !self.next_is(|next| *next == YamlTokenKind::DocumentStart)? {
                return Err(self.fail("did not find expected <document start>"));
            }
            self.take()?;
            self.state = YamlParserState::DocumentContent;
        }
        Ok(event)
    }

    fn document_content(&mut self) -> Result<YamlEvent, Error> {
        let empty = self.next_is(|next| {
            matches!(
                next,
                YamlTokenKind::VersionDirective { .. }
                    | YamlTokenKind::TagDirective { .. }
                    | YamlTokenKind::DocumentStart
                    | YamlTokenKind::DocumentEnd
                    | YamlTokenKind::StreamEnd
            )
        })?;
        if empty {
            let at = self.next_start()?;
            self.pop_state();
            return Ok(empty_scalar(at));
        }
        self.node(YamlNodePosition::Block)
    }

    fn document_end(&mut self) -> Result<YamlEvent, Error> {
        let start = self.next_start()?;
        if self.next_is(|next| *next == YamlTokenKind::DocumentEnd)? {
            self.take()?;
        }
        self.tag_directives.clear();
        self.state = YamlParserState::DocumentStart;
        let mut event = self.commented(YamlEventKind::DocumentEnd, start);
        if event.comments.foot.is_empty() {
            event.comments.foot = std::mem::take(&mut event.comments.head);
        }
        Ok(event)
    }

    fn directives(&mut self) -> Result<(), Error> {
        let mut versioned = false;
        loop {
            let start = self.next_start()?;
            match &self.scanner.peek()?.kind {
                YamlTokenKind::VersionDirective { .. } if versioned => {
                    return Err(Error::grammar("found duplicate %YAML directive", start));
                }
                YamlTokenKind::VersionDirective { major: 1, minor: 1 } => versioned = true,
                YamlTokenKind::VersionDirective { .. } => {
                    return Err(Error::grammar("found incompatible YAML document", start));
                }
                YamlTokenKind::TagDirective { handle, prefix } => {
                    if self.tag_directives.contains_key(handle) {
                        return Err(Error::grammar("found duplicate %TAG directive", start));
                    }
                    self.tag_directives.insert(handle.clone(), prefix.clone());
                }
                _ => break,
            }
            self.take()?;
        }
        for (handle, prefix) in [("!", "!"), ("!!", tag::PREFIX)] {
            let handle = self.tag_directives.entry(handle.to_owned());
            handle.or_insert_with(|| prefix.to_owned());
        }
        Ok(())
    }

    fn node(&mut self, place: YamlNodePosition) -> Result<YamlEvent, Error> {
        let start = self.next_start()?;
        if self.next_is(|next| matches!(next, YamlTokenKind::Alias(_)))? {
            self.pop_state();
            let YamlToken { kind: YamlTokenKind::Alias(anchor), start, .. } = self.take()? else {
                return Err(Error::grammar("did not find expected alias", start));
            };
            return Ok(self.commented(YamlEventKind::Alias { anchor }, start));
        }

        let properties = self.properties(start)?;
        let block = place != YamlNodePosition::Flow;
        let (kind, state) = match &self.peek()?.kind {
            YamlTokenKind::BlockEntry if place == YamlNodePosition::BlockOrIndentless => {
                let kind = YamlEventKind::SequenceStart { properties, flow: false };
                self.state = YamlParserState::IndentlessSequenceEntry;
                return Ok(YamlEvent::new(kind, start));
            }
            YamlTokenKind::Scalar { .. } => {
                let kind = self.scalar(properties)?;
                return Ok(self.commented(kind, start));
            }
            YamlTokenKind::FlowSequenceStart => (
                YamlEventKind::SequenceStart { properties, flow: true },
                YamlParserState::FlowSequenceFirstEntry,
            ),
            YamlTokenKind::FlowMappingStart => (
                YamlEventKind::MappingStart { properties, flow: true },
                YamlParserState::FlowMappingFirstKey,
            ),
            YamlTokenKind::BlockSequenceStart if block => (
                YamlEventKind::SequenceStart { properties, flow: false },
                YamlParserState::BlockSequenceFirstEntry,
            ),
            YamlTokenKind::BlockMappingStart if block => (
                YamlEventKind::MappingStart { properties, flow: false },
                YamlParserState::BlockMappingFirstKey,
            ),
            _ if properties != NodeProperties::default() => {
                self.pop_state();
                let implicit = properties.tag.is_empty();
                let text = String::new();
                let style = TokenScalarStyle::Plain;
                let kind = YamlEventKind::Scalar { properties, text, style, implicit };
                return Ok(YamlEvent::new(kind, start));
            }
            _ => return Err(self.fail_in(start, "did not find expected node content")),
        };
        self.state = state;
        if matches!(
            state,
            YamlParserState::FlowSequenceFirstEntry | YamlParserState::FlowMappingFirstKey
        ) {
            return Ok(self.commented(kind, start));
        }
        let mut event = YamlEvent::new(kind, start);
        event.comments.head = std::mem::take(&mut self.stem);
        Ok(event)
    }

    fn scalar(&mut self, properties: NodeProperties) -> Result<YamlEventKind, Error> {
        let token = self.take()?;
        self.pop_state();
        let YamlTokenKind::Scalar { text, style } = token.kind else {
            return Err(Error::grammar("did not find expected node content", token.start));
        };
        let implicit =
            properties.tag == "!" || properties.tag.is_empty() && style == TokenScalarStyle::Plain;
        Ok(YamlEventKind::Scalar { properties, text, style, implicit })
    }

    /// Reads the anchor and the tag, in either order, of the node that begins at `start`.
    fn properties(&mut self, start: YamlMark) -> Result<NodeProperties, Error> {
        let mut anchor = None;
        let mut tag = None;
        loop {
            let kinds = |next: &YamlTokenKind| match next {
                YamlTokenKind::Anchor(_) => anchor.is_none(),
                YamlTokenKind::Tag { .. } => tag.is_none(),
                _ => false,
            };
            if !self.next_is(kinds)? {
                break;
            }
            let token = self.take()?;
            match token.kind {
                YamlTokenKind::Anchor(name) => anchor = Some(name),
                YamlTokenKind::Tag { handle, suffix } => tag = Some((handle, suffix, token.start)),
                _ => break,
            }
        }
        let tag = match tag {
            None => String::new(),
            Some((handle, suffix, _)) if handle.is_empty() => suffix,
            Some((handle, suffix, at)) => match self.tag_directives.get(&handle) {
                Some(prefix) => {
                    self.prefixes += prefix.len();
                    if self.prefixes > MAX_PREFIXES {
                        let text = "the prefixes of its tags are too long for how many there are";
                        return Err(Error::grammar(text, at));
                    }
                    format!("{prefix}{suffix}")
                }
                None => return Err(self.error_in(start, "found undefined tag handle", at)),
            },
        };
        Ok(NodeProperties { anchor, tag })
    }
}

/// The event of a node that is missing in the text.
fn empty_scalar(at: YamlMark) -> YamlEvent {
    let kind = YamlEventKind::Scalar {
        properties: NodeProperties::default(),
        text: String::new(),
        style: TokenScalarStyle::Plain,
        implicit: true,
    };
    YamlEvent::new(kind, at)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use crate::v3;
    use crate::{YamlLimits, to_json};

    #[test]
    fn a_long_prefix_is_not_repeated_without_end() {
        let prefix = "x".repeat(1 << 20);
        let text = format!("%TAG !p! {prefix}\n---\n[{}]\n", "!p!a b,".repeat(1_000));
        let wanted = "the prefixes of its tags are too long for how many there are";
        assert!(to_json(text.as_bytes()).unwrap_err().to_string().contains(wanted));
        let read = v3::parse(text.as_bytes(), &YamlLimits::default());
        assert!(read.unwrap_err().to_string().contains(wanted));
    }

    #[test]
    fn many_directives_are_each_looked_up_once() {
        // Each was compared with all before it.
        let mut text = String::new();
        for at in 0..100_000 {
            let _ = writeln!(text, "%TAG !a{at}! b");
        }
        assert_eq!(to_json((text.clone() + "--- a\n").as_bytes()).unwrap(), "a");
        text.push_str("%TAG !a7! b\n--- a\n");
        let message = to_json(text.as_bytes()).unwrap_err().to_string();
        assert!(message.contains("found duplicate %TAG directive"), "{message}");
    }
}
