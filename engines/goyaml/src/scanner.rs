//! Turns characters into tokens: the next token, simple keys, and indentation. The files in `scanner/` read scalars,
//! tags and directives. The parser checks the order of tokens and gives them their meaning.
//!
//! A key without `?` is only recognized at its `:`. Tokens therefore wait in a queue while the first of them may still
//! be a key. Then KEY, and if necessary BLOCK-MAPPING-START, is inserted before it. Comments are not tokens of the
//! grammar. Version 3 collects them beside the queue (`scanner/comment.rs`).

mod block_scalar;
mod comment;
mod directive;
mod plain_scalar;
mod quoted_scalar;
mod tag;

use std::collections::{BTreeMap, VecDeque};

use crate::YamlDialect;
use crate::error::Error;
use crate::reader::{YamlInputReader, YamlMark};
use crate::token::{YamlToken, YamlTokenKind};

pub(crate) use comment::{CommentPosition, ScannedComment};

/// The deepest nesting of flow collections, and likewise of block collections.
const MAX_NESTING: usize = 10_000;

/// How many characters a simple key may be long.
const MAX_SIMPLE_KEY: usize = 1024;

/// How many tokens version 3 reads beyond the next one. The comments after a token are thus known before the token is
/// taken.
const LOOKAHEAD_TOKEN_COUNT: usize = 2;

/// A position where a key without `?` may have begun.
#[derive(Debug, Clone, Copy)]
struct SimpleKeyCandidate {
    possible: bool,
    /// Whether only a key is allowed here, so that anything else is an error.
    required: bool,
    /// The number of the token, counted from 0, with which the key begins.
    token: i64,
    mark: YamlMark,
}

/// The scanner that splits a YAML text into tokens.
#[derive(Debug)]
pub(crate) struct YamlScanner<'i> {
    dialect: YamlDialect,
    reader: YamlInputReader<'i>,
    /// The comments that belong to no token yet, in the order of the text. Version 2 drops them.
    comments: VecDeque<ScannedComment>,
    /// An error that was found while looking ahead for comments. Go continues at that point.
    deferred: Option<Error>,
    tokens: VecDeque<YamlToken>,
    /// How many tokens were taken from the queue so far.
    taken: i64,
    /// Whether the first token of the queue is known to be final.
    ready: bool,
    started: bool,
    /// The column of the innermost block collection. It is -1 outside of all collections.
    indent: i64,
    indents: Vec<i64>,
    flow_level: usize,
    simple_key_allowed: bool,
    /// The candidates: one for each flow level, and one for the block context.
    simple_keys: Vec<SimpleKeyCandidate>,
    /// Token to index in `simple_keys`.
    ///
    /// Parity(go-yaml v2): an entry may be deleted too early (`[]: x`) or too late; what is possible
    /// is decided by the key it leads to.
    simple_keys_by_token: BTreeMap<i64, usize>,
}

/// Go appends a token that it should insert before the queue's head.
const APPEND_POSITION: i64 = -1;

impl<'i> YamlScanner<'i> {
    /// A scanner of `input`, whose first line counts as `line` (from 0).
    pub(crate) fn new(input: &'i [u8], line: usize, dialect: YamlDialect) -> Self {
        Self {
            dialect,
            comments: VecDeque::new(),
            deferred: None,
            reader: YamlInputReader::new(input, line),
            tokens: VecDeque::new(),
            taken: 0,
            ready: false,
            started: false,
            indent: -1,
            indents: Vec::new(),
            flow_level: 0,
            simple_key_allowed: true,
            simple_keys: Vec::new(),
            simple_keys_by_token: BTreeMap::new(),
        }
    }

    /// Returns the next token, which stays in the queue.
    ///
    /// After an error or after STREAM-END, it must not be called again.
    pub(crate) fn peek(&mut self) -> Result<&YamlToken, Error> {
        if !self.ready {
            self.fetch_more_tokens()?;
        }
        // Fetching ends with a token or an error.
        self.tokens
            .front()
            .ok_or_else(|| Error::token("unexpected end of tokens", YamlMark::default()))
    }

    /// Takes the next token of the YAML text.
    pub(crate) fn next(&mut self) -> Result<YamlToken, Error> {
        self.peek()?;
        self.ready = false;
        // Only tokens that are still in the queue are looked up.
        self.simple_keys_by_token.remove(&self.taken);
        self.taken += 1;
        let token = self.tokens.pop_front();
        token.ok_or_else(|| Error::token("unexpected end of tokens", self.reader.mark))
    }

    /// An error at the present position.
    fn error(&self, problem: &str) -> Error {
        Error::token(problem, self.reader.mark)
    }

