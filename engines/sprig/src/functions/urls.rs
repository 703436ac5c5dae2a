//! URLs and their parts.

use golang::Value;
use golang::url::Url;
use golang::value::{Kind, Map};
use gotemplate::{Call, Failure};

use crate::arguments::{NIL, Outcome, TEXT, map, mapped, text};
use crate::table::{Entry, bounded};

pub(crate) const ENTRIES: &[Entry] = &[
    bounded("urlJoin", "func(map[string]interface {}) string", url_join),
    bounded("urlParse", "func(string) map[string]interface {}", url_parse),
];

/// The URL of its parts.
fn url_join(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let parts = map(args, 0);
    let part = |key| part(&parts, key);
    let mut url = Url {
        scheme: part("scheme")?,
        host: part("host")?,
        path: part("path")?,
        query: part("query")?,
        opaque: part("opaque")?,
        fragment: part("fragment")?,
        user: None,
    };
    let user = part("userinfo")?;
    if !user.is_empty() {
        let parsed = Url::parse(&[b"proto://", &*user, b"@host"].concat());
        let refusal = |error| format!("unable to parse userinfo in dict: {error}");
        url.user = parsed.map_err(refusal)?.user;
    }
    let parts = [&url.host, &url.path, &url.query, &url.opaque, &url.fragment];
    let given: usize = parts.iter().map(|part| part.len()).sum::<usize>() + user.len();
    call.work(given)?;
    // Of a byte become three at most.
    call.has_room(given.saturating_mul(3))?;
    let text = url.to_bytes();
    call.produce(text.len() + TEXT)?;
    Ok(Value::string(text))
}

fn part(parts: &Map, key: &str) -> Result<Vec<u8>, Failure> {
    match parts.get(key.as_bytes()).map(|value| value.underlying()) {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(text.to_vec()),
        Some(Value::Nil) => Err(NIL.into()),
        Some(other) => {
            let kind: Kind = other.kind();
            Err(format!("unable to parse {key} key, must be of type string, but {kind} found")
                .into())
        }
    }
}

/// The parts of a URL.
fn url_parse(call: &mut Call<'_>, args: &[Value]) -> Outcome {
    let text = text(args, 0);
    mapped(call, 8)?;
    call.work(text.len())?;
    call.produce(text.len().saturating_mul(3))?;
    let url = Url::parse(text).map_err(|error| format!("unable to parse url: {error}"))?;
    let hostname = url.hostname().to_owned();
    let user = url.user.map(|user| user.to_bytes()).unwrap_or_default();
    Ok(Value::map([
        ("scheme", Value::string(url.scheme)),
        ("host", Value::string(url.host)),
        ("hostname", Value::string(hostname)),
        ("path", Value::string(url.path)),
        ("query", Value::string(url.query)),
        ("opaque", Value::string(url.opaque)),
        ("fragment", Value::string(url.fragment)),
        ("userinfo", Value::string(user)),
    ]))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn urls_are_taken_apart_and_joined() {
        check(&[
            (
                r#"{{ urlParse "http://admin:secret@server.com:8080/api?list=false#anchor" }}"#,
                "map[fragment:anchor host:server.com:8080 hostname:server.com opaque: path:/api query:list=false scheme:http userinfo:admin:secret]",
            ),
            (
                r#"{{ urlJoin (dict "scheme" "http" "host" "h:1" "path" "/p q" "query" "a=b" "fragment" "x") }}"#,
                "http://h:1/p%20q?a=b#x",
            ),
            (r#"{{ urlJoin (dict "host" "h" "path" "rel" "userinfo" "u:p") }}"#, "//u:p@h/rel"),
            (
                r#"{{ urlParse "%%bad" }}"#,
                r#"error: error calling urlParse: unable to parse url: parse "%%bad": invalid URL escape "%%b""#,
            ),
            (
                r#"{{ urlJoin (dict "host" 5) }}"#,
                "error: error calling urlJoin: unable to parse host key, must be of type string, but int found",
            ),
        ]);
    }
}
