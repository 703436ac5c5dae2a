//! State values: merging maps, and setting one value in a map.
//!
//! There are two merges: mergo's merge within one list of values ([`overlay`]), and helmfile's merge of layers ([`merge`]).

use serde_json::Value;

use crate::error::Result;

/// A map of plain values.
pub(crate) type ValuesMap = serde_json::Map<String, Value>;

/// How lists of two layers are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListMergeMode {
    /// A list that contains a null is merged item by item, and a null keeps the earlier item. Any other list replaces the
    /// earlier one.
    Sparse,
    /// Every list is merged item by item.
    Items,
}

/// Merges a later layer into an earlier one. A null keeps the existing value.
pub(crate) fn merge(base: &mut ValuesMap, over: &ValuesMap, lists: ListMergeMode) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(_), Value::Null) => {}
            (Some(Value::Object(known)), Value::Object(value)) => merge(known, value, lists),
            (Some(Value::Array(known)), Value::Array(value)) => merge_lists(known, value, lists),
            (Some(known), value) => known.clone_from(value),
            (None, value) => drop(base.insert(key.clone(), value.clone())),
        }
    }
}

fn merge_lists(base: &mut Vec<Value>, over: &[Value], lists: ListMergeMode) {
    if lists == ListMergeMode::Sparse && !over.iter().any(Value::is_null) {
        *base = over.to_vec();
        return;
    }
    for (index, value) in over.iter().enumerate() {
        match (base.get_mut(index), value) {
            (Some(_), Value::Null) => {}
            (Some(Value::Object(known)), Value::Object(value)) => merge(known, value, lists),
            (Some(known), value) => known.clone_from(value),
            (None, value) => base.push(value.clone()),
        }
    }
}

/// Merges a later entry of one list of values. Nulls and empty lists replace the earlier value, but an empty map does not.
pub(crate) fn overlay(base: &mut ValuesMap, over: &ValuesMap) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(value)) => overlay(known, value),
            (Some(known), value) => known.clone_from(value),
            (None, value) => drop(base.insert(key.clone(), value.clone())),
        }
    }
}

/// The most items that an index of `--state-values-set` may ask for.
const MAX_INDEXED_ITEMS: usize = 10_000;

/// Splits a path at its dots into keys. `\.` is a dot within a key.
fn keys(path: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut part = String::new();
    let mut is_escaped = false;
    for character in path.chars() {
        match character {
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            '.' if !is_escaped => keys.push(std::mem::take(&mut part)),
            other => part.push(other),
        }
        is_escaped = false;
    }
    if !part.is_empty() {
        keys.push(part);
    }
    keys
}

/// A key and, behind `[` and `]`, an index.
fn cursor(key: &str) -> (String, Option<usize>) {
    let spaced = key.replace(['[', ']'], " ");
    let mut words = spaced.split_whitespace();
    match (words.next(), words.next().and_then(|word| word.parse().ok())) {
        (Some(name), Some(index)) => (name.to_owned(), Some(index)),
        _ => (spaced, None),
    }
}

/// The position of a key in a map. If there is an index, the position of that item.
fn slot<'m>(map: &'m mut ValuesMap, key: &str) -> Result<&'m mut Value> {
    let (name, index) = cursor(key);
    let place = map.entry(name.clone()).or_insert(Value::Null);
    let Some(index) = index else { return Ok(place) };
    if index >= MAX_INDEXED_ITEMS {
        return Err(format!("{key}: an index may be {MAX_INDEXED_ITEMS} at most").into());
    }
    if place.is_null() {
        *place = Value::Array(Vec::new());
    }
    let Value::Array(items) = place else {
        return Err(format!("{name} is not a list").into());
    };
    if items.len() <= index {
        items.resize(index + 1, Value::Null);
    }
    items.get_mut(index).ok_or_else(|| "no such item".into())
}

fn typed(text: &str) -> Value {
    match text.to_ascii_lowercase().as_str() {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "null" => Value::Null,
        "0" => 0.into(),
        _ if text.starts_with('0') => Value::String(text.to_owned()),
        _ => text.parse::<i64>().map_or_else(|_| Value::String(text.to_owned()), Value::from),
    }
}

