//! Functions of strings: those of the standard library and of the extension `Strings`.
//!
//! Positions are counted in characters. Elsewhere: `format` (its own file).

use golang::regexp::GoRegexp;

use super::{FunctionResult, format};
use crate::budget::{CelBudget, CelError};
use crate::value::{CelList, CelValue};

/// How long the pattern of `matches` may be, in bytes, if it is not a literal.
const MAX_DYNAMIC_PATTERN: usize = 1000;

pub(super) fn matches<'a>(
    text: &str,
    pattern: &str,
    compiled: Option<&GoRegexp>,
    budget: &mut CelBudget,
) -> FunctionResult<'a> {
    budget.spend_bytes(text.len())?;
    // The time grows with the product of the lengths of pattern and text.
    let weight = 1 + pattern.len() / 32 + if pattern.contains('{') { 16 } else { 0 };
    let steps = text.len().saturating_mul(weight) / 4;
    if let Some(compiled) = compiled {
        budget.spend(if compiled.is_small() { steps } else { steps.saturating_mul(64) })?;
        return Ok(CelValue::Bool(compiled.is_match(text)));
    }
    if pattern.len() > MAX_DYNAMIC_PATTERN {
        let text = format!("a pattern that is no literal may have {MAX_DYNAMIC_PATTERN} bytes");
        return Err(CelError::failed(text));
    }
    // Compiling is expensive: a pattern of a thousand bytes takes milliseconds.
    budget.spend(2000)?;
    let compiled = GoRegexp::new(pattern).map_err(|error| CelError::failed(error.to_string()))?;
    budget.spend(if compiled.is_small() { steps } else { steps.saturating_mul(64) })?;
    Ok(CelValue::Bool(compiled.is_match(text)))
}

