//! The entries of lists and maps, in block and flow style.

use super::{YamlNodePosition, YamlParser, YamlParserState, empty_scalar};
use crate::error::Error;
use crate::event::{NodeProperties, YamlEvent, YamlEventKind};
use crate::reader::YamlMark;
use crate::token::YamlTokenKind;

impl YamlParser<'_> {
    /// Reads the next node. If `absent` holds for the next token, the node is empty and its position is `at`.
    fn node_unless(
        &mut self,
        absent: impl FnOnce(&YamlTokenKind) -> bool,
        at: Option<YamlMark>,
        place: YamlNodePosition,
        then: YamlParserState,
    ) -> Result<YamlEvent, Error> {
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

    /// Ends a collection. Its last token is next.
    fn end_collection(&mut self, kind: YamlEventKind) -> Result<YamlEvent, Error> {
        self.pop_state();
        self.marks.pop();
        let start = self.next_start()?;
        let event = self.commented(kind, start);
        self.take()?;
        Ok(event)
    }

    pub(super) fn block_sequence_entry(&mut self) -> Result<YamlEvent, Error> {
        if self.next_is(|next| *next == YamlTokenKind::BlockEntry)? {
            let at = self.take_entry()?;
            return self.node_unless(
                |next| matches!(next, YamlTokenKind::BlockEntry | YamlTokenKind::BlockEnd),
                Some(at),
                YamlNodePosition::Block,
                YamlParserState::BlockSequenceEntry,
            );
        }
        if self.next_is(|next| *next == YamlTokenKind::BlockEnd)? {
            // Parity(go-yaml v3): unlike the other ends it leaves the comments to what follows.
            self.pop_state();
            self.marks.pop();
            return Ok(YamlEvent::new(YamlEventKind::SequenceEnd, self.take()?.start));
        }
        Err(self.fail_in_collection("did not find expected '-' indicator"))
    }

    pub(super) fn indentless_sequence_entry(&mut self) -> Result<YamlEvent, Error> {
        if self.next_is(|next| *next == YamlTokenKind::BlockEntry)? {
            let at = self.take_entry()?;
            return self.node_unless(
                |next| {
                    matches!(
                        next,
                        YamlTokenKind::BlockEntry
                            | YamlTokenKind::Key
                            | YamlTokenKind::Value
                            | YamlTokenKind::BlockEnd
                    )
                },
                Some(at),
                YamlNodePosition::Block,
                YamlParserState::IndentlessSequenceEntry,
            );
        }
        // It has no end token of its own: the next token closes it.
        self.pop_state();
        Ok(YamlEvent::new(YamlEventKind::SequenceEnd, self.next_start()?))
    }

    pub(super) fn block_mapping_key(&mut self) -> Result<YamlEvent, Error> {
        if self.next_is(|next| *next == YamlTokenKind::Key)? {
            let at = self.take()?.end;
            return self.node_unless(
                |next| {
                    matches!(
                        next,
                        YamlTokenKind::Key | YamlTokenKind::Value | YamlTokenKind::BlockEnd
                    )
                },
                Some(at),
                YamlNodePosition::BlockOrIndentless,
                YamlParserState::BlockMappingValue,
            );
        }
        if self.next_is(|next| *next == YamlTokenKind::BlockEnd)? {
            return self.end_collection(YamlEventKind::MappingEnd);
        }
        Err(self.fail_in_collection("did not find expected key"))
    }

    pub(super) fn block_mapping_value(&mut self) -> Result<YamlEvent, Error> {
        if !self.next_is(|next| *next == YamlTokenKind::Value)? {
            self.state = YamlParserState::BlockMappingKey;
            return Ok(empty_scalar(self.next_start()?));
        }
        let at = self.take()?.end;
        self.node_unless(
            |next| {
                matches!(next, YamlTokenKind::Key | YamlTokenKind::Value | YamlTokenKind::BlockEnd)
            },
            Some(at),
            YamlNodePosition::BlockOrIndentless,
            YamlParserState::BlockMappingKey,
        )
    }

    pub(super) fn flow_sequence_entry(&mut self, first: bool) -> Result<YamlEvent, Error> {
        if !first && !self.next_is(|next| *next == YamlTokenKind::FlowSequenceEnd)? {
            if !self.next_is(|next| *next == YamlTokenKind::FlowEntry)? {
                return Err(self.fail_in_collection("did not find expected ',' or ']'"));
            }
            self.take()?;
        }
        if self.next_is(|next| *next == YamlTokenKind::FlowSequenceEnd)? {
            return self.end_collection(YamlEventKind::SequenceEnd);
        }
        if self.next_is(|next| *next == YamlTokenKind::Key)? {
            // `[a: 1]` is a list of maps of one key each.
            let token = self.take()?;
            self.state = YamlParserState::FlowSequenceEntryMappingKey;
            let kind =
                YamlEventKind::MappingStart { properties: NodeProperties::default(), flow: true };
            return Ok(YamlEvent::new(kind, token.start));
        }
        self.states.push(YamlParserState::FlowSequenceEntry);
        self.node(YamlNodePosition::Flow)
    }

    pub(super) fn flow_sequence_entry_mapping_key(&mut self) -> Result<YamlEvent, Error> {
        let absent = |next: &YamlTokenKind| {
            matches!(
                next,
                YamlTokenKind::Value | YamlTokenKind::FlowEntry | YamlTokenKind::FlowSequenceEnd
            )
        };
        if self.next_is(absent)? {
            // Parity(go-yaml v2): an empty key swallows what follows it, so `[? , a]` and `[: a]`
            // have another meaning than in YAML.
            let token = self.take()?;
            self.state = YamlParserState::FlowSequenceEntryMappingValue;
            return Ok(empty_scalar(token.end));
        }
        self.states.push(YamlParserState::FlowSequenceEntryMappingValue);
        self.node(YamlNodePosition::Flow)
    }

    pub(super) fn flow_sequence_entry_mapping_value(&mut self) -> Result<YamlEvent, Error> {
        let then = YamlParserState::FlowSequenceEntryMappingEnd;
        if self.next_is(|next| *next == YamlTokenKind::Value)? {
            // Without a value the empty scalar stands at the `:`.
            // Differs(go-yaml v3): if Go's queue of tokens moves at this moment, it stands where
            // some later token does.
            let at = self.take()?.start;
            let absent = |next: &YamlTokenKind| {
                matches!(next, YamlTokenKind::FlowEntry | YamlTokenKind::FlowSequenceEnd)
            };
            return self.node_unless(absent, Some(at), YamlNodePosition::Flow, then);
        }
        self.state = then;
        Ok(empty_scalar(self.next_start()?))
    }

    pub(super) fn flow_sequence_entry_mapping_end(&mut self) -> Result<YamlEvent, Error> {
        self.state = YamlParserState::FlowSequenceEntry;
        Ok(YamlEvent::new(YamlEventKind::MappingEnd, self.next_start()?))
    }

    pub(super) fn flow_mapping_key(&mut self, first: bool) -> Result<YamlEvent, Error> {
        if !first && !self.next_is(|next| *next == YamlTokenKind::FlowMappingEnd)? {
            if !self.next_is(|next| *next == YamlTokenKind::FlowEntry)? {
                return Err(self.fail_in_collection("did not find expected ',' or '}'"));
            }
            self.take()?;
        }
        if self.next_is(|next| *next == YamlTokenKind::FlowMappingEnd)? {
            return self.end_collection(YamlEventKind::MappingEnd);
        }
        if self.next_is(|next| *next == YamlTokenKind::Key)? {
            self.take()?;
            let absent = |next: &YamlTokenKind| {
                matches!(
                    next,
                    YamlTokenKind::Value | YamlTokenKind::FlowEntry | YamlTokenKind::FlowMappingEnd
                )
            };
            return self.node_unless(
                absent,
                None,
                YamlNodePosition::Flow,
                YamlParserState::FlowMappingValue,
            );
        }
        self.states.push(YamlParserState::FlowMappingEmptyValue);
        self.node(YamlNodePosition::Flow)
    }

    pub(super) fn flow_mapping_value(&mut self, empty: bool) -> Result<YamlEvent, Error> {
        if !empty && self.next_is(|next| *next == YamlTokenKind::Value)? {
            self.take()?;
            let absent = |next: &YamlTokenKind| {
                matches!(next, YamlTokenKind::FlowEntry | YamlTokenKind::FlowMappingEnd)
            };
            return self.node_unless(
                absent,
                None,
                YamlNodePosition::Flow,
                YamlParserState::FlowMappingKey,
            );
        }
        self.state = YamlParserState::FlowMappingKey;
        Ok(empty_scalar(self.next_start()?))
    }
}