/// Sets the value at `path` of a map like `--state-values-set`. With `is_string` the value always becomes a string.
pub(crate) fn set(map: &mut ValuesMap, path: &str, text: &str, is_string: bool) -> Result<()> {
    let keys = keys(path);
    let Some((last, parents)) = keys.split_last() else {
        return Err(format!("`{path}={text}` has no key").into());
    };
    let mut map = map;
    for key in parents {
        let place = slot(map, key)?;
        if place.is_null() {
            *place = Value::Object(ValuesMap::new());
        }
        map = match place {
            Value::Object(map) => map,
            _ => return Err(format!("{key} of {path} is not a map").into()),
        };
    }
    *slot(map, last)? = if is_string { Value::String(text.to_owned()) } else { typed(text) };
    Ok(())
}

/// Merges the values of `--state-values-set` over those of `--state-values-set-string`.
///
/// # Errors
/// A part has no `=`. helmfile panics in this case.
pub(crate) fn of_flags(set_flags: &[String], string_flags: &[String]) -> Result<ValuesMap> {
    let mut map = ValuesMap::new();
    for flag in string_flags {
        for (path, text) in pairs(flag) {
            set(&mut map, path, text, true)?;
        }
    }
    let mut over = ValuesMap::new();
    for piece in set_flags.iter().flat_map(|flag| flag.split(',')) {
        let Some((path, text)) = piece.split_once('=') else {
            return Err(format!("--state-values-set: `{piece}` has no `=`").into());
        };
        set(&mut over, path, text, false)?;
    }
    merge(&mut map, &over, ListMergeMode::Sparse);
    Ok(map)
}

/// Splits `--state-values-set-string` into pairs. A quoted value may contain commas, and keeps its quotes.
///
/// Parity(helmfile 1.8): what is between two pairs is ignored.
fn pairs(flag: &str) -> Vec<(&str, &str)> {
    let mut pairs = Vec::new();
    let mut rest = Some(flag);
    while let Some(text) = rest {
        let pair = text.split_once('=').filter(|(key, value)| {
            let is_key = !key.is_empty() && !key.contains(char::is_whitespace);
            is_key && !value.is_empty() && !value.starts_with(',')
        });
        rest = match pair {
            None => text.split_once(',').map(|(_, rest)| rest),
            Some((key, value)) => {
                let quote = value.chars().next().filter(|first| matches!(first, '\'' | '"'));
                let quoted = quote.and_then(|_| value.get(1..)?.find(['\'', '"']).map(|at| at + 2));
                let end = quoted.or_else(|| value.find(',')).unwrap_or(value.len());
                let (value, after) = value.split_at(end);
                pairs.push((key, value));
                after.split_once(',').map(|(_, rest)| rest)
            }
        };
    }
    pairs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> ValuesMap {
        match value {
            Value::Object(map) => map,
            other => panic!("{other} is no map"),
        }
    }

    #[test]
    fn null_keeps_what_is_below_and_lists_without_null_replace() {
        let mut base = map(json!({"a": 1, "l": [1, 2, 3], "s": [{"x": 1}, 2], "m": {"k": 1}}));
        let over = map(json!({"a": null, "l": [9], "s": [null, 5, 6], "m": {"j": 2}, "n": null}));
        merge(&mut base, &over, ListMergeMode::Sparse);
        assert_eq!(
            Value::Object(base),
            json!({"a": 1, "l": [9], "s": [{"x": 1}, 5, 6], "m": {"j": 2, "k": 1}, "n": null})
        );
    }

    #[test]
    fn within_a_list_of_values_null_replaces_and_an_empty_map_does_not() {
        let mut base = map(json!({"a": 1, "l": [1], "m": {"k": 1}, "s": 1}));
        overlay(&mut base, &map(json!({"a": null, "l": [], "m": {}, "s": {"t": 1}})));
        assert_eq!(Value::Object(base), json!({"a": null, "l": [], "m": {"k": 1}, "s": {"t": 1}}));
    }

    #[test]
    fn flags_set_items_and_keep_commas_of_strings() {
        let flags = ["a.b=1,l[2]=x".to_owned(), r"k\.d=true,z=007".to_owned()];
        let strings = ["s='1,2',t=true".to_owned(), "v=1,2".to_owned()];
        assert_eq!(
            Value::Object(of_flags(&flags, &strings).unwrap()),
            json!({"a": {"b": 1}, "l": [null, null, "x"], "k.d": true, "z": "007", "s": "'1,2'", "t": "true", "v": "1"})
        );
        assert!(of_flags(&["a".to_owned()], &[]).is_err());
    }
}
