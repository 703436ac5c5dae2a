//! Compares objects with the form in which the API server stores them under a CustomResourceDefinition.

use serde_json::Value;

/// Whether a value contains all fields and items of another.
///
/// A null counts as an absent field: where null is not allowed, the API server drops the field or sets its default.
pub fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (_, Value::Null) => true,
        (Value::Object(_), Value::Object(part)) => {
            part.iter().all(|(key, part)| contains(&whole[key], part))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(a, b)| contains(a, b))
        }
        (whole, part) => whole == part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_that_lost_a_field_does_not_have_all_of_the_other() {
        let part = json!({"a": [{"b": 1}], "c": "x"});
        assert!(contains(&json!({"a": [{"b": 1, "d": 2}], "c": "x", "e": 0}), &part));
        assert!(!contains(&json!({"a": [{}], "c": "x"}), &part));
        assert!(!contains(&json!({"a": [{"b": 1}]}), &part));
        assert!(contains(&json!({"a": "default"}), &json!({"a": null, "b": null})));
    }
}
