//! Reads and writes numbers, booleans and quoted text as Go's `strconv` does.
//!
//! Here: errors and booleans. Below: integers, reading floats (`float_parsing`), writing floats (`float_formatting`),
//! and quoting. Elsewhere: verbs such as `%5.2f` (Go's `fmt`).
//!
//! ```
//! use golang::strconv;
//!
//! assert_eq!(strconv::parse_int("0x_1f", 0, 64), Ok(31));
//! assert_eq!(
//!     strconv::parse_int("07x", 0, 64).unwrap_err().to_string(),
//!     r#"strconv.ParseInt: parsing "07x": invalid syntax"#,
//! );
//! ```

mod float_formatting;
mod float_parsing;
mod integer_parsing;
mod quote;

pub use float_formatting::{FloatTextFormat, format_float};
pub use float_parsing::parse_float;
pub use integer_parsing::{atoi, parse_int, parse_uint};
pub(crate) use quote::can_backquote;
pub use quote::{QuotingStyle, quote, quote_char, unquote, unquote_char};

/// A quoted text does not have the form that Go's `strconv` requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid syntax")]
pub struct QuoteSyntaxError;

/// The function of Go's package that failed. Its error messages begin with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrconvFunction {
    /// [`atoi`].
    Atoi,
    /// [`parse_bool`].
    ParseBool,
    /// [`parse_float`].
    ParseFloat,
    /// [`parse_int`].
    ParseInt,
    /// [`parse_uint`].
    ParseUint,
}

/// What is wrong with a text that should be a number or a boolean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NumErrorReason {
    /// The text does not have the right form.
    #[error("invalid syntax")]
    Syntax,
    /// The number does not fit into its type.
    #[error("value out of range")]
    Range,
    /// The base is neither 0 nor 2 to 36.
    #[error("invalid base {0}")]
    Base(u32),
    /// The number of bits is over 64.
    #[error("invalid bit size {0}")]
    BitSize(u32),
}

/// Why a text was not read, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("strconv.{function:?}: parsing {}: {reason}", shown(text))]
pub struct NumError {
    /// The function that was called.
    pub function: StrconvFunction,
    /// The text with which it was called.
    pub text: String,
    /// What is wrong with the text.
    pub reason: NumErrorReason,
}

/// A text as Go quotes it in errors.
fn shown(text: &str) -> String {
    String::from_utf8_lossy(&quote(text.as_bytes(), QuotingStyle::Printable)).into_owned()
}

impl NumError {
    fn new(function: StrconvFunction, text: &str, reason: NumErrorReason) -> Self {
        Self { function, text: text.to_owned(), reason }
    }
}

/// Reads a boolean: `1`, `t`, `T`, `TRUE`, `true`, `True`, and the same forms of false.
///
/// # Errors
/// The text is none of these.
pub fn parse_bool(text: &str) -> Result<bool, NumError> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(NumError::new(StrconvFunction::ParseBool, text, NumErrorReason::Syntax)),
    }
}

/// Whether underscores are only between digits, or between the prefix of a base and a digit.
fn is_underscored_well(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    let prefix = match text {
        [b'0', letter, ..] if matches!(letter | 0x20, b'b' | b'o' | b'x') => Some(letter | 0x20),
        _ => None,
    };
    let is_digit =
        |byte: &u8| byte.is_ascii_digit() || prefix == Some(b'x') && byte.is_ascii_hexdigit();
    // A prefix counts as a digit.
    let (mut before, rest) = match prefix {
        Some(_) => (true, &text[2..]),
        None => (false, text),
    };
    let mut bytes = rest.iter().peekable();
    while let Some(byte) = bytes.next() {
        if *byte == b'_' && !(before && bytes.peek().copied().is_some_and(is_digit)) {
            return false;
        }
        before = is_digit(byte);
    }
    true
}

#[cfg(test)]
mod tests;
