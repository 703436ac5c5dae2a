//! The template functions for the kinds and types of values, and for equality.

use golang::GoRuntimeValue;
use gotemplate::FunctionCallContext;

use crate::arguments::{SprigResult, any, text};
use crate::function_table::{SprigFunctionEntry, bounded, plain};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    bounded("deepEqual", "func(interface {}, interface {}) bool", deep_equal),
    plain("kindIs", "func(string, interface {}) bool", kind_is),
    plain("kindOf", "func(interface {}) string", kind_of),
    plain("typeIs", "func(string, interface {}) bool", type_is),
    plain("typeIsLike", "func(string, interface {}) bool", type_is_like),
    plain("typeOf", "func(interface {}) string", type_of),
];

/// Whether two values are equal in type and content.
fn deep_equal(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Bool(any(args, 0).deep_equal(any(args, 1), |items| call.work(items))?))
}

/// Whether a value is of a kind.
fn kind_is(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Bool(any(args, 1).kind().to_string().as_bytes() == text(args, 0)))
}

/// The kind of a value, such as `map`.
fn kind_of(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::from(any(args, 0).kind().to_string()))
}

/// Whether a value is of a type.
fn type_is(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Bool(any(args, 1).type_name().as_bytes() == text(args, 0)))
}

/// Whether a value has a type, or is a pointer to a value of that type.
fn type_is_like(args: &[GoRuntimeValue]) -> SprigResult {
    let name = any(args, 1).type_name();
    let wanted = text(args, 0);
    let pointed = name.strip_prefix('*').unwrap_or(&name);
    Ok(GoRuntimeValue::Bool(name.as_bytes() == wanted || pointed.as_bytes() == wanted))
}

/// The type of a value, such as `map[string]interface {}`.
fn type_of(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::from(any(args, 0).type_name()))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn values_have_go_s_kinds_and_types() {
        check(&[
            (
                r#"{{ kindOf nil }} {{ kindOf 1 }} {{ kindOf now }} {{ kindOf (list) }}"#,
                "invalid int struct slice",
            ),
            (r#"{{ kindIs "map" (dict) }} {{ kindIs "int" (int64 1) }}"#, "true false"),
            (r#"{{ typeOf nil }} {{ typeOf 'a' }} {{ typeOf (until 1) }}"#, "<nil> int []int"),
            (r#"{{ typeOf (chunk 1 (list 1)) }} {{ typeOf now }}"#, "[][]interface {} time.Time"),
            (
                r#"{{ typeIs "string" "a" }} {{ typeIsLike "semver.Version" (semver "1.0.0") }}"#,
                "true true",
            ),
            (
                r#"{{ deepEqual 1 1.0 }} {{ deepEqual (list 1) (list 1) }} {{ deepEqual nil .nil }}"#,
                "false true true",
            ),
        ]);
    }
}
