//! Compiles the label selectors of specs, so that they can be compared with labels.
//!
//! Elsewhere: selectors as text (`objects::LabelSelector`), and the selectors of Lifecycles (crate `windlass-runtime`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Compiles a label selector. It is written as text and parsed again, because the parser checks which keys and values are
/// valid.
///
/// # Errors
/// The selector is not valid. The message says which part.
pub fn compiled(selector: &LabelSelector) -> Result<objects::LabelSelector, String> {
    let mut requirements = Vec::new();
    for (key, value) in selector.match_labels.iter().flatten() {
        requirements.push(format!("{}={}", label_key(key)?, word(value)?));
    }
    for expression in selector.match_expressions.iter().flatten() {
        let key = label_key(&expression.key)?;
        let values = expression.values.as_deref().unwrap_or_default();
        let listed = || {
            if values.is_empty() {
                let why = "for 'in', 'notin' operators, values set can't be empty";
                return Err(format!("values: Invalid value: null: {why}"));
            }
            let words = values.iter().map(|value| word(value)).collect::<Result<Vec<_>, _>>()?;
            Ok(words.join(","))
        };
        requirements.push(match expression.operator.as_str() {
            "In" => format!("{key} in ({})", listed()?),
            "NotIn" => format!("{key} notin ({})", listed()?),
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                return Err("values set must be empty for exists and does not exist".to_owned());
            }
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            other => return Err(format!("{other:?} is not a valid label selector operator")),
        });
    }
    objects::LabelSelector::parse(&requirements.join(","))
}

/// Checks the key of a requirement, which must not be empty.
fn label_key(text: &str) -> Result<&str, String> {
    word(text).and_then(|key| match key.is_empty() {
        true => Err("key: Invalid value: \"\": name part must be non-empty".to_owned()),
        false => Ok(key),
    })
}

/// Checks that a key or value has no character that would split it into several in the text of a selector.
fn word(text: &str) -> Result<&str, String> {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    match text.chars().all(is_of_word) {
        true => Ok(text),
        false => Err(format!("Invalid value: {text:?}: it is not the key or value of a label")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(selector: Value) -> Result<objects::LabelSelector, String> {
        compiled(&serde_json::from_value(selector).unwrap())
    }

    #[test]
    fn all_parts_of_a_selector_count() {
        let selector = read(json!({"matchLabels": {"tier": "front"},
            "matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["test"]}]}));
        let selector = selector.unwrap();
        let selects = |labels: &[(&str, &'static str)]| {
            selector.selects(|key| {
                labels.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
            })
        };
        assert!(selects(&[("tier", "front")]) && selects(&[("tier", "front"), ("env", "prod")]));
        assert!(!selects(&[("env", "prod")]) && !selects(&[("tier", "front"), ("env", "test")]));
    }

    #[test]
    fn no_value_becomes_a_requirement_of_its_own() {
        let error = read(json!({"matchLabels": {"tier": "front,env!=prod"}})).unwrap_err();
        assert!(error.starts_with("Invalid value: \"front,env!=prod\""), "{error}");
    }
}