/// Calls a function whose first argument is a text, or a list of strings.
pub(super) fn call<'a>(
    name: &str,
    args: &[CelValue<'a>],
    budget: &mut CelBudget,
) -> FunctionResult<'a> {
    for arg in args {
        if let CelValue::String(text) = arg {
            budget.spend_bytes(text.len())?;
        }
    }
    if name == "join" {
        return join(args, budget);
    }
    let Some(CelValue::String(text)) = args.first() else {
        return Err(CelError::no_such_overload());
    };
    let text = &**text;
    match (name, args) {
        ("contains", [_, CelValue::String(part)]) => Ok(CelValue::Bool(text.contains(&**part))),
        ("startsWith", [_, CelValue::String(part)]) => {
            Ok(CelValue::Bool(text.starts_with(&**part)))
        }
        ("endsWith", [_, CelValue::String(part)]) => Ok(CelValue::Bool(text.ends_with(&**part))),
        ("lowerAscii", _) => Ok(CelValue::text(text.to_ascii_lowercase())),
        ("upperAscii", _) => Ok(CelValue::text(text.to_ascii_uppercase())),
        ("trim", _) => Ok(CelValue::text(text.trim())),
        ("reverse", _) => Ok(CelValue::text(text.chars().rev().collect::<String>())),
        ("strings.quote", _) => Ok(CelValue::text(quote(text))),
        ("format", [_, CelValue::List(list)]) => {
            format::format(text, list, budget).map(CelValue::text)
        }
        ("charAt", [_, CelValue::Int(index)]) => char_at(text, *index).map(CelValue::text),
        ("substring", [_, CelValue::Int(start)]) => {
            substring(text, *start, None).map(CelValue::text)
        }
        ("substring", [_, CelValue::Int(start), CelValue::Int(end)]) => {
            substring(text, *start, Some(*end)).map(CelValue::text)
        }
        ("indexOf", [_, CelValue::String(part), rest @ ..]) => {
            let offset = if let [CelValue::Int(offset)] = rest { *offset } else { 0 };
            index_of(text, part, offset).map(CelValue::Int)
        }
        ("lastIndexOf", [_, CelValue::String(part), rest @ ..]) => {
            let offset = if let [CelValue::Int(offset)] = rest { Some(*offset) } else { None };
            last_index_of(text, part, offset).map(CelValue::Int)
        }
        ("split", [_, CelValue::String(separator), rest @ ..]) => {
            let limit = if let [CelValue::Int(limit)] = rest { *limit } else { -1 };
            let parts = split(text, separator, limit);
            budget.spend(parts.len())?;
            budget.spend_bytes(parts.len().saturating_mul(size_of::<CelValue<'_>>()))?;
            Ok(CelValue::List(CelList::made(parts.into_iter().map(CelValue::text).collect())))
        }
        ("replace", [_, CelValue::String(old), CelValue::String(new), rest @ ..]) => {
            let limit = if let [CelValue::Int(limit)] = rest { *limit } else { -1 };
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let places = places(text, old).min(limit);
            budget.spend_bytes(text.len().saturating_add(places.saturating_mul(new.len())))?;
            Ok(CelValue::text(text.replacen(&**old, new, places)))
        }
        _ => Err(CelError::no_such_overload()),
    }
}

/// How often a part occurs in a text. An empty part occurs between any two characters, too.
fn places(text: &str, part: &str) -> usize {
    if part.is_empty() { text.chars().count() + 1 } else { text.matches(part).count() }
}

fn out_of_range(index: i64) -> CelError {
    CelError::failed(format!("index out of range: {index}"))
}

/// The byte position of the character with this index. The index after the last character gives the end of the text.
/// `None` if the index is negative or greater.
fn byte_of(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    let ends = std::iter::once(text.len());
    text.char_indices().map(|(at, _)| at).chain(ends).nth(index)
}

fn char_at(text: &str, index: i64) -> Result<String, CelError> {
    let start = byte_of(text, index).ok_or_else(|| out_of_range(index))?;
    Ok(text.get(start..).and_then(|rest| rest.chars().next()).map(String::from).unwrap_or_default())
}

fn substring(text: &str, start: i64, end: Option<i64>) -> Result<String, CelError> {
    if let Some(end) = end.filter(|end| start > *end) {
        let text = format!("invalid substring range. start: {start}, end: {end}");
        return Err(CelError::failed(text));
    }
    let from = byte_of(text, start).ok_or_else(|| out_of_range(start))?;
    let to = match end {
        Some(end) => byte_of(text, end).ok_or_else(|| out_of_range(end))?,
        None => text.len(),
    };
    Ok(text.get(from..to).unwrap_or_default().to_owned())
}

fn characters(text: &str) -> i64 {
    i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
}

fn index_of(text: &str, part: &str, offset: i64) -> Result<i64, CelError> {
    if part.is_empty() {
        return Ok(offset);
    }
    if offset < 0 {
        return Err(out_of_range(offset));
    }
    let Some(from) = byte_of(text, offset) else { return Ok(-1) };
    let rest = text.get(from..).unwrap_or_default();
    Ok(rest.find(part).map_or(-1, |at| offset + characters(rest.get(..at).unwrap_or_default())))
}

fn last_index_of(text: &str, part: &str, offset: Option<i64>) -> Result<i64, CelError> {
    let length = characters(text);
    if part.is_empty() {
        return Ok(offset.unwrap_or(length));
    }
    if offset.is_none() && text.len() < part.len() {
        return Ok(-1);
    }
    let offset = offset.unwrap_or(length - 1);
    if offset < 0 {
        return Err(out_of_range(offset));
    }
    if offset >= length {
        return Ok(-1);
    }
    let last = offset.min(length - characters(part));
    let Some(last) = byte_of(text, last) else { return Ok(-1) };
    // An occurrence that begins there ends further on.
    let searched = text.get(..last + part.len()).unwrap_or(text);
    let found = searched.rfind(part).filter(|at| *at <= last);
    Ok(found.map_or(-1, |at| characters(text.get(..at).unwrap_or_default())))
}

/// Go's `SplitN`: an empty separator splits into characters, a limit of 0 gives nothing.
fn split<'t>(text: &'t str, separator: &str, limit: i64) -> Vec<&'t str> {
    if limit == 0 {
        return Vec::new();
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if !separator.is_empty() {
        return text.splitn(limit, separator).collect();
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest);
            break;
        }
        let (one, others) = rest.split_at(first.len_utf8());
        parts.push(one);
        rest = others;
    }
    parts
}

fn join<'a>(args: &[CelValue<'a>], budget: &mut CelBudget) -> FunctionResult<'a> {
    let Some(CelValue::List(list)) = args.first() else { return Err(CelError::no_such_overload()) };
    let separator = match args.get(1) {
        Some(CelValue::String(separator)) => &**separator,
        _ => "",
    };
    let mut joined = String::new();
    for (index, element) in list.iter().enumerate() {
        let CelValue::String(text) = &element else {
            return Err(CelError::failed(format!("join: invalid input: {}", element.shown())));
        };
        budget.spend(1)?;
        budget.spend_bytes(text.len() + separator.len())?;
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
    }
    Ok(CelValue::text(joined))
}

/// Puts a text in quotation marks, with the escapes of CEL.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        let escape = match character {
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{b}' => "\\v",
            '\\' => "\\\\",
            '"' => "\\\"",
            other => {
                quoted.push(other);
                continue;
            }
        };
        quoted.push_str(escape);
    }
    quoted.push('"');
    quoted
}
