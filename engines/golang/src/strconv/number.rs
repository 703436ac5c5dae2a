//! Numbers as Go's `strconv` reads them: bases by prefix, underscores, hexadecimal floats.

/// Go's `strconv.ParseUint(text, 0, 64)`; nothing when it is no number or too large.
pub fn parse_uint(text: &[u8]) -> Option<u64> {
    let (base, digits) = match text {
        [b'0', b'x' | b'X', digits @ ..] => (16, digits),
        [b'0', b'b' | b'B', digits @ ..] => (2, digits),
        [b'0', b'o' | b'O', digits @ ..] => (8, digits),
        [b'0', digits @ ..] if !digits.is_empty() => (8, digits),
        _ => (10, text),
    };
    if digits.is_empty() || !has_good_underscores(text) {
        return None;
    }
    digits.iter().filter(|digit| **digit != b'_').try_fold(0_u64, |number, digit| {
        let digit = char::from(*digit).to_digit(base)?;
        number.checked_mul(u64::from(base))?.checked_add(u64::from(digit))
    })
}

/// Go's `strconv.ParseInt(text, 0, 64)`; nothing when it is no number or too large.
pub fn parse_int(text: &[u8]) -> Option<i64> {
    match text {
        [b'-', digits @ ..] => 0_i64.checked_sub_unsigned(parse_uint(digits)?),
        [b'+', digits @ ..] => i64::try_from(parse_uint(digits)?).ok(),
        digits => i64::try_from(parse_uint(digits)?).ok(),
    }
}

/// Go's `strconv.ParseFloat(text, 64)`; nothing when it is no number or too large.
pub fn parse_float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let (sign, unsigned) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    let special = ["inf", "infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word));
    if special {
        return Some(sign * f64::INFINITY);
    }
    if text.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    if !has_good_underscores(text.as_bytes()) {
        return None;
    }
    let digits = unsigned.replace('_', "");
    let magnitude = match digits.as_bytes() {
        [b'0', b'x' | b'X', hexadecimal @ ..] => parse_hexadecimal(hexadecimal)?,
        [b'0'..=b'9' | b'.', ..] => digits.parse().ok()?,
        _ => return None,
    };
    magnitude.is_finite().then_some(sign * magnitude)
}

/// Reads `1.8p3`, which comes after the prefix.
fn parse_hexadecimal(text: &[u8]) -> Option<f64> {
    let at = text.iter().position(|byte| matches!(byte, b'p' | b'P'))?;
    let (mantissa, exponent) = (&text[..at], std::str::from_utf8(&text[at + 1..]).ok()?);
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Beyond this everything is zero or too large.
    let magnitude = digits.parse::<i64>().unwrap_or(1_000_000).min(1_000_000);
    let mut exponent = if exponent.starts_with('-') { -magnitude } else { magnitude };
    let (mut bits, mut seen, mut fraction) = (0_u64, false, false);
    for byte in mantissa {
        if *byte == b'.' && !fraction {
            fraction = true;
            continue;
        }
        let digit = char::from(*byte).to_digit(16)?;
        seen = true;
        if fraction {
            exponent -= 4;
        }
        if bits >> 59 == 0 {
            bits = bits << 4 | u64::from(digit);
        } else {
            // What does not fit only tells a tie from more than a tie.
            bits |= u64::from(digit != 0);
            exponent += 4;
        }
    }
    seen.then(|| scale(bits, exponent))
}

/// `bits` times two to the power of `exponent`, rounded to even once.
fn scale(bits: u64, exponent: i64) -> f64 {
    if bits == 0 {
        return 0.0;
    }
    let length = 64 - i64::from(bits.leading_zeros());
    let top = length + exponent;
    if top > 1024 {
        return f64::INFINITY;
    }
    // A subnormal float has fewer digits than 53.
    let kept = (top + 1074).clamp(0, 53);
    let dropped = length - kept;
    let (whole, exponent) = if dropped <= 0 {
        (bits, exponent)
    } else if dropped > 64 {
        (0, exponent)
    } else {
        let wide = u128::from(bits);
        let half = 1_u128 << (dropped - 1);
        let whole = wide >> dropped;
        let rest = wide & ((half << 1) - 1);
        let up = rest > half || (rest == half && whole & 1 == 1);
        ((whole + u128::from(up)) as u64, exponent + dropped)
    };
    // At most 53 digits, so both steps are exact.
    let half = exponent / 2;
    let power = |exponent: i64| 2_f64.powi(i32::try_from(exponent).unwrap_or(0));
    whole as f64 * power(half) * power(exponent - half)
}

/// Whether underscores stand only between digits, or after the prefix of a base.
fn has_good_underscores(text: &[u8]) -> bool {
    #[derive(PartialEq)]
    enum Last {
        Nothing,
        Digit,
        Underscore,
        Other,
    }
    let unsigned = text.strip_prefix(b"+").or_else(|| text.strip_prefix(b"-")).unwrap_or(text);
    let (mut last, hexadecimal, digits) = match unsigned {
        [b'0', b'x' | b'X', digits @ ..] => (Last::Digit, true, digits),
        [b'0', b'b' | b'B' | b'o' | b'O', digits @ ..] => (Last::Digit, false, digits),
        digits => (Last::Nothing, false, digits),
    };
    for byte in digits {
        last = match byte {
            b'0'..=b'9' => Last::Digit,
            b'a'..=b'f' | b'A'..=b'F' if hexadecimal => Last::Digit,
            b'_' if last != Last::Digit => return false,
            b'_' => Last::Underscore,
            _ if last == Last::Underscore => return false,
            _ => Last::Other,
        };
    }
    last != Last::Underscore
}

#[cfg(test)]
mod tests {
    use super::{parse_float, parse_int, parse_uint};

    #[test]
    fn integers_have_bases_and_underscores() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("042", Some(34)),
            ("08", None),
            ("0x1F", Some(31)),
            ("0b101", Some(5)),
            ("0o17", Some(15)),
            ("1_000", Some(1000)),
            ("0x_1", Some(1)),
            ("1__0", None),
            ("_1", None),
            ("1_", None),
            ("0x", None),
            ("", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("+1", None),
        ] {
            assert_eq!(parse_uint(text.as_bytes()), wanted, "{text}");
        }
        assert_eq!(parse_int(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!((parse_int(b"+5"), parse_int(b"9223372036854775808")), (Some(5), None));
    }

    #[test]
    fn floats_are_rounded_once() {
        for (text, wanted) in [
            ("1_000.5", Some(1000.5)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("0x.8p0", Some(0.5)),
            ("0x1.8", None),
            ("1e400", None),
            ("0x1p-1074", Some(5e-324)),
            ("0x1p-1075", Some(0.0)),
            ("0x1.8p-1075", Some(5e-324)),
            ("0x1.fffffffffffff8p0", Some(2.0)),
            ("0x1.fffffffffffff7p0", Some(1.999_999_999_999_999_8)),
            ("0x1p1024", None),
            ("0x1p99999999999999999999", None),
            ("-.5e-3", Some(-0.0005)),
            ("1e", None),
            ("1__0.5", None),
        ] {
            assert_eq!(parse_float(text.as_bytes()), wanted, "{text}");
        }
    }
}
