//! Finds the meaning of a scalar's text: Go's numbers, and the words of YAML 1.1 in go-yaml v2. go-yaml v3 knows fewer
//! words.
//!
//! The reader passes the tag of the node. The emitter passes no tag, to find out whether a text needs quotes to stay a
//! string. Dates are in `scalar_resolve/timestamp.rs`. Merge keys, binary data and the conversion to JSON are
//! elsewhere.

pub(crate) mod timestamp;

use std::fmt;

use crate::YamlDialect;

/// The tags that resolution knows, in their long form.
pub(crate) mod tag {
    pub(crate) const PREFIX: &str = "tag:yaml.org,2002:";
    pub(crate) const STR: &str = "tag:yaml.org,2002:str";
    pub(crate) const NULL: &str = "tag:yaml.org,2002:null";
    pub(crate) const BOOL: &str = "tag:yaml.org,2002:bool";
    pub(crate) const INT: &str = "tag:yaml.org,2002:int";
    pub(crate) const FLOAT: &str = "tag:yaml.org,2002:float";
    pub(crate) const TIMESTAMP: &str = "tag:yaml.org,2002:timestamp";
    pub(crate) const MERGE: &str = "tag:yaml.org,2002:merge";
    pub(crate) const BINARY: &str = "tag:yaml.org,2002:binary";
}

/// The meaning of a scalar.
///
/// `Str`, `Timestamp` and `Other` are all read as the text itself. Only the emitter distinguishes them, because it
/// quotes a string that would otherwise not be `Str`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ResolvedScalar {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer above `i64::MAX`.
    Uint(u64),
    Float(f64),
    Str,
    /// A date; version 2 keeps it as its text when it decodes into an untyped value.
    Timestamp,
    /// Base64 text under `!!binary`, not yet decoded.
    Binary,
    /// A text under a tag that resolution does not know, such as `!custom`.
    Other,
}

/// A text does not have the form that its tag requires.
///
/// The message is Go's, without the leading `yaml: `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode {found} `{text}` as a {wanted}")]
pub(crate) struct TagMismatch {
    found: &'static str,
    text: String,
    wanted: ShortTag,
}

/// A tag in the form that people write: `!!int`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ShortTag(String);

impl fmt::Display for ShortTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.strip_prefix(tag::PREFIX) {
            Some(name) => write!(f, "!!{name}"),
            None => f.write_str(&self.0),
        }
    }
}

/// Finds the meaning of `text` with the tag `tag`. The tag is in its long form, and empty if the scalar has none.
///
/// Without a tag, this never fails.
pub(crate) fn resolve(
    dialect: YamlDialect,
    tag: &str,
    text: &str,
) -> Result<ResolvedScalar, TagMismatch> {
    let found = match tag {
        tag::BINARY => return Ok(ResolvedScalar::Binary),
        tag::STR => return Ok(ResolvedScalar::Str),
        "" => return Ok(untagged(dialect, text, true)),
        tag::BOOL | tag::INT | tag::FLOAT | tag::NULL => untagged(dialect, text, false),
        tag::TIMESTAMP => untagged(dialect, text, true),
        _ => return Ok(ResolvedScalar::Other),
    };
    let name = match (found, tag) {
        (ResolvedScalar::Int(int), tag::FLOAT) => return Ok(ResolvedScalar::Float(int as f64)),
        (ResolvedScalar::Null, tag::NULL)
        | (ResolvedScalar::Bool(_), tag::BOOL)
        | (ResolvedScalar::Int(_) | ResolvedScalar::Uint(_), tag::INT)
        | (ResolvedScalar::Float(_), tag::FLOAT)
        | (ResolvedScalar::Timestamp, tag::TIMESTAMP) => return Ok(found),
        (ResolvedScalar::Null, _) => "!!null",
        (ResolvedScalar::Bool(_), _) => "!!bool",
        (ResolvedScalar::Int(_) | ResolvedScalar::Uint(_), _) => "!!int",
        (ResolvedScalar::Float(_), _) => "!!float",
        (ResolvedScalar::Timestamp, _) => "!!timestamp",
        (ResolvedScalar::Str | ResolvedScalar::Binary | ResolvedScalar::Other, _) => "!!str",
    };
    Err(TagMismatch { found: name, text: text.to_owned(), wanted: ShortTag(tag.to_owned()) })
}

/// The meaning of a text without a tag. Go examines the first byte first, and a text with any other first byte is a
/// string.
fn untagged(dialect: YamlDialect, text: &str, dates: bool) -> ResolvedScalar {
    let Some(&first) = text.as_bytes().first() else { return ResolvedScalar::Null };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => {
            word(dialect, text)
        }
        b'.' => match word(dialect, text) {
            // Parity(go-yaml v2): here the text goes to Go's float parser as it stands, so
            // underscores must separate digits; after a digit or sign they are dropped first.
            ResolvedScalar::Str if separates_digits(text) => float(&text.replace('_', "")),
            found => found,
        },
        b'0'..=b'9' | b'+' | b'-' => match word(dialect, text) {
            ResolvedScalar::Str if dates && timestamp::is_timestamp(text) => {
                ResolvedScalar::Timestamp
            }
            ResolvedScalar::Str => number(dialect, text),
            found => found,
        },
        // Parity(go-yaml v2): `<<` is not in the table of first bytes, so it is an ordinary string
        // here; the mapping recognises a merge key by its text.
        _ => ResolvedScalar::Str,
    }
}

