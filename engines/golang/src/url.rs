//! URLs as Go's `net/url` reads and writes them. They consist of bytes, and few are refused.
//!
//! Here: reading a URL, and its parts. Elsewhere: writing one (`url/write.rs`), and addresses in brackets
//! (`url/ipv6_address.rs`). Needless escapes in the original text are not preserved.

mod ipv6_address;
mod write;

use crate::strconv::{QuotingStyle, quote};
use write::UrlComponent;

/// Why a text is not a URL, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parse {}: {reason}", quoted(.url))]
pub struct UrlParseError {
    /// The text, or its part before the fragment.
    url: Vec<u8>,
    reason: String,
}

/// The parts of a URL. Escapes are decoded, unless a field says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GoUrl {
    /// The scheme in lower case, without the colon.
    pub scheme: Vec<u8>,
    /// The text after a scheme without a slash, undecoded.
    pub opaque: Vec<u8>,
    /// The user and the password.
    pub user: Option<UrlUserInfo>,
    /// The host name or address, and the port if there is one.
    pub host: Vec<u8>,
    /// The path.
    pub path: Vec<u8>,
    /// The query after the `?`, undecoded.
    pub query: Vec<u8>,
    /// The fragment after the `#`.
    pub fragment: Vec<u8>,
}

/// A user name, and a password if there is a colon.
///
/// Its `Debug` text does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct UrlUserInfo {
    /// The name.
    pub name: Vec<u8>,
    /// The password, which may be empty.
    pub password: Option<Vec<u8>>,
}

impl std::fmt::Debug for UrlUserInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = String::from_utf8_lossy(&self.name);
        f.debug_struct("UrlUserInfo").field("name", &name).finish_non_exhaustive()
    }
}

impl GoUrl {
    /// Reads a URL, which may be relative.
    ///
    /// # Errors
    /// Go refuses the URL.
    pub fn parse(text: &[u8]) -> Result<Self, UrlParseError> {
        let (before, fragment) = cut(text, b'#');
        let mut url =
            parse(before).map_err(|reason| UrlParseError { url: before.to_owned(), reason })?;
        url.fragment = unescape(fragment.unwrap_or_default(), UrlComponent::Fragment)
            .map_err(|reason| UrlParseError { url: text.to_owned(), reason })?;
        Ok(url)
    }

    /// The host without its port and without brackets.
    pub fn hostname(&self) -> &[u8] {
        let host = match self.host.iter().rposition(|byte| *byte == b':') {
            Some(colon) if is_port(&self.host[colon..]) => &self.host[..colon],
            _ => &self.host,
        };
        host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host)
    }
}

/// A text in Go's quotes.
fn quoted(text: &[u8]) -> String {
    String::from_utf8_lossy(&quote(text, QuotingStyle::Printable)).into_owned()
}

/// Divides a text at the first byte of this value.
fn cut(text: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == at) {
        Some(found) => (&text[..found], Some(&text[found + 1..])),
        None => (text, None),
    }
}

fn contains(text: &[u8], wanted: u8) -> bool {
    text.contains(&wanted)
}

