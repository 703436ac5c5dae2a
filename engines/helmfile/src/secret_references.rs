//! References to secrets in values, such as `ref+sops://secrets.yaml#/key`: finding them, and replacing them by the secrets.
//!
//! Source: vals 0.46. Only `ref+sops` is supported, for files of the plan. All other providers are rejected by name, because
//! nothing is fetched while a plan is made. Elsewhere: decrypting (`secrets.rs`).

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use golang::url::{GoUrl, query_unescape};
use serde_json::Value;
use sops::SopsFormat;

use crate::error::{Error, Result};
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::state_values_merge::ValuesMap;
use crate::template::go;
use crate::working_directory::WorkingDirectory;
use crate::yaml;

/// The text at the beginning of every reference.
const MARK: &str = "ref+";

/// A variable that makes a missing key an error instead of null.
const STRICT: &str = "HELMFILE_VALS_FAIL_ON_MISSING_KEY_IN_MAP";

/// How many characters of a reference an error quotes, because a reference may contain a whole file.
const MAX_REFERENCE_CHARACTERS: usize = 200;

/// A reference, and the text before and after it.
#[derive(Debug, PartialEq, Eq)]
struct SecretReferenceMatch<'t> {
    before: &'t str,
    /// The reference without `ref+`.
    uri: &'t str,
    after: &'t str,
    /// Whether the reference contains another one.
    is_nested: bool,
}

impl<'t> SecretReferenceMatch<'t> {
    /// The first reference in a text: `ref+PROVIDER://…` up to a blank, the end of the line or `+`. `None` if the text
    /// has no reference.
    fn first(text: &'t str) -> Option<Self> {
        text.match_indices(MARK).find_map(|(at, _)| {
            let before = text.get(..at)?;
            let (uri, after) = split(text.get(at + MARK.len()..)?)?;
            let inner = after.strip_prefix('+').filter(|_| uri.ends_with("ref"));
            let is_nested = inner.and_then(split).is_some();
            Some(Self {
                before: before.strip_suffix("secret").unwrap_or(before),
                uri,
                after: after.strip_prefix('+').unwrap_or(after),
                is_nested,
            })
        })
    }
}

/// Splits a text after `ref+` into the reference and the rest of the text. `None` if the text does not begin with a
/// reference.
fn split(text: &str) -> Option<(&str, &str)> {
    let scheme = text.find(['+', ':'])?;
    let body = text.get(scheme..)?.strip_prefix("://")?;
    let end = body.find(['+', ' ', '\n']).unwrap_or(body.len());
    let body = body.get(..end)?.trim_end_matches(['"', ',']);
    // Parity(vals 0.46): a single letter is not a reference.
    body.chars().nth(1)?;
    text.split_at_checked(scheme + "://".len() + body.len())
}

/// Whether a value has a text that may be a reference.
pub(crate) fn any(value: &Value) -> bool {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::String(text) if text.contains(MARK) => return true,
            Value::Array(items) => left.extend(items),
            Value::Object(map) if map.keys().any(|key| key.contains(MARK)) => return true,
            Value::Object(map) => left.extend(map.values()),
            _ => {}
        }
    }
    false
}

/// Replaces the references in a value by the secrets.
pub(crate) fn expand<'v>(
    helmfile_environment: &HelmfileHostEnvironment,
    place: &WorkingDirectory,
    value: &'v Value,
) -> Result<Cow<'v, Value>> {
    match any(value) {
        true => expand_within(helmfile_environment, place, value, &mut |bytes| {
            helmfile_environment.count(bytes)
        })
        .map(Cow::Owned),
        false => Ok(Cow::Borrowed(value)),
    }
}