fn word(dialect: YamlDialect, text: &str) -> ResolvedScalar {
    match text {
        "~" | "null" | "Null" | "NULL" => ResolvedScalar::Null,
        "true" | "True" | "TRUE" => ResolvedScalar::Bool(true),
        "false" | "False" | "FALSE" => ResolvedScalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => ResolvedScalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            ResolvedScalar::Float(f64::INFINITY)
        }
        "-.inf" | "-.Inf" | "-.INF" => ResolvedScalar::Float(f64::NEG_INFINITY),
        _ if dialect == YamlDialect::V2 => {
            old_bool(text).map_or(ResolvedScalar::Str, ResolvedScalar::Bool)
        }
        _ => ResolvedScalar::Str,
    }
}

/// Reads a word that only YAML 1.1 takes for a boolean, such as `yes`. `None` if it is another word.
pub(crate) fn old_bool(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

fn number(dialect: YamlDialect, text: &str) -> ResolvedScalar {
    let without;
    let plain = if text.contains('_') {
        without = text.replace('_', "");
        without.as_str()
    } else {
        text
    };
    if let Some(found) = int(plain) {
        return found;
    }
    if let ResolvedScalar::Float(float) = float(plain) {
        return ResolvedScalar::Float(float);
    }
    // Parity(go-yaml v2): what follows `0b` is parsed as a number of its own, so a second sign is allowed:
    // `0b-101` is -5.
    // Version 3 does the same for `0o`.
    let (rest, base) = match (plain.strip_prefix("0b"), plain.strip_prefix("0o")) {
        (Some(rest), _) => (rest, 2),
        (None, Some(rest)) if dialect == YamlDialect::V3 => (rest, 8),
        (None, _) => return ResolvedScalar::Str,
    };
    signed(rest, base).unwrap_or(ResolvedScalar::Str)
}

/// Reads a whole number like Go's `ParseInt` and then `ParseUint` with base 0: a prefix or a leading zero names the
/// base. `None` if the text is not a whole number in range.
fn int(plain: &str) -> Option<ResolvedScalar> {
    let (sign, unsigned) = match plain.as_bytes() {
        [b'+' | b'-', ..] => plain.split_at(1),
        _ => ("", plain),
    };
    let (digits, base) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (&unsigned[2..], 16),
        [b'0', b'o' | b'O', _, ..] => (&unsigned[2..], 8),
        [b'0', b'b' | b'B', _, ..] => (&unsigned[2..], 2),
        [b'0'] => (unsigned, 10),
        [b'0', ..] => (&unsigned[1..], 8),
        _ => (unsigned, 10),
    };
    with_sign(sign, digits, base)
}

fn signed(text: &str, base: u32) -> Option<ResolvedScalar> {
    match text.as_bytes() {
        [b'+' | b'-', ..] => with_sign(&text[..1], &text[1..], base),
        _ => with_sign("", text, base),
    }
}

fn with_sign(sign: &str, digits: &str, base: u32) -> Option<ResolvedScalar> {
    // `from_str_radix` takes a sign of its own; Go has taken it already.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let size = u64::from_str_radix(digits, base).ok()?;
    match sign {
        "-" => 0i64.checked_sub_unsigned(size).map(ResolvedScalar::Int),
        _ => match i64::try_from(size) {
            Ok(int) => Some(ResolvedScalar::Int(int)),
            // Parity(go-yaml v2): `ParseUint` knows no sign, so a large `+…` becomes a float.
            Err(_) if sign.is_empty() => Some(ResolvedScalar::Uint(size)),
            Err(_) => None,
        },
    }
}

/// A float in the form `[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?`, or a string: also when it is too
/// large, which is an error to Go's parser.
fn float(plain: &str) -> ResolvedScalar {
    // Rust reads the words `inf` and `nan` too; the form has no such letters.
    let form = |byte: u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    if !plain.bytes().all(form) {
        return ResolvedScalar::Str;
    }
    match plain.parse::<f64>() {
        Ok(float) if float.is_finite() => ResolvedScalar::Float(float),
        _ => ResolvedScalar::Str,
    }
}

/// Whether every underscore stands between two digits.
fn separates_digits(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_').all(|(at, _)| {
        let before = at.checked_sub(1).and_then(|i| bytes.get(i));
        before.is_some_and(u8::is_ascii_digit) && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)
    })
}

#[cfg(test)]
mod tests;
