//! Number constants. Until it is used, a constant has every type that can hold it.

use golang::strconv::{self, QuotingStyle, quote, unquote_char};

use super::lex::LexTokenKind;

/// A number in a template.
#[derive(Debug, Clone, Default)]
pub(crate) struct TemplateNumber {
    pub(crate) int: Option<i64>,
    pub(crate) uint: Option<u64>,
    pub(crate) float: Option<f64>,
    pub(crate) complex: Option<(f64, f64)>,
}

/// The integers that equal a float, as Go converts it.
fn whole(float: f64) -> (Option<i64>, Option<u64>) {
    // Rust's casts saturate, and neither end of a range is reached by a float that is one of its numbers.
    let int = float as i64;
    let uint = float as u64;
    let is_int = int as f64 == float && int != i64::MAX;
    let is_uint = uint as f64 == float && uint != u64::MAX;
    (is_int.then_some(int), is_uint.then_some(uint))
}

fn parse_int(text: &[u8]) -> Option<i64> {
    strconv::parse_int(std::str::from_utf8(text).ok()?, 0, 64).ok()
}

fn parse_uint(text: &[u8]) -> Option<u64> {
    strconv::parse_uint(std::str::from_utf8(text).ok()?, 0, 64).ok()
}

fn parse_float(text: &[u8]) -> Option<f64> {
    strconv::parse_float(std::str::from_utf8(text).ok()?, 64).ok()
}

impl TemplateNumber {
    /// Reads a constant.
    ///
    /// # Errors
    /// The text is not a number. The message is Go's.
    pub(super) fn parse(text: &[u8], kind: LexTokenKind) -> Result<Self, String> {
        match kind {
            LexTokenKind::CharConstant => return Self::character(text),
            LexTokenKind::Complex => {
                let at = text.iter().enumerate().skip(1).rposition(|(at, byte)| {
                    matches!(byte, b'+' | b'-')
                        && !matches!(text[at - 1], b'e' | b'E' | b'p' | b'P')
                });
                let parts = at.and_then(|at| {
                    let (real, imaginary) = text.split_at(at + 1);
                    Some((parse_float(real)?, parse_float(imaginary.strip_suffix(b"i")?)?))
                });
                let (real, imaginary) = parts.ok_or("syntax error scanning complex number")?;
                return Ok(Self::complex(real, imaginary));
            }
            _ => {}
        }
        if let Some(imaginary) = text.strip_suffix(b"i").and_then(parse_float) {
            return Ok(Self::complex(0.0, imaginary));
        }
        let shown = || String::from_utf8_lossy(&quote(text, QuotingStyle::Printable)).into_owned();
        let mut number = Self { int: parse_int(text), uint: parse_uint(text), ..Self::default() };
        if number.int == Some(0) {
            number.uint = Some(0);
        }
        number.float = match (number.int, number.uint) {
            (Some(int), _) => Some(int as f64),
            (None, Some(uint)) => Some(uint as f64),
            (None, None) => parse_float(text),
        };
        if let (Some(float), None, None) = (number.float, number.int, number.uint) {
            if !text.iter().any(|byte| b".eEpP".contains(byte)) {
                return Err(format!("integer overflow: {}", shown()));
            }
            (number.int, number.uint) = whole(float);
        }
        if number.float.is_none() {
            return Err(format!("illegal number syntax: {}", shown()));
        }
        Ok(number)
    }

    fn character(text: &[u8]) -> Result<Self, String> {
        let (mark, rest) = text.split_first().ok_or("invalid syntax")?;
        let (code, tail) = unquote_char(rest, *mark).map_err(|error| error.to_string())?;
        if tail != b"'" {
            let shown = String::from_utf8_lossy(text);
            return Err(format!("malformed character constant: {shown}"));
        }
        Ok(Self {
            int: Some(i64::from(code)),
            uint: Some(u64::from(code)),
            float: Some(f64::from(code)),
            complex: None,
        })
    }

    fn complex(real: f64, imaginary: f64) -> Self {
        let mut number = Self { complex: Some((real, imaginary)), ..Self::default() };
        if imaginary == 0.0 {
            number.float = Some(real);
            (number.int, number.uint) = whole(real);
        }
        number
    }
}
