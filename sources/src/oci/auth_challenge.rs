//! Parses the header `WWW-Authenticate` (RFC 9110) of a registry that answers 401.

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

/// A longer header is not read further.
const MAX_HEADER_BYTES: usize = 8192;

/// The kind of credentials that a registry asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AuthChallenge {
    /// User and password with each request.
    Basic,
    /// A token of the token service at `realm`, for a service.
    Bearer { realm: String, service: Option<String> },
}

/// The supported challenge of a response. A challenge for a token is preferred to one for a password. `None` if there
/// is no supported challenge.
pub(super) fn of(headers: &HeaderMap) -> Option<AuthChallenge> {
    let strings = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|it| it.to_str().ok());
    let mut found: Vec<AuthChallenge> = strings.flat_map(parse).collect();
    found.sort_by_key(|challenge| matches!(challenge, AuthChallenge::Basic));
    found.into_iter().next()
}

fn parse(text: &str) -> Vec<AuthChallenge> {
    let mut left = text.get(..MAX_HEADER_BYTES.min(text.len())).unwrap_or_default();
    let mut found: Vec<(String, Vec<(String, String)>)> = Vec::new();
    loop {
        left = left.trim_start_matches([' ', '\t', ',']);
        let length = left.find([' ', '\t', ',', '=']).unwrap_or(left.len());
        let (word, rest) = left.split_at(length);
        if word.is_empty() {
            break;
        }
        // A name with a value belongs to the scheme before it, any other word is a scheme.
        let Some(value) = rest.trim_start().strip_prefix('=') else {
            found.push((word.to_ascii_lowercase(), Vec::new()));
            left = rest;
            continue;
        };
        let (value, rest) = value_of(value.trim_start());
        if let Some((_, parameters)) = found.last_mut() {
            parameters.push((word.to_ascii_lowercase(), value));
        }
        left = rest;
    }
    let challenge = |(scheme, parameters): (String, Vec<(String, String)>)| {
        let parameter =
            |name: &str| parameters.iter().find(|(it, _)| it == name).map(|(_, it)| it.clone());
        match scheme.as_str() {
            "basic" => Some(AuthChallenge::Basic),
            "bearer" => Some(AuthChallenge::Bearer {
                realm: parameter("realm")?,
                service: parameter("service"),
            }),
            _ => None,
        }
    };
    found.into_iter().filter_map(challenge).collect()
}

/// Parses a token or a quoted string. Returns it with the rest of the text.
fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let length = text.find([' ', '\t', ',']).unwrap_or(text.len());
        let (value, rest) = text.split_at(length);
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut is_escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            _ if is_escaped => {
                value.push(c);
                is_escaped = false;
            }
            '\\' => is_escaped = true,
            '"' => return (value, &quoted[at + 1..]),
            _ => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>) -> Option<AuthChallenge> {
        Some(AuthChallenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
    }

    #[test]
    fn challenges_are_read_and_tokens_preferred() {
        let of = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(WWW_AUTHENTICATE, line.parse().unwrap());
            }
            of(&headers)
        };
        let usual =
            r#"Bearer realm="https://a/token",service="r.io",scope="repository:x:pull,push""#;
        assert_eq!(of(&[usual]), bearer("https://a/token", Some("r.io")));
        assert_eq!(of(&[r#"Basic realm="x""#, usual]), bearer("https://a/token", Some("r.io")));
        assert_eq!(of(&[r#"Basic realm="a, Bearer realm=b""#]), Some(AuthChallenge::Basic));
        assert_eq!(
            of(&[r#"basic realm=x, bearer realm=https://a/t"#]),
            bearer("https://a/t", None)
        );
        assert_eq!(of(&["BASIC"]), Some(AuthChallenge::Basic));
        assert_eq!(of(&[r#"Bearer realm = "a\"b""#]), bearer("a\"b", None));
        assert_eq!(of(&["Bearer service=x"]), None);
        assert_eq!(of(&["Negotiate", ""]), None);
        assert_eq!(of(&["=,=\"", "Bearer realm=\"open"]), bearer("open", None));
        assert_eq!(of(&[]), None);
    }
}
