//! Text in Go's notation: quoted strings, header names, statuses, and splitting camel case into words.

use golang::strconv::{QuotingStyle, quote};

/// A text in Go's quotes.
pub(crate) fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&quote(text.as_bytes(), QuotingStyle::Printable)).into_owned()
}

/// The name of a header in Go's spelling.
pub(crate) fn canonical_header(name: &str) -> String {
    let mut starts = true;
    let letter = |letter: char| {
        let written =
            if starts { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() };
        starts = letter == '-';
        written
    };
    name.chars().map(letter).collect()
}

/// The text of an HTTP status; empty if the status is unknown.
pub(crate) fn status_text(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        415 => "Unsupported Media Type",
        418 => "I'm a teapot",
        422 => "Unprocessable Entity",
        423 => "Locked",
        425 => "Too Early",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        507 => "Insufficient Storage",
        _ => "",
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CharacterClass {
    Lower,
    Upper,
    Digit,
    Other,
}

/// Splits a reason into lower-case words: `HTTPRouteReady` becomes `http route ready`.
pub(crate) fn words(reason: &str) -> String {
    let mut runs: Vec<(CharacterClass, String)> = Vec::new();
    for character in reason.chars() {
        let class = if character.is_lowercase() {
            CharacterClass::Lower
        } else if character.is_uppercase() {
            CharacterClass::Upper
        } else if golang::unicode::is_digit(character) {
            CharacterClass::Digit
        } else {
            CharacterClass::Other
        };
        match runs.last_mut() {
            Some((last, run)) if *last == class => run.push(character),
            _ => runs.push((class, character.to_string())),
        }
    }
    // The last capital belongs to the word in small letters that follows.
    for at in 1..runs.len() {
        let (before, after) = runs.split_at_mut(at);
        if let (Some((CharacterClass::Upper, run)), Some((CharacterClass::Lower, next))) =
            (before.last_mut(), after.first_mut())
            && let Some(capital) = run.pop()
        {
            next.insert(0, capital);
        }
    }
    let words: Vec<_> =
        runs.into_iter().map(|(_, run)| run).filter(|run| !run.is_empty()).collect();
    golang::unicode::lower(&words.join(" "))
}

/// A word with an upper-case first letter, followed by lower-case letters.
pub(crate) fn title(text: &str) -> String {
    let mut is_inside = false;
    let mut titled = String::with_capacity(text.len());
    for character in text.chars() {
        let is_letter = character.is_alphanumeric() || matches!(character, '_' | '\'');
        if !is_letter {
            titled.push(character);
        } else if is_inside {
            titled.push(golang::unicode::to_lower(character));
        } else {
            titled.push(golang::unicode::to_title(character));
        }
        is_inside = is_letter;
    }
    titled
}

/// Pairs as a form or query, in their order.
pub(crate) fn form(pairs: &[(String, String)]) -> String {
    let pairs = pairs.iter().map(|(key, value)| format!("{}={}", query(key), query(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// A part of a form or query, where a space is a plus.
pub(crate) fn query(text: &str) -> String {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => escaped.push('+'),
            _ if unreserved(byte) => escaped.push(char::from(byte)),
            _ => escaped.push_str(percent_encoding::percent_encode_byte(byte)),
        }
    }
    escaped
}

/// Escapes one element of a path, like Go's `url.PathEscape`.
pub(crate) fn path_element(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+:=@".contains(&byte);
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if plain(byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(percent_encoding::percent_encode_byte(byte));
        }
    }
    escaped
}

/// Whether an element would be read as a relative folder, even after [`path_element`].
pub(crate) fn is_relative(text: &str) -> bool {
    matches!(text, "." | "..")
}

/// Joins two paths, without empty elements, `.` and `..`.
pub(crate) fn join_path(one: &[u8], other: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let both = one.split(|byte| *byte == b'/').chain(other.split(|byte| *byte == b'/'));
    for part in both {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let joined = parts.join(&b'/');
    if one.starts_with(b"/") { [b"/", &*joined].concat() } else { joined }
}
