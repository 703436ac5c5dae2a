//! Tokens to events: the grammar of streams, documents and nodes.
//! Collections are in `parser/collections.rs`; what an event means for a value is decided by the
//! composer and the decoder. Which comments an event takes is in `parser/comment.rs`.
//!
//! The parser is a machine with a stack of states, so nesting costs no stack of the thread.

mod collections;
mod comment;

use std::collections::BTreeMap;

use crate::Dialect;
use crate::error::Error;
use crate::event::{Comments, Event, EventKind, Properties};
use crate::reader::Mark;
use crate::resolve::tag;
use crate::scanner::Scanner;
use crate::token::{Style, TokenKind, YamlToken};

/// How many bytes of prefixes the tags of a stream may repeat. Differs(go-yaml): it has no limit.
const MAX_PREFIXES: usize = 64 << 20;

/// What the parser expects next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
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

/// Where a node stands, which decides what it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodePosition {
    Flow,
    Block,
    /// Below a key, where a list needs no indentation.
    BlockOrIndentless,
}

/// A source of events.
#[derive(Debug)]
pub(crate) struct Parser<'i> {
    scanner: Scanner<'i>,
    state: State,
    /// Where to go on when the current node is complete.
    states: Vec<State>,
    /// Handle and prefix of the tags that this document may abbreviate.
    tag_directives: BTreeMap<String, String>,
    /// Bytes of prefixes that tags have repeated.
    prefixes: usize,
    dialect: Dialect,
    /// Where the collections begin that are not complete, but for lists without an indentation.
    marks: Vec<Mark>,
    /// Comments that no event has taken.
    comments: Comments,
    /// The head comment of a `-` in front of a collection, which takes it.
    stem: String,
}

impl<'i> Parser<'i> {
    /// A parser of `input`, whose first line counts as `line` (from 0).
    pub(crate) fn new(input: &'i [u8], line: usize, dialect: Dialect) -> Self {
        Self {
            scanner: Scanner::new(input, line, dialect),
            state: State::StreamStart,
            states: Vec::new(),
            tag_directives: BTreeMap::new(),
            prefixes: 0,
            dialect,
            marks: Vec::new(),
            comments: Comments::default(),
            stem: String::new(),
        }
    }

    /// Returns the next event.
    ///
    /// After the end of the stream it keeps saying so; after an error it must not be called again.
    pub(crate) fn next(&mut self) -> Result<Event, Error> {
        let event = self.next_event()?;
        self.scanner.take_deferred().map_or(Ok(event), Err)
    }

    fn next_event(&mut self) -> Result<Event, Error> {
        match self.state {
            State::StreamStart => self.stream_start(),
            State::ImplicitDocumentStart => self.document_start(true),
            State::DocumentStart => self.document_start(false),
            State::DocumentContent => self.document_content(),
            State::DocumentEnd => self.document_end(),
            State::BlockNode => self.node(NodePosition::Block),
            State::BlockSequenceFirstEntry => {
                self.begin_collection()?;
                self.block_sequence_entry()
            }
            State::BlockSequenceEntry => self.block_sequence_entry(),
            State::IndentlessSequenceEntry => self.indentless_sequence_entry(),
            State::BlockMappingFirstKey => {
                self.begin_collection()?;
                self.block_mapping_key()
            }
            State::BlockMappingKey => self.block_mapping_key(),
            State::BlockMappingValue => self.block_mapping_value(),
            State::FlowSequenceFirstEntry => {
                self.begin_collection()?;
                self.flow_sequence_entry(true)
            }
            State::FlowSequenceEntry => self.flow_sequence_entry(false),
            State::FlowSequenceEntryMappingKey => self.flow_sequence_entry_mapping_key(),
            State::FlowSequenceEntryMappingValue => self.flow_sequence_entry_mapping_value(),
            State::FlowSequenceEntryMappingEnd => self.flow_sequence_entry_mapping_end(),
            State::FlowMappingFirstKey => {
                self.begin_collection()?;
                self.flow_mapping_key(true)
            }
            State::FlowMappingKey => self.flow_mapping_key(false),
            State::FlowMappingValue => self.flow_mapping_value(false),
            State::FlowMappingEmptyValue => self.flow_mapping_value(true),
            State::End => Ok(Event::new(EventKind::StreamEnd, Mark::default())),
        }
    }

