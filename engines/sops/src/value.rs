//! The tree that all formats are read into and written from.
//!
//! Here: values, and their text for formats that have only strings. Elsewhere: the formats (`store`), decrypting
//! (`tree_decryption`).

use std::fmt;

use golang::strconv::{FloatTextFormat, format_float};
use zeroize::Zeroizing;

/// Bytes that may be secret. They need not be UTF-8, like Go's strings.
pub(crate) type SecretBytes = Zeroizing<Vec<u8>>;

/// A comment without its first character.
#[derive(Clone)]
pub(crate) struct SopsComment {
    pub(crate) text: SecretBytes,
    /// Whether the comment is after a value on the same line, instead of above the value.
    pub(crate) inline: bool,
}

/// A value of a tree.
///
/// The nesting is at most [`crate::SopsLimits::MAX_DEPTH`], so that recursion is safe.
#[derive(Clone)]
pub(crate) enum SopsValue {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer above `i64::MAX`. It can be read, but encrypted files never contain it.
    Uint(u64),
    Float(f64),
    /// A time in the form of RFC 3339. It may have a fraction.
    Time(String),
    Text(SecretBytes),
    Comment(SopsComment),
    Map(Vec<MapItem>),
    List(Vec<Self>),
}

/// An entry of a map. A key may occur twice, and comments are entries, too.
#[derive(Clone)]
pub(crate) struct MapItem {
    pub(crate) key: MapItemKey,
    pub(crate) value: SopsValue,
}

/// The key of an entry.
#[derive(Clone)]
pub(crate) enum MapItemKey {
    Text(String),
    /// The entry is a comment, its value is null.
    Comment(SopsComment),
    /// A key that is not text, with Go's name of its type.
    Other(&'static str),
}

impl MapItem {
    pub(crate) fn text(key: impl Into<String>, value: SopsValue) -> Self {
        Self { key: MapItemKey::Text(key.into()), value }
    }

    pub(crate) fn comment(text: &[u8], inline: bool) -> Self {
        let comment = SopsComment { text: Zeroizing::new(text.to_vec()), inline };
        Self { key: MapItemKey::Comment(comment), value: SopsValue::Null }
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(&self.key, MapItemKey::Text(key) if key == name)
    }
}

impl SopsValue {
    pub(crate) fn from_text(text: impl AsRef<[u8]>) -> Self {
        Self::Text(Zeroizing::new(text.as_ref().to_vec()))
    }

    /// Go's name of its type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "<nil>",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint64",
            Self::Float(_) => "float64",
            Self::Time(_) => "time.Time",
            Self::Text(_) => "string",
            Self::Comment(_) => "sops.Comment",
            Self::Map(_) => "sops.TreeBranch",
            Self::List(_) => "[]interface {}",
        }
    }

    pub(crate) fn is_collection(&self) -> bool {
        matches!(self, Self::Map(_) | Self::List(_))
    }

    /// The text of a scalar in formats that know only text.
    pub(crate) fn shown(&self) -> SecretBytes {
        let text = match self {
            Self::Text(text) => return text.clone(),
            Self::Comment(comment) => return comment.text.clone(),
            Self::Bool(truth) => truth.to_string(),
            Self::Int(int) => int.to_string(),
            Self::Uint(uint) => uint.to_string(),
            Self::Float(float) => shown_float(*float),
            Self::Time(time) => without_fraction(time),
            Self::Null | Self::Map(_) | Self::List(_) => "<nil>".to_owned(),
        };
        Zeroizing::new(text.into_bytes())
    }
}

/// The shortest text of a float. It has a fraction if it could be mistaken for an integer.
fn shown_float(float: f64) -> String {
    let text = format_float(float, FloatTextFormat::General, None).replace('e', "E");
    if text.contains(['.', 'E']) {
        text
    } else {
        format_float(float, FloatTextFormat::Fixed, Some(1))
    }
}

fn without_fraction(time: &str) -> String {
    let Some((whole, rest)) = time.split_once('.') else { return time.to_owned() };
    let zone = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
    format!("{whole}{zone}")
}

impl fmt::Debug for SopsValue {
    /// Shows only the type, because the value may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.type_name())
    }
}

impl fmt::Debug for MapItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            MapItemKey::Text(key) => write!(f, "{key}: {:?}", self.value),
            MapItemKey::Comment(_) => f.write_str("# …"),
            MapItemKey::Other(name) => write!(f, "({name}): {:?}", self.value),
        }
    }
}
