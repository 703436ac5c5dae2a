//! Reads simply written documents line by line, directly into values.
//!
//! Nearly all YAML of users and of Go consists of keys, lists, scalars and block scalars, one on each line. Only such
//! text is recognized here, and only if every YAML reader gives it the same valid meaning. It needs no tokens, events
//! or nodes. The full reader handles any other text, so this reader has no errors of its own.
//!
//! Here: the lines, and the collections to which they belong. Below: scalars (`simple_document_fast_path/scalar.rs`), and
//! lists and maps within a line (`simple_document_fast_path/flow.rs`). Elsewhere: the full reader (the crate's root), and
//! the meaning of a scalar (`scalar_resolve`).

mod flow;
mod scalar;
#[cfg(test)]
mod tests;

use serde_json::{Map, Number, Value};

use crate::json;
use crate::limits::YamlLimits;
use scalar::OpenBlockScalar;

/// The greatest depth that is read here. The full reader, which checks the limits, reads deeper documents.
const MAX_DEPTH: usize = 100;

/// How many values are read here. The full reader counts larger documents.
pub(crate) const MAX_VALUES: usize = 1_000_000;

/// The length of the longest key, in bytes. go-yaml does not accept much longer ones.
const MAX_KEY: usize = 256;

/// Builds the values of another library, so that no intermediate value is needed.
pub trait ValueBuilder {
    /// A value.
    type Value;
    /// A key of a map.
    type Key;

    /// Null.
    fn null() -> Self::Value;
    /// A truth.
    fn bool(truth: bool) -> Self::Value;
    /// An integer.
    fn int(int: i64) -> Self::Value;
    /// An integer that exceeds `i64`.
    fn uint(uint: u64) -> Self::Value;
    /// A finite float as JSON has it. A float without a fraction may be an integer.
    fn number(number: Number) -> Self::Value;
    /// A text.
    fn text(text: &str) -> Self::Value;
    /// A list.
    fn list(items: Vec<Self::Value>) -> Self::Value;
    /// A map from entries in the order of the text. If a key occurs several times, its last entry counts.
    fn map(entries: Vec<(Self::Key, Self::Value)>) -> Self::Value;
    /// A key.
    fn key(key: &str) -> Self::Key;
    /// A value that was read as JSON.
    fn json(json: Value) -> Self::Value;
}

/// Builds JSON values.
pub(crate) struct JsonBuilder;

impl ValueBuilder for JsonBuilder {
    type Value = Value;
    type Key = String;

    fn null() -> Value {
        Value::Null
    }

    fn bool(truth: bool) -> Value {
        Value::Bool(truth)
    }

    fn int(int: i64) -> Value {
        int.into()
    }

    fn uint(uint: u64) -> Value {
        uint.into()
    }

    fn number(number: Number) -> Value {
        Value::Number(number)
    }

    fn text(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    fn list(items: Vec<Value>) -> Value {
        Value::Array(items)
    }

    fn map(entries: Vec<(String, Value)>) -> Value {
        Value::Object(Map::from_iter(entries))
    }

    fn key(key: &str) -> String {
        key.to_owned()
    }

    fn json(json: Value) -> Value {
        json
    }
}

/// Discards the values that are not needed.
struct DiscardingBuilder;

impl ValueBuilder for DiscardingBuilder {
    type Value = ();
    type Key = ();

    fn null() {}

    fn bool(_: bool) {}

    fn int(_: i64) {}

    fn uint(_: u64) {}

    fn number(_: Number) {}

    fn text(_: &str) {}

    fn list(_: Vec<()>) {}

    fn map(_: Vec<((), ())>) {}

    fn key(_: &str) {}

