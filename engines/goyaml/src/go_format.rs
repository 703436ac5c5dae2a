//! Numbers and strings as Go's `strconv` prints them.
//!
//! Here: `%g` and `%q`. Elsewhere: which floats YAML writes as integers (`emit/number.rs`).

use std::fmt::Write as _;

/// Writes a number with the fewest digits, as Go's `strconv.FormatFloat(float, 'g', -1, 64)` does.
pub(crate) fn float64(float: f64) -> String {
    special(float).unwrap_or_else(|| general(&serde_json::to_string(&float)))
}

/// `strconv.FormatFloat(float, 'g', -1, 32)`: with the fewest digits that distinguish 32-bit floats.
pub(crate) fn float32(float: f64) -> String {
    // Rounding to 32 bits is what Go does too.
    let short = float as f32;
    special(f64::from(short)).unwrap_or_else(|| general(&serde_json::to_string(&short)))
}

/// The text of infinity or NaN. `None` if the number is finite.
fn special(float: f64) -> Option<String> {
    if float.is_nan() {
        return Some("NaN".to_owned());
    }
    float.is_infinite().then(|| if float > 0.0 { "+Inf" } else { "-Inf" }.to_owned())
}

/// Writes a float with the digits that `serde_json` chose: of two shortest strings the even one, as Go does.
/// Rust's own format does not.
fn general(json: &serde_json::Result<String>) -> String {
    FloatDecimal::parse(json.as_deref().unwrap_or_default()).general()
}

/// A finite float in decimal: the sign, then `0.digits` times ten to the power of `point`.
pub(crate) struct FloatDecimal {
    /// The sign: `-` or empty.
    pub(crate) sign: &'static str,
    /// The fewest digits that identify the float, without zeros at either end. They are empty for zero.
    pub(crate) digits: String,
    /// The position of the point, counted from before the first digit.
    pub(crate) point: i32,
}

impl FloatDecimal {
    /// Parses the text that `serde_json` writes for a float, in any of its forms.
    pub(crate) fn parse(text: &str) -> Self {
        let (sign, unsigned) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
        let (mantissa, exponent) = unsigned.split_once('e').unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let shift = whole.len() as i32 - (all.len() - significant.len()) as i32;
        let exponent: i32 = exponent.parse().unwrap_or_default();
        let digits = significant.trim_end_matches('0').to_owned();
        Self { sign, digits, point: shift + exponent }
    }

    /// Go's `strconv.FormatFloat(float, 'g', -1, …)`.
    pub(crate) fn general(&self) -> String {
        let Self { sign, digits, point } = self;
        if digits.is_empty() {
            return format!("{sign}0");
        }
        let exponent = point - 1;
        if !(-4..EXPONENT_FORM).contains(&exponent) {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            let direction = if exponent < 0 { '-' } else { '+' };
            return format!("{sign}{first}{dot}{rest}e{direction}{:02}", exponent.unsigned_abs());
        }
        match usize::try_from(*point) {
            Ok(whole) if whole >= digits.len() => format!("{sign}{digits:0<whole$}"),
            Ok(whole @ 1..) => format!("{sign}{}.{}", &digits[..whole], &digits[whole..]),
            Ok(0) | Err(_) => {
                let zeros = point.unsigned_abs() as usize;
                format!("{sign}0.{:0<zeros$}{digits}", "")
            }
        }
    }
}

/// From which power of ten on a float is written with an exponent.
const EXPONENT_FORM: i32 = 6;

/// Appends `strconv.Quote` of a string, which need not be UTF-8.
pub(crate) fn quote(bytes: &[u8], into: &mut String) {
    into.push('"');
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => {
                    into.push('\\');
                    into.push(character);
                }
                '\x07' => into.push_str("\\a"),
                '\x08' => into.push_str("\\b"),
                '\x0c' => into.push_str("\\f"),
                '\n' => into.push_str("\\n"),
                '\r' => into.push_str("\\r"),
                '\t' => into.push_str("\\t"),
                '\x0b' => into.push_str("\\v"),
                ' '..='~' => into.push(character),
                '\0'..'\u{80}' => _ = write!(into, "\\x{:02x}", u32::from(character)),
                _ if is_print(character) => into.push(character),
                '\u{80}'..'\u{10000}' => _ = write!(into, "\\u{:04x}", u32::from(character)),
                _ => _ = write!(into, "\\U{:08x}", u32::from(character)),
            }
        }
        for byte in chunk.invalid() {
            _ = write!(into, "\\x{byte:02x}");
        }
    }
    into.push('"');
}

/// Whether Go prints a character outside ASCII as it is.
///
/// Differs(go 1.24): Go has tables of all that Unicode assigns; this knows controls, blanks and
/// private characters, and is used in the messages of errors only.
fn is_print(character: char) -> bool {
    let hidden = matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}'
        | '\u{f0000}'..);
    !hidden && !character.is_control() && !character.is_whitespace()
}

#[cfg(test)]
mod tests {
    use super::{float32, float64, quote};

    #[test]
    fn floats_are_written_as_gos_shortest_general_form() {
        for (float, wide, narrow) in [
            (1.0, "1", "1"),
            (100_000.0, "100000", "100000"),
            (1e6, "1e+06", "1e+06"),
            (123_456_789.5, "1.234567895e+08", "1.2345679e+08"),
            (0.0001, "0.0001", "0.0001"),
            (1e-5, "1e-05", "1e-05"),
            (-0.00012, "-0.00012", "-0.00012"),
            (-0.0, "-0", "-0"),
            (12.5, "12.5", "12.5"),
            (1.5e300, "1.5e+300", "+Inf"),
            (0.0, "0", "0"),
            (-1e-300, "-1e-300", "-0"),
            (5e-324, "5e-324", "0"),
            (f64::MAX, "1.7976931348623157e+308", "+Inf"),
            (f64::from(f32::MAX), "3.4028234663852886e+38", "3.4028235e+38"),
            (f64::NEG_INFINITY, "-Inf", "-Inf"),
            (f64::NAN, "NaN", "NaN"),
        ] {
            assert_eq!((float64(float).as_str(), float32(float).as_str()), (wide, narrow));
        }
    }

    #[test]
    fn of_two_shortest_strings_the_even_one_is_written() {
        for (float, wide, narrow) in [
            (261_445_555_813_946.0 + 0.125, "2.6144555581394612e+14", "2.6144555e+14"),
            (261_445_555_813_946.0 + 0.375, "2.6144555581394638e+14", "2.6144555e+14"),
            (262_144.125, "262144.125", "262144.12"),
            (262_144.375, "262144.375", "262144.38"),
        ] {
            assert_eq!((float64(float).as_str(), float32(float).as_str()), (wide, narrow));
        }
    }

    #[test]
    fn strings_are_quoted_as_go_does_also_when_they_are_not_utf_8() {
        let mut quoted = String::new();
        quote(b"a\"\\\n\x7f\xff\xc3\xa9\xc2\xa0", &mut quoted);
        assert_eq!(quoted, r#""a\"\\\n\x7f\xffé\u00a0""#);
    }
}
