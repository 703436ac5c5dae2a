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
//! 1. `json_round_trip` refuses what Go's reader refuses in that JSON (control characters, very long keys,
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

mod emittable_value;
mod json_round_trip;
pub(crate) mod key_order;
mod number;
pub(crate) mod scalar_style;
pub(crate) mod writer;

use std::borrow::Cow;
use std::vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::YamlDialect;
pub use emittable_value::{EmittableValue, EmittableView};
use json_round_trip::JsonRereadError;
use scalar_style::ScalarAnalysis;
use writer::{INDENT_COLUMNS, LineFolding, YamlWriter};

/// How many bytes the written text may have.
///
/// Deep indentation can make a very long text of a small value.
const MAX_OUTPUT: usize = 256 << 20;

/// Why Go cannot write a value as YAML.
///
/// The message is Go's. As in Go, it names the line of the intermediate JSON that Go could not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct YamlEmitError(JsonRereadError);

impl YamlEmitError {
    /// Whether only the length of the text is the reason.
    pub fn is_limit(&self) -> bool {
        self.0 == JsonRereadError::Length
    }
}

/// Writes a value as `sigs.k8s.io/yaml.Marshal` does, including the final newline.
///
/// # Guarantees
/// The same value always gives the same text, even where Go's order of keys is random. The nesting of the value costs
/// no stack.
///
/// # Errors
/// Go cannot read the value's JSON as YAML, or the text would be longer than 256 MiB.
pub fn emit(value: &Value) -> Result<String, YamlEmitError> {
    emit_value(&value, MAX_OUTPUT)
}

/// Like [`emit`], for a value of any library. The text may have about `limit` bytes.
///
/// # Errors
/// As for [`emit`], and if the value cannot be written.
pub fn emit_value<T: EmittableValue>(value: &T, limit: usize) -> Result<String, YamlEmitError> {
    let limit = limit.min(MAX_OUTPUT);
    let (text, is_suspicious) =
        write(value, EmitInputForm::Reread, limit).map_err(YamlEmitError)?;
    if is_suspicious {
        json_round_trip::check(value).map_err(YamlEmitError)?;
    }
    Ok(text)
}

/// Writes a value for people: the text of [`emit`] where Go can write the value. What Go's detour over JSON refuses or changes is
/// written with escapes in double quotes, so that a reader of YAML gets the same value. So one control character in an object
/// does not keep all of it from being shown.
///
/// # Guarantees
/// As for [`emit`].
///
/// # Errors
/// The value is nested deeper than 10 000 levels, or the text would be longer than 256 MiB.
pub fn emit_with_escapes(value: &Value) -> Result<String, YamlEmitError> {
    write(&value, EmitInputForm::Escaped, MAX_OUTPUT).map(|(text, _)| text).map_err(YamlEmitError)
}

/// Writes a value as go-yaml v2 does without the detour over JSON. The keys of every mapping are sorted byte by byte.
///
/// Flux writes the values of a release in this form to compute their digest.
///
/// # Guarantees
/// As for [`emit`].
///
/// # Errors
/// The text would be longer than 256 MiB.
pub fn emit_in_byte_order(value: &Value) -> Result<String, YamlEmitError> {
    write(&value, EmitInputForm::ByteOrder, MAX_OUTPUT).map(|(text, _)| text).map_err(YamlEmitError)
}

/// The form in which the writer gets a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EmitInputForm {
    /// The value as Go reads it back from JSON.
    Reread,
    /// The value itself, with its keys in the order of [`Self::Reread`].
    Escaped,
    /// The value itself, with its keys in the order of their bytes.
    ByteOrder,
}

/// Writes the text. It also returns whether Go might refuse to read the value's JSON.
fn write<T: EmittableValue>(
    value: &T,
    way: EmitInputForm,
    limit: usize,
) -> Result<(String, bool), JsonRereadError> {
    let mut emitter =
        YamlEmitter { writer: YamlWriter::new(limit), way, open: Vec::new(), is_suspicious: false };
    emitter.node(value, None, ParentCollection::Other)?;
    while let Some(block) = emitter.open.last_mut() {
        let indent = block.indent;
        match &mut block.rest {
            RemainingItems::Items(items) => match items.next() {
                Some(item) => emitter.item(&item, indent)?,
                None => drop(emitter.open.pop()),
            },
            RemainingItems::Entries(entries) => match entries.next() {
                Some((key, value)) => emitter.entry(key.as_ref(), &value, indent)?,
                None => drop(emitter.open.pop()),
            },
        }
        if emitter.writer.is_full() || emitter.open.len() > json_round_trip::MAX_DEPTH {
            break;
        }
    }
    if emitter.open.len() > json_round_trip::MAX_DEPTH {
        // Go reports the first problem, so the whole value has to be examined.
        return Err(json_round_trip::check(value).err().unwrap_or(JsonRereadError::Depth(0)));
    }
    emitter.writer.start_line(0);
    let is_suspicious = emitter.is_suspicious;
    emitter.writer.finish().map(|text| (text, is_suspicious)).ok_or(JsonRereadError::Length)
}

