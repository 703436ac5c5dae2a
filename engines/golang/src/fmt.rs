//! Go's `fmt`: formats values as text.
//!
//! Here: `Sprint`, `Sprintln`, `Sprintf` and their limits. Elsewhere: one value with one verb (`fmt/printer.rs`),
//! padding and the forms of numbers and strings (`fmt/format.rs`), and format strings (`fmt/directive.rs`).

mod directive;
mod format;
mod printer;
#[cfg(test)]
mod tests;

use crate::value::{GoRuntimeValue, ReflectKind};
use printer::FormatPrinter;

/// Limits for the text of values.
#[derive(Debug, Clone, Copy)]
pub struct FormatLimits {
    /// How many bytes the text may have.
    pub bytes: usize,
    /// How deep values may be nested. Printing recurses to this depth, and a map can contain itself.
    pub depth: usize,
}

impl Default for FormatLimits {
    /// 64 MiB, and a depth that takes less than a megabyte of stack.
    fn default() -> Self {
        Self { bytes: 64 << 20, depth: 500 }
    }
}

/// Why values cannot be printed within the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is too long.
    #[error("the text of the values is longer than {0} bytes")]
    TooLong(usize),
    /// The value is nested too deeply, or contains itself.
    #[error("a value is nested more than {0} deep, or holds itself")]
    TooDeep(usize),
}

/// Go's `fmt.Sprint`: values are separated by a space if neither of them is a string.
///
/// # Errors
/// The text exceeds the default limits.
pub fn sprint(values: &[GoRuntimeValue]) -> Result<Vec<u8>, Error> {
    sprint_within(values, FormatLimits::default())
}

/// Like [`sprint`], with limits of the caller.
///
/// # Errors
/// The text exceeds the limits.
pub fn sprint_within(values: &[GoRuntimeValue], limits: FormatLimits) -> Result<Vec<u8>, Error> {
    let mut printer = FormatPrinter::new(limits);
    let mut was_string = true;
    for (index, value) in values.iter().enumerate() {
        let is_string = value.kind() == ReflectKind::String;
        if index > 0 && !is_string && !was_string {
            printer.write(b" ");
        }
        printer.argument(value, 'v');
        was_string = is_string;
    }
    printer.finish()
}

/// Go's `fmt.Sprintln`: all values are separated by a space, and a line feed follows.
///
/// # Errors
/// The text exceeds the limits.
pub fn sprintln_within(values: &[GoRuntimeValue], limits: FormatLimits) -> Result<Vec<u8>, Error> {
    let mut printer = FormatPrinter::new(limits);
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            printer.write(b" ");
        }
        printer.argument(value, 'v');
    }
    printer.write(b"\n");
    printer.finish()
}

/// Go's `fmt.Sprintf`. Mistakes in the format or the values appear in the text, as in Go.
///
/// # Errors
/// The text exceeds the default limits.
pub fn sprintf(format: impl AsRef<[u8]>, values: &[GoRuntimeValue]) -> Result<Vec<u8>, Error> {
    sprintf_within(format.as_ref(), values, FormatLimits::default())
}

/// Like [`sprintf`], with limits of the caller.
///
/// # Errors
/// The text exceeds the limits.
pub fn sprintf_within(
    format: &[u8],
    values: &[GoRuntimeValue],
    limits: FormatLimits,
) -> Result<Vec<u8>, Error> {
    let mut printer = FormatPrinter::new(limits);
    directive::run(&mut printer, format, values);
    printer.finish()
}