    fn json(_: Value) {}
}

/// Reads a text that is one simple document. The result equals that of the full reader, except for entries that are not
/// needed. `None` if the text is not simple.
///
/// `wants` gets a key, and in how many lists and maps the key is, counted from one. An entry that is not needed has to
/// be simple, too. It is left out unless it is in a map within a line.
pub(crate) fn read<M: ValueBuilder>(
    input: &[u8],
    wants: impl Fn(usize, &str) -> bool,
) -> Option<M::Value> {
    if input.len() > YamlLimits::default().bytes {
        return None;
    }
    let text = std::str::from_utf8(input).ok().filter(|text| has_plain_characters(text))?;
    let mut reader = SimpleYamlFastPathReader::<M, _> {
        open: Vec::new(),
        awaits: true,
        block: None,
        left: MAX_VALUES,
        is_begun: false,
        wants,
        skips_at: None,
    };
    let mut rest = text;
    while !rest.is_empty() {
        let (line, is_ended) = match memchr::memchr(b'\n', rest.as_bytes()) {
            Some(end) => (&rest[..end], true),
            None => (rest, false),
        };
        rest = &rest[line.len() + usize::from(is_ended)..];
        reader.line(line, is_ended)?;
    }
    reader.finish()
}

/// Whether there are only line feeds and characters that are not controls, line ends or byte order marks.
fn has_plain_characters(text: &str) -> bool {
    let is_plain = |byte: &u8| matches!(byte, b'\n' | b' '..=b'~');
    // Without an early end, the compiler compares many bytes at once.
    let is_ascii = |bytes: &[u8]| bytes.iter().fold(true, |all, byte| all & is_plain(byte));
    text.as_bytes().chunks(64).all(is_ascii)
        || text.chars().all(|character| match character {
            '\n' | ' '..='~' => true,
            '\u{2028}' | '\u{2029}' | '\u{feff}' => false,
            '\u{a0}'..='\u{fffd}' | '\u{10000}'.. => true,
            _ => false,
        })
}

/// An open collection, with the column in which its entries begin.
enum OpenYamlCollection<M: ValueBuilder> {
    Map { column: usize, key: Option<M::Key>, entries: Vec<(M::Key, M::Value)> },
    List { column: usize, items: Vec<M::Value> },
}

impl<M: ValueBuilder> OpenYamlCollection<M> {
    fn column(&self) -> usize {
        match self {
            Self::Map { column, .. } | Self::List { column, .. } => *column,
        }
    }

    fn is_list_at(&self, wanted: usize) -> bool {
        matches!(self, Self::List { column, .. } if *column == wanted)
    }

    fn take(&mut self, value: M::Value) {
        match self {
            Self::Map { key, entries, .. } => entries.extend(key.take().map(|key| (key, value))),
            Self::List { items, .. } => items.push(value),
        }
    }

    fn close(self) -> M::Value {
        match self {
            Self::Map { entries, .. } => M::map(entries),
            Self::List { items, .. } => M::list(items),
        }
    }
}

/// The state of reading. Each step returns `None` if the text is not simple.
struct SimpleYamlFastPathReader<M: ValueBuilder, W> {
    open: Vec<OpenYamlCollection<M>>,
    /// Whether the last key, the last dash, or the whole text still needs a value.
    awaits: bool,
    block: Option<OpenBlockScalar>,
    /// Whether the line that may begin a document, or any other line, was read.
    is_begun: bool,
    /// How many values may still be read.
    left: usize,
    /// The function that says whether an entry is needed.
    wants: W,
    /// While an entry that is not needed is read: how many collections are around it.
    skips_at: Option<usize>,
}

impl<M: ValueBuilder, W: Fn(usize, &str) -> bool> SimpleYamlFastPathReader<M, W> {
    fn line(&mut self, line: &str, is_ended: bool) -> Option<()> {
        let text = line.trim_start_matches(' ');
        let column = line.len() - text.len();
        if let Some(block) = &mut self.block {
            if block.line(line, column, is_ended)? {
                return Some(());
            }
            self.end_block()?;
        }
        if text.is_empty() || text.starts_with('#') {
            return Some(());
        }
        let is_marker = |marker| column == 0 && text.starts_with(marker);
        if is_marker("---") && !self.is_begun && text.trim_end_matches(' ') == "---" {
            self.is_begun = true;
            return Some(());
        }
        if is_marker("---") || is_marker("...") {
            return None;
        }
        self.is_begun = true;
        let mut text = text;
        let mut at = column;
        let mut list = None;
        while let Some(rest) = text.strip_prefix('-').filter(|rest| is_end(rest)) {
            self.item(at)?;
            list = Some(at);
            let rest = rest.trim_start_matches(' ');
            if rest.is_empty() || rest.starts_with('#') {
                return Some(());
            }
            at += text.len() - rest.len();
            text = rest;
        }
        if let Some((key, value)) = scalar::key(text) {
            self.key(at, &key)?;
            let value = value.trim_start_matches(' ');
            if value.is_empty() || value.starts_with('#') {
                return Some(());
            }
            return self.scalar(value, at);
        }
        let outer = match list {
            Some(list) => list,
            None => {
                self.close_deeper(column)?;
                self.open.last().filter(|open| self.awaits && open.column() < column)?.column()
            }
        };
        self.scalar(text, outer)
    }

    /// Gives a value to the key or list that waits for it.
    fn deliver(&mut self, value: M::Value) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        self.awaits = false;
        if self.skips_at.is_none() {
            self.open.last_mut()?.take(value);
        }
        Some(())
    }

