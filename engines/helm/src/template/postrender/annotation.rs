//! Sets, reads and removes annotations of an object as kyaml does. The object may have an unusual form.
//!
//! The functions work on the nodes below a document. A null counts as any kind of node, and has no fields. Elsewhere:
//! streams of documents (`stream.rs`).

use goyaml::v3::{self, YamlLayout, YamlNode, YamlNodeKind, YamlNodeStyle};

/// The layout in which kyaml writes, unless a document says otherwise.
pub(super) const LAYOUT: YamlLayout = YamlLayout { indent: 2, compact_sequences: true };

const METADATA: &str = "metadata";
const ANNOTATIONS: &str = "annotations";

/// A node is not a map although it has to be one. The message is kyaml's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("wrong node kind: expected MappingNode but got {found}: node contents:\n{contents}")]
pub struct NotAMapError {
    /// The kind of the node, as go-yaml names it.
    pub found: &'static str,
    /// The text of the node.
    pub contents: String,
}

/// Whether a node has the tag of null.
pub(super) fn is_null(node: &YamlNode) -> bool {
    node.tag == "!!null"
}

/// Whether a node is null, an empty list or an empty map.
pub(super) fn is_empty(node: &YamlNode) -> bool {
    let is_collection = matches!(node.kind, YamlNodeKind::Mapping | YamlNodeKind::Sequence);
    is_null(node) || is_collection && node.content.is_empty()
}

/// The value of the first key with this text. The key may be any kind of node. `None` if the node is not a map.
pub(super) fn field<'n>(node: &'n YamlNode, name: &str) -> Option<&'n YamlNode> {
    let mut entries = node.entries();
    entries.find(|(key, _)| key.value == name).map(|(_, value)| value)
}

/// Like [`field`]. `None` if the value is empty.
pub(super) fn filled<'n>(node: &'n YamlNode, name: &str) -> Option<&'n YamlNode> {
    field(node, name).filter(|value| !is_empty(value))
}

/// The value of an annotation of a manifest, which is empty for null. `None` if the manifest does not have the
/// annotation.
pub(super) fn get<'n>(root: &'n YamlNode, name: &str) -> Option<&'n str> {
    let value = field(filled(filled(root, METADATA)?, ANNOTATIONS)?, name)?;
    Some(if is_null(value) { "" } else { &value.value })
}

/// Whether an object has any metadata. Null counts as metadata, as in kyaml.
pub(super) fn has_metadata(root: &YamlNode) -> bool {
    let has =
        |node: &YamlNode, names: &[&str]| names.iter().any(|name| filled(node, name).is_some());
    is_null(root)
        || has(root, &["apiVersion", "kind"])
        || filled(root, METADATA)
            .is_some_and(|node| has(node, &["name", "namespace", "labels", ANNOTATIONS]))
}

/// Sets an annotation. A new one is written in single quotes. An existing one keeps its quotes.
pub(super) fn set(root: &mut YamlNode, name: &str, value: &str) -> Result<(), NotAMapError> {
    clear_empty(root)?;
    let Some(metadata) = made(root, METADATA)? else { return Ok(()) };
    let Some(annotations) = made(metadata, ANNOTATIONS)? else { return Ok(()) };
    if is_null(annotations) {
        return Ok(());
    }
    let value = YamlNode { style: YamlNodeStyle::SINGLE_QUOTED, ..YamlNode::string(value) };
    match position(annotations, name)?.and_then(|at| annotations.content.get_mut(at)) {
        Some(known) => *known = YamlNode { style: known.style, ..value },
        None => {
            let key = YamlNode { value: name.to_owned(), ..YamlNode::default() };
            annotations.content.extend([key, value]);
        }
    }
    Ok(())
}

/// Removes an annotation from a manifest, if it has it. The error says that `metadata` or the annotations are not a
/// map.
pub(super) fn clear(root: &mut YamlNode, name: &str) -> Result<(), NotAMapError> {
    let Some(metadata) = position(root, METADATA)?.and_then(|at| root.content.get_mut(at)) else {
        return Ok(());
    };
    let at = position(metadata, ANNOTATIONS)?;
    let Some(annotations) = at.and_then(|at| metadata.content.get_mut(at)) else { return Ok(()) };
    if let Some(at) = position(annotations, name)? {
        annotations.content.drain(at - 1..=at);
    }
    Ok(())
}

/// Removes the field `annotations` if it is empty, and the metadata if it is empty after that.
///
/// Parity(kyaml): a text or an alias in their place counts as empty.
pub(super) fn clear_empty(root: &mut YamlNode) -> Result<(), NotAMapError> {
    if let Some(metadata) = position(root, METADATA)?.and_then(|at| root.content.get_mut(at)) {
        clear_field_if_empty(metadata, ANNOTATIONS)?;
    }
    clear_field_if_empty(root, METADATA)
}

fn clear_field_if_empty(map: &mut YamlNode, name: &str) -> Result<(), NotAMapError> {
    expect_map(map)?;
    let is_it =
        |(key, value): (&YamlNode, &YamlNode)| key.value == name && value.content.is_empty();
    let found = map.entries().position(is_it);
    if let Some(entry) = found {
        map.content.drain(2 * entry..2 * entry + 2);
    }
    Ok(())
}

/// The value of a key. If there is no such key, a new map is added. `None` for null.
fn made<'n>(map: &'n mut YamlNode, name: &str) -> Result<Option<&'n mut YamlNode>, NotAMapError> {
    if is_null(map) {
        return Ok(None);
    }
    let at = match position(map, name)? {
        Some(at) => at,
        None => {
            let key = YamlNode { value: name.to_owned(), ..YamlNode::default() };
            map.content
                .extend([key, YamlNode { kind: YamlNodeKind::Mapping, ..YamlNode::default() }]);
            map.content.len() - 1
        }
    };
    Ok(map.content.get_mut(at))
}

/// The index of a key's value among the children of a map.
fn position(map: &YamlNode, name: &str) -> Result<Option<usize>, NotAMapError> {
    expect_map(map)?;
    Ok(map.entries().position(|(key, _)| key.value == name).map(|entry| 2 * entry + 1))
}

fn expect_map(node: &YamlNode) -> Result<(), NotAMapError> {
    let found = match node.kind {
        YamlNodeKind::Mapping => return Ok(()),
        _ if is_null(node) => return Ok(()),
        YamlNodeKind::Document => "DocumentNode",
        YamlNodeKind::Sequence => "SequenceNode",
        YamlNodeKind::Scalar => "ScalarNode",
        YamlNodeKind::Alias => "AliasNode",
    };
    Err(NotAMapError { found, contents: v3::emit(node, &LAYOUT).unwrap_or_default() })
}
