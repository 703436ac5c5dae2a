//! Reading encrypted files of the five formats, and writing plain ones.
//!
//! Here: which format is read by what. Below: the formats, and metadata that are flattened into keys (`flat.rs`).

mod dotenv;
mod flat;
mod ini;
mod json;
mod yaml;

use zeroize::Zeroizing;

use crate::format::Format;
use crate::limits::{Budget, Exceeded, Limits};
use crate::metadata::{self, Metadata, MetadataError};
use crate::value::{Bytes, Item, Value};

/// Why a file was not read. Displays in the words of sops, without values.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("{0}")]
    Form(String),
    #[error("{0}")]
    Metadata(#[from] MetadataError),
    #[error("{0}")]
    Exceeded(#[from] Exceeded),
}

/// Why a tree cannot be written in a format. Displays in the words of sops, without values.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("cannot use complex value in dotenv file; offending key {0}")]
    Complex(String),
    #[error("Error marshaling to INI: {0}")]
    Ini(String),
    #[error("Error marshaling to json: {0}")]
    Json(String),
    #[error("Error marshaling to YAML: {0}")]
    Yaml(String),
    #[error("error emitting binary store: {0}")]
    Binary(&'static str),
}

/// The encrypted documents of a file, and its metadata.
pub(crate) fn read(
    data: &[u8],
    format: Format,
    limits: &Limits,
) -> Result<(Vec<Vec<Item>>, Metadata), ReadError> {
    let mut budget = Budget::new(limits);
    let mut documents = match format {
        Format::Yaml => yaml::read(data, limits, &mut budget)?,
        Format::Json | Format::Binary => vec![json::read(data, &mut budget)?],
        Format::Dotenv => vec![dotenv::read(data, &mut budget)?],
        Format::Ini => vec![ini::read(data, &mut budget)?],
    };
    let items = match format {
        Format::Yaml | Format::Json | Format::Binary => metadata::take(&mut documents)?,
        Format::Ini => {
            let mut items = metadata::take(&mut documents)?;
            for item in &mut items {
                if let Value::Text(text) = &mut item.value {
                    *text = with_lines(text);
                }
            }
            flat::unflatten(items, limits)?
        }
        Format::Dotenv => {
            let items = flat::take(&mut documents).ok_or(MetadataError::Missing)?;
            flat::unflatten(items, limits)?
        }
    };
    let metadata = Metadata::read(&items, limits)?;
    Ok((documents, metadata))
}

/// A text in which each `\n` of two characters became a line break.
fn with_lines(text: &[u8]) -> Bytes {
    let mut out = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, b"\\n") {
        let (before, after) = rest.split_at(at);
        out.extend_from_slice(before);
        out.push(b'\n');
        rest = after.get(2..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}

/// The text of plain documents.
pub(crate) fn write(documents: &[Vec<Item>], format: Format) -> Result<Bytes, WriteError> {
    let first = documents.first().map(Vec::as_slice).unwrap_or_default();
    match format {
        Format::Yaml => yaml::write(documents),
        Format::Json => json::write(first),
        Format::Dotenv => dotenv::write(first),
        Format::Ini => ini::write(documents),
        Format::Binary => binary(documents),
    }
}

/// The content of a file that is one value.
fn binary(documents: &[Vec<Item>]) -> Result<Bytes, WriteError> {
    let [document] = documents else {
        return Err(WriteError::Binary("there must be exactly one tree branch"));
    };
    match document.iter().find(|item| item.is("data")).map(|item| &item.value) {
        Some(Value::Text(text)) => Ok(text.clone()),
        Some(_) => Err(WriteError::Binary("'data' key in tree does not have a string value")),
        None => Err(WriteError::Binary("no binary data found in tree")),
    }
}
