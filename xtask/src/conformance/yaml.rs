//! YAML of the V2 dialect: verdicts and values, strict verdicts, round trips, emission.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::Topic;
use super::case::{Case, Fault, Judgement, same};

pub(super) const TOPICS: [Topic; 4] = [
    Topic { name: "yaml/read v2", path: "yaml/read.jsonl", judge: read, exceptions: &[] },
    Topic { name: "yaml/emit v2", path: "yaml/emit.jsonl", judge: emission, exceptions: &[] },
    Topic {
        name: "recorded/yaml2-read v2",
        path: "recorded/yaml2-read.jsonl",
        judge: read,
        exceptions: &[],
    },
    Topic {
        name: "recorded/yaml2-emit v2",
        path: "recorded/yaml2-emit.jsonl",
        judge: emission,
        exceptions: &[],
    },
];

/// Cases that Go answers in two ways, as it ranges over a map in random order, with the other
/// answer: the keys `1` and `"1"` are the same in JSON.
const RANDOM_VALUES: [(&str, &str); 1] = [("dup3", r#"{"1":"b"}"#)];

/// Values whose keys Go sorts differently from run to run; their lines count in any order.
const RANDOM_ORDER: [&str; 1] =
    [r#"{"a01": 1, "a1": 1, "a001": 1, "a10b": 1, "a1b": 1, "a01b": 1}"#];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    yaml: Option<String>,
    yaml_base64: Option<String>,
    v2_json: Option<String>,
    v2_error: Option<String>,
    v2_strict_error: Option<String>,
    v2_round_trip: Option<String>,
}

/// Reads a text, reads it strictly, and writes what was read.
fn read(mut case: Case) -> Judgement {
    case.forget("v3_");
    let recorded: Recorded = case.inputs()?;
    let input = match (&recorded.yaml, &recorded.yaml_base64) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(encoded)) => STANDARD
            .decode(encoded)
            .map_err(|error| Fault::NotRun(format!("`yaml_base64` cannot be read: {error}")))?,
        // The recorder leaves out an empty input.
        (None, None) => Vec::new(),
    };
    let value = goyaml::to_json(&input).map_err(|error| error.to_string());
    let strict = goyaml::to_json_strict(&input).err().map(|error| error.to_string());
    let values = match (&recorded.v2_json, &recorded.v2_error) {
        (Some(json), _) => same_json(&case.name, json, &value),
        (None, Some(wanted)) => same(&format!("error: {wanted}"), &shown(&value)),
        (None, None) => return Err(Fault::NotRun("no answer of go-yaml v2".to_owned())),
    };
    let no_error = || "no error".to_owned();
    let strict =
        same(&recorded.v2_strict_error.unwrap_or_else(no_error), &strict.unwrap_or_else(no_error));
    let round_trip = match (value, &recorded.v2_round_trip) {
        (Ok(value), Some(wanted)) => same(wanted, &emitted(with_floats(value))),
        // What Go cannot write is not recorded.
        (Ok(value), None) => match goyaml::emit(&with_floats(value)) {
            Ok(text) if recorded.v2_json.is_some() => same("a refusal", &text),
            Ok(_) | Err(_) => Ok(()),
        },
        (Err(_), _) => Ok(()),
    };
    all([("values", values), ("strict", strict), ("round trip", round_trip)])
}

fn shown(value: &Result<Value, String>) -> String {
    value.as_ref().map_or_else(|error| format!("error: {error}"), Value::to_string)
}

fn same_json(name: &str, json: &str, got: &Result<Value, String>) -> Judgement {
    let shown = shown(got);
    let is_same = match (serde_json::from_str::<Value>(json), got) {
        (Ok(wanted), Ok(got)) => wanted == *got,
        // Nested too deeply to be parsed.
        (Err(_), Ok(_)) => shown == json,
        (_, Err(_)) => false,
    };
    if is_same || RANDOM_VALUES.contains(&(name, &shown)) {
        return Ok(());
    }
    Err(Fault::Mismatch { wanted: json.to_owned(), got: shown })
}

/// One verdict on the aspects of a case.
fn all<const N: usize>(aspects: [(&str, Judgement); N]) -> Judgement {
    let (mut all_wanted, mut all_got) = (Vec::new(), Vec::new());
    for (aspect, judgement) in aspects {
        match judgement {
            Ok(()) => {}
            Err(Fault::Mismatch { wanted, got }) => {
                all_wanted.push(format!("{aspect}: {wanted}"));
                all_got.push(format!("{aspect}: {got}"));
            }
            Err(not_run @ Fault::NotRun(_)) => return Err(not_run),
        }
    }
    same(&all_wanted.join("; "), &all_got.join("; "))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Emission {
    json: String,
    yaml: String,
    /// Of go-yaml v3, which has no engine yet.
    #[serde(rename = "pretty")]
    _pretty: Option<String>,
}

/// Writes a value.
fn emission(case: Case) -> Judgement {
    let Emission { json, yaml, .. } = case.inputs()?;
    let value = serde_json::from_str(&json)
        .map_err(|error| Fault::NotRun(format!("`json` cannot be read: {error}")))?;
    let got = emitted(with_floats(value));
    if RANDOM_ORDER.contains(&json.as_str()) {
        return same(&sorted_lines(&yaml), &sorted_lines(&got));
    }
    same(&yaml, &got)
}

fn emitted(value: Value) -> String {
    goyaml::emit(&value).unwrap_or_else(|error| format!("ERR {error}"))
}

/// The value as Go decodes it by default, which is how it was recorded: every number is a float.
fn with_floats(mut value: Value) -> Value {
    let mut open = vec![&mut value];
    while let Some(value) = open.pop() {
        match value {
            Value::Number(number) => *value = number.as_f64().into(),
            Value::Array(items) => open.extend(items),
            Value::Object(map) => open.extend(map.values_mut()),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
    value
}

fn sorted_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}