    /// Examines the next token, and collects the comments that belong to it.
    fn peek(&mut self) -> Result<&YamlToken, Error> {
        if self.dialect == Dialect::V3 {
            self.scanner.peek()?;
            self.collect_comments();
        }
        self.scanner.peek()
    }

    fn take(&mut self) -> Result<YamlToken, Error> {
        self.peek()?;
        self.scanner.next()
    }

    fn next_is(&mut self, kinds: impl FnOnce(&TokenKind) -> bool) -> Result<bool, Error> {
        self.peek().map(|token| kinds(&token.kind))
    }

    fn next_start(&mut self) -> Result<Mark, Error> {
        self.peek().map(|token| token.start)
    }

    /// Goes on with what was interrupted by the current node.
    fn pop_state(&mut self) {
        self.state = self.states.pop().unwrap_or(State::End);
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
    fn fail_in(&mut self, start: Mark, problem: &str) -> Error {
        match self.next_start() {
            Ok(at) => self.error_in(start, problem, at),
            Err(error) => error,
        }
    }

    fn error_in(&self, start: Mark, problem: &str, at: Mark) -> Error {
        match self.dialect {
            Dialect::V3 if start.line > 0 => Error::grammar_from(problem, start, at),
            Dialect::V2 | Dialect::V3 => Error::grammar(problem, at),
        }
    }

    fn begin_collection(&mut self) -> Result<(), Error> {
        let token = self.take()?;
        self.marks.push(token.start);
        Ok(())
    }

    fn stream_start(&mut self) -> Result<Event, Error> {
        let token = self.take()?;
        self.state = State::ImplicitDocumentStart;
        Ok(Event::new(EventKind::StreamStart, token.start))
    }

    fn document_start(&mut self, implicit: bool) -> Result<Event, Error> {
        if !implicit {
            while self.next_is(|next| *next == TokenKind::DocumentEnd)? {
                self.take()?;
            }
        }
        let start = self.next_start()?;
        if self.next_is(|next| *next == TokenKind::StreamEnd)? {
            self.take()?;
            self.state = State::End;
            return Ok(Event::new(EventKind::StreamEnd, start));
        }
        let bare = implicit
            && !self.next_is(|next| {
                matches!(
                    next,
                    TokenKind::VersionDirective { .. }
                        | TokenKind::TagDirective { .. }
                        | TokenKind::DocumentStart
                )
            })?;
        self.directives()?;
        self.states.push(State::DocumentEnd);
        let mut event = Event::new(EventKind::DocumentStart, start);
        if bare {
            self.state = State::BlockNode;
            event.comments.head = self.split_document_head();
        } else {
            if !self.next_is(|next| *next == TokenKind::DocumentStart)? {
                return Err(self.fail("did not find expected <document start>"));
            }
            self.take()?;
            self.state = State::DocumentContent;
        }
        Ok(event)
    }

    fn document_content(&mut self) -> Result<Event, Error> {
        let empty = self.next_is(|next| {
            matches!(
                next,
                TokenKind::VersionDirective { .. }
                    | TokenKind::TagDirective { .. }
                    | TokenKind::DocumentStart
                    | TokenKind::DocumentEnd
                    | TokenKind::StreamEnd
            )
        })?;
        if empty {
            let at = self.next_start()?;
            self.pop_state();
            return Ok(empty_scalar(at));
        }
        self.node(NodePosition::Block)
    }

    fn document_end(&mut self) -> Result<Event, Error> {
        let start = self.next_start()?;
        if self.next_is(|next| *next == TokenKind::DocumentEnd)? {
            self.take()?;
        }
        self.tag_directives.clear();
        self.state = State::DocumentStart;
        let mut event = self.commented(EventKind::DocumentEnd, start);
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
                TokenKind::VersionDirective { .. } if versioned => {
                    return Err(Error::grammar("found duplicate %YAML directive", start));
                }
                TokenKind::VersionDirective { major: 1, minor: 1 } => versioned = true,
                TokenKind::VersionDirective { .. } => {
                    return Err(Error::grammar("found incompatible YAML document", start));
                }
                TokenKind::TagDirective { handle, prefix } => {
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

    fn node(&mut self, place: NodePosition) -> Result<Event, Error> {
        let start = self.next_start()?;
        if self.next_is(|next| matches!(next, TokenKind::Alias(_)))? {
            self.pop_state();
            let YamlToken { kind: TokenKind::Alias(anchor), start, .. } = self.take()? else {
                return Err(Error::grammar("did not find expected alias", start));
            };
            return Ok(self.commented(EventKind::Alias { anchor }, start));
        }

        let properties = self.properties(start)?;
        let block = place != NodePosition::Flow;
        let (kind, state) = match &self.peek()?.kind {
            TokenKind::BlockEntry if place == NodePosition::BlockOrIndentless => {
                let kind = EventKind::SequenceStart { properties, flow: false };
                self.state = State::IndentlessSequenceEntry;
                return Ok(Event::new(kind, start));
            }
            TokenKind::Scalar { .. } => {
                let kind = self.scalar(properties)?;
                return Ok(self.commented(kind, start));
            }
            TokenKind::FlowSequenceStart => {
                (EventKind::SequenceStart { properties, flow: true }, State::FlowSequenceFirstEntry)
            }
            TokenKind::FlowMappingStart => {
                (EventKind::MappingStart { properties, flow: true }, State::FlowMappingFirstKey)
            }
            TokenKind::BlockSequenceStart if block => (
                EventKind::SequenceStart { properties, flow: false },
                State::BlockSequenceFirstEntry,
            ),
            TokenKind::BlockMappingStart if block => {
                (EventKind::MappingStart { properties, flow: false }, State::BlockMappingFirstKey)
            }
            _ if properties != Properties::default() => {
                self.pop_state();
                let implicit = properties.tag.is_empty();
                let text = String::new();
                let style = Style::Plain;
                let kind = EventKind::Scalar { properties, text, style, implicit };
                return Ok(Event::new(kind, start));
            }
            _ => return Err(self.fail_in(start, "did not find expected node content")),
        };
        self.state = state;
        if matches!(state, State::FlowSequenceFirstEntry | State::FlowMappingFirstKey) {
            return Ok(self.commented(kind, start));
        }
        let mut event = Event::new(kind, start);
        event.comments.head = std::mem::take(&mut self.stem);
        Ok(event)
    }

    fn scalar(&mut self, properties: Properties) -> Result<EventKind, Error> {
        let token = self.take()?;
        self.pop_state();
        let TokenKind::Scalar { text, style } = token.kind else {
            return Err(Error::grammar("did not find expected node content", token.start));
        };
        let implicit = properties.tag == "!" || properties.tag.is_empty() && style == Style::Plain;
        Ok(EventKind::Scalar { properties, text, style, implicit })
    }

    /// Reads an anchor and a tag, in either order, of the node that begins at `start`.
    fn properties(&mut self, start: Mark) -> Result<Properties, Error> {
        let mut anchor = None;
        let mut tag = None;
        loop {
            let kinds = |next: &TokenKind| match next {
                TokenKind::Anchor(_) => anchor.is_none(),
                TokenKind::Tag { .. } => tag.is_none(),
                _ => false,
            };
            if !self.next_is(kinds)? {
                break;
            }
            let token = self.take()?;
            match token.kind {
                TokenKind::Anchor(name) => anchor = Some(name),
                TokenKind::Tag { handle, suffix } => tag = Some((handle, suffix, token.start)),
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
        Ok(Properties { anchor, tag })
    }
}

/// The event of a node that is left out.
fn empty_scalar(at: Mark) -> Event {
    let kind = EventKind::Scalar {
        properties: Properties::default(),
        text: String::new(),
        style: Style::Plain,
        implicit: true,
    };
    Event::new(kind, at)
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
