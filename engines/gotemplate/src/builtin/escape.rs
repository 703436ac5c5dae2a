//! The functions `html`, `js` and `urlquery`.

use golang::unicode::{decode, is_print};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Escapes a text. `None` if the result would exceed the limit by more than about a character.
pub(super) type EscapeFunction = fn(&[u8], usize) -> Option<Vec<u8>>;

/// The characters that are not escaped in a query, in addition to letters and digits.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub(super) fn html(text: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut escaped = Vec::with_capacity(text.len().min(limit));
    for byte in text {
        if escaped.len() > limit {
            return None;
        }
        let entity: &[u8] = match byte {
            0 => "\u{fffd}".as_bytes(),
            b'"' => b"&#34;",
            b'\'' => b"&#39;",
            b'&' => b"&amp;",
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            other => std::slice::from_ref(other),
        };
        escaped.extend_from_slice(entity);
    }
    (escaped.len() <= limit).then_some(escaped)
}

pub(super) fn js(text: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut escaped = Vec::with_capacity(text.len().min(limit));
    let mut rest = text;
    while !rest.is_empty() {
        if escaped.len() > limit {
            return None;
        }
        let (character, width) = decode(rest);
        let (this, next) = rest.split_at(width.max(1));
        rest = next;
        match character {
            '\\' => escaped.extend(b"\\\\"),
            '\'' => escaped.extend(b"\\'"),
            '"' => escaped.extend(b"\\\""),
            '<' => escaped.extend(b"\\u003C"),
            '>' => escaped.extend(b"\\u003E"),
            '&' => escaped.extend(b"\\u0026"),
            '=' => escaped.extend(b"\\u003D"),
            '\0'..' ' => escaped.extend(format!("\\u{:04X}", u32::from(character)).bytes()),
            ' '..='\x7f' => escaped.extend_from_slice(this),
            _ if is_print(character) => escaped.extend_from_slice(this),
            _ => escaped.extend(format!("\\u{:04X}", u32::from(character)).bytes()),
        }
    }
    (escaped.len() <= limit).then_some(escaped)
}

pub(super) fn url_query(text: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut escaped = Vec::with_capacity(text.len().min(limit));
    for part in percent_encode(text, PLAIN) {
        let part = if part == "%20" { "+" } else { part };
        if escaped.len() + part.len() > limit {
            return None;
        }
        escaped.extend_from_slice(part.as_bytes());
    }
    Some(escaped)
}

#[cfg(test)]
mod tests {
    use super::{html, js, url_query};

    #[test]
    fn strings_are_escaped_as_go_does() {
        let text = "a<b>&'\"=\\\n\0é\u{200b}".as_bytes();
        assert_eq!(
            html(text, 100).unwrap(),
            "a&lt;b&gt;&amp;&#39;&#34;=\\\n\u{fffd}é\u{200b}".as_bytes()
        );
        assert_eq!(
            js(text, 100).unwrap(),
            "a\\u003Cb\\u003E\\u0026\\'\\\"\\u003D\\\\\\u000A\\u0000é\\u200B".as_bytes()
        );
        // Parity(go): bytes that are not UTF-8 stay, as U+FFFD is printable.
        assert_eq!(js(b"\xff", 1).unwrap(), b"\xff");
        assert_eq!(url_query("a b/é~".as_bytes(), 100).unwrap(), b"a+b%2F%C3%A9~");
    }

    #[test]
    fn no_text_grows_beyond_its_limit() {
        for escape in [html, js, url_query] {
            assert_eq!(escape(b"<<<<", 11), None);
            assert!(escape(b"<<<<", 24).is_some());
        }
    }
}
