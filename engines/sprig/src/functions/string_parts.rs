//! The template functions that split strings.

use golang::GoRuntimeValue;
use golang::unicode::decode;
use golang::value::{GoMap, GoString, GoType};
use gotemplate::{FunctionCallContext, TemplateFunctionError};
use memchr::memmem;

use crate::arguments::{
    MAP_ENTRY_OVERHEAD_BYTES, SprigResult, TEXT_OVERHEAD_BYTES, int, made, mapped, text,
};
use crate::function_table::{SprigFunctionEntry, bounded};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    bounded("split", "func(string, string) map[string]string", split),
    bounded("splitList", "func(string, string) []string", split_list),
    bounded("splitn", "func(string, int, string) map[string]string", splitn),
];

/// The parts of the second text between the first, as `_0`, `_1` and so on.
fn split(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let parts = parts(call, text(args, 1), text(args, 0), None)?;
    numbered(call, parts)
}

/// The parts of the second text between the first.
fn split_list(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::strings(parts(call, text(args, 1), text(args, 0), None)?))
}

/// Splits a text into a limited number of parts, named `_0`, `_1` and so on. The last part has the rest of the text.
fn splitn(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let limit = usize::try_from(int(args, 1)).ok();
    let parts = parts(call, text(args, 2), text(args, 0), limit)?;
    numbered(call, parts)
}

fn numbered(call: &mut FunctionCallContext<'_>, parts: Vec<GoString>) -> SprigResult {
    mapped(call, parts.len())?;
    call.produce(parts.len().saturating_mul(MAP_ENTRY_OVERHEAD_BYTES))?;
    let entries = parts.into_iter().enumerate();
    let entries =
        entries.map(|(at, part)| (GoString::from(format!("_{at}")), GoRuntimeValue::String(part)));
    Ok(GoRuntimeValue::Map(GoMap::new(GoType::String, entries)))
}

/// Splits a text like Go's `SplitN`. With an empty separator, it is split into characters.
fn parts(
    call: &mut FunctionCallContext<'_>,
    text: &[u8],
    separator: &[u8],
    limit: Option<usize>,
) -> Result<Vec<GoString>, TemplateFunctionError> {
    let mut parts = Vec::new();
    if limit == Some(0) || text.is_empty() && separator.is_empty() {
        return Ok(parts);
    }
    let finder = memmem::Finder::new(separator);
    let mut rest = text;
    while limit.is_none_or(|limit| parts.len() + 1 < limit) {
        let end = match separator.is_empty() {
            true => Some(decode(rest).1).filter(|end| *end < rest.len()),
            false => finder.find(rest),
        };
        let Some(end) = end else { break };
        made(call, 1)?;
        call.produce(end + TEXT_OVERHEAD_BYTES)?;
        parts.push(rest[..end].into());
        rest = &rest[end + separator.len()..];
    }
    call.produce(rest.len())?;
    parts.push(rest.into());
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn strings_are_split_as_go_splits_them() {
        check(&[
            (r#"{{ split "," "a,b,c" }} {{ (split "," "a,b")._1 }}"#, "map[_0:a _1:b _2:c] b"),
            (
                r#"{{ splitList "," "a,,b" | join "|" }} {{ splitList "" "aé" | join "|" }}"#,
                "a||b a|é",
            ),
            (r#"{{ len (splitList "" "") }} {{ len (splitList "," "") }}"#, "0 1"),
            (
                r#"{{ splitn "," 2 "a,b,c" }} {{ splitn "," 0 "a" }} {{ splitn "," -1 "a,b" }}"#,
                "map[_0:a _1:b,c] map[] map[_0:a _1:b]",
            ),
        ]);
    }
}
