//! Writes a URL. Elsewhere: reading one (`url.rs`).

use percent_encoding::percent_encode_byte;

use super::{GoUrl, UrlUserInfo, contains, cut};

/// A part of a URL. It decides which characters need no escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UrlComponent {
    Host,
    /// The zone of an address, after `%25`.
    Zone,
    User,
    Path,
    /// A name or value of a query, in which `+` stands for a space.
    Query,
    Fragment,
}

impl UrlComponent {
    /// Whether a byte is written as an escape.
    pub(super) fn escapes(self, byte: u8) -> bool {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            return false;
        }
        let plain: &[u8] = match self {
            Self::Host | Self::Zone => b"!$&'()*+,;=:[]<>\"",
            Self::User => b"$&+,;=",
            Self::Path => b"$&+,/:;=@",
            Self::Query => b"",
            Self::Fragment => b"$&+,/:;=?@!()*",
        };
        !plain.contains(&byte)
    }
}

impl UrlUserInfo {
    /// The user and password, with escapes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = escape(&self.name, UrlComponent::User);
        if let Some(password) = &self.password {
            text.push(b':');
            text.extend(escape(password, UrlComponent::User));
        }
        text
    }
}

impl GoUrl {
    /// The URL as one text, with the necessary escapes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if !self.scheme.is_empty() {
            text.extend(&self.scheme);
            text.push(b':');
        }
        if self.opaque.is_empty() {
            self.write_hierarchy(&mut text);
        } else {
            text.extend(&self.opaque);
        }
        if !self.query.is_empty() {
            text.push(b'?');
            text.extend(&self.query);
        }
        if !self.fragment.is_empty() {
            text.push(b'#');
            text.extend(escape(&self.fragment, UrlComponent::Fragment));
        }
        text
    }

    /// Writes the authority and the path.
    fn write_hierarchy(&self, text: &mut Vec<u8>) {
        let has_authority = !self.host.is_empty() || self.user.is_some();
        if has_authority || !self.scheme.is_empty() && !self.path.is_empty() {
            text.extend(b"//");
        }
        if let Some(user) = &self.user {
            text.extend(user.to_bytes());
            text.push(b'@');
        }
        text.extend(escape(&self.host, UrlComponent::Host));
        let path =
            if self.path == b"*" { b"*".to_vec() } else { escape(&self.path, UrlComponent::Path) };
        if !path.is_empty() && !path.starts_with(b"/") && !self.host.is_empty() {
            text.push(b'/');
        }
        if text.is_empty() && contains(cut(&path, b'/').0, b':') {
            // Without this, the first segment would be read as a scheme.
            text.extend(b"./");
        }
        text.extend(path);
    }
}

fn escape(text: &[u8], part: UrlComponent) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(text.len());
    for byte in text {
        if part.escapes(*byte) {
            escaped.extend(percent_encode_byte(*byte).bytes());
        } else {
            escaped.push(*byte);
        }
    }
    escaped
}
