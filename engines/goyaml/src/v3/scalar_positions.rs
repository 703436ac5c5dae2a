//! The positions of scalars in a text, so that one can be replaced while all other bytes stay the same.
//!
//! Here: the positions. Elsewhere: the node of a scalar (`compose`), and the replacement (the caller).

use std::ops::Range;
use std::str::CharIndices;

use crate::YamlDialect;
use crate::reader::YamlMark;
use crate::scanner::YamlScanner;
use crate::token::YamlTokenKind;

/// The position of a scalar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalarPosition {
    /// The line of its first character, counted from 1 as in [`super::YamlNode::line`].
    pub line: u32,
    /// The column of its first character, counted from 1 as in [`super::YamlNode::column`].
    pub column: u32,
    /// The bytes of the scalar, including quotes. A block includes its indicator and the line breaks after its last
    /// line.
    pub bytes: Range<usize>,
}

/// The positions of the scalars of a text in order. If the text cannot be read to its end, the list ends there.
///
/// A node with an anchor or a tag begins before its scalar. A scalar that is missing in the text has no position.
pub fn scalar_places(text: &str) -> Vec<ScalarPosition> {
    let mut scanner = YamlScanner::new(text.as_bytes(), 0, YamlDialect::V3);
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut offsets =
        ByteOffsets { rest: body.char_indices(), passed: 0, skipped: text.len() - body.len() };
    let mut places = Vec::new();
    while scanner.peek().is_ok_and(|token| token.kind != YamlTokenKind::StreamEnd) {
        // Nothing takes the comments here, and all would be kept.
        while scanner.comment_of_next_token().is_some() {}
        let Ok(token) = scanner.next() else { break };
        if matches!(token.kind, YamlTokenKind::Scalar { .. }) {
            let start = offsets.of(token.start);
            let bytes = start..offsets.of(token.end);
            let line = super::compose::place(token.start.line);
            let column = super::compose::place(token.start.column);
            places.push(ScalarPosition { line, column, bytes });
        }
    }
    places
}

/// Offsets in bytes of marks, which count characters and come in order.
struct ByteOffsets<'t> {
    rest: CharIndices<'t>,
    /// Characters before `rest`.
    passed: usize,
    /// Bytes of a byte order mark, which no mark counts.
    skipped: usize,
}

impl ByteOffsets<'_> {
    fn of(&mut self, mark: YamlMark) -> usize {
        while self.passed < mark.index && self.rest.next().is_some() {
            self.passed += 1;
        }
        self.skipped + self.rest.offset()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::YamlLimits;
    use crate::v3::{YamlNode, YamlNodeKind, parse};

    /// The texts of all scalars.
    fn written(text: &str) -> Vec<&str> {
        scalar_places(text).into_iter().map(|place| &text[place.bytes]).collect()
    }

    #[test]
    fn each_scalar_is_found_with_its_quotes_and_lines() {
        let text = "\u{feff}é: 'it''s' # c\nb: &x !!str \"é\\\"\"\nc: |2-  # d\n    l\n\n  m\n\nd: [e f, {g: h}]\n";
        let wanted = [
            "é",
            "'it''s'",
            "b",
            "\"é\\\"\"",
            "c",
            "|2-  # d\n    l\n\n  m\n\n",
            "d",
            "e f",
            "g",
            "h",
        ];
        assert_eq!(written(text), wanted);
        assert_eq!(written("a: one\n  two  \n\n# c\nb:\n"), ["a", "one\n  two", "b"]);
        assert_eq!(written("a: |\n  l"), ["a", "|\n  l"]);
        assert_eq!(written("a: >-\n  l\n  m\n# c\n"), ["a", ">-\n  l\n  m\n"]);
        assert_eq!(written("a: b\n...\n---\n- c\n"), ["a", "b", "c"]);
        assert_eq!(written("a: [b\n"), ["a", "b"]);
    }

    proptest! {
        #[test]
        fn every_scalar_that_is_read_has_a_place(text in "[ab:\\-#'\"|>é \n\\[\\],{}&!?*]{0,40}") {
            if let Ok(documents) = parse(text.as_bytes(), &YamlLimits::default()) {
                let places = scalar_places(&text);
                let nodes = documents.iter().flat_map(|document| document.walk());
                let is_written =
                    |node: &&YamlNode| !node.value.is_empty() || node.style.is_quoted();
                let scalars = nodes
                    .map(|(_, node)| node)
                    .filter(|node| node.kind == YamlNodeKind::Scalar)
                    .filter(is_written);
                for node in scalars {
                    let at = places
                        .partition_point(|it| (it.line, it.column) < (node.line, node.column));
                    prop_assert!(places.get(at).is_some_and(|it| text.get(it.bytes.clone()).is_some()));
                }
            }
        }
    }
}
