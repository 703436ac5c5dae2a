//! Tokens to events: the grammar of streams, documents and nodes.
//! Collections are in `parser/collections.rs`; what an event means for a value is decided by the
//! composer and the decoder.
//!
//! The parser is a machine with a stack of states, so nesting costs no stack of the thread.

mod collections;

use crate::error::Error;
use crate::event::{Event, EventKind, Properties};
use crate::reader::Mark;
use crate::resolve::tag;
use crate::scanner::Scanner;
use crate::token::{Style, Token, TokenKind};

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
enum Place {
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
    tag_directives: Vec<(String, String)>,
}

impl<'i> Parser<'i> {
    /// A parser of `input`, whose first line counts as `line` (from 0).
    pub(crate) fn new(input: &'i [u8], line: usize) -> Self {
        Self {
            scanner: Scanner::new(input, line),
            state: State::StreamStart,
            states: Vec::new(),
            tag_directives: Vec::new(),
        }
    }

    /// Returns the next event.
    ///
    /// After the end of the stream it keeps saying so; after an error it must not be called again.
    pub(crate) fn next(&mut self) -> Result<Event, Error> {
        match self.state {
            State::StreamStart => self.stream_start(),
            State::ImplicitDocumentStart => self.document_start(true),
            State::DocumentStart => self.document_start(false),
            State::DocumentContent => self.document_content(),
            State::DocumentEnd => self.document_end(),
            State::BlockNode => self.node(Place::Block),
            State::BlockSequenceFirstEntry => {
                self.scanner.next()?;
                self.block_sequence_entry()
            }
            State::BlockSequenceEntry => self.block_sequence_entry(),
            State::IndentlessSequenceEntry => self.indentless_sequence_entry(),
            State::BlockMappingFirstKey => {
                self.scanner.next()?;
                self.block_mapping_key()
            }
            State::BlockMappingKey => self.block_mapping_key(),
            State::BlockMappingValue => self.block_mapping_value(),
            State::FlowSequenceFirstEntry => {
                self.scanner.next()?;
                self.flow_sequence_entry(true)
            }
            State::FlowSequenceEntry => self.flow_sequence_entry(false),
            State::FlowSequenceEntryMappingKey => self.flow_sequence_entry_mapping_key(),
            State::FlowSequenceEntryMappingValue => self.flow_sequence_entry_mapping_value(),
            State::FlowSequenceEntryMappingEnd => self.flow_sequence_entry_mapping_end(),
            State::FlowMappingFirstKey => {
                self.scanner.next()?;
                self.flow_mapping_key(true)
            }
            State::FlowMappingKey => self.flow_mapping_key(false),
            State::FlowMappingValue => self.flow_mapping_value(false),
            State::FlowMappingEmptyValue => self.flow_mapping_value(true),
            State::End => Ok(Event { kind: EventKind::StreamEnd, start: Mark::default() }),
        }
    }

    fn next_is(&mut self, kinds: impl FnOnce(&TokenKind) -> bool) -> Result<bool, Error> {
        self.scanner.peek().map(|token| kinds(&token.kind))
    }

