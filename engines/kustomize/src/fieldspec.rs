//! Field specs: they say which field of which kinds of objects a transformer changes.
//!
//! Here: following the path of a spec through one object. Elsewhere: the specs of each transformer, and the changes that it
//! makes.

use std::borrow::Cow;
use std::error::Error as StdError;

use goyaml::v3::{YamlNode, YamlNodeKind};

use crate::{field, yaml_path};

/// A path in objects of certain kinds. An empty group, version or kind matches any.
///
/// Built-in specs borrow their strings from the program, because every kustomization copies hundreds of specs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSpec {
    /// The API group. The core group is empty, too.
    pub group: Cow<'static, str>,
    /// The API version, without its group.
    pub version: Cow<'static, str>,
    /// The kind.
    pub kind: Cow<'static, str>,
    /// Keys separated by `/`. `\/` is a slash within a key, and `[]` after a key means that its value is a list.
    pub path: Cow<'static, str>,
    /// Whether missing fields on the path are created.
    pub create: bool,
}

/// The node that a transformer creates at the end of a path if the node is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreatedNodeType {
    /// The kind of the node.
    pub kind: YamlNodeKind,
    /// The tag of the node, such as `!!str`. It is only used if the old node was null.
    pub tag: &'static str,
}

/// Why a spec's path cannot be followed. The text is kustomize's, without the object's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The path continues, but the value at this point has no fields.
    #[error("expected sequence or mapping node")]
    NoFields,
    /// A part of the path is empty.
    #[error("cannot set or create an empty field name")]
    EmptyName,
    /// A field cannot be looked up.
    #[error("fieldName: {name}: {problem}")]
    Lookup {
        /// The name of the field.
        name: String,
        /// The problem.
        problem: yaml_path::Error,
    },
    /// The object contains an alias. Aliases must be expanded before.
    #[error("alias `{0}` is not expanded")]
    Alias(String),
    /// The change of the field failed.
    #[error(transparent)]
    Change(Box<dyn StdError + Send + Sync>),
    /// An error of another variant, within a list.
    #[error("visit traversal on path: [{path}]: {problem}")]
    InList {
        /// The remaining parts of the path.
        path: String,
        /// The error at this point of the path.
        problem: Box<Self>,
    },
}

impl FieldSpec {
    /// Whether the spec is about this object, by its `apiVersion` and `kind`.
    pub fn selects(&self, object: &YamlNode) -> bool {
        let root = root(object);
        let text = |key| root.get(key).map(|value| value.value.as_str()).unwrap_or_default();
        let api_version = text("apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        is(&self.kind, text("kind")) && is(&self.group, group) && is(&self.version, version)
    }
}

/// Calls `change` for each node at the end of a spec's path. Returns whether the spec applies to the object at all.
///
/// Lists on the path are entered automatically. A missing or null field ends the path, unless both spec and transformer create
/// fields. Then maps are created and, at the end, `created`.
///
/// # Errors
/// The first error, also of `change`. Earlier changes stay. The message lacks kustomize's prefix `considering field '…' of
/// object …: `, because this module does not know the names of objects.
pub fn walk<E>(
    object: &mut YamlNode,
    spec: &FieldSpec,
    created: Option<CreatedNodeType>,
    mut change: impl FnMut(&mut YamlNode) -> Result<(), E>,
) -> Result<bool, Error>
where
    E: StdError + Send + Sync + 'static,
{
    if !spec.selects(object) {
        return Ok(false);
    }
    let parts = yaml_path::split(&spec.path, '/');
    let created = created.filter(|_| spec.create);
    // The nodes still to examine, with the next one last. Each has the number of path parts already followed, and its list.
    let mut left = vec![(root_mut(object), 0, None)];
    let mut lists: Vec<(Option<usize>, usize)> = Vec::new();
    while let Some((node, at, list)) = left.pop() {
        let Some(part) = parts.get(at) else {
            let changed = change(node);
            changed.map_err(|error| within(&lists, list, &parts, Error::Change(error.into())))?;
            continue;
        };
        if field::is_null(node) {
            continue;
        }
        match node.kind {
            YamlNodeKind::Sequence => {
                lists.push((list, at));
                let list = Some(lists.len() - 1);
                left.extend(node.content.iter_mut().rev().map(|item| (item, at, list)));
            }
            YamlNodeKind::Mapping => {
                let is_last = at + 1 == parts.len();
                let next = enter(node, part, created, is_last);
                if let Some(next) = next.map_err(|error| within(&lists, list, &parts, error))? {
                    left.push((next, at + 1, list));
                }
            }
            YamlNodeKind::Alias => return Err(Error::Alias(node.value.clone())),
            YamlNodeKind::Document | YamlNodeKind::Scalar => {
                return Err(within(&lists, list, &parts, Error::NoFields));
            }
        }
    }
    Ok(true)
}

/// The field of a map that a part names. If allowed, a missing field is created.
fn enter<'n>(
    map: &'n mut YamlNode,
    part: &str,
    created: Option<CreatedNodeType>,
    is_last: bool,
) -> Result<Option<&'n mut YamlNode>, Error> {
    let (name, is_list) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
    if name.is_empty() {
        return Err(Error::EmptyName);
    }
    let lookup = |problem| Error::Lookup { name: name.to_owned(), problem };
    // The node that replaces a null here.
    let becomes = match created {
        _ if is_list => created_list(),
        None => None,
        Some(created) if is_last => Some(created),
        Some(_) => Some(CreatedNodeType { kind: YamlNodeKind::Mapping, tag: "!!map" }),
    };
    let found = if let (Some(becomes), false) = (becomes, is_list) {
        yaml_path::lookup_create(map, &[name], becomes.kind)
    } else {
        yaml_path::lookup_mut(map, &[name])
    };
    let Some(field) = found.map_err(lookup)? else { return Ok(None) };
    if let Some(becomes) = becomes
        && field::is_null(field)
    {
        field.kind = becomes.kind;
        field.tag = becomes.tag.into();
    }
    Ok(Some(field))
}

/// The type of the node that replaces a null where the path expects a list; never `None`.
fn created_list() -> Option<CreatedNodeType> {
    Some(CreatedNodeType { kind: YamlNodeKind::Sequence, tag: "" })
}

/// Adds the lists that contain the error, with the innermost first.
fn within(
    lists: &[(Option<usize>, usize)],
    list: Option<usize>,
    parts: &[String],
    error: Error,
) -> Error {
    let mut error = error;
    let mut list = list;
    while let Some((outer, at)) = list.and_then(|list| lists.get(list)) {
        let path = parts[*at..].join(" ");
        error = Error::InList { path, problem: Box::new(error) };
        list = *outer;
    }
    error
}

fn root(object: &YamlNode) -> &YamlNode {
    match (object.kind, object.content.first()) {
        (YamlNodeKind::Document, Some(root)) => root,
        _ => object,
    }
}

fn root_mut(object: &mut YamlNode) -> &mut YamlNode {
    if object.kind == YamlNodeKind::Document && !object.content.is_empty() {
        return &mut object.content[0];
    }
    object
}

#[cfg(test)]
mod tests;
