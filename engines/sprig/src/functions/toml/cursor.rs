//! A cursor over the characters of a text that knows the current line.

use golang::strconv::{QuotingStyle, quote_char};
use golang::unicode::decode;

/// A syntax error, and its line.
#[derive(Debug)]
pub(super) struct TomlError {
    pub(super) line: usize,
    pub(super) message: String,
}

pub(super) struct TomlCursor<'t> {
    text: &'t [u8],
    pos: usize,
    /// The number of the line, counted from one.
    pub(super) line: usize,
}

impl<'t> TomlCursor<'t> {
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self { text, pos: 0, line: 1 }
    }

    /// The next character, if there is one.
    pub(super) fn next(&mut self) -> Result<Option<char>, TomlError> {
        let next = self.look()?;
        if let Some((character, width)) = next {
            self.line += usize::from(character == '\n');
            self.pos += width;
        }
        Ok(next.map(|(character, _)| character))
    }

    /// The next character, which stays.
    pub(super) fn peek(&self) -> Result<Option<char>, TomlError> {
        Ok(self.look()?.map(|(character, _)| character))
    }

    fn look(&self) -> Result<Option<(char, usize)>, TomlError> {
        let rest = &self.text[self.pos..];
        let Some(first) = rest.first() else { return Ok(None) };
        let (character, width) = decode(rest);
        // A line feed counts as soon as it is seen.
        let line = self.line + usize::from(*first == b'\n');
        if character == char::REPLACEMENT_CHARACTER && width == 1 {
            return Err(TomlError { line, message: format!("invalid UTF-8 byte: 0x{first:02x}") });
        }
        let is_lone_return = character == '\r' && rest.get(1) != Some(&b'\n');
        let is_control = matches!(character, '\0'..='\u{1f}' | '\u{7f}')
            && !matches!(character, '\t' | '\n' | '\r');
        if is_control || is_lone_return {
            let message = format!(
                "TOML files cannot contain control characters: '0x{:02x}'",
                u32::from(character)
            );
            return Err(TomlError { line, message });
        }
        Ok(Some((character, width)))
    }

    /// Consumes the next character if it is `wanted`.
    pub(super) fn accept(&mut self, wanted: char) -> Result<bool, TomlError> {
        let is_there = self.peek()? == Some(wanted);
        if is_there {
            self.next()?;
        }
        Ok(is_there)
    }

    /// Consumes characters as long as `wanted` accepts them.
    pub(super) fn skip(&mut self, wanted: impl Fn(char) -> bool) -> Result<(), TomlError> {
        while self.peek()?.is_some_and(&wanted) {
            self.next()?;
        }
        Ok(())
    }

    /// Goes back by one ASCII character. It must not be a line feed.
    pub(super) fn step_back(&mut self) {
        self.pos = self.pos.saturating_sub(1);
    }

    /// The position of the cursor.
    pub(super) fn place(&self) -> usize {
        self.pos
    }

    /// The text between an earlier position and the present one.
    pub(super) fn since(&self, place: usize) -> &'t [u8] {
        &self.text[place.min(self.pos)..self.pos]
    }

    /// Whether the remaining text begins with `text`.
    pub(super) fn starts_with(&self, text: &[u8]) -> bool {
        self.text[self.pos..].starts_with(text)
    }

    /// An error in this line.
    pub(super) fn fault(&self, message: impl Into<String>) -> TomlError {
        TomlError { line: self.line, message: message.into() }
    }

    /// An error in the previous line, for a caller that has already consumed its line feed.
    pub(super) fn fault_before(&self, message: impl Into<String>) -> TomlError {
        TomlError { line: self.line.saturating_sub(1), message: message.into() }
    }

    /// An error about a consumed character or about the end of the text. The end belongs to the last line with text.
    pub(super) fn fault_at(&self, found: Option<char>, message: impl Into<String>) -> TomlError {
        let is_after_line = self.text[..self.pos].ends_with(b"\n");
        let line = self.line - usize::from(found.is_none() && is_after_line);
        TomlError { line, message: message.into() }
    }
}

/// A character in quotes. The end of the text is shown as NUL.
pub(super) fn quoted(found: Option<char>) -> String {
    let quoted = quote_char(found.unwrap_or('\0'), QuotingStyle::Printable);
    String::from_utf8_lossy(&quoted).into_owned()
}

pub(super) fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t')
}

pub(super) fn is_line_end(character: char) -> bool {
    matches!(character, '\n' | '\r')
}
