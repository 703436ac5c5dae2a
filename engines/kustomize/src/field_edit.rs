//! Reads and sets fields of objects like kyaml, including its quirks of tags and quotes. Errors are those of a build.
//!
//! Elsewhere: single fields (`field.rs`), fields that a configuration names (`fieldspec.rs`), paths of replacements
//! (`yaml_path.rs`).

use std::collections::BTreeMap;

use goyaml::v3::{YamlLayout, YamlNode, YamlNodeKind, YamlNodeStyle};

use crate::budget::{self, BuildBudget, weight_of_scalar};
use crate::error::{BuildErrorCause, Error, ErrorContext as _, Result};
use crate::field;
use crate::fieldspec::{self, CreatedNodeType, FieldSpec};

pub(crate) use crate::field::{is_nil_or_empty as is_empty, is_null};

/// Steps that following a path of a field specification costs.
const STEPS_PER_PATH_WALK: usize = 64;

pub(crate) const STR: &str = "!!str";
pub(crate) const INT: &str = "!!int";
pub(crate) const BOOL: &str = "!!bool";
pub(crate) const MAP: &str = "!!map";
pub(crate) const NULL: &str = "!!null";

/// The layout in which kyaml writes YAML.
pub(crate) const LAYOUT: YamlLayout = YamlLayout { indent: 2, compact_sequences: true };

/// A null node, which marks a deleted object.
pub(crate) fn null() -> YamlNode {
    YamlNode::scalar(NULL, "")
}

/// Whether a scalar counts as text.
pub(crate) fn is_string(node: &YamlNode) -> bool {
    node.kind == YamlNodeKind::Scalar && matches!(node.tag.as_ref(), STR | "")
}

/// The text of a scalar; empty for null.
pub(crate) fn text(node: &YamlNode) -> &str {
    if is_null(node) { "" } else { &node.value }
}

impl From<field::WrongNodeKind> for Error {
    fn from(error: field::WrongNodeKind) -> Self {
        Self::new(error.to_string())
    }
}

impl From<crate::yaml_path::Error> for Error {
    fn from(error: crate::yaml_path::Error) -> Self {
        match error {
            crate::yaml_path::Error::Exhausted(exhausted) => exhausted.into(),
            error => Self::new(error.to_string()),
        }
    }
}

/// Checks the kind of a node. A null is accepted as any kind.
pub(crate) fn check_kind(node: &YamlNode, kind: YamlNodeKind) -> Result<()> {
    Ok(field::expect(node, kind)?)
}

/// The value of a map's field; none if the map is null.
pub(crate) fn get<'n>(node: &'n YamlNode, name: &str) -> Result<Option<&'n YamlNode>> {
    Ok(field::position(node, name)?.and_then(|at| node.content.get(at)))
}

/// Like [`get`], but the returned node can be changed.
pub(crate) fn get_mut<'n>(node: &'n mut YamlNode, name: &str) -> Result<Option<&'n mut YamlNode>> {
    match field::position(node, name)? {
        Some(at) => Ok(node.content.get_mut(at)),
        None => Ok(None),
    }
}

/// The node below a chain of field names. `None` if one of them does not exist or is not in a map.
pub(crate) fn at<'n>(node: &'n YamlNode, names: &[&str]) -> Option<&'n YamlNode> {
    names.iter().try_fold(node, |node, name| {
        let keys = if node.kind == YamlNodeKind::Mapping { &node.content[..] } else { &[] };
        keys.chunks_exact(2).find(|entry| entry[0].value == *name).map(|entry| &entry[1])
    })
}

/// The field of a map. A missing field is created with this kind. None if the map is null.
pub(crate) fn get_or_create<'n>(
    node: &'n mut YamlNode,
    name: &str,
    kind: YamlNodeKind,
) -> Result<Option<&'n mut YamlNode>> {
    if is_null(node) {
        return Ok(None);
    }
    let at = match field::position(node, name)? {
        Some(at) => at,
        None => {
            node.content.push(untyped(name));
            node.content.push(YamlNode { kind, ..YamlNode::default() });
            node.content.len() - 1
        }
    };
    Ok(node.content.get_mut(at))
}

/// A scalar without a tag, so that its type follows from its text.
pub(crate) fn untyped(text: impl Into<String>) -> YamlNode {
    YamlNode { value: text.into(), ..YamlNode::default() }
}

/// A text with the tag of a string.
pub(crate) fn string(text: impl Into<String>) -> YamlNode {
    let text = text.into();
    // go-yaml's SetString chooses a block for several lines.
    let style = if text.contains('\n') { YamlNodeStyle::LITERAL } else { YamlNodeStyle::default() };
    YamlNode { style, ..YamlNode::string(text) }
}

