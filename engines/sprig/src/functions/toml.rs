//! The template functions for TOML, which is read and written like BurntSushi's Go library 1.6.0.
//!
//! Here: the functions. Below: writing (`toml/encode.rs`), reading (`toml/parse.rs`, `toml/cursor.rs`), the document that is
//! read (`toml/document.rs`), numbers and times (`toml/scalar.rs`).

mod cursor;
mod document;
mod encode;
mod parse;
mod scalar;

use golang::GoRuntimeValue;
use golang::value::GoMap;
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use super::json::{read, with_error};
use crate::arguments::{TEXT_OVERHEAD_BYTES, any, text, walked};
use crate::function_table::{SprigFunctionEntry, bounded, impure};
use crate::memory_size::weight_with_points;
use crate::template_environment::TemplateEnvironment;
use encode::{TomlEncodeError, encode};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    bounded("toToml", "func(interface {}) string", to_toml),
    bounded("mustToToml", "func(interface {}) string", must_to_toml),
    impure("fromToml", "func(string) map[string]interface {}", from_toml),
];

/// The names that the Go library uses for the zones of times without a zone.
const LOCAL_DATETIME: &str = "datetime-local";
const LOCAL_DATE: &str = "date-local";
const LOCAL_TIME: &str = "time-local";

/// A value as TOML. If that is not possible, the result is the error's text.
fn to_toml(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    walked(call, any(args, 0), 0)?;
    match encode(any(args, 0), call.room()) {
        Err(TomlEncodeError::Refused(reason)) => Ok(GoRuntimeValue::from(reason)),
        written => finish(call, written),
    }
}

/// A function of templates that writes a value as TOML, and fails if that is not possible.
fn must_to_toml(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    walked(call, any(args, 0), 0)?;
    let written = encode(any(args, 0), call.room());
    finish(call, written)
}

fn finish(
    call: &mut FunctionCallContext<'_>,
    written: Result<Vec<u8>, TomlEncodeError>,
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let text = written.map_err(|error| match error {
        TomlEncodeError::Length(most) => golang::fmt::Error::TooLong(most).into(),
        other => TemplateFunctionError::from(other.to_string()),
    })?;
    call.work(text.len() / 8)?;
    call.produce(text.len() + TEXT_OVERHEAD_BYTES)?;
    Ok(GoRuntimeValue::string(text))
}

/// Parses a TOML document to a map. If the text is not valid, the map has the error under the key `Error`.
fn from_toml(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let text = text(args, 0);
    read(call, text, weight_with_points(text))?;
    Ok(match parse::parse(text, template_environment) {
        Ok(map) => GoRuntimeValue::Map(map),
        Err(error) => with_error(GoMap::default(), &error.to_string()),
    })
}

#[cfg(test)]
mod tests;
