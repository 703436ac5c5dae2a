//! Literal (`|`) and folded (`>`) scalars.

use super::{YamlScanner, text};
use crate::YamlDialect;
use crate::error::Error;
use crate::reader::YamlMark;
use crate::token::{TokenScalarStyle, YamlToken, YamlTokenKind};

/// How the line breaks at the end are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockChomping {
    Strip,
    Clip,
    Keep,
}

impl YamlScanner<'_> {
    pub(super) fn scan_block_scalar(&mut self, literal: bool) -> Result<YamlToken, Error> {
        let start = self.reader.mark;
        self.reader.skip();
        let (chomping, increment) = self.scan_block_header(start)?;
        self.scan_rest_of_block_header(start)?;
        let mut indent = increment.map_or(0, |by| self.indent.max(0) + by);

        let mut content = Vec::new();
        let mut leading_break = Vec::new();
        let mut breaks = Vec::new();
        let mut end = self.scan_block_breaks(start, &mut indent, &mut breaks)?;
        self.reader.cache(1)?;
        let mut leading_blank = false;
        while self.column() == indent && self.reader.peek(0) != 0 {
            let blank = self.reader.is_blank(0);
            if !literal && !leading_blank && !blank && leading_break.starts_with(b"\n") {
                if breaks.is_empty() {
                    content.push(b' ');
                }
            } else {
                content.extend_from_slice(&leading_break);
            }
            leading_break.clear();
            content.append(&mut breaks);
            leading_blank = blank;
            self.scan_line(&mut content)?;
            self.reader.cache(2)?;
            self.reader.read_line(&mut leading_break);
            end = self.scan_block_breaks(start, &mut indent, &mut breaks)?;
        }

        if chomping != BlockChomping::Strip {
            content.append(&mut leading_break);
        }
        if chomping == BlockChomping::Keep {
            content.append(&mut breaks);
        }
        let style = if literal { TokenScalarStyle::Literal } else { TokenScalarStyle::Folded };
        Ok(YamlToken { kind: YamlTokenKind::Scalar { text: text(content), style }, start, end })
    }

    /// Skips the rest of the first line. Version 3 keeps a comment there.
    fn scan_rest_of_block_header(&mut self, start: YamlMark) -> Result<(), Error> {
        if self.dialect == YamlDialect::V3 {
            self.reader.skip_blanks()?;
            if self.reader.peek(0) == b'#' {
                self.scan_line_comment(start)?;
            }
        }
        self.scan_rest_of_line(start)
    }

    /// Reads up to the line break or the end.
    fn scan_line(&mut self, into: &mut Vec<u8>) -> Result<(), Error> {
        while !self.reader.is_breakz(0) {
            self.reader.read_run(into, |byte| byte != b'\n' && byte != b'\r');
            if !self.reader.is_breakz(0) {
                self.reader.read(into);
            }
            self.reader.cache(1)?;
        }
        Ok(())
    }

    /// Reads the indicators of chomping and indentation, in either order.
    fn scan_block_header(
        &mut self,
        start: YamlMark,
    ) -> Result<(BlockChomping, Option<i64>), Error> {
        self.reader.cache(1)?;
        if let Some(chomping) = self.scan_chomping() {
            self.reader.cache(1)?;
            return Ok((chomping, self.scan_indentation(start)?));
        }
        let increment = self.scan_indentation(start)?;
        if increment.is_none() {
            return Ok((BlockChomping::Clip, None));
        }
        self.reader.cache(1)?;
        Ok((self.scan_chomping().unwrap_or(BlockChomping::Clip), increment))
    }

    fn scan_chomping(&mut self) -> Option<BlockChomping> {
        let chomping = match self.reader.peek(0) {
            b'+' => BlockChomping::Keep,
            b'-' => BlockChomping::Strip,
            _ => return None,
        };
        self.reader.skip();
        Some(chomping)
    }

    fn scan_indentation(&mut self, start: YamlMark) -> Result<Option<i64>, Error> {
        match self.reader.peek(0) {
            b'0' => Err(self.error_in(start, "found an indentation indicator equal to 0")),
            digit @ b'1'..=b'9' => {
                self.reader.skip();
                Ok(Some(i64::from(digit - b'0')))
            }
            _ => Ok(None),
        }
    }

    /// Skips indentation and empty lines. Returns where the last of them ended.
    ///
    /// If `indent` is 0, it is not known yet, and becomes the indentation of the deepest line.
    fn scan_block_breaks(
        &mut self,
        start: YamlMark,
        indent: &mut i64,
        breaks: &mut Vec<u8>,
    ) -> Result<YamlMark, Error> {
        let mut end = self.reader.mark;
        let mut deepest = 0;
        loop {
            self.reader.cache(1)?;
            while (*indent == 0 || self.column() < *indent) && self.reader.peek(0) == b' ' {
                self.reader.skip();
                self.reader.cache(1)?;
            }
            deepest = deepest.max(self.column());
            if (*indent == 0 || self.column() < *indent) && self.reader.peek(0) == b'\t' {
                let problem = "found a tab character where an indentation space is expected";
                return Err(self.error_in(start, problem));
            }
            if !self.reader.is_break(0) {
                break;
            }
            self.reader.cache(2)?;
            self.reader.read_line(breaks);
            end = self.reader.mark;
        }
        if *indent == 0 {
            *indent = deepest.max(self.indent + 1).max(1);
        }
        Ok(end)
    }
}
