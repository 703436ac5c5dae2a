//! Hides the values of a Secret in a shown difference, but shows which of them changed.
//!
//! Here: masking two versions of a Secret. Elsewhere: strings that must never be shown (`objects`).
//!
//! Source of the semantics: fluxcd/pkg/ssa 0.76 `SanitizeUnstructuredData`.

use serde_json::{Map, Value};

const SAME: &str = "***";
const BEFORE: &str = "*** (before)";
const AFTER: &str = "*** (after)";

/// The data of one version is not a map, so nothing was masked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unable to get data from {which} object: .data accessor error: {shown} is of the type {go_type}, expected map[string]interface{{}}"
)]
pub struct SecretMaskError {
    which: &'static str,
    /// Parity(flux): the value itself; what holds a Secret's values is a map and never comes here.
    shown: String,
    go_type: &'static str,
}

/// Replaces every value of `data` by stars. Values that differ get a note which says which is the old and which the new
/// one.
///
/// # Errors
/// A version has a `data` that is not a map. Neither version is changed then.
pub fn mask(
    old: &mut Map<String, Value>,
    new: &mut Map<String, Value>,
) -> Result<(), SecretMaskError> {
    check("old", old)?;
    check("new", new)?;
    let mut before = take(old);
    let mut after = take(new);
    if let Some(before) = &mut before {
        for (key, value) in before.iter_mut() {
            let theirs = after.as_mut().and_then(|after| after.get_mut(key));
            let differs = theirs.as_ref().is_some_and(|theirs| **theirs != *value);
            *value = if differs { BEFORE } else { SAME }.into();
            if let Some(theirs) = theirs {
                *theirs = if differs { AFTER } else { SAME }.into();
            }
        }
    }
    if let Some(after) = &mut after {
        let known = |key: &String| before.as_ref().is_some_and(|before| before.contains_key(key));
        for (_, value) in after.iter_mut().filter(|(key, _)| !known(key)) {
            *value = SAME.into();
        }
    }
    for (object, data) in [(old, before), (new, after)] {
        if let Some(data) = data {
            object.insert("data".to_owned(), data.into());
        }
    }
    Ok(())
}

fn take(object: &mut Map<String, Value>) -> Option<Map<String, Value>> {
    match object.remove("data") {
        Some(Value::Object(data)) => Some(data),
        _ => None,
    }
}

fn check(which: &'static str, object: &Map<String, Value>) -> Result<(), SecretMaskError> {
    let (shown, go_type) = match object.get("data") {
        None | Some(Value::Object(_)) => return Ok(()),
        Some(Value::Null) => ("<nil>".to_owned(), "<nil>"),
        Some(Value::Bool(value)) => (value.to_string(), "bool"),
        Some(Value::Number(value)) if value.is_i64() => (value.to_string(), "int64"),
        Some(Value::Number(value)) => (value.to_string(), "float64"),
        Some(Value::String(value)) => (value.clone(), "string"),
        Some(Value::Array(_)) => ("a list".to_owned(), "[]interface {}"),
    };
    Err(SecretMaskError { which, shown, go_type })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_of_a_value_is_left_and_changes_are_marked() {
        let mut old = json!({"data": {"same": "x", "changed": "a", "gone": "g"}});
        let mut new = json!({"data": {"same": "x", "changed": "b", "new": "n"}});
        let (Some(one), Some(two)) = (old.as_object_mut(), new.as_object_mut()) else { return };
        assert_eq!(mask(one, two), Ok(()));
        let want = json!({"data": {"same": "***", "changed": "*** (before)", "gone": "***"}});
        assert_eq!(old, want);
        let want = json!({"data": {"same": "***", "changed": "*** (after)", "new": "***"}});
        assert_eq!(new, want);
    }

    #[test]
    fn data_that_is_no_map_is_refused_before_anything_changes() {
        let mut old = json!({"data": {"a": "x"}});
        let mut new = json!({"data": [1]});
        let (Some(one), Some(two)) = (old.as_object_mut(), new.as_object_mut()) else { return };
        assert!(mask(one, two).unwrap_err().to_string().starts_with("unable to get data from new"));
        assert_eq!(old, json!({"data": {"a": "x"}}));
    }
}