/// Replaces the references in a value by the secrets. `count` is called with the number of bytes used.
pub(crate) fn expand_within(
    helmfile_environment: &HelmfileHostEnvironment,
    place: &WorkingDirectory,
    value: &Value,
    count: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Value> {
    SecretReferenceExpansion { helmfile_environment, place, count }.value(value)
}

/// Replaces the references in a text by the secrets, and returns a text.
pub(crate) fn expand_text(
    helmfile_environment: &HelmfileHostEnvironment,
    place: &WorkingDirectory,
    text: &str,
) -> Result<String> {
    let value = Value::String(text.to_owned());
    let expanded = expand(helmfile_environment, place, &value)?;
    display(&expanded)
}

/// The content of a values file. If it contains a reference, the content is written again.
pub(crate) fn expand_file(
    helmfile_environment: &HelmfileHostEnvironment,
    place: &WorkingDirectory,
    text: Vec<u8>,
) -> Result<Vec<u8>> {
    if !text.windows(MARK.len()).any(|part| part == MARK.as_bytes()) {
        return Ok(text);
    }
    let map = yaml::read_map(&text).map_err(|error| match helmfile_environment.secrets.is_used() {
        true => "it is not a map in YAML; what is wrong is not shown, because it may quote what was decrypted".into(),
        false => error,
    });
    let map = Value::Object(map?);
    let expanded = expand(helmfile_environment, place, &map)?;
    Ok(yaml::write_plain(&expanded)?.into_bytes())
}

/// Writes a value like Go's `%v`.
fn display(value: &Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => {
            let text = golang::fmt::sprint(&[go(other)]).map_err(|error| error.to_string())?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
    }
}

struct SecretReferenceExpansion<'e> {
    helmfile_environment: &'e HelmfileHostEnvironment,
    place: &'e WorkingDirectory,
    count: &'e mut dyn FnMut(usize) -> Result<()>,
}

