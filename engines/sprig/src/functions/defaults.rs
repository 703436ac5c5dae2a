//! What is empty, and what to take instead.

use golang::Value;
use golang::value::Kind;

use crate::arguments::{Outcome, any, text};
use crate::table::{Entry, plain};

pub(crate) const ENTRIES: &[Entry] = &[
    plain("all", "func(...interface {}) bool", all),
    plain("any", "func(...interface {}) bool", some),
    plain("coalesce", "func(...interface {}) interface {}", coalesce),
    plain("default", "func(interface {}, ...interface {}) interface {}", default),
    plain("empty", "func(interface {}) bool", empty),
    plain("fail", "func(string) (string, error)", fail),
    plain("ternary", "func(interface {}, interface {}, bool) interface {}", ternary),
];

/// Whether no value is empty.
fn all(args: &[Value]) -> Outcome {
    Ok(Value::Bool(!args.iter().any(is_empty)))
}

/// Whether any value is not empty.
fn some(args: &[Value]) -> Outcome {
    Ok(Value::Bool(!args.iter().all(is_empty)))
}

/// The first value that is not empty.
fn coalesce(args: &[Value]) -> Outcome {
    Ok(args.iter().find(|value| !is_empty(value)).cloned().unwrap_or_default())
}

/// The second value, or the first where that is empty or missing.
fn default(args: &[Value]) -> Outcome {
    let given = args.get(1).filter(|value| !is_empty(value));
    Ok(given.unwrap_or(any(args, 0)).clone())
}

/// Whether a value is empty: nil, zero, false, or without content.
fn empty(args: &[Value]) -> Outcome {
    Ok(Value::Bool(is_empty(any(args, 0))))
}

/// Ends the run with a message.
fn fail(args: &[Value]) -> Outcome {
    Err(String::from_utf8_lossy(text(args, 0)).into_owned().into())
}

/// The first value if the last one is true, else the second.
fn ternary(args: &[Value]) -> Outcome {
    Ok(any(args, usize::from(!any(args, 2).is_true())).clone())
}

/// Whether a value is empty: nil, zero, false, or without content; a struct never is.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(object) => match object.kind() {
            Kind::Struct => false,
            Kind::Pointer => object.is_nil(),
            _ => object.underlying().is_none_or(|value| !value.is_true()),
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
