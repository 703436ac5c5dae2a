//! Replays cases about both dialects of YAML.
//!
//! The cases have verdicts and values, strict verdicts, round trips and output of version 2. Of version 3 they have
//! nodes and the output of nodes and values.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goyaml::v3::{self, AnchorOrCommentKind, YamlLayout, YamlNode, YamlNodeKind};
use serde::Deserialize;
use serde_json::Value;

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, same};

pub(super) const TOPICS: [Topic; 7] = [
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
    Topic {
        name: "recorded/yaml2-emit v3",
        path: "recorded/yaml2-emit.jsonl",
        judge: pretty,
        exceptions: &[],
    },
    Topic { name: "yaml/read v3", path: "yaml/read.jsonl", judge: nodes, exceptions: &[] },
    Topic {
        name: "recorded/yaml2-read v3",
        path: "recorded/yaml2-read.jsonl",
        judge: nodes,
        exceptions: &[],
    },
];

/// Cases to which Go gives two answers, because it walks a map in random order. The second answer is here. The keys
/// `1` and `"1"` are equal in JSON.
const RANDOM_VALUES: [(&str, &str); 1] = [("dup3", r#"{"1":"b"}"#)];

/// Values whose keys Go sorts differently from run to run. Their lines may have any order.
const RANDOM_ORDER: [&str; 1] =
    [r#"{"a01": 1, "a1": 1, "a001": 1, "a10b": 1, "a1b": 1, "a01b": 1}"#];

/// The text of a case.
fn input(yaml: Option<&String>, base64: Option<&String>) -> Result<Vec<u8>, CaseFailure> {
    match (yaml, base64) {
        (Some(text), _) => Ok(text.clone().into_bytes()),
        (None, Some(encoded)) => STANDARD
            .decode(encoded)
            .map_err(|error| CaseFailure::NotRun(format!("`yaml_base64` cannot be read: {error}"))),
        // The recorder leaves out an empty text.
        (None, None) => Ok(Vec::new()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentInputs {
    yaml: Option<String>,
    yaml_base64: Option<String>,
    v2_json: Option<String>,
    v2_error: Option<String>,
    v2_strict_error: Option<String>,
    v2_round_trip: Option<String>,
}

/// Reads a text, reads it strictly, and writes the result.
fn read(mut case: Case) -> CaseJudgement {
    case.forget("v3_");
    let recorded: DocumentInputs = case.inputs()?;
    let input = input(recorded.yaml.as_ref(), recorded.yaml_base64.as_ref())?;
    let value = goyaml::to_json(&input).map_err(|error| error.to_string());
    let strict = goyaml::to_json_strict(&input).err().map(|error| error.to_string());
    let values = match (&recorded.v2_json, &recorded.v2_error) {
        (Some(json), _) => same_json(&case.name, json, &value),
        (None, Some(wanted)) => same(&format!("error: {wanted}"), &shown(&value)),
        (None, None) => return Err(CaseFailure::NotRun("no answer of go-yaml v2".to_owned())),
    };
    let no_error = || "no error".to_owned();
    let strict =
        same(&recorded.v2_strict_error.unwrap_or_else(no_error), &strict.unwrap_or_else(no_error));
    let round_trip = match (value, &recorded.v2_round_trip) {
        (Ok(value), Some(wanted)) => same(wanted, &emitted(with_floats(value))),
        // A value that Go cannot write is not recorded.
        (Ok(value), None) => match goyaml::emit(&with_floats(value)) {
            Ok(text) if recorded.v2_json.is_some() => same("a refusal", &text),
            Ok(_) | Err(_) => Ok(()),
        },
        (Err(_), _) => Ok(()),
    };
    all([("values", values), ("strict", strict), ("round trip", round_trip)])
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedYamlNodes {
    yaml: Option<String>,
    yaml_base64: Option<String>,
    /// The nodes of all documents before an error.
    #[serde(default)]
    v3_nodes: String,
    #[serde(default)]
    v3_error: String,
    #[serde(default)]
    v3_v3emit: String,
}

/// Reads all documents, lists their nodes and writes them again.
fn nodes(mut case: Case) -> CaseJudgement {
    case.forget("v2_");
    let recorded: RecordedYamlNodes = case.inputs()?;
    let input = input(recorded.yaml.as_ref(), recorded.yaml_base64.as_ref())?;
    let mut documents = Vec::new();
    let mut error = String::new();
    let stream = v3::YamlNodeDocumentReader::new(&input, &goyaml::YamlLimits::default());
    match stream.map(|stream| stream.collect::<Vec<_>>()) {
        Ok(read) => {
            for document in read {
                match document {
                    Ok(document) => documents.push(document),
                    Err(problem) => error = problem.to_string(),
                }
            }
        }
        Err(problem) => error = problem.to_string(),
    }
    let layout = YamlLayout { indent: 2, compact_sequences: true };
    let text =
        v3::emit_documents(&documents, &layout).unwrap_or_else(|error| format!("ERR {error}"));
    let listed: String = documents.iter().map(listed).collect();
    all([
        ("nodes", same(&without_numbers(&recorded.v3_nodes), &listed)),
        ("error", same(&recorded.v3_error, &error)),
        ("emission", same(&recorded.v3_v3emit, &text)),
    ])
}

/// How deep the recorder lists nodes. It writes `…` for deeper ones.
const MAX_LISTED: usize = 200;

/// A document in the recorder's list, one node on each line.
fn listed(document: &YamlNode) -> String {
    let line = |(depth, node): (usize, &YamlNode)| {
        if depth > MAX_LISTED {
            return "…".to_owned();
        }
        let kind = match node.kind {
            YamlNodeKind::Document => 1,
            YamlNodeKind::Sequence => 2,
            YamlNodeKind::Mapping => 4,
            YamlNodeKind::Scalar => 8,
            YamlNodeKind::Alias => 16,
        };
        let [anchor, head, tail, foot] = [
            AnchorOrCommentKind::Anchor,
            AnchorOrCommentKind::Head,
            AnchorOrCommentKind::Line,
            AnchorOrCommentKind::Foot,
        ]
        .map(|note| quoted(node.notes.get(note)));
        let value = quoted(&node.value);
        let indent = " ".repeat(depth + 1);
        let style = node.style.bits();
        let tag = &node.tag;
        let line = node.line;
        let column = node.column;
        format!(
            "{indent}k{kind} s{style} tag={tag} v={value} a={anchor} hc={head} lc={tail} fc={foot} @{line}:{column}\n"
        )
    };
    document.walk().filter(|(depth, _)| *depth <= MAX_LISTED + 1).map(line).collect()
}

/// A text in quotes. Characters that are hard to read are escaped.
fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0b' => out.push_str("\\v"),
            '\x0c' => out.push_str("\\f"),
            '\n' | '\r' | '\t' => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A recorded list in which the numbers of Go's `%q` are replaced by the characters.
fn without_numbers(listed: &str) -> String {
    let mut out = String::new();
    let mut rest = listed;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at..];
        let digits = match escape.as_bytes().get(1) {
            Some(b'x') => 2,
            Some(b'u') => 4,
            Some(b'U') => 8,
            _ => 0,
        };
        let number = escape.get(2..2 + digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let width = match number.and_then(char::from_u32) {
            Some(c) => {
                out.push(c);
                2 + digits
            }
            None => {
                out.push_str(&escape[..escape.len().min(2)]);
                escape.len().min(2)
            }
        };
        rest = &escape[width..];
    }
    out + rest
}

fn shown(value: &Result<Value, String>) -> String {
    value.as_ref().map_or_else(|error| format!("error: {error}"), Value::to_string)
}

fn same_json(name: &str, json: &str, got: &Result<Value, String>) -> CaseJudgement {
    let shown = shown(got);
    let is_same = match (serde_json::from_str::<Value>(json), got) {
        (Ok(wanted), Ok(got)) => wanted == *got,
        // The text is nested too deeply to be parsed.
        (Err(_), Ok(_)) => shown == json,
        (_, Err(_)) => false,
    };
    if is_same || RANDOM_VALUES.contains(&(name, &shown)) {
        return Ok(());
    }
    Err(CaseFailure::Mismatch { wanted: json.to_owned(), got: shown })
}

/// One verdict on all aspects of a case.
fn all<const ASPECT_COUNT: usize>(aspects: [(&str, CaseJudgement); ASPECT_COUNT]) -> CaseJudgement {
    let mut all_wanted = Vec::new();
    let mut all_got = Vec::new();
    for (aspect, judgement) in aspects {
        match judgement {
            Ok(()) => {}
            Err(CaseFailure::Mismatch { wanted, got }) => {
                all_wanted.push(format!("{aspect}: {wanted}"));
                all_got.push(format!("{aspect}: {got}"));
            }
            Err(other @ (CaseFailure::NotRun(_) | CaseFailure::OtherTopic)) => return Err(other),
        }
    }
    same(&all_wanted.join("; "), &all_got.join("; "))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct YamlEmissionCase {
    json: String,
    yaml: String,
    /// The output of go-yaml v3 with the settings of Helm's `toYamlPretty`.
    pretty: Option<String>,
}

/// Writes the JSON value of a case as YAML, and compares the text with the recorded one.
fn emission(case: Case) -> CaseJudgement {
    let YamlEmissionCase { json, yaml, .. } = case.inputs()?;
    let value = serde_json::from_str(&json)
        .map_err(|error| CaseFailure::NotRun(format!("`json` cannot be read: {error}")))?;
    let got = emitted(with_floats(value));
    if RANDOM_ORDER.contains(&json.as_str()) {
        return same(&sorted_lines(&yaml), &sorted_lines(&got));
    }
    same(&yaml, &got)
}

/// Writes a value with version 3.
fn pretty(case: Case) -> CaseJudgement {
    let YamlEmissionCase { json, pretty, .. } = case.inputs()?;
    let wanted = pretty.ok_or_else(|| CaseFailure::NotRun("no answer of go-yaml v3".to_owned()))?;
    let value = serde_json::from_str(&json)
        .map_err(|error| CaseFailure::NotRun(format!("`json` cannot be read: {error}")))?;
    let layout = YamlLayout { indent: 2, compact_sequences: false };
    let got = v3::encode(&&with_floats(value), &layout);
    same(&wanted, &got.unwrap_or_else(|error| format!("ERR {error}")))
}

fn emitted(value: Value) -> String {
    goyaml::emit(&value).unwrap_or_else(|error| format!("ERR {error}"))
}

/// The value as Go decodes it by default, with every number as a float. The recording has this form.
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
