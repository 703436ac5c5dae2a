//! Converts JSON to values.
//!
//! No function recurses, because a value that was read from YAML can be nested deeply.

use serde_json::{Map as JsonMap, Value as Json};

use super::{GoRuntimeValue, GoSlice, GoString, GoType};

/// A list or map that is being decoded.
enum OpenDecodeContainer<'a> {
    List(std::slice::Iter<'a, Json>, Vec<GoRuntimeValue>),
    Map(
        <&'a JsonMap<String, Json> as IntoIterator>::IntoIter,
        &'a str,
        Vec<(GoString, GoRuntimeValue)>,
    ),
}

impl<'a> OpenDecodeContainer<'a> {
    /// Stores the value that was requested last, if there was one, and requests the next one. `None` if no value is
    /// left.
    fn next(&mut self, done: Option<GoRuntimeValue>) -> Option<&'a Json> {
        match self {
            Self::List(rest, items) => {
                items.extend(done);
                rest.next()
            }
            Self::Map(rest, key, entries) => {
                entries.extend(done.map(|value| (GoString::from(*key), value)));
                let (next_key, next) = rest.next()?;
                *key = next_key;
                Some(next)
            }
        }
    }

    fn close(self) -> GoRuntimeValue {
        match self {
            Self::List(_, items) => GoRuntimeValue::List(GoSlice::decoded(items)),
            Self::Map(_, _, entries) => GoRuntimeValue::map(entries),
        }
    }
}

impl GoSlice {
    /// A `[]interface {}` with the capacity that Go's JSON decoder gives it.
    pub fn decoded(items: Vec<GoRuntimeValue>) -> Self {
        let capacity = if items.is_empty() { 0 } else { items.len().next_power_of_two() };
        Self::with_capacity(GoType::Any, items, capacity)
    }
}

pub(super) fn decoded(json: &Json) -> GoRuntimeValue {
    let mut open = Vec::new();
    let mut next = json;
    loop {
        let mut done = match next {
            Json::Array(items) => {
                open.push(OpenDecodeContainer::List(items.iter(), Vec::with_capacity(items.len())));
                None
            }
            Json::Object(map) => {
                open.push(OpenDecodeContainer::Map(map.iter(), "", Vec::with_capacity(map.len())));
                None
            }
            Json::Null => Some(GoRuntimeValue::Nil),
            Json::Bool(truth) => Some(GoRuntimeValue::Bool(*truth)),
            Json::Number(number) => {
                Some(GoRuntimeValue::Float(number.as_f64().unwrap_or_default()))
            }
            Json::String(text) => Some(GoRuntimeValue::from(text.as_str())),
        };
        next = loop {
            let Some(innermost) = open.last_mut() else { return done.unwrap_or_default() };
            match innermost.next(done.take()) {
                Some(json) => break json,
                None => done = open.pop().map(OpenDecodeContainer::close),
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use crate::GoRuntimeValue;
    use crate::fmt::sprintf;

    #[test]
    fn json_becomes_what_go_decodes() {
        let value =
            GoRuntimeValue::from_json(&json!({"b": [1, [], {"c": null}], "a": {}, "d": "x"}));
        let text = sprintf("%#v", &[value]).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"map[string]interface {}{"a":map[string]interface {}{}, "b":[]interface {}{1, []interface {}{}, map[string]interface {}{"c":interface {}(nil)}}, "d":"x"}"#
        );
        assert_eq!(sprintf("%v", &[GoRuntimeValue::from_json(&json!(5))]).unwrap(), b"5");
    }

    #[test]
    fn values_nested_without_end_are_decoded_without_the_stack() {
        let mut json = Json::Null;
        for _ in 0..200_000 {
            json = Json::Array(vec![json]);
        }
        drop(GoRuntimeValue::from_json(&json));
        // Dropping the whole value at once would recurse.
        while let Json::Array(mut items) = json {
            json = items.pop().unwrap_or_default();
        }
    }
}
