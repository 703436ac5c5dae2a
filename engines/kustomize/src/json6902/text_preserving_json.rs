//! JSON that keeps the text of scalars, because the operation `test` compares them as strings.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use golang::strconv::{FloatTextFormat, format_float};
use serde_json::{Number, Value};

use super::{Error, MAX_DEPTH, VALUE_OVERHEAD_BYTES};

/// A JSON value that keeps the original text of its scalars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JsonPatchValue {
    /// A null that was read, or the value of a missing key.
    Null,
    /// A null that an operation added. json-patch treats it differently from a null that was read.
    AddedNull,
    /// Any other scalar, with its original text.
    Scalar(String),
    List(Vec<Self>),
    Object(BTreeMap<String, Self>),
}

impl JsonPatchValue {
    /// The content of a string; `None` for other types.
    pub(super) fn as_string(&self) -> Option<String> {
        match self {
            Self::Scalar(text) if text.starts_with('"') => serde_json::from_str(text).ok(),
            _ => None,
        }
    }

    /// Go's error message about another expected type.
    pub(super) fn not_a(&self, wanted: &'static str) -> Error {
        let found = match self {
            Self::Null | Self::AddedNull => "null",
            Self::List(_) => "array",
            Self::Object(_) => "object",
            Self::Scalar(text) => match text.as_bytes().first() {
                Some(b'"') => "string",
                Some(b't' | b'f') => "bool",
                _ => "number",
            },
        };
        Error::Type { found: found.to_owned(), wanted }
    }

    /// The memory of the value in bytes.
    pub(super) fn weight(&self) -> usize {
        let mut bytes = 0;
        let mut left = vec![self];
        while let Some(json) = left.pop() {
            bytes += VALUE_OVERHEAD_BYTES;
            match json {
                Self::Null | Self::AddedNull => {}
                Self::Scalar(text) => bytes += text.len(),
                Self::List(items) => left.extend(items),
                Self::Object(fields) => {
                    bytes +=
                        fields.keys().map(|key| VALUE_OVERHEAD_BYTES + key.len()).sum::<usize>();
                    left.extend(fields.values());
                }
            }
        }
        bytes
    }

    /// The number of levels below the value.
    pub(super) fn depth(&self) -> usize {
        let mut deepest = 0;
        let mut left = vec![(0, self)];
        while let Some((depth, json)) = left.pop() {
            deepest = deepest.max(depth);
            match json {
                Self::Null | Self::AddedNull | Self::Scalar(_) => {}
                Self::List(items) => left.extend(items.iter().map(|item| (depth + 1, item))),
                Self::Object(fields) => {
                    left.extend(fields.values().map(|field| (depth + 1, field)));
                }
            }
        }
        deepest
    }
}

/// Converts a parsed value. Scalars have the text that Go would write.
pub(super) fn from_value(value: &Value) -> JsonPatchValue {
    // The reader bounds the depth of the value to less than serde's own recursion bears.
    match value {
        Value::Null => JsonPatchValue::Null,
        Value::Bool(bool) => JsonPatchValue::Scalar(bool.to_string()),
        Value::Number(number) => JsonPatchValue::Scalar(number_text(number)),
        Value::String(text) => JsonPatchValue::Scalar(string_text(text)),
        Value::Array(items) => JsonPatchValue::List(items.iter().map(from_value).collect()),
        Value::Object(fields) => JsonPatchValue::Object(
            fields.iter().map(|(key, value)| (key.clone(), from_value(value))).collect(),
        ),
    }
}

/// The text of a number, as Go's `encoding/json` writes it.
fn number_text(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    if float != 0.0 && !(1e-6..1e21).contains(&float.abs()) {
        let text = format_float(float, FloatTextFormat::Exponent, None);
        // `1e-09` is written `1e-9`.
        return text.replace("e-0", "e-");
    }
    format_float(float, FloatTextFormat::Fixed, None)
}

/// The text of a string, as Go's `encoding/json` writes it.
fn string_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Reads JSON.
///
/// # Errors
/// Go's message, or the nesting is deeper than [`MAX_DEPTH`].
pub(super) fn parse(text: &str) -> Result<JsonPatchValue, Error> {
    // The syntax is checked first, so that reading needs no further checks.
    let end = match golang::json::decode_prefix(text.as_bytes()) {
        Ok((_, end)) => end,
        // Numbers are only parsed when they are used.
        Err(golang::json::Error::NumberTooLarge(_)) => text.len(),
        Err(golang::json::Error::UnexpectedEnd) => {
            return Err(Error::Operation("unexpected end of JSON input".to_owned()));
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(character) = text[end..].trim_start_matches([' ', '\t', '\r', '\n']).chars().next()
    {
        return Err(Error::Trailing(format!("{character:?}")));
    }
    let mut reader = JsonTokenReader { left: text };
    let mut open: Vec<OpenPatchContainer> = Vec::new();
    loop {
        let mut done = match reader.token() {
            "[" => {
                open.push(OpenPatchContainer::List(Vec::new()));
                None
            }
            "{" => {
                open.push(OpenPatchContainer::Object(BTreeMap::new(), String::new()));
                None
            }
            "]" | "}" => open.pop().map(OpenPatchContainer::close),
            "," => None,
            "null" => Some(JsonPatchValue::Null),
            scalar => Some(JsonPatchValue::Scalar(scalar.to_owned())),
        };
        if open.len() > MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        if let Some(json) = done.take() {
            match open.last_mut() {
                Some(OpenPatchContainer::List(items)) => items.push(json),
                Some(OpenPatchContainer::Object(fields, key)) => {
                    fields.insert(std::mem::take(key), json);
                }
                None => return Ok(json),
            }
        }
        if let Some(OpenPatchContainer::Object(_, key)) = open.last_mut()
            && let Some(next) = reader.key()
        {
            *key = next;
        }
        if reader.left.is_empty() {
            return Err(Error::Operation("unexpected end of JSON input".to_owned()));
        }
    }
}

/// A list or object that is not complete yet.
enum OpenPatchContainer {
    List(Vec<JsonPatchValue>),
    Object(BTreeMap<String, JsonPatchValue>, String),
}

impl OpenPatchContainer {
    fn close(self) -> JsonPatchValue {
        match self {
            Self::List(items) => JsonPatchValue::List(items),
            Self::Object(fields, _) => JsonPatchValue::Object(fields),
        }
    }
}

/// Takes tokens from JSON that is known to be valid.
struct JsonTokenReader<'t> {
    left: &'t str,
}

impl<'t> JsonTokenReader<'t> {
    fn token(&mut self) -> &'t str {
        let text = self.left.trim_start_matches([' ', '\t', '\r', '\n']);
        let length = match text.as_bytes().first() {
            None => 0,
            Some(b'[' | b']' | b'{' | b'}' | b',' | b':') => 1,
            Some(b'"') => string_length(text),
            Some(_) => {
                let ends = [',', ']', '}', ' ', '\t', '\r', '\n'];
                text.find(ends).unwrap_or(text.len())
            }
        };
        self.left = &text[length..];
        &text[..length]
    }

    /// Reads the next key and its colon; `None` at the end of the object.
    fn key(&mut self) -> Option<String> {
        let before = self.left;
        let mut token = self.token();
        if token == "," {
            token = self.token();
        }
        if token.starts_with('"') {
            self.token();
            return Some(serde_json::from_str(token).unwrap_or_else(|_| token.to_owned()));
        }
        self.left = before;
        None
    }
}

/// The length of the string at the beginning of a text.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            b'"' if !escaped => return at + 1,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}
