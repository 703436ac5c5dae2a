//! The comments that version 3 keeps: the token to which each belongs, and whether it is above, after or below that
//! token. Assigning comments to events is in `parser/comment.rs`.
//!
//! The scanner finds comments while it searches for the next token. A comment at the end of a line belongs to the token
//! before it. A block of comment lines is the *head* of the node after it. It is the *foot* of the node before it in
//! one of three cases: an empty line follows it and none precedes it, its indentation is smaller, or a flow collection
//! ends.

use std::collections::BTreeMap;

use super::{YamlScanner, text};
use crate::error::Error;
use crate::reader::YamlMark;
use crate::token::YamlTokenKind;

/// How far Go looks for a comment, in characters.
const MAX_COMMENT_DISTANCE_CHARACTERS: usize = 512;

/// The position of a comment relative to its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommentPosition {
    Head,
    Line,
    Foot,
}

/// A comment that waits for its token.
#[derive(Debug)]
pub(crate) struct ScannedComment {
    pub(crate) place: CommentPosition,
    /// The lines of the comment with their `#`.
    pub(crate) text: String,
    /// The comment belongs to the first token that begins at this position or later.
    token: YamlMark,
    /// Where the search that found it began; unknown for one behind a token, as is `end`.
    scan: YamlMark,
    /// Its `#`. The columns of a block of lines count from 1.
    start: YamlMark,
    end: YamlMark,
}

/// A block of comment lines that is being read.
struct CommentLines {
    scan: YamlMark,
    token: YamlMark,
    start: YamlMark,
    text: Vec<u8>,
    /// Where the look ahead has come to.
    line: usize,
    column: usize,
    /// The line in which a foot of the preceding content would begin.
    foot_line: Option<usize>,
    after_value: bool,
    /// Whether no empty line was found since the preceding content.
    is_first: bool,
    /// Whether the last line was empty.
    is_after_empty: bool,
}

impl CommentLines {
    /// Whether the block of comments is indented less than the block collection around it.
    fn is_dedented(&self, indent: usize) -> bool {
        self.start.column <= indent
    }

    fn is_below_content(&self) -> bool {
        self.foot_line == Some(self.start.line) && !self.after_value
    }
}

