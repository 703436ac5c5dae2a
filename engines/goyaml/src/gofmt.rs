//! Numbers and strings as Go's `strconv` prints them, for keys and for the texts of errors.

use std::fmt::Write as _;

/// `strconv.FormatFloat(float, 'g', -1, 64)`.
pub(crate) fn float64(float: f64) -> String {
    general(float, &format!("{float:e}"))
}

/// `strconv.FormatFloat(float, 'g', -1, 32)`: with the digits that tell 32-bit floats apart.
pub(crate) fn float32(float: f64) -> String {
    // Rounding to 32 bits is what Go does too.
    let short = float as f32;
    general(f64::from(short), &format!("{short:e}"))
}

/// Writes a float whose shortest digits are in `scientific` (`1.5e-7`).
fn general(float: f64, scientific: &str) -> String {
    if float.is_nan() {
        return "NaN".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..EXPONENT_FORM).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    if exponent < 0 {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        return format!("{sign}0.{zeros}{digits}");
    }
    let whole = exponent.unsigned_abs() as usize + 1;
    if digits.len() <= whole {
        return format!("{sign}{digits:0<whole$}");
    }
    format!("{sign}{}.{}", &digits[..whole], &digits[whole..])
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
/// private characters, and is used in the texts of errors only.
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
            (f64::NAN, "NaN", "NaN"),
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