/// The state of writing a value.
struct YamlEmitter<T: EmittableValue> {
    writer: YamlWriter,
    way: EmitInputForm,
    open: Vec<OpenCollectionBlock<T>>,
    is_suspicious: bool,
}

/// A collection that is partly written.
struct OpenCollectionBlock<T: EmittableValue> {
    /// The column in which the lines of the collection begin.
    indent: usize,
    rest: RemainingItems<T>,
}

enum RemainingItems<T: EmittableValue> {
    Items(vec::IntoIter<T>),
    Entries(vec::IntoIter<(T::Text, T)>),
}

/// The kind of collection that contains a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParentCollection {
    Mapping,
    Other,
}

impl<T: EmittableValue> YamlEmitter<T> {
    fn item(&mut self, item: &T, indent: usize) -> Result<(), JsonRereadError> {
        self.writer.start_line(indent);
        self.writer.block_indicator('-');
        self.node(item, Some(indent), ParentCollection::Other)
    }

    fn entry(&mut self, key: &str, value: &T, indent: usize) -> Result<(), JsonRereadError> {
        self.is_suspicious |= json_round_trip::is_suspicious_key(key);
        self.writer.start_line(indent);
        let analysis = ScalarAnalysis::of(key);
        let style = analysis.style(key);
        if analysis.is_simple_key(key) {
            self.writer.string(key, style, indent + INDENT_COLUMNS, LineFolding::Forbidden);
            self.writer.colon();
        } else {
            self.writer.block_indicator('?');
            self.writer.string(key, style, indent + INDENT_COLUMNS, LineFolding::Allowed);
            self.writer.start_line(indent);
            self.writer.block_indicator(':');
        }
        self.node(value, Some(indent), ParentCollection::Mapping)
    }

    /// Writes a scalar or an empty collection, or opens a block whose items are written later.
    fn node(
        &mut self,
        value: &T,
        around: Option<usize>,
        parent: ParentCollection,
    ) -> Result<(), JsonRereadError> {
        let inside = around.map_or(0, |indent| indent + INDENT_COLUMNS);
        match value.view() {
            EmittableView::Null => self.writer.word("null"),
            EmittableView::Bool(true) => self.writer.word("true"),
            EmittableView::Bool(false) => self.writer.word("false"),
            EmittableView::Int(int) => self.writer.word(&int.to_string()),
            EmittableView::Uint(uint) => self.writer.word(&uint.to_string()),
            EmittableView::Float(float) if float.is_finite() => {
                self.writer.word(&number::text(float));
            }
            EmittableView::Float(float) => return Err(JsonRereadError::not_json(float)),
            EmittableView::Text(text) | EmittableView::Time(text) => {
                self.string(text.as_ref(), inside);
            }
            EmittableView::Binary(bytes) => self.string(&STANDARD.encode(bytes), inside),
            EmittableView::List(items) if items.is_empty() => self.writer.word("[]"),
            EmittableView::List(items) => {
                let is_below_key =
                    parent == ParentCollection::Mapping && !self.writer.is_line_start();
                let indent = if is_below_key { around.unwrap_or(0) } else { inside };
                self.open.push(OpenCollectionBlock {
                    indent,
                    rest: RemainingItems::Items(items.into_iter()),
                });
            }
            EmittableView::Map(entries) | EmittableView::Fields(entries) if entries.is_empty() => {
                self.writer.word("{}");
            }
            EmittableView::Map(mut entries) | EmittableView::Fields(mut entries) => {
                match self.way {
                    EmitInputForm::Reread | EmitInputForm::Escaped => {
                        entries = key_order::sorted(YamlDialect::V2, entries);
                    }
                    EmitInputForm::ByteOrder => {
                        entries.sort_by(|(a, _), (b, _)| a.as_ref().cmp(b.as_ref()));
                    }
                }
                let rest = RemainingItems::Entries(entries.into_iter());
                self.open.push(OpenCollectionBlock { indent: inside, rest });
            }
            EmittableView::Refused(reason) => return Err(JsonRereadError::Value(reason)),
        }
        Ok(())
    }

    fn string(&mut self, text: &str, inside: usize) {
        self.is_suspicious |= json_round_trip::is_suspicious(text);
        let text = match self.way {
            EmitInputForm::Reread => json_round_trip::folded(text),
            EmitInputForm::Escaped | EmitInputForm::ByteOrder => Cow::Borrowed(text),
        };
        let style = ScalarAnalysis::of(&text).style(&text);
        // Unlike a block, a scalar is indented at the root too.
        self.writer.string(&text, style, inside.max(INDENT_COLUMNS), LineFolding::Allowed);
    }
}

#[cfg(test)]
mod tests;
