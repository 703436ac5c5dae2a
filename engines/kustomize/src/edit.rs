//! Reading and setting fields of objects as kyaml does, quirks of tags and quotes included, with errors of a build.
//!
//! Elsewhere: single fields (`field.rs`), the places that a configuration names (`fieldspec.rs`), paths of
//! replacements (`path.rs`).

use goyaml::v3::{Kind, Layout, Node, Style};

use crate::error::{Error, Result};
use crate::field;
use crate::fieldspec::{self, Created, FieldSpec};

pub(crate) use crate::field::{is_nil_or_empty as is_empty, is_null};

pub(crate) const STR: &str = "!!str";
pub(crate) const INT: &str = "!!int";
pub(crate) const BOOL: &str = "!!bool";
pub(crate) const MAP: &str = "!!map";
pub(crate) const NULL: &str = "!!null";

/// How kyaml lays out what it writes.
pub(crate) const LAYOUT: Layout = Layout { indent: 2, compact_sequences: true };

/// A node that stands for nothing, as what a deleted object leaves.
pub(crate) fn null() -> Node {
    Node::scalar(NULL, "")
}

/// Whether a scalar counts as text.
pub(crate) fn is_string(node: &Node) -> bool {
    node.kind == Kind::Scalar && matches!(node.tag.as_ref(), STR | "")
}

/// The text of a scalar; empty for null.
pub(crate) fn text(node: &Node) -> &str {
    if is_null(node) { "" } else { &node.value }
}

impl From<field::WrongKind> for Error {
    fn from(error: field::WrongKind) -> Self {
        Self::new(error.to_string())
    }
}

impl From<crate::path::Error> for Error {
    fn from(error: crate::path::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// Refuses a node of another kind; null passes for any.
pub(crate) fn check_kind(node: &Node, kind: Kind) -> Result<()> {
    Ok(field::expect(node, kind)?)
}

/// The value of a map's field; none for null.
pub(crate) fn get<'n>(node: &'n Node, name: &str) -> Result<Option<&'n Node>> {
    Ok(field::position(node, name)?.and_then(|at| node.content.get(at)))
}

/// As [`get`], to change it.
pub(crate) fn get_mut<'n>(node: &'n mut Node, name: &str) -> Result<Option<&'n mut Node>> {
    match field::position(node, name)? {
        Some(at) => Ok(node.content.get_mut(at)),
        None => Ok(None),
    }
}

/// The node below a chain of field names, if all are there and maps.
pub(crate) fn at<'n>(node: &'n Node, names: &[&str]) -> Option<&'n Node> {
    names.iter().try_fold(node, |node, name| {
        let keys = if node.kind == Kind::Mapping { &node.content[..] } else { &[] };
        keys.chunks_exact(2).find(|entry| entry[0].value == *name).map(|entry| &entry[1])
    })
}

/// The field of a map, made with this kind where it is missing; none for null.
pub(crate) fn get_or_create<'n>(
    node: &'n mut Node,
    name: &str,
    kind: Kind,
) -> Result<Option<&'n mut Node>> {
    if is_null(node) {
        return Ok(None);
    }
    let at = match field::position(node, name)? {
        Some(at) => at,
        None => {
            node.content.push(untyped(name));
            node.content.push(Node { kind, ..Node::default() });
            node.content.len() - 1
        }
    };
    Ok(node.content.get_mut(at))
}

/// A scalar without a tag, which means whatever its text means.
pub(crate) fn untyped(text: impl Into<String>) -> Node {
    Node { value: text.into(), ..Node::default() }
}

/// A text whose tag says so.
pub(crate) fn string(text: impl Into<String>) -> Node {
    let text = text.into();
    // go-yaml's SetString chooses a block for several lines.
    let style = if text.contains('\n') { Style::LITERAL } else { Style::default() };
    Node { style, ..Node::string(text) }
}

/// Removes the first entry with this key.
pub(crate) fn clear(node: &mut Node, name: &str) -> Result<()> {
    field::clear(node, name)?;
    Ok(())
}

/// Replaces a scalar; it stays quoted as it was.
pub(crate) fn set_scalar(
    node: &mut Node,
    value: impl Into<String>,
    tag: &'static str,
) -> Result<()> {
    check_kind(node, Kind::Scalar)?;
    let style = node.style;
    *node = Node { style, tag: tag.into(), value: value.into(), ..Node::default() };
    Ok(())
}

/// Sets a map's field; see [`field::set`].
pub(crate) fn set_field(node: &mut Node, name: &str, value: Node) -> Result<()> {
    Ok(field::set(node, name, value)?)
}

/// Sets a field below a chain of maps, which are made where they are missing.
pub(crate) fn set_at(node: &mut Node, path: &[&str], name: &str, value: Node) -> Result<()> {
    let mut node = node;
    for part in path {
        let Some(next) = get_or_create(node, part, Kind::Mapping)? else { return Ok(()) };
        node = next;
    }
    set_field(node, name, value)
}

/// Calls `change` for each node that a field specification leads to.
///
/// # Errors
/// As [`fieldspec::walk`], with the object's name.
pub(crate) fn walk(
    object: &mut Node,
    spec: &FieldSpec,
    created: Option<Created>,
    change: impl FnMut(&mut Node) -> Result<()>,
) -> Result<()> {
    match fieldspec::walk(object, spec, created, change) {
        Ok(_) => Ok(()),
        Err(error) => {
            let id = crate::resource::id(object);
            let text = format!("considering field '{}' of object {id}: {error}", spec.path);
            Err(Error::new(text))
        }
    }
}
