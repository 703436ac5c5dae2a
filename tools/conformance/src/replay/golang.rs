//! Replays cases about the small languages of Go programs: version ranges, and values as text.

use ::golang::GoRuntimeValue;
use ::golang::fmt::sprintf;
use ::golang::semver::{SemverVersion, VersionConstraint};
use ::golang::time::GoDuration;
use ::golang::value::{
    GoObject, GoSlice, GoString, GoType, IntegerKind, ReflectKind, SizedInteger,
};
use serde::Deserialize;

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, same};

pub(super) const TOPICS: [Topic; 2] = [
    Topic { name: "misc/semver", path: "misc/semver.jsonl", judge: semver, exceptions: &[] },
    Topic {
        name: "recorded/printf",
        path: "recorded/printf.jsonl",
        judge: printf,
        exceptions: &[],
    },
];

/// A version constraint, and versions separated by commas. The answer has one word for each version.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionRangeCase {
    input: (String, String),
    go: String,
}

fn semver(case: Case) -> CaseJudgement {
    let VersionRangeCase { input: (constraint, versions), go } = case.inputs()?;
    let Ok(constraint) = VersionConstraint::parse(&constraint) else { return same(&go, "ERR") };
    let words = versions.split(',').map(|version| match SemverVersion::parse(version) {
        Ok(version) if constraint.matches(&version) => "true",
        Ok(_) => "false",
        Err(_) => "bad",
    });
    same(&go, &words.collect::<Vec<_>>().join(" "))
}

/// A format for `fmt`, and values with the names of their types.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FmtFormatCase {
    format: String,
    args: Vec<(String, serde_json::Value)>,
}

fn printf(case: Case) -> CaseJudgement {
    let FmtFormatCase { format, args } = case.inputs()?;
    let values =
        args.iter().map(|(kind, json)| value(kind, json)).collect::<Result<Vec<_>, _>>()?;
    let text = sprintf(format, &values).map_err(|error| error.to_string());
    case.judge(text.map(|text| String::from_utf8_lossy(&text).into_owned().into()))
}

fn value(kind: &str, json: &serde_json::Value) -> Result<GoRuntimeValue, CaseFailure> {
    let strange = || CaseFailure::NotRun(format!("a value that is not known: {kind} {json}"));
    let number = || json.as_i64().ok_or_else(strange);
    Ok(match kind {
        "json" | "nil" | "bool" | "string" | "float64" => GoRuntimeValue::from_json(json),
        "int" => GoRuntimeValue::int(number()?),
        "int64" => GoRuntimeValue::int64(number()?),
        "[]string" if json.is_null() => GoRuntimeValue::List(GoSlice::nil(GoType::String)),
        "[]string" => {
            let items = json.as_array().ok_or_else(strange)?;
            GoRuntimeValue::strings(items.iter().filter_map(|item| item.as_str()))
        }
        "duration" => GoRuntimeValue::object(GoDurationObject(number()?)),
        "error" => GoRuntimeValue::object(GoError(json.as_str().ok_or_else(strange)?.to_owned())),
        _ => return Err(strange()),
    })
}

/// A Go duration in nanoseconds, as `time.Duration` in templates.
#[derive(Debug)]
struct GoDurationObject(i64);

impl GoObject for GoDurationObject {
    fn type_name(&self) -> &'static str {
        "time.Duration"
    }

    fn underlying(&self) -> Option<GoRuntimeValue> {
        Some(GoRuntimeValue::Integer(SizedInteger::new(IntegerKind::Int64, self.0)))
    }

    fn text(&self) -> Option<GoString> {
        Some(GoString::from(GoDuration(self.0).to_string()))
    }
}

/// The value that `errors.New` returns.
#[derive(Debug)]
struct GoError(String);

impl GoObject for GoError {
    fn type_name(&self) -> &'static str {
        "*errors.errorString"
    }

    fn kind(&self) -> ReflectKind {
        ReflectKind::Pointer
    }

    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        vec![("s", GoRuntimeValue::from(self.0.as_str()))]
    }

    fn text(&self) -> Option<GoString> {
        Some(GoString::from(self.0.as_str()))
    }
}