impl SecretReferenceExpansion<'_> {
    /// Values are nested no deeper than YAML may be.
    fn value(&mut self, value: &Value) -> Result<Value> {
        Ok(match value {
            Value::String(text) => self.text(text)?,
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.value(item)).collect::<Result<_>>()?)
            }
            Value::Object(map) => {
                let mut kept = ValuesMap::new();
                let mut more = ValuesMap::new();
                for (key, value) in map {
                    match self.key(key, value)? {
                        Some(map) => more.extend(map),
                        None => drop(kept.insert(key.clone(), self.value(value)?)),
                    }
                }
                kept.extend(more);
                Value::Object(kept)
            }
            other => other.clone(),
        })
    }

    /// The map that replaces a key with a map, if the key is a reference to the text of a map.
    fn key(&mut self, key: &str, value: &Value) -> Result<Option<ValuesMap>> {
        if !value.is_object() || SecretReferenceMatch::first(key).is_none() {
            return Ok(None);
        }
        match self.text(key)? {
            Value::String(text) => match yaml::read_map(text.as_bytes()) {
                Ok(map) => Ok(Some(map)),
                Err(_) => Err(failed(key, "its plain content is not a map in YAML")),
            },
            _ => Ok(None),
        }
    }

    /// The value of a text. If the text is only one reference, the value may have any type.
    fn text(&mut self, text: &str) -> Result<Value> {
        let Some(first) = SecretReferenceMatch::first(text) else {
            return Ok(Value::String(text.to_owned()));
        };
        if first.before.is_empty() && first.after.is_empty() {
            return self.referred(&first);
        }
        let mut out = String::new();
        let mut next = Some(first);
        let mut rest = text;
        while let Some(found) = next {
            out.push_str(found.before);
            out.push_str(&display(&self.referred(&found)?)?);
            rest = found.after;
            next = SecretReferenceMatch::first(rest);
        }
        out.push_str(rest);
        Ok(Value::String(out))
    }

    fn referred(&mut self, found: &SecretReferenceMatch<'_>) -> Result<Value> {
        let uri = found.uri;
        if found.is_nested {
            return Err(failed(uri, "a reference within a reference is not supported"));
        }
        let url = GoUrl::parse(uri.as_bytes()).map_err(|_| failed(uri, "it is not a URL"))?;
        if url.scheme != b"sops" {
            let scheme = String::from_utf8_lossy(&url.scheme);
            return Err(failed(
                uri,
                &format!(
                    "ref+{scheme}:// is not supported: windlass fetches no secrets while it plans; use ref+sops://, or put \
                     the value into a Secret or a values file"
                ),
            ));
        }
        self.sops(&url).map_err(|error| failed(uri, &error.to_string()))
    }

    fn sops(&mut self, url: &GoUrl) -> Result<Value> {
        let query = SecretReferenceParameters::of(&url.query);
        if let Some(name) = ["profile", "region", "role_arn"].into_iter().find(|it| query.has(it)) {
            return Err(format!(
                "`{name}` is not supported: who asks AWS is said by the keys with which windlass decrypts"
            )
            .into());
        }
        let parameter = |name: &str| {
            let fallback =
                || self.helmfile_environment.variable(&format!("VALS_{}", name.to_uppercase()));
            query.get(name).map_or_else(|| fallback().unwrap_or_default().to_owned(), str::to_owned)
        };
        let encode = parameter("encode");
        let key_type = parameter("key_type");
        let path = path(url);
        let fragment = String::from_utf8_lossy(&url.fragment);
        let fragment = fragment.strip_prefix('#').unwrap_or(&fragment);
        let fragment = fragment.strip_prefix('/').unwrap_or(fragment);
        let (name, data) = match key_type.as_str() {
            "" | "filepath" => (self.place.absolute_of(&path)?, self.place.read(&path)?),
            "base64" => {
                let data = URL_SAFE.decode(&path).map_err(|_| "it is not in base64 for URLs")?;
                (format!("base64:{path}"), data.into())
            }
            other => {
                return Err(format!(
                    "key_type is `{other}`, where `filepath` or `base64` is wanted"
                )
                .into());
            }
        };
        let of_name = if key_type == "base64" { "" } else { path.as_str() };
        let format = match parameter("format").as_str() {
            // Parity(vals 0.46): a key is looked up in YAML, whatever the extension of the file is.
            "" if !fragment.is_empty() => SopsFormat::Yaml,
            "yaml" => SopsFormat::Yaml,
            "json" => SopsFormat::Json,
            "dotenv" => SopsFormat::Dotenv,
            "ini" => SopsFormat::Ini,
            "binary" => SopsFormat::Binary,
            _ => SopsFormat::of_name(of_name),
        };
        let plain = self.helmfile_environment.secrets.plain(name, &data, format, self.count)?;
        if !fragment.is_empty() {
            let map = plain.map(self.count)?;
            return self.at_key(map, fragment);
        }
        (self.count)(plain.text().len() * 2)?;
        match encode.as_str() {
            "" | "raw" => Ok(Value::String(String::from_utf8_lossy(plain.text()).into_owned())),
            "base64" => Ok(Value::String(STANDARD.encode(plain.text()))),
            other => Err(format!("encode is `{other}`, where `raw` or `base64` is wanted").into()),
        }
    }

    /// The value at a path of keys. A missing value is null, unless a variable makes it an error.
    fn at_key(&mut self, map: &ValuesMap, path: &str) -> Result<Value> {
        let mut map = map;
        let mut keys = path.split('/').peekable();
        while let Some(key) = keys.next() {
            let Some(value) = map.get(key) else {
                return match self.helmfile_environment.is_on(STRICT) {
                    true => Err(format!("no value found for key {path}").into()),
                    false => Ok(Value::Null),
                };
            };
            match value {
                value if keys.peek().is_none() => {
                    (self.count)(kustomize::weight_of_value(value))?;
                    return Ok(value.clone());
                }
                Value::Object(inner) => map = inner,
                // The error does not show the value, because it is secret.
                other => {
                    let kind = yaml::kind(other);
                    return Err(
                        format!("the value of `{key}` is {kind}, where a map is wanted").into()
                    );
                }
            }
        }
        Ok(Value::Null)
    }
}

/// The path of the file in a reference. Its first part is in the position of a URL's host.
fn path(url: &GoUrl) -> String {
    let host = String::from_utf8_lossy(&url.host);
    let path = String::from_utf8_lossy(&url.path);
    match (host.is_empty(), path.strip_prefix('/')) {
        (true, _) => path.into_owned(),
        (false, Some("")) => host.into_owned(),
        (false, Some(rest)) => format!("{host}/{rest}"),
        (false, None) => host.into_owned(),
    }
}

/// The parameters of a reference.
struct SecretReferenceParameters(Vec<(String, String)>);

