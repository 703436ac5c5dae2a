//! Functions for strings in HCL, and functions that read and write JSON and YAML.

use golang::GoRuntimeValue as GoValue;
use golang::fmt::sprintf;
use golang::regexp::GoRegexp;
use golang::time::{GoDuration, GoTime, GoTimeZone, RFC3339_NANO};
use golang::unicode;
use serde_json::Value;

use super::super::evaluate::{HclEvaluator, float, text};
use super::{exactly, list, whole, wrong_count};
use crate::error::{Error, Result};
use crate::yaml;

/// The most JSON or YAML that is written, in bytes.
const MAX_ENCODED_BYTES: usize = 16 << 20;

/// Calls the function of this name; `None` if there is none.
pub(super) fn call(
    evaluator: &mut HclEvaluator,
    name: &str,
    arguments: &[Value],
) -> Option<Result<Value>> {
    let one =
        |run: fn(&str) -> String| exactly(arguments).and_then(|[one]| Ok(run(&text(one)?).into()));
    let two = |run: fn(&str, &str) -> Value| {
        exactly(arguments).and_then(|[one, other]| Ok(run(&text(one)?, &text(other)?)))
    };
    Some(match name {
        "chomp" => one(|text| text.trim_end_matches(['\r', '\n']).to_owned()),
        "lower" => one(unicode::lower),
        "upper" => one(unicode::upper),
        "trimspace" => one(|text| text.trim().to_owned()),
        "strrev" => one(|text| text.chars().rev().collect()),
        "title" => one(title),
        "strlen" => exactly(arguments).and_then(|[one]| Ok(text(one)?.chars().count().into())),
        "trim" => two(|text, cut| text.trim_matches(|known| cut.contains(known)).into()),
        "trimprefix" => two(|text, prefix| text.strip_prefix(prefix).unwrap_or(text).into()),
        "trimsuffix" => two(|text, suffix| text.strip_suffix(suffix).unwrap_or(text).into()),
        "split" => two(|separator, text| match (separator, text) {
            (_, "") => vec![""].into(),
            ("", text) => text.chars().map(String::from).collect::<Vec<_>>().into(),
            _ => text.split(separator).collect::<Vec<_>>().into(),
        }),
        "substr" => exactly(arguments).and_then(|[from, offset, length]| {
            substring(&text(from)?, whole(offset)?, whole(length)?)
        }),
        "indent" => exactly(arguments).and_then(|[spaces, lines]| {
            let spaces = super::index(spaces)?.min(MAX_ENCODED_BYTES);
            let lines = text(lines)?;
            evaluator.take(spaces.saturating_mul(lines.matches('\n').count()) / 64)?;
            Ok(lines.replace('\n', &format!("\n{}", " ".repeat(spaces))).into())
        }),
        "join" => join(arguments),
        "format" => match arguments.split_first() {
            Some((pattern, arguments)) => {
                text(pattern).and_then(|pattern| format(&pattern, arguments))
            }
            None => Err(wrong_count(name)),
        },
        "formatlist" => format_list(evaluator, arguments),
        "regex" => exactly(arguments).and_then(|[pattern, on]| {
            let pattern = regexp(&text(pattern)?)?;
            let on = text(on)?;
            evaluator.take(on.len())?;
            let found = pattern
                .find_groups(&on)
                .ok_or("the pattern did not match any part of the given string")?;
            Ok(groups(&pattern, &found))
        }),
        "regexall" => exactly(arguments).and_then(|[pattern, on]| {
            let pattern = regexp(&text(pattern)?)?;
            let on = text(on)?;
            evaluator.take(on.len())?;
            let all = pattern.find_all(&on, None).into_iter();
            let all = all.filter_map(|found| {
                pattern.find_groups(found).map(|found| groups(&pattern, &found))
            });
            Ok(all.collect())
        }),
        "timeadd" => exactly(arguments).and_then(|[time, duration]| {
            let utc = GoTimeZone::fixed("UTC", 0);
            let time = GoTime::parse(RFC3339_NANO, &text(time)?, &utc)
                .map_err(|error| error.to_string())?;
            let duration =
                GoDuration::parse(&text(duration)?).map_err(|error| error.to_string())?;
            Ok(time.add(duration).format("2006-01-02T15:04:05Z07:00").into())
        }),
        "jsonencode" => exactly(arguments).and_then(|[value]| json(value).map(Value::String)),
        "jsondecode" => exactly(arguments).and_then(|[json]| {
            serde_json::from_str(&text(json)?).map_err(|error| error.to_string().into())
        }),
        "yamlencode" => {
            exactly(arguments).and_then(|[value]| yaml::write_plain(value).map(Value::String))
        }
        "yamldecode" => exactly(arguments).and_then(|[yaml]| yaml::read(text(yaml)?.as_bytes())),
        _ => return None,
    })
}

