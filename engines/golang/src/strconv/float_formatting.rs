//! Writes floats as Go's `strconv.FormatFloat` does.

use std::fmt::Write as _;

/// The form of a float's text, by Go's letter for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatTextFormat {
    /// `e`: `-d.dddde±dd`.
    Exponent,
    /// `f`: `-ddd.dddd`.
    Fixed,
    /// `g`: `e` for large exponents, `f` otherwise.
    General,
    /// `b`: `-ddddp±ddd`, a whole number times a power of two.
    Binary,
    /// `x`: `-0x1.yyyyp±dd`.
    Hexadecimal,
}

/// After this many digits, the fraction of a float only has zeros.
const MAX_FRACTION_DIGITS: usize = 1100;

/// Go's `strconv.FormatFloat(float, form, precision, 64)`. Without a precision, the text has the fewest digits that
/// identify the float.
///
/// The precision decides the length of the text.
pub fn format_float(float: f64, form: FloatTextFormat, precision: Option<usize>) -> String {
    if float.is_nan() {
        return "NaN".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let sign = if float.is_sign_negative() { "-" } else { "" };
    let float = float.abs();
    match form {
        FloatTextFormat::Binary => binary(sign, float),
        FloatTextFormat::Hexadecimal => hexadecimal(sign, float, precision),
        FloatTextFormat::Exponent => {
            let decimal = match precision {
                Some(precision) => FloatDecimal::rounded(float, precision),
                None => FloatDecimal::shortest(float),
            };
            let precision = precision.unwrap_or_else(|| decimal.digits.len().saturating_sub(1));
            format!("{sign}{}", decimal.exponent(precision))
        }
        FloatTextFormat::Fixed => match precision {
            Some(precision) => {
                let mut text = format!("{sign}{float:.*}", precision.min(MAX_FRACTION_DIGITS));
                text.extend(std::iter::repeat_n(
                    '0',
                    precision.saturating_sub(MAX_FRACTION_DIGITS),
                ));
                text
            }
            None => format!("{sign}{}", FloatDecimal::shortest(float).fixed()),
        },
        FloatTextFormat::General => {
            let decimal = match precision {
                Some(precision) => FloatDecimal::rounded(float, precision.max(1) - 1),
                None => FloatDecimal::shortest(float),
            };
            format!("{sign}{}", decimal.general(precision))
        }
    }
}

/// A decimal float without its sign: `0.digits` times ten to the power of `point`.
struct FloatDecimal {
    /// The digits without zeros at either end. They are empty for zero.
    digits: String,
    point: i32,
}

impl FloatDecimal {
    /// The fewest digits that identify the float. If two such texts exist, it is the even one, as in Go but not in
    /// Rust.
    fn shortest(float: f64) -> Self {
        Self::parse(&serde_json::to_string(&float).unwrap_or_default())
    }

    /// The float, rounded to one digit and `more` further ones.
    fn rounded(float: f64, more: usize) -> Self {
        Self::parse(&format!("{float:.*e}", more.min(MAX_FRACTION_DIGITS)))
    }

    fn parse(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let shift = whole.len() as i32 - (all.len() - significant.len()) as i32;
        let digits = significant.trim_end_matches('0').to_owned();
        let point = if digits.is_empty() { 0 } else { shift + exponent.parse().unwrap_or(0) };
        Self { digits, point }
    }

    fn exponent(&self, precision: usize) -> String {
        let first = self.digits.get(..1).unwrap_or("0");
        let mut text = first.to_owned();
        if precision > 0 {
            text.push('.');
            text.push_str(self.digits.get(1..).unwrap_or_default());
            text.extend(std::iter::repeat_n('0', (precision + 2).saturating_sub(text.len())));
        }
        let exponent = if self.digits.is_empty() { 0 } else { self.point - 1 };
        let direction = if exponent < 0 { '-' } else { '+' };
        _ = write!(text, "e{direction}{:02}", exponent.unsigned_abs());
        text
    }

    fn fixed(&self) -> String {
        let Self { digits, point } = self;
        if digits.is_empty() {
            return "0".to_owned();
        }
        match usize::try_from(*point) {
            Ok(whole) if whole >= digits.len() => format!("{digits:0<whole$}"),
            Ok(whole @ 1..) => format!("{}.{}", &digits[..whole], &digits[whole..]),
            Ok(0) | Err(_) => {
                let zeros = point.unsigned_abs() as usize;
                format!("0.{:0<zeros$}{digits}", "")
            }
        }
    }

    fn general(&self, precision: Option<usize>) -> String {
        let count = self.digits.len() as i64;
        let point = i64::from(self.point);
        let limit = match precision {
            None => 6,
            Some(precision) => {
                let precision = precision.max(1) as i64;
                if precision > count && count >= point { count } else { precision }
            }
        };
        if (-4..limit).contains(&(point - 1)) || self.digits.is_empty() {
            return self.fixed();
        }
        self.exponent(self.digits.len().saturating_sub(1))
    }
}

/// The mantissa of a float as a whole number, and its power of two.
fn parts(float: f64) -> (u64, i32) {
    let bits = float.to_bits();
    let mantissa = bits & ((1 << 52) - 1);
    match (bits >> 52) as i32 & 0x7ff {
        0 => (mantissa, -1074),
        exponent => (mantissa | 1 << 52, exponent - 1075),
    }
}

fn binary(sign: &str, float: f64) -> String {
    let (mantissa, exponent) = parts(float);
    format!("{sign}{mantissa}p{exponent:+}")
}

fn hexadecimal(sign: &str, float: f64, precision: Option<usize>) -> String {
    let (mut mantissa, mut exponent) = parts(float);
    if mantissa == 0 {
        exponent = 0;
    } else {
        // One digit before the point, then 60 bits.
        let shift = mantissa.leading_zeros() as i32 - 3;
        mantissa <<= shift;
        exponent += 60 - shift;
    }
    if let Some(precision) = precision.filter(|precision| *precision < 15) {
        let dropped = 60 - 4 * precision as u32;
        let half = 1_u64 << (dropped - 1);
        let rest = mantissa & ((half << 1) - 1);
        mantissa >>= dropped;
        if rest > half || (rest == half && mantissa & 1 == 1) {
            mantissa += 1;
        }
        mantissa <<= dropped;
        if mantissa >> 61 != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let mut digits = format!("{:015x}", mantissa & ((1 << 60) - 1));
    match precision {
        None => digits.truncate(digits.trim_end_matches('0').len()),
        Some(precision) => {
            digits.truncate(precision);
            let missing = precision - digits.len();
            digits.extend(std::iter::repeat_n('0', missing));
        }
    }
    let dot = if digits.is_empty() { "" } else { "." };
    let direction = if exponent < 0 { '-' } else { '+' };
    format!("{sign}0x{}{dot}{digits}p{direction}{:02}", mantissa >> 60, exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::{FloatTextFormat, format_float};

    #[test]
    fn floats_are_written_as_go_writes_them() {
        use FloatTextFormat::{Binary, Exponent, Fixed, General, Hexadecimal};
        for (float, form, precision, wanted) in [
            (100_000.0, General, None, "100000"),
            (1e6, General, None, "1e+06"),
            (123_456_789.5, General, None, "1.234567895e+08"),
            (1e-5, General, None, "1e-05"),
            (-0.0, General, None, "-0"),
            (262_144.125, General, Some(3), "2.62e+05"),
            (100.0, General, Some(2), "1e+02"),
            (100.0, General, Some(5), "100"),
            (0.0, General, Some(3), "0"),
            (5.0, Exponent, Some(0), "5e+00"),
            (0.0, Exponent, Some(2), "0.00e+00"),
            (1.5, Exponent, None, "1.5e+00"),
            (2.5, Fixed, Some(0), "2"),
            (1e21, Fixed, None, "1000000000000000000000"),
            (0.001, Fixed, None, "0.001"),
            (261_445_555_813_946.0 + 0.125, General, None, "2.6144555581394612e+14"),
            (1.5, Binary, None, "6755399441055744p-52"),
            (1.5, Hexadecimal, None, "0x1.8p+00"),
            (-0.1, Hexadecimal, None, "-0x1.999999999999ap-04"),
            (1.999, Hexadecimal, Some(3), "0x1.ffcp+00"),
            (1.999, Hexadecimal, Some(0), "0x1p+01"),
            (0.0, Hexadecimal, None, "0x0p+00"),
            (5e-324, Hexadecimal, None, "0x1p-1074"),
            (f64::NEG_INFINITY, Fixed, None, "-Inf"),
        ] {
            assert_eq!(
                format_float(float, form, precision),
                wanted,
                "{float:?} {form:?} {precision:?}"
            );
        }
    }

    #[test]
    fn digits_beyond_what_rust_formats_are_zeros() {
        assert_eq!(format_float(0.5, FloatTextFormat::Fixed, Some(1_000_000)).len(), 1_000_002);
        assert_eq!(format_float(0.5, FloatTextFormat::Exponent, Some(1_000_000)).len(), 1_000_006);
    }
}
