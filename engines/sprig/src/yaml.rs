//! YAML read into Go's values, as `sigs.k8s.io/yaml` reads it into an `interface {}`.
//!
//! Elsewhere: the functions of templates (`functions/yaml.rs`), reading YAML (`goyaml`).

use golang::Value;
use golang::value::{List, Map, Str, Type};
use serde_json::{Number, Value as Json};

/// Reads the first document of a text; nil without one.
///
/// # Errors
/// As [`goyaml::to_json`].
pub fn read_yaml(text: &[u8]) -> Result<Value, goyaml::Error> {
    goyaml::to_value::<Values>(text)
}

/// Makes what [`Value::from_json`] makes of the same.
struct Values;

impl goyaml::Maker for Values {
    type Value = Value;
    type Key = Str;

    fn null() -> Value {
        Value::Nil
    }

    fn bool(truth: bool) -> Value {
        Value::Bool(truth)
    }

    #[expect(clippy::cast_precision_loss, reason = "Go's numbers of JSON are floats")]
    fn int(int: i64) -> Value {
        Value::Float(int as f64)
    }

    #[expect(clippy::cast_precision_loss, reason = "Go's numbers of JSON are floats")]
    fn uint(uint: u64) -> Value {
        Value::Float(uint as f64)
    }

    fn number(number: Number) -> Value {
        Value::Float(number.as_f64().unwrap_or_default())
    }

    fn text(text: &str) -> Value {
        Value::from(text)
    }

    fn list(items: Vec<Value>) -> Value {
        Value::List(List::decoded(items))
    }

    fn map(entries: Vec<(Str, Value)>) -> Value {
        Value::Map(Map::new(Type::Any, entries))
    }

    fn key(key: &str) -> Str {
        key.into()
    }

    fn json(json: Json) -> Value {
        Value::from_json(&json)
    }
}

#[cfg(test)]
mod tests {
    use golang::Value;
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
            if let (Value::Map(read), Value::Map(wanted)) = (&read, &Value::from_json(&json)) {
                let capacities = |map: &golang::value::Map| -> Vec<usize> {
                    let lists = map.entries().into_iter();
                    lists.map(|(_, value)| capacity(&value)).collect()
                };
                assert_eq!(capacities(read), capacities(wanted), "{text}");
            }
            assert_eq!(shown(read), shown(Value::from_json(&json)), "{text}");
        }
    }

    fn capacity(value: &Value) -> usize {
        if let Value::List(list) = value { list.capacity() } else { 0 }
    }
}
