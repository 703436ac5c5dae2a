//! The entries of lists and maps, in block and flow style.

use super::{NodePosition, Parser, State, empty_scalar};
use crate::error::Error;
use crate::event::{Event, EventKind, Properties};
use crate::reader::Mark;
use crate::token::TokenKind;

impl Parser<'_> {
    /// Reads the node that is to come, unless `absent` is next: then it is empty and stands at `at`.
    fn node_unless(
        &mut self,
        absent: impl FnOnce(&TokenKind) -> bool,
        at: Option<Mark>,
        place: NodePosition,
        then: State,
    ) -> Result<Event, Error> {
        if self.next_is(absent)? {
            self.state = then;
            let at = match at {
                Some(at) => at,
                None => self.next_start()?,
            };
            return Ok(empty_scalar(at));
        }
        self.states.push(then);
        self.node(place)
    }

    /// Ends a collection whose last token is next.
    fn end_collection(&mut self, kind: EventKind) -> Result<Event, Error> {
        self.pop_state();
        self.marks.pop();
        let start = self.next_start()?;
        let event = self.commented(kind, start);
        self.take()?;
        Ok(event)
    }

    pub(super) fn block_sequence_entry(&mut self) -> Result<Event, Error> {
        if self.next_is(|next| *next == TokenKind::BlockEntry)? {
            let at = self.take_entry()?;
            return self.node_unless(
                |next| matches!(next, TokenKind::BlockEntry | TokenKind::BlockEnd),
                Some(at),
                NodePosition::Block,
                State::BlockSequenceEntry,
            );
        }
        if self.next_is(|next| *next == TokenKind::BlockEnd)? {
            // Parity(go-yaml v3): unlike the other ends it leaves the comments to what follows.
            self.pop_state();
            self.marks.pop();
            return Ok(Event::new(EventKind::SequenceEnd, self.take()?.start));
        }
        Err(self.fail_in_collection("did not find expected '-' indicator"))
    }

    pub(super) fn indentless_sequence_entry(&mut self) -> Result<Event, Error> {
        if self.next_is(|next| *next == TokenKind::BlockEntry)? {
            let at = self.take_entry()?;
            return self.node_unless(
                |next| {
                    matches!(
                        next,
                        TokenKind::BlockEntry
                            | TokenKind::Key
                            | TokenKind::Value
                            | TokenKind::BlockEnd
                    )
                },
                Some(at),
                NodePosition::Block,
                State::IndentlessSequenceEntry,
            );
        }
        // It has no end token of its own: the next token closes it.
        self.pop_state();
        Ok(Event::new(EventKind::SequenceEnd, self.next_start()?))
    }

    pub(super) fn block_mapping_key(&mut self) -> Result<Event, Error> {
        if self.next_is(|next| *next == TokenKind::Key)? {
            let at = self.take()?.end;
            return self.node_unless(
                |next| matches!(next, TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd),
                Some(at),
                NodePosition::BlockOrIndentless,
                State::BlockMappingValue,
            );
        }
        if self.next_is(|next| *next == TokenKind::BlockEnd)? {
            return self.end_collection(EventKind::MappingEnd);
        }
        Err(self.fail_in_collection("did not find expected key"))
    }

    pub(super) fn block_mapping_value(&mut self) -> Result<Event, Error> {
        if !self.next_is(|next| *next == TokenKind::Value)? {
            self.state = State::BlockMappingKey;
            return Ok(empty_scalar(self.next_start()?));
        }
        let at = self.take()?.end;
        self.node_unless(
            |next| matches!(next, TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd),
            Some(at),
            NodePosition::BlockOrIndentless,
            State::BlockMappingKey,
        )
    }

    pub(super) fn flow_sequence_entry(&mut self, first: bool) -> Result<Event, Error> {
        if !first && !self.next_is(|next| *next == TokenKind::FlowSequenceEnd)? {
            if !self.next_is(|next| *next == TokenKind::FlowEntry)? {
                return Err(self.fail_in_collection("did not find expected ',' or ']'"));
            }
            self.take()?;
        }
        if self.next_is(|next| *next == TokenKind::FlowSequenceEnd)? {
            return self.end_collection(EventKind::SequenceEnd);
        }
        if self.next_is(|next| *next == TokenKind::Key)? {
            // `[a: 1]` is a list of maps of one key each.
            let token = self.take()?;
            self.state = State::FlowSequenceEntryMappingKey;
            let kind = EventKind::MappingStart { properties: Properties::default(), flow: true };
            return Ok(Event::new(kind, token.start));
        }
        self.states.push(State::FlowSequenceEntry);
        self.node(NodePosition::Flow)
    }

    pub(super) fn flow_sequence_entry_mapping_key(&mut self) -> Result<Event, Error> {
        let absent = |next: &TokenKind| {
            matches!(next, TokenKind::Value | TokenKind::FlowEntry | TokenKind::FlowSequenceEnd)
        };
        if self.next_is(absent)? {
            // Parity(go-yaml v2): an empty key swallows what follows it, so `[? , a]` and `[: a]`
            // have another meaning than in YAML.
            let token = self.take()?;
            self.state = State::FlowSequenceEntryMappingValue;
            return Ok(empty_scalar(token.end));
        }
        self.states.push(State::FlowSequenceEntryMappingValue);
        self.node(NodePosition::Flow)
    }

    pub(super) fn flow_sequence_entry_mapping_value(&mut self) -> Result<Event, Error> {
        let then = State::FlowSequenceEntryMappingEnd;
        if self.next_is(|next| *next == TokenKind::Value)? {
            // Without a value the empty scalar stands at the `:`.
            // Differs(go-yaml v3): if Go's queue of tokens moves at this moment, it stands where
            // some later token does.
            let at = self.take()?.start;
            let absent = |next: &TokenKind| {
                matches!(next, TokenKind::FlowEntry | TokenKind::FlowSequenceEnd)
            };
            return self.node_unless(absent, Some(at), NodePosition::Flow, then);
        }
        self.state = then;
        Ok(empty_scalar(self.next_start()?))
    }

    pub(super) fn flow_sequence_entry_mapping_end(&mut self) -> Result<Event, Error> {
        self.state = State::FlowSequenceEntry;
        Ok(Event::new(EventKind::MappingEnd, self.next_start()?))
    }

    pub(super) fn flow_mapping_key(&mut self, first: bool) -> Result<Event, Error> {
        if !first && !self.next_is(|next| *next == TokenKind::FlowMappingEnd)? {
            if !self.next_is(|next| *next == TokenKind::FlowEntry)? {
                return Err(self.fail_in_collection("did not find expected ',' or '}'"));
            }
            self.take()?;
        }
        if self.next_is(|next| *next == TokenKind::FlowMappingEnd)? {
            return self.end_collection(EventKind::MappingEnd);
        }
        if self.next_is(|next| *next == TokenKind::Key)? {
            self.take()?;
            let absent = |next: &TokenKind| {
                matches!(next, TokenKind::Value | TokenKind::FlowEntry | TokenKind::FlowMappingEnd)
            };
            return self.node_unless(absent, None, NodePosition::Flow, State::FlowMappingValue);
        }
        self.states.push(State::FlowMappingEmptyValue);
        self.node(NodePosition::Flow)
    }

    pub(super) fn flow_mapping_value(&mut self, empty: bool) -> Result<Event, Error> {
        if !empty && self.next_is(|next| *next == TokenKind::Value)? {
            self.take()?;
            let absent =
                |next: &TokenKind| matches!(next, TokenKind::FlowEntry | TokenKind::FlowMappingEnd);
            return self.node_unless(absent, None, NodePosition::Flow, State::FlowMappingKey);
        }
        self.state = State::FlowMappingKey;
        Ok(empty_scalar(self.next_start()?))
    }
}
