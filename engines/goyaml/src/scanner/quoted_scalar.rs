//! Scalars in single or double quotes.

use super::plain_scalar::ScalarWordGap;
use super::{YamlScanner, text};
use crate::error::Error;
use crate::reader::YamlMark;
use crate::token::{TokenScalarStyle, YamlToken, YamlTokenKind};

impl YamlScanner<'_> {
    pub(super) fn scan_quoted_scalar(&mut self, single: bool) -> Result<YamlToken, Error> {
        let quote = if single { b'\'' } else { b'"' };
        let start = self.reader.mark;
        self.reader.skip();
        let mut content = Vec::new();
        loop {
            self.reader.cache(4)?;
            if self.reader.is_document_indicator() {
                return Err(self.error_in(start, "found unexpected document indicator"));
            }
            if self.reader.peek(0) == 0 {
                return Err(self.error_in(start, "found unexpected end of stream"));
            }
            let mut gap = ScalarWordGap {
                broken: self.scan_quoted_word(start, &mut content, quote)?,
                ..ScalarWordGap::default()
            };
            self.reader.cache(1)?;
            if self.reader.peek(0) == quote {
                break;
            }
            self.scan_quoted_gap(&mut gap)?;
            // An escaped line break is one that was passed without being kept.
            gap.fold_into(&mut content);
        }
        self.reader.skip();
        let style =
            if single { TokenScalarStyle::SingleQuoted } else { TokenScalarStyle::DoubleQuoted };
        let kind = YamlTokenKind::Scalar { text: text(content), style };
        Ok(YamlToken { kind, start, end: self.reader.mark })
    }

    /// Reads up to a blank, a line break or the closing quote. Returns whether it ended after an escaped line break.
    fn scan_quoted_word(
        &mut self,
        start: YamlMark,
        into: &mut Vec<u8>,
        quote: u8,
    ) -> Result<bool, Error> {
        while !self.reader.is_blankz(0) {
            let next = self.reader.peek(0);
            if next == b'\'' && quote == b'\'' && self.reader.peek(1) == b'\'' {
                into.push(b'\'');
                self.reader.skip();
                self.reader.skip();
            } else if next == quote {
                break;
            } else if next == b'\\' && quote == b'"' {
                if self.reader.is_break(1) {
                    self.reader.cache(3)?;
                    self.reader.skip();
                    self.reader.skip_line();
                    return Ok(true);
                }
                self.scan_escape(start, into)?;
            } else {
                self.reader.read(into);
                self.reader.read_run(into, |byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/')
                });
            }
            self.reader.cache(2)?;
        }
        Ok(false)
    }

    fn scan_quoted_gap(&mut self, gap: &mut ScalarWordGap) -> Result<(), Error> {
        loop {
            if self.reader.is_break(0) {
                self.scan_gap_break(gap)?;
            } else if !self.reader.is_blank(0) {
                return Ok(());
            } else if gap.broken {
                self.reader.skip();
            } else {
                self.reader.read(&mut gap.blanks);
            }
            self.reader.cache(1)?;
        }
    }

    fn scan_escape(&mut self, start: YamlMark, into: &mut Vec<u8>) -> Result<(), Error> {
        // Parity(go-yaml v2): `\/` is unknown although JSON has it, and `\'` is known.
        let (meaning, digits) = match self.reader.peek(1) {
            b'0' => ("\0", 0),
            b'a' => ("\x07", 0),
            b'b' => ("\x08", 0),
            b't' | b'\t' => ("\t", 0),
            b'n' => ("\n", 0),
            b'v' => ("\x0b", 0),
            b'f' => ("\x0c", 0),
            b'r' => ("\r", 0),
            b'e' => ("\x1b", 0),
            b' ' => (" ", 0),
            b'"' => ("\"", 0),
            b'\'' => ("'", 0),
            b'\\' => ("\\", 0),
            b'N' => ("\u{85}", 0),
            b'_' => ("\u{a0}", 0),
            b'L' => ("\u{2028}", 0),
            b'P' => ("\u{2029}", 0),
            b'x' => ("", 2),
            b'u' => ("", 4),
            b'U' => ("", 8),
            _ => return Err(self.error_in(start, "found unknown escape character")),
        };
        self.reader.skip();
        self.reader.skip();
        into.extend_from_slice(meaning.as_bytes());
        if digits > 0 {
            self.scan_code(start, into, digits)?;
        }
        Ok(())
    }

    fn scan_code(
        &mut self,
        start: YamlMark,
        into: &mut Vec<u8>,
        digits: usize,
    ) -> Result<(), Error> {
        self.reader.cache(digits)?;
        let mut value = 0u32;
        for ahead in 0..digits {
            let Some(digit) = self.hex(ahead) else {
                return Err(self.error_in(start, "did not find expected hexdecimal number"));
            };
            value = value << 4 | digit;
        }
        let Some(character) = char::from_u32(value) else {
            return Err(self.error_in(start, "found invalid Unicode character escape code"));
        };
        into.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        for _ in 0..digits {
            self.reader.skip();
        }
        Ok(())
    }
}
