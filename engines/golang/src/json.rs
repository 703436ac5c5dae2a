//! Reads and writes JSON as Go's `encoding/json` does with an `interface {}`, with the same errors.
//!
//! Here: reading. Elsewhere: writing (`json/encode.rs`), and converting parsed JSON (`value/json.rs`). No function
//! recurses over its input.

mod encode;
mod lexer;

use crate::GoRuntimeValue;
use crate::value::{GoSlice, GoString, GoType};
pub use encode::{JsonEncodeError, JsonLayout, encode, marshalled};
use lexer::{JsonLexer, JsonToken};

/// How deep lists and objects may be nested, as in Go.
const MAX_DEPTH: usize = 10_000;

/// Why a text is not JSON, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text ends within a value.
    #[error("unexpected EOF")]
    UnexpectedEnd,
    /// The text ends within a value, in the words of `json.Unmarshal`.
    #[error("unexpected end of JSON input")]
    End,
    /// A byte is not allowed at its position.
    #[error("invalid character {character} {context}")]
    InvalidCharacter {
        /// The byte as Go quotes it.
        character: String,
        /// What Go was reading at this position.
        context: &'static str,
    },
    /// Lists and objects are nested deeper than Go reads.
    #[error("exceeded max depth")]
    TooDeep,
    /// A number does not fit into a `float64`.
    #[error("json: cannot unmarshal number {0} into Go value of type float64")]
    NumberTooLarge(String),
}

/// The value of a text.
#[derive(Debug)]
pub struct DecodedJson {
    /// The value. A number that does not fit is nil in it.
    pub value: GoRuntimeValue,
    /// The error about the first number that does not fit.
    pub misfit: Option<Error>,
}

/// A list or object whose end was not read yet.
enum OpenJsonContainer {
    List(Vec<GoRuntimeValue>),
    Object(Vec<(GoString, GoRuntimeValue)>, GoString),
}

impl OpenJsonContainer {
    fn take(&mut self, value: GoRuntimeValue) {
        match self {
            Self::List(items) => items.push(value),
            Self::Object(entries, key) => entries.push((std::mem::take(key), value)),
        }
    }

    fn close(self) -> GoRuntimeValue {
        match self {
            Self::List(items) => {
                // The capacity that Go's decoder has at this point.
                let capacity = if items.is_empty() { 0 } else { items.len().next_power_of_two() };
                GoRuntimeValue::List(GoSlice::with_capacity(GoType::Any, items, capacity))
            }
            Self::Object(entries, _) => GoRuntimeValue::map(entries),
        }
    }
}

/// Reads the value at the beginning of `text`, as `json.Decoder` does. Returns it with the number of bytes that it
/// took.
///
/// Every number is a `float64`. If a key occurs twice, its last value counts. Bytes that are not UTF-8 become U+FFFD.
/// The text after the value is not examined.
///
/// # Errors
/// The text does not begin with a value, after white space. If it only has white space, the error is
/// [`Error::UnexpectedEnd`].
pub fn decode_prefix(text: &[u8]) -> Result<(GoRuntimeValue, usize), Error> {
    let (DecodedJson { value, misfit }, length) = prefix(text)?;
    misfit.map_or(Ok((value, length)), Err)
}

/// Reads a text that is one value, as `json.Unmarshal` does. A number that does not fit is reported, and the rest of
/// the value is kept.
///
/// # Errors
/// The text is not JSON, or has more than one value.
pub fn decode(text: &[u8]) -> Result<DecodedJson, Error> {
    let (decoded, length) = prefix(text).map_err(|error| match error {
        // Go appends a space to the text, which is an error within some tokens.
        Error::UnexpectedEnd => match prefix(&[text, b" "].concat()) {
            Err(error @ Error::InvalidCharacter { .. }) => error,
            Ok(_) | Err(_) => Error::End,
        },
        other => other,
    })?;
    match text[length..].iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
        None => Ok(decoded),
        Some(byte) => Err(lexer::invalid(*byte, "after top-level value")),
    }
}

/// Reads the value at the beginning of a text, and its length.
fn prefix(text: &[u8]) -> Result<(DecodedJson, usize), Error> {
    let mut lexer = JsonLexer::new(text);
    let mut open: Vec<OpenJsonContainer> = Vec::new();
    // Go searches for the end of the value first. It therefore reports invalid JSON before a number that does not fit.
    let mut misfit = None;
    loop {
        let mut done = match lexer.value()? {
            JsonToken::OpenList | JsonToken::OpenObject if open.len() == MAX_DEPTH => {
                return Err(Error::TooDeep);
            }
            JsonToken::OpenList if lexer.closes(b']') => {
                OpenJsonContainer::List(Vec::new()).close()
            }
            JsonToken::OpenList => {
                open.push(OpenJsonContainer::List(Vec::new()));
                continue;
            }
            JsonToken::OpenObject if lexer.closes(b'}') => {
                OpenJsonContainer::Object(Vec::new(), GoString::default()).close()
            }
            JsonToken::OpenObject => {
                open.push(OpenJsonContainer::Object(Vec::new(), lexer.first_key()?));
                continue;
            }
            JsonToken::Number(number) => match number.parse::<f64>() {
                Ok(float) if float.is_finite() => GoRuntimeValue::Float(float),
                Ok(_) | Err(_) => {
                    misfit.get_or_insert(Error::NumberTooLarge(number.to_owned()));
                    GoRuntimeValue::Nil
                }
            },
            JsonToken::String(text) => GoRuntimeValue::String(text),
            JsonToken::Bool(truth) => GoRuntimeValue::Bool(truth),
            JsonToken::Null => GoRuntimeValue::Nil,
        };
        loop {
            let Some(innermost) = open.last_mut() else {
                return Ok((DecodedJson { value: done, misfit }, lexer.position()));
            };
            innermost.take(done);
            match innermost {
                OpenJsonContainer::List(_) if lexer.list_goes_on()? => break,
                OpenJsonContainer::Object(_, key) => {
                    if let Some(next) = lexer.next_key()? {
                        *key = next;
                        break;
                    }
                }
                OpenJsonContainer::List(_) => {}
            }
            done = open.pop().map(OpenJsonContainer::close).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests;
