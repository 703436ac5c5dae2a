//! The template functions for numbers with fractions. Sums and products are computed with decimal numbers.

use golang::GoRuntimeValue;
use gotemplate::FunctionCallContext;

use crate::arguments::{SprigResult, any, float, int, rest};
use crate::decimal::Decimal;
use crate::function_table::{SprigFunctionEntry, bounded, plain};
use crate::number_cast::to_float;

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    bounded("add1f", "func(interface {}) float64", add1f),
    bounded("addf", "func(...interface {}) float64", addf),
    plain("ceil", "func(interface {}) float64", ceil),
    bounded("divf", "func(interface {}, ...interface {}) float64", divf),
    plain("float64", "func(interface {}) float64", float64),
    plain("floor", "func(interface {}) float64", floor),
    plain("maxf", "func(interface {}, ...interface {}) float64", maxf),
    plain("minf", "func(interface {}, ...interface {}) float64", minf),
    bounded("mulf", "func(interface {}, ...interface {}) float64", mulf),
    plain("round", "func(interface {}, int, ...float64) float64", round),
    bounded("subf", "func(interface {}, ...interface {}) float64", subf),
];

/// The function `add1f` of templates: the sum of the numbers plus one.
fn add1f(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    calculated(call, 0.0, args.iter().chain([&GoRuntimeValue::Float(1.0)]), |a, b| Ok(a.add(b)))
}

/// The function `addf` of templates: the sum of the numbers.
fn addf(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    calculated(call, 0.0, args, |a, b| Ok(a.add(b)))
}

/// The difference from the first number.
fn subf(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    calculated(call, to_float(any(args, 0)), rest(args, 1), |a, b| Ok(a.sub(b)))
}

/// The function `mulf` of templates: the product of the numbers.
fn mulf(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    calculated(call, to_float(any(args, 0)), rest(args, 1), |a, b| Ok(a.mul(b)))
}

/// The quotient of the first number and the others.
fn divf(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    calculated(call, to_float(any(args, 0)), rest(args, 1), Decimal::div)
}

fn calculated<'v>(
    call: &mut FunctionCallContext<'_>,
    first: f64,
    others: impl IntoIterator<Item = &'v GoRuntimeValue>,
    step: fn(&Decimal, &Decimal) -> Result<Decimal, String>,
) -> SprigResult {
    let mut result = Decimal::from_float(first)?;
    for other in others {
        // A product has all digits of its factors, and all of them are printed at the end.
        call.work(1 + result.bits() / 64 * 8)?;
        call.produce(result.bits() / 8)?;
        result = step(&result, &Decimal::from_float(to_float(other))?)?;
    }
    call.work((result.bits() / 64).saturating_pow(2))?;
    Ok(GoRuntimeValue::Float(result.to_float()))
}

/// The next whole number above.
fn ceil(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Float(to_float(any(args, 0)).ceil()))
}

/// The next whole number below.
fn floor(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Float(to_float(any(args, 0)).floor()))
}

/// The function `float64` of templates: converts a value to Go's type `float64`.
fn float64(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Float(to_float(any(args, 0))))
}

/// The largest number, by Go's `math.Max`.
fn maxf(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Float(chosen(args, f64::INFINITY, |a, b| {
        a > b || a == b && a.is_sign_positive()
    })))
}

/// The least number, by Go's `math.Min`.
fn minf(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Float(chosen(args, f64::NEG_INFINITY, |a, b| {
        a < b || a == b && a.is_sign_negative()
    })))
}

/// Chooses one of several numbers like Go's `math.Max`. `bound` takes precedence over a NaN.
fn chosen(args: &[GoRuntimeValue], bound: f64, wins: fn(f64, f64) -> bool) -> f64 {
    let numbers = args.iter().map(to_float);
    let choose = |a: f64, b: f64| match (a, b) {
        (a, b) if a == bound || b == bound => bound,
        (a, b) if a.is_nan() || b.is_nan() => f64::NAN,
        (a, b) if wins(a, b) => a,
        (_, b) => b,
    };
    numbers.reduce(choose).unwrap_or_default()
}

