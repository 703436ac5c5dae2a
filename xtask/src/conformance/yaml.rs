//! YAML of the V2 dialect: verdicts and values, strict verdicts, round trips, emission.

use serde_json::Value;

use super::{Judgement, Mismatch, Topic, bytes_of, same, same_value};

pub(super) const TOPICS: [Topic; 8] = [
    Topic { name: "yaml/read v2 values", file: "yaml/read.jsonl", judge: value, exceptions: &[] },
    Topic { name: "yaml/read v2 strict", file: "yaml/read.jsonl", judge: strict, exceptions: &[] },
    Topic { name: "yaml/read v2 round trip", file: "yaml/read.jsonl", judge: round_trip, exceptions: &[] },
    Topic { name: "yaml/emit", file: "yaml/emit.jsonl", judge: emission, exceptions: &[] },
    Topic { name: "recorded/yaml2-read v2 values", file: "recorded/yaml2-read.jsonl", judge: value, exceptions: &[] },
    Topic { name: "recorded/yaml2-read v2 strict", file: "recorded/yaml2-read.jsonl", judge: strict, exceptions: &[] },
    Topic {
        name: "recorded/yaml2-read v2 round trip",
        file: "recorded/yaml2-read.jsonl",
        judge: round_trip,
        exceptions: &[],
    },
    Topic { name: "recorded/yaml2-emit", file: "recorded/yaml2-emit.jsonl", judge: emission, exceptions: &[] },
];

fn text<'a>(case: &'a Value, member: &str) -> Option<&'a str> {
    case.get(member).and_then(Value::as_str)
}

/// `v2_json` or `v2_error`.
fn value(case: &Value) -> Judgement {
    let input = bytes_of(case, "yaml")?;
    let got = goyaml::to_json(&input);
    if let Some(wanted) = text(case, "v2_json") {
        let wanted: Value = serde_json::from_str(wanted).ok()?;
        return Some(match got {
            Ok(got) => same_value(&wanted, &got),
            Err(error) => same(&wanted.to_string(), &error.to_string()),
        });
    }
    let wanted = text(case, "v2_error")?;
    Some(match got {
        Ok(got) => same(wanted, &got.to_string()),
        Err(error) => same(wanted, &error.to_string()),
    })
}

/// `v2_strict_error`, or none where strict reading succeeds.
fn strict(case: &Value) -> Judgement {
    let input = bytes_of(case, "yaml")?;
    if text(case, "v2_json").is_none() && text(case, "v2_error").is_none() {
        return None;
    }
    let got = goyaml::to_json_strict(&input).err().map(|error| error.to_string()).unwrap_or_default();
    Some(same(text(case, "v2_strict_error").unwrap_or_default(), &got))
}

/// `v2_round_trip`: read and written again.
fn round_trip(case: &Value) -> Judgement {
    let input = bytes_of(case, "yaml")?;
    let wanted = bytes_of(case, "v2_round_trip")?;
    let got = match goyaml::to_json(&input) {
        Ok(value) => goyaml::emit(&value).unwrap_or_else(|error| format!("ERR {error}")),
        Err(error) => format!("ERR {error}"),
    };
    Some(same(&String::from_utf8_lossy(&wanted), &got))
}

/// `json` → `yaml`.
fn emission(case: &Value) -> Judgement {
    let json = text(case, "json")?;
    let wanted = text(case, "yaml")?;
    Some(match serde_json::from_str::<Value>(json) {
        Ok(value) => same(wanted, &goyaml::emit(&value).unwrap_or_else(|error| format!("ERR {error}"))),
        Err(error) => Err(Mismatch { wanted: wanted.to_owned(), got: format!("the case is no JSON: {error}") }),
    })
}
