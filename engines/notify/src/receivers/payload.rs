//! Bodies of requests: reads their first JSON value, and checks the types of its members.

use serde_json::{Deserializer, Value};

use crate::case_folding::equal_fold;

/// The required type of a value. A null is always allowed.
pub(super) enum PayloadValueType {
    Text,
    Strings,
    Time,
    /// An object with these members. Their names match in any case, and other members may have any type.
    Object(&'static [(&'static str, Self)]),
}

/// The first JSON value of a text. Text after the value is ignored.
///
/// # Errors
/// If there is no value.
pub(super) fn first(text: &[u8]) -> Result<Value, String> {
    let text = String::from_utf8_lossy(text);
    match Deserializer::from_str(&text).into_iter::<Value>().next() {
        None => Err("EOF".to_owned()),
        Some(Ok(value)) => Ok(value),
        // A value that is not a list, object or text has to end before the next begins.
        Some(Err(error)) => Err(error.to_string()),
    }
}

/// Parses a text as one JSON value.
///
/// # Errors
/// If the text is not JSON.
pub(super) fn whole(text: &[u8]) -> Result<Value, String> {
    serde_json::from_str(&String::from_utf8_lossy(text)).map_err(|error| error.to_string())
}

/// Whether a value has a shape.
pub(super) fn fits(value: &Value, shape: &PayloadValueType) -> bool {
    match (value, shape) {
        (Value::Null, _) | (Value::String(_), PayloadValueType::Text) => true,
        (Value::Array(items), PayloadValueType::Strings) => {
            items.iter().all(|it| it.is_string() || it.is_null())
        }
        (Value::String(text), PayloadValueType::Time) => is_time(text),
        (Value::Object(members), PayloadValueType::Object(known)) => {
            members.iter().all(|(name, value)| {
                let shape = known.iter().find(|(known, _)| equal_fold(known, name));
                shape.is_none_or(|(_, shape)| fits(value, shape))
            })
        }
        _ => false,
    }
}

/// Whether a string is a time in the form that Go reads from JSON.
pub(super) fn is_time(text: &str) -> bool {
    golang::time::GoTime::parse(golang::time::RFC3339, text, &golang::time::GoTimeZone::Utc).is_ok()
}

/// Looks up a field of a JSON object. Upper and lower case of its name do not matter. `None` if the object lacks the field.
pub(super) fn member<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let members = value.as_object()?;
    members.get(name).or_else(|| {
        members.iter().find(|(known, _)| equal_fold(known, name)).map(|(_, value)| value)
    })
}

/// Returns the string in the field with this name, in upper or lower case. Returns an empty string if there is
/// no such string.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    member(value, name).and_then(Value::as_str).unwrap_or_default()
}

/// The media type of a header in lower case. `None` if Go rejects the header.
pub(super) fn media_type(header: &str) -> Option<String> {
    let (kind, parameters) = header.split_once(';').unwrap_or((header, ""));
    let kind = kind.trim().to_lowercase();
    let is_token = |text: &str| {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte);
        !text.is_empty() && text.bytes().all(is_plain)
    };
    let is_kind = match kind.split_once('/') {
        Some((one, other)) => is_token(one) && is_token(other),
        None => is_token(&kind),
    };
    let is_parameter = |text: &str| {
        let Some((key, value)) = text.split_once('=') else { return false };
        let quoted = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        is_token(key.trim()) && (quoted.is_some() || is_token(value.trim_end()))
    };
    let parameters = parameters.split(';').map(str::trim).filter(|text| !text.is_empty());
    (is_kind && parameters.into_iter().all(is_parameter)).then_some(kind)
}