impl SecretReferenceParameters {
    fn of(query: &[u8]) -> Self {
        let text = |part: &[u8]| Some(String::from_utf8_lossy(&query_unescape(part)?).into_owned());
        let pairs = query.split(|byte| *byte == b'&').filter(|part| !part.contains(&b';'));
        let pair = |part: &[u8]| {
            let mut sides = part.splitn(2, |byte| *byte == b'=');
            Some((text(sides.next()?)?, text(sides.next().unwrap_or_default())?))
        };
        Self(pairs.filter_map(pair).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

fn failed(uri: &str, why: &str) -> Error {
    let shown: String = uri.chars().take(MAX_REFERENCE_CHARACTERS).collect();
    let dots = if shown.len() < uri.len() { "…" } else { "" };
    format!("expand {shown}{dots}: {why}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(&str, &str)> {
        let mut all = Vec::new();
        let mut rest = text;
        while let Some(found) = SecretReferenceMatch::first(rest) {
            all.push((found.before, found.uri));
            rest = found.after;
        }
        all.push((rest, ""));
        all
    }

    #[test]
    fn a_reference_ends_where_vals_ends_it() {
        for (text, expected) in [
            ("ref+sops://a.yaml#/k", vec![("", "sops://a.yaml#/k"), ("", "")]),
            ("secretref+sops://a.yaml", vec![("", "sops://a.yaml"), ("", "")]),
            ("x ref+sops://a#/k+y", vec![("x ", "sops://a#/k"), ("y", "")]),
            (
                "ref+sops://a#/k+ref+sops://b#/l",
                vec![("", "sops://a#/k"), ("", "sops://b#/l"), ("", "")],
            ),
            (
                "{\"a\":\"ref+sops://a#/k\",\"b\"",
                vec![("{\"a\":\"", "sops://a#/k\",\"b"), ("\"", "")],
            ),
            ("ref+sops://ab\", c", vec![("", "sops://ab"), ("\", c", "")]),
            ("ref+a+b ref+x://yz", vec![("ref+a+b ", "x://yz"), ("", "")]),
            // Neither has two letters behind the slashes.
            ("ref+echo://x", vec![("ref+echo://x", "")]),
            ("ref+echo://x,", vec![("ref+echo://x,", "")]),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }

    #[test]
    fn a_chain_of_any_length_is_searched_in_one_pass() {
        let chain = "ref+x://".repeat(1 << 20);
        let first = SecretReferenceMatch::first(&chain).unwrap();
        assert_eq!((first.uri, first.is_nested), ("x://ref", true));
        let chain = "ref+sops://aaref+y ".repeat(1 << 16);
        assert_eq!(found(&chain).len(), (1 << 16) + 1);
    }

    #[test]
    fn a_reference_in_a_reference_is_noticed() {
        let is_nested = |text| SecretReferenceMatch::first(text).is_some_and(|it| it.is_nested);
        assert!(is_nested("ref+sops://a#/ref+sops://b#/k"));
        assert!(is_nested("ref+sops://a#/secretref+sops://b#/k"));
        assert!(!is_nested("ref+sops://a#/k+ref+sops://b#/k"));
        assert!(!is_nested("ref+sops://a#/ref+b"));
    }

    #[test]
    fn what_a_path_and_parameters_are() {
        let of = |text: &str| {
            let url = GoUrl::parse(text.as_bytes()).unwrap();
            let query = SecretReferenceParameters::of(&url.query);
            (path(&url), query.get("format").map(str::to_owned))
        };
        assert_eq!(of("sops://secrets.yaml#/a"), ("secrets.yaml".to_owned(), None));
        assert_eq!(of("sops://./a/b.yaml"), ("./a/b.yaml".to_owned(), None));
        assert_eq!(of("sops://a/b?format=json"), ("a/b".to_owned(), Some("json".to_owned())));
        assert_eq!(of("sops:///a/b?x&format=a%20b"), ("/a/b".to_owned(), Some("a b".to_owned())));
        assert_eq!(of("sops://a/?format=x&format=y"), ("a".to_owned(), Some("x".to_owned())));
    }
}