/// Removes the first entry with this key.
pub(crate) fn clear(node: &mut YamlNode, name: &str) -> Result<()> {
    field::clear(node, name)?;
    Ok(())
}

/// Replaces the value of a scalar. Its quotes stay.
pub(crate) fn set_scalar(
    node: &mut YamlNode,
    value: impl Into<String>,
    tag: &'static str,
) -> Result<()> {
    check_kind(node, YamlNodeKind::Scalar)?;
    let style = node.style;
    *node = YamlNode { style, tag: tag.into(), value: value.into(), ..YamlNode::default() };
    Ok(())
}

/// Sets a map's field; see [`field::set`].
pub(crate) fn set_field(node: &mut YamlNode, name: &str, value: YamlNode) -> Result<()> {
    Ok(field::set(node, name, value)?)
}

/// Sets a field below a chain of maps. Missing maps are created.
pub(crate) fn set_at(
    node: &mut YamlNode,
    path: &[&str],
    name: &str,
    value: YamlNode,
) -> Result<()> {
    let mut node = node;
    for part in path {
        let Some(next) = get_or_create(node, part, YamlNodeKind::Mapping)? else { return Ok(()) };
        node = next;
    }
    set_field(node, name, value)
}

/// Sets several strings in a map below another map. Missing maps are created if there is a string to set. Unlike repeated calls
/// of [`set_at`], the time grows only with the number of strings, and not with its square.
pub(crate) fn set_all<'k>(
    node: &mut YamlNode,
    name: &str,
    fields: impl IntoIterator<Item = (&'k str, YamlNode)>,
) -> Result<()> {
    let mut fields = fields.into_iter().peekable();
    if fields.peek().is_none() {
        return Ok(());
    }
    let Some(map) = get_or_create(node, name, YamlNodeKind::Mapping)? else { return Ok(()) };
    if map.kind != YamlNodeKind::Mapping || is_null(map) {
        return fields.try_for_each(|(key, value)| set_field(map, key, value));
    }
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for (pair, key) in map.content.iter().step_by(2).enumerate() {
        known.entry(key.value.clone()).or_insert(2 * pair + 1);
    }
    for (key, mut value) in fields {
        field::quote_if_ambiguous(&mut value);
        if let Some(old) = known.get(key).and_then(|at| map.content.get_mut(*at)) {
            value.style = old.style;
            *old = value;
        } else {
            known.insert(key.to_owned(), map.content.len() + 1);
            map.content.extend([untyped(key), value]);
        }
    }
    Ok(())
}

/// Like [`set_scalar`], and takes the additional memory from the budget.
pub(crate) fn grow_scalar(
    node: &mut YamlNode,
    value: impl Into<String>,
    tag: &'static str,
    budget: &BuildBudget,
) -> Result<()> {
    let value = value.into();
    budget.grown(node.value.len(), value.len())?;
    set_scalar(node, value, tag)
}

/// Like [`set_field`], and takes the additional memory from the budget.
pub(crate) fn grow_field(
    node: &mut YamlNode,
    name: &str,
    value: YamlNode,
    budget: &BuildBudget,
) -> Result<()> {
    budget.steps(node.content.len() / 2)?;
    let before = field::position(node, name)?.and_then(|at| node.content.get(at));
    let before = before.map_or(0, |known| weight_of_scalar(name) + budget::weight(known));
    budget.grown(before, weight_of_scalar(name) + budget::weight(&value))?;
    set_field(node, name, value)
}

/// Calls `change` for each node that a field specification leads to.
///
/// # Errors
/// As [`fieldspec::walk`], with the object's name.
pub(crate) fn walk(
    object: &mut YamlNode,
    spec: &FieldSpec,
    created: Option<CreatedNodeType>,
    budget: &BuildBudget,
    mut change: impl FnMut(&mut YamlNode) -> Result<()>,
) -> Result<()> {
    let mut cause = BuildErrorCause::Other;
    let walked = budget.steps(STEPS_PER_PATH_WALK).map_err(Error::from).and_then(|()| {
        let change = |node: &mut YamlNode| change(node).inspect_err(|error| cause = error.cause());
        let walked = fieldspec::walk(object, spec, created, change);
        walked.map(|_| ()).map_err(|error| Error::caused(error.to_string(), cause))
    });
    walked.within(|| {
        let id = crate::resource::id(object);
        format!("considering field '{}' of object {id}", spec.path)
    })
}
