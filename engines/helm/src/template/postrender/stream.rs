//! Reads and writes streams of documents as kyaml does, including the annotations that kyaml adds and removes.
//!
//! The nodes are documents, or the items of a list that is the whole stream. Elsewhere: the YAML of a document
//! (`goyaml::v3`), and its annotations (`annotation.rs`).

use golang::GoRuntimeValue;
use golang::json::{self, JsonLayout};
use golang::value::{IntegerKind, SizedInteger};
use goyaml::YamlLimits;
use goyaml::v3::{self, NodeEmitError, YamlLayout, YamlNode, YamlNodeDocumentReader, YamlNodeKind};
use serde_json::Value as Json;

use super::annotation::{self, LAYOUT, NotAMapError};

/// The two annotations with the index of a document in a stream, the older one first.
const INDEX: [&str; 2] = ["config.kubernetes.io/index", "internal.config.kubernetes.io/index"];
/// The two annotations with the file of a document, the older one first.
const PATH: [&str; 2] = ["config.kubernetes.io/path", "internal.config.kubernetes.io/path"];
const ID: [&str; 2] = ["config.k8s.io/id", "internal.config.kubernetes.io/id"];
/// The annotation that says how far lists are indented.
const LIST_INDENT: &str = "internal.config.kubernetes.io/seqindent";
/// The key under which kyaml puts a list that it has wrapped in a map.
const WRAPPED_LIST: &str = "bareSeqNodeWrappingKey";

/// Why a stream cannot be read or written. The messages are kyaml's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestStreamError {
    /// A line that begins with `---` has text after it.
    #[error("invalid document separator: {0}")]
    Separator(String),
    /// A document is not YAML, or is too long.
    #[error("MalformedYAMLError: {0}")]
    Yaml(#[from] goyaml::Error),
    /// A node that has to be a map is not one.
    #[error(transparent)]
    NoMap(#[from] NotAMapError),
    /// A document is not an object.
    #[error("missing Resource metadata")]
    NoMetadata,
    /// A document cannot be written.
    #[error(transparent)]
    Emit(#[from] NodeEmitError),
    /// JSON cannot represent a document that has to be written as JSON.
    #[error("json: error calling MarshalJSON for type *yaml.RNode: {0}")]
    Json(String),
}

/// The root node of a document. Any other node is returned itself.
pub(super) fn root_mut(node: &mut YamlNode) -> &mut YamlNode {
    if node.kind == YamlNodeKind::Document && !node.content.is_empty() {
        return &mut node.content[0];
    }
    node
}

fn root(node: &YamlNode) -> &YamlNode {
    if node.kind == YamlNodeKind::Document { node.content.first().unwrap_or(node) } else { node }
}

/// The documents of a stream. Empty documents are left out. If the only document is a list, its items are returned.
///
/// Parity(kyaml): the text after the `...` of a document is dropped.
pub(super) fn read(text: &[u8]) -> Result<Vec<YamlNode>, ManifestStreamError> {
    let text = without_carriage_returns(text);
    let parts = split(&text)?;
    let is_alone = parts.len() == 1;
    let mut nodes = Vec::new();
    for part in parts {
        let Some(document) = YamlNodeDocumentReader::new(part, &YamlLimits::default())?.next()
        else {
            continue;
        };
        let mut document = document?;
        let root = root_mut(&mut document);
        if annotation::is_null(root) {
            continue;
        }
        for names in [PATH, INDEX, ID] {
            agree(root, names)?;
        }
        for name in INDEX {
            annotation::set(root, name, &nodes.len().to_string())?;
        }
        let kind = annotation::filled(root, "kind").map(|kind| kind.value.as_str());
        let items = root.entries().position(|(key, _)| key.value == "items");
        let is_list = is_alone
            && matches!(kind, Some("ResourceList" | "List"))
            && (items.is_some() || annotation::field(root, "functionConfig").is_some());
        if !is_list {
            nodes.push(document);
        } else if let Some(items) = items.and_then(|at| root.content.get_mut(2 * at + 1)) {
            nodes.append(&mut items.content);
        }
    }
    Ok(nodes)
}

/// If only one of an annotation's two names is set, the other one gets the same value.
fn agree(root: &mut YamlNode, [old, new]: [&str; 2]) -> Result<(), NotAMapError> {
    let of = |name| annotation::get(root, name).unwrap_or_default().to_owned();
    match (of(old), of(new)) {
        (old, new) if old.is_empty() == new.is_empty() => Ok(()),
        (text, _) if !text.is_empty() => annotation::set(root, new, &text),
        (_, text) => annotation::set(root, old, &text),
    }
}

fn without_carriage_returns(text: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len());
    for (at, byte) in text.iter().enumerate() {
        if *byte != b'\r' || text.get(at + 1) != Some(&b'\n') {
            result.push(*byte);
        }
    }
    result
}

/// Splits a stream at lines that begin with `---`, except for its first line.
///
/// Parity(kyaml): of two such lines in a row the second belongs to the document.
fn split(text: &[u8]) -> Result<Vec<&[u8]>, ManifestStreamError> {
    let mut parts = Vec::new();
    if text.is_empty() {
        return Ok(parts);
    }
    let mut part_start = 0;
    let mut line_start = 0;
    // The line break before a separator belongs to the separator, so one line break cannot serve two separators.
    let mut may_separate = false;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let end = line_start + line.len();
        let is_separator = may_separate && line.starts_with(b"---") && line.ends_with(b"\n");
        if is_separator {
            let line = String::from_utf8_lossy(line);
            let behind = line[3..].trim();
            if !behind.is_empty() && !behind.starts_with('#') {
                return Err(ManifestStreamError::Separator(line.trim().to_owned()));
            }
            parts.push(&text[part_start..line_start]);
            part_start = end;
        }
        may_separate = !is_separator;
        line_start = end;
    }
    parts.push(&text[part_start..]);
    Ok(parts)
}

