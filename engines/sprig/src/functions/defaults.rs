//! The template functions for empty values and their defaults.

use golang::GoRuntimeValue;
use golang::value::ReflectKind;

use crate::arguments::{SprigResult, any, text};
use crate::function_table::{SprigFunctionEntry, plain};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    plain("all", "func(...interface {}) bool", all),
    plain("any", "func(...interface {}) bool", some),
    plain("coalesce", "func(...interface {}) interface {}", coalesce),
    plain("default", "func(interface {}, ...interface {}) interface {}", default),
    plain("empty", "func(interface {}) bool", empty),
    plain("fail", "func(string) (string, error)", fail),
    plain("ternary", "func(interface {}, interface {}, bool) interface {}", ternary),
];

/// Whether no value is empty.
fn all(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Bool(!args.iter().any(is_empty)))
}

/// Whether any value is not empty.
fn some(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Bool(!args.iter().all(is_empty)))
}

/// The first value that is not empty.
fn coalesce(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(args.iter().find(|value| !is_empty(value)).cloned().unwrap_or_default())
}

/// The second value, or the first where that is empty or missing.
fn default(args: &[GoRuntimeValue]) -> SprigResult {
    let given = args.get(1).filter(|value| !is_empty(value));
    Ok(given.unwrap_or(any(args, 0)).clone())
}

/// Whether a value is empty: nil, zero, false, or without content.
fn empty(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Bool(is_empty(any(args, 0))))
}

/// Ends the run with a message.
fn fail(args: &[GoRuntimeValue]) -> SprigResult {
    Err(String::from_utf8_lossy(text(args, 0)).into_owned().into())
}

/// The first value if the last one is true, otherwise the second.
fn ternary(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(any(args, usize::from(!any(args, 2).is_true())).clone())
}

/// Whether a value is empty: nil, zero, false, or without content. A struct is never empty.
pub(super) fn is_empty(value: &GoRuntimeValue) -> bool {
    match value {
        GoRuntimeValue::Object(object) => match object.kind() {
            ReflectKind::Struct => false,
            ReflectKind::Pointer => object.is_nil(),
            _ => match object.entries() {
                Some(entries) => entries.is_empty(),
                None => object.underlying().is_none_or(|value| !value.is_true()),
            },
        },
        value => !value.is_true(),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn what_is_empty_is_replaced() {
        check(&[
            (
                r#"{{ default "d" 0 }}{{ default "d" "" }}{{ default "d" .nil }}{{ default "d" (list) }}"#,
                "dddd",
            ),
            (r#"{{ default "d" }} {{ default "d" 5 }} {{ default "d" "0" }}"#, "d 5 0"),
            (
                r#"{{ empty now }} {{ empty (semver "1.0.0") }} {{ empty (mustToDuration 0) }}"#,
                "false false true",
            ),
            (r#"{{ all 1 0 }} {{ all }} {{ any 0 1 }} {{ any }}"#, "false true true false"),
            (r#"{{ coalesce nil "" 0 "x" "y" }} {{ coalesce }}"#, "x <no value>"),
            (r#"{{ ternary "a" "b" true }} {{ ternary "a" "b" false }}"#, "a b"),
            (r#"{{ fail "boom" }}"#, "error: error calling fail: boom"),
        ]);
    }
}