/// Rounds a number to some digits after the point. It is rounded up if the rest is at least the third argument.
///
/// Parity(helm 4): a negative number always goes down.
fn round(args: &[GoRuntimeValue]) -> SprigResult {
    let from = if args.len() > 2 { float(args, 2) } else { 0.5 };
    let power = power_of_ten(int(args, 1));
    let digits = power * to_float(any(args, 0));
    let rounded =
        if digits.fract() >= from && digits.is_finite() { digits.ceil() } else { digits.floor() };
    Ok(GoRuntimeValue::Float(rounded / power))
}

/// Go's `math.Pow(10, exponent)`, which is not always the nearest number.
fn power_of_ten(exponent: i64) -> f64 {
    const MAX_SQUARE_SHIFT: i32 = 1 << 12;
    if exponent == 1 {
        return 10.0;
    }
    // The result is `fraction * 2^shift`. The square that is multiplied into it has the same form.
    let mut fraction = 1.0;
    let mut shift = 0i32;
    let mut square = 0.625;
    let mut square_shift = 4i32;
    let mut left = exponent.unsigned_abs();
    while left != 0 {
        if !(-MAX_SQUARE_SHIFT..=MAX_SQUARE_SHIFT).contains(&square_shift) {
            shift += square_shift;
            break;
        }
        if left & 1 == 1 {
            fraction *= square;
            shift += square_shift;
        }
        square *= square;
        square_shift *= 2;
        if square < 0.5 {
            square += square;
            square_shift -= 1;
        }
        left >>= 1;
    }
    if exponent < 0 {
        (fraction, shift) = (1.0 / fraction, -shift);
    }
    scaled(fraction, shift)
}

/// `fraction * 2^shift` of a fraction near 1, rounded once.
fn scaled(fraction: f64, shift: i32) -> f64 {
    if shift > -1000 {
        // The factor is applied in two steps, because each must fit into a `float64`.
        return fraction * 2f64.powi(shift.min(1000)) * 2f64.powi((shift - 1000).clamp(0, 1000));
    }
    // Down to the least normal numbers exactly, then once more.
    fraction * 2f64.powi(-900) * 2f64.powi((shift + 900).max(-300))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn fractions_are_calculated_with_as_decimal_numbers() {
        check(&[
            (
                r#"{{ addf 1.1 2.2 }} {{ addf }} {{ addf "1.5" nil }} {{ add1f 0.1 }}"#,
                "3.3 0 1.5 1.1",
            ),
            (
                r#"{{ subf 1 0.9 }} {{ mulf 1.1 3 }} {{ divf 1 3 }} {{ divf 1 8 2 }}"#,
                "0.1 3.3 0.3333333333333333 0.0625",
            ),
            (r#"{{ divf 1 0 }}"#, "error: error calling divf: decimal division by 0"),
            (r#"{{ addf "inf" }}"#, "error: error calling addf: Cannot create a Decimal from +Inf"),
        ]);
    }

    #[test]
    fn fractions_are_rounded_and_compared() {
        check(&[
            (r#"{{ ceil 1.2 }} {{ floor "1.9" }} {{ floor -0.5 }} {{ float64 "x" }}"#, "2 1 -1 0"),
            (r#"{{ maxf 1 2.5 "3" }} {{ minf 1 2.5 }} {{ maxf "nan" 1 }}"#, "3 1 NaN"),
            (r#"{{ round 2.5 0 }} {{ round -2.5 0 }} {{ round 123.5555 3 }}"#, "3 -3 123.556"),
            (r#"{{ round 1.25 1 0.6 }} {{ round 123.456 -1 }} {{ round "x" 1 }}"#, "1.2 120 0"),
            (r#"{{ round 1.5 400 }} {{ round 1.5 -400 }}"#, "NaN NaN"),
        ]);
    }
}
