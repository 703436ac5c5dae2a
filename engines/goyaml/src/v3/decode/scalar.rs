//! Converts scalars to JSON, and keys to text.

use base64::Engine as _;
use serde_json::Value;

use super::super::node::{YamlNode, YamlNodeKind};
use super::super::tag;
use super::{NodeDecoder, mark};
use crate::YamlDialect;
use crate::decode::BASE64;
use crate::error::Error;
use crate::go_format;
use crate::json::{number, replace_invalid};
use crate::scalar_resolve::{ResolvedScalar, resolve, timestamp};

impl<'n> NodeDecoder<'n> {
    pub(super) fn scalar(&mut self, node: &'n YamlNode) -> Result<Value, Error> {
        Ok(match meaning(node)? {
            ResolvedScalar::Null => Value::Null,
            ResolvedScalar::Bool(bool) => Value::Bool(bool),
            ResolvedScalar::Int(int) => Value::from(int),
            ResolvedScalar::Uint(uint) => Value::from(uint),
            ResolvedScalar::Float(float) => match number(float) {
                Some(number) => Value::Number(number),
                None => {
                    let shown = go_format::float64(float);
                    self.refuse(format!("json: unsupported value: {shown}"));
                    Value::Null
                }
            },
            ResolvedScalar::Timestamp => match timestamp::rfc3339(&node.value) {
                Some(text) => Value::String(text),
                None => {
                    self.refuse(
                        "json: error calling MarshalJSON for type time.Time: \
                         Time.MarshalJSON: timezone hour outside of range [0,23]"
                            .to_owned(),
                    );
                    Value::Null
                }
            },
            ResolvedScalar::Binary => Value::String(binary(node)?),
            ResolvedScalar::Str | ResolvedScalar::Other => Value::String(node.value.clone()),
        })
    }

    fn refuse(&mut self, text: String) {
        self.not_json.get_or_insert(text);
    }

    /// The text of a key. `None` if the entry is left out.
    pub(super) fn key(&mut self, key: &'n YamlNode, map: usize) -> Result<Option<String>, Error> {
        self.count(key)?;
        let key = match key.kind {
            YamlNodeKind::Alias => {
                let target = self.follow(key)?;
                let counted = self.count(target);
                self.close_aliases();
                counted?;
                target
            }
            _ => key,
        };
        if key.kind != YamlNodeKind::Scalar {
            self.refuse_key(key)?;
            return Ok(None);
        }
        Ok(match meaning(key)? {
            ResolvedScalar::Null if self.maps[map].takes_all => None,
            ResolvedScalar::Binary => Some(binary(key)?),
            _ => Some(key.value.clone()),
        })
    }

    /// Refuses a list or map as a key, where keys have to be text.
    fn refuse_key(&mut self, key: &'n YamlNode) -> Result<(), Error> {
        self.count_keys(key)?;
        if key.kind == YamlNodeKind::Mapping && self.note_duplicates(key)? {
            return Ok(());
        }
        if self.problems.is_empty() {
            self.problem_line = key.line;
        }
        let tag = key.short_tag();
        let value = if matches!(tag.as_ref(), tag::SEQ | tag::MAP) { "" } else { " ``" };
        let line = key.line;
        self.problems.push(format!("line {line}: cannot unmarshal {tag}{value} into string"));
        Ok(())
    }

    /// The text of a key. `None` if the key is not a text.
    pub(super) fn text_of(&self, key: &'n YamlNode) -> Result<Option<String>, Error> {
        let key = self.targets.get(&std::ptr::from_ref(key)).copied().unwrap_or(key);
        if key.kind != YamlNodeKind::Scalar {
            return Ok(None);
        }
        Ok(match meaning(key)? {
            ResolvedScalar::Binary => Some(binary(key)?),
            ResolvedScalar::Str | ResolvedScalar::Other => Some(key.value.clone()),
            _ => None,
        })
    }

    /// Whether Go takes all keys of a map for strings before it decodes them.
    pub(super) fn has_text_keys(&self, map: &'n YamlNode) -> bool {
        map.entries().all(|(key, _)| {
            let target = self.targets.get(&std::ptr::from_ref(key)).copied().unwrap_or(key);
            matches!(target.short_tag().as_ref(), tag::STR | tag::MERGE)
        })
    }
}

/// The meaning of a scalar.
pub(in crate::v3) fn meaning(node: &YamlNode) -> Result<ResolvedScalar, Error> {
    if node.is_indicated_string() {
        return Ok(ResolvedScalar::Str);
    }
    let written = if node.tag == "!" { "" } else { node.tag.as_ref() };
    resolve(YamlDialect::V3, &tag::long(written), &node.value)
        .map_err(|mismatch| Error::node(mismatch, mark(node.line)))
}

fn binary(node: &YamlNode) -> Result<String, Error> {
    binary_of(node).map(|bytes| replace_invalid(&bytes))
}

/// The decoded bytes of a scalar with the tag `!!binary`.
pub(in crate::v3) fn binary_of(node: &YamlNode) -> Result<Vec<u8>, Error> {
    let text = node.value.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n'));
    BASE64
        .decode(text.collect::<Vec<u8>>())
        .map_err(|_| Error::node("!!binary value contains invalid base64 data", mark(node.line)))
}

/// A value as Go's `%#v` prints it.
///
/// Differs(go): a date is printed as its text, and a number beyond 63 bits in decimal.
pub(super) fn show(value: &Value) -> String {
    enum ValuePiece<'v> {
        Value(&'v Value),
        Key(&'v str),
        Text(&'static str),
    }
    let mut out = String::new();
    let mut left = vec![ValuePiece::Value(value)];
    while let Some(piece) = left.pop() {
        match piece {
            ValuePiece::Text(text) => out.push_str(text),
            ValuePiece::Key(key) => {
                go_format::quote(key.as_bytes(), &mut out);
                out.push(':');
            }
            ValuePiece::Value(Value::Null) => out.push_str("interface {}(nil)"),
            ValuePiece::Value(Value::Bool(bool)) => out.push_str(&bool.to_string()),
            ValuePiece::Value(Value::Number(number)) => match number.as_f64() {
                Some(float) if number.is_f64() => out.push_str(&go_format::float64(float)),
                _ => out.push_str(&number.to_string()),
            },
            ValuePiece::Value(Value::String(text)) => go_format::quote(text.as_bytes(), &mut out),
            ValuePiece::Value(Value::Array(items)) => {
                out.push_str("[]interface {}{");
                left.push(ValuePiece::Text("}"));
                for (at, item) in items.iter().enumerate().rev() {
                    left.push(ValuePiece::Value(item));
                    left.push(ValuePiece::Text(if at > 0 { ", " } else { "" }));
                }
            }
            ValuePiece::Value(Value::Object(entries)) => {
                out.push_str("map[string]interface {}{");
                left.push(ValuePiece::Text("}"));
                for (at, (key, value)) in entries.iter().enumerate().rev() {
                    left.push(ValuePiece::Value(value));
                    left.push(ValuePiece::Key(key));
                    left.push(ValuePiece::Text(if at > 0 { ", " } else { "" }));
                }
            }
        }
    }
    out
}
