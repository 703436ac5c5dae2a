//! Quantities such as `500m` and `1.5Gi`, in the form that Kubernetes gives them.
//!
//! Source of the semantics: apimachinery 0.36 `pkg/api/resource`.

/// The notation of a quantity, which it keeps when it is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuantityFormat {
    DecimalSi,
    BinarySi,
    Exponent,
}

const DECIMAL_SUFFIXES: [(&str, i64); 9] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15)];
const BINARY_SUFFIXES: [(&str, i64); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// The most decimal digits that fit into 64 bits for sure.
const SAFE_DIGITS: i64 = 18;
/// No quantity is finer than a billionth.
const MIN_DECIMAL_EXPONENT: i64 = -9;

/// A number times a power of ten.
#[derive(Debug, Clone, Copy)]
struct DecimalAmount {
    value: i128,
    scale: i64,
}

/// The canonical text of a quantity; `None` if the text is not a quantity.
///
/// Differs(kubernetes): one with more than 38 digits stays as it was written.
pub(super) fn canonical(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    if text == "0" {
        return Some(text.to_owned());
    }
    let parts = parts(text)?;
    let (exponent, format) = suffix(parts.suffix)?;
    if let Some(found) = small(text, &parts, exponent, format) {
        return found;
    }
    Some(large(&parts, exponent, format).unwrap_or_else(|| text.to_owned()))
}

struct QuantityParts<'t> {
    is_negative: bool,
    /// Digits before the point, without zeros in front.
    whole: &'t str,
    /// Digits after the point.
    fraction: &'t str,
    suffix: &'t str,
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn parts(text: &str) -> Option<QuantityParts<'_>> {
    let is_negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, rest) = digits(rest.trim_start_matches('0'));
    let whole = if whole.is_empty() { "0" } else { whole };
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    let letters = suffix.trim_start_matches(|it: char| "eEinumkKMGTP".contains(it));
    let number = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    let is_well_formed = number.chars().all(|it| it.is_ascii_digit());
    is_well_formed.then_some(QuantityParts { is_negative, whole, fraction, suffix })
}