fn parse(text: &[u8]) -> Result<GoUrl, String> {
    if text.iter().any(u8::is_ascii_control) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let mut url = GoUrl::default();
    if text == b"*" {
        url.path = b"*".to_vec();
        return Ok(url);
    }
    let (scheme, rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (mut rest, query) = cut(rest, b'?');
    url.query = query.unwrap_or_default().to_owned();
    if !rest.starts_with(b"/") {
        if !scheme.is_empty() {
            url.opaque = rest.to_owned();
            return Ok(url);
        }
        if contains(cut(rest, b'/').0, b':') {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let has_authority = !scheme.is_empty() || !rest.starts_with(b"///");
    if let Some(authority) = rest.strip_prefix(b"//").filter(|_| has_authority) {
        let (authority, _) = cut(authority, b'/');
        rest = &rest[2 + authority.len()..];
        (url.user, url.host) = self::authority(&url.scheme, authority)?;
    }
    url.path = unescape(rest, UrlComponent::Path)?;
    Ok(url)
}

/// The scheme, which may be missing, and the text after its colon.
fn scheme(text: &[u8]) -> Result<(&[u8], &[u8]), String> {
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok((b"", text))
}

fn authority(scheme: &[u8], text: &[u8]) -> Result<(Option<UrlUserInfo>, Vec<u8>), String> {
    let Some(at) = text.iter().rposition(|byte| *byte == b'@') else {
        return Ok((None, host(scheme, text)?));
    };
    let host = host(scheme, &text[at + 1..])?;
    let user = &text[..at];
    let is_allowed =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(byte);
    if !user.iter().all(is_allowed) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    let (name, password) = cut(user, b':');
    let user = UrlUserInfo {
        name: unescape(name, UrlComponent::User)?,
        password: password.map(|password| unescape(password, UrlComponent::User)).transpose()?,
    };
    Ok((Some(user), host))
}

fn host(scheme: &[u8], text: &[u8]) -> Result<Vec<u8>, String> {
    let invalid_port = |port: &[u8]| format!("invalid port {} after host", quoted(port));
    match text.iter().rposition(|byte| *byte == b'[') {
        Some(0) => {
            let Some(end) = text.iter().rposition(|byte| *byte == b']') else {
                return Err("missing ']' in host".to_owned());
            };
            let inner = &text[1..end];
            let port = &text[end + 1..];
            if !is_port(port) {
                return Err(invalid_port(port));
            }
            let zone = inner.windows(3).position(|part| part == b"%25").unwrap_or(inner.len());
            let mut address = unescape(&inner[..zone], UrlComponent::Host)?;
            address.extend(unescape(&inner[zone..], UrlComponent::Zone)?);
            ipv6_address::check(&address)?;
            return Ok([b"[", &*address, b"]", port].concat());
        }
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    if let Some(first) = text.iter().position(|byte| *byte == b':') {
        let is_strict = matches!(scheme, b"http" | b"https");
        let last = text.iter().rposition(|byte| *byte == b':').unwrap_or(first);
        let port = &text[if is_strict { first } else { last }..];
        if !is_port(port) {
            return Err(invalid_port(port));
        }
    }
    unescape(text, UrlComponent::Host)
}

/// Whether a text is empty, or a colon followed by digits or nothing.
fn is_port(text: &[u8]) -> bool {
    match text.split_first() {
        None => true,
        Some((colon, digits)) => *colon == b':' && digits.iter().all(u8::is_ascii_digit),
    }
}

/// Decodes a name or value of a query. `None` if an escape is invalid.
pub fn query_unescape(text: &[u8]) -> Option<Vec<u8>> {
    unescape(text, UrlComponent::Query).ok()
}

/// Decodes the escapes of a text.
fn unescape(text: &[u8], part: UrlComponent) -> Result<Vec<u8>, String> {
    let refuse = |escape: &[u8]| format!("invalid URL escape {}", quoted(escape));
    let digit = |at: usize| {
        let byte = text.get(at).copied().unwrap_or_default();
        char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        if byte != b'%' {
            if matches!(part, UrlComponent::Host | UrlComponent::Zone)
                && byte < 0x80
                && part.escapes(byte)
            {
                return Err(format!("invalid character {} in host name", quoted(&[byte])));
            }
            bytes.push(if part == UrlComponent::Query && byte == b'+' { b' ' } else { byte });
            at += 1;
            continue;
        }
        let escape = &text[at..text.len().min(at + 3)];
        let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else {
            return Err(refuse(escape));
        };
        let value = high << 4 | low;
        let is_refused = match part {
            UrlComponent::Host => high < 8 && escape != b"%25",
            UrlComponent::Zone => {
                escape != b"%25" && value != b' ' && UrlComponent::Host.escapes(value)
            }
            _ => false,
        };
        if is_refused {
            return Err(refuse(escape));
        }
        bytes.push(value);
        at += 3;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