    /// An error at the present position, in a part that began at `start`.
    fn error_in(&self, start: YamlMark, problem: &str) -> Error {
        match self.dialect {
            // Parity(go-yaml v3): the line that is named is where the broken thing began.
            YamlDialect::V3 if start.line > 0 => {
                Error::token_from(problem, start, self.reader.mark)
            }
            YamlDialect::V2 | YamlDialect::V3 => self.error(problem),
        }
    }

    fn insert(&mut self, at: i64, token: YamlToken) {
        match usize::try_from(at) {
            Ok(at) if at <= self.tokens.len() => self.tokens.insert(at, token),
            _ => self.tokens.push_back(token),
        }
    }

    fn fetch_more_tokens(&mut self) -> Result<(), Error> {
        let behind = match self.dialect {
            YamlDialect::V2 => 0,
            YamlDialect::V3 => LOOKAHEAD_TOKEN_COUNT,
        };
        loop {
            if self.tokens.len() > behind {
                let Some(&key) = self.simple_keys_by_token.get(&self.taken) else { break };
                if !self.simple_key_is_valid(key)? {
                    break;
                }
            }
            self.fetch_next_token()?;
        }
        self.ready = true;
        Ok(())
    }

    fn fetch_next_token(&mut self) -> Result<(), Error> {
        self.reader.cache(1)?;
        if !self.started {
            return self.fetch_stream_start();
        }
        let scan = self.reader.mark;
        self.skip_to_next_token()?;
        self.unroll_indent(self.column(), scan);
        self.reader.cache(4)?;

        match self.reader.peek(0) {
            0 => self.fetch_stream_end(),
            b'%' if self.reader.mark.column == 0 => self.fetch_directive(),
            b'-' if self.reader.is_document_indicator() => {
                self.fetch_document_indicator(YamlTokenKind::DocumentStart)
            }
            b'.' if self.reader.is_document_indicator() => {
                self.fetch_document_indicator(YamlTokenKind::DocumentEnd)
            }
            _ if self.dialect == YamlDialect::V3 => self.fetch_commented_token(),
            _ => self.fetch_content_token(),
        }
    }

    fn fetch_content_token(&mut self) -> Result<(), Error> {
        let reader = &self.reader;
        let flow = self.flow_level > 0;
        match reader.peek(0) {
            b'[' => self.fetch_flow_collection_start(YamlTokenKind::FlowSequenceStart),
            b'{' => self.fetch_flow_collection_start(YamlTokenKind::FlowMappingStart),
            b']' => self.fetch_flow_collection_end(YamlTokenKind::FlowSequenceEnd),
            b'}' => self.fetch_flow_collection_end(YamlTokenKind::FlowMappingEnd),
            b',' => self.fetch_flow_entry(),
            b'-' if reader.is_blankz(1) => self.fetch_block_entry(),
            b'?' if flow || reader.is_blankz(1) => self.fetch_key(),
            b':' if flow || reader.is_blankz(1) => self.fetch_value(),
            b'*' => self.fetch_starting_a_key(|scanner| scanner.scan_anchor(YamlTokenKind::Alias)),
            b'&' => self.fetch_starting_a_key(|scanner| scanner.scan_anchor(YamlTokenKind::Anchor)),
            b'!' => self.fetch_starting_a_key(Self::scan_tag),
            b'|' if !flow => self.fetch_block_scalar(true),
            b'>' if !flow => self.fetch_block_scalar(false),
            b'\'' => self.fetch_starting_a_key(|scanner| scanner.scan_quoted_scalar(true)),
            b'"' => self.fetch_starting_a_key(|scanner| scanner.scan_quoted_scalar(false)),
            b'\t' | b'#' | b'|' | b'>' | b'%' | b'@' | b'`' => {
                Err(self.error("found character that cannot start any token"))
            }
            _ => self.fetch_starting_a_key(Self::scan_plain_scalar),
        }
    }

    fn column(&self) -> i64 {
        // A column is at most the length of the input.
        self.reader.mark.column as i64
    }

    fn simple_key_is_valid(&mut self, index: usize) -> Result<bool, Error> {
        let now = self.reader.mark;
        let Some(key) = self.simple_keys.get_mut(index).filter(|key| key.possible) else {
            return Ok(false);
        };
        if key.mark.line < now.line || key.mark.index + MAX_SIMPLE_KEY < now.index {
            if key.required {
                let start = key.mark;
                return Err(self.error_in(start, "could not find expected ':'"));
            }
            key.possible = false;
            return Ok(false);
        }
        Ok(true)
    }

