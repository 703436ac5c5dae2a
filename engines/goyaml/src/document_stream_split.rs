//! The documents of a stream, divided as Kubernetes' reader of manifests does it.

use serde_json::Value;

use crate::error::Error;
use crate::limits::{YamlBudget, YamlLimits};
use crate::reader::{YamlInputReader, YamlMark};
use crate::{decode, json, node};

/// A document of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct YamlDocument {
    /// The line where the document's content begins, counted from 1 in the whole stream.
    pub line: usize,
    /// The value of the document. An explicit `null` is a document, too.
    pub value: Value,
}

/// Reads all documents of a stream in order. Empty documents are left out.
///
/// A document begins with a line of `---`, which may have a blank and further text after it. Each document is read like
/// in [`crate::to_json`]. Keys that are set twice are therefore no error, and text after the document's end is not
/// examined. Errors have the line numbers of the stream.
///
/// Differs(kubernetes): content after the `---` belongs to the document, and directives belong to the document after
/// them. Kubernetes refuses both.
pub fn documents(input: &[u8], limits: &YamlLimits) -> Result<Vec<YamlDocument>, Error> {
    let mut budget = YamlBudget::new(input, limits)?;
    let decoded;
    let input = if input.starts_with(&[0xff, 0xfe]) || input.starts_with(&[0xfe, 0xff]) {
        decoded = YamlInputReader::new(input, 0).into_text()?;
        decoded.as_slice()
    } else {
        input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input)
    };

    let mut documents = Vec::new();
    for part in split(input)? {
        let Some(nodes) = node::first_document(part.text, part.line, &mut budget)? else {
            continue;
        };
        if nodes.root().is_absent() {
            continue;
        }
        let start = nodes.root().start;
        budget.take_document(start)?;
        let (values, root) = decode::decode(&nodes, false, &mut budget)?;
        let value = json::to_json(&values, root).map_err(|error| error.or_at(start))?;
        documents.push(YamlDocument { line: start.line + 1, value });
    }
    Ok(documents)
}

/// A part of a stream that has at most one document.
struct YamlStreamPart<'i> {
    text: &'i [u8],
    /// The number of lines before this part.
    line: usize,
}

fn split(input: &[u8]) -> Result<Vec<YamlStreamPart<'_>>, Error> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut start_line = 0;
    let mut at = 0;
    let mut line = 0;
    // Directives come before the `---` of their document.
    let mut directives = false;
    let mut content = false;
    while at < input.len() {
        let (length, breaks) = line_length(&input[at..]);
        let text = &input[at..at + length];
        if text.starts_with(b"---") {
            check_separator(text, YamlMark { line, ..YamlMark::default() })?;
            if at > start && (content || !directives) {
                parts.push(YamlStreamPart { text: &input[start..at], line: start_line });
                (start, start_line) = (at, line);
            }
            (directives, content) = (false, true);
        } else if text.starts_with(b"%") {
            directives = true;
        } else if !matches!(text.trim_ascii_start().first(), None | Some(b'#')) {
            content = true;
        }
        at += length;
        line += breaks;
    }
    parts.push(YamlStreamPart { text: &input[start..], line: start_line });
    Ok(parts)
}

/// Parity(kubernetes): `---x` is neither a separator nor content.
fn check_separator(line: &[u8], at: YamlMark) -> Result<(), Error> {
    match line.get(3) {
        None | Some(b' ' | b'\t' | b'\r' | b'\n') => Ok(()),
        Some(_) => Err(Error::separator(String::from_utf8_lossy(&line[3..]).trim(), at)),
    }
}

/// The length of the first line with its line end, and how many lines the scanner counts for it.
fn line_length(text: &[u8]) -> (usize, usize) {
    let end = text.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
    let (length, mut breaks) = match end {
        None => (text.len(), 0),
        Some(end) if text[end..].starts_with(b"\r\n") => (end + 2, 1),
        Some(end) => (end + 1, 1),
    };
    // The characters NEL, LS and PS also end lines.
    let line = &text[..length];
    if !line.is_ascii() {
        breaks += line.windows(2).filter(|pair| *pair == [0xc2, 0x85]).count();
        breaks +=
            line.windows(3).filter(|triple| matches!(triple, [0xe2, 0x80, 0xa8 | 0xa9])).count();
    }
    (length, breaks)
}

#[cfg(test)]
mod tests;
