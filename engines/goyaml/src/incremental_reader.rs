//! Reads a document piece by piece, so that a large document is never in memory as a whole.
//!
//! Here: entering maps and lists, and reading or skipping their values. Elsewhere: whole documents
//! ([`crate::to_json_for`]), and decoding the pieces (`decode`).

use serde_json::Value;

use crate::error::Error;
use crate::event::{YamlEvent, YamlEventKind};
use crate::limits::{YamlBudget, YamlLimits};
use crate::parser::YamlParser;
use crate::token::TokenScalarStyle;
use crate::{DecodeTarget, YamlDialect, decode, json, node};

/// Walks through the first document of a text, from its beginning to its end.
///
/// After entering a map, the caller calls [`IncrementalYamlReader::key`] until there is no key, and reads the value after
/// each key. After entering a list, it does the same with [`IncrementalYamlReader::item`].
///
/// Differs(go-yaml v2): an alias may only name a node of the same piece, and merge keys only work within a piece.
#[derive(Debug)]
pub struct IncrementalYamlReader<'i> {
    parser: YamlParser<'i>,
    limits: YamlLimits,
    next: YamlEvent,
}

impl<'i> IncrementalYamlReader<'i> {
    /// Begins before the document. `None` if the text has no document.
    ///
    /// [`YamlLimits::bytes`] limits the whole text. All other limits hold for each piece that is read.
    ///
    /// # Errors
    /// The text is too long, or its beginning cannot be read.
    pub fn new(input: &'i [u8], limits: YamlLimits) -> Result<Option<Self>, Error> {
        YamlBudget::new(input, &limits)?;
        let mut parser = YamlParser::new(input, 0, YamlDialect::V2);
        parser.next()?;
        if parser.next()?.kind == YamlEventKind::StreamEnd {
            return Ok(None);
        }
        let next = parser.next()?;
        Ok(Some(Self { parser, limits, next }))
    }

    /// Enters the next map. If there is null instead, the null is skipped and the result is `false`.
    ///
    /// # Errors
    /// The next value is neither a map nor null, or the text cannot be read.
    pub fn map(&mut self) -> Result<bool, Error> {
        self.enter(|kind| matches!(kind, YamlEventKind::MappingStart { .. }), "map")
    }

    /// Enters the next list. If there is null instead, the null is skipped and the result is `false`.
    ///
    /// # Errors
    /// The next value is neither a list nor null, or the text cannot be read.
    pub fn list(&mut self) -> Result<bool, Error> {
        self.enter(|kind| matches!(kind, YamlEventKind::SequenceStart { .. }), "list")
    }

    /// The next key of the entered map. `None` leaves the map.
    ///
    /// # Errors
    /// The key is not a text, or the text cannot be read.
    pub fn key(&mut self) -> Result<Option<String>, Error> {
        let event = self.advance()?;
        match event.kind {
            YamlEventKind::MappingEnd => Ok(None),
            YamlEventKind::Scalar { text, style: TokenScalarStyle::Plain, .. } if text == "<<" => {
                Err(Error::node("a merge key cannot be read here", event.start))
            }
            YamlEventKind::Scalar { text, .. } => Ok(Some(text)),
            _ => Err(Error::node("a key is no text", event.start)),
        }
    }

    /// Whether the entered list has another item. `false` leaves the list.
    ///
    /// # Errors
    /// The text cannot be read.
    pub fn item(&mut self) -> Result<bool, Error> {
        let is_end = self.next.kind == YamlEventKind::SequenceEnd;
        if is_end {
            self.advance()?;
        }
        Ok(!is_end)
    }

    /// Reads the next value as [`crate::to_json_strict`] does, for a Go type of a known shape.
    ///
    /// # Errors
    /// The value cannot be read, or exceeds the limits.
    pub fn value(&mut self, target: &DecodeTarget) -> Result<Value, Error> {
        let mut budget = YamlBudget::new(&[], &self.limits)?;
        let nodes = node::next_node(|| self.advance(), &mut budget)?;
        let (values, root) = decode::decode(&nodes, true, &mut budget)?;
        json::to_json_for(&values, root, target).map_err(|error| error.or_at(nodes.root().start))
    }

