//! Texts of single values as Go's `strconv` writes and reads them.
//!
//! Here: what is offered. Elsewhere: quoting (`strconv/quote.rs`), numbers out (`strconv/float.rs`) and in
//! (`strconv/number.rs`).

mod float;
mod number;
mod quote;

pub use float::{FloatForm, format_float};
pub use number::{parse_float, parse_int, parse_uint};
pub use quote::{Quoting, can_backquote, quote, quote_char, unquote, unquote_char};

/// A text has not the form that Go's `strconv` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid syntax")]
pub struct SyntaxError;
