//! Assigns comments to events. The scanner has decided where a comment ends and to which token it belongs.

use super::YamlParser;
use crate::error::Error;
use crate::event::{YamlEvent, YamlEventKind};
use crate::reader::YamlMark;
use crate::scanner::CommentPosition;
use crate::token::YamlTokenKind;

impl YamlParser<'_> {
    /// Takes the comments of the next token.
    pub(super) fn collect_comments(&mut self) {
        while let Some(comment) = self.scanner.comment_of_next_token() {
            let comments = match comment.place {
                CommentPosition::Head => &mut self.comments.head,
                CommentPosition::Line => &mut self.comments.line,
                CommentPosition::Foot => &mut self.comments.foot,
            };
            if !comments.is_empty() {
                comments.push('\n');
            }
            comments.push_str(&comment.text);
        }
    }

    /// An event that gets all collected comments.
    pub(super) fn commented(&mut self, kind: YamlEventKind, start: YamlMark) -> YamlEvent {
        self.stem.clear();
        YamlEvent { kind, start, comments: std::mem::take(&mut self.comments) }
    }

    /// Takes the comment of the document. It is the part above the last empty line before the first node.
    pub(super) fn split_document_head(&mut self) -> String {
        let head = &mut self.comments.head;
        let (end, rest) = match (head.strip_suffix('\n'), head.rfind("\n\n")) {
            (Some(above), _) if !above.is_empty() => (above.len(), head.len()),
            (_, Some(at)) => (at, at + 2),
            (_, None) => return String::new(),
        };
        let below = head.split_off(rest);
        let mut above = std::mem::replace(head, below);
        above.truncate(end);
        above
    }

    /// Skips a `-` and returns where it ends.
    ///
    /// The comment above it belongs to the collection after it, if there is one on the same line. A comment that is
    /// indented more belongs to the first node of that collection.
    pub(super) fn take_entry(&mut self) -> Result<YamlMark, Error> {
        let end = self.take()?.end;
        let length = self.comments.head.len();
        if length == 0 {
            return Ok(end);
        }
        let is_start = |kind: &YamlTokenKind| {
            matches!(kind, YamlTokenKind::BlockSequenceStart | YamlTokenKind::BlockMappingStart)
        };
        match self.next_is(is_start) {
            Ok(false) => {}
            Ok(true) => {
                let mut below = self.comments.head.split_off(length);
                if !below.is_empty() {
                    // The line feed between them.
                    below.remove(0);
                }
                self.stem = std::mem::replace(&mut self.comments.head, below);
            }
            // Parity(go-yaml v3): here it does not notice the error before it has looked again.
            Err(error) => self.scanner.defer(error),
        }
        Ok(end)
    }
}
