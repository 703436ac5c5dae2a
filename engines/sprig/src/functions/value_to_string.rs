//! Strings of values.

use golang::GoRuntimeValue;
use golang::strconv::{QuotingStyle, quote as quoted};
use golang::value::{GoString, GoType};
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use crate::arguments::{SprigResult, any, items, length, made, printed, text, text_of};
use crate::function_table::{SprigFunctionEntry, bounded};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    bounded("cat", "func(...interface {}) string", cat),
    bounded("join", "func(string, interface {}) string", join),
    bounded("quote", "func(...interface {}) string", quote),
    bounded("sortAlpha", "func(interface {}) []string", sort_alpha),
    bounded("squote", "func(...interface {}) string", squote),
    bounded("toString", "func(interface {}) string", to_string),
    bounded("toStrings", "func(interface {}) []string", to_strings),
];

/// Joins all values except nil with spaces, as Go prints them.
fn cat(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let mut result = Vec::new();
    for (at, value) in shown(args).enumerate() {
        let text = printed(call, value)?;
        space(call, &mut result, at)?;
        result.extend(text);
    }
    Ok(GoRuntimeValue::string(result))
}

/// Puts all values except nil in quotes, separated by spaces.
fn quote(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let mut result = Vec::new();
    for (at, value) in shown(args).enumerate() {
        let text = text_of(call, value)?;
        // A byte becomes `\x00` at most.
        call.has_room(text.len())?;
        call.work(text.len() / 4)?;
        let text = quoted(&text, QuotingStyle::Printable);
        call.produce(text.len())?;
        space(call, &mut result, at)?;
        result.extend(text);
    }
    Ok(GoRuntimeValue::string(result))
}

/// Puts all values except nil in apostrophes, separated by spaces. Apostrophes within a value are not escaped.
fn squote(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let mut result = Vec::new();
    for (at, value) in shown(args).enumerate() {
        let text = printed(call, value)?;
        space(call, &mut result, at)?;
        result.push(b'\'');
        result.extend(text);
        result.push(b'\'');
    }
    Ok(GoRuntimeValue::string(result))
}

fn shown(values: &[GoRuntimeValue]) -> impl Iterator<Item = &GoRuntimeValue> {
    values.iter().filter(|value| !matches!(value, GoRuntimeValue::Nil))
}

/// The separator between a text and the one before it.
fn space(
    call: &mut FunctionCallContext<'_>,
    result: &mut Vec<u8>,
    at: usize,
) -> Result<(), TemplateFunctionError> {
    call.produce(1)?;
    if at > 0 {
        result.push(b' ');
    }
    Ok(())
}

/// Joins the strings of a list with a separator. A value that is not a list counts as one text.
fn join(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let separator = text(args, 0);
    let mut result = Vec::new();
    for (index, text) in strings(call, any(args, 1))?.iter().enumerate() {
        let length = separator.len() + text.len();
        call.work(length / 64)?;
        call.produce(length)?;
        if index > 0 {
            result.extend_from_slice(separator);
        }
        result.extend_from_slice(text);
    }
    Ok(GoRuntimeValue::string(result))
}

/// Sorts the strings of a list bytewise. A value that is not a list counts as one text.
fn sort_alpha(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let value = any(args, 0);
    let mut strings = match value {
        GoRuntimeValue::Nil => vec![text_of(call, value)?],
        value => strings(call, value)?,
    };
    // Each is compared with about as many as its place has digits.
    let rounds = strings.len().checked_ilog2().unwrap_or_default() as usize + 1;
    let bytes: usize = strings.iter().map(|text| text.len()).sum();
    call.work((bytes / 16).saturating_add(strings.len()).saturating_mul(rounds))?;
    strings.sort();
    Ok(GoRuntimeValue::strings(strings))
}

/// The text of a value.
fn to_string(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::string(text_of(call, any(args, 0))?))
}

/// The strings of a list without nil. A value that is not a list counts as one text, and nil as none.
fn to_strings(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    match any(args, 0) {
        GoRuntimeValue::List(list) if *list.item_type() == GoType::String => {
            Ok(GoRuntimeValue::List(list.clone()))
        }
        value => Ok(GoRuntimeValue::strings(strings(call, value)?)),
    }
}

fn strings(
    call: &mut FunctionCallContext<'_>,
    value: &GoRuntimeValue,
) -> Result<Vec<GoString>, TemplateFunctionError> {
    made(call, length(value))?;
    let items = match value {
        GoRuntimeValue::Nil => Vec::new(),
        value => items(value).unwrap_or_else(|| vec![value.clone()]),
    };
    let mut strings = Vec::with_capacity(items.len());
    for item in items.iter().filter(|item| !matches!(item, GoRuntimeValue::Nil)) {
        strings.push(text_of(call, item)?);
    }
    Ok(strings)
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn values_become_strings() {
        check(&[
            (r#"{{ cat "a" nil 1 2.5 (list 1 nil) }}|{{ cat }}"#, "a 1 2.5 [1 <nil>]|"),
            (r#"{{ quote "a\"b" 5 nil true "\u200b" }}"#, r#""a\"b" "5" "true" "\u200b""#),
            (r#"{{ squote "it's" .nil 5 }}"#, "'it's' '5'"),
            (
                r#"{{ join "-" (list 1 2.5 true nil "x") }} {{ join "," "a" }} {{ join "," nil }}"#,
                "1-2.5-true-x a ",
            ),
            (
                r#"{{ sortAlpha (list "b" "a" 3 nil) }} {{ sortAlpha nil }} {{ sortAlpha 5 }}"#,
                "[3 a b] [<nil>] [5]",
            ),
            (
                r#"{{ toString 1.0 }} {{ toString nil }} {{ toString (semver "v1.2") }}"#,
                "1 <nil> 1.2.0",
            ),
            (r#"{{ toStrings (list 1 nil "a") }} {{ len (toStrings nil) }}"#, "[1 a] 0"),
        ]);
    }
}
