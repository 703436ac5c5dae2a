//! The API types of Kubernetes 1.36, as Go's client knows them.
//!
//! Here: reading the table. Elsewhere: the use of the types ([`super::typed_round_trip`]), and the program that writes the
//! table (`e2e/testbed/types`, which says how to run it).

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The form that a JSON value must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JsonFieldType {
    Text,
    Bool,
    Int32,
    Int64,
    Byte,
    Float,
    /// Bytes, in Base64.
    Bytes,
    Any,
    /// Any value. It is kept unchanged.
    Raw,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    Duration,
    Pointer(Box<Self>),
    List(Box<Self>),
    Map(Box<Self>),
    /// A struct, by its index in the table.
    Struct(usize),
}

/// A field of a struct.
#[derive(Debug)]
pub(super) struct StructField {
    pub(super) name: &'static str,
    pub(super) omit_empty: bool,
    pub(super) omit_zero: bool,
    pub(super) shape: JsonFieldType,
}

/// The kinds, and the structs of which they consist.
#[derive(Debug)]
pub(super) struct BuiltinTypeTable {
    kinds: BTreeMap<(&'static str, &'static str), usize>,
    structs: Vec<Vec<StructField>>,
}

pub(super) static TABLE: LazyLock<BuiltinTypeTable> =
    LazyLock::new(|| read(include_str!("types.txt")));

impl BuiltinTypeTable {
    /// The index of the struct that describes objects of a kind. `None` if the kind is not built in.
    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<usize> {
        self.kinds.get(&(api_version, kind)).copied()
    }

    pub(super) fn fields(&self, number: usize) -> &[StructField] {
        self.structs.get(number).map_or(&[], Vec::as_slice)
    }
}

/// A line that begins with `@` is an API version with its kinds, each followed by the number of its struct. Every other
/// line is the next struct: fields as `name:shape`, with `?` where an empty one is left out, `!` where a zero one is.
fn read(text: &'static str) -> BuiltinTypeTable {
    let mut table = BuiltinTypeTable { kinds: BTreeMap::new(), structs: Vec::new() };
    for line in text.lines() {
        let Some(line) = line.strip_prefix('@') else {
            table.structs.push(line.split_whitespace().filter_map(field).collect());
            continue;
        };
        let mut words = line.split_whitespace();
        let version = words.next().unwrap_or_default();
        while let (Some(kind), Some(number)) = (words.next(), words.next()) {
            if let Ok(number) = number.parse() {
                table.kinds.insert((version, kind), number);
            }
        }
    }
    table
}

fn field(word: &'static str) -> Option<StructField> {
    let (name, code) = word.split_once(':')?;
    let omit_zero = name.ends_with('!');
    let name = name.strip_suffix('!').unwrap_or(name);
    let omit_empty = name.ends_with('?');
    let name = name.strip_suffix('?').unwrap_or(name);
    Some(StructField { name, omit_empty, omit_zero, shape: shape(code)? })
}

fn shape(code: &str) -> Option<JsonFieldType> {
    let mut letters = code.chars();
    let inner = |letters: std::str::Chars<'_>| shape(letters.as_str()).map(Box::new);
    Some(match letters.next()? {
        's' => JsonFieldType::Text,
        'b' => JsonFieldType::Bool,
        'i' => JsonFieldType::Int32,
        'l' => JsonFieldType::Int64,
        'y' => JsonFieldType::Byte,
        'f' => JsonFieldType::Float,
        'B' => JsonFieldType::Bytes,
        'X' => JsonFieldType::Any,
        'R' => JsonFieldType::Raw,
        'Q' => JsonFieldType::Quantity,
        'I' => JsonFieldType::IntOrString,
        'T' => JsonFieldType::Time,
        'M' => JsonFieldType::MicroTime,
        'D' => JsonFieldType::Duration,
        '*' => JsonFieldType::Pointer(inner(letters)?),
        '[' => JsonFieldType::List(inner(letters)?),
        '{' => JsonFieldType::Map(inner(letters)?),
        _ => JsonFieldType::Struct(code.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_table_is_read() {
        let words = include_str!("types.txt").lines().filter(|line| !line.starts_with('@'));
        let words: usize = words.map(|line| line.split_whitespace().count()).sum();
        assert_eq!(TABLE.structs.iter().map(Vec::len).sum::<usize>(), words);
        let count = TABLE.structs.len();
        assert!(TABLE.kinds.values().all(|number| *number < count));
        for field in TABLE.structs.iter().flatten() {
            let mut shape = &field.shape;
            while let JsonFieldType::Pointer(of)
            | JsonFieldType::List(of)
            | JsonFieldType::Map(of) = shape
            {
                shape = of;
            }
            assert!(
                !matches!(shape, JsonFieldType::Struct(number) if *number >= count),
                "{}",
                field.name
            );
        }
        assert!(TABLE.kind("apps/v1", "Deployment").is_some());
        assert!(TABLE.kind("acme.io/v1", "Deployment").is_none());
    }
}