    /// Notes that a simple key may begin here.
    fn save_simple_key(&mut self) -> Result<(), Error> {
        if !self.simple_key_allowed {
            return Ok(());
        }
        let key = SimpleKeyCandidate {
            possible: true,
            required: self.flow_level == 0 && self.indent == self.column(),
            token: self.next_token_number(),
            mark: self.reader.mark,
        };
        self.remove_simple_key()?;
        if let Some(last) = self.simple_keys.last_mut() {
            *last = key;
            self.simple_keys_by_token.insert(key.token, self.simple_keys.len() - 1);
        }
        Ok(())
    }

    fn next_token_number(&self) -> i64 {
        self.taken + self.tokens.len() as i64
    }

    /// Drops the simple key candidate of this flow level, if there is one.
    fn remove_simple_key(&mut self) -> Result<(), Error> {
        let Some(key) = self.simple_keys.last_mut().filter(|key| key.possible) else {
            return Ok(());
        };
        if key.required {
            let start = key.mark;
            return Err(self.error_in(start, "could not find expected ':'"));
        }
        key.possible = false;
        self.simple_keys_by_token.remove(&key.token);
        Ok(())
    }

    fn increase_flow_level(&mut self) -> Result<(), Error> {
        self.simple_keys.push(SimpleKeyCandidate {
            possible: false,
            required: false,
            token: self.next_token_number(),
            mark: self.reader.mark,
        });
        self.flow_level += 1;
        if self.flow_level > MAX_NESTING {
            return Err(self.error(&format!("exceeded max depth of {MAX_NESTING}")));
        }
        Ok(())
    }

    fn decrease_flow_level(&mut self) {
        if self.flow_level > 0 {
            self.flow_level -= 1;
            if let Some(key) = self.simple_keys.pop() {
                self.simple_keys_by_token.remove(&key.token);
            }
        }
    }

