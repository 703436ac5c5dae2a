//! Checks `Chart.yaml` by the rules of `helm lint`.

use golang::semver::{SemverVersion, VersionConstraint};
use golang::url::GoUrl;
use serde_json::{Map, Value};

use super::{LintMessages, LintSeverity};
use crate::chart::{ChartMetadata, ChartMetadataDraft, METADATA, base, quoted};

const FILE: &str = "Chart.yaml";

/// Checks a `Chart.yaml` and adds what is wrong with it to `found`.
pub(super) fn check(yaml: &[u8], found: &mut LintMessages) {
    let mut draft = ChartMetadataDraft::default();
    if let Err(error) = draft.read(yaml) {
        return found.error(FILE, format!("unable to parse YAML\n\t{error}"));
    }
    if let Some(problem) = beyond(yaml) {
        found.warn(FILE, format!("failed to strictly parse chart metadata file\n\t{problem}"));
    }
    let metadata = &draft.metadata;
    let fields = goyaml::to_json(yaml).unwrap_or_default();
    let problems = [
        name(metadata),
        api_version(metadata),
        no_text(&fields, "version"),
        version(metadata),
        no_text(&fields, "appVersion"),
        maintainers(&draft),
        sources(metadata),
    ];
    for problem in problems.into_iter().flatten() {
        found.error(FILE, problem);
    }
    if metadata.icon.is_empty() {
        found.say(LintSeverity::Info, FILE, "icon is recommended");
    } else if !is_request_url(&metadata.icon) {
        found.error(FILE, format!("invalid icon URL '{}'", metadata.icon));
    }
    let is_v2 = metadata.api_version == "v2";
    if !metadata.kind.is_empty() && !is_v2 {
        let version = &metadata.api_version;
        found.error(
            FILE,
            format!(
                "chart type is not valid in apiVersion '{version}'. It is valid in apiVersion 'v2'"
            ),
        );
    }
    if draft.dependencies.as_ref().is_some_and(|list| !list.is_empty()) && !is_v2 {
        let version = &metadata.api_version;
        found.error(
            FILE,
            format!(
                "dependencies are not valid in the Chart file with apiVersion '{version}'. They are valid in \
                 apiVersion 'v2'"
            ),
        );
    }
    if SemverVersion::parse_strict(&metadata.version).is_err() {
        found.warn(FILE, format!("version '{}' is not a valid SemVerV2", metadata.version));
    }
}

/// The message about a key of `Chart.yaml` that occurs twice, or that Helm's struct does not have. `None` if there is
/// none.
fn beyond(yaml: &[u8]) -> Option<String> {
    let read = match goyaml::to_json_strict(yaml) {
        Ok(read) => read,
        Err(error) => return Some(format!("error converting YAML to JSON: {error}")),
    };
    let unknown = unknown(read.as_object()?)?;
    Some(format!(
        "error unmarshaling JSON: while decoding JSON: json: unknown field {}",
        quoted(unknown)
    ))
}

/// The first key of `Chart.yaml`, in the order of keys, that Helm's struct does not have. `None` if all keys are known.
fn unknown(metadata: &Map<String, Value>) -> Option<&str> {
    let is_known = |key: &str, known: &[&str]| known.iter().any(|name| goyaml::is_field(key, name));
    let fields: Vec<&str> = METADATA.iter().map(|(name, _)| *name).chain(["deprecated"]).collect();
    let mut keys: Vec<&String> = metadata.keys().collect();
    keys.sort();
    for key in keys {
        let inner: &[&str] = match key.to_ascii_lowercase().as_str() {
            "maintainers" => &["name", "email", "url"],
            "dependencies" => &[
                "name",
                "version",
                "repository",
                "condition",
                "tags",
                "enabled",
                "import-values",
                "alias",
            ],
            _ if is_known(key, &fields) => continue,
            _ => return Some(key),
        };
        let items = metadata.get(key).and_then(Value::as_array).into_iter().flatten();
        for item in items.filter_map(Value::as_object) {
            let mut keys: Vec<&String> = item.keys().collect();
            keys.sort();
            if let Some(key) = keys.into_iter().find(|key| !is_known(key, inner)) {
                return Some(key);
            }
        }
    }
    None
}

fn name(metadata: &ChartMetadata) -> Option<String> {
    if metadata.name.is_empty() {
        return Some("name is required".to_owned());
    }
    (base(&metadata.name) != metadata.name)
        .then(|| format!("chart name {} is invalid", quoted(&metadata.name)))
}

fn api_version(metadata: &ChartMetadata) -> Option<String> {
    const ALLOWED: &str = "The value must be either \"v1\" or \"v2\"";
    match metadata.api_version.as_str() {
        "" => Some(format!("apiVersion is required. {ALLOWED}")),
        "v1" | "v2" => None,
        other => Some(format!("apiVersion '{other}' is not valid. {ALLOWED}")),
    }
}

/// The problem of a field of `Chart.yaml` whose value is not a text. `None` if the field is a text or missing.
fn no_text(fields: &Value, key: &str) -> Option<String> {
    let kind = match fields.get(key)? {
        Value::String(_) => return None,
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    Some(format!("{key} should be of type string but it's of type {kind}"))
}

fn version(metadata: &ChartMetadata) -> Option<String> {
    const LEAST: &str = "0.0.0-0";
    let text = &metadata.version;
    if text.is_empty() {
        return Some("version is required".to_owned());
    }
    let Ok(version) = SemverVersion::parse(text) else {
        return Some(format!("version '{text}' is not a valid SemVer"));
    };
    let is_more =
        VersionConstraint::parse(&format!(">{LEAST}")).is_ok_and(|it| it.matches(&version));
    (!is_more).then(|| format!("version {text} is less than or equal to {LEAST}"))
}

fn maintainers(draft: &ChartMetadataDraft) -> Option<String> {
    draft.maintainers.iter().find_map(|maintainer| {
        let Some(it) = maintainer else { return Some("a maintainer entry is empty".to_owned()) };
        if it.name.is_empty() {
            return Some("each maintainer requires a name".to_owned());
        }
        if !it.email.is_empty() && !is_email(&it.email) {
            return Some(format!("invalid email '{}' for maintainer '{}'", it.email, it.name));
        }
        let is_wrong = !it.url.is_empty() && !is_url(&it.url);
        is_wrong.then(|| format!("invalid url '{}' for maintainer '{}'", it.url, it.name))
    })
}

fn sources(metadata: &ChartMetadata) -> Option<String> {
    let wrong = metadata.sources.iter().find(|source| !is_request_url(source))?;
    Some(format!("invalid source URL '{wrong}'"))
}

fn is_request_url(text: &str) -> bool {
    GoUrl::parse(text.as_bytes()).is_ok_and(|url| !url.scheme.is_empty())
}

/// Whether a text looks like a mail address. Helm has a pattern of two pages for it.
fn is_email(text: &str) -> bool {
    text.split_once('@').is_some_and(|(local, host)| {
        !local.is_empty()
            && is_host(host)
            && host.contains('.')
            && !text.contains(char::is_whitespace)
    })
}

/// Whether a text looks like a web address, with or without a scheme.
fn is_url(text: &str) -> bool {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let host = host.split_once(':').map_or(host, |(host, _)| host);
    let is_named = host == "localhost" || host.contains('.');
    text.len() > 3 && is_named && is_host(host) && !text.contains(char::is_whitespace)
}

fn is_host(host: &str) -> bool {
    host.split('.').all(|label| {
        !label.is_empty()
            && !label.starts_with('-')
            && label.chars().all(|it| it.is_alphanumeric() || it == '-' || it == '_')
    })
}
