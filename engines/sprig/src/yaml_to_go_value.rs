//! Reads YAML into Go's values, like `sigs.k8s.io/yaml` reads it into an `interface {}`.
//! Elsewhere: the template functions (`functions/yaml.rs`), reading YAML (`goyaml`).

use golang::GoRuntimeValue;
use golang::value::{GoMap, GoSlice, GoString, GoType};
use serde_json::{Number, Value as Json};

/// Reads the first document of a text; nil if there is none.
///
/// # Errors
/// As [`goyaml::to_json`].
pub fn read_yaml(text: &[u8]) -> Result<GoRuntimeValue, goyaml::Error> {
    goyaml::to_value::<GoValueBuilder>(text)
}

/// Builds the same values as [`Value::from_json`].
struct GoValueBuilder;

impl goyaml::ValueBuilder for GoValueBuilder {
    type Value = GoRuntimeValue;
    type Key = GoString;

    fn null() -> GoRuntimeValue {
        GoRuntimeValue::Nil
    }

    fn bool(truth: bool) -> GoRuntimeValue {
        GoRuntimeValue::Bool(truth)
    }

    #[expect(clippy::cast_precision_loss, reason = "Go's numbers of JSON are floats")]
    fn int(int: i64) -> GoRuntimeValue {
        GoRuntimeValue::Float(int as f64)
    }

    #[expect(clippy::cast_precision_loss, reason = "Go's numbers of JSON are floats")]
    fn uint(uint: u64) -> GoRuntimeValue {
        GoRuntimeValue::Float(uint as f64)
    }

    fn number(number: Number) -> GoRuntimeValue {
        GoRuntimeValue::Float(number.as_f64().unwrap_or_default())
    }

    fn text(text: &str) -> GoRuntimeValue {
        GoRuntimeValue::from(text)
    }

    fn list(items: Vec<GoRuntimeValue>) -> GoRuntimeValue {
        GoRuntimeValue::List(GoSlice::decoded(items))
    }

    fn map(entries: Vec<(GoString, GoRuntimeValue)>) -> GoRuntimeValue {
        GoRuntimeValue::Map(GoMap::new(GoType::Any, entries))
    }

    fn key(key: &str) -> GoString {
        key.into()
    }

    fn json(json: Json) -> GoRuntimeValue {
        GoRuntimeValue::from_json(&json)
    }
}

#[cfg(test)]
mod tests {
    use golang::GoRuntimeValue;
    use golang::fmt::sprintf;

    use super::read_yaml;

    #[test]
    fn what_is_read_is_what_json_would_have_become() {
        for text in [
            "a: [1, 2, 3]\nb: 1.5\nc: {d: yes, e: ~}\nf: 18446744073709551615\ng: |\n  h\n",
            "a:\n- b\n- c\n-\nd:\n",
            "[a, b]",
            "a: &b [c]\nd: *b\n",
            "",
        ] {
            let json = goyaml::to_json(text.as_bytes()).unwrap();
            let shown = |value| sprintf("%#v", &[value]).unwrap();
            let read = read_yaml(text.as_bytes()).unwrap();
            if let (GoRuntimeValue::Map(read), GoRuntimeValue::Map(wanted)) =
                (&read, &GoRuntimeValue::from_json(&json))
            {
                let capacities = |map: &golang::value::GoMap| -> Vec<usize> {
                    let lists = map.entries().into_iter();
                    lists.map(|(_, value)| capacity(&value)).collect()
                };
                assert_eq!(capacities(read), capacities(wanted), "{text}");
            }
            assert_eq!(shown(read), shown(GoRuntimeValue::from_json(&json)), "{text}");
        }
    }

    fn capacity(value: &GoRuntimeValue) -> usize {
        if let GoRuntimeValue::List(list) = value { list.capacity() } else { 0 }
    }
}
