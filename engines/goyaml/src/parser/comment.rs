//! Which event takes which comment.
//! Where a comment ends and which token it belongs to has been decided by the scanner.

use super::YamlParser;
use crate::error::Error;
use crate::event::{YamlEvent, YamlEventKind};
use crate::reader::YamlMark;
use crate::scanner::CommentPosition;
use crate::token::YamlTokenKind;

impl YamlParser<'_> {
    /// Takes over the comments of the next token.
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

    /// An event that takes all comments there are.
    pub(super) fn commented(&mut self, kind: YamlEventKind, start: YamlMark) -> YamlEvent {
        self.stem.clear();
        YamlEvent { kind, start, comments: std::mem::take(&mut self.comments) }
    }

    /// Takes what is above the last empty line in front of the first node: the document's comment.
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

    /// Passes a `-` and returns where it ends.
    ///
    /// The comment above it is that of the collection behind it, if there is one in its line; what
    /// is further in belongs to the first node of that.
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
