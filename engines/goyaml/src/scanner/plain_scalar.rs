//! Scalars without quotes.

use super::{YamlScanner, text};
use crate::error::Error;
use crate::reader::YamlMark;
use crate::token::{TokenScalarStyle, YamlToken, YamlTokenKind};

/// Blanks and line breaks between the words of a scalar, until it is known that a word follows.
#[derive(Debug, Default)]
pub(super) struct ScalarWordGap {
    /// The blanks within a line.
    pub(super) blanks: Vec<u8>,
    pub(super) first_break: Vec<u8>,
    pub(super) more_breaks: Vec<u8>,
    /// Whether the gap has a line break.
    pub(super) broken: bool,
}

impl ScalarWordGap {
    /// Appends what the white space between two words means in a plain scalar, and empties it: without a line break the blanks,
    /// for one line break a space, for several all but the first. A first break other than `\n` is kept.
    pub(super) fn fold_into(&mut self, into: &mut Vec<u8>) {
        if !self.broken {
            into.append(&mut self.blanks);
            return;
        }
        if !self.first_break.starts_with(b"\n") {
            into.append(&mut self.first_break);
        } else if self.more_breaks.is_empty() {
            into.push(b' ');
        }
        into.append(&mut self.more_breaks);
        self.first_break.clear();
        self.broken = false;
    }
}

impl YamlScanner<'_> {
    pub(super) fn scan_plain_scalar(&mut self) -> Result<YamlToken, Error> {
        let start = self.reader.mark;
        let mut end = start;
        let indent = self.indent + 1;
        let mut content = Vec::new();
        let mut gap = ScalarWordGap::default();
        loop {
            self.reader.cache(4)?;
            if self.reader.is_document_indicator() || self.reader.peek(0) == b'#' {
                break;
            }
            if self.at_plain_character() {
                gap.fold_into(&mut content);
            }
            while self.at_plain_character() {
                self.reader.read(&mut content);
                self.reader.read_run(&mut content, |byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/')
                });
                end = self.reader.mark;
                self.reader.cache(2)?;
            }
            if !(self.reader.is_blank(0) || self.reader.is_break(0)) {
                break;
            }
            self.scan_plain_gap(start, &mut gap, indent)?;
            if self.flow_level == 0 && self.column() < indent {
                break;
            }
        }
        if gap.broken {
            self.simple_key_allowed = true;
        }
        let kind = YamlTokenKind::Scalar { text: text(content), style: TokenScalarStyle::Plain };
        Ok(YamlToken { kind, start, end })
    }

    /// Whether the next character belongs to a word of a plain scalar.
    fn at_plain_character(&self) -> bool {
        match self.reader.peek(0) {
            b':' => !self.reader.is_blankz(1),
            // Parity(go-yaml v2): a question mark ends a word in a flow collection, a colon does
            // not unless a blank follows.
            b',' | b'?' | b'[' | b']' | b'{' | b'}' => self.flow_level == 0,
            _ => !self.reader.is_blankz(0),
        }
    }

    fn scan_plain_gap(
        &mut self,
        start: YamlMark,
        gap: &mut ScalarWordGap,
        indent: i64,
    ) -> Result<(), Error> {
        self.reader.cache(1)?;
        loop {
            if self.reader.is_blank(0) {
                if gap.broken && self.column() < indent && self.reader.peek(0) == b'\t' {
                    return Err(
                        self.error_in(start, "found a tab character that violates indentation")
                    );
                }
                if gap.broken {
                    self.reader.skip();
                } else {
                    self.reader.read(&mut gap.blanks);
                }
            } else if self.reader.is_break(0) {
                self.scan_gap_break(gap)?;
            } else {
                return Ok(());
            }
            self.reader.cache(1)?;
        }
    }

    /// Takes a line break within a scalar whose lines are joined.
    pub(super) fn scan_gap_break(&mut self, gap: &mut ScalarWordGap) -> Result<(), Error> {
        self.reader.cache(2)?;
        if gap.broken {
            self.reader.read_line(&mut gap.more_breaks);
        } else {
            gap.blanks.clear();
            self.reader.read_line(&mut gap.first_break);
            gap.broken = true;
        }
        Ok(())
    }
}
