//! Checks whether an address in brackets is an IPv6 address, with the messages of Go's `net/netip`.

use super::quoted;

/// Accepts an IPv6 address, with or without a zone.
pub(super) fn check(text: &[u8]) -> Result<(), String> {
    let refuse = |reason: &str| Err(refusal(text, reason, b""));
    match text.iter().find(|byte| matches!(byte, b'.' | b':' | b'%')) {
        None => refuse("unable to parse IP"),
        Some(b'%') => refuse("missing IPv6 address"),
        Some(b':') => version_6(text),
        Some(_) => {
            version_4(text, text)?;
            Err("invalid IP-literal".to_owned())
        }
    }
}

fn refusal(text: &[u8], reason: &str, at: &[u8]) -> String {
    let at = if at.is_empty() { String::new() } else { format!(" (at {})", quoted(at)) };
    format!("invalid host: ParseAddr({}): {reason}{at}", quoted(text))
}

fn version_6(text: &[u8]) -> Result<(), String> {
    let refuse = |reason: &str, at: &[u8]| Err(refusal(text, reason, at));
    let mut rest = text;
    if let Some(percent) = text.iter().position(|byte| *byte == b'%') {
        if percent + 1 == text.len() {
            return refuse("zone must be a non-empty string", b"");
        }
        rest = &text[..percent];
    }
    let mut has_ellipsis = false;
    if let Some(after) = rest.strip_prefix(b"::") {
        if after.is_empty() {
            return Ok(());
        }
        (has_ellipsis, rest) = (true, after);
    }
    // Groups of two bytes.
    let mut groups = 0;
    while groups < 8 {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if digits > 4 {
            return refuse("each group must have 4 or less digits", rest);
        }
        if digits == 0 {
            return refuse("each colon-separated field must have at least one digit", rest);
        }
        let after = &rest[digits..];
        if after.starts_with(b".") {
            if !has_ellipsis && groups != 6 {
                let reason = "embedded IPv4 address must replace the final 2 fields of the address";
                return refuse(reason, rest);
            }
            if groups > 6 {
                let reason =
                    "too many hex fields to fit an embedded IPv4 at the end of the address";
                return refuse(reason, rest);
            }
            version_4(text, rest)?;
            (groups, rest) = (groups + 2, b"");
            break;
        }
        (groups, rest) = (groups + 1, after);
        match rest {
            [] => break,
            [b':'] => return refuse("colon must be followed by more characters", rest),
            [b':', b':', after @ ..] => {
                if has_ellipsis {
                    return refuse("multiple :: in address", &rest[1..]);
                }
                (has_ellipsis, rest) = (true, after);
                if rest.is_empty() {
                    break;
                }
            }
            [b':', after @ ..] => rest = after,
            _ => return refuse("unexpected character, want colon", rest),
        }
    }
    if !rest.is_empty() {
        return refuse("trailing garbage after address", rest);
    }
    match (groups < 8, has_ellipsis) {
        (true, false) => refuse("address string too short", b""),
        (false, true) => refuse("the :: must expand to at least one field of zeros", b""),
        _ => Ok(()),
    }
}

/// Accepts the four numbers of an IPv4 address. `text` is the text in the message.
fn version_4(text: &[u8], fields: &[u8]) -> Result<(), String> {
    let refuse = |reason: &str, at: &[u8]| Err(refusal(text, reason, at));
    let mut value = 0u32;
    let mut digits = 0;
    let mut dots = 0;
    for (at, byte) in fields.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return refuse("IPv4 field has octet with leading zero", b"");
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return refuse("IPv4 field has value >255", b"");
                }
            }
            b'.' => {
                if digits == 0 || at + 1 == fields.len() {
                    return refuse("IPv4 field must have at least one digit", &fields[at..]);
                }
                if dots == 3 {
                    return refuse("IPv4 address too long", b"");
                }
                (value, digits, dots) = (0, 0, dots + 1);
            }
            _ => return refuse("unexpected character", &fields[at..]),
        }
    }
    if dots < 3 { refuse("IPv4 address too short", b"") } else { Ok(()) }
}
