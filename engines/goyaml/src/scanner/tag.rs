//! Anchors, aliases and tags.

use super::{YamlScanner, text};
use crate::error::Error;
use crate::reader::YamlMark;
use crate::token::{YamlToken, YamlTokenKind};

impl YamlScanner<'_> {
    /// Reads the anchor `&name` or the alias `*name`. `kind` makes the token from the name.
    pub(super) fn scan_anchor(
        &mut self,
        kind: impl FnOnce(String) -> YamlTokenKind,
    ) -> Result<YamlToken, Error> {
        let start = self.reader.mark;
        self.reader.skip();
        let mut name = Vec::new();
        self.scan_alphas(&mut name)?;
        let ends = self.reader.is_blankz(0)
            || matches!(self.reader.peek(0), b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`');
        if name.is_empty() || !ends {
            return Err(
                self.error_in(start, "did not find expected alphabetic or numeric character")
            );
        }
        Ok(YamlToken { kind: kind(text(name)), start, end: self.reader.mark })
    }

    /// Reads `!<uri>`, `!suffix` or `!handle!suffix`.
    pub(super) fn scan_tag(&mut self) -> Result<YamlToken, Error> {
        let start = self.reader.mark;
        self.reader.cache(2)?;
        let (handle, suffix) = if self.reader.peek(1) == b'<' {
            self.reader.skip();
            self.reader.skip();
            let suffix = self.scan_tag_uri(start, Vec::new(), false)?;
            if self.reader.peek(0) != b'>' {
                return Err(self.error_in(start, "did not find the expected '>'"));
            }
            self.reader.skip();
            (Vec::new(), suffix)
        } else {
            let handle = self.scan_tag_handle(start, false)?;
            if handle.len() > 1 && handle.ends_with(b"!") {
                let suffix = self.scan_tag_uri(start, Vec::new(), false)?;
                (handle, suffix)
            } else {
                // It was not a handle: what has been read behind the `!` begins the suffix.
                let suffix = self.scan_tag_uri(start, handle[1..].to_vec(), true)?;
                // Parity(go-yaml v2): a lone `!` stays a tag, and makes its scalar a string.
                if suffix.is_empty() { (suffix, b"!".to_vec()) } else { (b"!".to_vec(), suffix) }
            }
        };
        self.reader.cache(1)?;
        // Parity(go-yaml v2): a comma does not end a tag in a flow collection.
        if !self.reader.is_blankz(0) {
            return Err(self.error_in(start, "did not find expected whitespace or line break"));
        }
        let kind = YamlTokenKind::Tag { handle: text(handle), suffix: text(suffix) };
        Ok(YamlToken { kind, start, end: self.reader.mark })
    }

    /// Reads `!`, `!name` or `!name!`; a directive takes only the first and the last.
    pub(super) fn scan_tag_handle(
        &mut self,
        start: YamlMark,
        directive: bool,
    ) -> Result<Vec<u8>, Error> {
        self.reader.cache(1)?;
        if self.reader.peek(0) != b'!' {
            return Err(self.error_in(start, "did not find expected '!'"));
        }
        let mut handle = Vec::new();
        self.reader.read(&mut handle);
        self.scan_alphas(&mut handle)?;
        if self.reader.peek(0) == b'!' {
            self.reader.read(&mut handle);
        } else if directive && handle != b"!" {
            return Err(self.error_in(start, "did not find expected '!'"));
        }
        Ok(handle)
    }

    /// Reads the characters of a URI and appends them to `uri`. If there is a `head` already, none are needed.
    pub(super) fn scan_tag_uri(
        &mut self,
        start: YamlMark,
        mut uri: Vec<u8>,
        head: bool,
    ) -> Result<Vec<u8>, Error> {
        let mut found = head;
        self.reader.cache(1)?;
        loop {
            match self.reader.peek(0) {
                b'%' => self.scan_uri_escapes(start, &mut uri)?,
                b';' | b'/' | b'?' | b':' | b'@' | b'&' | b'=' | b'+' | b'$' | b',' | b'.'
                | b'!' | b'~' | b'*' | b'\'' | b'(' | b')' | b'[' | b']' => {
                    self.reader.read(&mut uri);
                }
                _ if self.reader.is_alpha(0) => self.reader.read(&mut uri),
                _ if found => return Ok(uri),
                _ => return Err(self.error_in(start, "did not find expected tag URI")),
            }
            found = true;
            self.reader.cache(1)?;
        }
    }

    /// Reads the `%xx` of one character.
    fn scan_uri_escapes(&mut self, start: YamlMark, uri: &mut Vec<u8>) -> Result<(), Error> {
        let mut left = None;
        while left != Some(0) {
            self.reader.cache(3)?;
            let octet = match (self.reader.peek(0), self.hex(1), self.hex(2)) {
                (b'%', Some(high), Some(low)) => high << 4 | low,
                _ => return Err(self.error_in(start, "did not find URI escaped octet")),
            };
            left = Some(match (left, octet) {
                (None, 0..0x80) => 0,
                (None, 0xc0..0xe0) => 1,
                (None, 0xe0..0xf0) => 2,
                (None, 0xf0..0xf8) => 3,
                (None, _) => {
                    return Err(self.error_in(start, "found an incorrect leading UTF-8 octet"));
                }
                (Some(left), 0x80..0xc0) => left - 1,
                (Some(_), _) => {
                    return Err(self.error_in(start, "found an incorrect trailing UTF-8 octet"));
                }
            });
            // At most 255, as it is two hexadecimal digits.
            uri.push(octet as u8);
            for _ in 0..3 {
                self.reader.skip();
            }
        }
        Ok(())
    }

    /// The value of the hexadecimal digit at this distance. `None` if the character there is no such digit.
    pub(super) fn hex(&self, ahead: usize) -> Option<u32> {
        char::from(self.reader.peek(ahead)).to_digit(16)
    }

    /// Reads letters, digits, `_` and `-`.
    pub(super) fn scan_alphas(&mut self, into: &mut Vec<u8>) -> Result<(), Error> {
        self.reader.cache(1)?;
        while self.reader.is_alpha(0) {
            self.reader.read(into);
            self.reader.cache(1)?;
        }
        Ok(())
    }
}
