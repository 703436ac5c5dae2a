//! Replays cases about durations in specs, which are Go's and never negative. `golang.rs` has all of Go's durations.

use std::time::Duration;

use reconcile::{DurationError, format_duration, parse_duration};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, same};

pub(super) const TOPICS: [Topic; 1] = [Topic {
    name: "recorded/gotime (specs)",
    path: "recorded/gotime.jsonl",
    judge: time,
    exceptions: &[],
}];

fn time(case: Case) -> CaseJudgement {
    match case.op.as_str() {
        "duration" => duration(&case),
        "string" => string(&case),
        "format" | "parse" => Err(CaseFailure::NotRun("times: no spec has any".to_owned())),
        _ => Err(case.unsupported(&[])),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DurationReading {
    r#in: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NanosecondsCase {
    ns: String,
}

/// Reads a duration and writes it again.
fn duration(case: &Case) -> CaseJudgement {
    let DurationReading { r#in } = case.inputs()?;
    let read = parse_duration(&r#in);
    if let ReferenceAnswer::Out(out) = &case.answer
        && out.get("ns").and_then(Value::as_str).is_some_and(|ns| ns.starts_with('-'))
    {
        // Go's type is signed and windlass's is not, so negative durations are rejected.
        let wanted = DurationError::Negative(r#in);
        return same(&format!("{:?}", Err::<Duration, _>(wanted)), &format!("{read:?}"));
    }
    case.judge(read.map_err(|error| in_gos_words(&error)).map(|duration| {
        json!({"ns": duration.as_nanos().to_string(), "string": format_duration(duration)})
    }))
}

/// Go's error in the same case. windlass's errors say more.
fn in_gos_words(error: &DurationError) -> String {
    match error {
        DurationError::Malformed(text) | DurationError::TooLong(text) => {
            format!("time: invalid duration {}", quoted(text))
        }
        DurationError::MissingUnit(text) => {
            format!("time: missing unit in duration {}", quoted(text))
        }
        DurationError::UnknownUnit { text, unit } => {
            format!("time: unknown unit {} in duration {}", quoted(unit), quoted(text))
        }
        DurationError::Negative(text) => format!("{text} is negative"),
    }
}

/// A text in the quotes of Go's package `time`, byte by byte.
fn quoted(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' | 0x7f => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    format!("\"{}\"", text.bytes().map(byte).collect::<String>())
}

/// Writes nanoseconds as text. The other recorded numbers are not used.
fn string(case: &Case) -> CaseJudgement {
    let NanosecondsCase { ns } = case.inputs()?;
    let Ok(nanos) = ns.parse() else {
        return Err(CaseFailure::NotRun(
            "op string: nothing here writes negative durations".to_owned(),
        ));
    };
    let text = Value::from(format_duration(Duration::from_nanos(nanos)));
    case.judge(Ok(match &case.answer {
        ReferenceAnswer::Out(Value::Object(out)) => {
            let mut out = out.clone();
            out.insert("string".to_owned(), text);
            Value::Object(out)
        }
        ReferenceAnswer::Out(_)
        | ReferenceAnswer::Error(_)
        | ReferenceAnswer::Panic
        | ReferenceAnswer::Elsewhere => text,
    }))
}
