//! Reads integers. Rust writes them as Go does.

use super::{NumError, NumErrorReason, StrconvFunction, is_underscored_well};

/// Reads an integer with an optional sign that fits into `bits` bits. 0 means 64 bits.
///
/// In base 0, the prefix names the base: `0b`, `0o` or `0`, or `0x`. Without a prefix, the base is 10. Underscores may
/// be between digits.
///
/// # Errors
/// The text is not a number, the number is too large, or the base or the number of bits is impossible.
pub fn parse_int(text: &str, base: u32, bits: u32) -> Result<i64, NumError> {
    signed(text, base, bits)
        .map_err(|reason| NumError::new(StrconvFunction::ParseInt, text, reason))
}

/// Reads an integer without a sign, otherwise like [`parse_int`].
///
/// # Errors
/// As for [`parse_int`].
pub fn parse_uint(text: &str, base: u32, bits: u32) -> Result<u64, NumError> {
    unsigned(text, base, bits)
        .map_err(|reason| NumError::new(StrconvFunction::ParseUint, text, reason))
}

/// Reads a decimal integer of 64 bits.
///
/// # Errors
/// The text is not a number, or the number is too large.
pub fn atoi(text: &str) -> Result<i64, NumError> {
    signed(text, 10, 64).map_err(|reason| NumError::new(StrconvFunction::Atoi, text, reason))
}

fn signed(text: &str, base: u32, bits: u32) -> Result<i64, NumErrorReason> {
    let (is_negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) | None => (false, text),
    };
    let magnitude = unsigned(digits, base, bits)?;
    let most = 1u64 << (if bits == 0 { 64 } else { bits } - 1);
    match (is_negative, magnitude) {
        (true, magnitude) if magnitude <= most => Ok((magnitude as i64).wrapping_neg()),
        (false, magnitude) if magnitude < most => Ok(magnitude as i64),
        (true | false, _) => Err(NumErrorReason::Range),
    }
}

fn unsigned(text: &str, base: u32, bits: u32) -> Result<u64, NumErrorReason> {
    let text = text.as_bytes();
    if text.is_empty() {
        return Err(NumErrorReason::Syntax);
    }
    let is_literal = base == 0;
    let (base, digits) = match (base, text) {
        (2..=36, _) => (base, text),
        (0, [b'0', letter, _, ..]) if letter | 0x20 == b'b' => (2, &text[2..]),
        (0, [b'0', letter, _, ..]) if letter | 0x20 == b'o' => (8, &text[2..]),
        (0, [b'0', letter, _, ..]) if letter | 0x20 == b'x' => (16, &text[2..]),
        (0, [b'0', rest @ ..]) => (8, rest),
        (0, _) => (10, text),
        _ => return Err(NumErrorReason::Base(base)),
    };
    let most = match bits {
        0 | 64 => u64::MAX,
        1..=63 => (1 << bits) - 1,
        _ => return Err(NumErrorReason::BitSize(bits)),
    };
    let mut number = 0u64;
    for byte in digits {
        if *byte == b'_' && is_literal {
            continue;
        }
        let digit = char::from(*byte).to_digit(base).ok_or(NumErrorReason::Syntax)?;
        number = number
            .checked_mul(base.into())
            .and_then(|number| number.checked_add(digit.into()))
            .filter(|number| *number <= most)
            .ok_or(NumErrorReason::Range)?;
    }
    if digits.contains(&b'_') && !is_underscored_well(text) {
        return Err(NumErrorReason::Syntax);
    }
    Ok(number)
}