    /// Skips the next value.
    ///
    /// # Errors
    /// The text cannot be read.
    pub fn skip(&mut self) -> Result<(), Error> {
        let mut depth = 0_usize;
        loop {
            match self.advance()?.kind {
                YamlEventKind::SequenceStart { .. } | YamlEventKind::MappingStart { .. } => {
                    depth += 1;
                }
                YamlEventKind::SequenceEnd | YamlEventKind::MappingEnd => {
                    depth = depth.saturating_sub(1);
                }
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn enter(&mut self, is_wanted: fn(&YamlEventKind) -> bool, what: &str) -> Result<bool, Error> {
        let event = self.advance()?;
        match &event.kind {
            kind if is_wanted(kind) => Ok(true),
            YamlEventKind::Scalar { text, style: TokenScalarStyle::Plain, .. }
                if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL") =>
            {
                Ok(false)
            }
            _ => {
                Err(Error::node(format_args!("there is no {what} where one belongs"), event.start))
            }
        }
    }

    fn advance(&mut self) -> Result<YamlEvent, Error> {
        // After the end of the stream, the parser repeats the end.
        let next = self.parser.next()?;
        Ok(std::mem::replace(&mut self.next, next))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ITEM: DecodeTarget = DecodeTarget::Struct(&[("version", DecodeTarget::Text)]);

    fn read(text: &str) -> Result<Vec<(String, Value)>, Error> {
        let mut found = Vec::new();
        let Some(mut walk) = IncrementalYamlReader::new(text.as_bytes(), YamlLimits::default())?
        else {
            return Ok(found);
        };
        if !walk.map()? {
            return Ok(found);
        }
        while let Some(key) = walk.key()? {
            if key == "skipped" {
                walk.skip()?;
            } else if walk.list()? {
                while walk.item()? {
                    found.push((key.clone(), walk.value(&ITEM)?));
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn pieces_are_read_as_whole_documents_are() {
        let text = "skipped: {a: [1, {b: 2}]}\n# c\none:\n- version: 1.10\n  other: &a [1]\n  again: *a\n- null\n\
                    two: ~\nthree: []\nskipped2: []\nfour: [{version: x}]\n";
        assert_eq!(
            read(text).unwrap(),
            [
                ("one".to_owned(), json!({"version": "1.1", "other": [1], "again": [1]})),
                ("one".to_owned(), Value::Null),
                ("four".to_owned(), json!({"version": "x"})),
            ]
        );
        assert_eq!(read("").unwrap(), []);
        assert_eq!(read("null").unwrap(), []);
    }

    #[test]
    fn what_is_no_map_or_list_and_what_is_cut_off_is_refused() {
        for text in ["[]", "a: {}", "a: x", "? [1]\n: []", "<<: []", "a: [", "a: [{version: x}"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read("a: [{version: 1, version: 2}]").is_err(), "a key is set twice");
        assert!(read("a: &x [{b: 1}]\nb: [*x]").is_err(), "an alias of another piece");
    }

    #[test]
    fn a_piece_has_its_own_limits_and_depth_costs_no_stack() {
        let limits = YamlLimits { nodes: 10, ..YamlLimits::default() };
        let mut walk = IncrementalYamlReader::new(b"[[1, 2, 3], [1, 2, 3], [1, 2, 3]]", limits)
            .unwrap()
            .unwrap();
        assert!(walk.list().unwrap());
        for _ in 0..3 {
            assert!(walk.item().unwrap());
            walk.value(&DecodeTarget::Any).unwrap();
        }
        assert!(!walk.item().unwrap());
        let deep = format!("skipped: {}{}", "[".repeat(9_000), "]".repeat(9_000));
        assert_eq!(read(&deep).unwrap(), []);
        let deeper = format!("a: [{}", "[".repeat(200_000));
        assert!(read(&deeper).is_err());
    }
}