    /// Closes the innermost collection and returns its value.
    fn pop(&mut self) -> Option<M::Value> {
        let mut open = self.open.pop()?;
        let is_skipped = self.skips_at.is_some();
        if std::mem::take(&mut self.awaits) && !is_skipped {
            open.take(M::null());
        }
        self.skips_at = self.skips_at.filter(|at| *at <= self.open.len());
        Some(open.close())
    }

    /// Closes the innermost collection, which is in another one.
    fn close(&mut self) -> Option<()> {
        let value = self.pop()?;
        if self.skips_at.is_none() {
            self.open.last_mut()?.take(value);
        }
        Some(())
    }

    /// Closes all collections that are deeper than a column.
    fn close_deeper(&mut self, column: usize) -> Option<()> {
        while self.open.last().is_some_and(|open| open.column() > column) {
            self.close()?;
        }
        Some(())
    }

    fn item(&mut self, column: usize) -> Option<()> {
        self.close_deeper(column)?;
        match self.open.last_mut()? {
            open if open.is_list_at(column) => {
                if self.awaits {
                    self.deliver(M::null())?;
                }
            }
            // Below a key, a list needs no indentation.
            _ if self.awaits => {
                self.begin(OpenYamlCollection::List { column, items: Vec::new() })?;
            }
            _ => return None,
        }
        self.awaits = true;
        Some(())
    }

    fn key(&mut self, column: usize, next: &str) -> Option<()> {
        self.close_deeper(column)?;
        if self.open.last().is_some_and(|open| open.is_list_at(column)) {
            self.close()?;
        }
        match self.open.last() {
            Some(OpenYamlCollection::Map { column: known, .. }) if *known == column => {
                if self.awaits {
                    self.deliver(M::null())?;
                }
                self.left = self.left.checked_sub(1)?;
            }
            Some(_) if self.awaits => self.begin_map(column)?,
            None if self.awaits && column == 0 => self.begin_map(0)?,
            _ => return None,
        }
        let depth = self.open.len();
        self.skips_at = self.skips_at.filter(|at| *at < depth);
        if self.skips_at.is_none() {
            if (self.wants)(depth, next) {
                if let Some(OpenYamlCollection::Map { key, .. }) = self.open.last_mut() {
                    *key = Some(M::key(next));
                }
            } else {
                self.skips_at = Some(depth);
            }
        }
        self.awaits = true;
        Some(())
    }

    fn begin_map(&mut self, column: usize) -> Option<()> {
        self.begin(OpenYamlCollection::Map { column, key: None, entries: Vec::new() })
    }

    fn begin(&mut self, open: OpenYamlCollection<M>) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        self.open.push(open);
        (self.open.len() <= MAX_DEPTH).then_some(())
    }

    /// Reads a scalar, or a collection within the line, into the collection of a column.
    fn scalar(&mut self, text: &str, outer: usize) -> Option<()> {
        let text = text.trim_end_matches(' ');
        let value = match text.as_bytes().first()? {
            b'|' | b'>' => {
                self.block = Some(OpenBlockScalar::begin(text, outer, self.skips_at.is_none())?);
                return Some(());
            }
            b'[' | b'{' => flow::read::<M>(text, &mut self.left)?,
            b'"' | b'\'' => {
                let (value, rest) = scalar::quoted(text)?;
                let is_read = self.skips_at.is_none();
                scalar::is_over(rest).then(|| if is_read { M::text(&value) } else { M::null() })?
            }
            _ if self.skips_at.is_some() => {
                scalar::plain::<DiscardingBuilder>(scalar::without_comment(text))
                    .map(|()| M::null())?
            }
            _ => scalar::plain::<M>(scalar::without_comment(text))?,
        };
        self.deliver(value)
    }

    fn end_block(&mut self) -> Option<()> {
        match self.block.take() {
            Some(block) => self.deliver(M::text(&block.finish())),
            None => Some(()),
        }
    }

    fn finish(mut self) -> Option<M::Value> {
        self.end_block()?;
        loop {
            let value = self.pop()?;
            match self.open.last_mut() {
                Some(outer) if self.skips_at.is_none() => outer.take(value),
                Some(_) => {}
                None => return Some(value),
            }
        }
    }
}

/// Whether the text after an indicator allows it to be one.
fn is_end(behind: &str) -> bool {
    behind.is_empty() || behind.starts_with(' ')
}

/// A float as a JSON number. `None` if JSON cannot represent it.
fn number(float: f64) -> Option<Number> {
    json::number(float)
}
