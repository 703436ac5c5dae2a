//! Distinguished names in the text form of a trust policy (RFC 4514).

use std::collections::BTreeMap;

/// Attributes by their short names.
pub(super) type DistinguishedName = BTreeMap<String, String>;

/// Attributes that every name has.
const MANDATORY: [&str; 3] = ["C", "ST", "O"];

/// Reads a distinguished name. Parity(flux): the texts.
pub(super) fn parse(text: &str) -> Result<DistinguishedName, String> {
    let malformed = |why: &str| {
        format!(
            "parsing distinguished name (DN) {text:?} failed with err: {why}. A valid DN must contain 'C', 'ST' or 'S', and 'O' RDN attributes at a minimum, and follow RFC 4514 standard"
        )
    };
    if text.contains("=#") {
        return Err(format!(
            "unsupported distinguished name (DN) {text:?}: notation does not support x509.subject identities containing \"=#\""
        ));
    }
    let mut name = DistinguishedName::new();
    for relative in split(text, &[',', ';']) {
        let attributes = split(relative, &['+']);
        let [attribute] = attributes.as_slice() else {
            return Err(format!(
                "distinguished name (DN) {text:?} has multi-valued RDN attributes, remove multi-valued RDN attributes as they are not supported"
            ));
        };
        let (kind, value) =
            attribute.split_once('=').ok_or_else(|| malformed("incomplete type, value pair"))?;
        let kind = match kind.trim() {
            "" => return Err(malformed("incomplete type, value pair")),
            // An alias.
            "S" => "ST",
            kind => kind,
        };
        let value = unescaped(value.trim_start()).ok_or_else(|| malformed("invalid escape"))?;
        let had = name.insert(kind.to_owned(), value);
        if had.is_some_and(|had| !had.is_empty()) {
            return Err(format!(
                "distinguished name (DN) {text:?} has duplicate RDN attribute for {kind:?}, DN can only have unique RDN attributes"
            ));
        }
    }
    let missing = MANDATORY.iter().find(|kind| name.get(**kind).is_none_or(String::is_empty));
    match missing {
        Some(kind) => Err(format!(
            "distinguished name (DN) {text:?} has no mandatory RDN attribute for {kind:?}, it must contain 'C', 'ST' or 'S', and 'O' RDN attributes at a minimum"
        )),
        None => Ok(name),
    }
}

/// Whether a name has all attributes of another.
pub(super) fn has_all(name: &DistinguishedName, of: &DistinguishedName) -> bool {
    of.iter().all(|(kind, value)| name.get(kind) == Some(value))
}

/// Distinguished names as text, in Go's notation.
pub(super) fn shown(names: &[DistinguishedName]) -> String {
    let one = |name: &DistinguishedName| {
        let pairs: Vec<String> =
            name.iter().map(|(kind, value)| format!("{kind:?}:{value:?}")).collect();
        format!("map[{}]", pairs.join(" "))
    };
    let names: Vec<String> = names.iter().map(one).collect();
    format!("[{}]", names.join(" "))
}

/// Splits at characters that are not escaped.
fn split<'t>(text: &'t str, at: &[char]) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut is_escaped = false;
    for (index, c) in text.char_indices() {
        if !is_escaped && at.contains(&c) {
            parts.push(text.get(start..index).unwrap_or_default());
            start = index + c.len_utf8();
        }
        is_escaped = !is_escaped && c == '\\';
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

/// The value of a distinguished name without escapes. Blanks at its end are dropped unless they are escaped. `None` if
/// an escape is malformed.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut kept = 0;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let is_escape = c == '\\';
        let mut buffer = [0; 4];
        if !is_escape {
            bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
        } else {
            let next = rest.next()?;
            match next.to_digit(16) {
                Some(high) => {
                    let low = rest.next()?.to_digit(16)?;
                    bytes.push(u8::try_from(high * 16 + low).ok()?);
                }
                None => bytes.extend_from_slice(next.encode_utf8(&mut buffer).as_bytes()),
            }
        }
        if is_escape || c != ' ' {
            kept = bytes.len();
        }
    }
    bytes.truncate(kept);
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_in_any_order_with_escapes() {
        let name = parse(r"O=Acme\, Inc., S=WA ,C=US,CN=\41b\20").unwrap();
        let pairs: Vec<(&str, &str)> = name.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(pairs, [("C", "US"), ("CN", "Ab "), ("O", "Acme, Inc."), ("ST", "WA")]);
        assert!(has_all(&name, &parse("C=US,ST=WA,O=Acme\\, Inc.").unwrap()));
        assert!(!has_all(&name, &parse("C=US,ST=WA,O=Acme").unwrap()));
    }

    #[test]
    fn a_name_that_is_none_says_why() {
        for (text, why) in [
            ("C=US,ST=WA", "no mandatory RDN attribute for \"O\""),
            ("C=US,ST=WA,O=a,O=b", "duplicate RDN attribute for \"O\""),
            ("C=US,ST=WA,O=a+CN=b", "multi-valued"),
            ("C=US,ST=WA,O", "failed with err"),
            ("C=US,ST=WA,O=#0c", "=#"),
            ("C=US,ST=WA,O=a\\", "failed with err"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
