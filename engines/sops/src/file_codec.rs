//! Reads encrypted files in the five formats, and writes decrypted ones.
//!
//! Here: choosing the reader and writer of a format. Below: the formats, and metadata that is flattened into keys
//! (`flat_metadata.rs`).

mod dotenv;
mod flat_metadata;
mod ini;
mod json;
mod yaml;

use zeroize::Zeroizing;

use crate::format::SopsFormat;
use crate::limits::{FileLimitExceeded, SopsLimits, SopsParseBudget};
use crate::metadata::{self, SopsMetadata, SopsMetadataError};
use crate::value::{MapItem, SecretBytes, SopsValue};

/// Why a file was not read. It displays sops's message without values.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum SopsReadError {
    #[error("{0}")]
    Form(String),
    #[error("{0}")]
    Metadata(#[from] SopsMetadataError),
    #[error("{0}")]
    Exceeded(#[from] FileLimitExceeded),
}

/// Why a tree cannot be written in a format. It displays sops's message without values.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum SopsWriteError {
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
    format: SopsFormat,
    limits: &SopsLimits,
) -> Result<(Vec<Vec<MapItem>>, SopsMetadata), SopsReadError> {
    let mut budget = SopsParseBudget::new(limits);
    let mut documents = match format {
        SopsFormat::Yaml => yaml::read(data, limits, &mut budget)?,
        SopsFormat::Json | SopsFormat::Binary => vec![json::read(data, &mut budget)?],
        SopsFormat::Dotenv => vec![dotenv::read(data, &mut budget)?],
        SopsFormat::Ini => vec![ini::read(data, &mut budget)?],
    };
    let items = match format {
        SopsFormat::Yaml | SopsFormat::Json | SopsFormat::Binary => metadata::take(&mut documents)?,
        SopsFormat::Ini => {
            let mut items = metadata::take(&mut documents)?;
            for item in &mut items {
                if let SopsValue::Text(text) = &mut item.value {
                    *text = with_lines(text);
                }
            }
            flat_metadata::unflatten(items, limits)?
        }
        SopsFormat::Dotenv => {
            let items = flat_metadata::take(&mut documents).ok_or(SopsMetadataError::Missing)?;
            flat_metadata::unflatten(items, limits)?
        }
    };
    let metadata = SopsMetadata::read(&items, limits)?;
    Ok((documents, metadata))
}

/// A text in which each `\n` of two characters became a line break.
fn with_lines(text: &[u8]) -> SecretBytes {
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
pub(crate) fn write(
    documents: &[Vec<MapItem>],
    format: SopsFormat,
) -> Result<SecretBytes, SopsWriteError> {
    let first = documents.first().map(Vec::as_slice).unwrap_or_default();
    match format {
        SopsFormat::Yaml => yaml::write(documents),
        SopsFormat::Json => json::write(first),
        SopsFormat::Dotenv => dotenv::write(first),
        SopsFormat::Ini => ini::write(documents),
        SopsFormat::Binary => binary(documents),
    }
}

/// The content of a file that is a single value.
fn binary(documents: &[Vec<MapItem>]) -> Result<SecretBytes, SopsWriteError> {
    let [document] = documents else {
        return Err(SopsWriteError::Binary("there must be exactly one tree branch"));
    };
    match document.iter().find(|item| item.is("data")).map(|item| &item.value) {
        Some(SopsValue::Text(text)) => Ok(text.clone()),
        Some(_) => Err(SopsWriteError::Binary("'data' key in tree does not have a string value")),
        None => Err(SopsWriteError::Binary("no binary data found in tree")),
    }
}
