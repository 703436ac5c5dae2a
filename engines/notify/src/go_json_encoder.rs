//! Writes JSON like Go's `encoding/json`, which escapes characters with a meaning in HTML.

use serde::Serialize;

/// A value as JSON. Values of this crate can always be written.
pub(crate) fn bytes(value: &impl Serialize) -> Vec<u8> {
    text(value).into_bytes()
}

/// A value as JSON text.
pub(crate) fn text(value: &impl Serialize) -> String {
    let plain = serde_json::to_string(value).unwrap_or_default();
    // These characters occur only in strings.
    let mut escaped = String::with_capacity(plain.len());
    for character in plain.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            other => escaped.push(other),
        }
    }
    escaped
}
