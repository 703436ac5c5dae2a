//! `%YAML` and `%TAG`.

use super::{YamlScanner, text};
use crate::error::Error;
use crate::reader::YamlMark;
use crate::token::{YamlToken, YamlTokenKind};

/// How many digits each half of a version may have.
const MAX_VERSION_DIGITS: usize = 2;

impl YamlScanner<'_> {
    pub(super) fn scan_directive(&mut self) -> Result<YamlToken, Error> {
        let start = self.reader.mark;
        self.reader.skip();
        let mut name = Vec::new();
        self.scan_alphas(&mut name)?;
        if name.is_empty() {
            return Err(self.error_in(start, "could not find expected directive name"));
        }
        if !self.reader.is_blankz(0) {
            return Err(self.error_in(start, "found unexpected non-alphabetical character"));
        }
        let kind = match name.as_slice() {
            b"YAML" => self.scan_version(start)?,
            b"TAG" => self.scan_tag_directive(start)?,
            _ => return Err(self.error_in(start, "found unknown directive name")),
        };
        let end = self.reader.mark;
        self.scan_rest_of_line(start)?;
        Ok(YamlToken { kind, start, end })
    }

    /// Passes blanks, a comment and the line break; anything else is an error.
    pub(super) fn scan_rest_of_line(&mut self, start: YamlMark) -> Result<(), Error> {
        self.reader.skip_blanks_and_comment()?;
        if !self.reader.is_breakz(0) {
            return Err(self.error_in(start, "did not find expected comment or line break"));
        }
        if self.reader.is_break(0) {
            self.reader.cache(2)?;
            self.reader.skip_line();
        }
        Ok(())
    }

    fn scan_version(&mut self, start: YamlMark) -> Result<YamlTokenKind, Error> {
        self.reader.skip_blanks()?;
        let major = self.scan_version_number(start)?;
        if self.reader.peek(0) != b'.' {
            return Err(self.error_in(start, "did not find expected digit or '.' character"));
        }
        self.reader.skip();
        let minor = self.scan_version_number(start)?;
        Ok(YamlTokenKind::VersionDirective { major, minor })
    }

    fn scan_version_number(&mut self, start: YamlMark) -> Result<u8, Error> {
        self.reader.cache(1)?;
        let mut value = 0;
        let mut length = 0;
        while self.reader.peek(0).is_ascii_digit() {
            length += 1;
            if length > MAX_VERSION_DIGITS {
                return Err(self.error_in(start, "found extremely long version number"));
            }
            value = value * 10 + (self.reader.peek(0) - b'0');
            self.reader.skip();
            self.reader.cache(1)?;
        }
        if length == 0 {
            return Err(self.error_in(start, "did not find expected version number"));
        }
        Ok(value)
    }

    fn scan_tag_directive(&mut self, start: YamlMark) -> Result<YamlTokenKind, Error> {
        self.reader.skip_blanks()?;
        let handle = self.scan_tag_handle(start, true)?;
        self.reader.cache(1)?;
        if !self.reader.is_blank(0) {
            return Err(self.error_in(start, "did not find expected whitespace"));
        }
        self.reader.skip_blanks()?;
        let prefix = self.scan_tag_uri(start, Vec::new(), false)?;
        self.reader.cache(1)?;
        if !self.reader.is_blankz(0) {
            return Err(self.error_in(start, "did not find expected whitespace or line break"));
        }
        Ok(YamlTokenKind::TagDirective { handle: text(handle), prefix: text(prefix) })
    }
}
