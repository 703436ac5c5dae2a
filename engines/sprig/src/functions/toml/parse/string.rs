//! Strings of TOML: the four kinds, and their escapes.

use golang::strconv::{QuotingStyle, quote};
use golang::value::GoString;

use super::super::cursor::{TomlError, is_line_end};
use super::{TomlParser, TomlResult};

impl TomlParser<'_> {
    /// A string behind its `"`.
    pub(super) fn basic_string(&mut self) -> TomlResult<GoString> {
        let from = self.cursor.place();
        loop {
            match self.cursor.next()? {
                None => return Err(self.cursor.fault_at(None, "unexpected EOF; expected '\"'")),
                Some(end) if is_line_end(end) => {
                    return Err(self.cursor.fault_before("strings cannot contain newlines"));
                }
                Some('\\') => self.escape(from)?,
                Some('"') => break,
                Some(_) => {}
            }
        }
        let text = self.cursor.since(from);
        self.unescaped(&text[..text.len() - 1])
    }

    /// A string behind its `'`.
    pub(super) fn raw_string(&mut self) -> TomlResult<GoString> {
        let from = self.cursor.place();
        loop {
            match self.cursor.next()? {
                None => return Err(self.cursor.fault_at(None, "unexpected EOF; expected \"'\"")),
                Some(end) if is_line_end(end) => {
                    return Err(self.cursor.fault_before("strings cannot contain newlines"));
                }
                Some('\'') => break,
                Some(_) => {}
            }
        }
        let text = self.cursor.since(from);
        Ok(text[..text.len() - 1].into())
    }

    /// A string behind its `"""`.
    pub(super) fn long_string(&mut self) -> TomlResult<GoString> {
        let from = self.cursor.place();
        loop {
            match self.cursor.next()? {
                None => {
                    return Err(self.cursor.fault_at(None, "unexpected EOF; expected '\"\"\"'"));
                }
                Some('\\') if self.cursor.peek()?.is_some_and(is_line_end) => {
                    self.cursor.next()?;
                }
                Some('\\') => self.escape(from)?,
                Some('"') if self.ends(from, b'"')? => break,
                Some(_) => {}
            }
        }
        let text = self.cursor.since(from);
        let text = without_first_line_end(&text[..text.len() - 3]);
        self.unescaped(&without_escaped_lines(text))
    }

    /// A string behind its `'''`.
    pub(super) fn long_raw_string(&mut self) -> TomlResult<GoString> {
        let from = self.cursor.place();
        loop {
            match self.cursor.next()? {
                None => {
                    return Err(self.cursor.fault_at(None, "unexpected EOF; expected \"'''\""));
                }
                Some('\'') if self.ends(from, b'\'')? => break,
                Some(_) => {}
            }
        }
        let text = self.cursor.since(from);
        Ok(without_first_line_end(&text[..text.len() - 3]).into())
    }

    /// Whether the present quote begins the end of a long string. If so, the other two quotes are consumed, too. Up to two more
    /// quotes may come before them.
    fn ends(&mut self, from: usize, mark: u8) -> TomlResult<bool> {
        if !self.cursor.starts_with(&[mark; 2]) {
            return Ok(false);
        }
        let mark_char = char::from(mark);
        self.cursor.next()?;
        self.cursor.next()?;
        if self.cursor.peek()? != Some(mark_char) {
            return Ok(true);
        }
        let passed = self.cursor.since(from);
        let is_escaped = mark == b'"' && passed.ends_with(b"\\\"\"\"\"\"");
        if passed.ends_with(&[mark; 5]) && !is_escaped {
            let outer = if mark == b'"' { '\'' } else { '"' };
            let marks = mark_char.to_string().repeat(6);
            return Err(self.cursor.fault(format!("unexpected {outer}{marks}{outer}")));
        }
        self.cursor.step_back();
        self.cursor.step_back();
        Ok(false)
    }

    /// Checks the characters after a backslash.
    fn escape(&mut self, from: usize) -> TomlResult {
        let found = self.cursor.next()?;
        let (count, digits, letter) = match found {
            Some('e' | 'b' | 't' | 'n' | 'f' | 'r' | '"' | ' ' | '\t' | '\\') => return Ok(()),
            Some('x') => (2, "two", 'x'),
            Some('u') => (4, "four", 'u'),
            Some('U') => (8, "eight", 'U'),
            Some(other) => {
                return Err(self.cursor.fault(format!("invalid escape in string '\\{other}'")));
            }
            None => return Err(self.cursor.fault_before("invalid escape in string '\\\0'")),
        };
        for _ in 0..count {
            let found = self.cursor.next()?;
            if !found.is_some_and(|c| c.is_ascii_hexdigit()) {
                let passed = quote(self.cursor.since(from), QuotingStyle::Printable);
                let passed = String::from_utf8_lossy(&passed);
                let message = format!(
                    "expected {digits} hexadecimal digits after '\\{letter}', but got {passed} instead"
                );
                return Err(self.cursor.fault_at(found, message));
            }
        }
        Ok(())
    }

    /// A text with its escapes replaced. The escapes were already checked.
    fn unescaped(&self, text: &[u8]) -> TomlResult<GoString> {
        if !text.contains(&b'\\') {
            return Ok(text.into());
        }
        let mut out = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
            out.extend_from_slice(&rest[..at]);
            let escape = rest.get(at + 1).copied().unwrap_or_default();
            let digits = match escape {
                b'x' => 2,
                b'u' => 4,
                b'U' => 8,
                _ => 0,
            };
            let end = (at + 2 + digits).min(rest.len());
            let hex = String::from_utf8_lossy(rest.get(at + 2..end).unwrap_or_default());
            match escape {
                b'b' => out.push(0x8),
                b't' => out.push(b'\t'),
                b'n' => out.push(b'\n'),
                b'f' => out.push(0xc),
                b'r' => out.push(b'\r'),
                b'e' => out.push(0x1b),
                b' ' | b'\t' => {
                    let message = format!("invalid escape: '\\{}'", char::from(escape));
                    return Err(self.cursor.fault(message));
                }
                b'x' | b'u' | b'U' => {
                    let code = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
                    let character = code.ok_or_else(|| self.not_utf8(&hex))?;
                    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                other => out.push(other),
            }
            rest = &rest[end..];
        }
        out.extend_from_slice(rest);
        Ok(out.into())
    }

    fn not_utf8(&self, hex: &str) -> TomlError {
        self.cursor.fault(format!("Escaped character '\\u{hex}' is not valid UTF-8."))
    }
}

fn without_first_line_end(text: &[u8]) -> &[u8] {
    let rest = text.strip_prefix(b"\n").or_else(|| text.strip_prefix(b"\r\n"));
    rest.unwrap_or(text)
}

/// A text without line ends that are escaped by a backslash, and without the white space after them.
fn without_escaped_lines(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        if *byte != b'\\' {
            out.push(*byte);
            rest = after;
            continue;
        }
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        let length = after.iter().position(|byte| !is_space(byte)).unwrap_or(after.len());
        if after[..length].contains(&b'\n') {
            rest = &after[length..];
            continue;
        }
        // Another escape. Its second character cannot begin an escape itself, even if it is a backslash.
        let length = rest.len().min(2);
        out.extend_from_slice(&rest[..length]);
        rest = &rest[length..];
    }
    out
}