    /// Opens a block collection at `column` if it is deeper than the innermost one.
    fn roll_indent(
        &mut self,
        key: Option<SimpleKeyCandidate>,
        kind: YamlTokenKind,
    ) -> Result<(), Error> {
        let mark = key.map_or(self.reader.mark, |key| key.mark);
        let column = mark.column as i64;
        if self.flow_level > 0 || self.indent >= column {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column;
        if self.indents.len() > MAX_NESTING {
            let start = self.simple_keys.last().map_or(mark, |key| key.mark);
            return Err(self.error_in(start, &format!("exceeded max depth of {MAX_NESTING}")));
        }
        let at = key.map_or(APPEND_POSITION, |key| key.token - self.taken);
        self.insert(at, YamlToken { kind, start: mark, end: mark });
        Ok(())
    }

    /// Closes the block collections that are deeper than `column`. The search for the next token began at `scan`.
    fn unroll_indent(&mut self, column: i64, scan: YamlMark) {
        if self.flow_level > 0 || self.indent <= column {
            return;
        }
        let mut mark = match self.dialect {
            YamlDialect::V2 => self.reader.mark,
            // In front of the comments, as those that follow may belong to an outer block.
            YamlDialect::V3 => YamlMark { index: scan.index.saturating_sub(1), ..scan },
        };
        let ends = self.ends_before_comments(mark.index);
        while self.indent > column {
            mark = ends.get(&self.indent).copied().unwrap_or(mark);
            self.insert(
                APPEND_POSITION,
                YamlToken { kind: YamlTokenKind::BlockEnd, start: mark, end: mark },
            );
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn fetch_stream_start(&mut self) -> Result<(), Error> {
        let mark = self.reader.mark;
        self.simple_keys.push(SimpleKeyCandidate {
            possible: false,
            required: false,
            token: 0,
            mark,
        });
        self.started = true;
        self.insert(
            APPEND_POSITION,
            YamlToken { kind: YamlTokenKind::StreamStart, start: mark, end: mark },
        );
        Ok(())
    }

    fn fetch_stream_end(&mut self) -> Result<(), Error> {
        if self.reader.mark.column != 0 {
            self.reader.mark.column = 0;
            self.reader.mark.line += 1;
        }
        self.unroll_indent(-1, self.reader.mark);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        let mark = self.reader.mark;
        self.insert(
            APPEND_POSITION,
            YamlToken { kind: YamlTokenKind::StreamEnd, start: mark, end: mark },
        );
        Ok(())
    }

    fn fetch_directive(&mut self) -> Result<(), Error> {
        self.unroll_indent(-1, self.reader.mark);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        let token = self.scan_directive()?;
        self.insert(APPEND_POSITION, token);
        Ok(())
    }

    fn fetch_document_indicator(&mut self, kind: YamlTokenKind) -> Result<(), Error> {
        self.unroll_indent(-1, self.reader.mark);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.push_indicator(kind, 3);
        Ok(())
    }

    /// Skips an indicator of `length` characters and appends its token.
    fn push_indicator(&mut self, kind: YamlTokenKind, length: usize) {
        let start = self.reader.mark;
        for _ in 0..length {
            self.reader.skip();
        }
        self.insert(APPEND_POSITION, YamlToken { kind, start, end: self.reader.mark });
    }

    fn fetch_flow_collection_start(&mut self, kind: YamlTokenKind) -> Result<(), Error> {
        self.save_simple_key()?;
        self.increase_flow_level()?;
        self.simple_key_allowed = true;
        self.push_indicator(kind, 1);
        Ok(())
    }

    fn fetch_flow_collection_end(&mut self, kind: YamlTokenKind) -> Result<(), Error> {
        self.remove_simple_key()?;
        self.decrease_flow_level();
        self.simple_key_allowed = false;
        self.push_indicator(kind, 1);
        Ok(())
    }

    fn fetch_flow_entry(&mut self) -> Result<(), Error> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.push_indicator(YamlTokenKind::FlowEntry, 1);
        Ok(())
    }

    fn fetch_block_entry(&mut self) -> Result<(), Error> {
        // Within a flow collection the parser refuses it.
        if self.flow_level == 0 {
            if !self.simple_key_allowed {
                return Err(self.error("block sequence entries are not allowed in this context"));
            }
            self.roll_indent(None, YamlTokenKind::BlockSequenceStart)?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.push_indicator(YamlTokenKind::BlockEntry, 1);
        Ok(())
    }

    fn fetch_key(&mut self) -> Result<(), Error> {
        if self.flow_level == 0 {
            if !self.simple_key_allowed {
                return Err(self.error("mapping keys are not allowed in this context"));
            }
            self.roll_indent(None, YamlTokenKind::BlockMappingStart)?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = self.flow_level == 0;
        self.push_indicator(YamlTokenKind::Key, 1);
        Ok(())
    }

    fn fetch_value(&mut self) -> Result<(), Error> {
        let innermost = self.simple_keys.len().saturating_sub(1);
        if self.simple_key_is_valid(innermost)? {
            let key = self.simple_keys[innermost];
            let token = YamlToken { kind: YamlTokenKind::Key, start: key.mark, end: key.mark };
            self.insert(key.token - self.taken, token);
            self.roll_indent(Some(key), YamlTokenKind::BlockMappingStart)?;
            self.simple_keys[innermost].possible = false;
            self.simple_keys_by_token.remove(&key.token);
            self.simple_key_allowed = false;
        } else {
            if self.flow_level == 0 {
                if !self.simple_key_allowed {
                    return Err(self.error("mapping values are not allowed in this context"));
                }
                self.roll_indent(None, YamlTokenKind::BlockMappingStart)?;
            }
            self.simple_key_allowed = self.flow_level == 0;
        }
        self.push_indicator(YamlTokenKind::Value, 1);
        Ok(())
    }

    fn fetch_block_scalar(&mut self, literal: bool) -> Result<(), Error> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        let token = self.scan_block_scalar(literal)?;
        self.insert(APPEND_POSITION, token);
        Ok(())
    }

    /// Reads a token with which a key may begin, and after which no key may begin.
    fn fetch_starting_a_key(
        &mut self,
        scan: impl FnOnce(&mut Self) -> Result<YamlToken, Error>,
    ) -> Result<(), Error> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let token = scan(self)?;
        self.insert(APPEND_POSITION, token);
        Ok(())
    }

    fn skip_to_next_token(&mut self) -> Result<(), Error> {
        let scan = self.reader.mark;
        loop {
            self.reader.cache(1)?;
            if self.reader.mark.column == 0 && self.reader.is_bom() {
                self.reader.skip();
            }
            self.reader.cache(1)?;
            // A tab cannot indent, so not at the start of a line or after `-`, `?` or a lone `:`.
            let tabs = self.flow_level > 0 || !self.simple_key_allowed;
            while self.reader.peek(0) == b' ' || tabs && self.reader.peek(0) == b'\t' {
                self.reader.skip();
                self.reader.cache(1)?;
            }
            match self.dialect {
                YamlDialect::V2 => self.reader.skip_comment()?,
                YamlDialect::V3 => self.collect_comments(scan)?,
            }
            if !self.reader.is_break(0) {
                return Ok(());
            }
            self.reader.cache(2)?;
            self.reader.skip_line();
            if self.flow_level == 0 {
                self.simple_key_allowed = true;
            }
        }
    }
}

/// The text of a token whose characters have all been valid.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
