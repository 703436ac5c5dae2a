//! JSON as Go's `encoding/json` reads it into an `interface {}` and writes it, with its errors.
//!
//! Here: reading. Elsewhere: writing (`json/encode.rs`), values that are JSON already (`value/json.rs`).
//! Nothing recurses over its input.

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
    /// The text ends inside of a value.
    #[error("unexpected EOF")]
    UnexpectedEnd,
    /// As [`Error::UnexpectedEnd`], in the words of `json.Unmarshal`.
    #[error("unexpected end of JSON input")]
    End,
    /// A byte that cannot stand where it does.
    #[error("invalid character {character} {context}")]
    InvalidCharacter {
        /// The byte as Go quotes it.
        character: String,
        /// What was being read.
        context: &'static str,
    },
    /// Lists and objects are nested deeper than Go reads.
    #[error("exceeded max depth")]
    TooDeep,
    /// A number that no `float64` holds.
    #[error("json: cannot unmarshal number {0} into Go value of type float64")]
    NumberTooLarge(String),
}

/// What a text holds.
#[derive(Debug)]
pub struct DecodedJson {
    /// The value, in which nil stands for numbers that do not fit.
    pub value: GoRuntimeValue,
    /// The first number that does not fit.
    pub misfit: Option<Error>,
}

/// A list or object whose end has not come.
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
                // The room that Go's decoder has made by then.
                let capacity = if items.is_empty() { 0 } else { items.len().next_power_of_two() };
                GoRuntimeValue::List(GoSlice::with_capacity(GoType::Any, items, capacity))
            }
            Self::Object(entries, _) => GoRuntimeValue::map(entries),
        }
    }
}

/// Reads the value at the beginning of `text`, and returns how many bytes it took, as `json.Decoder` does.
///
/// Every number is a `float64`; of a key that is set twice the last value counts; what is not UTF-8 becomes U+FFFD.
/// What follows the value is not examined.
///
/// # Errors
/// The text does not begin with a value, after white space. Nothing but white space is [`Error::UnexpectedEnd`].
pub fn decode_prefix(text: &[u8]) -> Result<(GoRuntimeValue, usize), Error> {
    let (DecodedJson { value, misfit }, length) = prefix(text)?;
    misfit.map_or(Ok((value, length)), Err)
}

/// Reads a text that is one value, as `json.Unmarshal` does: numbers that do not fit leave the rest as it is.
///
/// # Errors
/// The text is not JSON, or more than one value.
pub fn decode(text: &[u8]) -> Result<DecodedJson, Error> {
    let (decoded, length) = prefix(text).map_err(|error| match error {
        // Go ends the text with a space, at which some tokens stumble.
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

/// The value at the beginning, and how long it is.
fn prefix(text: &[u8]) -> Result<(DecodedJson, usize), Error> {
    let mut lexer = JsonLexer::new(text);
    let mut open: Vec<OpenJsonContainer> = Vec::new();
    // Go finds the end of the value first, so invalid JSON is reported before a value that does not fit.
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
