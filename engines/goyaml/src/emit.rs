//! YAML as Go writes it: byte for byte what `sigs.k8s.io/yaml` makes of a JSON value.
//!
//! ```
//! let value = serde_json::json!({
//!     "items": ["on", "a: b", "plain", null],
//!     "v10": "first\nsecond\n",
//!     "v9": {},
//! });
//! assert_eq!(
//!     goyaml::emit::emit(&value).unwrap(),
//!     "\
//! items:
//! - \"on\"
//! - 'a: b'
//! - plain
//! - null
//! v9: {}
//! v10: |
//!   first
//!   second
//! "
//! );
//! ```
//!
//! # A tour
//! Go takes a detour: it writes the value as JSON, reads that as YAML, and hands what it has read to
//! go-yaml v2. [`emit`] gives the result of the detour without taking it:
//!
//! 1. `reread` refuses what Go's reader refuses in that JSON (control characters, very long keys,
//!    very deep nesting), and knows the one character whose text changes on the way.
//! 2. This file walks the value with a stack of its own and decides what stands where: sequences
//!    are not indented below their key, `- - a` shares a line, a long key gets a `?`.
//! 3. `order` sorts the keys of each mapping: letters last, numbers by value.
//! 4. `number` writes floats; `scalar` chooses plain, quoted or block style for strings.
//! 5. `writer` puts the text down, and folds lines that grow beyond 80 columns.
//!
//! Of these, 1 to 3 and the choice of a style belong to version 2 of go-yaml.
//!
//! Elsewhere: reading YAML (the crate's root), writing nodes with their comments ([`crate::v3`]).

mod number;
mod order;
mod reread;
pub(crate) mod scalar;
pub(crate) mod writer;

use std::borrow::Cow;
use std::{slice, vec};

use serde_json::Value;

use order::Entry;
use reread::Refusal;
use scalar::Analysis;
use writer::{Folding, STEP, Writer};

/// How many bytes of text are written at most.
///
/// Deep indentation makes a long text of a small value: without a limit, of any length.
const MAX_OUTPUT: usize = 256 << 20;

/// Why a value has no YAML text in Go.
///
/// Display is Go's text, and names the line of the JSON that Go read back where Go does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EmitError(Refusal);

/// What `sigs.k8s.io/yaml.Marshal` writes for this value, final newline included.
///
/// # Guarantees
/// The same value always gives the same text, also where Go's order of keys depends on chance.
/// The nesting of the value costs no stack.
///
/// # Errors
/// Go cannot read the value's JSON as YAML, or the text would be longer than 256 MiB.
pub fn emit(value: &Value) -> Result<String, EmitError> {
    reread::check(value).and_then(|()| write(value, Way::Reread, MAX_OUTPUT)).map_err(EmitError)
}

/// What go-yaml v2 writes for the value when no JSON is read back, with the keys of every mapping ordered byte by byte.
///
/// That is how Flux writes the values of a release before it takes their digest.
///
/// # Guarantees
/// As those of [`emit`].
///
/// # Errors
/// The text would be longer than 256 MiB.
pub fn emit_in_byte_order(value: &Value) -> Result<String, EmitError> {
    write(value, Way::ByteOrder, MAX_OUTPUT).map_err(EmitError)
}

/// How a value comes to the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As JSON that Go read as YAML.
    Reread,
    /// As it is, with ordered keys.
    ByteOrder,
}

fn write(value: &Value, way: Way, limit: usize) -> Result<String, Refusal> {
    let mut emitter = Emitter { writer: Writer::new(limit), way, open: Vec::new() };
    emitter.node(value, None, Parent::Other);
    while let Some(block) = emitter.open.last_mut() {
        let indent = block.indent;
        match &mut block.rest {
            Rest::Items(items) => match items.next() {
                Some(item) => emitter.item(item, indent),
                None => drop(emitter.open.pop()),
            },
            Rest::Entries(entries) => match entries.next() {
                Some(entry) => emitter.entry(entry, indent),
                None => drop(emitter.open.pop()),
            },
        }
        if emitter.writer.is_full() {
            break;
        }
    }
    emitter.writer.start_line(0);
    emitter.writer.finish().ok_or(Refusal::Length)
}

/// A value on its way to becoming text.
struct Emitter<'v> {
    writer: Writer,
    way: Way,
    open: Vec<Block<'v>>,
}

/// A collection of which a part has been written.
struct Block<'v> {
    /// The column in which its lines begin.
    indent: usize,
    rest: Rest<'v>,
}

enum Rest<'v> {
    Items(slice::Iter<'v, Value>),
    Entries(vec::IntoIter<Entry<'v>>),
}

/// What a node is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parent {
    Mapping,
    Other,
}

impl<'v> Emitter<'v> {
    fn item(&mut self, item: &'v Value, indent: usize) {
        self.writer.start_line(indent);
        self.writer.block_indicator('-');
        self.node(item, Some(indent), Parent::Other);
    }

    fn entry(&mut self, (key, value): Entry<'v>, indent: usize) {
        self.writer.start_line(indent);
        let analysis = Analysis::of(key);
        let style = analysis.style(key);
        if analysis.is_simple_key(key) {
            self.writer.string(key, style, indent + STEP, Folding::Forbidden);
            self.writer.colon();
        } else {
            self.writer.block_indicator('?');
            self.writer.string(key, style, indent + STEP, Folding::Allowed);
            self.writer.start_line(indent);
            self.writer.block_indicator(':');
        }
        self.node(value, Some(indent), Parent::Mapping);
    }

    /// Writes a scalar or an empty collection, or opens a block whose parts the walk will write.
    fn node(&mut self, value: &'v Value, around: Option<usize>, parent: Parent) {
        let inside = around.map_or(0, |indent| indent + STEP);
        match value {
            Value::Null => self.writer.word("null"),
            Value::Bool(true) => self.writer.word("true"),
            Value::Bool(false) => self.writer.word("false"),
            Value::Number(number) => self.writer.word(&number::text(number)),
            Value::String(text) => {
                let text = match self.way {
                    Way::Reread => reread::folded(text),
                    Way::ByteOrder => Cow::Borrowed(text.as_str()),
                };
                let style = Analysis::of(&text).style(&text);
                // Unlike a block, a scalar is indented at the root too.
                self.writer.string(&text, style, inside.max(STEP), Folding::Allowed);
            }
            Value::Array(items) if items.is_empty() => self.writer.word("[]"),
            Value::Array(items) => {
                let is_below_key = parent == Parent::Mapping && !self.writer.is_line_start();
                let indent = if is_below_key { around.unwrap_or(0) } else { inside };
                self.open.push(Block { indent, rest: Rest::Items(items.iter()) });
            }
            Value::Object(entries) if entries.is_empty() => self.writer.word("{}"),
            Value::Object(entries) => {
                let entries = match self.way {
                    Way::Reread => order::sorted(entries),
                    // The map is ordered that way.
                    Way::ByteOrder => {
                        entries.iter().map(|(key, value)| (key.as_str(), value)).collect()
                    }
                };
                let entries = entries.into_iter();
                self.open.push(Block { indent: inside, rest: Rest::Entries(entries) });
            }
        }
    }
}

#[cfg(test)]
mod tests;