    fn next_start(&mut self) -> Result<Mark, Error> {
        self.scanner.peek().map(|token| token.start)
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

    fn stream_start(&mut self) -> Result<Event, Error> {
        let token = self.scanner.next()?;
        self.state = State::ImplicitDocumentStart;
        Ok(Event { kind: EventKind::StreamStart, start: token.start })
    }

    fn document_start(&mut self, implicit: bool) -> Result<Event, Error> {
        if !implicit {
            while self.next_is(|next| *next == TokenKind::DocumentEnd)? {
                self.scanner.next()?;
            }
        }
        let start = self.next_start()?;
        if self.next_is(|next| *next == TokenKind::StreamEnd)? {
            self.scanner.next()?;
            self.state = State::End;
            return Ok(Event { kind: EventKind::StreamEnd, start });
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
        if bare {
            self.state = State::BlockNode;
        } else {
            if !self.next_is(|next| *next == TokenKind::DocumentStart)? {
                return Err(self.fail("did not find expected <document start>"));
            }
            self.scanner.next()?;
            self.state = State::DocumentContent;
        }
        Ok(Event { kind: EventKind::DocumentStart, start })
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
        self.node(Place::Block)
    }

    fn document_end(&mut self) -> Result<Event, Error> {
        let start = self.next_start()?;
        if self.next_is(|next| *next == TokenKind::DocumentEnd)? {
            self.scanner.next()?;
        }
        self.tag_directives.clear();
        self.state = State::DocumentStart;
        Ok(Event { kind: EventKind::DocumentEnd, start })
    }

    fn directives(&mut self) -> Result<(), Error> {
        let mut versioned = false;
        loop {
            let token = self.scanner.peek()?;
            let start = token.start;
            match &token.kind {
                TokenKind::VersionDirective { .. } if versioned => {
                    return Err(Error::grammar("found duplicate %YAML directive", start));
                }
                TokenKind::VersionDirective { major: 1, minor: 1 } => versioned = true,
                TokenKind::VersionDirective { .. } => {
                    return Err(Error::grammar("found incompatible YAML document", start));
                }
                TokenKind::TagDirective { handle, prefix } => {
                    if self.tag_directives.iter().any(|(known, _)| known == handle) {
                        return Err(Error::grammar("found duplicate %TAG directive", start));
                    }
                    self.tag_directives.push((handle.clone(), prefix.clone()));
                }
                _ => break,
            }
            self.scanner.next()?;
        }
        for (handle, prefix) in [("!", "!"), ("!!", tag::PREFIX)] {
            if self.tag_directives.iter().all(|(known, _)| known != handle) {
                self.tag_directives.push((handle.to_owned(), prefix.to_owned()));
            }
        }
        Ok(())
    }

    fn node(&mut self, place: Place) -> Result<Event, Error> {
        let start = self.next_start()?;
        if self.next_is(|next| matches!(next, TokenKind::Alias(_)))? {
            self.pop_state();
            let Token { kind: TokenKind::Alias(anchor), start, .. } = self.scanner.next()? else {
                return Err(Error::grammar("did not find expected alias", start));
            };
            return Ok(Event { kind: EventKind::Alias { anchor }, start });
        }

        let properties = self.properties()?;
        let token = self.scanner.peek()?;
        let (kind, state) = match &token.kind {
            TokenKind::BlockEntry if place == Place::BlockOrIndentless => (
                EventKind::SequenceStart { properties, flow: false },
                State::IndentlessSequenceEntry,
            ),
            TokenKind::Scalar { .. } => {
                let kind = self.scalar(properties)?;
                return Ok(Event { kind, start });
            }
            TokenKind::FlowSequenceStart => {
                (EventKind::SequenceStart { properties, flow: true }, State::FlowSequenceFirstEntry)
            }
            TokenKind::FlowMappingStart => {
                (EventKind::MappingStart { properties, flow: true }, State::FlowMappingFirstKey)
            }
            TokenKind::BlockSequenceStart if place != Place::Flow => (
                EventKind::SequenceStart { properties, flow: false },
                State::BlockSequenceFirstEntry,
            ),
            TokenKind::BlockMappingStart if place != Place::Flow => {
                (EventKind::MappingStart { properties, flow: false }, State::BlockMappingFirstKey)
            }
            _ if properties != Properties::default() => {
                self.pop_state();
                let implicit = properties.tag.is_empty();
                let (text, style) = (String::new(), Style::Plain);
                let kind = EventKind::Scalar { properties, text, style, implicit };
                return Ok(Event { kind, start });
            }
            _ => return Err(Error::grammar("did not find expected node content", token.start)),
        };
        self.state = state;
        Ok(Event { kind, start })
    }

    fn scalar(&mut self, properties: Properties) -> Result<EventKind, Error> {
        let token = self.scanner.next()?;
        self.pop_state();
        let TokenKind::Scalar { text, style } = token.kind else {
            return Err(Error::grammar("did not find expected node content", token.start));
        };
        let implicit = properties.tag == "!" || properties.tag.is_empty() && style == Style::Plain;
        Ok(EventKind::Scalar { properties, text, style, implicit })
    }

    /// Reads an anchor and a tag, in either order.
    fn properties(&mut self) -> Result<Properties, Error> {
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
            let token = self.scanner.next()?;
            match token.kind {
                TokenKind::Anchor(name) => anchor = Some(name),
                TokenKind::Tag { handle, suffix } => tag = Some((handle, suffix, token.start)),
                _ => break,
            }
        }
        let tag = match tag {
            None => String::new(),
            Some((handle, suffix, _)) if handle.is_empty() => suffix,
            Some((handle, suffix, at)) => {
                let known = self.tag_directives.iter().find(|(known, _)| *known == handle);
                match known {
                    Some((_, prefix)) => format!("{prefix}{suffix}"),
                    None => return Err(Error::grammar("found undefined tag handle", at)),
                }
            }
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
    Event { kind, start: at }
}
