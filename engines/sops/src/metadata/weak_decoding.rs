//! Decodes members of metadata as weakly as sops: a number is accepted where a string is expected, and vice versa.

use std::collections::BTreeMap;

use golang::strconv::{self, FloatTextFormat, format_float};

use crate::value::{MapItem, MapItemKey, SopsValue};

/// A member that has not the type that is wanted. Displays in the words of sops, without the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WeakDecodingError {
    #[error("'{0}' expected type '{1}', got unconvertible type '{2}'")]
    Type(String, &'static str, &'static str),
    #[error("'{0}' expected a map or struct, got \"{1}\"")]
    NoMap(String, &'static str),
    #[error("'{0}' cannot parse value as '{1}': {2}")]
    Parse(String, &'static str, String),
}

/// A map of members, and its name.
pub(crate) struct WeaklyTypedMap<'i> {
    items: &'i [MapItem],
    name: String,
}

impl<'i> WeaklyTypedMap<'i> {
    pub(crate) fn root(items: &'i [MapItem]) -> Self {
        Self { items, name: String::new() }
    }

    /// The value of the last member with this name, or else of one whose name differs in case. `None` if there is
    /// neither.
    fn get(&self, name: &str) -> Option<&'i SopsValue> {
        let exact = self.items.iter().rev().find(|item| item.is(name));
        let similar = || {
            self.items.iter().find(
                |item| matches!(&item.key, MapItemKey::Text(key) if key.eq_ignore_ascii_case(name)),
            )
        };
        exact.or_else(similar).map(|item| &item.value)
    }

    fn called(&self, name: &str) -> String {
        if self.name.is_empty() { name.to_owned() } else { format!("{}.{name}", self.name) }
    }

    pub(crate) fn text(&self, name: &str) -> Result<String, WeakDecodingError> {
        self.get(name).map_or(Ok(String::new()), |value| text(value, || self.called(name)))
    }

    pub(crate) fn bool(&self, name: &str) -> Result<bool, WeakDecodingError> {
        match self.get(name) {
            None | Some(SopsValue::Null) => Ok(false),
            Some(SopsValue::Bool(truth)) => Ok(*truth),
            Some(SopsValue::Int(int)) => Ok(*int != 0),
            Some(SopsValue::Uint(uint)) => Ok(*uint != 0),
            Some(SopsValue::Float(float)) => Ok(*float != 0.0),
            Some(SopsValue::Text(text)) if text.is_empty() => Ok(false),
            Some(SopsValue::Text(text)) => {
                let text = String::from_utf8_lossy(text);
                strconv::parse_bool(&text).map_err(|error| {
                    let problem = format!("strconv.ParseBool: {}", error.reason);
                    WeakDecodingError::Parse(self.called(name), "bool", problem)
                })
            }
            Some(other) => Err(WeakDecodingError::Type(self.called(name), "bool", go_type(other))),
        }
    }

    pub(crate) fn int(&self, name: &str) -> Result<i64, WeakDecodingError> {
        match self.get(name) {
            None | Some(SopsValue::Null) => Ok(0),
            Some(SopsValue::Bool(truth)) => Ok(i64::from(*truth)),
            Some(SopsValue::Int(int)) => Ok(*int),
            Some(SopsValue::Uint(uint)) => Ok(i64::try_from(*uint).unwrap_or(i64::MAX)),
            #[expect(clippy::cast_possible_truncation, reason = "Go cuts off the fraction too")]
            Some(SopsValue::Float(float)) => Ok(*float as i64),
            Some(SopsValue::Text(text)) if text.is_empty() => Ok(0),
            Some(SopsValue::Text(text)) => {
                let text = String::from_utf8_lossy(text);
                strconv::parse_int(&text, 0, 64).map_err(|error| {
                    let problem = format!("strconv.ParseInt: {}", error.reason);
                    WeakDecodingError::Parse(self.called(name), "int", problem)
                })
            }
            Some(other) => Err(WeakDecodingError::Type(self.called(name), "int", go_type(other))),
        }
    }

    /// The maps of a list. A single value counts as a list of one item.
    pub(crate) fn maps(&self, name: &str) -> Result<Vec<Self>, WeakDecodingError> {
        let values = match self.get(name) {
            None | Some(SopsValue::Null) => return Ok(Vec::new()),
            Some(SopsValue::Map(items)) if items.is_empty() => return Ok(Vec::new()),
            Some(SopsValue::List(values)) => values.as_slice(),
            Some(other) => std::slice::from_ref(other),
        };
        let values = values.iter().filter(|value| !matches!(value, SopsValue::Comment(_)));
        let map = |(at, value): (usize, &'i SopsValue)| {
            let name = format!("{}[{at}]", self.called(name));
            match value {
                SopsValue::Map(items) => Ok(WeaklyTypedMap { items, name }),
                SopsValue::Null => Ok(WeaklyTypedMap { items: &[], name }),
                other => Err(WeakDecodingError::NoMap(name, kind(other))),
            }
        };
        values.enumerate().map(map).collect()
    }

    /// The strings of a map.
    pub(crate) fn strings(
        &self,
        name: &str,
    ) -> Result<BTreeMap<String, String>, WeakDecodingError> {
        let items = match self.get(name) {
            None | Some(SopsValue::Null) => return Ok(BTreeMap::new()),
            Some(SopsValue::Map(items)) => items,
            Some(other) => return Err(WeakDecodingError::NoMap(self.called(name), kind(other))),
        };
        let mut strings = BTreeMap::new();
        for item in items {
            if let MapItemKey::Text(key) = &item.key {
                let called = || format!("{}[{key}]", self.called(name));
                strings.insert(key.clone(), text(&item.value, called)?);
            }
        }
        Ok(strings)
    }
}

fn text(value: &SopsValue, called: impl Fn() -> String) -> Result<String, WeakDecodingError> {
    Ok(match value {
        SopsValue::Null => String::new(),
        SopsValue::Text(text) => String::from_utf8_lossy(text).into_owned(),
        SopsValue::Bool(truth) => if *truth { "1" } else { "0" }.to_owned(),
        SopsValue::Int(int) => int.to_string(),
        SopsValue::Uint(uint) => uint.to_string(),
        SopsValue::Float(float) => format_float(*float, FloatTextFormat::Fixed, None),
        other => return Err(WeakDecodingError::Type(called(), "string", go_type(other))),
    })
}

/// The type that sops' decoder sees.
fn go_type(value: &SopsValue) -> &'static str {
    match value {
        SopsValue::Map(_) => "map[string]interface {}",
        other => other.type_name(),
    }
}

/// Go's word for the kind of a value.
fn kind(value: &SopsValue) -> &'static str {
    match value {
        SopsValue::Map(_) => "map",
        SopsValue::List(_) => "slice",
        SopsValue::Time(_) => "struct",
        other => other.type_name(),
    }
}
