//! The template functions for integers: converting values, and arithmetic that overflows like Go's.

use golang::GoRuntimeValue;
use golang::strconv::{NumError, NumErrorReason, atoi as parse_atoi, parse_int};
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use crate::arguments::{SprigResult, any, printed, rest, text};
use crate::function_table::{SprigFunctionEntry, bounded, plain};
use crate::number_cast::to_int;

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    plain("add", "func(...interface {}) int64", add),
    plain("add1", "func(interface {}) int64", add1),
    plain("atoi", "func(string) int", atoi),
    plain("biggest", "func(interface {}, ...interface {}) int64", max),
    plain("div", "func(interface {}, interface {}) int64", div),
    plain("int", "func(interface {}) int", int),
    plain("int64", "func(interface {}) int64", int64),
    plain("max", "func(interface {}, ...interface {}) int64", max),
    plain("min", "func(interface {}, ...interface {}) int64", min),
    plain("mod", "func(interface {}, interface {}) int64", modulo),
    plain("mul", "func(interface {}, ...interface {}) int64", mul),
    plain("sub", "func(interface {}, interface {}) int64", sub),
    bounded("toDecimal", "func(interface {}) int64", to_decimal),
];

/// The function `add` of templates: the sum of the integers.
fn add(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::int64(args.iter().map(to_int).fold(0, i64::wrapping_add)))
}

/// The function `add1` of templates: the integer plus one.
fn add1(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::int64(to_int(any(args, 0)).wrapping_add(1)))
}

/// Parses a decimal integer; zero if the text is not one.
fn atoi(args: &[GoRuntimeValue]) -> SprigResult {
    let text = String::from_utf8_lossy(text(args, 0));
    Ok(GoRuntimeValue::int(clamped(parse_atoi(&text), &text)))
}

/// The quotient, rounded towards zero.
fn div(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::int64(to_int(any(args, 0)).wrapping_div(divisor(args)?)))
}

/// The function `int` of templates: converts a value to Go's type `int`.
fn int(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::int(to_int(any(args, 0))))
}

/// The function `int64` of templates: converts a value to Go's type `int64`.
fn int64(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::int64(to_int(any(args, 0))))
}

/// The function `max` of templates: the largest of the integers, or 0 if there are none.
fn max(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::int64(args.iter().map(to_int).max().unwrap_or_default()))
}

/// The function `min` of templates: the least of the integers, or 0 if there are none.
fn min(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::int64(args.iter().map(to_int).min().unwrap_or_default()))
}

/// The remainder, with the sign of the first number.
fn modulo(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::int64(to_int(any(args, 0)).wrapping_rem(divisor(args)?)))
}

/// The function `mul` of templates: the product of the integers.
fn mul(args: &[GoRuntimeValue]) -> SprigResult {
    let first = to_int(any(args, 0));
    Ok(GoRuntimeValue::int64(rest(args, 1).iter().map(to_int).fold(first, i64::wrapping_mul)))
}

/// The function `sub` of templates: the first integer minus the second.
fn sub(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::int64(to_int(any(args, 0)).wrapping_sub(to_int(any(args, 1)))))
}

/// Parses an octal integer, such as file permissions; zero if the text is not one.
fn to_decimal(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let text = printed(call, any(args, 0))?;
    let number = std::str::from_utf8(&text).ok().and_then(|text| parse_int(text, 8, 64).ok());
    Ok(GoRuntimeValue::int64(number.unwrap_or_default()))
}

fn divisor(args: &[GoRuntimeValue]) -> Result<i64, TemplateFunctionError> {
    match to_int(any(args, 1)) {
        0 => Err("runtime error: integer divide by zero".into()),
        divisor => Ok(divisor),
    }
}

/// A parsed number whose error is ignored. If the number does not fit, Go returns the largest or smallest one.
pub(super) fn clamped(parsed: Result<i64, NumError>, text: &str) -> i64 {
    match parsed {
        Ok(number) => number,
        Err(NumError { reason: NumErrorReason::Range, .. }) if text.starts_with('-') => i64::MIN,
        Err(NumError { reason: NumErrorReason::Range, .. }) => i64::MAX,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn numbers_are_calculated_with_as_go_does() {
        check(&[
            (
                r#"{{ add 1 1.9 "3" nil true }} {{ add }} {{ add 9223372036854775807 1 }}"#,
                "6 0 -9223372036854775808",
            ),
            (r#"{{ add1 "0x10" }} {{ sub 1 2 }} {{ mul 2 "3" 1.5 }}"#, "17 -1 6"),
            (r#"{{ div 7 -2 }} {{ mod -7 2 }} {{ div 1 "0x2" }}"#, "-3 -1 0"),
            (r#"{{ div 1 0 }}"#, "error: error calling div: runtime error: integer divide by zero"),
            (
                r#"{{ mod 1 "x" }}"#,
                "error: error calling mod: runtime error: integer divide by zero",
            ),
            (r#"{{ max 1 2.9 3 }} {{ min 5 "2" }} {{ biggest -1 -2 }}"#, "3 2 -1"),
            (
                r#"{{ int "012" }} {{ int 1.9 }} {{ int "1e3" }} {{ int nil }} {{ int 1e20 }}"#,
                "10 1 0 0 -9223372036854775808",
            ),
            (
                r#"{{ int64 "9223372036854775807" }} {{ int64 (semver "1.0.0") }} {{ int now.Month }}"#,
                "9223372036854775807 0 5",
            ),
            (
                r#"{{ atoi "12" }} {{ atoi "12x" }} {{ atoi "99999999999999999999" }}"#,
                "12 0 9223372036854775807",
            ),
            (r#"{{ toDecimal "0777" }} {{ toDecimal 644 }} {{ toDecimal "8" }}"#, "511 420 0"),
        ]);
    }
}
