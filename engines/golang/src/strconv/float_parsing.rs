//! Reads decimal and hexadecimal floating point numbers.

use super::{NumError, NumErrorReason, StrconvFunction, is_underscored_well};

/// The format of floats of one size: `value`·2^`exponent`.
struct FloatBitFormat {
    /// How many bits `value` has.
    mantissa_bits: i64,
    /// The exponent of the smallest number that is not zero.
    least_exponent: i64,
    /// The exponent of the highest bit of the largest number.
    most_exponent: i64,
}

const FLOAT_32: FloatBitFormat =
    FloatBitFormat { mantissa_bits: 24, least_exponent: -149, most_exponent: 127 };

const FLOAT_64: FloatBitFormat =
    FloatBitFormat { mantissa_bits: 53, least_exponent: -1074, most_exponent: 1023 };

/// Reads a float of 64 bits. It may be decimal or hexadecimal, `inf`, `infinity` or `nan`, in upper or lower case.
///
/// If `bits` is 32, the result is rounded to that size and then widened.
///
/// # Errors
/// The text is not a number, or the number is too large.
pub fn parse_float(text: &str, bits: u32) -> Result<f64, NumError> {
    read(text, bits).map_err(|reason| NumError::new(StrconvFunction::ParseFloat, text, reason))
}

fn read(text: &str, bits: u32) -> Result<f64, NumErrorReason> {
    let (sign, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (-1.0, &text[1..]),
        Some(b'+') => (1.0, &text[1..]),
        Some(_) | None => (1.0, text),
    };
    match unsigned.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => return Ok(sign * f64::INFINITY),
        // Parity(go): without a sign.
        "nan" if unsigned.len() == text.len() => return Ok(f64::NAN),
        _ => {}
    }
    let digits: String = unsigned.chars().filter(|character| *character != '_').collect();
    if digits.len() != unsigned.len() && !is_underscored_well(unsigned.as_bytes()) {
        return Err(NumErrorReason::Syntax);
    }
    let magnitude =
        if digits.len() > 2 && digits.as_bytes()[1] | 0x20 == b'x' && digits.starts_with('0') {
            hexadecimal(&digits[2..], bits).ok_or(NumErrorReason::Syntax)?
        } else {
            if !is_decimal(&digits) {
                return Err(NumErrorReason::Syntax);
            }
            let exactly = |_| NumErrorReason::Syntax;
            if bits == 32 {
                digits.parse::<f32>().map_err(exactly)?.into()
            } else {
                digits.parse().map_err(exactly)?
            }
        };
    if magnitude.is_infinite() { Err(NumErrorReason::Range) } else { Ok(sign * magnitude) }
}

/// Whether a text has digits with at most one point, and an exponent. Rust would accept a few more forms.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let whole = mantissa.replacen('.', "", 1);
    is_digits(&whole) && exponent.is_none_or(is_exponent)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_exponent(text: &str) -> bool {
    is_digits(text.strip_prefix(['+', '-']).unwrap_or(text))
}

/// Reads `h.hhhp±d`, rounding to even. The result is infinity if the number is too large, and `None` if the text is not
/// a number.
fn hexadecimal(text: &str, bits: u32) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 || !is_exponent(exponent) {
        return None;
    }
    let (sign, power) = match exponent.strip_prefix('-') {
        Some(power) => (-1, power),
        None => (1, exponent.strip_prefix('+').unwrap_or(exponent)),
    };
    // With a larger exponent, every number is infinite or zero.
    let power = power.bytes().fold(0i64, |power, digit| {
        if power < 10_000 { power * 10 + i64::from(digit - b'0') } else { power }
    });
    let mut exponent = sign * power - 4 * i64::try_from(fraction.len()).ok()?;
    let mut value = 0u128;
    for digit in whole.chars().chain(fraction.chars()) {
        let digit = digit.to_digit(16)?;
        if value >> 120 == 0 {
            value = value << 4 | u128::from(digit);
        } else {
            // A digit that does not fit only shows that the number is larger than the digits before it.
            value |= u128::from(digit != 0);
            exponent += 4;
        }
    }
    Some(rounded(value, exponent, if bits == 32 { &FLOAT_32 } else { &FLOAT_64 }))
}

/// `value`·2^`exponent`, rounded to the nearest number of this size. A tie is rounded to even.
fn rounded(value: u128, exponent: i64, info: &FloatBitFormat) -> f64 {
    if value == 0 {
        return 0.0;
    }
    let length = 128 - i64::from(value.leading_zeros());
    let drop = (length - info.mantissa_bits).max(info.least_exponent - exponent).max(0);
    if drop > 127 {
        return 0.0;
    }
    let kept = value >> drop;
    let below = value & ((1 << drop) - 1);
    let half = (1u128 << drop) >> 1;
    let up = drop > 0 && (below > half || below == half && kept & 1 == 1);
    let kept = kept + u128::from(up);
    let exponent = exponent + drop;
    if 128 - i64::from(kept.leading_zeros()) + exponent - 1 > info.most_exponent {
        return f64::INFINITY;
    }
    // `value` has at most 53 bits, so the product is exact. There are two factors, because a single one might be too
    // small for a float.
    let half = (exponent / 2) as i32;
    kept as f64 * 2f64.powi(half) * 2f64.powi(exponent as i32 - half)
}