fn suffix(suffix: &str) -> Option<(i64, QuantityFormat)> {
    let decimal = DECIMAL_SUFFIXES.iter().chain(&[("E", 18)]).find(|(own, _)| *own == suffix);
    if let Some((_, exponent)) = decimal {
        return Some((*exponent, QuantityFormat::DecimalSi));
    }
    if let Some((_, exponent)) = BINARY_SUFFIXES.iter().find(|(own, _)| *own == suffix) {
        return Some((*exponent, QuantityFormat::BinarySi));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i64>().ok()?;
    // Parity(kubernetes): an exponent is cut to 32 bits.
    Some(((exponent as i32).into(), QuantityFormat::Exponent))
}

fn length(digits: &str) -> i64 {
    i64::try_from(digits.len()).unwrap_or(i64::MAX)
}

/// A quantity that fits into 64 bits. The outer option is `None` if it may not fit. The inner option is `None` if the
/// text is not a quantity.
#[expect(clippy::option_option, reason = "not tried and none are not the same")]
fn small(
    text: &str,
    parts: &QuantityParts<'_>,
    exponent: i64,
    format: QuantityFormat,
) -> Option<Option<String>> {
    let whole = length(parts.whole);
    let fraction = length(parts.fraction);
    let (scale, factor, room) = match format {
        QuantityFormat::DecimalSi | QuantityFormat::Exponent => {
            (exponent - fraction, 1, SAFE_DIGITS - whole - fraction)
        }
        QuantityFormat::BinarySi if fraction == 0 => (
            0,
            1i64.checked_shl(u32::try_from(exponent).ok()?)?,
            15 - whole - exponent * 3 / 10 - 1,
        ),
        QuantityFormat::BinarySi => return None,
    };
    if room < 0 || scale < MIN_DECIMAL_EXPONENT {
        return None;
    }
    let shifted = [parts.whole, parts.fraction].concat();
    let Ok(value) = shifted.parse::<i64>() else { return Some(None) };
    let mut result = value.checked_mul(factor)?;
    if parts.is_negative {
        result = -result;
    }
    let is_canonical = match format {
        QuantityFormat::BinarySi => exponent % 10 == 0 && value & 7 != 0,
        _ => scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0'),
    };
    if is_canonical {
        return Some(Some(text.to_owned()));
    }
    Some(write(DecimalAmount { value: result.into(), scale }, format))
}

/// A quantity of any size. `None` if it does not fit into 128 bits.
fn large(parts: &QuantityParts<'_>, exponent: i64, format: QuantityFormat) -> Option<String> {
    let shifted = [parts.whole, parts.fraction].concat();
    let mut value: i128 = shifted.parse().ok()?;
    let mut scale = -length(parts.fraction);
    match format {
        QuantityFormat::BinarySi => {
            value = value.checked_mul(1i128.checked_shl(u32::try_from(exponent).ok()?)?)?;
        }
        QuantityFormat::DecimalSi | QuantityFormat::Exponent => scale += exponent,
    }
    // A fraction smaller than a billionth is rounded away from zero.
    while value != 0 && scale < MIN_DECIMAL_EXPONENT {
        let rest = value % 10;
        value = value / 10 + i128::from(rest != 0);
        scale += 1;
    }
    let mut format = format;
    let most = i128::from(i64::MAX);
    if format == QuantityFormat::BinarySi {
        let one = 10i128.checked_pow(u32::try_from(-scale).ok()?)?;
        if value > most.checked_mul(one)? {
            (value, scale) = (most, 0);
        } else if value < one && value > 0 {
            format = QuantityFormat::DecimalSi;
        }
    }
    if parts.is_negative {
        value = -value;
    }
    write(DecimalAmount { value, scale }, format)
}

fn write(amount: DecimalAmount, format: QuantityFormat) -> Option<String> {
    if amount.value == 0 {
        return Some("0".to_owned());
    }
    if format == QuantityFormat::BinarySi
        && let Some(mut value) = exact(amount)
        && value.abs() >= 1024
    {
        let mut exponent = 0;
        while value % 1024 == 0 {
            (value, exponent) = (value / 1024, exponent + 10);
        }
        let suffix =
            BINARY_SUFFIXES.iter().find(|(_, own)| *own == exponent).map_or("", |(name, _)| name);
        return Some(format!("{value}{suffix}"));
    }
    let DecimalAmount { mut value, mut scale } = amount;
    while value % 10 == 0 {
        (value, scale) = (value / 10, scale + 1);
    }
    while scale.rem_euclid(3) != 0 {
        (value, scale) = (value.checked_mul(10)?, scale - 1);
    }
    let suffix = match format {
        QuantityFormat::Exponent if scale == 0 => String::new(),
        QuantityFormat::Exponent => format!("e{scale}"),
        _ => {
            let found = DECIMAL_SUFFIXES.iter().chain(&[("E", 18)]).find(|(_, own)| *own == scale);
            found.map_or("", |(name, _)| name).to_owned()
        }
    };
    Some(format!("{value}{suffix}"))
}

/// The amount as a whole number. `None` if it is not one.
fn exact(amount: DecimalAmount) -> Option<i128> {
    let power = 10i128.checked_pow(u32::try_from(amount.scale.unsigned_abs()).ok()?)?;
    if amount.scale >= 0 {
        return amount.value.checked_mul(power);
    }
    (amount.value % power == 0).then(|| amount.value / power)
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn quantities_get_the_form_that_kubernetes_gives_them() {
        // Answers of apimachinery 0.36.2.
        let cases = [
            ("1000m", "1"),
            ("1.5", "1500m"),
            ("1000Ki", "1000Ki"),
            ("0.5Gi", "512Mi"),
            ("1024", "1024"),
            ("1000", "1k"),
            ("0.50", "500m"),
            ("1.5Gi", "1536Mi"),
            ("2048Mi", "2Gi"),
            ("12e6", "12e6"),
            ("12E6", "12E6"),
            ("1200e3", "1200e3"),
            ("12000e3", "12e6"),
            ("-5", "-5"),
            ("1E", "1E"),
            ("0.0001", "100u"),
            ("0.00000000001", "1n"),
            ("0.0", "0"),
            ("0.1Ki", "102400m"),
            ("0.0001Ki", "102400u"),
            ("123456789012345678901", "123456789012345678901"),
            ("100Ei", "9223372036854775807"),
        ];
        for (text, want) in cases {
            assert_eq!(canonical(text).as_deref(), Some(want), "{text}");
        }
        for text in ["", "a", "1.5.5", "1kk", "Ki1", "1e", "1 Gi"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
