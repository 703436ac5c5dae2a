//! Field specs: which field of which kinds of objects a transformer changes.
//!
//! Here: following a spec's path through one object. Elsewhere: which specs each transformer has, and what it does
//! to the fields.

use std::borrow::Cow;
use std::error::Error as StdError;

use goyaml::v3::{YamlNode, YamlNodeKind};

use crate::{field, yaml_path};

/// A path in objects of certain kinds. What is empty of group, version and kind means any.
///
/// The strings of the built-in ones are part of the program: every kustomization copies hundreds of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSpec {
    /// The API group; empty also for the core group.
    pub group: Cow<'static, str>,
    /// The API version, without its group.
    pub version: Cow<'static, str>,
    /// The kind.
    pub kind: Cow<'static, str>,
    /// Keys, separated by `/`; `\/` is a slash in a key, `[]` behind a key means that its value is a list.
    pub path: Cow<'static, str>,
    /// Whether what is missing on the way is created.
    pub create: bool,
}

/// What a transformer creates where a spec's path ends and nothing is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreatedNodeType {
    /// Its kind.
    pub kind: YamlNodeKind,
    /// Its tag, such as `!!str`; only used for what was null.
    pub tag: &'static str,
}

/// Why a spec's path cannot be followed. In kustomize's words, without the object's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The path goes on, but the value at that point has no fields.
    #[error("expected sequence or mapping node")]
    NoFields,
    /// A part of the path is empty.
    #[error("cannot set or create an empty field name")]
    EmptyName,
    /// A field cannot be looked up.
    #[error("fieldName: {name}: {problem}")]
    Lookup {
        /// Its name.
        name: String,
        /// Why.
        problem: yaml_path::Error,
    },
    /// An alias; they have to be expanded before.
    #[error("alias `{0}` is not expanded")]
    Alias(String),
    /// What was to be done with the field failed.
    #[error(transparent)]
    Change(Box<dyn StdError + Send + Sync>),
    /// Any of them, within a list.
    #[error("visit traversal on path: [{path}]: {problem}")]
    InList {
        /// The parts that were left there.
        path: String,
        /// What is wrong.
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

/// Calls `change` with each node that a spec's path leads to; returns whether the spec is about the object at all.
///
/// Lists are descended by themselves. A field that is missing or null ends the way, unless both spec and transformer
/// create: then maps are created and, at the end, `created`.
///
/// # Errors
/// The first thing that is wrong, also with `change`; what has been changed by then stays. It lacks kustomize's
/// `considering field '…' of object …: ` in front, since this module does not know how objects are named.
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
    // What is left to examine, the next one last, each with the parts it is behind and the list it is in.
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

/// The field of a map that a part names, created if it may be.
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
    // What a null there becomes.
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

/// What a null becomes for which the path expects a list.
fn created_list() -> Option<CreatedNodeType> {
    Some(CreatedNodeType { kind: YamlNodeKind::Sequence, tag: "" })
}

/// An error with the lists it happened in, the innermost first.
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
