//! Finds one node by its path, like kyaml's `PathGetter`.

use goyaml::v3::{YamlNode, YamlNodeKind};

use super::{
    ChildIndexPath, Error, MAX_PARTS, at, at_mut, created, created_item, is_pair, kind_before,
    number, pair, root,
};
use crate::field;

/// The node at the end of a path; `None` if this node or a node on the path is missing or null.
///
/// A part is a key, the number of an item, `-` for the last item, `[key=value]` for the first item with that value, or
/// `[=value]` for the first item that equals it. Values are compared literally.
///
/// # Errors
/// A part needs another kind of node or has no meaning.
pub fn lookup<'n>(
    node: &'n YamlNode,
    path: &[impl AsRef<str>],
) -> Result<Option<&'n YamlNode>, Error> {
    Ok(find(node, path)?.and_then(|place| at(node, &place)))
}

/// Like [`lookup`], for changes.
///
/// # Errors
/// As [`lookup`].
pub(crate) fn lookup_mut<'n>(
    node: &'n mut YamlNode,
    path: &[impl AsRef<str>],
) -> Result<Option<&'n mut YamlNode>, Error> {
    let place = find(node, path)?;
    Ok(place.and_then(|place| at_mut(node, &place)))
}

fn find(node: &YamlNode, path: &[impl AsRef<str>]) -> Result<Option<ChildIndexPath>, Error> {
    let (mut node, mut place) = root(node);
    for part in clean(path)? {
        let Some(child) = step(node, part)? else { return Ok(None) };
        place.push(child);
        let Some(next) = node.content.get(child) else { return Ok(None) };
        node = next;
    }
    Ok(Some(place))
}

/// Like [`lookup`], but creates missing nodes: maps, lists before `[key=value]` and numbers, and the last node with the given
/// kind. Items are only created for `[key=value]`.
///
/// # Errors
/// As [`lookup`]. Nodes that were created before the error stay.
pub(crate) fn lookup_create<'n>(
    node: &'n mut YamlNode,
    path: &[impl AsRef<str>],
    kind: YamlNodeKind,
) -> Result<Option<&'n mut YamlNode>, Error> {
    let place = create(node, path, kind)?;
    Ok(place.and_then(|place| at_mut(node, &place)))
}

fn create(
    node: &mut YamlNode,
    path: &[impl AsRef<str>],
    kind: YamlNodeKind,
) -> Result<Option<ChildIndexPath>, Error> {
    let (_, mut place) = root(node);
    let parts = clean(path)?;
    for (at, part) in parts.iter().enumerate() {
        let Some(parent) = at_mut(node, &place) else { return Ok(None) };
        let child = match step(parent, part)? {
            Some(child) => child,
            None => {
                let next = kind_before(parts.get(at + 1).copied(), kind);
                let Some(child) = create_child(parent, part, next)? else { return Ok(None) };
                child
            }
        };
        place.push(child);
    }
    Ok(Some(place))
}

/// Creates the child that a part names below `parent`.
fn create_child(
    parent: &mut YamlNode,
    part: &str,
    kind: YamlNodeKind,
) -> Result<Option<usize>, Error> {
    if number(part).is_some() || part == "-" {
        return Ok(None);
    }
    if is_pair(part) {
        let (field, value) = pair(part)?;
        parent.content.push(created_item(field, value));
        return Ok(Some(parent.content.len() - 1));
    }
    // Parity(kustomize): nothing is created below null.
    if field::is_null(parent) {
        return Ok(None);
    }
    field::set(parent, part, created(kind, ""))?;
    Ok(field::position(parent, part)?)
}

/// Which child of a node a part means.
fn step(node: &YamlNode, part: &str) -> Result<Option<usize>, Error> {
    if let Some(number) = number(part) {
        let Ok(index) = usize::try_from(number) else { return Err(Error::Negative(number)) };
        field::expect(node, YamlNodeKind::Sequence)?;
        return Ok((index < node.content.len()).then_some(index));
    }
    if part == "-" {
        field::expect(node, YamlNodeKind::Sequence)?;
        return node.content.len().checked_sub(1).map(Some).ok_or(Error::NoLast);
    }
    if part == "*" {
        return Err(Error::Wildcard);
    }
    if !is_pair(part) {
        return Ok(field::position(node, part)?);
    }
    let (name, value) = pair(part)?;
    field::expect(node, YamlNodeKind::Sequence)?;
    if name.is_empty() {
        return Ok(node.content.iter().position(|item| item.value == value));
    }
    let has_it = |item: &YamlNode| {
        let at = field::position(item, name).ok().flatten();
        at.and_then(|at| item.content.get(at)).is_some_and(|found| found.value == value)
    };
    Ok(node.content.iter().position(has_it))
}

/// The parts that are not blank, without surrounding white space.
fn clean(path: &[impl AsRef<str>]) -> Result<Vec<&str>, Error> {
    if path.len() > MAX_PARTS {
        return Err(Error::TooLong);
    }
    Ok(path.iter().map(|part| part.as_ref().trim()).filter(|part| !part.is_empty()).collect())
}