impl YamlScanner<'_> {
    /// Takes the first comment. `None` if there is none, or if it does not belong to the next token.
    ///
    /// The caller must have read that token.
    pub(crate) fn comment_of_next_token(&mut self) -> Option<ScannedComment> {
        let token = self.tokens.front()?;
        let comment = self.comments.front()?;
        // What ends has no head: that is for the token behind it.
        let waits = comment.place == CommentPosition::Head && token.kind == YamlTokenKind::BlockEnd;
        if token.start.index < comment.token.index || waits {
            return None;
        }
        self.comments.pop_front()
    }

    /// Takes the error that was found where Go continued. `None` if there is none.
    pub(crate) fn take_deferred(&mut self) -> Option<Error> {
        self.deferred.take()
    }

    /// Records an error. It is reported with the next event, unless another error comes first.
    pub(crate) fn defer(&mut self, error: Error) {
        self.deferred = Some(error);
    }

    /// Reads a token that may have a comment after it on the same line.
    pub(super) fn fetch_commented_token(&mut self) -> Result<(), Error> {
        let follows = match self.reader.peek(0) {
            b':' => self.flow_level == 0,
            b',' => self.flow_level > 0,
            _ => false,
        };
        let last = self.tokens.back().filter(|_| follows);
        let owner = last.map_or(self.reader.mark, |token| token.start);
        self.fetch_content_token()?;
        // Behind a `-` it is a head of what follows.
        if self.tokens.back().is_some_and(|token| token.kind == YamlTokenKind::BlockEntry) {
            return Ok(());
        }
        self.scan_line_comment(owner)
    }

    /// Reads a comment in the rest of the line, for the token at `token`.
    pub(super) fn scan_line_comment(&mut self, token: YamlMark) -> Result<(), Error> {
        if self.reader.newlines > 0 {
            return Ok(());
        }
        let mut ahead = 0;
        while ahead < MAX_COMMENT_DISTANCE_CHARACTERS
            && self.can_look(ahead + 1)
            && self.reader.is_blank(ahead)
        {
            ahead += 1;
        }
        if ahead == MAX_COMMENT_DISTANCE_CHARACTERS
            || self.deferred.is_some()
            || self.reader.peek(ahead) != b'#'
        {
            return Ok(());
        }
        let mut line = Vec::new();
        let start = self.read_comment_line(ahead, &mut line)?;
        let scan = YamlMark::default();
        let end = YamlMark::default();
        let place = CommentPosition::Line;
        self.comments.push_back(ScannedComment {
            place,
            text: text(line),
            token,
            scan,
            start,
            end,
        });
        Ok(())
    }

    /// Passes comments up to the next token, or nothing; `scan` is where the search for it began.
    pub(super) fn collect_comments(&mut self, scan: YamlMark) -> Result<(), Error> {
        self.turn_line_comment_into_head();
        if self.reader.peek(0) == b'#' { self.scan_comments(scan) } else { Ok(()) }
    }

    /// Turns a comment after the first `-` of a list into a head of the next node, if that begins on another line.
    fn turn_line_comment_into_head(&mut self) {
        let last = self.tokens.len();
        let is_first_entry = last > 1
            && self.tokens[last - 1].kind == YamlTokenKind::BlockEntry
            && self.tokens[last - 2].kind == YamlTokenKind::BlockSequenceStart;
        if !is_first_entry || self.reader.is_break(0) {
            return;
        }
        let mark = self.reader.mark;
        if let Some(comment) = self.comments.back_mut()
            && comment.place == CommentPosition::Line
        {
            comment.place = CommentPosition::Head;
            if comment.start.line + 1 == mark.line {
                comment.token = mark;
            }
        }
    }

    fn scan_comments(&mut self, scan: YamlMark) -> Result<(), Error> {
        let mut lines = self.new_lines(scan);
        let indent = usize::try_from(self.indent).unwrap_or(0);
        let mut ahead = 0;
        while ahead < MAX_COMMENT_DISTANCE_CHARACTERS && self.can_look(ahead + 1) {
            lines.column += 1;
            if self.reader.is_blank(ahead) {
                ahead += 1;
                continue;
            }
            let next = self.reader.peek(ahead);
            let closes = self.flow_level > 0 && matches!(next, b']' | b'}');
            if closes || self.reader.is_breakz(ahead) {
                self.end_comment_line(&mut lines, ahead, indent, closes);
                if !self.reader.is_break(ahead) {
                    break;
                }
                ahead += 1;
                continue;
            }
            let is_further_out = lines.column <= indent && lines.column != lines.start.column;
            if !lines.text.is_empty() && is_further_out {
                self.push_foot(&mut lines, ahead);
            }
            if next != b'#' {
                break;
            }
            if lines.text.is_empty() {
                lines.start = self.looked_at(&lines, ahead);
            } else {
                lines.text.push(b'\n');
            }
            lines.is_after_empty = false;
            self.read_comment_line(ahead, &mut lines.text)?;
            // Parity(go-yaml v3): one byte is taken for the line break, so the second half of
            // CR LF counts as an empty line, and the line number lags one behind.
            ahead = 1;
            lines.column = 0;
            lines.line = self.reader.mark.line;
        }
        if !lines.text.is_empty() {
            let end = self.looked_at(&lines, ahead.saturating_sub(1));
            let CommentLines { scan, start, text: head, .. } = lines;
            let place = CommentPosition::Head;
            let token = start;
            let text = text(head);
            self.comments.push_back(ScannedComment { place, text, token, scan, start, end });
        }
        Ok(())
    }

    fn new_lines(&self, scan: YamlMark) -> CommentLines {
        let mark = self.reader.mark;
        let mut behind = self.tokens.iter().rev();
        let mut token = behind.next();
        if token.is_some_and(|token| token.kind == YamlTokenKind::FlowEntry) {
            token = behind.next().or(token);
        }
        let content_in_line = self.reader.newlines == 0 && mark.column > 1;
        let foot_line = mark.line + 1 + usize::from(content_in_line);
        CommentLines {
            scan,
            token: token.map_or_else(YamlMark::default, |token| token.start),
            start: YamlMark::default(),
            text: Vec::new(),
            line: mark.line,
            column: mark.column,
            foot_line: foot_line.checked_sub(self.reader.newlines).filter(|_| scan.line > 0),
            after_value: token.is_some_and(|token| token.kind == YamlTokenKind::Value),
            is_first: self.reader.newlines <= 1,
            is_after_empty: false,
        }
    }

    /// Goes on behind a line that ends `ahead` of here without a comment, or with the end of a
    /// flow collection.
    fn end_comment_line(
        &mut self,
        lines: &mut CommentLines,
        ahead: usize,
        indent: usize,
        closes: bool,
    ) {
        if closes || !lines.is_after_empty {
            let is_dedented = lines.is_dedented(indent);
            if closes || lines.is_first && (lines.is_below_content() || is_dedented) {
                if !lines.text.is_empty() {
                    if is_dedented {
                        lines.token = lines.start;
                    }
                    self.push_foot(lines, ahead);
                }
            } else if !lines.text.is_empty() && self.reader.peek(ahead) != 0 {
                lines.text.push(b'\n');
            }
        }
        if self.reader.is_break(ahead) {
            lines.is_first = false;
            lines.is_after_empty = true;
            lines.column = 0;
            lines.line += 1;
        }
    }

    /// Assigns the lines so far to the node before them.
    fn push_foot(&mut self, lines: &mut CommentLines, ahead: usize) {
        let end = self.looked_at(lines, ahead);
        let text = text(std::mem::take(&mut lines.text));
        let place = CommentPosition::Foot;
        let token = lines.token;
        let scan = lines.scan;
        let start = lines.start;
        self.comments.push_back(ScannedComment { place, text, token, scan, start, end });
        lines.scan = end;
        lines.token = end;
    }

    /// The position at this distance.
    fn looked_at(&self, lines: &CommentLines, ahead: usize) -> YamlMark {
        YamlMark { index: self.reader.mark.index + ahead, line: lines.line, column: lines.column }
    }

    /// Skips to the `#` at this distance, and reads its line.
    fn read_comment_line(&mut self, ahead: usize, into: &mut Vec<u8>) -> Result<YamlMark, Error> {
        let seen = self.reader.mark.index + ahead;
        while self.reader.mark.index < seen {
            self.reader.cache(2)?;
            if self.reader.is_break(0) {
                self.reader.skip_line();
            } else {
                self.reader.skip();
            }
        }
        let start = self.reader.mark;
        self.reader.cache(1)?;
        while !self.reader.is_breakz(0) {
            self.reader.read(into);
            self.reader.read_run(into, |byte| byte != b'\n' && byte != b'\r');
            self.reader.cache(1)?;
        }
        Ok(start)
    }

    /// Decodes as far as the lookahead needs it.
    fn can_look(&mut self, length: usize) -> bool {
        match self.reader.cache(length) {
            Ok(()) => true,
            Err(error) => {
                self.deferred = Some(error);
                false
            }
        }
    }

    /// Where the blocks end that are closed in front of comments, by the column of the block: those
    /// that have its indentation are behind its end. `stop` is where the search for them began.
    pub(super) fn ends_before_comments(&self, mut stop: usize) -> BTreeMap<i64, YamlMark> {
        let mut ends = BTreeMap::new();
        for comment in self.comments.iter().rev() {
            if comment.end.index < stop {
                break;
            }
            ends.insert(comment.start.column as i64 - 1, comment.start);
            // No content stands between comments that touch.
            stop = comment.scan.index;
        }
        ends
    }
}