/// Writes a stream as text, without the annotations that [`read`] adds.
///
/// Parity(kyaml): a single document of a file `*.json` is written as JSON.
pub(super) fn write(mut nodes: Vec<YamlNode>) -> Result<String, ManifestStreamError> {
    let is_json = matches!(&nodes[..], [node] if is_of_json_file(root(node)));
    let mut layouts = Vec::with_capacity(nodes.len());
    for node in &mut nodes {
        let root = root_mut(node);
        let is_wide = annotation::get(root, LIST_INDENT) == Some("wide");
        layouts.push(YamlLayout { compact_sequences: !is_wide, ..LAYOUT });
        for name in [INDEX[1], INDEX[0], LIST_INDENT] {
            annotation::clear(root, name)?;
        }
        annotation::clear_empty(root)?;
    }
    if let ([node], true) = (&nodes[..], is_json) {
        return to_json(node);
    }
    let written =
        nodes.iter().map(|node| annotation::filled(root(node), WRAPPED_LIST).unwrap_or(node));
    Ok(v3::emit_each(written.zip(&layouts))?)
}

fn is_of_json_file(root: &YamlNode) -> bool {
    let path = annotation::get(root, PATH[1]).or_else(|| annotation::get(root, PATH[0]));
    path.is_some_and(|path| path.trim_end_matches('/').ends_with(".json"))
}

fn to_json(node: &YamlNode) -> Result<String, ManifestStreamError> {
    let failed = |error: &dyn ToString| ManifestStreamError::Json(error.to_string());
    let text = v3::emit(node, &LAYOUT)?;
    let again = v3::parse(text.as_bytes(), &YamlLimits::default())?;
    let Some(document) = again.first() else { return Ok("{}\n".to_owned()) };
    let value = v3::to_json(document, &YamlLimits::default()).map_err(|error| failed(&error))?;
    let form = JsonLayout { indent: Some("  "), ..JsonLayout::default() };
    let text = json::encode(&decoded(&value), form, YamlLimits::default().bytes);
    Ok(text.map_err(|error| failed(&error))? + "\n")
}

/// A value as go-yaml decodes it. Unlike in JSON, integers stay integers. The depth is at most
/// [`YamlLimits::MAX_DEPTH`].
fn decoded(json: &Json) -> GoRuntimeValue {
    match json {
        Json::Array(items) => GoRuntimeValue::list(items.iter().map(decoded)),
        Json::Object(fields) => {
            GoRuntimeValue::map(fields.iter().map(|(key, value)| (key.as_str(), decoded(value))))
        }
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(signed), _) => GoRuntimeValue::int64(signed),
            (None, Some(unsigned)) => GoRuntimeValue::Integer(SizedInteger::new(
                IntegerKind::Uint64,
                unsigned.cast_signed(),
            )),
            (None, None) => GoRuntimeValue::from_json(json),
        },
        Json::Null | Json::Bool(_) | Json::String(_) => GoRuntimeValue::from_json(json),
    }
}
