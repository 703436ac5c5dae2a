//! Replays cases about Go's regular expressions, times and globs. `golang` has versions and `fmt`.

use ::golang::glob::Glob;
use ::golang::regexp::GoRegexp;
use ::golang::strconv::{QuotingStyle, quote};
use ::golang::time::{self, GoDuration, GoTime, GoTimeZone};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, same};

pub(super) const TOPICS: [Topic; 3] = [
    Topic { name: "misc/regexp", path: "misc/regexp.jsonl", judge: regexp, exceptions: &[] },
    Topic {
        name: "recorded/globfiles",
        path: "recorded/globfiles.jsonl",
        judge: globfiles,
        exceptions: &[],
    },
    Topic {
        name: "recorded/gotime",
        path: "recorded/gotime.jsonl",
        judge: gotime,
        exceptions: &[],
    },
];

/// A pattern, a text and the answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatternAndTextCase {
    input: (String, String),
    go: String,
}

fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&quote(text.as_bytes(), QuotingStyle::Printable)).into_owned()
}

/// A pattern and a text. The answer has all matches in quotes.
fn regexp(case: Case) -> CaseJudgement {
    let PatternAndTextCase { input: (pattern, text), go } = case.inputs()?;
    let Ok(pattern) = GoRegexp::new(&pattern) else { return same(&go, "ERR") };
    let matches: Vec<String> = pattern.find_all(&text, None).into_iter().map(quoted).collect();
    same(&go, &format!("[{}]", matches.join(" ")))
}

/// A glob, and the files of a chart. The answer has the files that match.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GlobCase {
    pattern: String,
    files: Vec<String>,
}

fn globfiles(case: Case) -> CaseJudgement {
    let GlobCase { pattern, mut files } = case.inputs()?;
    // If the glob is not valid, Helm takes all files.
    let glob = Glob::new(&pattern, &['/']).or_else(|_| Glob::new("**", &['/']));
    files.sort();
    let matching = glob.and_then(|glob| {
        let mut matching = Vec::new();
        for file in files {
            if glob.is_match(&file)? {
                matching.push(file);
            }
        }
        Ok(matching)
    });
    case.judge(matching.map(Value::from).map_err(|error| error.to_string()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeFormatCase {
    time: String,
    zone: String,
    layout: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeParseCase {
    layout: String,
    r#in: String,
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

fn gotime(case: Case) -> CaseJudgement {
    match case.op.as_str() {
        "format" => {
            let TimeFormatCase { time, zone, layout } = case.inputs()?;
            let formatted = GoTime::parse(time::RFC3339, &time, &GoTimeZone::Utc)
                .map_err(|error| error.to_string())
                .and_then(|time| match zone.as_str() {
                    "" => Ok(time),
                    zone => GoTimeZone::load(zone)
                        .map(|zone| time.in_zone(zone))
                        .map_err(|error| error.to_string()),
                })
                .map(|time| Value::from(time.format(&layout)));
            case.judge(formatted)
        }
        "parse" => {
            let TimeParseCase { layout, r#in } = case.inputs()?;
            let parsed = GoTime::parse(&layout, &r#in, &GoTimeZone::Utc).map(|time| {
                let (zone, offset) = time.abbreviation_and_offset();
                json!({"time": time.format(time::RFC3339_NANO), "zone": zone, "offset": offset})
            });
            case.judge(parsed.map_err(|error| error.to_string()))
        }
        "duration" => {
            let DurationReading { r#in } = case.inputs()?;
            let parsed = GoDuration::parse(&r#in).map(|duration| {
                json!({"ns": duration.nanoseconds().to_string(), "string": duration.to_string()})
            });
            case.judge(parsed.map_err(|error| error.to_string()))
        }
        "string" => {
            let NanosecondsCase { ns } = case.inputs()?;
            let duration = ns.parse().map(GoDuration);
            let duration = duration
                .map_err(|_| CaseFailure::NotRun("`ns` is not 64 bits of a number".to_owned()))?;
            case.judge(Ok(json!({
                "string": duration.to_string(),
                "round_second": duration.round(GoDuration::SECOND).to_string(),
                "truncate_minute": duration.truncate(GoDuration::MINUTE).to_string(),
                "hours": in_json(duration.hours()),
                "minutes": in_json(duration.minutes()),
                "seconds": in_json(duration.seconds()),
            })))
        }
        _ => Err(case.unsupported(&[])),
    }
}

/// A number in Go's notation. A whole number has no fraction.
fn in_json(number: f64) -> Value {
    let whole = number as i64;
    if whole as f64 == number { Value::from(whole) } else { Value::from(number) }
}