fn title(text: &str) -> String {
    let mut before = ' ';
    let upper = |next: char| {
        let begins = !(before.is_alphanumeric() || before == '_' || before == '\'');
        before = next;
        if begins { unicode::to_title(next) } else { next }
    };
    text.chars().map(upper).collect()
}

/// A part of a text. A negative offset counts from the end, and a negative length means the rest of the text.
fn substring(text: &str, offset: i64, length: i64) -> Result<Value> {
    let count = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let from = if offset < 0 { count.saturating_add(offset).max(0) } else { offset };
    let skipped = usize::try_from(from).map_err(|_| "the offset is out of range")?;
    let taken = usize::try_from(length).unwrap_or(usize::MAX);
    Ok(text.chars().skip(skipped).take(taken).collect::<String>().into())
}

fn join(arguments: &[Value]) -> Result<Value> {
    let Some((separator, lists)) = arguments.split_first().filter(|(_, lists)| !lists.is_empty())
    else {
        return Err("a separator and a list are required".into());
    };
    let mut strings = Vec::new();
    for items in lists {
        for item in list(items)? {
            strings.push(text(item)?);
        }
    }
    Ok(strings.join(&text(separator)?).into())
}

fn json(value: &Value) -> Result<String> {
    let encoded = golang::json::encode(
        &GoValue::from_json(value),
        golang::json::JsonLayout::default(),
        MAX_ENCODED_BYTES,
    );
    encoded.map_err(|error| error.to_string().into())
}

/// Formats a pattern with verbs. Each value is converted to the type of its verb.
fn format(pattern: &str, arguments: &[Value]) -> Result<Value> {
    let mut values = Vec::new();
    let mut verbs = Vec::new();
    let mut rest = pattern;
    while let Some((_, after)) = rest.split_once('%') {
        let end = after.find(|next: char| next.is_ascii_alphabetic() || next == '%');
        let Some(end) = end else { return Err("a verb is not finished".into()) };
        verbs.extend(after[end..].chars().next().filter(|verb| *verb != '%'));
        rest = after.get(end + 1..).unwrap_or_default();
    }
    if verbs.len() != arguments.len() {
        return Err(format!(
            "{} values are required, but there are {}",
            verbs.len(),
            arguments.len()
        )
        .into());
    }
    for (verb, value) in verbs.iter().zip(arguments) {
        values.push(match verb {
            'd' | 'b' | 'o' | 'x' | 'X' => GoValue::int(whole(value)?),
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => GoValue::Float(float(value)?),
            't' => GoValue::Bool(value.as_bool().ok_or("a bool is required")?),
            's' | 'q' => GoValue::from(text(value)?),
            'v' => match value {
                Value::Array(_) | Value::Object(_) | Value::Null => GoValue::from(json(value)?),
                other => GoValue::from(text(other)?),
            },
            other => return Err(format!("the verb %{other} is not supported").into()),
        });
    }
    let out = sprintf(pattern.as_bytes(), &values).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&out).into_owned().into())
}

/// `format` for each item of the lists among the arguments.
fn format_list(evaluator: &mut HclEvaluator, arguments: &[Value]) -> Result<Value> {
    let Some((pattern, arguments)) = arguments.split_first() else {
        return Err(wrong_count("formatlist"));
    };
    let pattern = text(pattern)?;
    let mut lengths = arguments.iter().filter_map(Value::as_array).map(Vec::len);
    let count = lengths.next().unwrap_or(1);
    if lengths.any(|length| length != count) {
        return Err("lists of the same length are required".into());
    }
    evaluator.take(count.saturating_mul(1 + pattern.len() / 64))?;
    let of_row = |row: usize| {
        let values: Vec<Value> = arguments
            .iter()
            .map(|argument| match argument {
                Value::Array(items) => items.get(row).cloned().unwrap_or_default(),
                other => other.clone(),
            })
            .collect();
        format(&pattern, &values)
    };
    (0..count).map(of_row).collect()
}

fn regexp(pattern: &str) -> Result<GoRegexp> {
    GoRegexp::new(pattern).map_err(|error| Error::from(error.to_string()))
}

/// The result of a regular expression match: an object for named groups, a list for other groups, else the matched text.
fn groups(pattern: &GoRegexp, found: &[Option<&str>]) -> Value {
    let value = |text: &Option<&str>| text.map_or(Value::Null, Value::from);
    let names = pattern.names();
    match found {
        [] => Value::Null,
        [whole] => value(whole),
        [_, groups @ ..] => {
            // The first name belongs to the whole match.
            let skipped = names.len().saturating_sub(groups.len());
            let named = names.iter().skip(skipped).zip(groups).filter(|(name, _)| !name.is_empty());
            let named: crate::state_values_merge::ValuesMap =
                named.map(|(name, text)| (name.clone(), value(text))).collect();
            if named.is_empty() { groups.iter().map(value).collect() } else { Value::Object(named) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::title;

    #[test]
    fn capitals_are_one_for_one() {
        assert_eq!(title("straße ßa ǆx ﬁn"), "Straße ßa ǅx ﬁn");
    }
}
