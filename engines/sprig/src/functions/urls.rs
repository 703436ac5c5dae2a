//! URLs and their parts.

use golang::GoRuntimeValue;
use golang::url::GoUrl;
use golang::value::{GoMap, ReflectKind};
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use crate::arguments::{NIL, SprigResult, TEXT_OVERHEAD_BYTES, map, mapped, text};
use crate::function_table::{SprigFunctionEntry, bounded};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    bounded("urlJoin", "func(map[string]interface {}) string", url_join),
    bounded("urlParse", "func(string) map[string]interface {}", url_parse),
];

/// The URL of its parts.
fn url_join(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let parts = map(args, 0);
    let part = |key| part(&parts, key);
    let mut url = GoUrl {
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
        let parsed = GoUrl::parse(&[b"proto://", &*user, b"@host"].concat());
        let refusal = |error| format!("unable to parse userinfo in dict: {error}");
        url.user = parsed.map_err(refusal)?.user;
    }
    let parts = [&url.host, &url.path, &url.query, &url.opaque, &url.fragment];
    let given: usize = parts.iter().map(|part| part.len()).sum::<usize>() + user.len();
    call.work(given)?;
    // One byte becomes at most three bytes.
    call.has_room(given.saturating_mul(3))?;
    let text = url.to_bytes();
    call.produce(text.len() + TEXT_OVERHEAD_BYTES)?;
    Ok(GoRuntimeValue::string(text))
}

fn part(parts: &GoMap, key: &str) -> Result<Vec<u8>, TemplateFunctionError> {
    match parts.get(key.as_bytes()).map(|value| value.underlying()) {
        None => Ok(Vec::new()),
        Some(GoRuntimeValue::String(text)) => Ok(text.to_vec()),
        Some(GoRuntimeValue::Nil) => Err(NIL.into()),
        Some(other) => {
            let kind: ReflectKind = other.kind();
            Err(format!("unable to parse {key} key, must be of type string, but {kind} found")
                .into())
        }
    }
}

/// The parts of a URL.
fn url_parse(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let text = text(args, 0);
    mapped(call, 8)?;
    call.work(text.len())?;
    call.produce(text.len().saturating_mul(3))?;
    let url = GoUrl::parse(text).map_err(|error| format!("unable to parse url: {error}"))?;
    let hostname = url.hostname().to_owned();
    let user = url.user.map(|user| user.to_bytes()).unwrap_or_default();
    Ok(GoRuntimeValue::map([
        ("scheme", GoRuntimeValue::string(url.scheme)),
        ("host", GoRuntimeValue::string(url.host)),
        ("hostname", GoRuntimeValue::string(hostname)),
        ("path", GoRuntimeValue::string(url.path)),
        ("query", GoRuntimeValue::string(url.query)),
        ("opaque", GoRuntimeValue::string(url.opaque)),
        ("fragment", GoRuntimeValue::string(url.fragment)),
        ("userinfo", GoRuntimeValue::string(user)),
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
