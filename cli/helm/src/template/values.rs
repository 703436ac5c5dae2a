//! Merges the values of the user in Helm's order: files, JSON, typed `--set` values, strings, files as strings, literals.
//!
//! Elsewhere: the meaning of each form (`helm::chart`, `helm::strvals`).

use golang::GoRuntimeValue;
use golang::value::{GoMap, GoString};
use helm::chart::read_values;
use helm::strvals::{SetValueMode, set};
use helm::values::over;

use super::flags::HelmTemplateFlags;
use super::local_machine_inputs::read;

/// Merges all values of the flags over the values in `strings`.
///
/// # Errors
/// The error text of Helm.
pub(super) fn merged(flags: &HelmTemplateFlags, strings: &[Vec<u8>]) -> Result<GoMap, String> {
    let mut all = GoMap::default();
    for text in strings {
        let more = read_values(text).map_err(|error| format!("failed to parse values: {error}"))?;
        all = over(&all, &more);
    }
    for path in flags.values.iter().flat_map(|list| comma_separated(list)) {
        let text = read(&path)?;
        let more =
            read_values(&text).map_err(|error| format!("failed to parse {path}: {error}"))?;
        all = over(&all, &more);
    }
    for text in &flags.set_json {
        if text.trim().starts_with('{') {
            let wrong = || format!("failed parsing --set-json data JSON: {text}");
            all = over(&all, &object(text.trim().as_bytes()).ok_or_else(wrong)?);
        } else {
            let done = set(&all, text, SetValueMode::Json);
            done.map_err(|_| format!("failed parsing --set-json data {text}"))?;
        }
    }
    for text in &flags.set {
        let done = set(&all, text, SetValueMode::Typed);
        done.map_err(|error| format!("failed parsing --set data: {error}"))?;
    }
    for text in &flags.set_string {
        let done = set(&all, text, SetValueMode::Strings);
        done.map_err(|error| format!("failed parsing --set-string data: {error}"))?;
    }
    for text in &flags.set_file {
        let mut from = |path: &str| read(path).map(GoString::from);
        let done = set(&all, text, SetValueMode::File(&mut from));
        done.map_err(|error| format!("failed parsing --set-file data: {error}"))?;
    }
    for text in &flags.set_literal {
        let done = set(&all, text, SetValueMode::Literal);
        done.map_err(|error| format!("failed parsing --set-literal data: {error}"))?;
    }
    Ok(all)
}

/// Parses a text that is exactly one JSON object. `None` if it is anything else.
fn object(text: &[u8]) -> Option<GoMap> {
    let (value, end) = golang::json::decode_prefix(text).ok()?;
    match value {
        GoRuntimeValue::Map(map) if text[end..].trim_ascii().is_empty() => Some(map),
        _ => None,
    }
}

/// Splits a list at commas. Quotes protect items that contain commas.
pub(super) fn comma_separated(list: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut is_quoted = false;
    let mut chars = list.chars().peekable();
    while let Some(next) = chars.next() {
        let Some(item) = items.last_mut() else { break };
        match next {
            '"' if !is_quoted && item.is_empty() => is_quoted = true,
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                item.push('"');
            }
            '"' if is_quoted => is_quoted = false,
            ',' if !is_quoted => items.push(String::new()),
            other => item.push(other),
        }
    }
    if list.is_empty() { Vec::new() } else { items }
}

#[cfg(test)]
mod tests {
    use super::comma_separated;

    #[test]
    fn commas_divide_a_list_unless_they_are_quoted() {
        assert_eq!(comma_separated("a,b,,c"), ["a", "b", "", "c"]);
        assert_eq!(comma_separated(r#""a,""b",c"#), [r#"a,"b"#, "c"]);
        assert!(comma_separated("").is_empty());
    }
}
